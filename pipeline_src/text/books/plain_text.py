"""Split a plain-text book into paragraphs, without Gutenberg's header, front matter, headings and line breaks."""

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

# A block that markup calls a heading begins with this code point, which is no character of any text.
HEADING = "\ufdd0"
_WORD = r"[^\W\d_]+(?:['’][^\W\d_]+)*"
_WORDS = re.compile(rf"{_WORD}(?:-{_WORD})*")
# Matches begin only at the start of a part, of few parts: 100,000 letters are scanned once, not 100,000 times.
_PART = r"[^\W\d_]++(?:['’][^\W\d_]++){0,8}"
_BROKEN = re.compile(rf"(?<![^\W\d_])((?:{_PART}-){{0,8}}{_PART})-[ \t]*+\n[ \t]*+({_WORD})")
_LAST = re.compile(rf"((?:{_WORD}-)*{_WORD})-\Z")
_FIRST = re.compile(_WORD)
# No word has more characters.
_WINDOW = 100
_WHITE_SPACE = re.compile(r"\s\s+|[^\S ]")
# A part that occurs so often counts as a word.
MIN_PART_COUNT = 2


class HyphenResolver:
    """Decide by a book's other words whether a word broken at a line end has a hyphen.

    A scanned book breaks words anywhere (``con-`` / ``cerning``); a transcriber leaves only hyphens that belong to the
    word (``every-`` / ``day``). The form found elsewhere in the book is correct; if there is none, the form that most
    other broken words turned out to have.
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

    # Whether the book prefers the hyphenated form. None if it has neither form, or both equally often.
    def _known_form(self, prefix: str, suffix: str) -> bool | None:
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
# of Chinese and Japanese, which need no space where lines are joined
_UNSPACED = re.compile("[\u2e80-\u30ff\u3400-\u9fff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff]")
_WORDS_OF_HEADINGS = parse_yaml(Path(__file__).with_name("headings.yaml").read_text(encoding="utf-8"))
_CHAPTER, _PART, _ORDINAL = ("|".join(_WORDS_OF_HEADINGS[kind].split()) for kind in ("chapter", "part", "ordinal"))
# A title behind a stop may be long: "Capítulo XIX. Donde se declara ..."
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
# Who wrote the book: "By A. Miller." "von Hans und Grete Müller"
_NAME = r"(?:[^\W\d_a-zà-ÿ][\w'’-]*\.?|de|la|del|della|di|da|dos|von|van|der|den|du|le|of|the|and|et|und|y|e)"
_BY = "[Bb]y|BY|[Vv]on|[Pp]ar|[Pp]or|[Dd]i|[Dd]e|[Aa]v|[Aa]f|[Dd]oor|[Pp]rzez"
_AUTHOR = re.compile(rf"(?:{_BY}) {_NAME}(?:,? {_NAME}){{1,8}}\.?")
_ILLUSTRATION = re.compile(
    r"\[(?:(?i:illustration|footnote|sidenote|transcriber)[^\]]*\]"
    r"|_?(?:Music|Figures?|Fig\.|FIG\.|Plate|PLATE|Map|Frontispiece|Tailpiece)\b[^\[\]\n]{0,300}\]"
    r"|_?(?:Exeunt|EXEUNT|Exit|Re-?enter|Enter)\b(?:[^\[\]]{0,200}\]|[^\[\]\n]*))"  # [Exeunt.
)
# German, Danish, Czech and Slovene end a speech so: „Ja!“ »Ja!«
SENTENCE_END = frozenset(".!?\"”’»›')…“‘«‹」』" + FULL_STOPS)
_SPEECH_END = SENTENCE_END | frozenset(":;,]—-")
# A small letter does not continue the sentence after these.
_PARAGRAPH_END = SENTENCE_END | frozenset(":]")
MAX_AUTHOR = 80
# A number and the longest title.
MAX_HEADING = 400
# Front matter is searched in so many characters.
MIN_FRONT_LENGTH = 2_000
_STANZA_NUMBER = re.compile(r"^\s*\d{1,4}\.?\s+(?=\W{0,2}[^\W\d_])")
_LINE_NUMBER = re.compile(r"(?<=\S)(?:\s{3,}|\t)\[?\d{1,4}\]?$")
# No line of verse has more characters.
MAX_VERSE_LENGTH = 65
_VERSE_END = tuple(",;:.!?—-")
# Fewest words of a verse without a mark at its end.
MIN_VERSE_WORDS = 4
# Characters that decide whether sentences begin with capitals.
SAMPLE_LENGTH = 20_000
# Characters of a paragraph to which a line is appended.
MAX_JOINED = 10_000
# A line of more characters was not wrapped.
MAX_WRAPPED_LENGTH = 120
# A line of this length was wrapped.
MIN_WRAPPED_LENGTH = 45


class Block(NamedTuple):
    """Lines that stand together in a book.

    Attributes:
        position: characters of the book until the block's end.
        fraction: the same, as a fraction of the book.
        is_heading: whether markup says that it is a heading.
    """

    lines: list[str]
    position: int
    fraction: float
    is_heading: bool


def plain_paragraphs(text: str, dropped: Counter[str], headings: list[int] | None = None) -> list[str]:
    """Return the paragraphs of a book, each on one line.

    Args:
        text: a block that begins with ``HEADING`` is a heading.
        headings: for each heading, the number of paragraphs before it is appended.
    """
    text = _without_frame(text, dropped)
    hyphens = HyphenResolver(text)
    capitals = _has_capitals(text)
    max_front = max(FRONT * len(text), MIN_FRONT_LENGTH)
    blocks = _without_sections(_split_blocks(text), dropped)
    labelled = _label_blocks(blocks, hyphens, capitals, max_front, dropped)
    paragraphs: list[str] = []
    # The last paragraph, if it ends within a sentence because of a stray blank line.
    unfinished = ""
    for label, paragraph in labelled:
        if label == "prose" and is_small(paragraph):
            # “Is it?” / he asked.
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


# Blocks end at blank lines; one without blank lines may have several paragraphs.
def _split_blocks(text: str) -> Iterator[Block]:
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


# Drop what stands below a heading of front or back matter, such as an index or a list of errata.
def _without_sections(blocks: Iterable[Block], dropped: Counter[str]) -> Iterator[Block]:
    section = None
    # Characters of the section until here.
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


# Yield the text of each block and what it is: prose, verse or heading. All others are dropped.
def _label_blocks(
    blocks: Iterable[Block], hyphens: HyphenResolver, capitals: bool, max_front: float, dropped: Counter[str]
) -> Iterator[tuple[str, str]]:
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


# All lines of verse are short and begin with a capital, and some end in a mark.
def _is_verse(lines: list[str]) -> bool:
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


# Words enough, and enough without a capital, not to be a heading or a name.
def _is_unmarked_verse(text: str) -> bool:
    words = text.split()
    few_capitals = 2 * sum(word[0].islower() for word in words) >= len(words)
    return len(words) >= MIN_VERSE_WORDS and few_capitals and not text[-1].isdecimal()


# A stanza's number stands before its first line, the numbers of lines behind them.
def _without_numbers(lines: list[str]) -> list[str]:
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


# BookCorpus is in lower case.
def _has_capitals(text: str) -> bool:
    middle = text[len(text) // 2 :][:SAMPLE_LENGTH]
    return 500 * sum(map(str.isupper, middle)) >= len(middle)


def _keep(paragraph: str, paragraphs: list[str], dropped: Counter[str]) -> None:
    if len(paragraph) < MAX_WRAPPED_LENGTH and paragraph[-1] not in _SPEECH_END:
        dropped["fragment"] += 1
    else:
        paragraphs.append(paragraph)


def _without_frame(text: str, dropped: Counter[str]) -> str:
    start = _FRAME_START.search(text)
    if start:
        text = text[start.end() :]
    end = _FRAME_END.search(text)
    if end:
        text = text[: end.start()]
    if start or end:
        dropped["frame"] = 1
    return text


# One paragraph, unless lines are long or first lines are indented.
def _split_block(block: str) -> list[list[str]]:
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
    # ʼ and ʻ are letters of no case: КАМʼЯНЕЦЬ
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
            # What follows depends on the last characters alone, so that a long paragraph takes linear time.
            complete.append(text[:-_WINDOW])
            text = text[-_WINDOW:]
    # Gutenberg's italics are _between underscores_.
    return "".join([*complete, text]).replace("_", "")


# A word broken between the two is joined, with its hyphen if it has one.
def _joined(text: str, line: str, hyphens: HyphenResolver) -> str:
    if not text:
        return line
    if len(text) > 1 and text[-1] == "-" and text[-2].isalpha():
        return (text if hyphens.belongs(text, line) else text[:-1]) + line
    return f"{text}{line}" if _UNSPACED.match(text, len(text) - 1) and _UNSPACED.match(line) else f"{text} {line}"
