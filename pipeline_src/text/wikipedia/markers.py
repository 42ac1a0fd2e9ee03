"""Markers of what cannot be shown as plain text: inserted while markup is removed, dropped later with their sentences.

They are characters of Unicode's private use area, which no wiki's text uses.
"""

from __future__ import annotations

import re

PLACEHOLDER = "\ue000"  # a hole: a formula, code, an unknown template (read by prose.py)
GONE = "\ue001"  # something without words was here: a reference, a comment, a file (read here and by prose.py)
SOUND = "\ue002"  # around a pronunciation, which is dropped within brackets (written and read here)
# read by prose.py:
BOX = "\ue003"  # an unknown template of several lines: a box if it begins a line, else a hole
BREAK = "\ue004"  # a tag or template that ends a paragraph
FORMULA = "\ue005"  # around a readable formula at the start of a line
JOINER = "\u200b"  # <nowiki/>: shows nothing and is removed with all of its kind
FIRST_NAME, LAST_NAME = "\U000f0000", "\U000ffffd"  # before a PLACEHOLDER: the number of an unknown template's name
MARKERS = PLACEHOLDER + SOUND + GONE + BOX + BREAK + FORMULA
NAMES = re.compile(rf"[{FIRST_NAME}-{LAST_NAME}]")
MARKS = re.compile(rf"[{MARKERS}{FIRST_NAME}-{LAST_NAME}]")
MIN_SOUND_WORDS = 3  # words next to a pronunciation that are about it: (which spells the phoneme /ʃ/)
MAX_EMPTY_LENGTH = 60  # characters of brackets that may hold only such words

# every pattern stops at the next bracket, so that many brackets take linear time
# brackets from which something is removed
_CLEARED = re.compile(rf"[(（][^()（）\n{SOUND}{GONE}]*[{SOUND}{GONE}][^()（）\n]*[)）]")
_SEPARATORS = ",;，；、"
# what is between two separators, with the first; those within a pronunciation are none
_PART = re.compile(rf"[{_SEPARATORS}]?(?:{SOUND}[^{SOUND}]*{SOUND}|[^{_SEPARATORS}{SOUND}])*")
# a sound that is part of a sentence in a script without spaces, 語頭の[h]は, or that a colon follows
_TOUCHING = re.compile(f"[\u3040-\u30ff\u3400-\u9fff]{SOUND}|{SOUND}[\u3040-\u30ff\u3400-\u9fff：]")
EMPTY_PART = re.compile(
    r"(?:pronounced(?: as)?|pronunciation|pron|named|listen|help|info|from|UK|US|or|and|also|locally|prononcée?|"
    r"prononciation|écouter|ausgesprochen|aussprache|pronunciad[oa]|pronunciación|pronuncia|pronúncia|uitspraak|wymowa|"
    r"произношение|слушать|发音|發音|発音|聆听|聆聽|聞く|نطق|استمع|[^,;，；、]*[:：])?",
    re.IGNORECASE,
)
_BRACKETS = re.compile(rf"[(),（），；、\[\]{{}}|{SOUND}]|(?<!&#\d\d)(?<!&#\d\d\d);")  # not of {{!}}


def sound(text: str) -> str:
    return SOUND + _BRACKETS.sub("", text) + SOUND


def resolve_sounds(text: str) -> str:
    """Leave pronunciations out of brackets: ``(named /eɪ/, plural As)`` -> ``(plural As)``; elsewhere they stay.

    What else goes from brackets takes with it the words that only led up to it: ``(listen {{audio}})``.
    """
    if SOUND in text or GONE in text:
        text = _CLEARED.sub(_without_sounds, text).replace(SOUND, "")
    return text


def _without_sounds(match: re.Match[str]) -> str:
    # A long aside with a reference stays.
    if SOUND not in match[0] and len(match[0]) > MAX_EMPTY_LENGTH:
        return match[0]
    text = "".join(map(_part_without_sounds, _PART.findall(match[0][1:-1]))).strip(" " + _SEPARATORS)
    return f"{match[0][0]}{text}{match[0][-1]}" if text or match[0][0] == "(" else ""


def _part_without_sounds(part: str) -> str:
    # one mark in place of each pronunciation
    around = SOUND.join(part.split(SOUND)[::2])
    words = around.replace(SOUND, "").replace(GONE, "")
    if words != part and EMPTY_PART.fullmatch(words.strip(" " + _SEPARATORS)):
        return ""
    # The label of "French: moulin" says nothing about the pronunciation.
    description = words.rpartition(":")[2]
    if len(description.split()) >= MIN_SOUND_WORDS or _TOUCHING.search(around):
        return part.replace(GONE, "")
    return words
