"""How much of a text was misread, to judge by the characters around each one beyond ASCII.

A wrong encoding puts capitals into words of small letters, quotation marks between letters and letters beside digits:
``cafŽ``, ``p‚re``, ``Ł4``. No language is assumed: code pages of one script are told apart by such signs alone.
"""

from __future__ import annotations

import re
import unicodedata

_FOREIGN = re.compile("[^\x00-\x7f]")
_APOSTROPHES = frozenset("’ʼ´")
_CLOSERS = frozenset(",.;?!")
_BETWEEN_LETTERS = frozenset("’ʼ´·—–…\xa0\xad‐‑")  # don’t, col·lega
_OPENERS = frozenset("“‘„‚«‹¿¡")
_AFTER_CEDILLA = frozenset("aouàáâãóôõúûøœ")
_NEVER = {"Cc", "Co", "Cn", "Cs", "Lm", "Sk"}  # controls, private, unknown, and accents that stand alone
_IDEOGRAPHS = "\u2e80"  # from here on, letters stand beside marks without blanks
_BOXES = range(0x2500, 0x25A0)


def share_misread(text: str) -> float:
    """The share (0 to 1) of the characters beyond ASCII that cannot stand where they do; 0 where there are none."""
    found = [match.start() for match in _FOREIGN.finditer(text)]
    padded = f" {text} "
    return sum(_is_misread(padded, place + 1) for place in found) / max(1, len(found))


def _is_misread(text: str, place: int) -> bool:
    before, character, after = text[place - 1], text[place], text[place + 1]
    if character >= _IDEOGRAPHS:
        return character == "\ufffd" or unicodedata.category(character) in _NEVER
    category = unicodedata.category(character)
    if category in _NEVER and character not in _APOSTROPHES:
        return True
    if ord(character) in _BOXES or character in "\ufffdﬁﬂ":
        return True
    if category[0] == "L":
        begins_a_capital = after.isupper() and not before.isalpha() and text[place + 2 : place + 3].islower()
        if (character.isupper() and begins_a_capital) or (before in _CLOSERS and not after.isalpha()):
            return True  # ÒCome here,Ó where quotation marks stood
        return _is_misread_letter(before, character, after)
    if character in _OPENERS:
        return before.isalnum() or after.isspace()
    if before.isalpha() and after.isalpha():
        return character not in _BETWEEN_LETTERS
    return character == "£" and before.isalpha()


def _is_misread_letter(before: str, letter: str, after: str) -> bool:
    if before.isdigit() or after.isdigit():
        return True
    if letter == "ı":  # of Turkish, whose code pages are no candidates
        return True
    if letter in "ƒªº":
        return before.isalpha() and after.isalpha()
    if letter == "ç" and after not in _AFTER_CEDILLA:
        return True
    if letter.isupper():
        return before.islower()
    if letter.islower() and after.isupper():
        return True
    return any(near.isalpha() and _script(near) != _script(letter) for near in (before, after))


def _script(letter: str) -> str:
    return unicodedata.name(letter, "?").partition(" ")[0]
