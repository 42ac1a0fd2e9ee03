"""Numbers with units, powers and fractions, as the templates for them show them."""

from __future__ import annotations

from pipeline_src.wikipedia.placeholders import PLACEHOLDER

SCALES = {"e3": "thousand ", "e6": "million ", "e9": "billion ", "e12": "trillion "}
RAISED = str.maketrans("0123456789+−–-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁻⁻")
UNITS = {
    "km2": "km²", "sqkm": "km²", "sqmi": "sq mi", "m2": "m²", "m3": "m³", "km3": "km³", "cm3": "cm³", "ft2": "sq ft",
    "sqft": "sq ft", "acre": "acres", "c": "°C", "f": "°F", "degc": "°C", "degf": "°F", "k": "K", "cuft": "cu ft",
    "cumi": "cu mi", "cuin": "cu in", "e6sqkm": "million km²", "kph": "km/h", "lbs": "lb", "foot": "feet", "l": "L",
    "c-change": "°C", "f-change": "°F", "oilbbl": "barrels", "oilbbl/d": "barrels per day",
    "musgal": "million US gallons", "usgal": "US gallons", "cuyd": "cu yd", "long ton": "long tons",
    "short ton": "short tons", "mile": "miles", "year": "years",
}  # fmt: skip
JOINERS = {
    "to": "to",
    "-": "–",
    "–": "–",
    "and": "and",
    "by": "by",
    "x": "×",
    "or": "or",
    "to(-)": "to",
    "and(-)": "and",
    "to about": "to about",
    "+/-": "±",
}


def fraction(_: str, arguments: list[str]) -> str:
    """{{frac|2|1|3}} -> 2 1/3."""
    if len(arguments) == 3:
        return f"{arguments[0]} {arguments[1]}/{arguments[2]}"
    return "/".join(arguments) if len(arguments) == 2 else "1/" + arguments[0] if arguments else ""


def convert(_: str, arguments: list[str]) -> str:
    """{{convert|5|to|7|km|mi}} -> 5 to 7 km; the converted value is left out."""
    words: list[str] = []
    for argument in arguments:
        low = argument.lower()
        if argument[:1].isdigit() or argument[:2].lstrip("-−+.")[:1].isdigit():
            if words and words[-1] not in JOINERS.values():
                break  # {{convert|100|km|0}}: digits to round to, or a second unit
            words.append(_grouped(argument))
        elif low in JOINERS and words and words[-1] not in JOINERS.values():
            words.append(JOINERS[low])
        elif argument:
            words.append(_unit(argument))
            break
    feet = arguments[1:2] == ["ft"] and arguments[3:4] == ["in"]  # {{convert|5|ft|6|in}}
    return " ".join(words) + (f" {arguments[2]} in" if feet else "")


def _grouped(number: str) -> str:
    """Commas between thousands, as {{convert}} shows them: 640081.87 -> 640,081.87."""
    whole, point, rest = number.partition(".")
    return f"{int(whole):,}{point}{rest}" if len(whole) > 3 and whole.isdecimal() else number


def _unit(name: str) -> str:
    low = name.lower()
    for scale, words in SCALES.items():
        if low.startswith(scale) and low not in UNITS and not low[len(scale) :][:1].isdigit():
            return words + UNITS.get(low[len(scale) :], name[len(scale) :])
    return UNITS.get(low, name)


def power_of_ten(_: str, arguments: list[str]) -> str:
    """{{e|24}} -> ×10²⁴."""
    return "×10" + arguments[0].translate(RAISED) if arguments else ""


def value(_: str, raw: list[str]) -> str:
    """{{val|6.24|e=18|u=C}} -> 6.24×10¹⁸ C."""
    named = {
        key.strip(): value.strip() for key, equals, value in (argument.partition("=") for argument in raw) if equals
    }
    number = next((argument.strip() for argument in raw if "=" not in argument), "")
    if not number or "(" in number:
        return PLACEHOLDER
    power = "×10" + named["e"].translate(RAISED) if named.get("e") else ""
    unit = named.get("u") or named.get("ul") or ""
    per = named.get("up") or named.get("upl")
    return f"{number}{power} {unit}".strip() + (f"/{per}" if per else "")
