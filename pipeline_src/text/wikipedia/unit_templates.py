"""Handlers of templates for numbers with units, powers and fractions."""

from __future__ import annotations

import csv
import re
from functools import cache
from html import unescape
from itertools import zip_longest

from pipeline_src.text.wikipedia.locale import TABLES, Locale
from pipeline_src.text.wikipedia.markers import JOINER
from pipeline_src.text.wikipedia.template_arguments import Arguments

UNITS = TABLES / "units.tsv"
SCALES = {"e3": "thousand", "e6": "million", "e9": "billion", "e12": "trillion"}
THOUSANDS = {"k": "thousand", "M": "million", "G": "billion", "T": "trillion"}
# Units that may have a prefix of THOUSANDS: {{convert|2|Moilbbl/d}}
COUNTED = ("oilbbl", "bbl", "cuft", "usgal", "impgal", "gal", "acre", "ft3")
RAISED = str.maketrans("0123456789+−–-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁻⁻")
# Characters to ignore inside a number. {{shy}} in 1{{shy}}0 is one of them.
_UNSEEN = str.maketrans("", "", f" {JOINER}\u2060")
# A unit code may be written with a superscript: {{convert|750|km²}}
LOWERED = str.maketrans("²³", "23")
# The words between two numbers: with unit names, and with unit symbols.
BETWEEN = {
    "to": ("to", "to"),
    "-": ("–", "–"),
    "–": ("–", "–"),
    "to(-)": ("to", "–"),
    "and": ("and", "and"),
    "and(-)": ("and", "–"),
    "&": ("and", "&"),
    "or": ("or", "or"),
    "by": ("by", "by"),
    "by(x)": ("by", "×"),
    "x": ("by", "×"),
    "×": ("by", "×"),
    "xx": ("×", "×"),
    "+/-": ("±", "±"),
    "±": ("±", "±"),
    ",": (",", ","),
    "to about": ("to about", "to about"),
    "and about": ("and about", "and about"),
    "to roughly": ("to roughly",) * 2,
}
# These are written without a space next to a number.
TIGHT = frozenset("–,")
# Pairs of a unit and a smaller unit: 5 ft 3 in
SMALLER = frozenset(
    "ft in; yd ft; mi yd; mi ft; mi ch; mi chain; mi furlong; mi chains; lb oz; st lb; stone lb; LT cwt; "
    "long ton long cwt; foot in; ton cwt".split("; ")
)
_NUMBER = re.compile(r"[-−+]?(?:\d[\d,]*(?:\.\d+)?|\.\d+)(?:e[+-]?\d+)?\Z", re.IGNORECASE)
# What may stand between two numbers of {{unité}} and its translations.
RANGES = frozenset("à et ou a y o e - – x × ± +/-".split())
_EXPONENT = re.compile(r"[-−+]?\d*")
_TYPED = re.compile(r"\d+(?: \d{3})*(?:[.,]\d+)?(?![.,]\d)")
_FRACTION = re.compile(r"(?:(\d+)[+ -])?(\d+)(?:/|//|⁄)(\d+)\Z")


@cache
def units() -> dict[str, tuple[str, str, str]]:
    # Return unit code -> (symbol, singular, plural).
    with open(UNITS, encoding="utf-8", newline="") as file:
        return {row["code"]: (row["symbol"], row["one"], row["many"]) for row in csv.DictReader(file, delimiter="\t")}


def _unit(code: str) -> tuple[str, str, str] | None:
    code = code.translate(LOWERED)
    entry = _of_table(code)
    if entry or not code:
        return entry
    # e6acre: million acres
    for scale, words in SCALES.items():
        name = code[len(scale) :]
        if code.lower().startswith(scale) and not name[:1].isdigit():
            return _scaled(words, name)
    # Moilbbl: million barrels
    thousands = THOUSANDS.get(code[0])
    if thousands and code[1:].lower().startswith(COUNTED):
        return _scaled(thousands, code[1:])
    return None


def _of_table(code: str) -> tuple[str, str, str] | None:
    return units().get(code) or units().get(code.lower())


def _scaled(words: str, code: str) -> tuple[str, str, str] | None:
    inner = _of_table(code)
    if inner is None:
        return None
    symbol, _, plural = inner
    return f"{words} {symbol}", f"{words} {plural}", f"{words} {plural}"


def raised(text: str) -> str:
    # Raise a number: -27 -> ⁻²⁷. Other text is returned unchanged.
    # An argument may contain entities, such as &#61; from {{=}}.
    text = unescape(text)
    return text.translate(RAISED) if all(mark in "0123456789+−–-" for mark in text) else text


# Format a number: 640081.87 -> 640,081.87, 1+1/2 -> 1 1/2. Return None for other text.
def _number(text: str, locale: Locale) -> str | None:
    text = text.translate(_UNSEEN)
    if _NUMBER.match(text):
        mantissa, e, exponent = text.lower().partition("e")
        return locale.number(mantissa) + (f"×10{exponent.lstrip('+').translate(RAISED)}" if e else "")
    part = _FRACTION.match(text.replace("//", "/"))
    return (f"{part[1]} " if part[1] else "") + f"{part[2]}/{part[3]}" if part else None


def convert(arguments: Arguments) -> str | None:
    # {{convert|5|to|7|km|mi}} -> 5 to 7 kilometres; {{cvt|5|km}} -> 5 km. The converted value is left out.
    plain, named = arguments.plain, arguments.named
    if named.get("disp", "") in ("out", "output only", "output number only", "number", "unit", "u2", "x") or named.get(
        "spell"
    ):
        return None
    english = arguments.locale.language == "en"
    short = (
        not english
        or named.get("abbr") in ("on", "in", "y", "yes", "values")
        or (arguments.name.lower() == "cvt" and named.get("abbr") not in ("off", "none"))
    )
    joined = named.get("adj") in ("on", "mid", "1", "flip")
    numbers: list[str] = []
    position = 0
    while position < len(plain):
        number = _number(plain[position], arguments.locale)
        if number is None:
            return None
        numbers.append(number)
        position += 1
        joiner = BETWEEN.get(plain[position].strip().lower()) if position < len(plain) else None
        if joiner is None:
            break
        word = joiner[short]
        if not english and word.isascii() and word[0].isalpha():
            if word != "to":
                return None
            word = "–"
        numbers.append(word if word in TIGHT else f" {word} ")
        position += 1
    codes = plain[position : position + 3]
    unit = _unit(codes[0]) if codes else None
    if unit is None:
        return None
    text = "".join(numbers).replace(",", ", ") if "," in numbers else "".join(numbers)
    text_with_unit = _with_unit(text, unit, numbers, short=short, joined=joined)
    second = None
    if len(codes) == 3 and f"{codes[0]} {codes[2]}" in SMALLER:
        second = _number(codes[1], arguments.locale)
    if second is not None:
        smaller = _unit(codes[2]) or unit
        text_with_unit += "-" if joined and not short else " "
        text_with_unit += _with_unit(second, smaller, [second], short=short, joined=joined)
    if named.get("adj") == "mid":
        text_with_unit += next((word for word in plain[position + 1 :] if word.startswith("-")), "")
    if named.get("sp") == "us":
        return text_with_unit.replace("metre", "meter").replace("litre", "liter").replace("tonnes", "metric tons")
    return text_with_unit


def _with_unit(text: str, unit: tuple[str, str, str], numbers: list[str], *, short: bool, joined: bool) -> str:
    symbol, singular, plural = unit
    if short:
        space = "" if symbol.startswith("/") else " "
        return f"{text}{space}{symbol}"
    if joined and singular[:1] != "°":
        return f"{text}-{singular.replace(' ', '-')}"
    last = numbers[-1]
    is_fraction = "/" in last and " " not in last
    if is_fraction or numbers == ["1"]:
        return f"{text} {singular}"
    return f"{text} {plural}"


def measure(arguments: Arguments) -> str | None:
    # {{M|61.000||km/h}} -> 61.000 km/h; {{M|1|k|m}} -> 1 km; {{M|1,12|e=-3|-|Pa}} -> 1,12×10⁻³ Pa.
    number, named = arguments.get("1"), arguments.named
    if not number:
        return None
    prefix = arguments.get("2") or ""
    unit = arguments.get("3") or ""
    unit = named.get("ul") or named.get("u") or f"{prefix.strip('-')}{unit}"
    return f"{number}{_power_of_ten(named.get('e'))} {unit}".rstrip()


def _power_of_ten(power: str | None) -> str:
    return f"×10{power.translate(RAISED)}" if power else ""


def unit(arguments: Arguments) -> str | None:
    # {{unité|12.50|km|2}} -> 12,50 km²; {{unité|3|km||h|-1}} -> 3 km h⁻¹; {{unité|4|à|5|km}} -> 4 à 5 km.
    number, *units = arguments.plain or [""]
    while len(units) > 1 and units[0] in RANGES:
        number = f"{number} {units[0]} {units[1]}"
        units = units[2:]
    power = arguments.named.get("e", "")
    exponents = units[1::2]
    if not number or not all(map(_EXPONENT.fullmatch, [power, *exponents])):
        return None

    def write(typed: re.Match[str]) -> str:
        return arguments.locale.number(typed[0].replace(" ", "").replace(",", "."))

    text = _TYPED.sub(write, number) + _power_of_ten(power)
    for name, exponent in zip_longest(units[::2], exponents, fillvalue=""):
        if name:
            text += f" {name}{exponent.translate(RAISED)}"
    return text


def value(arguments: Arguments) -> str | None:
    # {{val|6.24|e=18|u=C}} -> 6.24×10¹⁸ C; {{val|5|2}} -> 5±2, {{val|1.67|(33)}} -> 1.67(33).
    named = arguments.named
    parts = [part for part in arguments.plain if part]
    if not 1 <= len(parts) <= 2 or named.get("end") or named.get("p"):
        return None
    # The uncertainty is the second argument, or follows the number in brackets.
    number, bracket, uncertainty = parts[0].partition("(")
    uncertainty = bracket + uncertainty
    if len(parts) == 2:
        number, uncertainty = parts
    grouped = named.get("fmt", "") == "commas" or "," in number
    number = arguments.locale.number(number.replace(",", ""), grouped=grouped)
    if uncertainty:
        between = "" if uncertainty.startswith("(") else "±"
        number += between + arguments.locale.number(uncertainty.replace(",", ""), grouped=grouped)
    power = _power_of_ten(named.get("e"))
    if power and "±" in number:
        number = f"({number})"
    unit = named.get("u") or named.get("ul") or ""
    text = f"{number}{power} {unit}".strip()
    per = named.get("up") or named.get("upl")
    return f"{text}/{per}" if per else text
