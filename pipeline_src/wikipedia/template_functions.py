"""Templates whose words follow from their arguments by a rule: dates, ships, sums of money, citations in the text."""

from __future__ import annotations

import re
from collections.abc import Callable

from pipeline_src.wikipedia.placeholders import GONE, sound
from pipeline_src.wikipedia.template_arguments import Arguments, Handler
from pipeline_src.wikipedia.unit_templates import (
    RAISED,
    convert,
    fraction,
    gaps,
    grouped,
    measure,
    power_of_ten,
    scientific,
    value,
)

MONTHS = """January February March April May June July August September October November December""".split()

# Arguments of {{IPAc-en}} that are no sounds.
NOT_SOUNDS = frozenset("lang local pron uk us au nz ca icon also audio link".split())
SIGNS = {"sharp": "♯", "flat": "♭", "natural": "♮", "doublesharp": "𝄪", "doubleflat": "𝄫", "b": "♭", "#": "♯", "n": "♮"}


def _date(arguments: Arguments) -> str | None:
    """{{start date|1999|3|5}} -> March 5, 1999; with ``df=y`` 5 March 1999; {{start date|1999|03}} -> March 1999."""
    return _written(arguments.plain, day_first=arguments.says("df"))


def _written(parts: list[str], *, day_first: bool) -> str | None:
    parts = [part for part in parts[:3] if part]
    if not parts or not all(parts):
        return None
    if len(parts) == 1:
        return parts[0]
    month = _month(parts[1])
    if month is None or not parts[0].isdigit():
        return None
    if len(parts) == 2:
        return f"{month} {parts[0]}"
    day = parts[2].lstrip("0")
    if not day.isdigit():
        return None
    return f"{day} {month} {parts[0]}" if day_first else f"{month} {day}, {parts[0]}"


def _month(text: str) -> str | None:
    if text.isascii() and text.isdigit() and 1 <= int(text[:3]) <= 12:
        return MONTHS[int(text) - 1] if len(text) < 3 else None
    return next((month for month in MONTHS if len(text) > 2 and month.lower().startswith(text.lower())), None)


def _as_of(arguments: Arguments) -> str | None:
    """{{as of|2011|February}} -> As of February 2011."""
    named = arguments.named
    if named.get("alt"):
        return named["alt"]
    month_first = arguments.says("df", "us", "mdy")
    date = _written(arguments.plain, day_first=not month_first)
    if date is None:
        return None
    if arguments.says("bare"):
        return date
    opening = "since" if arguments.says("since") else "as of"
    return f"{opening if arguments.says('lc') else opening.capitalize()} {date}{named.get('post', '')}"


def _circa(arguments: Arguments) -> str:
    """{{circa|1850|1860}} -> c. 1850 – c. 1860."""
    return "c. " + " – c. ".join(date for date in arguments.plain[:2] if date)


def _years(mark: str) -> Handler:
    """{{reign|1066|1087}} -> r. 1066–1087."""

    def show(arguments: Arguments) -> str | None:
        years = [year for year in arguments.plain[:2] if year]
        if not years:
            return None
        opening = "" if arguments.named.get("show", "").lower() in ("none", "blank", "no") else f"{mark} "
        return opening + "–".join(years)

    return show


def _verse(arguments: Arguments) -> str | None:
    """{{bibleref|Mark|3:25|9}} -> Mark 3:25, {{bibleverse|1|Kings|3:1|KJV}} -> 1 Kings 3:1."""
    plain = arguments.plain
    for count, argument in enumerate(plain, 1):
        if count > 1 and argument[:1].isdigit():
            return " ".join(plain[:count]).strip()
    return " ".join(plain[:2]).strip() or None


def _sound(arguments: Arguments) -> str:
    """A pronunciation: {{IPAc-en|æ|l}} -> /æl/, {{IPA-fr|kɔn|lang}} -> /kɔn/, {{IPA|/a/}} -> /a/."""
    sounds = [argument for argument in arguments.plain if argument.lower() not in NOT_SOUNDS and ".og" not in argument]
    if not any(sounds):
        return GONE
    name = arguments.name.lower()
    if name.startswith("ipac"):
        return sound(f"/{''.join(sounds)}/")
    if name == "ipa":
        return sound(sounds[-1])
    return sound(f"/{sounds[0]}/")


def _respelling(arguments: Arguments) -> str:
    """{{respell|ASS|kee}} -> ASS-kee, as a pronunciation."""
    return sound("-".join(part for part in arguments.plain if part))


def _ship(prefix: str) -> Handler:
    """{{HMS|Ark Royal|91}} -> HMS Ark Royal (91); {{ship|Japanese aircraft carrier|Akagi}} brings its own prefix."""

    def show(arguments: Arguments) -> str | None:
        plain = arguments.plain if prefix else arguments.plain[1:]
        before = prefix or (arguments.plain or [""])[0]
        name, number, shape = [*plain, "", "", ""][:3]
        number_shown = f" ({number})" if number else ""
        return {
            "": f"{before} {name}{number_shown}".strip(),
            "1": number,
            "2": name,
            "3": name + number_shown,
            "6": f"{before} {name}".strip(),
        }.get(arguments.named.get("up", shape)) if name else None  # fmt: skip

    return show


def _ship_class(arguments: Arguments) -> str | None:
    """{{sclass|Town|cruiser|1}} -> Town-class cruiser; the third argument decides what of it is shown."""
    name, kind, shape = [*arguments.plain, "", "", ""][:3]
    if not name:
        return None
    whole = f"{name}-class {kind}".strip()
    shapes = {"": whole, "0": whole, "1": whole, "2": f"{name} class", "3": f"{name}-class", "4": f"{name} class"}
    return shapes.get(shape)


def _money(sign: str) -> Handler:
    """{{US$|5 million}} -> US$5 million; alone the sign."""
    return lambda arguments: sign + (arguments.get("1") or "")


def _cited(shape: str) -> Handler:
    """{{harvtxt|Smith|2000|p=12}} -> Smith (2000, p. 12); ``nb`` is without brackets, ``all`` within them."""

    def show(arguments: Arguments) -> str | None:
        *names, year = [part for part in arguments.plain if part] or [""]
        if not names:
            return None
        who = f"{names[0]} et al." if len(names) > 3 else ", ".join(names[:-2]) + ", " * (len(names) > 2) + " & ".join(
            names[-2:])  # fmt: skip
        named = arguments.named
        place = next((f", {mark} {named[key]}" for key, mark in _PLACES if named.get(key)), "")
        place = place or (f", {named['loc']}" if named.get("loc") else "")
        if shape == "text":
            return f"{who} ({year}{place})"
        return f"({who} {year}{place})" if shape == "all" else f"{who} {year}{place}"

    return show


_DEGREES = re.compile(r"[+-]?\d{1,3}(?:\.\d{1,9})?")
_PLACES = (("p", "p."), ("page", "p."), ("pp", "pp."), ("pages", "pp."))


def _coordinates(arguments: Arguments) -> str | None:
    """{{coord|13|19|N|169|9|W}} -> 13°19′N 169°9′W; nothing where they stand above the page only (display=title).

    In German {{coordinate|NS=47/16/16/N|EW=9/31/51/E}} stands there, and in the sentence with ``text=``.
    """
    named = arguments.named
    if "ns" in named and "ew" in named:
        if not named.get("text"):
            return GONE
        plain = f"{named['ns']}/{named['ew']}".upper().split("/")
    else:
        if named.get("display", "").replace(" ", "").lower() in ("title", "t", "it"):
            return GONE
        plain = [argument.upper() for argument in arguments.plain]
    shown: list[str] = []
    numbers: list[str] = []
    for argument in plain[:8]:
        if argument in ("N", "S", "E", "W", "O"):
            if not 1 <= len(numbers) <= 3:
                return None
            shown.append("".join(map(str.__add__, numbers, "°′″")) + argument)
            numbers = []
        elif _DEGREES.fullmatch(argument):
            numbers.append(argument.lstrip("+"))
        else:
            break
    if not shown and len(numbers) == 2:  # {{coord|46.8345|-10.5162}}
        shown = [
            f"{number.lstrip('-')}°{sides[number[0] == '-']}"
            for number, sides in zip(numbers, ("NS", "EW"), strict=True)
        ]
    return " ".join(shown) if len(shown) == 2 else None


def _accidental(arguments: Arguments) -> str | None:
    return SIGNS.get((arguments.get("1") or "").lower())


def _joined(between: str) -> Handler:
    """{{chem|C|2|H|6|O}} -> C2H6O."""
    return lambda arguments: between.join(arguments.plain) or None


def _raised(arguments: Arguments) -> str:
    """{{sup|6}} -> ⁶."""
    text = arguments.get("1") or GONE
    return text.translate(RAISED) if all(mark in "0123456789+−–-" for mark in text) else text


def _sic(arguments: Arguments) -> str:
    """{{sic|teh}} -> teh [sic]; alone, or with ``hide=y``, without the one or the other."""
    text = "".join(arguments.plain[:1])
    if arguments.says("hide"):
        return text or GONE
    return f"{text} [sic]".strip()


def _flag(arguments: Arguments) -> str | None:
    """{{flag|France}} -> France; {{flag|FRA}} shows a name that this code stands for."""
    name = arguments.named.get("name") or arguments.get("1") or ""
    return name if len(name) > 3 else None


def _quoted(marks: str) -> Handler:
    """{{gloss|book}} -> ‘book’."""
    opening, closing = marks.split("…")
    return lambda arguments: f"{opening}{text}{closing}" if (text := arguments.get("last")) else None


def _ordinal(arguments: Arguments) -> str | None:
    """{{ordinal|22}} -> 22nd."""
    number = arguments.get("1") or ""
    if not (number.isascii() and number.isdigit()):
        return None
    teen = number[-2:-1] == "1"
    return number + ("th" if teen else {"1": "st", "2": "nd", "3": "rd"}.get(number[-1], "th"))


def _own_name(arguments: Arguments) -> str:
    """{{1/2}} -> 1/2, {{XXe siècle}} -> XXe siècle."""
    return arguments.name


def _character(arguments: Arguments) -> str | None:
    """{{unichar|00E9|LATIN SMALL LETTER E WITH ACUTE}} -> U+00E9 é LATIN SMALL LETTER E WITH ACUTE."""
    code, name = [*arguments.plain, "", ""][:2]
    try:
        shown = chr(int(code, 16)) if len(code) < 7 else ""
    except (ValueError, OverflowError):
        return None
    return f"U+{code.upper()} {shown if shown.isprintable() else ''} {name}".strip() if shown else None


def _number(arguments: Arguments) -> str | None:
    """{{formatnum:1234567}} -> 1,234,567."""
    number = arguments.get("1") or ""
    return grouped(number) if number else None


def _case(change: Callable[[str], str]) -> Handler:
    return lambda arguments: change(arguments.get("1") or "") or GONE


def _century(word: str) -> Handler:
    """{{s|XX}} -> XXe siècle."""

    def show(arguments: Arguments) -> str | None:
        number = arguments.get("1") or ""
        return f"{number}{'er' if number == 'I' else 'e'} {word}".strip() if number else None

    return show


def _plain(function: Handler) -> Callable[[str], Handler]:
    """A function that is told nothing."""
    return lambda _told: function


FUNCTIONS: dict[str, Callable[[str], Handler]] = {
    "accidental": _plain(_accidental),
    "as-of": _plain(_as_of),
    "capital": _plain(_case(lambda text: text[:1].upper() + text[1:])),
    "capitals": _plain(_case(str.upper)),
    "century": _century,
    "character": _plain(_character),
    "circa": _plain(_circa),
    "cited": _cited,
    "convert": _plain(convert),
    "coordinates": _plain(_coordinates),
    "date": _plain(_date),
    "flag": _plain(_flag),
    "fraction": _plain(fraction),
    "gaps": _plain(gaps),
    "joined": _joined,
    "money": _money,
    "measure": _plain(measure),
    "number": _plain(_number),
    "ordinal": _plain(_ordinal),
    "own-name": _plain(_own_name),
    "power-of-ten": _plain(power_of_ten),
    "quoted": _quoted,
    "raised": _plain(_raised),
    "respelling": _plain(_respelling),
    "ship": _ship,
    "ship-class": _plain(_ship_class),
    "scientific": _plain(scientific),
    "sic": _plain(_sic),
    "small": _plain(_case(str.lower)),
    "sound": _plain(_sound),
    "value": _plain(value),
    "verse": _plain(_verse),
    "years": _years,
}
