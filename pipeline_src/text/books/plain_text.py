"""Split a plain-text book into paragraphs, without Project Gutenberg's header, front matter and headings."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from pipeline_src.base.yaml_files import parse_yaml
from pipeline_src.text.books.boilerplate import (
    BACK,
    CONTENTS,
    FRONT,
    MAX_SECTION,
    MAX_SECTION_BEFORE,
    belongs,
    is_letter,
    section_of,
    why_boilerplate,
    without_marks,
    without_references,
)
from pipeline_src.text.sentences import FULL_STOPS, is_small
from pipeline_src.text.words import MAX_SPLIT_CHARACTERS

# Readers of HTML and EPUB put this code point before a heading. It is a noncharacter, which occurs in no text.
HEADING = "\ufdd0"
_WORD = r"[^\W\d_]+(?:['’][^\W\d_]+)*"
_WORDS = re.compile(rf"{_WORD}(?:-{_WORD})*")
# Possessive quantifiers and limits on repetition keep the search linear: a run of 100,000 letters is scanned only once.
_PART = r"[^\W\d_]++(?:['’][^\W\d_]++){0,8}"
_BROKEN = re.compile(rf"(?<![^\W\d_])((?:{_PART}-){{0,8}}{_PART})-[ \t]*+\n[ \t]*+({_WORD})")
_LAST = re.compile(rf"((?:{_WORD}-)*{_WORD})-\Z")
_FIRST = re.compile(_WORD)
# Maximum number of characters of a word.
_WINDOW = 100
_WHITE_SPACE = re.compile(r"\s\s+|[^\S ]")
# A part that occurs at least this often elsewhere in the book counts as a word of its own.
MIN_PART_COUNT = 2


class HyphenResolver:
    """Decide whether the hyphen of a word that is broken at a line end belongs to the word.

    In a scanned book, a word may be broken anywhere (``con-`` / ``cerning``). In a transcribed book, only hyphens that
    belong to a word are left (``every-`` / ``day``). If the book has the word elsewhere, with or without a hyphen, that
    form is used. Otherwise, the form is used that most other broken words of the book have.
    """

    def __init__(self, text: str) -> None:
        self._text = text

    def belongs(self, before: str, after: str) -> bool:
        prefix, suffix = _LAST.search(before[-_WINDOW:]), _FIRST.match(after)
        if prefix is None or suffix is None:
            return True
        known = self._known_form(prefix[1].lower(), suffix[0].lower())
        if known is not None:
            return known
        if suffix[0][0].isupper() or self._mostly_belong:
            return True
        return all(
            self._counts[part] >= MIN_PART_COUNT for part in (prefix[1].lower().rpartition("-")[2], suffix[0].lower())
        )

    def _known_form(self, prefix: str, suffix: str) -> bool | None:
        # Return whether the hyphenated form is more frequent elsewhere in the book. Return None if both forms are
        # equally frequent or absent.
        joined, hyphenated = self._counts[prefix + suffix], self._counts[f"{prefix}-{suffix}"]
        return None if joined == hyphenated else hyphenated > joined

    @cached_property
    def _counts(self) -> Counter[str]:
        return Counter(map(str.lower, _WORDS.findall(_BROKEN.sub(" ", self._text))))

    @cached_property
    def _mostly_belong(self) -> bool:
        forms = [self._known_form(prefix.lower(), suffix.lower()) for prefix, suffix in _BROKEN.findall(self._text)]
        known = [form for form in forms if form is not None]
        return 2 * sum(known) >= len(known)


_FRAME_START = re.compile(
    r"^\*{3} ?START OF (?:THE|THIS) PROJECT GUTENBERG.*$|^\*END[ *]THE SMALL PRINT.*$", re.I | re.M
)
_FRAME_END = re.compile(
    r"^\*{3} ?END OF (?:THE|THIS) PROJECT GUTENBERG.*$|^End of (?:the )?Project Gutenberg.*$", re.I | re.M
)
BLANK_LINES = re.compile(r"\n[ \t]*\n\s*")
_NUMBER = (
    r"(?:[IVXLC]+|\d+|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|(?:thir|four|fif|six|seven|eigh|nine)teen"
    r"|(?:twen|thir|for|fif|six|seven|eigh|nine)ty(?:[- ]\w+)?|the (?:first|second|third|last))"
)
# Chinese and Japanese characters, between which lines are joined without a space.
_UNSPACED = re.compile("[\u2e80-\u30ff\u3400-\u9fff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff]")
_WORDS_OF_HEADINGS = parse_yaml(Path(__file__).with_name("headings.yaml").read_text(encoding="utf-8"))
_CHAPTER, _PART, _ORDINAL = ("|".join(_WORDS_OF_HEADINGS[kind].split()) for kind in ("chapter", "part", "ordinal"))
# A title after a full stop may be long: "Capítulo XIX. Donde se declara ..."
_LONG_TITLE = r"\s?[.:—–-].{0,300}"
_HEADING = re.compile(
    # "Chapter 3 The Mill", "Part I. The Mill"
    rf"(?:(?:{_CHAPTER}|{_PART}) (?:{_NUMBER}|{_ORDINAL})\b(?:.{{0,80}}|{_LONG_TITLE})"
    # "Capítulo primero", "Capítulo primero. Que trata ..."
    rf"|(?:{_CHAPTER}) \w+(?:{_LONG_TITLE})?"
    # "Erstes Kapitel", "3. Kapitel. Die Mühle"
    rf"|(?:{_ORDINAL}|(?:\d+|[IVXLC]+)\.) (?:{_CHAPTER}|{_PART})(?:{_LONG_TITLE}|\.)?"
    rf"|(?:preface|foreword|introduction|prologue|epilogue|conclusion|appendix|footnotes?|the end|finis)\.?"
    rf"|{_NUMBER}[.:]?)",
    re.I | re.S,
)
_FRONT_MATTER = re.compile(
    r"copyright|all rights reserved|\bISBN\b|transcriber|^e-?text prepared"
    r"|^(?:produced|published|printed|illustrated|(?:newly )?translated|edited|retold) by|^by the author of"
    r"|^tra(?:duit|duction|ducido|ducción|duzido|dução|dotto|duzione) (?:de|del|di|do|par|por|da)\b"
    r"|^(?:übersetzt|herausgegeben|illustriert) von|^(?:table of )?contents\b"
    r"|^list of illustrations|^(?:first )?(?:edition|published)\b|^dedicated to",
    re.I | re.M,
)
# A line that names the author: "By A. Miller." "von Hans und Grete Müller"
_NAME = r"(?:[^\W\d_a-zà-ÿ][\w'’-]*\.?|de|la|del|della|di|da|dos|von|van|der|den|du|le|of|the|and|et|und|y|e)"
_BY = "[Bb]y|BY|[Vv]on|[Pp]ar|[Pp]or|[Dd]i|[Dd]e|[Aa]v|[Aa]f|[Dd]oor|[Pp]rzez"
_AUTHOR = re.compile(rf"(?:{_BY}) {_NAME}(?:,? {_NAME}){{1,8}}\.?")
_PAIRS = r"[^\[\]]*(?:\[[^\[\]]*\][^\[\]]*)*"
# The rest of a note, up to the bracket that closes it. Other brackets in a note are in pairs, at most two deep. An
# unclosed note has no such rest, and is not removed.
_CLOSED = rf"[^\[\]]*(?:\[{_PAIRS}\][^\[\]]*)*\]"
_ILLUSTRATION = re.compile(
    rf"\[(?:(?i:illustration|footnote|sidenote|transcriber)(?={_CLOSED})[^\]]*\]"
    r"|_?(?:Music|Figures?|Fig\.|FIG\.|Plate|PLATE|Map|Frontispiece|Tailpiece)\b[^\[\]\n]{0,300}\]"
    # A stage direction, which may be unclosed: "[Exeunt."
    r"|_?(?:Exeunt|EXEUNT|Exit|Re-?enter|Enter)\b(?:[^\[\]]{0,200}\]|[^\[\]\n]*))"
)
# “ and « are included since they close a quotation in German, Danish, Czech and Slovene: „Ja!“ »Ja!«
SENTENCE_END = frozenset(".!?\"”’»›')…“‘«‹」』" + FULL_STOPS)
_SPEECH_END = SENTENCE_END | frozenset(":;,]—-")
# After one of these, a lower-case letter does not continue the sentence.
_PARAGRAPH_END = SENTENCE_END | frozenset(":]")
MAX_AUTHOR = 80
# Maximum number of characters in a heading, for a number and a long title.
MAX_HEADING = 400
# Look for front matter at least in this many characters.
MIN_FRONT_LENGTH = 2_000
_STANZA_NUMBER = re.compile(r"^\s*\d{1,4}\.?\s+(?=\W{0,2}[^\W\d_])")
_LINE_NUMBER = re.compile(r"(?<=\S)(?:\s{3,}|\t)\[?\d{1,4}\]?$")
# Maximum number of characters in a line of verse.
MAX_VERSE_LENGTH = 65
_VERSE_END = tuple(",;:.!?—-")
# Minimum number of words in a line of verse that ends without punctuation.
MIN_VERSE_WORDS = 4
# Number of characters in the sample that decides whether a book uses capitals.
SAMPLE_LENGTH = 20_000
# While lines are joined, all but the end of a longer paragraph is set aside.
MAX_JOINED = 10_000
# A line with more characters was not wrapped.
MAX_WRAPPED_LENGTH = 120
# A line with at least this many characters may have been wrapped.
MIN_WRAPPED_LENGTH = 45


class Block(NamedTuple):
    """Consecutive lines of a book, between blank lines.

    Attributes:
        position: number of characters of the book up to the end of the block.
        fraction: ``position`` as a fraction of the book's length, 0 to 1.
        is_heading: whether the block is marked with ``HEADING``.
    """

    lines: list[str]
    position: int
    fraction: float
    is_heading: bool


def plain_paragraphs(text: str, dropped: Counter[str], headings: list[int] | None = None) -> list[str]:
    """Return the paragraphs of a book, each on one line.

    Args:
        text: text of the book; a block that begins with ``HEADING`` is a heading.
        dropped: incremented by the number of removed blocks, by reason.
        headings: for each heading, the number of paragraphs before it is appended to this list.
    """
    text = _without_frames(text, dropped)
    hyphens = HyphenResolver(text)
    capitals = _has_capitals(text)
    max_front = max(FRONT * len(text), MIN_FRONT_LENGTH)
    blocks = _without_sections(_split_blocks(text), dropped)
    labelled = _label_blocks(blocks, hyphens, capitals, max_front, dropped)
    paragraphs: list[str] = []
    # The last paragraph, if it ends in the middle of a sentence. A stray blank line may have split the sentence.
    unfinished = ""
    for label, paragraph in labelled:
        if label == "prose" and is_small(paragraph):
            # A lower-case letter continues even a complete sentence: “Is it?” / he asked.
            if not unfinished and capitals and paragraphs:
                unfinished = paragraphs.pop()
            if unfinished:
                paragraph = _joined(unfinished, paragraph, hyphens)
        elif unfinished:
            _keep(unfinished, paragraphs, dropped)
        unfinished = ""
        if label == "heading":
            if headings is not None:
                headings.append(len(paragraphs))
        elif label == "verse" or paragraph[-1] in _PARAGRAPH_END:
            paragraphs.append(paragraph)
        else:
            unfinished = paragraph
    if unfinished:
        _keep(unfinished, paragraphs, dropped)
    return paragraphs


def _split_blocks(text: str) -> Iterator[Block]:
    # Split at blank lines. Text between blank lines may still contain several paragraphs, which become a block each.
    position = 0
    for block in BLANK_LINES.split(without_marks(without_references(_ILLUSTRATION.sub("", text)))):
        position += len(block)
        fraction = position / max(1, len(text))
        if block.startswith(HEADING):
            yield Block([block.removeprefix(HEADING)], position, fraction, is_heading=True)
            continue
        verses = _without_numbers([line for line in block.split("\n") if line.strip()])
        for lines in [verses] if _is_verse(verses) else _split_block(block):
            yield Block(lines, position, fraction, is_heading=False)


def _without_sections(blocks: Iterable[Block], dropped: Counter[str]) -> Iterator[Block]:
    # Drop the sections below headings of front and back matter, such as an index or a list of errata.
    section = None
    # Number of characters of the section so far.
    size = 0
    for block in blocks:
        heading = section_of(block.lines[0], block.fraction) if len(block.lines) == 1 else None
        if heading:
            section = heading
            size = 0
        elif section and not _in_section(block, section, size):
            section = None
        if not section:
            yield block
            continue
        dropped[section] += 1
        if not heading and section != "index":
            size += sum(map(len, block.lines))


def _in_section(block: Block, section: str, size: int) -> bool:
    max_size = MAX_SECTION if block.fraction >= BACK else MAX_SECTION_BEFORE
    if size >= max_size or not belongs(block.lines, section):
        return False
    is_chapter = block.is_heading or _chapter(block.lines)
    return not is_chapter or (section == "index" and is_letter(block.lines, block.fraction))


def _label_blocks(
    blocks: Iterable[Block], hyphens: HyphenResolver, capitals: bool, max_front: float, dropped: Counter[str]
) -> Iterator[tuple[str, str]]:
    # Yield the label (prose, verse or heading) and the text of each block. Drop blocks of any other kind.
    # Whether the block follows the heading of a table of contents.
    listing = False
    for lines, position, fraction, is_heading in blocks:
        reason = None if is_heading else why_boilerplate(lines, listing=listing, fraction=fraction)
        paragraph = "" if reason else _join(lines, hyphens)
        if reason:
            dropped[reason] += 1
        if not paragraph:
            continue
        is_heading = is_heading or (_is_heading(paragraph) and not (capitals and is_small(paragraph)))
        if not is_heading and not listing and position >= MIN_FRONT_LENGTH and _is_verse(lines):
            yield "verse", _join(lines[: _num_verses(lines)], hyphens)
            continue
        label = "heading" if is_heading else "prose"
        if not is_heading and position < max_front and _is_front_matter(paragraph):
            label = "front matter"
        listing = CONTENTS.fullmatch(paragraph) is not None or (listing and label != "prose")
        if label != "prose":
            dropped[label] += 1
        if label != "front matter":
            yield label, paragraph


def _chapter(lines: list[str]) -> bool:
    return len(lines) <= 3 and _HEADING.fullmatch(" ".join(line.strip() for line in lines)) is not None


def _is_verse(lines: list[str]) -> bool:
    # In verse, all lines are short and begin with a capital, and at least a third of them end in a punctuation mark.
    texts = [line.strip().lstrip("_\"'“‘„‚«»‹›([") for line in lines]
    if len(lines) < 2 or max(map(len, texts)) > MAX_VERSE_LENGTH:
        return False
    if not all(text[:1].isupper() for text in texts):
        return False
    # Two lines may be two paragraphs, or two headings.
    if len(lines) == 2 and lines[0].rstrip()[-1] in SENTENCE_END:
        return texts[1][-1] in ",;:—-" or _is_unmarked_verse(texts[1])
    marked = 0
    for text in texts:
        marked += text.rstrip("_ \"'”’“‘»«›‹)").endswith(_VERSE_END)
    return 3 * marked >= len(lines) or all(map(_is_unmarked_verse, texts))


def _is_unmarked_verse(text: str) -> bool:
    # A line of verse without punctuation has more words than a name, and fewer capitals than a heading.
    words = text.split()
    few_capitals = 2 * sum(word[0].islower() for word in words) >= len(words)
    return len(words) >= MIN_VERSE_WORDS and few_capitals and not text[-1].isdecimal()


def _without_numbers(lines: list[str]) -> list[str]:
    # Remove the number before the first line of a stanza, and line numbers at the ends of lines.
    if lines:
        lines = [_STANZA_NUMBER.sub("", lines[0]), *lines[1:]]
    last = [line[-1] for line in lines]
    numbered = [mark for mark in last if mark.isdecimal() or mark == "]"]
    # If more than half of the lines end in numbers, they are a table of contents.
    if 0 < 2 * len(numbered) < len(lines):
        lines = [_LINE_NUMBER.sub("", line) for line in lines]
    return lines


def _num_verses(lines: list[str]) -> int:
    last = lines[-1].strip()
    named = last.startswith(("—", "--")) or not any(map(str.islower, last))
    return len(lines) - (named and len(lines) > 2)


def _has_capitals(text: str) -> bool:
    # Return whether the book uses capitals. BookCorpus, for example, is in lower case.
    middle = text[len(text) // 2 :][:SAMPLE_LENGTH]
    return 500 * sum(map(str.isupper, middle)) >= len(middle)


def _keep(paragraph: str, paragraphs: list[str], dropped: Counter[str]) -> None:
    if len(paragraph) < MAX_WRAPPED_LENGTH and paragraph[-1] not in _SPEECH_END:
        dropped["fragment"] += 1
    else:
        paragraphs.append(paragraph)


def _without_frames(text: str, dropped: Counter[str]) -> str:
    # Keep what lies between a start and the next end. A file may hold several books, each with its own frame.
    first, *others = _FRAME_END.split(text)
    # The first book may have no start. In some old etexts, the only start stands behind the end of the book.
    books = [_FRAME_START.split(first, maxsplit=1)[-1]]
    for part in others:
        # Before the start stand the footer of the previous book and the header of this one.
        _, *after = _FRAME_START.split(part, maxsplit=1)
        books += filter(str.strip, after)
    if books != [text]:
        dropped["frame"] += len(books)
    return "\n\n".join(books)


def _split_block(block: str) -> list[list[str]]:
    # A block is one paragraph, unless its lines are not wrapped or the first lines of paragraphs are indented.
    lines = [line for line in block.split("\n") if line.strip()]
    if not lines:
        return []
    # Wrapped lines rarely end like sentences.
    ended = [line for line in lines if line.rstrip()[-1] in SENTENCE_END]
    unwrapped = max(map(len, lines)) > MAX_WRAPPED_LENGTH and 2 * len(ended) >= len(lines)
    indented = [line for line in lines if line[0] in " \t"]
    if not unwrapped and not 0 < 2 * len(indented) <= len(lines):
        return [lines]
    paragraphs = [lines[:1]]
    for line in lines[1:]:
        previous = paragraphs[-1][-1].strip()
        may_begin = unwrapped or line[0] in " \t"
        if may_begin and not _continues(previous, line.strip()):
            paragraphs.append([line])
        else:
            paragraphs[-1].append(line)
    return paragraphs


def _continues(line: str, following: str) -> bool:
    if is_small(following):
        return line[-1] not in _PARAGRAPH_END and not _is_heading(line)
    return line[-1] not in _SPEECH_END and len(line) >= MIN_WRAPPED_LENGTH and not _is_heading(line)


def _is_front_matter(paragraph: str) -> bool:
    if _FRONT_MATTER.search(paragraph):
        return True
    return len(paragraph) <= MAX_AUTHOR and _AUTHOR.fullmatch(paragraph) is not None


def _is_heading(text: str) -> bool:
    # ʼ and ʻ are letters without case, and are allowed in a heading in capitals: КАМʼЯНЕЦЬ
    is_in_capitals = not any(letter.isalpha() and not letter.isupper() and letter not in "ʼʻ" for letter in text)
    return is_in_capitals or (len(text) <= MAX_HEADING and _HEADING.fullmatch(text) is not None)


def one_line(text: str) -> str:
    if len(text) < MAX_SPLIT_CHARACTERS:
        return " ".join(text.split())
    return _WHITE_SPACE.sub(" ", text).strip()


def _join(lines: list[str], hyphens: HyphenResolver) -> str:
    complete: list[str] = []
    text = ""
    for line in lines:
        text = _joined(text, one_line(line), hyphens)
        if len(text) > MAX_JOINED:
            # Joining the next line needs only the last characters. Setting the others aside makes the loop linear in
            # the length of a paragraph.
            complete.append(text[:-_WINDOW])
            text = text[-_WINDOW:]
    # Project Gutenberg marks italics with _underscores_.
    return "".join([*complete, text]).replace("_", "")


# Join a text and its next line. If a word was broken at the line end, keep its hyphen only if it belongs to the
# word.
def _joined(text: str, line: str, hyphens: HyphenResolver) -> str:
    if not text:
        return line
    if len(text) > 1 and text[-1] == "-" and text[-2].isalpha():
        return (text if hyphens.belongs(text, line) else text[:-1]) + line
    return f"{text}{line}" if _UNSPACED.match(text, len(text) - 1) and _UNSPACED.match(line) else f"{text} {line}"
