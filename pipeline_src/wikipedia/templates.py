"""The templates whose text belongs to the sentence around them; every other template leaves nothing.

Names are those of English Wikipedia with a few of other languages, documented on each template's own page.
"""

from __future__ import annotations

from collections.abc import Callable

from pipeline_src.wikipedia.placeholders import PLACEHOLDER, sound
from pipeline_src.wikipedia.unit_templates import convert, fraction, power_of_ten, value

Expander = Callable[[str, list[str]], str]

# Without arguments these stand for a few characters.
SYMBOLS = {
    "ndash": "–", "mdash": "—", "en dash": "–", "em dash": "—", "spaced ndash": " – ", "snd": " – ", "spnd": " – ",
    "spaced en dash": " – ", "spaced mdash": " — ", "spaced em dash": " — ", "nbsp": " ", "space": " ", "·": " · ",
    "•": " • ", "'": "'", "'s": "'s", "!": "|", "=": "=", "ad": "AD", "bc": "BC", "bce": "BCE", "ce": "CE", "pi": "π",
    "times": "×", "minus": "−", "circa": "c. ", "c.": "c. ", "ca.": "c. ", "okina": "ʻ", "hamza": "ʼ", "shy": "",
    "euro": "€", "pound": "£", "yen": "¥", "degree": "°", "snds": " – ", "mdashb": "—",
    "thinsp": " ", "spaces": " ", "eqm": "⇌",
    "sp": " ", "m s.l.m.": "m s.l.m.", "tex": "TeX", "latex": "LaTeX", "carbon": "C",
    "hydrogen": "H", "oxygen": "O", "nitrogen": "N",
    "' \"": "'\"", "'\"": "'\"", "\" '": "\"'", "\"'": "\"'", "-\"": '"', "-'": "'",
}  # fmt: skip

# The last positional argument is the text: {{lang|grc|ἀναρχία}}.
LAST = """lang, transl, transliteration, translit, nowrap, nobr, no wrap, nobreak, noitalic, small, smaller, big,
    larger, em, strong, nobold, mvar, math, var, smallcaps, sc, unicode, polytonic, script, script/arabic,
    script/hebrew, as written, unichar, visible anchor, vanchor, rtl-lang, wikt-lang, keypress, key, kbd, mono, code,
    sup, sub, serif, sans-serif, chem2, center, italics correction, wrap, not a typo, typo, linktext, underline, angbr,
    resize, color, font color, hebrew, coptic,
    large, native name, native phrase, nq, vr, angle bracket, grapheme, railgauge, track gauge,
    tutto attaccato, maiuscoletto"""

# The first positional argument is the text: {{abbr|UN|United Nations}}.
FIRST = """abbr, tooltip, hover title, ill, interlanguage link, sic,
    nihongo, nihongo2, nihongo3, okay, num, formatnum, nts, number, citation needed span, clarify span,
    dubious span, text, plain text, gaps, flag, flagu,
    flagcountry, chiarire, citazione necessaria, cn, senza fonte, numero, ta, cas"""

# The same, and the paragraph ends with it. (What leads up to it often is half a sentence: they belong together.)
QUOTES = "quote, blockquote, cquote, quotation, bquote, citazione"

# What these show is computed, or looked up elsewhere.
UNKNOWN = """pop density, inflation, format price, age, age in years, age in days, time ago, height, us patent,
    cite quran, currentyear, currentmonthname, convertabbr, ov, dentalformula, su,
    sub sup, tmath, overline, intmath, bra, ket, bra-ket, physics particle, nuclide, simplenuclide,
    simplenuclide2, nuclide2, chess, hlist, flatlist, exp"""
LISTS = """ordered list, unordered list, bulleted list, plainlist, columns-list, clade, cladogram"""

# Arguments of {{IPAc-en}} that are no sounds.
NOT_SOUNDS = frozenset("lang local pron uk us au nz ca icon also audio link".split())

SHIPS = "hms, uss, ss, mv, rms, ms, hmas, hmcs, usns, uscgc, ins, sms, hmnzs, rv, rrs"
CURRENCIES = {"us$": "US$", "usd": "US$", "£": "£", "gbp": "£", "€": "€", "eur": "€", "¥": "¥", "a$": "A$", "inr": "₹"}
MONTHS = """January February March April May June July August September October November December""".split()


def expand(body: str) -> str:
    """The words that ``{{body}}`` puts into the sentence; '' for a template that shows none.

    ``body`` holds no markup of its own any more: links and templates within it are already text.
    """
    name, bar, rest = body.partition("|")
    name = name.strip().lower()
    if not bar:
        if name in SYMBOLS:
            return SYMBOLS[name]
        function, colon, value = name.partition(":")
        if name in UNSHOWN:
            return PLACEHOLDER
        return value.strip() if colon and function in ("formatnum", "lc", "uc", "ucfirst", "lcfirst") else ""
    expander = EXPANDERS.get(name)
    if name.startswith("ipa"):
        return _sound(name, positional(rest))
    if name in UNSHOWN:
        return PLACEHOLDER
    if name in LISTED:
        return "\n*\n"  # shows that the sentence before it announced a list
    if expander is None:
        return _first(name, positional(rest)) if name.startswith("lang-") else ""
    return expander(name, rest.split("|") if expander in NAMED else positional(rest))


def positional(arguments: str) -> list[str]:
    """The arguments without a name, stripped; where there is none, those named 1, 2, … or text."""
    plain, numbered = [], []
    for argument in arguments.split("|"):
        key, equals, value = argument.partition("=")
        if not equals:
            plain.append(argument.strip())
        elif key.strip() in ("1", "2", "3", "text", "quote"):
            numbered.append(value.strip())
    return plain or numbered


def _last(_: str, arguments: list[str]) -> str:
    return arguments[-1] if arguments else ""


def _first(_: str, arguments: list[str]) -> str:
    return arguments[0] if arguments else ""


def _quote(_: str, arguments: list[str]) -> str:
    return f"{arguments[0]}\n\n" if arguments else ""


def _joined(_: str, arguments: list[str]) -> str:
    return "".join(arguments)


def _circa(_: str, arguments: list[str]) -> str:
    return "c. " + " – c. ".join(arguments[:2]) if arguments else "c. "


def _verse(_: str, arguments: list[str]) -> str:
    """{{bibleref|Mark|3:25|9}} -> Mark 3:25, {{bibleverse|1|Kings|3:1|KJV}} -> 1 Kings 3:1."""
    for count, argument in enumerate(arguments, 1):
        if count > 1 and argument[:1].isdigit():
            return " ".join(arguments[:count]).strip()
    return " ".join(arguments[:2]).strip()


def _sound(name: str, arguments: list[str]) -> str:
    """A pronunciation: {{IPAc-en|æ|l}} -> /æl/, {{IPA-fr|kɔn|lang}} -> /kɔn/, {{IPA|/a/}} -> /a/."""
    sounds = [argument for argument in arguments if argument.lower() not in NOT_SOUNDS and ".og" not in argument]
    if not sounds:
        return ""
    if name.startswith("ipac"):
        return sound(f"/{''.join(sounds)}/")
    if name == "ipa":
        return sound(sounds[-1])
    return sound(f"/{sounds[0]}/")


def _ship(name: str, arguments: list[str]) -> str:
    return f"{name.upper()} {arguments[0]}" if arguments else ""


def _money(name: str, arguments: list[str]) -> str:
    return CURRENCIES[name] + arguments[0] if arguments else CURRENCIES[name]


def _as_of(_: str, raw: list[str]) -> str:
    dates = [argument.strip() for argument in raw if "=" not in argument]
    opening = "as of" if any(argument.replace(" ", "") == "lc=y" for argument in raw) else "As of"
    if len(dates) > 1 and dates[1].isdigit() and 1 <= int(dates[1]) <= 12:
        month = MONTHS[int(dates[1]) - 1]
        return f"{opening} {' '.join([*dates[2:3], month, dates[0]])}"
    return f"{opening} {dates[0]}" if dates and dates[0] else ""


def _old_style(_: str, arguments: list[str]) -> str:
    return ", ".join(arguments[:2])


def _coordinates(_: str, raw: list[str]) -> str:
    """A placeholder, or nothing where they stand above the page only: {{coord|13|N|169|W|display=title}}."""
    return "" if any(argument.replace(" ", "") in ("display=title", "display=t") for argument in raw) else PLACEHOLDER


def _accidental(_: str, arguments: list[str]) -> str:
    return {"sharp": "♯", "flat": "♭", "natural": "♮"}.get(arguments[0] if arguments else "", PLACEHOLDER)


def _names(text: str) -> list[str]:
    return [" ".join(name.split()) for name in text.split(",")]


EXPANDERS: dict[str, Expander] = {
    **dict.fromkeys(_names(LAST), _last),
    **dict.fromkeys(_names(FIRST), _first),
    **dict.fromkeys(_names(QUOTES), _quote),
    **dict.fromkeys(_names(SHIPS), _ship),
    **dict.fromkeys(CURRENCIES, _money),
    **dict.fromkeys(("convert", "cvt"), convert),
    **dict.fromkeys(("frac", "fraction", "sfrac"), fraction),
    **dict.fromkeys(("circa", "c.", "ca", "ca."), _circa),
    **dict.fromkeys(("chem", "m"), _joined),
    "e": power_of_ten,
    **dict.fromkeys(("bibleref", "bibleref2", "bibleverse", "passo biblico"), _verse),
    "as of": _as_of,
    "val": value,
    "oldstyledate": _old_style,
    "coord": _coordinates,
    "music": _accidental,
}
NAMED = (_as_of, value, _coordinates)  # these look at arguments with a name
UNSHOWN = frozenset(_names(UNKNOWN))
LISTED = frozenset(_names(LISTS))
