"""Markers of what cannot be shown as plain text: inserted while markup is removed, dropped later with their sentences.

They are characters of Unicode's private use area, which no wiki's text uses.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from pipeline_src.corpus.sentences import CLOSERS, OPENERS, is_small, split_sentences

PLACEHOLDER = "\ue000"  # a hole: a formula, code, an unknown template
SOUND, SOUND_END = "\ue001", "\ue002"  # around a pronunciation, which is dropped within brackets
GONE = "\ue003"  # something without words was here: a reference, a comment, a file
BOX = "\ue004"  # an unknown template of several lines: a box if it begins a line, else a hole
EQUALS, BAR = "\ue005", "\ue006"  # {{=}} and {{!}}, which do not separate arguments
BREAK = "\ue007"  # a tag that ends a paragraph
FORMULA = "\ue008"  # around a readable formula at the start of a line
JOINER = "\u200b"  # <nowiki/>: shows nothing and is removed with all of its kind
LESS, GREATER = "\ue009", "\ue00a"  # &lt; and &gt;, which do not make tags
FIRST_NAME, LAST_NAME = "\U000f0000", "\U000ffffd"  # before a PLACEHOLDER: the number of an unknown template's name
FORMULA_PUNCTUATION = PLACEHOLDER + GONE + " \t,.;:()[]=+-–·&→"  # a line of only these is a formula on its own line
MIN_SOUND_WORDS = 3  # words next to a pronunciation that are about it: (which spells the phoneme /ʃ/)
MAX_CLOSERS = 4  # that follow a full stop
MAX_EMPTY_LENGTH = 60  # characters of brackets that may hold only such words
ABBREVIATING = ".!?…"  # which may also end an abbreviation or stand within a sentence
# the full stops, question and exclamation marks of the other scripts of Wikipedia, which end nothing but a sentence
ENDS = "。！？．｡؟۔؞։।॥።፧፨၊။។៕།༎᠃᠉߹꓿᱾᱿꯫෴܀܁܂"
FULL_STOPS = frozenset(ABBREVIATING + ENDS)
STOPS = FULL_STOPS | frozenset(":;" + PLACEHOLDER)
# of a tag: as in HTML, > may stand within quotes, but an open quote hides no tag
ATTRIBUTES = r"""(?:[^<>"'\n]++|\n(?!\n)|"[^"<\n]*"(?=[\s/>])|'[^'<\n]*'(?=[\s/>])|["'])*+"""
REPLACED = frozenset("math ce chem hiero code pre syntaxhighlight source score poem timeline".split())

# every pattern stops at the next bracket, so that many brackets take linear time
_ASIDE = re.compile(rf"(?:(?<=\s)\(|（)[^()（）\n{PLACEHOLDER}]*{PLACEHOLDER}[^()（）\n]*[)）]")
_CLEARED = re.compile(rf"\([^()\n{SOUND}{GONE}]*[{SOUND}{GONE}][^()\n]*\)")  # brackets from which something is removed
_SOUND = re.compile(rf"{SOUND}[^{SOUND_END}\n]*{SOUND_END}")
_EMPTY_PART = re.compile(
    r"(?:pronounced(?: as)?|pronunciation|pron|named|listen|help|info|from|UK|US|or|and|also|locally|prononcée?|"
    r"prononciation|écouter|ausgesprochen|aussprache|pronunciad[oa]|pronunciación|pronuncia|pronúncia|uitspraak|wymowa|"
    r"[^,;]*:)?",
    re.IGNORECASE,
)
_LETTER = r"[^\W\u2e80-\u9fff]"  # of a script with spaces between words
_WITHIN = re.compile(rf"{GONE}(?<={_LETTER}{GONE}){GONE}*+(?={_LETTER})")  # between two letters, which it separates
_NAMES = rf"[{FIRST_NAME}-{LAST_NAME}]"
_ENDED = re.compile(rf"(?:[^\W_]{{3}}[{ABBREVIATING}]|[{ENDS}])[{re.escape(CLOSERS)}{GONE}]*\Z")
_SENTENCE_END = re.compile(rf"(?: |[{ENDS}][{re.escape(CLOSERS)}]*)\Z")
NAMES = re.compile(_NAMES)
MARKS = re.compile(rf"[{PLACEHOLDER}-{GREATER}{FIRST_NAME}-{LAST_NAME}]")
_ALL = "".join(map(chr, range(ord(PLACEHOLDER), ord(GREATER) + 1)))
_BRACKETS = str.maketrans("", "", "(),;[]{}|" + PLACEHOLDER + SOUND + SOUND_END)


def sound(text: str) -> str:
    """Return a pronunciation between its markers."""
    return SOUND + text.translate(_BRACKETS) + SOUND_END


def resolve_sounds(text: str) -> str:
    """Leave pronunciations out of brackets: ``(named /eɪ/, plural As)`` -> ``(plural As)``; elsewhere they stay.

    What else goes from brackets takes with it the words that only led up to it: ``(listen {{audio}})``.
    """
    if SOUND in text:
        text = _CLEARED.sub(_without_sounds, text).replace(SOUND, "").replace(SOUND_END, "")
    elif GONE in text:
        text = _CLEARED.sub(_without_sounds, text)
    return text


def _without_sounds(match: re.Match[str]) -> str:
    if SOUND not in match[0] and len(match[0]) > MAX_EMPTY_LENGTH:
        return match[0]  # a long aside with a reference
    text = ""
    for part in re.findall(r"[,;]?[^,;]*", match[0][1:-1]):
        words = (_SOUND.sub("", part) if SOUND in part else part).replace(GONE, "")
        if words == part or not _EMPTY_PART.fullmatch(words.strip(" ,;")):
            text += words if len(words.split()) < MIN_SOUND_WORDS else part.replace(GONE, "")
    return f"({text.strip(' ,;')})"


def close_sentences(text: str) -> str:
    """Remove the holes of unknown templates between two sentences: ``It ended.{{x}} Then`` lost no words of one."""
    out: list[str] = []
    done = 0
    hole = text.find(PLACEHOLDER)
    while hole >= 0:
        start = end = hole - 1  # a run of holes, each after the number of its name
        while FIRST_NAME <= text[end : end + 1] <= LAST_NAME and text[end + 1 : end + 2] == PLACEHOLDER:
            end += 2
            while text[end : end + 1] == GONE:
                end += 1
        if start >= 0 and end > hole and _between_sentences(text, start, end):
            out += (text[done:start], GONE)
            done = end
        hole = text.find(PLACEHOLDER, max(end, hole + 1))
    return "".join(out) + text[done:]


def _between_sentences(text: str, start: int, end: int) -> bool:
    if text[end : end + 1].strip() or not _ENDED.search(text, max(0, start - 12), start):
        return False
    following = text[end : end + 40].lstrip(f" \t\n{OPENERS}")[:1]
    return not (is_small(following) or following.isdecimal())


def without_gone(line: str) -> str:
    """Remove the markers of what had no words; two letters around one stay separated."""
    return _WITHIN.sub(" ", line).replace(GONE, "") if GONE in line else line


def drop_broken(paragraph: str, language: str, count: Callable[[str], None] = lambda _: None) -> tuple[str, int]:
    """Return ``paragraph`` without its sentences with a placeholder outside brackets, and their number.

    Parts that punctuation within such a sentence split off (an open bracket, a small letter at the start) are dropped
    too. ``count`` is called with each sentence and each aside in brackets that is dropped.
    """

    def aside(match: re.Match[str]) -> str:
        count(match[0])
        return ""

    paragraph = _ASIDE.sub(aside, paragraph)
    if PLACEHOLDER not in paragraph:
        return paragraph, 0
    sentences = split_exactly(paragraph, language)
    complete: list[str] = []
    torn = False
    for sentence in sentences:
        torn = (
            PLACEHOLDER in sentence
            or sentence.count("(") != sentence.count(")")
            or sentence.rstrip(CLOSERS + " ")[-1:] not in STOPS
            or (torn and is_small(sentence))
        )
        if torn:
            count(sentence)
        else:
            complete.append(sentence)
    return "".join(complete).rstrip(), len(sentences) - len(complete)


def split_exactly(paragraph: str, language: str) -> list[str]:
    """Return the sentences of ``paragraph`` with the spaces after them; joined, they are the paragraph.

    A mark of ``ABBREVIATING`` ends one only before a space, which keeps T.U.A. in one.
    """
    sentences: list[str] = []
    done = 0
    for sentence in split_sentences(paragraph, language):
        start = paragraph.find(sentence, done)
        if start > done and _SENTENCE_END.search(paragraph, max(done, start - MAX_CLOSERS - 1), start):
            sentences.append(paragraph[done:start])
            done = start
    return [*sentences, paragraph[done:]]


def without_marks(text: str) -> str:
    """Remove the remaining markers, such as those in the page itself."""
    return MARKS.sub("", text) if any(mark in text for mark in _ALL) else text
