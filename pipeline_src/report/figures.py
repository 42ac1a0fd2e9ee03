"""The report's pictures, as inline SVG that takes the page's own text colour."""

from __future__ import annotations

import io
import re
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


def loss_curves(results: Results) -> str:
    """Masked-word and next-sentence loss by step over both phases, beside the unigram loss of held-out text."""
    titles = {"mlm_loss": "Masked words", "nsp_loss": "Next sentence"}
    shown = [name for name in titles if results.curves["long"][name].notna().any()]  # there may be no next sentences
    figure, panels = plt.subplots(1, len(shown), figsize=(9, 3.2), layout="constrained", squeeze=False)
    for axes, name in zip(panels[0], shown, strict=True):
        for phase, colour in zip(PHASES, (BLUE, ORANGE), strict=True):
            curve, label = results.curves[phase], f"{phase}, {results.lengths[phase]} tokens"
            axes.plot(curve["step"], curve[name], color=colour, linewidth=1.3, label=label)
        axes.set(title=titles[name], xlabel="step", ylabel="training loss (nats)")
    unigrams = results.pretrain["long"]["heldout"]["unigram_loss"]
    panels[0, 0].axhline(unigrams, color=GREY, linestyle="--", linewidth=1, label="unigrams")
    for axes in panels[0]:
        axes.legend(frameon=False)
    return _svg(figure, "Training losses by step, for both phases of pretraining")


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
