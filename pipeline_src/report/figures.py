"""The report's pictures, as inline SVG that takes the page's own text colour."""

from __future__ import annotations

import io
import re
from dataclasses import dataclass
from typing import Any

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pipeline_src.report.results import PHASES, Results

INK = "#010203"  # stands for the page's text colour until the SVG is written
BLUE, ORANGE, GREY = "#3b7dd8", "#d9822b", "#8a8f98"  # legible on white and on near-black

plt.rcParams.update(
    {
        "svg.fonttype": "none",
        "svg.hashsalt": "report",
        "font.family": "sans-serif",
        "font.size": 10,
        "text.color": INK,
        "axes.labelcolor": INK,
        "axes.edgecolor": INK,
        "xtick.color": INK,
        "ytick.color": INK,
        "axes.spines.top": False,
        "axes.spines.right": False,
    }
)


@dataclass(frozen=True)
class Panel:
    """One figure of pretraining by step, beside what the simplest predictor reaches on held-out text."""

    title: str
    label: str
    factor: int
    simplest: str
    simplest_label: str


PANELS = {  # by column of the curve
    "mlm_loss": Panel("Masked words", "loss (nats)", 1, "unigram_loss", "unigrams"),
    "nsp_accuracy": Panel("Next sentence", "accuracy (percent)", 100, "nsp_majority", "larger class"),
}


def pretraining_curves(results: Results) -> str:
    """Training and held-out curves over both phases."""
    measured = [name for name in PANELS if all(name in curve for curve in results.curves.values())]
    shown = [name for name in measured if results.curves["long"][name].notna().any()]  # there may be no next sentences
    figure, axes = plt.subplots(1, len(shown), figsize=(9, 3.6), layout="constrained", squeeze=False)
    for name, panel in zip(shown, axes[0], strict=True):
        _draw_panel(panel, results, name)
    return _svg(figure, "Training and held-out figures by step, for both phases of pretraining")


def _draw_panel(axes: Axes, results: Results, name: str) -> None:
    panel = PANELS[name]
    for phase, colour in zip(PHASES, (BLUE, ORANGE), strict=True):
        curve, heldout = results.curves[phase], heldout_curve(results, phase, name)
        once = phase == PHASES[-1]  # in the legend
        label = f"training, {results.lengths[phase]} tokens"
        axes.plot(curve["step"], panel.factor * curve[name], color=colour, linewidth=1.3, label=label)
        values = [panel.factor * value for value in heldout.values()]
        axes.plot(
            list(heldout), values, "o-", color=INK, linewidth=1, markersize=3.5, label="held out" if once else None
        )
        level = panel.factor * results.pretrain[phase]["heldout"].get(panel.simplest, float("nan"))
        ends = curve["step"].min(), curve["step"].max()
        axes.hlines(level, *ends, color=GREY, linestyle="--", linewidth=1.2, label=panel.simplest_label if once else "")
    axes.set(title=panel.title, xlabel="step", ylabel=panel.label)
    axes.legend(frameon=False, fontsize=9)


def heldout_curve(results: Results, phase: str, name: str) -> dict[int, float]:
    """Step -> held-out figure: those measured on the way, where they were, and that at the phase's end."""
    curve, found = results.curves[phase], results.pretrain[phase]
    points: dict[int, float] = {}
    if f"heldout_{name}" in curve:
        known = curve[curve[f"heldout_{name}"].notna()]
        points = dict(zip(known["step"].tolist(), known[f"heldout_{name}"].tolist(), strict=True))
    if name in found["heldout"]:
        points[found.get("steps_before", 0) + found["steps"]] = found["heldout"][name]
    return dict(sorted(points.items()))


def length_bars(results: Results) -> str:
    """How long the training examples are, by phase."""
    figure, panels = plt.subplots(1, len(PHASES), figsize=(9, 2.4), layout="constrained")
    for axes, phase, colour in zip(panels, PHASES, (BLUE, ORANGE), strict=True):
        lengths = results.corpus["examples"][phase]["train"]["lengths"]
        width = lengths["up_to"][0]
        shares = [100 * count / sum(lengths["examples"]) for count in lengths["examples"]]
        axes.bar([end - width / 2 for end in lengths["up_to"]], shares, 0.92 * width, color=colour)
        axes.set(title=f"Examples of up to {results.lengths[phase]} tokens", xlabel="tokens", ylabel="share (percent)")
    return _svg(figure, "Lengths of the training examples of both phases")


def score_bars(results: Results) -> str:
    """Each score as a bar, with its chance level and the score from random weights as marks."""
    rows: list[dict[str, Any]] = [row for row in results.scores["rows"] if row["main"]]
    figure, axes = plt.subplots(figsize=(9, 0.32 * len(rows) + 1.2), layout="constrained")
    places = list(range(len(rows)))[::-1]
    axes.barh(places, [row["mean"] for row in rows], color=BLUE, height=0.6, label="pretrained")
    _marks(axes, places, [row["chance"] for row in rows], "|", "chance", INK)
    baseline = [(place, row["random_weights"]) for place, row in zip(places, rows, strict=True)]
    known = [(place, value) for place, value in baseline if value is not None]
    if known:
        _marks(axes, [place for place, _ in known], [value for _, value in known], "o", "from random weights", ORANGE)
    kind = "synthetic " if results.synthetic else ""
    axes.set_yticks(places, [f"{row['title']} ({row['metric']})" for row in rows])
    axes.set(xlabel=f"score on the {kind}tasks (percent)", xlim=(min(0, *(row["mean"] for row in rows)), 102))
    axes.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, 1.12), ncols=3)
    return _svg(figure, f"Main score of every {kind}task beside its chance level")


def _marks(axes: Axes, places: list[int], values: list[float], marker: str, label: str, colour: str) -> None:
    size = 160 if marker == "|" else 26
    axes.scatter(values, places, marker=marker, s=size, color=colour, label=label, zorder=3, linewidths=2)


def _svg(figure: Figure, description: str) -> str:
    """The figure as an ``<svg>`` element with a title for screen readers."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    plt.close(figure)
    text = buffer.getvalue()
    text = text[text.index("<svg") :].replace(INK, "currentColor")
    text = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text, count=1)
    return re.sub(r"<svg", f'<svg role="img" aria-label="{description}"', text, count=1)
