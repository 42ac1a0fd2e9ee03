"""Values traced to their sources, so that every number of the page can be checked.

A number stands on the page inside an element that names its sources as JSON pointers (RFC 6901) into documents, the
formula that computed it from them and the format it is written in. To check it, apply ``FORMULAS[formula]`` to what the
pointers point at and ``FORMATS[format]`` to the outcome; a test does so for all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any
from urllib.parse import quote

from markupsafe import Markup, escape
from scipy.stats import t as student

from pipeline_src.common.progress import duration

DASH = "–"
CLIPPED = 420  # most characters of a text that may be long


@dataclass(frozen=True)
class TracedValue:
    """A value, the pointers to what it was computed from, and the name of the formula."""

    value: Any
    sources: tuple[str, ...]
    formula: str = "itself"


class JsonRef:
    """A place in a JSON document; indexing gives the places inside it."""

    def __init__(self, value: Any, document: str, pointer: str = "") -> None:
        self.value, self.document, self.pointer = value, document, pointer

    def __getitem__(self, name: str | int) -> JsonRef:
        part = str(name).replace("~", "~0").replace("/", "~1")
        return JsonRef(self.value[name], self.document, f"{self.pointer}/{part}")

    def __contains__(self, name: object) -> bool:
        return name in self.value

    def __iter__(self) -> Iterator[JsonRef]:
        keys = self.value if isinstance(self.value, dict) else range(len(self.value))
        return (self[key] for key in keys)

    def __len__(self) -> int:
        return len(self.value)

    def items(self) -> list[tuple[str, JsonRef]]:
        """The places inside an object, with their keys."""
        return [(name, self[name]) for name in self.value]

    @property
    def traced(self) -> TracedValue:
        """The value that stands there."""
        return TracedValue(self.value, (f"{quote(self.document)}#{quote(self.pointer)}",))


Traced = JsonRef | TracedValue  # what may be shown on the page


def _mean_by_place(rows: tuple[list[float], ...]) -> list[float]:
    return [fmean(values) for values in zip(*rows, strict=True)]


def _deviation(values: list[float]) -> float | None:
    return stdev(values) if len(values) > 1 else None


def _student_error(values: Sequence[float]) -> float:
    """Half the 95 % interval of a mean of few values (Student 1908)."""
    return float(student.ppf(0.975, len(values) - 1)) * stdev(values) / math.sqrt(len(values))


def _differences(values: Sequence[float]) -> list[float]:
    """Of the first half from the second, one by one."""
    half = len(values) // 2
    return [ours - theirs for ours, theirs in zip(values[:half], values[half:], strict=True)]


FORMULAS: dict[str, Callable[..., Any]] = {
    "itself": lambda value: value,
    "sum": lambda *values: sum(values),
    # of scores that are averaged: half the interval of each, as errors that have nothing in common
    "error of the average": lambda *intervals: (
        math.hypot(*((high - low) / 2 for low, high in intervals)) / len(intervals)
    ),
    "average": lambda *values: fmean(values),
    "difference": lambda ours, theirs: ours - theirs,
    "error over seeds": lambda *values: _student_error(values),
    # values of one member, seed by seed, then those of another for the same seeds
    "mean difference": lambda *values: fmean(_differences(values)),
    "error of the mean difference": lambda *values: _student_error(_differences(values)),
    "how many": lambda *values: len(values),
    "largest": lambda *values: max(values),
    # of several scores, each a list of values by restart: the average of each restart, then over restarts
    "mean over restarts": lambda *rows: fmean(_mean_by_place(rows)),
    "deviation over restarts": lambda *rows: _deviation(_mean_by_place(rows)),
    "best of restarts": lambda *rows: max(_mean_by_place(rows)),
    # parameters x steps x token slots of a batch (training/compute.py)
    "normalised computation": lambda parameters, steps, slots: parameters * steps * slots,
    "normalised computation by phase": lambda parameters, batch, steps, lengths: (
        parameters * batch * sum(count * length for count, length in zip(steps, lengths, strict=True))
    ),
    "price": lambda rate, *hours: rate * sum(seconds * devices for seconds, devices in zip(*[iter(hours)] * 2)) / 3600,  # noqa: B905
}


def computed(formula: str, *parts: Traced) -> TracedValue:
    """``FORMULAS[formula]`` of the parts; its value is None where a part has none."""
    operands = [part.traced if isinstance(part, JsonRef) else part for part in parts]
    assert all(operand.formula == "itself" for operand in operands), "one formula from sources to value"
    known = all(operand.value is not None for operand in operands)
    value = FORMULAS[formula](*(operand.value for operand in operands)) if known else None
    return TracedValue(value, tuple(source for operand in operands for source in operand.sources), formula)


def scientific(value: float) -> str:
    """``1.408e19``, as the paper's readers write it."""
    mantissa, exponent = f"{value:.3e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def energy(joules: float) -> str:
    """In kJ, or in kWh where it is much."""
    return f"{joules / 1e3:,.1f} kJ" if joules < 3.6e5 else f"{joules / 3.6e6:,.2f} kWh"


FORMATS: dict[str, Callable[[Any], str]] = {
    "one": lambda value: f"{value:,.1f}",
    "two": lambda value: f"{value:.2f}",
    "three": lambda value: f"{value:.3f}",
    "spread": lambda value: f" ± {value:.1f}",
    "interval": lambda ends: f"{ends[0]:.1f} to {ends[1]:.1f}",
    "p": lambda value: "p < 0.001" if value < 0.001 else f"p = {value:.3f}",
    "error": lambda value: f"± {value:.1f}",
    "error_three": lambda value: f"± {value:.3f}",
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


def plain(traced: Traced, format: str = "text") -> str:
    """The value as text; a dash where there is none, an empty text for a missing spread."""
    if traced.value is None:
        return "" if format == "spread" else DASH
    return FORMATS[format](traced.value)


def show(traced: Traced, format: str = "text") -> Markup:
    """The value as an element that names its sources, its formula and its format."""
    if traced.value is None:
        return Markup(escape(plain(traced, format)))
    value = traced.traced if isinstance(traced, JsonRef) else traced
    formula = "" if value.formula == "itself" else f' data-formula="{value.formula}"'
    return Markup('<span data-source="{}"{} data-format="{}">{}</span>').format(
        " ".join(value.sources), Markup(formula), format, plain(traced, format)
    )
