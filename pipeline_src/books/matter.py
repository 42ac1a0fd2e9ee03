"""What stands between a book's covers and is none of its prose: lists of chapters, notes, tables, advertisements."""

from __future__ import annotations

import re

CONTENTS = re.compile(r"(?:table of )?contents\.?|(?:list of )?(?:illustrations|plates|maps)\.?", re.I)
BACK = 0.85  # of a book, from where advertisements are looked for
LONGEST = 3_000  # characters of a note or an advertisement

_POINTER = r"[\[{](?:\d{1,3}|[*†‡§]{1,3}|[A-Z]|(?:[Ff]oot|[Ee]nd)?[Nn]ote:? ?\w{1,4}|[Pp]g\.? ?\w{1,5})[\]}]"
_MARK = re.compile(
    rf"(?<=[^\s\[{{])(?: ?{_POINTER}(?!\w)|{_POINTER})|(?<=\S ){_POINTER}"
)  # of a note or a printed page
_NOTE = re.compile(
    r"[\[{](?:(?:foot|end|side)note|note\b|\d{1,3}[\]}:]|[*†‡§]{1,3}[\]}])|\*{1,3} ?(?!\*)\w[^*]*\Z|[†‡§] ?\w", re.I
)
_MAKERS = re.compile(
    r"project gutenberg|gutenberg\.(?:org|net)\b|distributed proofread"
    r"|^\W*transcriber['’]?s?['’]? (?:note|comment|errat)"
    r"|^\W*errata\b|typographical errors? (?:has|have|was|were)|^\W*(?:end of )?(?:this )?e-?text\b",
    re.M,
)
_OF_MAKERS = ("gutenberg", "distributed proofread", "transcriber", "errata", "typographical", "etext", "e-text")
_FORMAT = re.compile(r"\b(?:12mo|16mo|18mo|8vo|4to|octavo|duodecimo|cloth|gilt|paper covers|boards|post-?paid)\b", re.I)
_PRICE = re.compile(r"[$£] ?\d|\b\d+s\.|\b\d+ ?(?:cents|cts|d\.)|\bnet\b")
_PAGE = re.compile(r"(?:\.{2,}|(?:\. ){2,}|[ \t]{2,}|[ \t])(?:\d{1,4}|[ivxlc]{1,7})\.?\s*\Z")
_LEADER = re.compile(r"(?:\.{2,}|(?:\. ){2,}|[ \t]{2,})(?:\d{1,4}|[ivxlc]{1,7})\.?\s*\Z")
_ENTRY = re.compile(r"(?:(?:chapter|book|part|no\.) )?(?:[IVXLC]+|\d{1,3})[.:)]?(?:\s|\Z)", re.I)
_TABLE = ("|", "+-", "+=")
_SENTENCE_END = (".", "!", "?", '"', "”", "’", "»")


def without_marks(text: str) -> str:
    """The text without marks that point to notes and pages."""
    return _MARK.sub("", text) if "[" in text or "{" in text else text


def why_matter(lines: list[str], *, listing: bool, place: float) -> str | None:
    """Why a block of lines is not prose; None for prose.

    Args:
        lines: without blank ones.
        listing: whether a list of chapters or pictures is under way.
        place: where in the book it stands (0 to 1).
    """
    if 2 * sum(line.lstrip().startswith(_TABLE) for line in lines) >= len(lines):
        return "table"
    if _is_listing(lines, listing):
        return "table of contents"
    text = "\n".join(lines)
    if len(text) > LONGEST:
        return None
    lower = text.lower()  # a search that ignores case is ten times slower
    if any(word in lower for word in _OF_MAKERS) and _MAKERS.search(lower):
        return "its makers' note"
    if _NOTE.match(text.strip()):
        return "footnote"
    if place >= BACK and _FORMAT.search(text) and _PRICE.search(text):
        return "advertisement"
    return None


def _is_listing(lines: list[str], under_way: bool) -> bool:
    """Whether a block is a list of chapters: its lines end in pages; where one is under way, or begin with numbers."""
    if not under_way:
        return len(lines) >= 3 and 10 * sum(map(bool, map(_LEADER.search, lines))) >= 7 * len(lines)
    entries = sum(bool(_PAGE.search(line) or _ENTRY.match(line.strip())) for line in lines)
    ended = sum(line.rstrip().endswith(_SENTENCE_END) and len(line) > 60 for line in lines)
    return 2 * entries >= len(lines) and not ended
