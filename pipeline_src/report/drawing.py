"""How the report's pictures are drawn: inline SVG that takes the page's own text colour."""

from __future__ import annotations

import io
import re
from html import escape

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

INK = "#010203"  # stands for the page's text colour until the SVG is written
BLUE, ORANGE, GREY = "#3b7dd8", "#cf7620", "#8a8f98"  # legible on white and on near-black
WIDTH, HEIGHT = 4.3, 3.0  # inches of a panel; on a phone one fills the screen, and its letters keep their size

matplotlib.rcParams.update(
    {
        "svg.fonttype": "none",
        "svg.hashsalt": "report",
        "font.family": "sans-serif",
        "font.size": 9.5,
        "text.parse_math": False,  # a dollar in a title is a dollar
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
    """Axes of a figure of their own, which :func:`svg` closes."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasSVG(figure)
    return figure.add_subplot()


def svg(axes: Axes, name: str, description: str) -> str:
    """The figure as an ``<svg>`` element.

    Args:
        axes: as :func:`new_axes` made them, or any of the figure's.
        name: unique on the page; ids within begin with it.
        description: for those who do not see it.
    """
    buffer = io.StringIO()
    figure = axes.figure
    assert isinstance(figure, Figure)
    figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :].replace(INK, "currentColor")
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'\bid="', f'id="{name}-', text)
    text = re.sub(r'(url\(|href=")#', rf"\1#{name}-", text)
    return re.sub(r"<svg", f'<svg role="img" aria-label="{escape(description)}"', text, count=1)
