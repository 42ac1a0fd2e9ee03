"""How a wiki's language writes numbers, dates, languages and countries, and which of its scripts is chosen."""

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
# "< de {year}>", a part of a date with its surroundings, which is left out if the date has no year
_DATE_PART = re.compile(r"<([^<>{}]*)\{(day|month|year)\}([^<>{}]*)>")
_NUMBER = re.compile(r"[-−+]?\d+(?:\.\d*)?|[-−+]?\.\d+", re.ASCII)
# Longer numbers stay as they are.
_MAX_DIGITS = 100

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
        date_form: order of a date's parts; each part in < > is left out with the text around it if it is unknown.
        months: names of the months in a date with a day; empty if unknown.
        months_alone: their names without a day.
        label: how the name of a language stands before a foreign word: ``{}: ``.
        languages: names of languages by their codes.
        countries: names of countries by their codes of three letters.
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

    # 640081.87 -> 640,081.87; any other text stays.
    def number(self, text: str, *, grouped: bool = True) -> str:
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

    # Parts may be empty: 14 mai 1995. None without names of months, or for a day alone.
    def date(self, day: str, month: int | None, year: str) -> str | None:
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

    # A month is given by number, by name or by the first three letters or more of its name.
    def month(self, text: str) -> int | None:
        if text.isascii() and text.isdigit():
            return int(text) if len(text) < 3 and 1 <= int(text) <= 12 else None
        start = text.lower().rstrip(".")
        if len(start) < 3:
            return None
        for number, forms in enumerate(zip(self.months, self.months_alone, strict=True), 1):
            if any(name.lower().startswith(start) for name in forms):
                return number
        return None

    # What stands before a word of another language: "French: "
    def language_label(self, code: str) -> str | None:
        name = self.languages.get(code)
        return self.label.format(name) if name else None


# By libyaml, since each worker reads it anew.
def read_table(path: Path) -> Any:
    return yaml.load(path.read_bytes(), Loader=yaml.CSafeLoader)


@cache
def locale_tables() -> dict[str, Any]:
    content: dict[str, Any] = read_table(LOCALES)
    return content


# code of three letters -> language -> name of the country
@cache
def country_names() -> dict[str, dict[str, str]]:
    names: dict[str, dict[str, str]] = {}
    with open(COUNTRIES, encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            names |= dict.fromkeys(row["codes"].split(), row)
    return names


# Numbers are written as in English if the tables lack the language.
@cache
def read_locale(language: str) -> Locale:
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
