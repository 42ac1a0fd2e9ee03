"""Numbers with units, powers and fractions, as the templates for them show them."""

from __future__ import annotations

import csv
import re
from functools import cache
from pathlib import Path

from pipeline_src.wikipedia.template_arguments import Arguments

UNITS = Path(__file__).parent / "tables" / "units.tsv"
SCALES = {"e3": "thousand", "e6": "million", "e9": "billion", "e12": "trillion"}
THOUSANDS = {"k": "thousand", "M": "million", "G": "billion", "T": "trillion"}
COUNTED = ("oilbbl", "bbl", "cuft", "usgal", "impgal", "gal", "acre", "ft3")  # {{convert|2|Moilbbl/d}}
RAISED = str.maketrans("0123456789+−–-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁻⁻")
# What stands between two numbers: beside units that are spelt out, and beside symbols.
BETWEEN = {
    "to": ("to", "to"), "-": ("–", "–"), "–": ("–", "–"), "to(-)": ("to", "–"), "and": ("and", "and"),
    "and(-)": ("and", "–"), "&": ("and", "&"), "or": ("or", "or"), "by": ("by", "by"), "by(x)": ("by", "×"),
    "x": ("by", "×"), "×": ("by", "×"), "xx": ("×", "×"), "+/-": ("±", "±"), "±": ("±", "±"), ",": (",", ","),
    "to about": ("to about", "to about"), "and about": ("and about", "and about"), "to roughly": ("to roughly",) * 2,
}  # fmt: skip
TIGHT = frozenset("–,")  # stand beside a number without a blank
SMALLER = {
    ("ft", "in"), ("yd", "ft"), ("mi", "yd"), ("mi", "ft"), ("mi", "ch"), ("mi", "chain"), ("mi", "furlong"),
    ("lb", "oz"), ("st", "lb"), ("stone", "lb"), ("mi", "chains"), ("LT", "cwt"), ("long ton", "long cwt"),
    ("foot", "in"), ("ton", "cwt"),
}  # fmt: skip
_NUMBER = re.compile(r"[-−+]?(?:\d[\d,]*(?:\.\d+)?|\.\d+)(?:e[+-]?\d+)?\Z", re.IGNORECASE)
_FRACTION = re.compile(r"(?:(\d+)[+ -])?(\d+)(?:/|//|⁄)(\d+)\Z")


@cache
def units() -> dict[str, tuple[str, str, str]]:
    """Symbol, name of one and name of many of each unit of {{convert}}, by its code."""
    with open(UNITS, encoding="utf-8", newline="") as file:
        return {row["code"]: (row["symbol"], row["one"], row["many"]) for row in csv.DictReader(file, delimiter="\t")}


def _unit(code: str) -> tuple[str, str, str] | None:
    found = _of_table(code)
    if found or not code:
        return found
    for scale, words in SCALES.items():
        if code.lower().startswith(scale) and not code[len(scale) : len(scale) + 1].isdigit():
            return _scaled(words, code[len(scale) :])
    thousands = THOUSANDS.get(code[0])
    return _scaled(thousands, code[1:]) if thousands and code[1:].lower().startswith(COUNTED) else None


def _of_table(code: str) -> tuple[str, str, str] | None:
    return units().get(code) or units().get(code.lower())


def _scaled(words: str, code: str) -> tuple[str, str, str] | None:
    inner = _of_table(code)
    return inner and (f"{words} {inner[0]}", f"{words} {inner[2]}", f"{words} {inner[2]}")


def _number(text: str) -> str | None:
    """A number as it is shown: 640081.87 -> 640,081.87, 1+1/2 -> 1 1/2; None for anything else."""
    text = text.replace(" ", "")
    if _NUMBER.match(text):
        return grouped(text) if "e" not in text.lower() else _power(text)
    part = _FRACTION.match(text.replace("//", "/"))
    return (f"{part[1]} " if part[1] else "") + f"{part[2]}/{part[3]}" if part else None


def _power(text: str) -> str:
    mantissa, _, exponent = text.lower().partition("e")
    return f"{grouped(mantissa)}×10{exponent.lstrip('+').translate(RAISED)}"


def grouped(number: str) -> str:
    """Commas between thousands: 640081.87 -> 640,081.87."""
    whole, point, rest = number.partition(".")
    return f"{int(whole):,}{point}{rest}" if 3 < len(whole) < 100 and whole.isdecimal() else number


def convert(arguments: Arguments) -> str | None:
    """{{convert|5|to|7|km|mi}} -> 5 to 7 kilometres; {{cvt|5|km}} -> 5 km. What it is converted to is left out."""
    plain, named = arguments.plain, arguments.named
    if named.get("disp", "") in ("out", "output only", "output number only", "number", "unit", "u2", "x") or named.get(
        "spell"
    ):
        return None
    short = named.get("abbr") in ("on", "in", "y", "yes", "values") or (
        arguments.name.lower() == "cvt" and named.get("abbr") not in ("off", "none")
    )
    joined = named.get("adj") in ("on", "mid", "1", "flip")
    numbers: list[str] = []
    position = 0
    while position < len(plain):
        number = _number(plain[position])
        if number is None:
            return None
        numbers.append(number)
        position += 1
        joiner = BETWEEN.get(plain[position].strip().lower()) if position < len(plain) else None
        if joiner is None:
            break
        word = joiner[short]
        numbers.append(word if word in TIGHT else f" {word} ")
        position += 1
    codes = plain[position : position + 3]
    unit = _unit(codes[0]) if codes else None
    if unit is None:
        return None
    text = "".join(numbers).replace(",", ", ") if "," in numbers else "".join(numbers)
    shown = _with_unit(text, unit, numbers, short=short, joined=joined)
    if len(codes) == 3 and (codes[0], codes[2]) in SMALLER and (second := _number(codes[1])) is not None:
        smaller = _unit(codes[2]) or unit
        shown += "-" if joined and not short else " "
        shown += _with_unit(second, smaller, [second], short=short, joined=joined)
    if named.get("adj") == "mid":
        shown += next((word for word in plain[position + 1 :] if word.startswith("-")), "")
    return _american(shown) if named.get("sp") == "us" else shown


def _with_unit(text: str, unit: tuple[str, str, str], numbers: list[str], *, short: bool, joined: bool) -> str:
    symbol, one, many = unit
    if short:
        return f"{text}{symbol}" if symbol.startswith("/") else f"{text} {symbol}"
    if joined and one[:1] != "°":
        return f"{text}-{one.replace(' ', '-')}"
    alone = numbers == ["1"] or ("/" in numbers[-1] and " " not in numbers[-1])
    return f"{text} {one if alone else many}"


def _american(text: str) -> str:
    return text.replace("metre", "meter").replace("litre", "liter").replace("tonnes", "metric tons")


def fraction(arguments: Arguments) -> str | None:
    """{{frac|2|1|3}} -> 2 1/3."""
    parts = arguments.plain
    if len(parts) == 3:
        return f"{parts[0]} {parts[1]}/{parts[2]}".strip()
    return "/".join(parts) if len(parts) == 2 else f"1/{parts[0]}" if parts else None


def gaps(arguments: Arguments) -> str | None:
    """{{gaps|12|345|678}} -> 12 345 678; its groups stand apart."""
    number = " ".join(arguments.plain)
    power = arguments.named.get("e", "")
    shown = number + (f"×10{power.translate(RAISED)}" if power else "")
    unit = arguments.named.get("u") or arguments.named.get("ul")
    return (f"{shown} {unit}" if unit else shown) or None


def power_of_ten(arguments: Arguments) -> str | None:
    """{{e|24}} -> ×10²⁴."""
    power = arguments.get("1")
    return "×10" + power.translate(RAISED) if power else None


def scientific(arguments: Arguments) -> str | None:
    """{{exp|1,9|19}} -> 1,9×10¹⁹, as the Italian Wikipedia writes it."""
    number, power = arguments.get("1"), arguments.get("2")
    return f"{number}×10{power.translate(RAISED)}" if number and power else None


def measure(arguments: Arguments) -> str | None:
    """{{M|61.000||km/h}} -> 61.000 km/h; {{M|1|k|m}} -> 1 km; {{M|1,12|e=-3|-|Pa}} -> 1,12×10⁻³ Pa."""
    number, named = arguments.get("1"), arguments.named
    if not number:
        return None
    prefix, unit = (arguments.get(key) or "" for key in ("2", "3"))
    unit = named.get("ul") or named.get("u") or f"{prefix.strip('-')}{unit}"
    power = f"×10{named['e'].translate(RAISED)}" if named.get("e") else ""
    return f"{number}{power} {unit}".rstrip()


def value(arguments: Arguments) -> str | None:
    """{{val|6.24|e=18|u=C}} -> 6.24×10¹⁸ C; {{val|5|2}} -> 5±2."""
    named = arguments.named
    parts = [part for part in arguments.plain if part]
    if not 1 <= len(parts) <= 2 or any("(" in part for part in parts) or named.get("end") or named.get("p"):
        return None
    comma = named.get("fmt", "") == "commas" or "," in parts[0]
    number = "±".join(grouped(part.replace(",", "")) if comma else part for part in parts)
    power = f"×10{named['e'].translate(RAISED)}" if named.get("e") else ""
    if power and len(parts) == 2:
        number = f"({number})"
    unit = named.get("u") or named.get("ul") or ""
    per = named.get("up") or named.get("upl")
    return f"{number}{power} {unit}".strip() + (f"/{per}" if per else "")
