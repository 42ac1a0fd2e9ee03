"""Figures that know where they come from, so that every number of the page can be found again.

A number stands on the page inside an element that names its sources as JSON pointers (RFC 6901) into documents, the
formula that made it of them and the form it is written in. Whoever doubts it applies ``FORMULAS[formula]`` to what the
pointers point at and ``FORMS[form]`` to the outcome; a test does so for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any
from urllib.parse import quote, unquote

from markupsafe import Markup, escape

from pipeline_src.common.progress import duration

DASH = "–"
CLIPPED = 420  # characters of a text that may be long


@dataclass(frozen=True)
class Figure:
    """A value, the pointers it is made of, and the name of the formula."""

    value: Any
    sources: tuple[str, ...]
    formula: str = "itself"


class Node:
    """A place in a JSON document: indexing leads to the places below it."""

    def __init__(self, value: Any, document: str, pointer: str = "") -> None:
        self.value, self.document, self.pointer = value, document, pointer

    def __getitem__(self, name: str | int) -> Node:
        part = str(name).replace("~", "~0").replace("/", "~1")
        return Node(self.value[name], self.document, f"{self.pointer}/{part}")

    def __contains__(self, name: object) -> bool:
        return name in self.value

    def __iter__(self) -> Iterator[Node]:
        keys = self.value if isinstance(self.value, dict) else range(len(self.value))
        return (self[key] for key in keys)

    def __len__(self) -> int:
        return len(self.value)

    def named(self) -> list[tuple[str, Node]]:
        """The blocks of a block with their names."""
        return [(name, self[name]) for name in self.value]

    @property
    def figure(self) -> Figure:
        """What stands there."""
        return Figure(self.value, (f"{quote(self.document)}#{quote(self.pointer)}",))


Shown = Node | Figure


def _mean_by_place(rows: tuple[list[float], ...]) -> list[float]:
    return [fmean(values) for values in zip(*rows, strict=True)]


def _deviation(values: list[float]) -> float | None:
    return stdev(values) if len(values) > 1 else None


FORMULAS: dict[str, Callable[..., Any]] = {
    "itself": lambda value: value,
    "sum": lambda *values: sum(values),
    "difference": lambda ours, theirs: ours - theirs,
    "how many": lambda *values: len(values),
    "largest": lambda *values: max(values),
    # of several scores, each a list of values by restart: the average of each restart, then over restarts
    "mean over restarts": lambda *rows: fmean(_mean_by_place(rows)),
    "deviation over restarts": lambda *rows: _deviation(_mean_by_place(rows)),
    "best of restarts": lambda *rows: max(_mean_by_place(rows)),
    # parameters x steps x token slots of a batch (training/cost.py)
    "normalised computation": lambda parameters, steps, slots: parameters * steps * slots,
    "normalised computation by phase": lambda parameters, batch, steps, lengths: (
        parameters * batch * sum(count * length for count, length in zip(steps, lengths, strict=True))
    ),
    "price": lambda rate, *hours: rate * sum(seconds * devices for seconds, devices in zip(*[iter(hours)] * 2)) / 3600,  # noqa: B905
}


def computed(formula: str, *parts: Shown) -> Figure:
    """``FORMULAS[formula]`` of the parts; without a value where a part has none."""
    figures = [part.figure if isinstance(part, Node) else part for part in parts]
    assert all(figure.formula == "itself" for figure in figures), "one formula from sources to value"
    known = all(figure.value is not None for figure in figures)
    value = FORMULAS[formula](*(figure.value for figure in figures)) if known else None
    return Figure(value, tuple(source for figure in figures for source in figure.sources), formula)


def scientific(value: float) -> str:
    """``1.408e19``, as the paper's readers write it."""
    mantissa, exponent = f"{value:.3e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def energy(joules: float) -> str:
    """In kJ, or in kWh where it is much."""
    return f"{joules / 1e3:,.1f} kJ" if joules < 3.6e5 else f"{joules / 3.6e6:,.2f} kWh"


FORMS: dict[str, Callable[[Any], str]] = {
    "one": lambda value: f"{value:,.1f}",
    "two": lambda value: f"{value:.2f}",
    "three": lambda value: f"{value:.3f}",
    "spread": lambda value: f" ± {value:.1f}",
    "signed": lambda value: f"{value:+.1f}",
    "signed_three": lambda value: f"{value:+.3f}",
    "integer": lambda value: f"{value:,.0f}",
    "percent": lambda value: f"{100 * value:.1f} %",
    "percent_exact": lambda value: f"{100 * value:g} %",
    "percent_three": lambda value: f"{100 * value:.3f} %",
    "general": lambda value: f"{value:g}",
    "price": lambda value: f"{value:,.2f}" if value >= 1 else f"{value:.2g}",
    "scientific": scientific,
    "duration": duration,
    "megabytes": lambda value: f"{value / 1e6:,.0f}",
    "tera": lambda value: f"{value / 1e12:,.4g}",
    "energy": energy,
    "text": str,
    "clipped": lambda value: value if len(value) <= CLIPPED else value[:CLIPPED].rsplit(" ", 1)[0] + " …",
}


def plain(shown: Shown, form: str = "text") -> str:
    """The figure in words; a dash where there is none, an empty text for a missing spread."""
    value = shown.value
    if value is None:
        return "" if form == "spread" else DASH
    return FORMS[form](value)


def show(shown: Shown, form: str = "text") -> Markup:
    """The figure as an element that names its sources, its formula and its form."""
    if shown.value is None:
        return Markup(escape(plain(shown, form)))
    figure = shown.figure if isinstance(shown, Node) else shown
    formula = "" if figure.formula == "itself" else f' data-formula="{figure.formula}"'
    return Markup('<span data-source="{}"{} data-form="{}">{}</span>').format(
        " ".join(figure.sources), Markup(formula), form, plain(shown, form)
    )


def look_up(documents: dict[str, Any], source: str) -> Any:
    """What a source points at: ``document#pointer``, as :func:`show` writes it.

    Raises:
        KeyError, IndexError: there is no such document or place.
    """
    name, pointer = source.split("#")
    value = documents[unquote(name)]
    for part in unquote(pointer).split("/")[1:]:
        part = part.replace("~1", "/").replace("~0", "~")
        value = value[int(part)] if isinstance(value, list) else value[part]
    return value
