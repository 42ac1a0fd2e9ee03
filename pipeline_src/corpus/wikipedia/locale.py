"""How a wiki's language writes numbers and dates, and which of its scripts is chosen."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

TABLES = Path(__file__).parent / "tables"
NUMBERS = TABLES / "numbers.tsv"
_NUMBER = re.compile(r"[-−+]?\d+(?:\.\d*)?|[-−+]?\.\d+", re.ASCII)
_MAX_DIGITS = 100  # digits

# Languages whose wikis convert pages to the reader's script: ``-{zh-hans:计算机;zh-hant:電腦}-`` (scanner.py takes the
# first of these variants that it finds). Chinese is simplified; the others are in the script of most of their articles.
VARIANTS = {
    "ban": "ban",
    "crh": "crh-latn",
    "gan": "gan-hans",
    "iu": "ike-cans",
    "kk": "kk-cyrl kk-kz",
    "ku": "ku-latn",
    "mni": "mni",
    "sh": "sh-latn",
    "shi": "shi-latn",
    "sr": "sr-ec sr-cyrl",
    "tg": "tg",
    "tly": "tly",
    "uz": "uz-latn",
    "wuu": "wuu-hans",
    "zgh": "zgh",
    "zh": "zh-hans zh-cn zh-sg zh-my",
}


@dataclass(frozen=True)
class Locale:
    """The conventions of one language.

    Attributes:
        group: text between thousands.
        grouped_from: minimum digits of a number whose thousands are separated.
        months: names of the months in a date with a day; empty if unknown.
        months_alone: their names without a day.
        between: text after the day and before the year.
    """

    language: str
    group: str = ","
    decimal: str = "."
    grouped_from: int = 4
    months: tuple[str, ...] = ()
    months_alone: tuple[str, ...] = ()
    between: tuple[str, str] = (" ", " ")
    first_day: str = "1"

    def number(self, text: str, *, grouped: bool = True) -> str:
        """Write a number: 640081.87 -> 640,081.87; any other text stays."""
        if not _NUMBER.fullmatch(text):
            return text
        integer, point, fraction = text.partition(".")
        digits = integer.lstrip("+-−")
        if grouped and self.grouped_from <= len(digits) < _MAX_DIGITS and digits[0] != "0":
            integer = integer[: len(integer) - len(digits)] + f"{int(digits):,}".replace(",", self.group)
        return f"{integer}{self.decimal}{fraction}" if point else integer

    def date(self, day: str, month: int | None, year: str) -> str | None:
        """Write a date of which parts may be empty: 14 mai 1995; None without names of months, or a day alone."""
        if month is None:
            return None if day or not year else year
        if not self.months:
            return None
        after_day, before_year = self.between
        name = (self.months if day else self.months_alone)[month - 1]
        day_text = self.first_day if day == "1" else day
        return (f"{day_text}{after_day}" if day else "") + name + (f"{before_year}{year}" if year else "")

    def month(self, text: str) -> int | None:
        """Return the number of a month given by number, name or the first three letters or more of its name."""
        if text.isascii() and text.isdigit():
            return int(text) if len(text) < 3 and 1 <= int(text) <= 12 else None
        start = text.lower().rstrip(".")
        if len(start) < 3:
            return None
        names = zip(self.months, self.months_alone, strict=True)
        return next(
            (n for n, forms in enumerate(names, 1) if any(name.lower().startswith(start) for name in forms)), None
        )


@cache
def _number_formats() -> dict[str, str]:
    with open(NUMBERS, encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file, delimiter="\t")
        return {language: row["example"] for row in rows for language in row["languages"].split()}


def read_locale(language: str, dates: dict[str, Any]) -> Locale:
    """Return the conventions of a language; numbers are written as in English if ``numbers.tsv`` lacks it.

    Args:
        dates: the part ``dates`` of its table of templates; may be empty.
    """
    example = _number_formats().get(language, "1,234.5")
    months = tuple(dates.get("months", "").split())
    return Locale(
        language,
        group=example[-6],
        decimal=example[-2],
        grouped_from=example.index(example[-6]) + 3,
        months=months,
        months_alone=tuple(dates.get("alone", "").split()) or months,
        between=tuple(dates.get("between", (" ", " "))),
        first_day=dates.get("first", "1"),
    )
