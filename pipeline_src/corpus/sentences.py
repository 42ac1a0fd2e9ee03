"""Paragraphs to sentences: the library sentencex, with what it gets wrong in English prose mended around it.

sentencex keeps a whole speech in quotation marks as one sentence, takes "me." for Maine and "art." for an article of
law, and ends a sentence before a small letter ("The band Wham! was formed"). So English text is masked, letter for
letter, before it is split, and ends that cannot be ends are passed over. ``python -m benchmarks.sentences`` measures
what that gains.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from sentencex import segment

# Each mask is as long as what it hides. The words are abbreviations to sentencex, but far more often words.
_QUOTES = (*((mark, " ") for mark in '"“”'), *((mark, "  ") for mark in ("''", "``", " '", "' ", " ‘", "’ ")))
_APOSTROPHES = (("'", "x"), ("’", "x"))
_WORDS = tuple((f" {word}.", f" {'x' * len(word)}.") for word in "me no may art ill miss fed ark".split())
_MASKS = (*_QUOTES, *_APOSTROPHES, *_WORDS)
_WHOLE_IN_BRACKETS = re.compile(r"\(([^()]*[.!?] *)\)")  # (She knew it.) They left.
_BEFORE_NUMBER = re.compile(r"(?:^|[ (])(?:approx|[Aa]rt|[Cc]h|[Ff]ig|[Nn]o|[Vv]ol)\.\Z")
_OPENERS = " \t\"“‘'(["
_NEVER_FIRST = frozenset(",;:—–)")
LONGEST = 8_000  # characters that sentencex sees at once: it takes the square of them where quotes are never closed


def split_sentences(paragraph: str, language: str = "en") -> list[str]:
    """The sentences of one paragraph in order, stripped, none empty; only blanks between them are left out.

    Sentences within quotation marks are sentences of their own: ``"I went. I saw," he said.`` is two.

    Args:
        paragraph: prose without line breaks.
        language: ISO 639-1 code; decides abbreviations and sentence marks.
    """
    english = language == "en"
    sentences: list[str] = []
    start = position = 0
    for piece, whole in _pieces(language, _mask(paragraph) if english else paragraph):
        end = position + len(piece.rstrip())
        position += len(piece)
        if not whole:
            continue
        while end < position and not paragraph[end].isspace():  # closing marks that were masked
            end += 1
        if english and end < len(paragraph) and not _may_end(paragraph, start, end):
            continue
        if sentence := paragraph[start:end].strip():
            sentences.append(sentence)
        start = end
    if rest := paragraph[start:].strip():
        sentences.append(rest)
    return sentences


def _pieces(language: str, text: str) -> Iterator[tuple[str, bool]]:
    """The pieces that sentencex cuts a text into, end to end, and whether a sentence may end there.

    Of a long text it sees one stretch at a time; the next stretch begins with the last piece of the one before, since
    what ends that may lie beyond.
    """
    start = 0
    while len(text) - start > LONGEST:
        stretch = text[start : start + LONGEST]
        pieces = list(segment(language, stretch))
        whole = pieces[:-1]
        if not whole:
            yield stretch, False
        yield from ((piece, True) for piece in whole)
        start += sum(map(len, whole)) or LONGEST
    yield from ((piece, True) for piece in segment(language, text[start:]))


def _mask(text: str) -> str:
    for hidden, mask in _MASKS:
        text = text.replace(hidden, mask)
    return _WHOLE_IN_BRACKETS.sub(r" \1 ", text) if ")" in text else text


def _may_end(text: str, start: int, end: int) -> bool:
    """Whether the sentence that begins at ``start`` can end at ``end``, to judge by what follows."""
    following = text[end : end + 12].lstrip(_OPENERS)[:1]
    if following in _NEVER_FIRST:
        return False
    if following.islower():  # unless the text has no capitals, as BookCorpus
        return text[start : start + 12].lstrip(_OPENERS)[:1].islower()
    return not (following.isdecimal() and _BEFORE_NUMBER.search(text, max(start, end - 12), end))
