"""Handlers of templates whose words follow from their arguments by a rule, such as dates and sums of money.

The comment in a function shows a template and the words that it becomes. A function that returns a ``Handler`` gets its
argument from ``tables/templates.yaml``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import date, timedelta

from pipeline_src.text.wikipedia.markers import BREAK, EMPTY_PART, GONE, sound
from pipeline_src.text.wikipedia.siteinfo import is_file_name
from pipeline_src.text.wikipedia.template_arguments import Arguments, Handler
from pipeline_src.text.wikipedia.unit_templates import (
    convert,
    measure,
    unit,
    value,
)

_ISO_DATE = re.compile(r"(\d{4})-(\d\d)-(\d\d)")
_DAY = re.compile(r"0?([1-9]|[12]\d|3[01])(?:er|º|\.)?")
_YEAR = re.compile(r"\d{1,4}")
_DOTTED_DATE = re.compile(r"(\d{1,2})\.(\d{1,2})\.(\d{4})")
_ROMAN = re.compile("[IVXLC]+")

# Arguments of {{IPAc-en}} that are not sounds.
NOT_SOUNDS = frozenset("lang local pron uk us au nz ca icon also audio link".split())


def _date(arguments: Arguments) -> str | None:
    # {{start date|1999|3|5}} -> March 5, 1999; {{start date|1999|3|5|df=y}} -> 5 March 1999; {{start date|1999|03}} ->
    # March 1999
    return _written(arguments, arguments.plain, day_first=arguments.says("df"))


def _written(arguments: Arguments, parts: list[str], *, day_first: bool) -> str | None:
    locale = arguments.locale
    parts = [part for part in parts[:3] if part]
    if not parts:
        return None
    if len(parts) == 1:
        return parts[0]
    year, month = parts[0], locale.month(parts[1])
    day = parts[2].lstrip("0") if len(parts) == 3 else ""
    if month is None or not year.isdigit() or (len(parts) == 3 and not day.isdigit()):
        return None
    if day and locale.language == "en" and not day_first:
        return f"{locale.months[month - 1]} {day}, {year}"
    return locale.date(day, month, year)


def _day_month_year(arguments: Arguments) -> str | None:
    # {{date|14|mai|1995|en sport}}, {{date-|14 mai 1995}}, {{date|1995-05-14}} -> 14 mai 1995. Parts of the date may be
    # empty.
    locale, named = arguments.locale, arguments.named
    parts = arguments.plain or [named.get(key, "") for key in ("jour", "mois", "année")]
    iso = _ISO_DATE.fullmatch(parts[0])
    if iso:
        parts[:1] = iso.groups()[::-1]
    elif " " in parts[0]:
        parts[:1] = [word for word in parts[0].split() if word not in ("de", "del")]
    day, month, year = "", None, ""
    # Position of the next part: 0 for day, 1 for month, 2 for year.
    position = 0
    for part in parts:
        if not part:
            position += 1
            continue
        first = _DAY.fullmatch(part)
        number = locale.month(part)
        if position < 1 and first:
            day, position = first[1], 1
        elif position < 2 and number:
            month, position = number, 2
        elif position < 3 and _YEAR.fullmatch(part) and (month or len(part) > 2):
            year, position = part, 3
        elif position < 2 or any(map(str.isdigit, part)):
            # A word before the month, or any number, is unexpected. Words after the date name its subject, which is not
            # shown.
            return None
    return locale.date(day, month, year)


def _death_and_age(arguments: Arguments) -> str | None:
    # {{death date and age|1999|3|5|1920|4|1}} -> March 5, 1999 (aged 78).
    dates = arguments.plain[:6]
    date = _date(arguments)
    if date is None or arguments.locale.language != "en":
        return None
    if len(dates) < 6 or not all(map(str.isdecimal, dates)):
        return None
    year, *day = map(int, dates[:3])
    birth_year, *birthday = map(int, dates[3:])
    age = year - birth_year - (day < birthday)
    return f"{date} (aged {age})"


def _as_of(arguments: Arguments) -> str | None:
    # {{as of|2011|February}} -> As of February 2011.
    named = arguments.named
    if named.get("alt"):
        return named["alt"]
    month_first = arguments.says("df", "us", "mdy")
    date = _written(arguments, arguments.plain, day_first=not month_first)
    if date is None or arguments.locale.language != "en":
        return None
    if arguments.says("bare"):
        return date
    opening = "since" if arguments.says("since") else "as of"
    return f"{opening if arguments.says('lc') else opening.capitalize()} {date}{named.get('post', '')}"


def _verse(arguments: Arguments) -> str | None:
    # {{bibleref|Mark|3:25|9}} -> Mark 3:25, {{bibleverse|1|Kings|3:1|KJV}} -> 1 Kings 3:1.
    plain = arguments.plain
    for count, argument in enumerate(plain, 1):
        if count > 1 and argument[:1].isdigit():
            return " ".join(plain[:count]).strip()
    return " ".join(plain[:2]).strip() or None


def _sound(arguments: Arguments) -> str:
    # Pronunciations: {{IPAc-en|æ|l}} -> /æl/, {{IPA-fr|kɔn|lang}} -> /kɔn/, {{IPA|/a/}} -> /a/.
    sounds = [text for text in arguments.plain if text.lower() not in NOT_SOUNDS and not is_file_name(text)]
    if not any(sounds):
        return ""
    name = arguments.name.lower()
    if name.startswith("ipac"):
        return sound(f"/{''.join(sounds)}/")
    if name == "ipa":
        return sound(sounds[-1])
    return sound(f"/{sounds[0]}/")


def _old_style(arguments: Arguments) -> str | None:
    # {{СС2|19|ноября|1711|8}} -> 8 (19) ноября 1711; {{СС3|24.1.1755}} -> 24 января (4 февраля) 1755.
    day, month, year, old_day, old_month, *_ = [*arguments.plain, "", "", "", "", ""]
    dotted = _DOTTED_DATE.fullmatch(day)
    if dotted:
        old_style = [int(part) for part in dotted.groups()]
        return _both_calendars(old_style[0], old_style[1], old_style[2], arguments.locale.months)
    if not (day and month and old_day):
        return None
    return _two_dates(day, month, year, old_day, old_month)


def _both_calendars(day: int, month: int, year: int, months: Sequence[str]) -> str | None:
    try:
        julian = date(year, month, day)
        # The difference between the calendars grows by a day on 1 March of each century year that 400 does not divide.
        century = (year - (month < 3)) // 100
        gregorian = julian + timedelta(days=century - century // 4 - 2)
    except (ValueError, OverflowError):
        return None
    old_month = months[month - 1]
    new_month = months[gregorian.month - 1]
    if year != gregorian.year:
        return f"{day} {old_month} {year} ({gregorian.day} {new_month} {gregorian.year})"
    return _two_dates(str(gregorian.day), new_month, str(year), str(day), old_month)


def _two_dates(day: str, month: str, year: str, old_day: str, old_month: str) -> str:
    if old_day.isdigit() and old_month in ("", month):
        return f"{old_day} ({day}) {month} {year}".rstrip()
    old_date = f"{old_day} {old_month}".rstrip()
    return f"{old_date} ({day} {month}) {year}".rstrip()


def _recording(arguments: Arguments) -> str:
    # {{audio|De-Berlin.ogg|Berlin}} -> Berlin. No words without a label, or if the label only says "listen".
    label = arguments.get("2") or ""
    return "" if EMPTY_PART.fullmatch(label.strip(" ()")) else label


def _respelling(arguments: Arguments) -> str:
    return sound("-".join(part for part in arguments.plain if part))


def _money(sign: str) -> Handler:
    # {{US$|5 million}} -> US$5 million; {{euro|32984}} in French -> 32 984 €. Without arguments, only the sign.
    def show(arguments: Arguments) -> str:
        amount = arguments.get("1") or ""
        if not amount or arguments.locale.decimal == ".":
            return sign + amount
        return f"{arguments.locale.number(amount)} {sign}"

    return show


_DEGREES = re.compile(r"[+-]?\d{1,3}(?:\.\d{1,9})?")


def _coordinates(arguments: Arguments) -> str | None:
    # {{coord|13|19|N|169|9|W}} -> 13°19′N 169°9′W. No words if they are shown only at the top of the page
    # (display=title). The German {{coordinate|NS=47/16/16/N|EW=9/31/51/E}} is shown only there, unless it has text=.
    named = arguments.named
    if "ns" in named and "ew" in named:
        if not named.get("text"):
            return ""
        plain = f"{named['ns']}/{named['ew']}".upper().split("/")
    else:
        if named.get("display", "").replace(" ", "").lower() in ("title", "t", "it"):
            return ""
        plain = [argument.upper() for argument in arguments.plain]
    parts: list[str] = []
    numbers: list[str] = []
    for argument in plain[:8]:
        if argument in ("N", "S", "E", "W", "O"):
            if not 1 <= len(numbers) <= 3:
                return None
            parts.append("".join(map(str.__add__, numbers, "°′″")) + argument)
            numbers = []
        elif _DEGREES.fullmatch(argument):
            numbers.append(argument.lstrip("+"))
        else:
            break
    # Decimal degrees: {{coord|46.8345|-10.5162}}
    if not parts and len(numbers) == 2:
        parts = [
            f"{number.lstrip('-')}°{sides[number[0] == '-']}"
            for number, sides in zip(numbers, ("NS", "EW"), strict=True)
        ]
    return " ".join(parts) if len(parts) == 2 else None


def _joined(between: str) -> Handler:
    # Join the arguments with `between`, which is empty in {{chem|C|2|H|6|O}} -> C2H6O
    return lambda arguments: between.join(arguments.plain) or None


def _labelled(parameter: str) -> Handler:
    # {{zh|s=上海|p=Shànghǎi}} -> simplified Chinese: 上海; pinyin: Shànghǎi. `parameter` has the label of each
    # argument.
    labels = dict(pair.split("=") for pair in parameter.split("; "))

    def show(arguments: Arguments) -> str | None:
        named = arguments.named
        bare = named.get("labels") == "no"
        if not bare and arguments.locale.language != "en":
            return arguments.get("1") or None
        texts = [f"{'' if bare else f'{label} '}{named[key]}" for key, label in labels.items() if named.get(key)]
        return "; ".join(texts) or arguments.get("1") or None

    return show


def _nihongo(order: str) -> Handler:
    # {{nihongo|Tokyo|東京|Tōkyō}} -> Tokyo (東京, Tōkyō); {{nihongo|||tsubame|swallow}} -> tsubame (swallow). `order`
    # lists numbers of arguments. The first of them that is given stands before the brackets.
    def show(arguments: Arguments) -> str | None:
        given = [number for number in order if arguments.get(number)]
        if not given:
            return None
        aside = [arguments.get(number) or "" for number in "2" + order.replace("2", "") if number in given[1:]]
        aside += filter(None, [arguments.get("4") or arguments.named.get("extra")])
        return (arguments.get(given[0]) or "") + (f" ({', '.join(aside)})" if aside else "")

    return show


def _ordinal(arguments: Arguments) -> str | None:
    # {{ordinal|22}} -> 22nd.
    number = arguments.get("1") or ""
    if not (number.isascii() and number.isdigit()):
        return None
    teen = number[-2:-1] == "1"
    return number + ("th" if teen else {"1": "st", "2": "nd", "3": "rd"}.get(number[-1], "th"))


def _own_name(arguments: Arguments) -> str:
    # {{1/2}} -> 1/2, {{XXe siècle}} -> XXe siècle, {{29e|étage}} -> 29e étage.
    return " ".join([arguments.name, *filter(None, arguments.plain[:1])])


def _character(arguments: Arguments) -> str | None:
    # {{unichar|00E9|LATIN SMALL LETTER E WITH ACUTE}} -> U+00E9 é LATIN SMALL LETTER E WITH ACUTE.
    code, name = [*arguments.plain, "", ""][:2]
    try:
        character = chr(int(code, 16)) if len(code) < 7 else ""
    except (ValueError, OverflowError):
        return None
    return f"U+{code.upper()} {character if character.isprintable() else ''} {name}".strip() if character else None


def _number(arguments: Arguments) -> str | None:
    # {{formatnum:1234567}} -> 1,234,567, formatted for the language. With the flag R, as typed.
    number, *flags = arguments.plain or [""]
    return (number if "R" in flags else arguments.locale.number(number, grouped="NOSEP" not in flags)) or None


def _case(change: Callable[[str], str]) -> Handler:
    return lambda arguments: change(arguments.get("1") or "")


def _century(words: str) -> Handler:
    # {{s|XX}} -> XXe siècle; {{sp-|XV|e|au|XVI|e}} -> XVe au XVIe siècle; {{s2|XV|e|XVI|e}} -> XVe et XVIe siècles.
    word, _, era = words.partition(" ")

    def show(arguments: Arguments) -> str | None:
        parts: list[str] = []
        plural = after_number = False
        for argument in arguments.plain:
            if _ROMAN.fullmatch(argument.upper()):
                if after_number:
                    parts.append("et")
                    plural = True
                parts.append(argument.upper() + ("er" if argument.upper() == "I" else "e"))
                after_number = True
            elif argument == "s":
                plural = True
            elif argument not in ("", "e", "er", "re", word):
                parts.append(argument)
                after_number = False
        return " ".join(filter(None, [*parts, word + "s" * (plural and word != ""), era])) if after_number else None

    return show


def _flag(arguments: Arguments) -> str | None:
    # {{flag|France}} -> France; {{flag|FRA}} -> the name of the country in the language of the wiki.
    name = arguments.named.get("name") or arguments.get("1") or ""
    if len(name) > 3 or not name.isascii():
        return name
    return arguments.locale.countries.get(name)


def _country(arguments: Arguments) -> str | None:
    # {{ESP}} -> España, in Spanish. {{DEU|#}} shows only the flag.
    return "" if arguments.get("1") == "#" else arguments.locale.countries.get(arguments.name)


def _list(_: Arguments) -> str:
    # prose.py then knows that the sentence before may have introduced a list.
    return f"\n*\n{GONE}"


def _quotation(arguments: Arguments) -> str:
    # The quotation ends the paragraph that introduces it, since the introduction is often an incomplete sentence.
    for key in ("1", "text", "quote", "texte", "texto", "tekst", "testo", "content", "תוכן", "متن"):
        text = arguments.get(key)
        if text:
            return f"{text}{BREAK}"
    return ""


HANDLERS: dict[str, Handler] = {
    "as-of": _as_of,
    "capital": _case(lambda text: text[:1].upper() + text[1:]),
    "capitals": _case(str.upper),
    "character": _character,
    "convert": convert,
    "coordinates": _coordinates,
    "country": _country,
    "date": _date,
    "day-month-year": _day_month_year,
    "death-and-age": _death_and_age,
    "flag": _flag,
    "list": _list,
    "measure": measure,
    "number": _number,
    "old-style": _old_style,
    "ordinal": _ordinal,
    "own-name": _own_name,
    "paragraph": lambda _: BREAK,
    "quotation": _quotation,
    "recording": _recording,
    "respelling": _respelling,
    "small": _case(str.lower),
    "sound": _sound,
    "unit": unit,
    "unknown": lambda _: None,
    "value": value,
    "verse": _verse,
}
# Functions that take a parameter from the tables and return a handler.
FACTORIES: dict[str, Callable[[str], Handler]] = {
    "century": _century,
    "joined": _joined,
    "labelled": _labelled,
    "money": _money,
    "nihongo": _nihongo,
}
