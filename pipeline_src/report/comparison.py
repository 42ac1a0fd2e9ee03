"""Several experiments side by side, and ablations beside the paper's: ``report --experiments A B``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from pipeline_src.report.drawing import BLUE, GREY, INK, new_axes, svg
from pipeline_src.report.experiments import Experiment
from pipeline_src.report.members import group, lines_of, picture
from pipeline_src.report.page import BOXES, environment
from pipeline_src.report.paired import compared_with
from pipeline_src.report.published import split_of
from pipeline_src.report.results import is_synthetic
from pipeline_src.report.table import METRICS, verdict
from pipeline_src.report.traced import JsonRef

TABLES = Path("workflow/ablations")
OURS = {
    "accuracy": ("accuracy",),
    "F1": ("f1", "entity_f1"),
    "Matthews": ("matthews",),
}  # the paper's in our rows
SECTIONS = {"members": "Means over seeds", "figures": "Figures", "side_by_side": "Scores", "ablations": "Ablations"}


@dataclass(frozen=True)
class Variant:
    """One line of an ablation table of the paper.

    Attributes:
        place: where its file names it: ``study`` for the study without a change, else the experiment.
        paper: the paper's figure; None where it has none.
        experiment, row: the experiment that is this variant and its row of scores, None where none is.
    """

    place: JsonRef
    paper: JsonRef | None
    experiment: Experiment | None
    row: JsonRef | None

    @property
    def name(self) -> str:
        """As the file has it."""
        return self.place.pointer.rsplit("/", 1)[1]


@dataclass(frozen=True)
class Ablation:
    """One score of one of the paper's tables, of which the experiments are two variants or more.

    Attributes:
        title: of the task and metric, as the experiments name it.
        synthetic: whether the experiments' data were made up.
        source: of the paper's figures.
        variants: all of the table.
        picture: the change from the first variant that an experiment is, here and in the paper.
    """

    title: str
    synthetic: bool
    source: JsonRef
    variants: list[Variant]
    picture: str


def render_comparison(experiments: Sequence[Experiment]) -> str:
    """The page of a comparison; the first experiment is what the others are compared with."""
    rows = [row for experiment in experiments for row in experiment.scores.value["rows"]]
    against = [compared_with(experiments[0], other) for other in experiments[1:]]
    lines = []
    for eval_set, metric in dict.fromkeys((row["eval_set"], row["metric"]) for row in rows):
        scores = [experiment.row(eval_set, metric) for experiment in experiments]
        known = next(ref for ref in scores if ref is not None)
        tests = [of[f"{eval_set}/{metric}"] if f"{eval_set}/{metric}" in of else None for of in against]
        lines.append((known["title"], METRICS.get(metric, metric), split_of(known.value["file"]), scores, tests))
    members = group(experiments)
    averaged = any(len(one.experiments) > 1 for one in members)
    means = lines_of(members) if averaged else []
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
            verdict=lambda ref: verdict(ref.value, better="better"),
            made=lambda ref, experiment: is_synthetic(experiment.scores.value, ref.value["task"]),
            ablations=find_ablations(experiments),
            members=members,
            means=means,
            members_picture=picture(members, means),
        )
    )


def _summary_keys(experiments: Sequence[Experiment]) -> list[str]:
    names = {name for experiment in experiments for name in experiment.summary.value}
    return [name for plain in BOXES for name in (plain, f"synthetic_{plain}") if name in names]


def _label(name: str) -> tuple[str, bool]:
    plain = name.removeprefix("synthetic_")
    return BOXES[plain][0], plain != name


def differing(experiments: Sequence[Experiment]) -> list[tuple[str, list[Any]]]:
    """Parameters that are not the same in all, with their value in each."""
    keys = sorted({key for experiment in experiments for key in experiment.params})
    rows = [(key, [experiment.params.get(key) for experiment in experiments]) for key in keys]
    return [(key, values) for key, values in rows if any(value != values[0] for value in values)]


def read_tables() -> list[JsonRef]:
    """The paper's ablations: ``workflow/ablations/*.yaml``, as far as they hold its figures."""
    tables = [
        JsonRef(yaml.safe_load(path.read_text(encoding="utf-8")), path.as_posix())
        for path in sorted(TABLES.glob("*.yaml"))
    ]
    return [table for table in tables if table.value.get("source")]


def find_ablations(experiments: Sequence[Experiment]) -> list[Ablation]:
    """Scores of the paper's tables of which the experiments are two variants or more.

    An experiment is the variant whose name it bears; the first that bears none is the study without a change.
    """
    tables = read_tables()
    named = {name for table in tables for name in table.value["experiments"]}
    by_name = {experiment.name: experiment for experiment in experiments}
    study = next((experiment for experiment in experiments if experiment.name not in named), None)
    ablations: list[Ablation] = []
    for table in tables:
        for key, metric in table.value["metrics"].items():
            variants = [
                Variant(place, _figure(place, key), by_name.get(name), _row(by_name.get(name), key, metric))
                for name, place in table["experiments"].items()
            ]
            if "study" in table:
                variants.insert(0, Variant(table["study"], table["study"][key], study, _row(study, key, metric)))
            known = [(variant.experiment, variant.row) for variant in variants if variant.experiment and variant.row]
            if len(known) < 2 or any(split_of(row.value["file"]) != table.value["split"] for _, row in known):
                continue
            made = any(is_synthetic(experiment.scores.value, row.value["task"]) for experiment, row in known)
            row = known[0][1].value
            title = f"{row['title']}, {METRICS.get(row['metric'], row['metric'])}"
            picture = _bars(f"ablation-{len(ablations)}", title, made, variants)
            ablations.append(Ablation(title, made, table["source"], variants, picture))
    return ablations


def _figure(place: JsonRef, key: str) -> JsonRef | None:
    """What was published for one experiment of a table."""
    return place["paper"][key] if key in place.value.get("paper", {}) else None


def _row(experiment: Experiment | None, key: str, metric: str) -> JsonRef | None:
    """The row of scores that a table's figure stands beside."""
    if experiment is None:
        return None
    rows = (experiment.row(key.removesuffix("_m"), name) for name in OURS.get(metric, ()))
    return next((row for row in rows if row is not None), None)


def _bars(name: str, title: str, made: bool, variants: Sequence[Variant]) -> str:
    """How far each variant is from the first that an experiment is, here and in the paper."""
    first = next(variant for variant in variants if variant.row is not None)
    rest = [variant for variant in variants if variant is not first]
    assert first.row is not None
    base = first.row["mean"].value
    places = list(range(len(rest)))[::-1]
    axes = new_axes(4.7, 0.5 * len(rest) + 1.4)
    ours = [
        (place, variant.row["mean"].value - base)
        for place, variant in zip(places, rest, strict=True)
        if variant.row is not None
    ]
    kind = "this study, synthetic" if made else "this study"
    axes.barh([place + 0.2 for place, _ in ours], [value for _, value in ours], 0.36, color=BLUE, label=kind)
    published = [
        (place, variant.paper.value - first.paper.value)
        for place, variant in zip(places, rest, strict=True)
        if variant.paper is not None and first.paper is not None
    ]
    axes.barh(
        [place - 0.2 for place, _ in published],
        [value for _, value in published],
        0.36,
        color=GREY,
        hatch="//",
        edgecolor=INK,
        linewidth=0,
        label="paper",
    )
    axes.axvline(0, color=INK, linewidth=1)
    axes.set_yticks(places, [variant.name for variant in rest])
    axes.set(title=title, xlabel=f"points from {first.name}")
    axes.figure.legend(loc="outside lower center", ncols=2)
    return svg(
        axes, name, f"{title}: change of each variant, in this study{' (synthetic)' if made else ''} and in the paper"
    )
