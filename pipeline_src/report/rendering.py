"""Formatting of values in reports, and rendering of pages from templates."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape

from pipeline_src.base.progress import duration

TEMPLATES = Path(__file__).with_name("templates")
DASH = "–"
# Maximum number of characters of an example's text.
MAX_TEXT_LENGTH = 420


def scientific(value: float) -> str:
    # 14_080_000_000_000_000_000 -> "1.408e19"
    mantissa, exponent = f"{value:.3e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def fold_repeats(text: str) -> str:
    # "be , , , , ," -> "be [, ×5]"
    def fold(match: re.Match[str]) -> str:
        repeated, space, token = match.groups()
        return f"{space}[{token} ×{len(match[0]) // len(repeated)}]"

    # Matches four or more repetitions of a token with the space before it.
    return re.sub(r"((\s?)(\S+?))\1{3,}", fold, text)


def clip(text: str) -> str:
    # Truncates the text at a space.
    if len(text) <= MAX_TEXT_LENGTH:
        return text
    return text[:MAX_TEXT_LENGTH].rsplit(" ", 1)[0] + " …"


def difference(test: Mapping[str, Any]) -> str:
    points = f"{test['difference']:+.1f}"
    return f"{points} ({show(test['interval'], 'interval')})" if test["interval"] else points


# Name of a format -> function from a value to text. Percent signs follow a non-breaking space.
FORMATS: dict[str, Callable[[Any], str]] = {
    "text": str,
    "integer": "{:,.0f}".format,
    "one": "{:,.1f}".format,
    "two": "{:.2f}".format,
    "three": "{:.3f}".format,
    "four": "{:.4f}".format,
    "signed": "{:+.1f}".format,
    "signed_three": "{:+.3f}".format,
    "spread": "± {:.1f}".format,
    "percent": lambda share: f"{100 * share:.1f}\u00a0%",
    "percent_exact": lambda share: f"{100 * share:g}\u00a0%",
    "percent_three": lambda share: f"{100 * share:.3f}\u00a0%",
    "interval": lambda ends: f"{ends[0]:.1f} to {ends[1]:.1f}",
    "interval_three": lambda ends: f"{ends[0]:.3f} to {ends[1]:.3f}",
    "interval_percent": lambda ends: f"{100 * ends[0]:.1f} to {100 * ends[1]:.1f}\u00a0%",
    "difference": difference,
    "p": lambda value: "p < 0.001" if value < 0.001 else f"p = {value:.3f}",
    "price": lambda value: f"{value:,.2f}" if value >= 1 else f"{value:.2g}",
    "scientific": scientific,
    "duration": duration,
    "megabytes": lambda count: f"{count / 1e6:,.0f}",
    "tera": lambda value: f"{value / 1e12:,.4g}",
    "folded": fold_repeats,
    "clipped": clip,
}


def show(value: Any, format: str = "text") -> str:
    if isinstance(value, jinja2.Undefined):
        # Converting an undefined template variable to text raises an error that names the variable.
        str(value)
    return DASH if value is None else FORMATS[format](value)


def with_code(text: str) -> Markup:
    return Markup(re.sub(r"`(.*?)`", r"<code>\1</code>", str(escape(text))))


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True
    )
    environment.filters |= {"show": show, "with_code": with_code}
    return environment


def render(template: str, **values: Any) -> str:
    return _environment().get_template(template).render(values)
