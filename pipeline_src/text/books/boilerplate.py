"""Recognise the parts of a book that are not prose, such as tables of contents, notes and advertisements."""

from __future__ import annotations

import re
from pathlib import Path

from pipeline_src.base.yaml_files import parse_yaml

CONTENTS = re.compile(r"(?:table of )?contents\.?|(?:list of )?(?:illustrations|plates|maps)\.?", re.I)
# Look for advertisements and other back matter after this fraction of a book.
BACK = 0.85
# Reason to drop a section -> pattern of the heading above it.
HEADINGS = {
    "its makers' note": re.compile(
        r"(?:the )?transcriber['’]?s?['’]? (?:end)?(?:notes?|comments?|remarks?)\b.{0,60}"
        r"|anmerkung(?:en)? zur transkription\b.{0,60}"
        r"|(?:\w+ )?spellings?\W{1,3}(?:unchanged|retained|kept|preserved)\b.{0,60}",
        re.I,
    ),
    "imprint": re.compile(r"imprint|colophon|uncopyright", re.I),
    # A poem or a chapter may have such a heading too, so `belongs` also checks the lines below it.
    "errata": re.compile(
        r"errat(?:a|um)\b.{0,60}|corrigenda\b.{0,60}|(?:list of )?corrections\b.{0,60}|au lecteur", re.I
    ),
    "index": re.compile(r"(?:(?:general|alphabetical|analytical) )?index(?: (?:of|to) .{1,60})?|register", re.I),
    "advertisement": re.compile(
        r"advertisements?|(?:other )?(?:books|works|novels|volumes) by the same author|by the same author"
        r"|(?:a )?(?:list|catalogue|selection) of (?:\w+ ){0,3}(?:books|works|publications)\b.{0,60}",
        re.I,
    ),
}
# Look for front matter before this fraction of a book.
FRONT = 0.05
# Maximum number of characters in a note or an advertisement.
MAX_LENGTH = 3_000
# Maximum number of characters in a note on spelling. A longer text is an introduction.
MAX_SPELLING_NOTE = 800
# Maximum number of characters in a section of notes or advertisements at the end of a book.
MAX_SECTION = 20_000
# Maximum number of characters in such a section elsewhere, where prose may follow without a heading.
MAX_SECTION_BEFORE = 600

_POINTER = r"[\[{](?:\d{1,3}|[*†‡§]{1,3}|[A-Z]|(?:[Ff]oot|[Ee]nd)?[Nn]ote:? ?\w{1,4}|[Pp]g\.? ?\w{1,5})[\]}]"
_REFERENCE = re.compile(rf"(?<=[^\s\[{{])(?: ?{_POINTER}(?!\w)|{_POINTER})|(?<=\S ){_POINTER}")
_NOTE = re.compile(
    r"[\[{](?:(?:foot|end|side)note|note\b|\d{1,3}[\]}:]|[*†‡§]{1,3}[\]}])|\*{1,3} ?(?!\*)\w[^*]*\Z|[†‡§] ?\w", re.I
)
_SUPERSCRIPT = re.compile(r"\^\{([^{}\n]{1,8})\}|(?<=[^\W\d_])\{([a-zà-ÿ]{1,4})\}")
_EMPHASIS = {
    mark: re.compile(rf"(?<![\w{mark}]){mark}(?=[^\s{mark}])([^{mark}]{{0,400}}?[^\s{mark}]){mark}(?![\w{mark}])")
    for mark in "=~"
}
_MAKERS = re.compile(
    r"project gutenberg|gutenberg\.(?:org|net)\b|distributed proofread"
    r"|^\W*transcriber['’]?s?['’]? (?:note|comment|errat)"
    r"|^\W*errata\b|typographical errors? (?:has|have|was|were)|^\W*(?:end of )?(?:this )?e-?text\b",
    re.M,
)
# An entry in a list of errata: "p. 12, line 3, for hear read here".
_CORRECTED = re.compile(
    r"\b(?:p|pp|pag|page|pages|s|line|l|vers?)\.? ?\d|(?:^|[\d,:;.] )for\b.{1,40}\bread\b|\bdelete\b"
    r"|\b(?:changed|corrected) (?:to|from)\b|\b(?:orthogra|transcri|misprint|typograph)"
    r"|\bprinter['’]s? errors?",
    re.I,
)
_OF_SPELLING = (
    *("spelling", "punctuation", "hyphenation", "misprint", "printer's error", "printer’s error", "printing error"),
    "druckfehler",
)
_TREATED = re.compile(
    r"\b(?:(?:has|have) been (?:\w+ly )?(?:retained|corrected|preserved|kept|left|\w+i[sz]ed)"
    r"|(?:retained|corrected|preserved|left) as|as (?:in|printed in) the original"
    r"|(?:left|kept|printed) unchanged|korrigiert)",
    re.I,
)
_OF_MAKERS = ("gutenberg", "distributed proofread", "transcriber", "errata", "typographical", "etext", "e-text")
_OF_MAKING: dict[str, list[str]] = parse_yaml(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
_IMPRINT = re.compile(
    r"(?:printed (?:in|by|at)\b|imprimerie\b|riverside press\b|the end\b)"
    r"|.{0,40}\b(?:imprimerie|printers?,|electrotypers|press of)\b",
    re.I,
)
_PUBLISHER = re.compile(
    r"&\s(?:co|sons?)\b|\b(?:publishers?|publishing|press|printed for|by the (?:same )?author of)\b"
    r"|:[^:]+\b(?:1[5-9]|20)\d\d\W*\Z",
    re.I,
)
# Sizes of printed books, as in advertisements.
_SIZE = re.compile(r"\b(?:12mo|16mo|18mo|24mo|8vo|4to)\b")
# Maximum number of characters in an advertisement without a price.
MAX_BLURB = 300
_FORMAT = re.compile(r"\b(?:12mo|16mo|18mo|8vo|4to|octavo|duodecimo|cloth|gilt|paper covers|boards|post-?paid)\b")
_PRICE = re.compile(r"[$£] ?\d|\b\d+s\.|\b\d+ ?(?:cents|cts|d\.)|\bnet\b")
_PAGE = re.compile(r"(?:\.{2,}|(?:\. ){2,}|[ \t]{2,}|[ \t])(?:\d{1,4}|[ivxlc]{1,7})\.?\s*\Z")
_LEADER = re.compile(r"(?:\.{2,}|(?:\. ){2,}|[ \t]{2,})(?:\d{1,4}|[ivxlc]{1,7})\.?\s*\Z")
_ENTRY = re.compile(r"(?:(?:chapter|book|part|no\.) )?(?:[IVXLC]+|\d{1,3})[.:)]?(?:\s|\Z)", re.I)
# An index entry ends in page numbers or refers to another entry: "Ash, 7; felled, 19", "Barns, see Farms"
_NUMBERED = re.compile(
    r"[,;.\s]\s*(?:pp?\. ?)?\d{1,4}(?:(?:\s?[-–—,;]\s*|\s+)(?:n\.|note|ff?\.|\d{1,4}))*[.;,]?\s*\Z|\bsee (?:also )?\w",
    re.I,
)
_TABLE = ("|", "+-", "+=")


def without_references(text: str) -> str:
    return _REFERENCE.sub("", text) if "[" in text or "{" in text else text


def without_marks(text: str) -> str:
    # =bold= -> bold, ~italics~ -> italics, 26^{me} -> 26me, d{te} -> dte
    if "{" in text:
        text = _SUPERSCRIPT.sub(lambda match: match[1] or match[2], text)
    for mark, pattern in _EMPHASIS.items():
        if text.count(mark) > 1:
            text = pattern.sub(r"\1", text)
    return text


def section_of(heading: str, fraction: float) -> str | None:
    # Return the reason to drop the section below a heading of front or back matter. Return None for any other heading.
    text = heading.strip(" .:*_=~[](){}-—\n")
    for reason, pattern in HEADINGS.items():
        if pattern.fullmatch(text) and (
            reason in ("its makers' note", "errata") or fraction <= FRONT or fraction >= BACK - 0.1
        ):
            return reason
    return None


def belongs(lines: list[str], section: str) -> bool:
    text = " ".join(line.strip() for line in lines)
    if section == "index":
        numbered = [line for line in lines if _NUMBERED.search(line)]
        if 3 * len(numbered) >= len(lines):
            return True
        return len(text) <= 40 or text[-1].isalnum()
    if section == "advertisement":
        is_offer = _FORMAT.search(text.lower()) or _PRICE.search(text)
        return is_offer is not None or len(text) <= MAX_BLURB
    if section == "errata":
        is_correction = _CORRECTED.search(text) is not None
        return is_correction and len(text) <= MAX_BLURB
    return len(text) <= MAX_LENGTH


def is_letter(lines: list[str], fraction: float) -> bool:
    # Return whether a line is a single letter that heads part of an index ("C."). At the start of a book, "I" is the
    # number of a chapter.
    text = " ".join(lines).strip(" .")
    return len(text) == 1 and text.isalpha() and not (text == "I" and fraction <= FRONT)


def why_boilerplate(lines: list[str], *, listing: bool, fraction: float) -> str | None:
    """Return the reason why a block of lines is not prose, or None if it may be prose.

    Args:
        listing: whether the block follows the heading of a table of contents.
        fraction: position of the block in the book, 0 to 1.
    """
    if 2 * sum(line.lstrip().startswith(_TABLE) for line in lines) >= len(lines):
        return "table"
    if _is_listing(lines, listing):
        return "table of contents"
    text = "\n".join(lines)
    if len(text) > MAX_LENGTH:
        return None
    # Searching the lower-case text is ten times faster than a search that ignores case.
    lower = text.lower()
    if any(word in lower for word in _OF_MAKERS) and _MAKERS.search(lower):
        return "its makers' note"
    if _NOTE.match(text.strip()):
        return "footnote"
    outside = fraction <= FRONT or fraction >= BACK
    if not outside:
        return None
    if _is_of_an_ebook(lower):
        return "its makers' note"
    if len(text) <= MAX_SPELLING_NOTE and any(word in lower for word in _OF_SPELLING) and _TREATED.search(lower):
        return "its makers' note"
    if (len(text) <= MAX_BLURB and _SIZE.search(lower)) or (_FORMAT.search(lower) and _PRICE.search(text)):
        return "advertisement"
    if len(text) <= 120 and (_IMPRINT.match(text.strip()) or (_is_title(text) and _PUBLISHER.search(text))):
        return "imprint"
    return None


def _is_of_an_ebook(text: str) -> bool:
    words = f" {' '.join(text.split())} "
    if any(phrase in words for phrase in _OF_MAKING["edition"]):
        return True
    making = [phrase for phrase in _OF_MAKING["making"] if phrase in words]
    credit = [phrase for phrase in _OF_MAKING["credit"] if phrase in words]
    return len(making) > 0 and len(making) + len(credit) > 1


def _is_title(text: str) -> bool:
    # A title has no quotation marks, and each of its words with more than three letters begins with a capital.
    if text.strip()[-1:] in "!?" or any(mark in text for mark in '"“”„»«'):
        return False
    return not any(word[:1].islower() and len(word.strip(",.;:")) > 3 for word in text.split())


def _is_listing(lines: list[str], listing: bool) -> bool:
    # Return whether lines are a table of contents. They end in page numbers or, below the heading "Contents", may
    # instead begin with chapter numbers.
    if not listing:
        return len(lines) >= 3 and 10 * sum(map(bool, map(_LEADER.search, lines))) >= 7 * len(lines)
    entries = sum(bool(_PAGE.search(line) or _ENTRY.match(line.strip())) for line in lines)
    return 2 * entries >= len(lines)
