"""Markers of what cannot be shown as plain text: inserted while markup is removed, dropped later with their sentences.

They are characters of Unicode's private use area, which no wiki's text uses.
"""

from __future__ import annotations

import re

# A hole: a formula, code, an unknown template (read by prose.py)
PLACEHOLDER = "\ue000"
# Something without words was here: a reference, a comment, a file (read here and by prose.py)
GONE = "\ue001"
# Around a pronunciation, which is dropped within brackets (written and read here)
SOUND = "\ue002"
# read by prose.py:
# An unknown template of several lines: a box if it begins a line, else a hole.
BOX = "\ue003"
# A tag or template that ends a paragraph.
BREAK = "\ue004"
# Around a readable formula at the start of a line.
FORMULA = "\ue005"
# <nowiki/> shows nothing. It is removed with all other characters of no width.
JOINER = "\u200b"
# Before a PLACEHOLDER: the number of an unknown template's name.
FIRST_NAME, LAST_NAME = "\U000f0000", "\U000ffffd"
MARKERS = PLACEHOLDER + SOUND + GONE + BOX + BREAK + FORMULA
NAMES = re.compile(rf"[{FIRST_NAME}-{LAST_NAME}]")
MARKS = re.compile(rf"[{MARKERS}{FIRST_NAME}-{LAST_NAME}]")
# Words next to a pronunciation that are about it: (which spells the phoneme /ʃ/)
MIN_SOUND_WORDS = 3
# Characters of brackets that may hold only such words.
MAX_EMPTY_LENGTH = 60

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
# The semicolon of an entity, such as that of {{!}}, stays.
_BRACKETS = re.compile(rf"[(),（），；、\[\]{{}}|{SOUND}]|(?<!&#\d\d)(?<!&#\d\d\d);")


def sound(text: str) -> str:
    return SOUND + _BRACKETS.sub("", text) + SOUND


def resolve_sounds(text: str) -> str:
    """Remove pronunciations in brackets: ``(named /eɪ/, plural As)`` -> ``(plural As)``.

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
