"""Split a Markdown book into paragraphs, or a Markdown play into speeches."""

from __future__ import annotations

import re
from collections import Counter

from pipeline_src.text.books.plain_text import BLANK_LINES

# Front matter begins with a key. A rule at the start of a book is not front matter.
_FRONT_MATTER = re.compile(r"\A---\n(?=[\w.-]+:\s).*?\n---\n", re.S)
# The marks of a quotation at the start of a line: "> > "
_QUOTE = re.compile(r"\A(?:> ?)+")
_CODE = re.compile(r"^(```|~~~).*?^\1[^\n]*$", re.S | re.M)
_HEADING = re.compile(r"#{1,6}\s.*|[^\n]+\n(?:=+|-+)\s*", re.S)
_RULE = re.compile(r"(?:[-*_=] ?){3,}")
_SPEAKER = re.compile(r"(\*\*|__)[^*_\n]{1,60}\1[.:]?")
_DIRECTION = re.compile(r"([*_])(?!\1).+?\1|__\\?\[.*?\]_?_?|\\?\[.*?\\?\]", re.S)
# "SONG.", "EPILOGUE", "ACT II"
_TITLE = re.compile(r"^(?:[A-Z][A-Z .,:'-]{2,}[A-Z][.:]?|(?:ACT|SCENE) [IVX]+\b.*)[ \t]*$", re.M)
_LIST_ITEM = re.compile(r"(?:[-*+]|\d{1,3}[.)])\s|\|")
_ASIDE = re.compile(r"(?<!_)_*+\\?\[[^\]\n]{0,80}\]_*|^_[^_]{1,160}_[ \t]*$", re.M)
_IMAGE = re.compile(r"!\[[^\[\]\n]*\]\([^)\n]{0,1000}\)")
_LINK = re.compile(r"\[([^\[\]\n]*)\]\([^)\n]{0,1000}\)")
_EMPHASIS = re.compile(r"(?<!\\)(?:\*+|`+|(?<!\w)_+|_+(?!\w))")
_ESCAPE = re.compile(r"\\([!-/:-@\[-`{-~])")
_TAG = re.compile(r"</?[a-zA-Z][^<>\n]{0,200}>")


def markdown_paragraphs(text: str, dropped: Counter[str], headings: list[int] | None = None) -> list[str]:
    """Return the paragraphs of a book, or the speeches of a play.

    Headings, lists, tables and code are removed. From a play, the names of speakers and the stage directions are
    removed too. A stage direction is a block, a line or an aside in italics or brackets. Each speech becomes one
    paragraph, even if it is in verse.

    Args:
        dropped: incremented by the number of removed parts, by reason.
        headings: for each heading, the number of paragraphs before it is appended to this list.
    """
    text = _without_comments(_CODE.sub("", _FRONT_MATTER.sub("", text)))
    is_play = len(re.findall(r"^\*\*[^*\n]{1,60}\*\*[.:]?[ \t]*$", text, re.M)) > 10
    if is_play:
        text, titles = _TITLE.subn("", text)
        dropped["heading"] += titles
    paragraphs: list[str] = []
    for block in BLANK_LINES.split(text):
        block = block.strip()
        if not block:
            continue
        reason = _why_not_prose(block, is_play)
        if reason:
            dropped[reason] += 1
            if reason == "heading" and headings is not None:
                headings.append(len(paragraphs))
            continue
        lines = [_QUOTE.sub("", line.strip()) for line in block.split("\n")]
        if is_play:
            spoken = [line for line in lines if not _SPEAKER.fullmatch(line)]
            dropped["speaker"] += len(lines) - len(spoken)
            lines = _without_asides(spoken, dropped)
        paragraph = _plain(" ".join(lines))
        if any(letter.isalpha() for letter in paragraph):
            paragraphs.append(paragraph)
    return paragraphs


def _without_comments(text: str) -> str:
    # An unclosed comment stays as text. The search stops there, so it takes linear time.
    pieces, position = [], 0
    while (start := text.find("<!--", position)) >= 0 and (end := text.find("-->", start + 4)) >= 0:
        pieces.append(text[position:start])
        position = end + 3
    return "".join([*pieces, text[position:]])


def _why_not_prose(block: str, is_play: bool) -> str | None:
    # In a play, a single word without punctuation is part of a title.
    if _HEADING.fullmatch(block) or (is_play and block.isalpha()):
        return "heading"
    if _RULE.fullmatch(block):
        return "rule"
    if _LIST_ITEM.match(block):
        return "list or table"
    if is_play and _DIRECTION.fullmatch(block):
        return "stage direction"
    return None


def _without_asides(lines: list[str], dropped: Counter[str]) -> list[str]:
    text, num_directions = _ASIDE.subn("", "\n".join(lines))
    spoken = [line for line in text.split("\n") if line.strip() and not _DIRECTION.fullmatch(line.strip())]
    num_directions += len(text.split("\n")) - len(spoken)
    if num_directions:
        dropped["stage direction"] += num_directions
    return spoken


def _plain(text: str) -> str:
    text = _LINK.sub(r"\1", _IMAGE.sub("", text))
    text = _TAG.sub("", _ESCAPE.sub(r"\1", _EMPHASIS.sub("", text)))
    return " ".join(text.split())
