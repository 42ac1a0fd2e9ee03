"""The report's pictures: pretraining by step, lengths of examples, scores beside the majority baseline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pipeline_src.report.drawing import BLUE, GREY, INK, ORANGE, new_axes, svg
from pipeline_src.report.results import PHASES, Curve, Results, is_synthetic
from pipeline_src.report.table import METRICS, mark_of

BELOW = {"loc": "outside lower center", "ncols": 2}  # where legends are, off the curves
COLOURS = dict(zip(PHASES, (BLUE, ORANGE), strict=True))


@dataclass(frozen=True)
class Panel:
    """One figure of pretraining by step.

    Attributes:
        title, label: of the picture and of its upright axis.
        factor: what values are multiplied by, 100 for percent.
        simplest, simplest_label: what the simplest predictor reaches on validation text, where that is known.
    """

    title: str
    label: str
    factor: int = 1
    simplest: str | None = None
    simplest_label: str = ""


PANELS = {  # by column of the curve
    "loss": Panel("Loss: masked words + next sentence", "loss (nats)"),
    "mlm_loss": Panel("Loss of masked words", "cross-entropy (nats)", 1, "unigram_loss", "unigrams at [MASK]"),
    "mlm_accuracy": Panel("Accuracy of masked words", "accuracy (percent)", 100),
    "nsp_accuracy": Panel("Accuracy of next sentences", "accuracy (percent)", 100, "nsp_majority", "larger class"),
    "rtd_loss": Panel("Loss of replaced tokens", "cross-entropy (nats)"),
    "rtd_accuracy": Panel("Accuracy of replaced tokens", "accuracy (percent)", 100),
    "words_loss": Panel("Loss of words under a generator's", "cross-entropy (nats)"),
    "kl_loss": Panel("Distance from the teacher's scores", "KL divergence (nats)"),
    "scores_loss": Panel("Distance from the teacher's attention", "squared difference"),
    "states_loss": Panel("Distance from the teacher's states", "squared difference"),
    "learning_rate": Panel("Learning rate", "learning rate"),
}


def pretraining_panels(results: Results) -> list[str]:
    """Training and validation curves over both phases, one picture a quantity; without those that were not measured."""
    measured = [name for name in PANELS if any(_known(curve, name) for curve in results.curves.values())]
    return [_panel(results, name) for name in measured]


def story_panel(results: Results) -> str:
    """The one curve of the first screen: the loss of masked words, beside what counting words gets."""
    return _panel(results, "mlm_loss", "story")


def _known(curve: Curve, name: str) -> bool:
    return any(value is not None for value in curve.get(name, []))


def _panel(results: Results, name: str, element: str | None = None) -> str:
    panel, axes = PANELS[name], new_axes()
    for phase, colour in COLOURS.items():
        curve, validation = results.curves[phase], validation_curve(results, phase, name)
        last = phase == PHASES[-1]  # once in the legend
        points = [(step, panel.factor * value) for step, value in _points(curve, name)]
        label = f"training, {phase} phase"
        axes.plot(*_columns(points), color=colour, linewidth=1.4, linestyle="-" if not last else "-.", label=label)
        values = [panel.factor * value for value in validation.values()]
        if values:
            axes.plot(
                list(validation),
                values,
                "o-",
                color=INK,
                linewidth=1,
                markersize=3.5,
                label="" if last else "validation",
            )
        level = results.pretrain[phase]["validation"].get(panel.simplest) if panel.simplest else None
        if level is not None and points:
            ends = points[0][0], points[-1][0]
            label = "" if last else panel.simplest_label
            axes.hlines(panel.factor * level, *ends, color=GREY, linestyle="--", linewidth=1.3, label=label)
    axes.set(title=panel.title, xlabel="step", ylabel=panel.label)
    axes.figure.legend(**BELOW)
    return svg(
        axes, element or name, f"{panel.title} by training step, in {panel.label}, for both phases of pretraining"
    )


def _points(curve: Curve, name: str) -> list[tuple[float, float]]:
    values = curve.get(name, [])
    return [
        (step, value)
        for step, value in zip(curve["step"], values, strict=False)
        if step is not None and value is not None
    ]


def _columns(points: list[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [step for step, _ in points], [value for _, value in points]


def validation_curve(results: Results, phase: str, name: str) -> dict[int, float]:
    """Step -> validation figure: those measured on the way, where they were, and that at the phase's end."""
    pretrain = results.pretrain[phase]
    points = {int(step): value for step, value in _points(results.curves[phase], f"validation_{name}")}
    if name in pretrain["validation"]:
        points[pretrain.get("steps_before", 0) + pretrain["steps"]] = pretrain["validation"][name]
    return dict(sorted(points.items()))


def throughput_panel(curves: dict[str, Curve]) -> str | None:
    """Tokens per second by step, where ``logs/`` tracked them."""
    if not curves:
        return None
    axes = new_axes()
    for phase, curve in curves.items():
        points = _columns(_points(curve, "tokens_per_second"))
        axes.plot(*points, color=COLOURS[phase], linewidth=1.4, label=f"{phase} phase")
    axes.set(title="Throughput", xlabel="step", ylabel="tokens per second", ylim=(0, None))
    axes.figure.legend(**BELOW)
    return svg(axes, "throughput", "Tokens per second by training step")


def length_bars(results: Results) -> list[str]:
    """How long the training examples are, a picture for each phase."""
    pictures = []
    for phase, colour in COLOURS.items():
        axes = new_axes(height=2.2)
        lengths = results.corpus["examples"][phase]["train"]["lengths"]
        width = lengths["up_to"][0]
        shares = [100 * count / sum(lengths["examples"]) for count in lengths["examples"]]
        axes.bar([end - width / 2 for end in lengths["up_to"]], shares, 0.92 * width, color=colour)
        axes.set(title=f"Examples of the {phase} phase", xlabel="length (tokens)", ylabel="share (percent)")
        pictures.append(svg(axes, f"lengths-{phase}", f"Lengths of the training examples of the {phase} phase"))
    return pictures


def _reach(row: dict[str, Any]) -> tuple[float, float]:
    """How far the interval goes below and above the mean; the deviation over restarts in studies without intervals."""
    if ends := row.get("interval"):
        return max(0.0, row["mean"] - ends[0]), max(0.0, ends[1] - row["mean"])
    return (row["deviation"] or 0.0,) * 2


def score_bars(results: Results) -> str:
    """Each main score as a bar with its deviation; the majority baseline and the score from random weights as marks."""
    rows = [row for row in results.scores["rows"] if row["main"]]
    made = [is_synthetic(results.scores, row["task"]) for row in rows]
    axes = new_axes(4.7, 0.27 * len(rows) + 1.1)
    places = list(range(len(rows)))[::-1]
    means = [row["mean"] for row in rows]
    spreads = [_reach(row) for row in rows]
    errors = list(zip(*spreads, strict=True))
    axes.barh(places, means, color=BLUE, height=0.6, label="pretrained", xerr=errors, ecolor=INK)
    majority = [row["majority_baseline"] for row in rows]
    axes.scatter(majority, places, marker="|", s=150, color=INK, label="majority baseline", zorder=3, linewidths=2)
    known = [(row["random_weights"], place) for row, place in zip(rows, places, strict=True)]
    known = [(value, place) for value, place in known if value is not None]
    if known:
        values, at = zip(*known, strict=True)
        axes.scatter(values, at, marker="D", s=22, color=ORANGE, label="random weights", zorder=3)
    words = [
        (found["score"], place)
        for row, place in zip(rows, places, strict=True)
        if (found := row.get("baselines", {}).get("bag_of_words"))
    ]
    if words:
        values, at = zip(*words, strict=True)
        axes.scatter(values, at, marker="o", s=20, color=GREY, label="bag of words", zorder=3)
    some = any(made) and not all(made)
    kind = "synthetic " if made and all(made) else ""
    marks = [mark_of(results.scores, row["task"]) if some else "" for row in rows]
    names = [
        f"{row['title']}{mark}, {METRICS.get(row['metric'], row['metric'])}"
        for row, mark in zip(rows, marks, strict=True)
    ]
    axes.set_yticks(places, names)
    axes.set(xlabel=f"score on the {kind}tasks (percent)", xlim=(min(0, *(row["mean"] for row in rows)), 102))
    axes.figure.legend(
        loc="outside upper center", ncols=2 + bool(known) + bool(words), columnspacing=1, handletextpad=0.4
    )
    return svg(
        axes, "scores", f"Main score of every {kind}task beside the majority baseline and the score from random weights"
    )
