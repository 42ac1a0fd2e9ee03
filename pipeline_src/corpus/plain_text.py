"""A book in plain text to paragraphs: Project Gutenberg's frame, front matter, headings and hard line ends go."""

from __future__ import annotations

import re
from collections import Counter

_FRAME_START = re.compile(
    r"^\*{3} ?START OF (?:THE|THIS) PROJECT GUTENBERG.*$|^\*END[ *]THE SMALL PRINT.*$", re.I | re.M
)
_FRAME_END = re.compile(
    r"^\*{3} ?END OF (?:THE|THIS) PROJECT GUTENBERG.*$|^End of (?:the )?Project Gutenberg.*$", re.I | re.M
)
_BLANK_LINES = re.compile(r"\n[ \t]*\n\s*")
_NUMBER = (
    r"(?:[IVXLC]+|\d+|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|the (?:first|second|third|last))"
)
_HEADING = re.compile(
    rf"(?:(?:chapter|book|part|volume|vol\.|section|act|scene|canto|letter|stave) {_NUMBER}\b.{{0,80}}"
    rf"|(?:preface|foreword|introduction|prologue|epilogue|conclusion|appendix|footnotes?|the end|finis)\.?"
    rf"|{_NUMBER}[.:]?)",
    re.I | re.S,
)
_FRONT_MATTER = re.compile(
    r"copyright|all rights reserved|\bISBN\b|transcriber|^e-?text prepared"
    r"|^(?:produced|published|printed|illustrated) by|^(?:table of )?contents\b"
    r"|^list of illustrations|^(?:first )?(?:edition|published)\b|^dedicated to",
    re.I | re.M,
)
_ILLUSTRATION = re.compile(r"\[(?:illustration|footnote|sidenote|transcriber)[^\]]*\]", re.I)
_SPEECH_END = frozenset(".!?:;,\"”’')]—-…")
_SENTENCE_END = frozenset(".!?\"”’')…")
FRONT, FRONT_MIN = 0.05, 2_000  # share of a book, and characters, in which front matter is looked for
UNWRAPPED = 120  # characters; a longer line was not broken by hand, so each line is a paragraph
LIST_LINES = 100  # a list of sentences has more lines than this, and next to none of them blank


def plain_paragraphs(text: str, dropped: Counter[str]) -> list[str]:
    """The paragraphs of a book, each on one line; what else it held is counted in ``dropped`` by reason."""
    text = _inside_frame(text, dropped)
    kept: list[str] = []
    position = 0
    for block in _BLANK_LINES.split(_ILLUSTRATION.sub("", text)):
        position += len(block)
        for lines in _split_block(block):
            paragraph = _join(lines)
            if not paragraph:
                continue
            reason = _why_not_prose(paragraph, in_front=position < max(FRONT * len(text), FRONT_MIN))
            if reason:
                dropped[reason] += 1
            else:
                kept.append(paragraph)
    return kept


def is_sentence_list(text: str) -> bool:
    """Whether each line is one sentence and nothing marks paragraphs or books, as in BookCorpus as distributed."""
    lines = text.split("\n", 2 * LIST_LINES)[: 2 * LIST_LINES]
    full = [line.rstrip() for line in lines if line.strip()]
    if len(full) < LIST_LINES or len(full) < 0.98 * len(lines[:-1]):
        return False
    return sum(line[-1] in _SENTENCE_END for line in full) > 0.8 * len(full)


def _inside_frame(text: str, dropped: Counter[str]) -> str:
    for match in _FRAME_START.finditer(text):
        text, dropped["frame"] = text[match.end() :], 1
        break
    end = _FRAME_END.search(text)
    if end:
        dropped["frame"] = 1
    return text[: end.start()] if end else text


def _split_block(block: str) -> list[list[str]]:
    """The paragraphs of a block between blank lines: one, unless lines are long or the first ones are indented."""
    lines = [line for line in block.split("\n") if line.strip()]
    if any(len(line) > UNWRAPPED for line in lines):
        return [[line] for line in lines]
    indented = [line[0] in " \t" for line in lines]
    if not 0 < sum(indented) <= len(lines) / 2:
        return [lines]
    paragraphs: list[list[str]] = []
    for line, begins in zip(lines, indented, strict=True):
        if begins or not paragraphs:
            paragraphs.append([])
        paragraphs[-1].append(line)
    return paragraphs


def _join(lines: list[str]) -> str:
    text = ""
    for line in lines:
        line = " ".join(line.split())
        broken = len(text) > 1 and text[-1] == "-" and text[-2].isalpha()  # every-⏎day
        text += line if broken or not text else f" {line}"
    return text.replace("_", "")  # Gutenberg's italics


def _why_not_prose(paragraph: str, in_front: bool) -> str | None:
    if _HEADING.fullmatch(paragraph) or not any(letter.islower() for letter in paragraph):
        return "heading"
    if in_front and _FRONT_MATTER.search(paragraph):
        return "front matter"
    if len(paragraph) < UNWRAPPED and paragraph[-1] not in _SPEECH_END:
        return "fragment"
    return None
