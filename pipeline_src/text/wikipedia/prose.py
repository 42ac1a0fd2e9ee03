"""Extract the paragraphs of prose of a page.

An example of all steps after the markup is gone. The page is

    The mill is old.<ref>Reed</ref> It has {{odd|5}} wheels. They turn.{{odd}} Then they rest. It has two parts:
    * a wheel
    The force is given by
    :<math>F = ma</math>
    where m is the mass {{cn}}.

Other modules have already turned links, templates and tags into text or markers (markers.py). A template whose words
are unknown leaves a ‹hole›, and an element without words leaves a ‹gone›. A formula on its own line is enclosed in
markers:

    The mill is old. It has ‹hole› wheels. They turn.‹hole› Then they rest. It has two parts:
    * a wheel
    The force is given by
    :‹formula›F = ma‹formula›
    where m is the mass ‹gone›.

1. ``close_sentences`` (gaps.py): the second hole stands between two sentences, so no sentence has lost words. It
   becomes ‹gone›.
2. ``join_formulas`` (gaps.py): the line before the formula has no full stop, and the line after it begins with a small
   letter. The three lines become one: ``The force is given by F = ma where m is the mass ‹gone›.``
3. ``paragraphs``: the list item ends the first paragraph. The sentence with a hole is dropped (``drop_broken``). The
   last sentence is dropped too, since it introduces a list that was removed. The result:

    The mill is old. They turn. Then they rest.
    The force is given by F = ma where m is the mass .

4. ``repair`` (repair.py): ``mass .`` becomes ``mass.``
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from unicodedata import category

from pipeline_src.text.sentences import CLOSERS, is_small
from pipeline_src.text.wikipedia.markers import BOX, BREAK, GONE, NAMES, PLACEHOLDER
from pipeline_src.text.wikipedia.whole_sentences import (
    ABBREVIATING,
    COMPLETE,
    ENDS,
    FULL_STOPS,
    MIN_LENGTH,
    begins_with_sentence,
    is_short,
    lacks_only_its_stop,
    says_something,
    split_exactly,
)

# A line with at least this many characters counts as prose even without a full stop.
MIN_UNENDED_LENGTH = 120
COLONS = (":", "：")
NOT_PROSE = {"*": "list", "#": "list", ":": "list", ";": "list", "|": "table", "!": "table", "{": "table", "}": "table"}
NOT_PROSE |= {"=": "heading", "-": "rule", BOX: "box"}
INTERRUPTIONS = frozenset(("formula", "list", "table", "template"))
STOPS = FULL_STOPS | frozenset(":;" + PLACEHOLDER)
INTRODUCTION_ENDS = COMPLETE | frozenset(":")
SENTENCE_ENDS = COMPLETE | STOPS
# A line that has only these characters is a formula on its own line.
FORMULA_PUNCTUATION = PLACEHOLDER + GONE + " \t,.;:()[]=+-–·&→"

_ENDED_WITHIN = re.compile(rf".{{{MIN_LENGTH - 1}}}(?:[{ABBREVIATING}] |[{ENDS}])")
_ASIDE = re.compile(rf"(?:(?<=\s)\(|（)[^()（）\n{PLACEHOLDER}]*{PLACEHOLDER}[^()（）\n]*[)）]")
# A letter of a script that has spaces between words.
_LETTER = r"[^\W\u2e80-\u9fff]"
# A marker between two letters, which is replaced by a space.
_WITHIN = re.compile(rf"{GONE}(?<={_LETTER}{GONE}){GONE}*+(?={_LETTER})")
# The marks at the start of a list item. In a definition list (``; Mill : It has been here for ages.``), the term
# belongs to the marks, and the definition is the item.
_LIST_MARKS = re.compile(r"[*#:;]++(?:(?<=;)[^:]*+(?::|\Z))?\s*")
# A word of four letters, which a chemical equation does not have.
_WORD = re.compile(r"[^\W\d_]{4}")
# Chess moves: 1.e4 e5 2.Nf3
_MOVES = re.compile(r"\d{1,3}\.(?:\.\.)? ?\S{2,8} +(?:\S{2,8} +)?\d{1,3}\.(?:\.\.)? ?[a-hKQRBNO]")


def paragraphs(
    text: str,
    dropped: Counter[str],
    language: str,
    count: Callable[[str], None],
    lists: str,
) -> list[str]:
    """Return the paragraphs of prose.

    As in MediaWiki, lines without a blank line between them form one paragraph. Besides lines that are not prose, the
    following is dropped:

    - sentences that only introduce a list, table or formula (``They are:``), unless only their full stop is missing;
    - the end of a sentence that a list, table or formula interrupts (``where x is the mass.``);
    - sentences with a placeholder.

    Args:
        dropped: incremented by the number of dropped lines and sentences, by kind.
        count: called with each text that is dropped because of a placeholder.
        lists: ``sentences`` keeps list items that are whole sentences, as paragraphs; ``drop`` drops all lists.
    """

    prose: list[str] = []
    block: list[str] = []
    # Whether a list, table or formula directly precedes.
    broken_off = False
    # The last kept paragraph, if it may introduce the next line.
    leading = ""
    for raw in _lines(text):
        line = raw.strip()
        if GONE in line:
            line = _WITHIN.sub(" ", line).replace(GONE, "").strip()
        kind = _kind(raw, line) if line else "blank"
        if kind is None:
            block.append(line)
            continue
        if block:
            if (
                kind in INTERRUPTIONS
                and block[-1][-1] not in INTRODUCTION_ENDS
                and (PLACEHOLDER in line or not lacks_only_its_stop(" ".join(block), language))
            ):
                # The formula or list was part of this sentence.
                block.append(PLACEHOLDER)
            paragraph = _finish(block, broken_off, dropped, language, count)
            if paragraph:
                prose.append(paragraph)
                leading = paragraph if paragraph[-1] not in COMPLETE else ""
                broken_off = False
            else:
                _drop_lead_in(prose, leading, False, dropped, language)
                leading = ""
                broken_off = block[-1][-1] not in FULL_STOPS | {";"}
            block = []
        if kind == "blank":
            continue
        broken_off = kind != "heading" and (broken_off or kind != "box")
        item = _item(line, language, count) if lists == "sentences" and kind == "list" else ""
        if item:
            prose.append(item)
        else:
            dropped[kind] += 1
            _drop_lead_in(prose, leading, broken_off, dropped, language)
        leading = ""
    _drop_lead_in(prose, leading, False, dropped, language)
    return prose


def _item(line: str, language: str, count: Callable[[str], None]) -> str:
    # Return the text of a list item if it begins with a whole sentence, else ''.
    text, _ = drop_broken(_LIST_MARKS.sub("", line, count=1), language, count)
    return text if begins_with_sentence(text, language) else ""


def _lines(text: str) -> Iterator[str]:
    # Yield the lines, and a blank line at the end. BREAK ends a paragraph, except in lists and tables.
    for raw in text.split("\n"):
        if BOX in raw:
            start = raw.lstrip(f" \t{GONE}")
            if start[:1] == BOX:
                yield BOX
                raw = GONE + start.lstrip(f" \t{GONE}{BOX}")
            raw = raw.replace(BOX, PLACEHOLDER)
        if BREAK in raw:
            if raw.lstrip(f" \t{GONE}{BREAK}")[:1] in NOT_PROSE:
                yield raw.replace(BREAK, " ").lstrip()
            else:
                for piece in raw.split(BREAK):
                    yield piece.strip()
                    yield ""
            continue
        yield raw
    yield ""


def _finish(
    block: list[str], broken_off: bool, dropped: Counter[str], language: str, count: Callable[[str], None]
) -> str:
    # Return a paragraph without its broken sentences, or '' if it is not prose.
    # Remove the punctuation that followed a removed formula.
    paragraph = " ".join(block).lstrip(" ,;:)")
    if not _is_prose(paragraph, block, language):
        dropped["fragment"] += 1
        if not _ENDED_WITHIN.search(paragraph):
            return ""
        # Drop only the incomplete last sentence: "The mill stands by the river. Its old wheel"
        *complete, _ = split_exactly(paragraph, language)
        paragraph = "".join(complete).rstrip()
        if is_small(paragraph) or not _is_prose(paragraph, [paragraph], language):
            return ""
    rest_of_sentence = broken_off and is_small(paragraph)
    if not rest_of_sentence and PLACEHOLDER not in paragraph:
        return paragraph
    paragraph, sentences = drop_broken(PLACEHOLDER * rest_of_sentence + paragraph, language, count)
    if sentences:
        dropped["gap"] += sentences
    return "" if is_short(paragraph) else paragraph


def drop_broken(paragraph: str, language: str, count: Callable[[str], None]) -> tuple[str, int]:
    """Drop the sentences of a paragraph that have a placeholder outside brackets.

    Text that was wrongly split off from such a sentence is dropped too: it has an unclosed bracket, or begins with a
    lower-case letter. ``count`` is called with each dropped sentence and each dropped aside in brackets.

    Returns:
        The rest of the paragraph, and the number of dropped sentences.
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


def _drop_lead_in(prose: list[str], leading: str, broken_off: bool, dropped: Counter[str], language: str) -> None:
    # Drop the last sentence of the last paragraph if it only introduces what was removed. Keep it if it ends in a colon
    # and has a second clause, or if only its full stop is missing.
    if not leading.endswith(COLONS) and (not leading or not broken_off or lacks_only_its_stop(leading, language)):
        return
    *before, last = split_exactly(leading, language)
    if last.endswith(COLONS) and says_something(last, language):
        return
    prose.pop()
    paragraph = "".join(before).rstrip()
    if not is_short(paragraph):
        prose.append(paragraph)
    dropped["lead-in"] += 1


def _kind(raw: str, line: str) -> str | None:
    if raw[0] == " " and len(line) < MIN_UNENDED_LENGTH:
        # MediaWiki shows a line that begins with a space as preformatted text, such as code.
        return "preformatted"
    if PLACEHOLDER in line:
        unnamed = NAMES.sub("", line)
        if not unnamed.strip(FORMULA_PUNCTUATION):
            return "formula" if unnamed == line else "template"
    return NOT_PROSE.get(line[0])


def _is_prose(paragraph: str, lines: list[str], language: str) -> bool:
    if paragraph[:1].isdigit() and _MOVES.match(paragraph):
        return False
    if is_short(paragraph):
        return False
    if len(paragraph) >= MIN_UNENDED_LENGTH:
        # A long line is not a caption or label.
        is_ended = paragraph[-1] in SENTENCE_ENDS or len(max(lines, key=len)) >= MIN_UNENDED_LENGTH
    elif _has_words(paragraph):
        # Excludes labels and titles without a full stop: "(a label)", "A title"
        is_ended = paragraph.rstrip(CLOSERS)[-1:] in STOPS
    else:
        return False
    return is_ended or lacks_only_its_stop(paragraph, language)


def _has_words(text: str) -> bool:
    if _WORD.search(text):
        return True
    return 2 * sum(not character.isascii() and category(character)[0] in "LM" for character in text) > len(text)


def is_paragraph(line: str, language: str) -> bool:
    # Return whether a repaired paragraph is still prose.
    return line[:1] not in NOT_PROSE and _is_prose(line, [line], language)
