"""The report's plots: pretraining curves, example lengths, and scores beside those of baselines."""

from __future__ import annotations

import io
import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from pipeline_src.report.columns import ScoreRow
from pipeline_src.report.results import Curve, Results, all_phases

# Placeholder colour, which is replaced by the page's text colour in the SVG.
INK = "#010203"
# These colours are legible on white and on near-black.
BLUE, ORANGE, GREY = "#3b7dd8", "#cf7620", "#8a8f98"
# Size of a plot in inches. It fills the width of a phone's screen.
WIDTH, HEIGHT = 4.3, 3.0
# Maximum number of characters of a task's title beside its bar.
MAX_TITLE_LENGTH = 30

matplotlib.rcParams.update(
    {
        "svg.fonttype": "none",
        "svg.hashsalt": "report",
        "font.family": "sans-serif",
        "font.size": 9.5,
        # Print "$" in titles instead of parsing formulas.
        "text.parse_math": False,
        "text.color": INK,
        "axes.labelcolor": INK,
        "axes.edgecolor": INK,
        "xtick.color": INK,
        "ytick.color": INK,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.titlesize": 10.5,
        "legend.frameon": False,
        "legend.fontsize": 8.5,
    }
)


def new_axes(width: float = WIDTH, height: float = HEIGHT) -> Axes:
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasSVG(figure)
    return figure.add_subplot()


def svg(axes: Axes, name: str, description: str) -> str:
    """Return the figure as an ``<svg>`` element.

    Args:
        name: prefix of the element's ids, which must be unique on a page.
        description: text for screen readers.
    """
    buffer = io.StringIO()
    figure = axes.figure
    assert isinstance(figure, Figure)
    figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :].replace(INK, "currentColor")
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    for size in ("width", "height"):
        text = re.sub(rf'(<svg[^>]*?) {size}="[^"]*"', r"\1", text, count=1)
    name = re.sub(r"\W+", "-", name)
    text = re.sub(r'\bid="', f'id="{name}-', text)
    text = re.sub(r'(url\(|href=")#', rf"\1#{name}-", text)
    return text.replace("<svg", f'<svg role="img" aria-label="{escape(description)}"', 1)


WHISKERS = "95 % interval"
# Arguments that place a legend below its plot.
BELOW = {"loc": "outside lower center", "ncols": 2}
# System -> name and colour.
SYSTEMS = {
    "pretrained": ("pretrained", BLUE),
    "random_weights": ("random weights", ORANGE),
    "bag_of_words": ("bag of words", GREY),
}
# Style of markers that are drawn over bars.
EDGES = {"edgecolors": "white", "linewidths": 0.8}


def colours(phases: Iterable[str]) -> dict[str, str]:
    return dict(zip(sorted(phases), itertools.cycle((BLUE, ORANGE, GREY)), strict=False))


@dataclass(frozen=True)
class Panel:
    """A plot of a quantity by training step.

    Attributes:
        label: label of the y axis.
        factor: factor by which values are multiplied, such as 100 for percent.
        baseline: name of a validation result that is drawn as a horizontal line. It must be measured on the same tokens
            as the quantity. None: no line.
    """

    title: str
    label: str
    factor: int = 1
    baseline: str | None = None
    baseline_label: str = ""


# Column of the curve -> its plot.
PANELS = {
    "loss": Panel("Loss", "loss (nats)"),
    "mlm_loss": Panel("Loss of masked words", "cross-entropy (nats)"),
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

# Column of a loss in the curve -> what it is a loss of.
TERMS = {
    "mlm_loss": "masked words",
    "backward_loss": "words before",
    "nsp_loss": "next sentence",
    "rtd_loss": "replaced tokens",
    "words_loss": "words under a generator's",
    "kl_loss": "teacher's scores",
    "cosine_loss": "direction of the teacher's states",
    "scores_loss": "teacher's attention",
    "states_loss": "teacher's states",
}


def pretraining_panels(results: Results) -> list[str]:
    curves = list(results.curves.values())
    panels = []
    for name in PANELS:
        steps, _ = curve_points(curves, name)
        if steps:
            panels.append(pretraining_panel(results, name))
    return panels


def pretraining_panel(results: Results, name: str, element: str | None = None) -> str:
    panel = PANELS[name]
    axes = new_axes()
    for phase, colour in colours(results.curves).items():
        # Entries that all phases share get one label, so that the legend has them only once.
        last = phase == max(results.curves)
        steps, values = curve_points([results.curves[phase]], name, panel.factor)
        style = "-." if last else "-"
        axes.plot(steps, values, style, color=colour, linewidth=1.4, label=f"training, {phase}")
        validation = validation_curve(results, phase, name)
        if validation:
            steps_of_validation = list(validation)
            values = [panel.factor * value for value in validation.values()]
            label = "" if last else "validation"
            axes.plot(steps_of_validation, values, "o-", color=INK, linewidth=1, markersize=3.5, label=label)
        # A baseline is, for example, the share of the larger class. An accuracy below it shows no learning.
        baseline = results.pretrain[phase]["validation"].get(panel.baseline)
        if baseline is not None and steps:
            level = panel.factor * baseline
            label = "" if last else panel.baseline_label
            axes.hlines(level, steps[0], steps[-1], color=GREY, linestyle="--", linewidth=1.3, label=label)
    title = _title(results, name)
    axes.set(title=title, xlabel="step", ylabel=panel.label)
    axes.figure.legend(**BELOW)
    description = f"{title} by training step, in {panel.label}, for {all_phases(results)} of pretraining"
    return svg(axes, element or name, description)


def _title(results: Results, name: str) -> str:
    title = PANELS[name].title
    curves = list(results.curves.values())
    terms = [term for column, term in TERMS.items() if curve_points(curves, column)[0]]
    if name == "loss" and terms:
        title = f"Loss: {' + '.join(terms)}"
    # Columns have the same names for other objectives.
    if results.last["config"].get("is_decoder"):
        title = title.replace("masked words", "next words")
    if results.corpus["examples"]["phase1"]["pairs"] == "sop":
        title = title.replace("next sentences", "sentence order").replace("next sentence", "sentence order")
    return title


def curve_points(curves: Sequence[Curve], name: str, factor: int = 1) -> tuple[list[float], list[float]]:
    """Return the steps at which a quantity was measured, and its values times ``factor``, over several phases."""
    steps = []
    values = []
    for curve in curves:
        # The column is missing if the phase does not have the quantity. A cell is empty if it was not measured there.
        column = curve.get(name, [])
        for step, value in zip(curve["step"], column, strict=False):
            if step is not None and value is not None:
                steps.append(step)
                values.append(factor * value)
    return steps, values


def validation_curve(results: Results, phase: str, name: str) -> dict[int, float]:
    # Returns step -> value, for the measurements during training and the measurement at the end of the phase.
    steps, values = curve_points([results.curves[phase]], f"validation_{name}")
    points = dict(zip(map(int, steps), values, strict=True))
    # At the last step, the value in the phase's JSON file is the exact one.
    pretrain = results.pretrain[phase]
    at_end = pretrain["validation"]
    if name in at_end:
        last_step = pretrain.get("steps_before", 0) + pretrain["steps"]
        points[last_step] = at_end[name]
    return dict(sorted(points.items()))


def throughput_panel(curves: dict[str, Curve]) -> str:
    if not curves:
        return ""
    axes = new_axes()
    for phase, colour in colours(curves).items():
        steps, values = curve_points([curves[phase]], "tokens_per_second")
        axes.plot(steps, values, color=colour, linewidth=1.4, label=phase)
    axes.set(title="Throughput", xlabel="step", ylabel="tokens per second", ylim=(0, None))
    axes.figure.legend(**BELOW)
    return svg(axes, "throughput", "Tokens per second by training step")


def length_bars(results: Results) -> list[str]:
    panels = []
    for phase, colour in colours(results.corpus["examples"]).items():
        lengths = results.corpus["examples"][phase]["train"]["lengths"]
        # All bins are as wide as the first, which begins at 0.
        width = lengths["up_to"][0]
        centers = [end - width / 2 for end in lengths["up_to"]]
        total = sum(lengths["examples"])
        shares = [100 * count / total for count in lengths["examples"]]
        axes = new_axes(height=2.2)
        axes.bar(centers, shares, 0.92 * width, color=colour)
        axes.set(title=f"Examples of {phase}", xlabel="length (tokens)", ylabel="share (percent)")
        panels.append(svg(axes, f"lengths-{phase}", f"Lengths of the training examples of {phase}"))
    return panels


def label_panels(results: Results) -> list[str]:
    panels = []
    for task, details in results.tasks.items():
        points = details.get("label_curve")
        if not points:
            continue
        row = next(row for row in results.rows if row.task == task)
        axes = new_axes()
        for number, (system, (label, colour)) in enumerate(SYSTEMS.items()):
            # Shift the systems sideways, so that their intervals do not overlap.
            shift = 1 + 0.03 * (number - 1)
            positions = []
            scores = []
            intervals = []
            for point in points:
                if system in point["systems"]:
                    positions.append(point["examples"] * shift)
                    scores.append(point["systems"][system]["score"])
                    intervals.append(point["systems"][system]["interval"])
            if positions:
                errors = _errors(scores, intervals)
                axes.errorbar(positions, scores, errors, color=colour, label=label, marker="o", markersize=4)
        axes.plot([], [], "|", markersize=12, color=INK, label=WHISKERS)
        axes.set_xscale("log")
        counts = [point["examples"] for point in points]
        axes.set_xticks(counts, [f"{count:,}" for count in counts])
        axes.minorticks_off()
        # Labels are rotated, because the last counts are close together.
        axes.tick_params(axis="x", labelrotation=30)
        axes.set(title=row.title, xlabel="labelled examples to train on", ylabel=f"{row.metric} (percent)")
        axes.figure.legend(**BELOW)
        panels.append(svg(axes, f"labels-{task}", f"{row.metric} of {row.title} by the number of labelled examples"))
    return panels


def _errors(scores: Sequence[float], intervals: Sequence[Sequence[float] | None]) -> tuple[list[float], list[float]]:
    below = []
    above = []
    for score, interval in zip(scores, intervals, strict=True):
        low, high = interval or (score, score)
        # matplotlib rejects negative error bars, which would occur if a score is outside its interval.
        below.append(max(0.0, score - low))
        above.append(max(0.0, high - score))
    return below, above


def score_bars(rows: Sequence[ScoreRow], synthetic: bool) -> str:
    rows = [row for row in rows if row.main and row.synthetic == synthetic]
    if not rows:
        return ""
    axes = new_axes(4.7, 0.27 * len(rows) + 1.1)
    # The first bar is at the top.
    heights = list(range(len(rows) - 1, -1, -1))
    means = [row.mean for row in rows]
    intervals = [row.interval for row in rows]
    axes.barh(heights, means, color=BLUE, height=0.6, label="pretrained")
    if any(intervals):
        axes.errorbar(means, heights, xerr=_errors(means, intervals), fmt="none", ecolor=INK, label=WHISKERS)
    majority = [row.majority for row in rows]
    random_weights = [row.random_weights for row in rows]
    bag_of_words = [row.bag_of_words for row in rows]
    _mark(axes, "majority baseline", majority, marker="|", s=150, color=INK, linewidths=2)
    _mark(axes, "random weights", random_weights, marker="D", s=28, color=ORANGE, **EDGES)
    _mark(axes, "bag of words", bag_of_words, marker="o", s=34, color=GREY, **EDGES)
    labels = [f"{_shortened(row.title)}, {row.metric}" for row in rows]
    axes.set_yticks(heights, labels)
    kind = "synthetic " if synthetic else ""
    axes.set_xlabel(f"score on the {kind}tasks (percent)")
    axes.set_xlim(min(0, *means), 102)
    axes.figure.legend(loc="outside upper center", ncols=2, columnspacing=1, handletextpad=0.4)
    description = f"Main score of every {kind}task next to the majority baseline and the score from random weights"
    return svg(axes, "scores-synthetic" if synthetic else "scores", description)


def _mark(axes: Axes, label: str, values: Sequence[float | None], **style: Any) -> None:
    # The first bar is at the top.
    known = []
    heights = []
    for number, value in enumerate(values):
        if value is not None:
            known.append(value)
            heights.append(len(values) - 1 - number)
    if known:
        axes.scatter(known, heights, label=label, zorder=3, **style)


def _shortened(title: str) -> str:
    return title if len(title) <= MAX_TITLE_LENGTH else f"{title[: MAX_TITLE_LENGTH - 1]}…"
