"""Values traced to their sources, so that every number of the page can be checked.

The element around a number names its sources as JSON pointers (RFC 6901) into documents, the formula that computed it
and its format. A test applies ``FORMULAS[formula]`` and ``FORMATS[format]`` to the sources of every number.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any
from urllib.parse import quote

import jinja2
import yaml
from markupsafe import Markup, escape
from scipy.special import stdtrit

from pipeline_src.common.progress import duration

TEMPLATES = Path(__file__).with_name("templates")
DASH = "–"
CLIPPED = 420  # maximum characters of a long text


@dataclass(frozen=True)
class TracedValue:
    """A value, the pointers to its sources, and the name of its formula."""

    value: Any
    sources: tuple[str, ...]
    formula: str = "itself"


def load_yaml(path: Path) -> Any:
    """Read a YAML file, by libyaml if it is installed."""
    return yaml.load(path.read_text(encoding="utf-8"), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


class JsonRef:
    """A location in a JSON document; indexing returns the locations inside it."""

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
        """Return the locations inside an object, with their keys."""
        return [(name, self[name]) for name in self.value]

    @property
    def traced(self) -> TracedValue:
        return TracedValue(self.value, (f"{quote(self.document)}#{quote(self.pointer)}",))


Traced = JsonRef | TracedValue  # can be shown on the page


def _mean_by_place(rows: tuple[list[float], ...]) -> list[float]:
    return [fmean(values) for values in zip(*rows, strict=True)]


def _deviation(values: list[float]) -> float | None:
    return stdev(values) if len(values) > 1 else None


def _student_error(values: Sequence[float]) -> float:
    """Half the 95 % interval of a mean of few values (Student 1908)."""
    return float(stdtrit(len(values) - 1, 0.975)) * stdev(values) / math.sqrt(len(values))


def _differences(values: Sequence[float]) -> list[float]:
    """First half minus second half, element by element."""
    half = len(values) // 2
    return [ours - theirs for ours, theirs in zip(values[:half], values[half:], strict=True)]


FORMULAS: dict[str, Callable[..., Any]] = {
    "itself": lambda value: value,
    "sum": lambda *values: sum(values),
    # half the intervals of averaged scores, as independent errors
    "error of the average": lambda *intervals: (
        math.hypot(*((high - low) / 2 for low, high in intervals)) / len(intervals)
    ),
    "average": lambda *values: fmean(values),
    "difference": lambda ours, theirs: ours - theirs,
    "error over seeds": lambda *values: _student_error(values),
    # values of one member by seed, then those of another for the same seeds
    "mean difference": lambda *values: fmean(_differences(values)),
    "error of the mean difference": lambda *values: _student_error(_differences(values)),
    "how many": lambda *values: len(values),
    "largest": lambda *values: max(values),
    # several scores, each a list of values by restart: the average per restart, then over restarts
    "mean over restarts": lambda *rows: fmean(_mean_by_place(rows)),
    "deviation over restarts": lambda *rows: _deviation(_mean_by_place(rows)),
    "best of restarts": lambda *rows: max(_mean_by_place(rows)),
    # parameters x steps x token slots of a batch (training/throughput.py)
    "normalised computation": lambda parameters, steps, slots: parameters * steps * slots,
    "normalised computation by phase": lambda parameters, batch, steps, lengths: (
        parameters * batch * sum(count * length for count, length in zip(steps, lengths, strict=True))
    ),
    "price": lambda rate, *hours: rate * sum(seconds * devices for seconds, devices in zip(*[iter(hours)] * 2)) / 3600,  # noqa: B905
}


def computed(formula: str, *parts: Traced) -> TracedValue:
    """Apply ``FORMULAS[formula]`` to the parts; the value is None if a part is None."""
    operands = [part.traced if isinstance(part, JsonRef) else part for part in parts]
    assert all(operand.formula == "itself" for operand in operands), "one formula from sources to value"
    known = all(operand.value is not None for operand in operands)
    value = FORMULAS[formula](*(operand.value for operand in operands)) if known else None
    return TracedValue(value, tuple(source for operand in operands for source in operand.sources), formula)


def scientific(value: float) -> str:
    """Format as ``1.408e19``."""
    mantissa, exponent = f"{value:.3e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def fold_repeats(text: str) -> str:
    """Shorten repetitions in a model's text: ``be , , , , ,`` becomes ``be [, ×5]``."""

    def folded(found: re.Match[str]) -> str:
        once = found[1].lstrip()
        return f"{found[1].removesuffix(once)}[{once} ×{len(found[0]) // len(found[1])}]"

    return re.sub(r"(\s?\S+?)\1{3,}", folded, text)


FORMATS: dict[str, Callable[[Any], str]] = {
    "one": lambda value: f"{value:,.1f}",
    "two": lambda value: f"{value:.2f}",
    "three": lambda value: f"{value:.3f}",
    "spread": lambda value: f" ± {value:.1f}",
    "interval": lambda ends: f"{ends[0]:.1f} to {ends[1]:.1f}",
    "interval_two": lambda ends: f"{ends[0]:.2f} to {ends[1]:.2f}",
    "interval_three": lambda ends: f"{ends[0]:.3f} to {ends[1]:.3f}",
    "interval_percent": lambda ends: f"{100 * ends[0]:.1f} to {100 * ends[1]:.1f} %",
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
    "text": str,
    "folded": fold_repeats,
    "no_backticks": lambda value: value.replace("`", ""),
    "clipped": lambda value: value if len(value) <= CLIPPED else value[:CLIPPED].rsplit(" ", 1)[0] + " …",
}


def plain(traced: Traced, format: str = "text") -> str:
    """Format as text; a dash for None, an empty text for a missing spread."""
    if traced.value is None:
        return "" if format == "spread" else DASH
    return FORMATS[format](traced.value)


def show(traced: Traced, format: str = "text") -> Markup:
    """Render the value as an element that names its sources, its formula and its format."""
    if traced.value is None:
        return Markup(escape(plain(traced, format)))
    value = traced.traced if isinstance(traced, JsonRef) else traced
    formula = "" if value.formula == "itself" else f' data-formula="{value.formula}"'
    return Markup('<span data-source="{}"{} data-format="{}">{}</span>').format(
        " ".join(value.sources), Markup(formula), format, plain(traced, format)
    )


def name_of(ref: JsonRef) -> Markup:
    """Render the key of a JSON block, such as a file name, whose digits are not a result."""
    return Markup('<span data-key="{}">{}</span>').format(
        ref.traced.sources[0], ref.pointer.rsplit("/", 1)[1].replace("~1", "/").replace("~0", "~")
    )


def with_code(text: str) -> Markup:
    """Render a text whose parts between backticks are code."""
    parts = enumerate(text.split("`"))
    return Markup("").join(Markup("<code>{}</code>").format(part) if at % 2 else escape(part) for at, part in parts)


def environment() -> jinja2.Environment:
    """Return the templates' environment, with filters that show values and name their sources."""
    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True
    )
    filters: dict[str, Callable[..., Any]] = {
        "show": show,
        "show_title": lambda title: show(title) if isinstance(title, Traced) else title,
        "name": name_of,
        "fold_repeats": fold_repeats,
        "with_code": with_code,
    }
    templates.filters |= filters
    return templates
