"""Markers for parts of a page that have no plain text, such as unknown templates.

They are inserted while markup is removed, and later dropped together with their sentences. Markers are characters of
Unicode's private use area, which wikis do not use in their text.
"""

from __future__ import annotations

import re

# A hole in a sentence, left by a formula, code or unknown template. prose.py drops the sentence.
PLACEHOLDER = "\ue000"
# Left by something that has no words: a reference, a comment, a file. No words are lost.
GONE = "\ue001"
# Stands before and after a pronunciation, which is dropped if it is in brackets.
SOUND = "\ue002"
# An unknown template that spans several lines. prose.py treats it as a box at the start of a line, else as a hole.
BOX = "\ue003"
# Left by a tag or template that ends a paragraph.
BREAK = "\ue004"
# Stands before and after a readable formula at the start of a line.
FORMULA = "\ue005"
# Left by <nowiki/>, which shows nothing. It is removed with all other zero-width characters.
JOINER = "\u200b"
# Before a PLACEHOLDER, a character in this range gives the number of the unknown template's name.
FIRST_NAME, LAST_NAME = "\U000f0000", "\U000ffffd"
MARKERS = PLACEHOLDER + SOUND + GONE + BOX + BREAK + FORMULA
NAMES = re.compile(rf"[{FIRST_NAME}-{LAST_NAME}]")
MARKS = re.compile(rf"[{MARKERS}{FIRST_NAME}-{LAST_NAME}]")
# With at least this many words, text next to a pronunciation describes it, and both are kept: "(which spells the
# phoneme /ʃ/)"
MIN_SOUND_WORDS = 3
# Brackets with more characters hold more than words that introduce a recording or reference.
MAX_EMPTY_LENGTH = 60

# Every pattern stops at the next bracket, so that a text with many brackets takes linear time.
# Brackets from which something is removed.
_CLEARED = re.compile(rf"[(（][^()（）\n{SOUND}{GONE}]*[{SOUND}{GONE}][^()（）\n]*[)）]")
_SEPARATORS = ",;，；、"
# A part from one separator up to the next. Separators inside a pronunciation do not count.
_PART = re.compile(rf"[{_SEPARATORS}]?(?:{SOUND}[^{SOUND}]*{SOUND}|[^{_SEPARATORS}{SOUND}])*")
# A sound that is part of a sentence in a script without spaces (語頭の[h]は), or that a colon follows.
_TOUCHING = re.compile(f"[\u3040-\u30ff\u3400-\u9fff]{SOUND}|{SOUND}[\u3040-\u30ff\u3400-\u9fff：]")
EMPTY_PART = re.compile(
    r"(?:pronounced(?: as)?|pronunciation|pron|named|listen|help|info|from|UK|US|or|and|also|locally|prononcée?|"
    r"prononciation|écouter|ausgesprochen|aussprache|pronunciad[oa]|pronunciación|pronuncia|pronúncia|uitspraak|wymowa|"
    r"произношение|слушать|发音|發音|発音|聆听|聆聽|聞く|نطق|استمع|[^,;，；、]*[:：])?",
    re.IGNORECASE,
)
# The semicolon of an entity such as &#124; (from {{!}}) is kept.
_BRACKETS = re.compile(rf"[(),（），；、\[\]{{}}|{SOUND}]|(?<!&#\d\d)(?<!&#\d\d\d);")


def sound(text: str) -> str:
    return SOUND + _BRACKETS.sub("", text) + SOUND


def resolve_sounds(text: str) -> str:
    """Remove pronunciations in brackets: ``(named /eɪ/, plural As)`` -> ``(plural As)``.

    If something else was removed from brackets, the words that only introduced it are removed too: in
    ``(listen {{audio}})``, this is ``listen``.
    """
    if SOUND in text or GONE in text:
        text = _CLEARED.sub(_without_sounds, text).replace(SOUND, "")
    return text


def _without_sounds(match: re.Match[str]) -> str:
    # A long aside from which only a reference was removed is kept.
    if SOUND not in match[0] and len(match[0]) > MAX_EMPTY_LENGTH:
        return match[0]
    text = "".join(map(_part_without_sounds, _PART.findall(match[0][1:-1]))).strip(" " + _SEPARATORS)
    return f"{match[0][0]}{text}{match[0][-1]}" if text or match[0][0] == "(" else ""


def _part_without_sounds(part: str) -> str:
    # Replace each pronunciation by a single SOUND.
    around = SOUND.join(part.split(SOUND)[::2])
    words = around.replace(SOUND, "").replace(GONE, "")
    if words != part and EMPTY_PART.fullmatch(words.strip(" " + _SEPARATORS)):
        return ""
    # A label such as "French:" does not describe the pronunciation.
    description = words.rpartition(":")[2]
    if len(description.split()) >= MIN_SOUND_WORDS or _TOUCHING.search(around):
        return part.replace(GONE, "")
    return words
