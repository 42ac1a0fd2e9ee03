"""Paragraphs to sentences."""

from __future__ import annotations

from sentencex import segment


def split_sentences(paragraph: str, language: str = "en") -> list[str]:
    """The sentences of one paragraph in order, stripped, none empty.

    Args:
        paragraph: prose without line breaks.
        language: ISO 639-1 code; decides abbreviations and sentence marks.
    """
    return [stripped for sentence in segment(language, paragraph) if (stripped := sentence.strip())]
