"""A book in plain text to paragraphs: Project Gutenberg's frame, front matter, headings and hard line ends go."""

from __future__ import annotations

import re
from collections import Counter

from pipeline_src.books.hyphens import Hyphens
from pipeline_src.books.matter import CONTENTS, why_matter, without_marks
from pipeline_src.corpus.sentences import split_sentences

_FRAME_START = re.compile(
    r"^\*{3} ?START OF (?:THE|THIS) PROJECT GUTENBERG.*$|^\*END[ *]THE SMALL PRINT.*$", re.I | re.M
)
_FRAME_END = re.compile(
    r"^\*{3} ?END OF (?:THE|THIS) PROJECT GUTENBERG.*$|^End of (?:the )?Project Gutenberg.*$", re.I | re.M
)
_BLANK_LINES = re.compile(r"\n[ \t]*\n\s*")
_NUMBER = (
    r"(?:[IVXLC]+|\d+|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|(?:thir|four|fif|six|seven|eigh|nine)teen"
    r"|(?:twen|thir|for|fif|six|seven|eigh|nine)ty(?:[- ]\w+)?|the (?:first|second|third|last))"
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
_SPEECH_END = frozenset(".!?:;,\"”’»›')]—-…")
_SENTENCE_END = frozenset(".!?\"”’»›')…")
_CLOSED = _SENTENCE_END | frozenset(":]")  # after which a small letter does not go on with the sentence
FRONT, FRONT_MIN = 0.05, 2_000  # share of a book, and characters, in which front matter is looked for
SAMPLE = 20_000  # characters that tell whether sentences begin with capitals
UNWRAPPED = 120  # characters; a longer line was not broken by hand
FULL = 45  # characters; a line as long as this was broken off because it was full
LIST_LINES = 100  # a list of sentences has at least so many lines
PARTED = 3  # sentences of a document, on average, in a list whose blank lines part documents
SENTENCE_MOST = 1_000  # characters of a line
LIST_SENTENCES = 1.5  # and at most so many sentences to a line; a paragraph has two or more


def plain_paragraphs(text: str, dropped: Counter[str]) -> list[str]:
    """The paragraphs of a book, each on one line; what else it held is counted in ``dropped`` by reason."""
    text = _inside_frame(text, dropped)
    hyphens = Hyphens(text)
    capitals = _has_capitals(text)
    kept: list[str] = []
    position = 0
    open_end = ""  # the last paragraph, where it stops in the middle of a sentence: a stray blank line
    listing = False  # whether a list of chapters is under way
    for block in _BLANK_LINES.split(without_marks(_ILLUSTRATION.sub("", text))):
        position += len(block)
        place = position / max(1, len(text))
        for lines in _split_block(block):
            if matter := why_matter(lines, listing=listing, place=place):
                dropped[matter] += 1
                continue
            paragraph = _join(lines, hyphens)
            if not paragraph:
                continue
            goes_on = paragraph[0].islower()
            if goes_on and not open_end and capitals and kept:
                open_end = kept.pop()  # “Is it?” / he asked.
            if open_end and goes_on:
                paragraph = _joined(open_end, paragraph, hyphens)
            elif open_end:
                _keep(open_end, kept, dropped)
            open_end = ""
            reason = _why_not_prose(paragraph, in_front=position < max(FRONT * len(text), FRONT_MIN))
            listing = CONTENTS.fullmatch(paragraph) is not None or (listing and reason is not None)
            if reason:
                dropped[reason] += 1
            elif paragraph[-1] in _CLOSED:
                kept.append(paragraph)
            else:
                open_end = paragraph
    if open_end:
        _keep(open_end, kept, dropped)
    return kept


def _has_capitals(text: str) -> bool:
    """Whether sentences begin with capitals; BookCorpus has none."""
    middle = text[len(text) // 2 :][:SAMPLE]
    return 500 * sum(map(str.isupper, middle)) >= len(middle)


def _keep(paragraph: str, kept: list[str], dropped: Counter[str]) -> None:
    """Keep a paragraph without any mark at its end if it is too long for a title or a line of verse."""
    if len(paragraph) < UNWRAPPED and paragraph[-1] not in _SPEECH_END:
        dropped["fragment"] += 1
    else:
        kept.append(paragraph)


def is_sentence_list(text: str) -> bool:
    """Whether each line is one sentence, as in BookCorpus as distributed, to judge by the first lines.

    Blank lines do not count: where there is one between every two sentences it marks neither book nor paragraph.
    """
    lines = [line for line in text[: 4 * LIST_LINES * SENTENCE_MOST].split("\n") if line.strip()][:-1][: 2 * LIST_LINES]
    if len(lines) < LIST_LINES or sum(line.rstrip()[-1] in _SENTENCE_END for line in lines) <= 0.8 * len(lines):
        return False
    return sum(len(split_sentences(line)) for line in lines) <= LIST_SENTENCES * len(lines)


def blank_lines_part(text: str) -> bool:
    """Whether blank lines part the documents of a list of sentences (google-research/bert's input).

    Not where fewer than :data:`PARTED` sentences stand between two of them on average: then they mean nothing.
    """
    documents = [block for block in _BLANK_LINES.split(text.strip("\n")) if block.strip()]
    return len(documents) > 1 and sum(block.count("\n") + 1 for block in documents) >= PARTED * len(documents)


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
    unwrapped = max(map(len, lines), default=0) > UNWRAPPED and _mostly_whole(lines)
    indented = [line[0] in " \t" for line in lines]
    if not unwrapped and not 0 < sum(indented) <= len(lines) / 2:
        return [lines] if lines else []
    paragraphs: list[list[str]] = []
    last = ""
    for line, begins in zip(lines, indented, strict=True):
        if not paragraphs or ((unwrapped or begins) and not _goes_on(last, line.strip())):
            paragraphs.append([])
        paragraphs[-1].append(line)
        last = line.strip()
    return paragraphs


def _mostly_whole(lines: list[str]) -> bool:
    """Whether at least half of the lines end as sentences do: so many are chance where lines were broken by hand."""
    return 2 * sum(line.rstrip()[-1] in _SENTENCE_END for line in lines) >= len(lines)


def _goes_on(line: str, following: str) -> bool:
    """Whether a sentence runs from one line into the next."""
    if following[0].islower():
        return line[-1] not in _CLOSED and not _is_heading(line)
    return line[-1] not in _SPEECH_END and len(line) >= FULL and not _is_heading(line)


def _is_heading(text: str) -> bool:
    return _HEADING.fullmatch(text) is not None or not any(letter.islower() for letter in text)


def _join(lines: list[str], hyphens: Hyphens) -> str:
    text = ""
    for line in lines:
        text = _joined(text, " ".join(line.split()), hyphens)
    return text.replace("_", "")  # Gutenberg's italics


def _joined(text: str, line: str, hyphens: Hyphens) -> str:
    """A line put behind a text; a word broken between them is made whole, with its hyphen where it has one."""
    if not text:
        return line
    if len(text) > 1 and text[-1] == "-" and text[-2].isalpha():
        return (text if hyphens.belongs(text, line) else text[:-1]) + line
    return f"{text} {line}"


def _why_not_prose(paragraph: str, in_front: bool) -> str | None:
    if _is_heading(paragraph):
        return "heading"
    if in_front and _FRONT_MATTER.search(paragraph):
        return "front matter"
    return None
