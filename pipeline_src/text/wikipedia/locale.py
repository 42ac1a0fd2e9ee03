"""Format numbers, dates and names of languages and countries as a wiki's language does."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

TABLES = Path(__file__).parent / "tables"
LOCALES = TABLES / "locales.yaml"
COUNTRIES = TABLES / "countries.tsv"
# An optional part of a date with the text around it: "< de {year}>" is left out if the date has no year.
_DATE_PART = re.compile(r"<([^<>{}]*)\{(day|month|year)\}([^<>{}]*)>")
_NUMBER = re.compile(r"[-−+]?\d+(?:\.\d*)?|[-−+]?\.\d+", re.ASCII)
# Numbers with this many digits or more are not grouped.
_MAX_DIGITS = 100

# Languages whose wikis convert pages to the reader's script: ``-{zh-hans:计算机;zh-hant:電腦}-``. scanner.py chooses
# the first of the listed variants that it finds. For Chinese it is the simplified script, for other languages the
# script of most articles.
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
        group: separator between thousands.
        decimal: decimal separator.
        grouped_from: minimum number of digits from which thousands are separated.
        date_form: pattern of a date. A part in < > is left out if its value is unknown.
        months: names of the months after a day; empty if unknown.
        months_alone: names of the months in a date without a day.
        first_day: how the first day of a month is written.
        label: pattern that turns a language name into a label before a foreign word: ``{}: ``.
        languages: language code -> name of the language.
        countries: three-letter country code -> name of the country.
    """

    language: str
    group: str = ","
    decimal: str = "."
    grouped_from: int = 4
    date_form: str = "<{day} ><{month}>< {year}>"
    months: tuple[str, ...] = ()
    months_alone: tuple[str, ...] = ()
    first_day: str = "1"
    label: str = "{} "
    languages: Mapping[str, str] = field(default_factory=dict)
    countries: Mapping[str, str] = field(default_factory=dict)

    def number(self, text: str, *, grouped: bool = True) -> str:
        # Format a number: 640081.87 -> 640,081.87. Other text is returned unchanged.
        if not _NUMBER.fullmatch(text):
            return text
        integer, point, fraction = text.partition(".")
        digits = integer.lstrip("+-−")
        is_long = self.grouped_from <= len(digits) < _MAX_DIGITS
        if grouped and is_long and digits[0] != "0":
            separated = f"{int(digits):,}".replace(",", self.group)
            integer = integer.removesuffix(digits) + separated
        if not point:
            return integer
        return f"{integer}{self.decimal}{fraction}"

    def date(self, day: str, month: int | None, year: str) -> str | None:
        # Format a date: "14 mai 1995". Day and year may be empty. Return None if the month names are unknown, or if
        # there is a day without a month.
        if month is None:
            return None if day or not year else year
        if not self.months:
            return None
        names = self.months if day else self.months_alone
        parts = {"day": self.first_day if day == "1" else day, "month": names[month - 1], "year": year}

        def show(part: re.Match[str]) -> str:
            text = parts[part[2]]
            return text and part[1] + text + part[3]

        return _DATE_PART.sub(show, self.date_form).strip()

    def month(self, text: str) -> int | None:
        # Return the number of a month that is given by number, by name, or by at least the first three letters of its
        # name.
        if text.isascii() and text.isdigit():
            return int(text) if len(text) < 3 and 1 <= int(text) <= 12 else None
        start = text.lower().rstrip(".")
        if len(start) < 3:
            return None
        for number, forms in enumerate(zip(self.months, self.months_alone, strict=True), 1):
            if any(name.lower().startswith(start) for name in forms):
                return number
        return None

    def language_label(self, code: str) -> str | None:
        # Return the label before a word of another language: "French: "
        name = self.languages.get(code)
        return self.label.format(name) if name else None


def read_table(path: Path) -> Any:
    # Uses libyaml, which is fast, since each worker reads the tables.
    return yaml.load(path.read_bytes(), Loader=yaml.CSafeLoader)


@cache
def locale_tables() -> dict[str, Any]:
    content: dict[str, Any] = read_table(LOCALES)
    return content


@cache
def country_names() -> dict[str, dict[str, str]]:
    # Return three-letter country code -> language -> name of the country.
    names: dict[str, dict[str, str]] = {}
    with open(COUNTRIES, encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            names |= dict.fromkeys(row["codes"].split(), row)
    return names


@cache
def read_locale(language: str) -> Locale:
    # Numbers are formatted as in English if the tables lack the language.
    content = locale_tables()
    examples = [example for example, languages in content["numbers"].items() if language in languages.split()]
    example = examples[0] if examples else "1,234.5"
    dates = content["dates"].get(language, {})
    labels = content["languages"].get(language, {"label": ""})
    months = tuple(dates.get("months", ()))
    return Locale(
        language,
        group=example[-6],
        decimal=example[-2],
        grouped_from=example.index(example[-6]) + 3,
        date_form=dates.get("form", Locale.date_form),
        months=months,
        months_alone=tuple(dates.get("alone", months)),
        first_day=dates.get("first", "1"),
        label=labels["label"],
        languages=labels,
        countries={code: names[language] for code, names in country_names().items() if names.get(language)},
    )
