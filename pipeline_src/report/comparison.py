"""Compare several experiments, and ablations with the paper's: ``report --experiments A B``."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline_src.report.experiments import Experiment, compared_with
from pipeline_src.report.figures import BLUE, GREY, INK, new_axes, svg
from pipeline_src.report.headline import split_of
from pipeline_src.report.page import summary_label
from pipeline_src.report.results import METRICS, SUMMARY, further_rows, is_synthetic
from pipeline_src.report.table import verdict
from pipeline_src.report.traced import JsonRef, TracedValue, computed, environment, load_yaml

WITHOUT_RESULT = {"seed", "pretrain.keep_checkpoint_steps"}  # may differ between runs of one member
AVERAGES = ("glue", "from_corpus", "synthetic_glue")  # members are compared by the first of these that they share


@dataclass(frozen=True)
class Member:
    """Experiments of one study with different seeds.

    Attributes:
        name: common name of its experiments, without the number at the end.
        experiments: in the order of their seeds.
    """

    name: str
    experiments: tuple[Experiment, ...]

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(int(experiment.params.get("seed", 0)) for experiment in self.experiments)


@dataclass(frozen=True)
class Cell:
    """One figure of one member.

    Attributes:
        mean: mean over its seeds.
        error: half the interval of the mean (Student's t over seeds, 95 %); None for one seed.
        difference, difference_error: difference from the first member, paired by seed, and half its interval; None if
            they share fewer than two seeds.
    """

    mean: TracedValue
    error: TracedValue | None
    difference: TracedValue | None = None
    difference_error: TracedValue | None = None

    @property
    def significant(self) -> bool | None:
        """True if the difference is larger than its interval over seeds; None without a difference."""
        if self.difference is None or self.difference_error is None:
            return None
        return abs(self.difference.value) > self.difference_error.value


@dataclass(frozen=True)
class Line:
    """One figure of every member.

    Attributes:
        title: title of the figure; for a score, a reference to the task's title.
        metric: a task's metric; empty for a figure of the summary.
        format, signed: formats of means and of differences.
        cells: one per member, None if it has no such figure.
    """

    title: str | JsonRef
    metric: str
    format: str
    signed: str
    cells: tuple[Cell | None, ...]


def group(experiments: Sequence[Experiment]) -> list[Member]:
    """Group experiments that differ only in the seed into members, in the order in which each is first named."""
    found: dict[str, list[Experiment]] = {}
    for experiment in experiments:
        same = {name: value for name, value in experiment.params.items() if name not in WITHOUT_RESULT}
        runs = found.setdefault(json.dumps(same, sort_keys=True, default=str), [])
        if all(one.params.get("seed") != experiment.params.get("seed") for one in runs):  # no duplicates
            runs.append(experiment)
    return [
        Member(_name(runs), tuple(sorted(runs, key=lambda one: int(one.params.get("seed", 0)))))
        for runs in found.values()
    ]


def _name(runs: Sequence[Experiment]) -> str:
    stems = Counter(stem for one in runs if (stem := re.sub(r"-\d+$", "", one.name)) != one.name)
    return stems.most_common(1)[0][0] if stems and len(runs) > 1 else runs[0].name


def lines_of(members: Sequence[Member]) -> list[Line]:
    """Return the lines of the comparison: figures of the summaries, then every score."""
    experiments = [experiment for member in members for experiment in member.experiments]
    lines = []
    for name, label, format, synthetic in _summary_figures(experiments):
        if isinstance(label, str) and not name.endswith("_error"):  # the user's own tasks are among the scores
            values = [
                [one.summary[name] if name in one.summary else None for one in member.experiments] for member in members
            ]
            signed = "signed" if format == "one" else "signed_three"
            lines.append(Line(label + ", synthetic" * synthetic, "", format, signed, _cells(members, values)))
    rows = [row for experiment in experiments for row in experiment.scores["rows"]]
    for (eval_set, metric), row in {(row.value["eval_set"], row.value["metric"]): row for row in rows}.items():
        found = [[one.row(eval_set, metric) for one in member.experiments] for member in members]
        values = [[None if one is None else one["mean"] for one in of_member] for of_member in found]
        lines.append(Line(row["title"], METRICS.get(metric, metric), "one", "signed", _cells(members, values)))
    return lines


def _cells(members: Sequence[Member], values: Sequence[Sequence[JsonRef | None]]) -> tuple[Cell | None, ...]:
    cells: list[Cell | None] = []
    for member, found in zip(members, values, strict=True):
        ours = [value for value in found if value is not None]
        theirs = [value for value in values[0] if value is not None]
        if not ours:
            cells.append(None)
            continue
        mean, error = computed("average", *ours), computed("error over seeds", *ours) if len(ours) > 1 else None
        whole = len(ours) == len(found) and len(theirs) == len(values[0])
        if member is members[0] or not whole or member.seeds != members[0].seeds or len(ours) < 2:
            cells.append(Cell(mean, error))
        else:
            both = (*ours, *theirs)
            cells.append(
                Cell(mean, error, computed("mean difference", *both), computed("error of the mean difference", *both))
            )
    return tuple(cells)


def picture(members: Sequence[Member], lines: Sequence[Line]) -> str:
    """Plot the members' averages with their intervals; empty if they share none."""
    shared = [SUMMARY[name.removeprefix("synthetic_")][0] + ", synthetic" * (name not in SUMMARY) for name in AVERAGES]
    line = next((one for title in shared for one in lines if one.title == title and all(one.cells)), None)
    if line is None:
        return ""
    axes, places = new_axes(4.7, 0.42 * len(members) + 1.2), range(len(members))[::-1]
    for place, cell in zip(places, line.cells, strict=True):
        assert cell is not None
        error = 0.0 if cell.error is None else cell.error.value
        axes.errorbar(cell.mean.value, place, xerr=error, fmt="o", color=BLUE, ecolor=GREY, capsize=3)
    first = line.cells[0]
    assert first is not None
    axes.axvline(first.mean.value, color=INK, linewidth=0.8, linestyle=":")
    axes.set_yticks(places, [member.name for member in members])
    axes.set(xlabel=f"{line.title} (percent)", title="Mean over seeds, with its interval")
    return svg(axes, "members", f"{line.title}: " + ", ".join(member.name for member in members))


TABLES = Path("workflow/ablations")
OURS = {"accuracy": ("accuracy",), "F1": ("f1", "entity_f1"), "Matthews": ("matthews",)}  # the paper's metric -> ours
SECTIONS = {"members": "Means over seeds", "figures": "Figures", "side_by_side": "Scores", "ablations": "Ablations"}


@dataclass(frozen=True)
class Variant:
    """One line of an ablation table of the paper.

    Attributes:
        place: its place in the table's file: ``study`` for the study without a change, else the experiment.
        paper: the paper's figure, if it has one.
        experiment, row: the experiment that is this variant, and its row of scores, if there is one.
    """

    place: JsonRef
    paper: JsonRef | None
    experiment: Experiment | None
    row: JsonRef | None

    @property
    def name(self) -> str:
        return self.place.pointer.rsplit("/", 1)[1]


@dataclass(frozen=True)
class Ablation:
    """One score of one of the paper's tables that has at least two variants among the experiments.

    Attributes:
        title: task and metric, as the experiments name them.
        synthetic: whether the experiments' data are synthetic.
        source: source of the paper's figures.
        variants: all variants of the table.
        picture: change from the first variant that is an experiment, here and in the paper.
    """

    title: str
    synthetic: bool
    source: JsonRef
    variants: list[Variant]
    picture: str


def render_comparison(experiments: Sequence[Experiment]) -> str:
    """Render the comparison; the others are compared with the first experiment."""
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
            summaries=_summary_figures(experiments),
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


def _summary_figures(experiments: Sequence[Experiment]) -> list[tuple[str, str | JsonRef, str, bool]]:
    """Name, label and format of each figure in any summary, and whether it is synthetic."""
    own = {name: row for experiment in experiments for name, row in further_rows(experiment.scores).items()}
    names = {name for experiment in experiments for name in experiment.summary.value}
    order = [name for plain in SUMMARY for name in (plain, f"synthetic_{plain}")]
    return [(name, *found) for name in [*order, *own] if name in names and (found := summary_label(name, own))]


def differing(experiments: Sequence[Experiment]) -> list[tuple[str, list[Any]]]:
    """Return the parameters that differ between experiments, with their value in each."""
    keys = sorted({key for experiment in experiments for key in experiment.params})
    rows = [(key, [experiment.params.get(key) for experiment in experiments]) for key in keys]
    return [(key, values) for key, values in rows if any(value != values[0] for value in values)]


def read_tables() -> list[JsonRef]:
    """Read the paper's ablations, the tables in ``workflow/ablations/`` that have a source."""
    tables = [JsonRef(load_yaml(path), path.as_posix()) for path in sorted(TABLES.glob("*.yaml"))]
    return [table for table in tables if table.value.get("source")]


def find_ablations(experiments: Sequence[Experiment]) -> list[Ablation]:
    """Find the scores of the paper's tables that have at least two variants among the experiments.

    An experiment is the variant with its name; the first experiment without a variant is the study without a change.
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
    return place["paper"][key] if key in place.value.get("paper", {}) else None


def _row(experiment: Experiment | None, key: str, metric: str) -> JsonRef | None:
    """Row of scores to compare with a table's figure."""
    if experiment is None:
        return None
    rows = (experiment.row(key.removesuffix("_m"), name) for name in OURS.get(metric, ()))
    return next((row for row in rows if row is not None), None)


def _bars(name: str, title: str, made: bool, variants: Sequence[Variant]) -> str:
    """Plot each variant's change from the first one that is an experiment, here and in the paper."""
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
    style: dict[str, Any] = {"color": GREY, "hatch": "//", "edgecolor": INK, "linewidth": 0, "label": "paper"}
    axes.barh([place - 0.2 for place, _ in published], [value for _, value in published], 0.36, **style)
    axes.axvline(0, color=INK, linewidth=1)
    axes.set_yticks(places, [variant.name for variant in rest])
    axes.set(title=title, xlabel=f"points from {first.name}")
    axes.figure.legend(loc="outside lower center", ncols=2)
    return svg(
        axes, name, f"{title}: change of each variant, in this study{' (synthetic)' if made else ''} and in the paper"
    )
