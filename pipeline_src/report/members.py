"""Experiments that differ in their seed alone, as one: means, their errors, and how far each is from the first."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from pipeline_src.report.drawing import BLUE, GREY, INK, new_axes, svg
from pipeline_src.report.experiments import Experiment
from pipeline_src.report.page import BOXES
from pipeline_src.report.table import METRICS
from pipeline_src.report.traced import JsonRef, TracedValue, computed

WITHOUT_RESULT = {"seed", "pretrain.keep_steps"}  # parameters by which runs of one member differ
AVERAGES = ("glue", "from_corpus", "synthetic_glue")  # of a summary: what members are compared by, the first they share


@dataclass(frozen=True)
class Member:
    """Experiments of one study with different seeds.

    Attributes:
        name: of its experiments, without the number at the end.
        experiments: in the order of their seeds.
    """

    name: str
    experiments: tuple[Experiment, ...]

    @property
    def seeds(self) -> tuple[int, ...]:
        """One of each experiment."""
        return tuple(int(experiment.params.get("seed", 0)) for experiment in self.experiments)


@dataclass(frozen=True)
class Cell:
    """One figure of one member.

    Attributes:
        mean: over its seeds.
        error: half the interval of the mean (Student's t over seeds, 95 %); None for one seed.
        difference, noise: from the first member, seed by seed, and half its interval; None where they do not share
            two seeds or more.
    """

    mean: TracedValue
    error: TracedValue | None
    difference: TracedValue | None = None
    noise: TracedValue | None = None

    @property
    def told(self) -> bool | None:
        """Whether the difference lies outside the noise of the seeds; None where there is none."""
        if self.difference is None or self.noise is None:
            return None
        return abs(self.difference.value) > self.noise.value


@dataclass(frozen=True)
class Line:
    """One figure of every member.

    Attributes:
        title: what it is; a place in the scores for a task's own title.
        metric: of a task; empty for a figure of the summary.
        format, signed: of means and of differences.
        cells: one of each member, None where it has no such figure.
    """

    title: str | JsonRef
    metric: str
    format: str
    signed: str
    cells: tuple[Cell | None, ...]


def group(experiments: Sequence[Experiment]) -> list[Member]:
    """The members, in the order in which each is first named."""
    found: dict[str, list[Experiment]] = {}
    for experiment in experiments:
        same = {name: value for name, value in experiment.params.items() if name not in WITHOUT_RESULT}
        runs = found.setdefault(json.dumps(same, sort_keys=True, default=str), [])
        if all(one.params.get("seed") != experiment.params.get("seed") for one in runs):  # else it is one of them again
            runs.append(experiment)
    return [
        Member(_name(runs), tuple(sorted(runs, key=lambda one: int(one.params.get("seed", 0)))))
        for runs in found.values()
    ]


def _name(runs: Sequence[Experiment]) -> str:
    """What most of the names that end in a number begin with; of one alone, or without any such, the first name."""
    stems = Counter(stem for one in runs if (stem := re.sub(r"-\d+$", "", one.name)) != one.name)
    return stems.most_common(1)[0][0] if stems and len(runs) > 1 else runs[0].name


def lines_of(members: Sequence[Member]) -> list[Line]:
    """What the members can be compared by: figures of their summaries, then every score."""
    experiments = [experiment for member in members for experiment in member.experiments]
    names = {name for experiment in experiments for name in experiment.summary.value}
    lines = []
    for name in (one for plain in BOXES for one in (plain, f"synthetic_{plain}")):
        if name in names and not name.endswith("_error"):
            label, format = BOXES[name.removeprefix("synthetic_")]
            values = [
                [one.summary[name] if name in one.summary else None for one in member.experiments] for member in members
            ]
            signed = "signed" if format == "one" else "signed_three"
            lines.append(Line(label + ", synthetic" * (name not in BOXES), "", format, signed, _cells(members, values)))
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
    """The members' average beside each other, with their intervals; empty where they share none."""
    shared = [BOXES[name.removeprefix("synthetic_")][0] + ", synthetic" * (name not in BOXES) for name in AVERAGES]
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
