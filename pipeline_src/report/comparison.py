"""The page of ``report --experiments A B``: experiments side by side, and ablations beside those of the paper."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple

from scipy.special import stdtrit

from pipeline_src.base.yaml_files import parse_yaml
from pipeline_src.report.columns import ScoreRow, verdict
from pipeline_src.report.experiments import Experiment, compared_with
from pipeline_src.report.figures import BLUE, GREY, ORANGE, PANELS, curve_points, new_axes, svg
from pipeline_src.report.page import summary_label
from pipeline_src.report.rendering import render
from pipeline_src.report.results import SUMMARY, extra_scores

# Parameters that may differ between the runs of one member.
WITHOUT_RESULT = {"seed", "pretrain.keep_checkpoint_steps"}
TABLES = Path("workflow/ablations")
# Metric in the paper's tables -> metrics of this project.
METRIC_KEYS = {"accuracy": ("accuracy",), "F1": ("f1", "entity_f1"), "Matthews": ("matthews",)}
# Three line styles in three colours distinguish nine experiments.
CURVE_STYLES = list(itertools.product(("-", "--", ":"), (BLUE, ORANGE, GREY)))


def render_comparison(experiments: Sequence[Experiment]) -> str:
    first, *others = experiments
    differences = [{}, *(compared_with(first, other) for other in others)]
    scores = []
    for key, rows in _rows_by_key(experiments).items():
        known = next(row for row in rows if row)
        of_key = [by_key.get(key) for by_key in differences]
        scores.append((known, list(zip(rows, of_key, strict=True))))
    members = group(experiments)
    has_several_seeds = any(len(member.experiments) > 1 for member in members)
    means = lines_of(members) if has_several_seeds else []
    ablations = find_ablations(experiments)
    panels = curve_panels(experiments)
    sections = [
        ("members", "Means over seeds", bool(means)),
        ("figures", "Figures", True),
        ("side_by_side", "Scores", True),
        ("curves", "Curves", bool(panels)),
        ("ablations", "Ablations", bool(ablations)),
    ]
    return render(
        "comparison.html.j2",
        title="Experiments side by side",
        sections=[(name, title) for name, title, has_content in sections if has_content],
        experiments=experiments,
        summaries=_summary_figures(experiments),
        params=differing(experiments),
        scores=scores,
        verdict=verdict,
        ablations=ablations,
        panels=panels,
        members=members,
        means=means,
    )


def _rows_by_key(experiments: Sequence[Experiment]) -> dict[tuple[str, str], list[ScoreRow | None]]:
    # Returns (evaluation set, metric) -> the row of each experiment, or None if an experiment does not have it.
    keys = dict.fromkeys((row.eval_set, row.metric_key) for experiment in experiments for row in experiment.rows)
    rows_by_key = {}
    for eval_set, metric in keys:
        rows_by_key[eval_set, metric] = [experiment.row(eval_set, metric) for experiment in experiments]
    return rows_by_key


def _summary_figures(experiments: Sequence[Experiment]) -> list[tuple[str, str, str, bool]]:
    # Returns (key, label, format, whether it is synthetic) for each value that any experiment's summary has.
    known: set[str] = set()
    extra: dict[str, ScoreRow] = {}
    for experiment in experiments:
        known |= experiment.summary.keys()
        extra |= extra_scores(experiment.rows)
    names: list[str] = []
    for plain in SUMMARY:
        names += (plain, f"synthetic_{plain}")
    figures = []
    for name in [*names, *extra]:
        label = summary_label(name, extra)
        if name in known and label is not None:
            figures.append((name, *label))
    return figures


def differing(experiments: Sequence[Experiment]) -> list[tuple[str, list[Any]]]:
    keys = {key for experiment in experiments for key in experiment.params}
    rows = []
    for key in sorted(keys):
        values = [experiment.params.get(key) for experiment in experiments]
        if any(value != values[0] for value in values):
            rows.append((key, values))
    return rows


def curve_panels(experiments: Sequence[Experiment]) -> list[str]:
    panels = []
    for name, panel in PANELS.items():
        if name == "learning_rate":
            continue
        axes = new_axes()
        for experiment, (line, colour) in zip(experiments, itertools.cycle(CURVE_STYLES), strict=False):
            curves = list(experiment.curves.values())
            steps, values = curve_points(curves, name, panel.factor)
            if steps:
                axes.plot(steps, values, line, color=colour, linewidth=1.3, label=experiment.name)
            steps, values = curve_points(curves, f"validation_{name}", panel.factor)
            axes.plot(steps, values, "o", color=colour, markersize=3.5)
        if axes.get_legend_handles_labels()[1]:
            axes.set(title=panel.title, xlabel="step", ylabel=panel.label)
            axes.figure.legend(loc="outside lower center")
            panels.append(svg(axes, f"curve-{name}", f"{panel.title} by training step, for each experiment"))
    return panels


@dataclass(frozen=True)
class Member:
    """Experiments that differ only in the seed, sorted by seed."""

    name: str
    experiments: tuple[Experiment, ...]

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(map(_seed, self.experiments))


@dataclass(frozen=True)
class Cell:
    """One value of one member, averaged over seeds.

    Attributes:
        error: half of the 95 % interval of ``mean`` (Student's t over seeds); None for fewer than two seeds.
        difference: mean difference from the first member, paired by seed; None if the seeds cannot be paired.
        difference_error: half of the 95 % interval of ``difference``.
    """

    mean: float
    error: float | None
    difference: float | None
    difference_error: float | None

    @property
    def significant(self) -> bool | None:
        if self.difference is None or self.difference_error is None:
            return None
        return abs(self.difference) > self.difference_error


class Line(NamedTuple):
    """One value for every member. ``digits`` is the name of its format."""

    title: str
    metric: str
    digits: str
    cells: list[Cell | None]


def group(experiments: Sequence[Experiment]) -> list[Member]:
    # Groups experiments that differ only in the seed into members.

    # Parameters as text -> seed -> first experiment with these parameters and seed. A repeated run counts once.
    by_params: dict[str, dict[int, Experiment]] = {}
    for experiment in experiments:
        params = {key: value for key, value in experiment.params.items() if key not in WITHOUT_RESULT}
        text = json.dumps(params, sort_keys=True, default=str)
        by_params.setdefault(text, {}).setdefault(_seed(experiment), experiment)
    members = []
    for by_seed in by_params.values():
        runs = list(by_seed.values())
        members.append(Member(_name(runs), tuple(sorted(runs, key=_seed))))
    return members


def _seed(experiment: Experiment) -> int:
    return int(experiment.params.get("seed", 0))


def _name(runs: Sequence[Experiment]) -> str:
    # Returns the most common name without its number: "bert" for "bert-1" and "bert-2".
    number = re.compile(r"-\d+$")
    stems = Counter(number.sub("", run.name) for run in runs if number.search(run.name))
    if len(runs) == 1 or not stems:
        return runs[0].name
    return stems.most_common(1)[0][0]


def lines_of(members: Sequence[Member]) -> list[Line]:
    experiments = [experiment for member in members for experiment in member.experiments]
    lines = []
    for name, label, format, synthetic in _summary_figures(experiments):
        plain = name.removeprefix("synthetic_")
        # Skip the user's own tasks, which come with the scores below, and errors over examples, which say nothing about
        # the variation over seeds.
        if plain in SUMMARY and not plain.endswith("_error"):
            of_name = {experiment.name: experiment.summary.get(name) for experiment in experiments}
            title = f"{label}, synthetic" if synthetic else label
            digits = "one" if format == "one" else "three"
            lines.append(Line(title, "", digits, _cells(members, of_name)))
    for rows in _rows_by_key(experiments).values():
        first = next(row for row in rows if row)
        of_row = {}
        for experiment, row in zip(experiments, rows, strict=True):
            of_row[experiment.name] = row.mean if row else None
        lines.append(Line(first.title, first.metric, "one", _cells(members, of_row)))
    return lines


def _cells(members: Sequence[Member], values: Mapping[str, float | None]) -> list[Cell | None]:
    first = members[0]
    baselines = _known_values(first, values)
    cells: list[Cell | None] = []
    for member in members:
        known = _known_values(member, values)
        if not known:
            cells.append(None)
            continue
        difference = difference_error = None
        is_paired = member.seeds == first.seeds and len(known) == len(baselines) == len(member.seeds)
        # A single difference is not shown, because it has no interval.
        if member is not first and is_paired and len(known) > 1:
            changes = [value - baseline for value, baseline in zip(known, baselines, strict=True)]
            difference = fmean(changes)
            difference_error = _error(changes)
        cells.append(Cell(fmean(known), _error(known), difference, difference_error))
    return cells


def _known_values(member: Member, values: Mapping[str, float | None]) -> list[float]:
    of_member = [values[experiment.name] for experiment in member.experiments]
    return [value for value in of_member if value is not None]


def _error(values: Sequence[float]) -> float | None:
    # Returns half of the 95 % interval of the mean of a few values (Student 1908); None for a single value.
    if len(values) < 2:
        return None
    return float(stdtrit(len(values) - 1, 0.975)) * stdev(values) / math.sqrt(len(values))


class Variant(NamedTuple):
    # A variant in the paper's table with its score, and the experiment of the same name with its row.
    name: str
    paper: float | None
    experiment: Experiment | None
    row: ScoreRow | None


class Ablation(NamedTuple):
    # One score in a table of the paper, with at least two variants among the experiments.
    title: str
    synthetic: bool
    source: str
    variants: list[Variant]


def read_tables() -> list[dict[str, Any]]:
    # Tables without a source do not come from the paper, and are left out.
    tables = [parse_yaml(path.read_text(encoding="utf-8")) for path in sorted(TABLES.glob("*.yaml"))]
    return [table for table in tables if table.get("source")]


def find_ablations(experiments: Sequence[Experiment]) -> list[Ablation]:
    """Match experiments by name with the variants in the paper's tables.

    The first experiment that is not named like a variant counts as the unchanged study. A score is skipped if fewer
    than two experiments have it.
    """
    tables = read_tables()
    variant_names: set[str] = set()
    for table in tables:
        variant_names |= table["experiments"].keys()
    by_name = {experiment.name: experiment for experiment in experiments}
    study = next((experiment for experiment in experiments if experiment.name not in variant_names), None)
    ablations: list[Ablation] = []
    for table in tables:
        for key, metric in table["metrics"].items():
            variants = []
            if "study" in table:
                paper = table["study"][key]
                variants.append(Variant("study", paper, study, _row(study, key, metric)))
            for name, variant in table["experiments"].items():
                paper = variant.get("paper", {}).get(key)
                experiment = by_name.get(name)
                variants.append(Variant(name, paper, experiment, _row(experiment, key, metric)))
            rows = [variant.row for variant in variants if variant.row]
            if len(rows) < 2 or any(row.split != table["split"] for row in rows):
                continue
            title = f"{rows[0].title}, {rows[0].metric}"
            synthetic = any(row.synthetic for row in rows)
            ablations.append(Ablation(title, synthetic, table["source"], variants))
    return ablations


def _row(experiment: Experiment | None, key: str, metric: str) -> ScoreRow | None:
    if experiment is None:
        return None
    # "mnli_m" in the paper's tables is the evaluation set "mnli" here.
    rows = [experiment.row(key.removesuffix("_m"), metric_key) for metric_key in METRIC_KEYS.get(metric, ())]
    return next((row for row in rows if row), None)
