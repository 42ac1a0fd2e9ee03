"""Compare several experiments with each other, and ablations with the paper's: ``report --experiments A B``."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from scipy.special import stdtrit

from pipeline_src.common.yaml_files import parse_yaml
from pipeline_src.report.columns import ScoreRow, verdict
from pipeline_src.report.experiments import Experiment, compared_with
from pipeline_src.report.figures import BELOW, BLUE, GREY, INK, ORANGE, PANELS, curve_points, new_axes, svg
from pipeline_src.report.page import summary_label
from pipeline_src.report.rendering import render
from pipeline_src.report.results import SUMMARY, extra_scores

WITHOUT_RESULT = {"seed", "pretrain.keep_checkpoint_steps"}  # keys that may differ between the runs of a member
AVERAGES = ("glue", "from_corpus", "synthetic_glue")  # the first average that all members have is plotted
TABLES = Path("workflow/ablations")
METRIC_KEYS = {
    "accuracy": ("accuracy",),
    "F1": ("f1", "entity_f1"),
    "Matthews": ("matthews",),
}  # the paper's metric -> ours
CURVES = [name for name in PANELS if name != "learning_rate"]  # quantities whose curves are compared
LINES = ("-", "--", ":")


def render_comparison(experiments: Sequence[Experiment]) -> str:
    """Render the page that compares the first experiment with each of the others."""
    first, *peers = experiments
    differences = [{}, *(compared_with(first, peer) for peer in peers)]
    scores = [
        (next(filter(None, rows)), [(row, by_key.get(key)) for row, by_key in zip(rows, differences, strict=True)])
        for key, rows in _rows_by_key(experiments).items()
    ]
    members = group(experiments)
    means = lines_of(members) if any(len(member.experiments) > 1 for member in members) else []
    ablations, panels = find_ablations(experiments), curve_panels(experiments)
    # A section without content is left out.
    sections = {"members": "Means over seeds"} if means else {}
    sections |= {"figures": "Figures", "side_by_side": "Scores"}
    sections |= {"curves": "Curves"} if panels else {}
    sections |= {"ablations": "Ablations"} if ablations else {}
    return render(
        "comparison.html.j2",
        title="Experiments side by side",
        sections=list(sections.items()),
        experiments=experiments,
        summaries=_summary_figures(experiments),
        params=differing(experiments),
        scores=scores,
        verdict=lambda row, difference: verdict(difference, len(row.values), better="better"),
        ablations=ablations,
        panels=panels,
        members=members,
        means=means,
        members_picture=picture(members, means),
    )


def curve_panels(experiments: Sequence[Experiment]) -> list[str]:
    """Plot the training curves of all experiments over each other, one plot for each quantity that any measured."""
    panels = []
    for name in CURVES:
        axes, panel = new_axes(), PANELS[name]
        # With three colours and three kinds of line, nine experiments differ.
        styles = itertools.cycle(itertools.product(LINES, (BLUE, ORANGE, GREY)))
        for experiment, (line, colour) in zip(experiments, styles, strict=False):
            steps, values = _all_phases(experiment, name, panel.factor)
            if steps:
                axes.plot(steps, values, line, color=colour, linewidth=1.3, label=experiment.name)
            steps, values = _all_phases(experiment, f"validation_{name}", panel.factor)
            axes.plot(steps, values, "o", color=colour, markersize=3.5)
        if axes.get_legend_handles_labels()[1]:
            axes.set(title=panel.title, xlabel="step", ylabel=panel.label)
            axes.figure.legend(loc="outside lower center")
            panels.append(svg(axes, f"curve-{name}", f"{panel.title} by training step, for each experiment"))
    return panels


def _all_phases(experiment: Experiment, column: str, factor: int) -> tuple[list[float], list[float]]:
    """Return the steps and the values, times ``factor``, of a column of the curves of all phases."""
    phases = [curve_points(curve, column) for curve in experiment.curves.values()]
    points = list(itertools.chain.from_iterable(phases))
    return [step for step, _ in points], [factor * value for _, value in points]


def _rows_by_key(experiments: Sequence[Experiment]) -> dict[tuple[str, str], list[ScoreRow | None]]:
    """Return, for each (evaluation set, metric), one row per experiment, or None if it has no such row."""
    keys = dict.fromkeys((row.eval_set, row.metric_key) for experiment in experiments for row in experiment.rows)
    return {key: [experiment.row(*key) for experiment in experiments] for key in keys}


def _summary_figures(experiments: Sequence[Experiment]) -> list[tuple[str, str, str, bool]]:
    """Return (name, label, format, whether it is synthetic) of each figure that is in any summary."""
    extra = {name: row for experiment in experiments for name, row in extra_scores(experiment.rows).items()}
    names = {name for experiment in experiments for name in experiment.summary}
    order = [name for plain in SUMMARY for name in (plain, f"synthetic_{plain}")]
    return [(name, *label) for name in [*order, *extra] if name in names and (label := summary_label(name, extra))]


def differing(experiments: Sequence[Experiment]) -> list[tuple[str, list[Any]]]:
    """Return the parameters that differ between experiments, with the value in each experiment."""
    keys = sorted({key for experiment in experiments for key in experiment.params})
    rows = [(key, [experiment.params.get(key) for experiment in experiments]) for key in keys]
    return [(key, values) for key, values in rows if any(value != values[0] for value in values)]


@dataclass(frozen=True)
class Member:
    """Experiments that differ only in the seed, sorted by seed."""

    name: str
    experiments: tuple[Experiment, ...]

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(_seed(experiment) for experiment in self.experiments)


@dataclass(frozen=True)
class Cell:
    """One figure of one member: its mean over seeds, and the difference from the first member, paired by seed.

    ``error`` and ``difference_error`` are half a 95 % interval (Student's t over seeds); None for fewer than two seeds.
    """

    mean: float
    error: float | None
    difference: float | None = None
    difference_error: float | None = None

    @property
    def interval(self) -> tuple[float, float] | None:
        return _around(self.mean, self.error)

    @property
    def difference_interval(self) -> tuple[float, float] | None:
        return _around(self.difference, self.difference_error)

    @property
    def significant(self) -> bool | None:
        """Whether the difference is larger than its error; None if it is not known."""
        if self.difference is None or self.difference_error is None:
            return None
        return abs(self.difference) > self.difference_error


def _around(value: float | None, error: float | None) -> tuple[float, float] | None:
    return None if value is None or error is None else (value - error, value + error)


@dataclass(frozen=True)
class Line:
    """One figure for every member, with the format ``digits``; the metric is empty for a figure of the summary."""

    title: str
    metric: str
    digits: str
    cells: tuple[Cell | None, ...]


def group(experiments: Sequence[Experiment]) -> list[Member]:
    """Make one ``Member`` of all experiments that differ only in their seed.

    Its name is that of its experiments, without the number at the end. Members are in the order of their first runs.
    """
    runs_by_params: dict[str, list[Experiment]] = {}
    for experiment in experiments:
        params = {name: value for name, value in experiment.params.items() if name not in WITHOUT_RESULT}
        runs = runs_by_params.setdefault(json.dumps(params, sort_keys=True, default=str), [])
        if all(run.params.get("seed") != experiment.params.get("seed") for run in runs):  # no duplicates
            runs.append(experiment)
    return [Member(_name(runs), tuple(sorted(runs, key=_seed))) for runs in runs_by_params.values()]


def _seed(experiment: Experiment) -> int:
    return int(experiment.params.get("seed", 0))


def _name(runs: Sequence[Experiment]) -> str:
    stems = Counter(stem for run in runs if (stem := re.sub(r"-\d+$", "", run.name)) != run.name)
    return stems.most_common(1)[0][0] if stems and len(runs) > 1 else runs[0].name


def lines_of(members: Sequence[Member]) -> list[Line]:
    """Return the lines of the comparison: figures of the summaries, then every score."""
    experiments = [experiment for member in members for experiment in member.experiments]
    lines = []
    for name, label, format, synthetic in _summary_figures(experiments):
        plain = name.removeprefix("synthetic_")
        if plain in SUMMARY and not name.endswith("_error"):  # the user's own tasks are among the scores
            values = [[experiment.summary.get(name) for experiment in member.experiments] for member in members]
            digits = "one" if format == "one" else "three"
            lines.append(Line(label + ", synthetic" * synthetic, "", digits, _cells(members, values)))
    for key, rows in _rows_by_key(experiments).items():
        first = next(filter(None, rows))
        by_member = [[experiment.row(*key) for experiment in member.experiments] for member in members]
        values = [[row.mean if row else None for row in scores] for scores in by_member]
        lines.append(Line(first.title, first.metric, "one", _cells(members, values)))
    return lines


def _cells(members: Sequence[Member], values: Sequence[Sequence[float | None]]) -> tuple[Cell | None, ...]:
    cells: list[Cell | None] = []
    first = values[0]
    for member, scores in zip(members, values, strict=True):
        known = [value for value in scores if value is not None]
        if not known:
            cells.append(None)
        elif member is members[0] or member.seeds != members[0].seeds or None in (*scores, *first):
            cells.append(Cell(fmean(known), _error(known)))
        else:
            changes = [value - baseline for value, baseline in zip(known, first, strict=True) if baseline is not None]
            difference = fmean(changes) if len(changes) > 1 else None
            cells.append(Cell(fmean(known), _error(known), difference, _error(changes)))
    return tuple(cells)


def _error(values: Sequence[float]) -> float | None:
    """Return half the 95 % interval of the mean of a few values (Student 1908); None for fewer than two."""
    if len(values) < 2:
        return None
    return float(stdtrit(len(values) - 1, 0.975)) * stdev(values) / math.sqrt(len(values))


def picture(members: Sequence[Member], lines: Sequence[Line]) -> str:
    """Plot the first of ``AVERAGES`` that all members have, with intervals; empty if they share none."""
    shared = [SUMMARY[name.removeprefix("synthetic_")][0] + ", synthetic" * (name not in SUMMARY) for name in AVERAGES]
    line = next((line for title in shared for line in lines if line.title == title and all(line.cells)), None)
    cells = [cell for cell in line.cells if cell] if line else []
    if line is None or not cells:
        return ""
    axes, heights = new_axes(4.7, 0.42 * len(members) + 1.2), range(len(members))[::-1]
    for height, cell in zip(heights, cells, strict=True):
        axes.errorbar(cell.mean, height, xerr=cell.error or 0.0, fmt="o", color=BLUE, ecolor=GREY, capsize=3)
    axes.axvline(cells[0].mean, color=INK, linewidth=0.8, linestyle=":")
    axes.set_yticks(heights, [member.name for member in members])
    axes.set(xlabel=f"{line.title} (percent)", title="Mean over seeds, with its 95 % interval")
    return svg(axes, "members", f"{line.title}: " + ", ".join(member.name for member in members))


@dataclass(frozen=True)
class Variant:
    """A line of an ablation table: the paper's score, and the experiment of the same name with its score."""

    name: str
    paper: float | None
    experiment: Experiment | None
    row: ScoreRow | None


@dataclass(frozen=True)
class Ablation:
    """A score of a table of the paper, for which at least two variants are among the experiments."""

    title: str
    synthetic: bool
    source: str
    variants: list[Variant]
    picture: str


def read_tables() -> list[dict[str, Any]]:
    """Read the paper's ablations: the files in ``workflow/ablations/`` that have a source."""
    tables = [parse_yaml(path.read_text(encoding="utf-8")) for path in sorted(TABLES.glob("*.yaml"))]
    return [table for table in tables if table.get("source")]


def find_ablations(experiments: Sequence[Experiment]) -> list[Ablation]:
    """Match experiments by name with the variants in the paper's tables; skip scores of fewer than two experiments.

    The first experiment that is not named like a variant is the unchanged study.
    """
    tables = read_tables()
    named = {name for table in tables for name in table["experiments"]}
    by_name = {experiment.name: experiment for experiment in experiments}
    study = next((experiment for experiment in experiments if experiment.name not in named), None)
    ablations: list[Ablation] = []
    for table in tables:
        for key, metric in table["metrics"].items():
            figures = {name: change.get("paper", {}).get(key) for name, change in table["experiments"].items()}
            runs = {name: by_name.get(name) for name in figures}
            if "study" in table:
                figures, runs = {"study": table["study"][key]} | figures, {"study": study} | runs
            variants = [Variant(name, figures[name], run, _row(run, key, metric)) for name, run in runs.items()]
            rows = [variant.row for variant in variants if variant.row]
            if len(rows) < 2 or any(row.split != table["split"] for row in rows):
                continue
            synthetic = any(row.synthetic for row in rows)
            title = f"{rows[0].title}, {rows[0].metric}"
            bars = _bars(f"ablation-{len(ablations)}", title, synthetic, variants)
            ablations.append(Ablation(title, synthetic, table["source"], variants, bars))
    return ablations


def _row(experiment: Experiment | None, key: str, metric: str) -> ScoreRow | None:
    """Return the score of ``experiment`` that corresponds to ``key`` and ``metric`` of a table."""
    if experiment is None:
        return None
    rows = (experiment.row(key.removesuffix("_m"), name) for name in METRIC_KEYS.get(metric, ()))
    return next((row for row in rows if row is not None), None)


def _bars(name: str, title: str, synthetic: bool, variants: Sequence[Variant]) -> str:
    """Plot how each variant differs from the first one that is an experiment, in this study and in the paper."""
    first = next(variant for variant in variants if variant.row)
    changed = [variant for variant in reversed(variants) if variant is not first]
    scores = {variant.name: variant.row.mean for variant in variants if variant.row}
    paper = {variant.name: variant.paper for variant in variants if variant.paper is not None}
    axes = new_axes(4.7, 0.5 * len(changed) + 1.4)
    sides: list[tuple[dict[str, float], float, dict[str, Any]]] = [
        (scores, 0.2, {"color": BLUE, "label": "this study, synthetic" if synthetic else "this study"}),
        (paper, -0.2, {"color": GREY, "hatch": "//", "edgecolor": INK, "linewidth": 0, "label": "paper"}),
    ]
    for values, shift, style in sides:
        names = {at: variant.name for at, variant in enumerate(changed) if {variant.name, first.name} <= values.keys()}
        points = [values[name] - values[first.name] for name in names.values()]
        axes.barh([at + shift for at in names], points, 0.36, **style)
    axes.axvline(0, color=INK, linewidth=1)
    axes.set_yticks(range(len(changed)), [variant.name for variant in changed])
    axes.set(title=title, xlabel=f"points from {first.name}")
    axes.figure.legend(**BELOW)
    where = "in this study (synthetic)" if synthetic else "in this study"
    return svg(axes, name, f"{title}: change of each variant, {where} and in the paper")
