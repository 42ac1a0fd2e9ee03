"""Several experiments side by side, and ablations beside the paper's: ``report --experiments A B``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pipeline_src.report.drawing import BLUE, GREY, INK, new_axes, svg
from pipeline_src.report.experiments import Experiment
from pipeline_src.report.page import BOXES, environment
from pipeline_src.report.published import read_paper, split_of
from pipeline_src.report.results import is_synthetic
from pipeline_src.report.sourced import Node
from pipeline_src.report.table import METRICS

SECTIONS = {"figures": "Figures", "side_by_side": "Scores", "ablations": "Ablations"}


@dataclass(frozen=True)
class Ablation:
    """One score of one of the paper's tables, of its variants that the experiments are.

    Attributes:
        title: of the task and metric, as the experiments name it.
        synthetic: whether the experiments' data were made up.
        source: of the paper's figures.
        variants: name, the paper's figure, and the experiment with its row of scores, None where none is that variant.
        picture: the change from the first variant, of both.
    """

    title: str
    synthetic: bool
    source: Node
    variants: list[tuple[Node, Node, Experiment | None, Node | None]]
    picture: str


def render_comparison(experiments: Sequence[Experiment]) -> str:
    """The page of a comparison; the first experiment is what the others are compared with."""
    keys = dict.fromkeys((row["row"], row["metric"]) for one in experiments for row in one.scores.value["rows"])
    lines = []
    for row, metric in keys:
        found = [one.row(row, metric) for one in experiments]
        known = next(node for node in found if node is not None)
        lines.append((known["title"], METRICS.get(metric, metric), split_of(known.value["file"]), found))
    return (
        environment()
        .get_template("comparison.html.j2")
        .render(
            title="Experiments side by side",
            sections=list(SECTIONS.items()),
            experiments=experiments,
            summaries=[
                (_label(name), BOXES[name.removeprefix("synthetic_")][1], name) for name in _summary_keys(experiments)
            ],
            params=differing(experiments),
            lines=lines,
            made=lambda node, experiment: is_synthetic(experiment.scores.value, node.value["task"]),
            ablations=find_ablations(experiments),
        )
    )


def _summary_keys(experiments: Sequence[Experiment]) -> list[str]:
    names = {name for one in experiments for name in one.summary.value}
    return [name for plain in BOXES for name in (plain, f"synthetic_{plain}") if name in names]


def _label(name: str) -> tuple[str, bool]:
    plain = name.removeprefix("synthetic_")
    return BOXES[plain][0], plain != name


def differing(experiments: Sequence[Experiment]) -> list[tuple[str, list[Any]]]:
    """Parameters that are not the same in all, with their value in each."""
    keys = sorted({key for one in experiments for key in one.params})
    rows = [(key, [one.params.get(key) for one in experiments]) for key in keys]
    return [(key, values) for key, values in rows if any(value != values[0] for value in values)]


def find_ablations(experiments: Sequence[Experiment]) -> list[Ablation]:
    """Scores of the paper's tables of which the experiments are two variants or more."""
    found: list[Ablation] = []
    for table in read_paper()["ablations"]:
        which = [
            next((one for one in experiments if is_variant(one.params, variant)), None) for variant in table["variants"]
        ]
        if sum(one is not None for one in which) < 2:
            continue
        for name in table["variants"][0].value["scores"]:
            row, metric = name.split(" ")
            rows = [one.row(row, metric) if one else None for one in which]
            known = [node for node in rows if node is not None]
            if len(known) < 2 or split_of(known[0].value["file"]) != table.value["split"]:
                continue
            made = any(
                is_synthetic(one.scores.value, node.value["task"])
                for one, node in zip(which, rows, strict=True)
                if one and node
            )
            variants = [
                (variant["name"], variant["scores"][name], one, node)
                for variant, one, node in zip(table["variants"], which, rows, strict=True)
            ]
            title = f"{known[0].value['title']}, {METRICS.get(metric, metric)}"
            picture = _bars(f"ablation-{len(found)}", title, made, variants)
            found.append(Ablation(title, made, table["source"], variants, picture))
    return found


def is_variant(params: dict[str, Any], variant: Node) -> bool:
    """Whether an experiment has the parameters of a variant; heads that are left open are one in 64 of the width."""
    heads = params.get("model.heads") or params.get("model.hidden", 0) // 64
    return all((params | {"model.heads": heads}).get(key) == value for key, value in variant.value["when"].items())


def _bars(name: str, title: str, made: bool, variants: list[tuple[Node, Node, Experiment | None, Node | None]]) -> str:
    """How far each variant is from the first that an experiment is, here and in the paper."""
    first = next(place for place, variant in enumerate(variants) if variant[3] is not None)
    base_paper, base_ours = variants[first][1].value, variants[first][3]["mean"].value  # type: ignore[index]
    rest = [variant for place, variant in enumerate(variants) if place != first]
    places = list(range(len(rest)))[::-1]
    axes = new_axes(4.7, 0.5 * len(rest) + 1.4)
    paper = [variant[1].value - base_paper for variant in rest]
    ours = [
        (place + 0.2, variant[3]["mean"].value - base_ours)
        for place, variant in zip(places, rest, strict=True)
        if variant[3]
    ]
    kind = "this study, synthetic" if made else "this study"
    axes.barh([place for place, _ in ours], [value for _, value in ours], 0.36, color=BLUE, label=kind)
    axes.barh(
        [place - 0.2 for place in places],
        paper,
        0.36,
        color=GREY,
        hatch="//",
        edgecolor=INK,
        linewidth=0,
        label="paper",
    )
    axes.axvline(0, color=INK, linewidth=1)
    axes.set_yticks(places, [variant[0].value for variant in rest])
    axes.set(title=title, xlabel=f"points from “{variants[first][0].value}”")
    axes.figure.legend(loc="outside lower center", ncols=2)
    return svg(
        axes, name, f"{title}: change of each variant, in this study{' (synthetic)' if made else ''} and in the paper"
    )
