"""Placeholders of what cannot be shown as plain text: put there while markup goes, left out with their sentences later.

They are characters of Unicode's private use area, which mean nothing in a wiki's text.
"""

from __future__ import annotations

import re

from pipeline_src.corpus.sentences import split_sentences

PLACEHOLDER = "\ue000"  # a formula, a piece of code, a value that a template computes
SOUND, SOUND_END = "\ue001", "\ue002"  # around a pronunciation, which goes where brackets hold it
BARE = PLACEHOLDER + " \t,.;:()[]=+-–·&→"  # a line of nothing else is a formula on its own line
CLOSERS = "\"”’')]»"
STOPS = frozenset(".!?…。:;" + PLACEHOLDER)
REPLACED = frozenset("math ce chem hiero code pre syntaxhighlight source score poem timeline".split())

# Every pattern stops at the next bracket, so that many brackets take linear time.
_ASIDE = re.compile(rf"(?<=\s)\([^()\n{PLACEHOLDER}]*{PLACEHOLDER}[^()\n]*\)")
_SPOKEN = re.compile(rf"\([^()\n{SOUND}]*{SOUND}[^()\n]*\)")
_SOUND = re.compile(rf"{SOUND}[^{SOUND_END}\n]*{SOUND_END}")
_EMPTY_PART = re.compile(r"(?:pronounced|pronunciation|pron|named|UK|US|or|and|also|locally|[^,;]*:)?", re.IGNORECASE)
_MARKS = str.maketrans("", "", PLACEHOLDER + SOUND + SOUND_END)
_BRACKETS = str.maketrans("", "", "(),;[]{}|" + PLACEHOLDER + SOUND + SOUND_END)


def sound(text: str) -> str:
    """A pronunciation between its marks."""
    return SOUND + text.translate(_BRACKETS) + SOUND_END


def resolve_sounds(text: str) -> str:
    """Leave pronunciations out of brackets: ``(named /eɪ/, plural As)`` -> ``(plural As)``; elsewhere they stay."""
    if SOUND in text:
        text = _SPOKEN.sub(_without_sounds, text).replace(SOUND, "").replace(SOUND_END, "")
    return text


def _without_sounds(match: re.Match[str]) -> str:
    kept = ""
    for part in re.findall(r"[,;]?[^,;]*", match[0][1:-1]):
        words = _SOUND.sub("", part)
        if SOUND not in part or not _EMPTY_PART.fullmatch(words.strip(" ,;")):
            kept += words
    return f"({kept.strip(' ,;')})"


def drop_broken(paragraph: str, language: str) -> tuple[str, int]:
    """Leave out the sentences of ``paragraph`` with a placeholder outside brackets; also tells how many they were.

    What a mark within such a sentence split off (an open bracket, a small letter at its start) goes too.
    """
    paragraph = _ASIDE.sub("", paragraph)
    if PLACEHOLDER not in paragraph:
        return paragraph, 0
    sentences = split_exactly(paragraph, language)
    kept: list[str] = []
    torn = False
    for sentence in sentences:
        torn = (
            PLACEHOLDER in sentence
            or sentence.count("(") != sentence.count(")")
            or sentence.rstrip(CLOSERS + " ")[-1:] not in STOPS
            or (torn and sentence[0].islower())
        )
        if not torn:
            kept.append(sentence)
    return "".join(kept).rstrip(), len(sentences) - len(kept)


def split_exactly(paragraph: str, language: str) -> list[str]:
    """The sentences of ``paragraph`` with the blanks after them: together they are the paragraph, to the letter."""
    cut: list[str] = []
    done = 0
    for sentence in split_sentences(paragraph, language):
        start = paragraph.find(sentence, done)
        if start > done and paragraph[start - 1] == " ":  # no cut within T.U.A.
            cut.append(paragraph[done:start])
            done = start
    return [*cut, paragraph[done:]]


def without_marks(text: str) -> str:
    """Take out marks that are left, such as those in the page itself."""
    return text.translate(_MARKS) if PLACEHOLDER in text or SOUND in text or SOUND_END in text else text
