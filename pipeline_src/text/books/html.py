"""Convert an HTML book to plain text, with a blank line after each block and a mark before each heading.

    <h2>The Mill</h2><p>It stood<a href="#n1">[1]</a> there.</p>  ->  "\\ufdd0The Mill\\n\\nIt stood there."

Elements that are not prose are dropped and counted: tables, illustrations, notes, contents, and front and back matter.
They are recognised by their tag, ``epub:type``, role, class or id, which ``html.yaml`` lists.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from lxml import etree

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.yaml_files import parse_yaml
from pipeline_src.text.books.plain_text import HEADING

TABLE = parse_yaml(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
# Value of epub:type, or of role without its prefix "doc-" -> reason to drop the element.
TYPES: dict[str, str] = {name: reason for reason, names in TABLE["types"].items() for name in names.split()}
_TAGS = {name: reason for reason, names in TABLE["tags"].items() for name in names.split()}
_CLASSES = {name: reason for reason, names in TABLE["classes"].items() for name in names.split()}
_BLOCKS = TABLE["blocks"].split()
_HEADINGS = TABLE["headings"].split()
_HEADING_TYPES = frozenset(TABLE["heading_types"].split())
_LINES = frozenset(TABLE["lines"].split())
HEAD_CHARACTERS = 20_000
MIN_TAGS = 5
# A page has at least one paragraph tag for this many characters. Plain text has no such tags.
MAX_CHARACTERS_PER_TAG = 2_000
MAX_NOTE_MARK = 10
_HTML = re.compile(r"\s*(?:<\?xml\b[^<>]*>\s*)?(?:<!--[^<>]{0,1000}-->\s*)?<(?:!doctype\s+html|html)\b", re.I)
_ROOT = re.compile(r"<html[\s>]", re.I)
_PARAGRAPH_TAG = re.compile(r"</?(?:p|br|div|h[1-6])\b[^<>]{0,200}>", re.I)
# "12", "[12]", "*", "(a)", "[Note 3]"
_NOTE_MARK = re.compile(
    r"\s*(?:[\[({]\s*(?:note |fn)?\w{1,4}\s*[\])}]|[\[({]?(?:\d{1,4}|[*†‡§¶‖]{1,3})[\])}]?)\s*", re.I
)
# After one of these, a superscript number is an exponent, not a note mark: "x", "km", "10"
_BASE = re.compile(r"(?:\d|\b[^\W\d_]{1,2})\Z")
_LETTER = re.compile(r"[^\W\d_]")
_SPACE = re.compile(r"[ \t\r\n\f]+")
_HIDDEN = re.compile(r"\b(?:display\s*:\s*none|visibility\s*:\s*hidden)", re.I)
# Removed: soft hyphens, joiners, and the hair spaces that some editions put between punctuation marks.
_INVISIBLE = dict.fromkeys(map(ord, "\xad\u200a\u200b\u2060\ufeff" + HEADING))


def is_html(text: str) -> bool:
    if _HTML.match(text):
        return True
    # This cheap search rules out nearly every plain-text book.
    start = text[:HEAD_CHARACTERS].lower()
    if not any(tag in start for tag in ("</p>", "<br", "<p>")):
        return False
    return len(_PARAGRAPH_TAG.findall(start)) >= max(MIN_TAGS, len(start) / MAX_CHARACTERS_PER_TAG)


def html_text(page: str, where: object, dropped: Counter[str], matter: Mapping[str, str]) -> str:
    """Return the prose of an HTML page as plain text, with ``HEADING`` before each heading.

    Args:
        where: name of the file, for error messages.
        dropped: incremented for each dropped element, by reason.
        matter: element id -> reason to drop that element.
    """
    # Remove everything before <html>, so that the parser sees no entity definitions.
    root = _ROOT.search(page)
    parser = etree.HTMLParser(encoding="utf-8", no_network=True, huge_tree=True, remove_comments=True, remove_pis=True)
    tree = etree.HTML((page[root.start() :] if root else page).encode(), parser)
    for error in parser.error_log.filter_from_fatals():
        raise PipelineError(
            "invalid HTML", error.message, where=where, hint="save the page again, or move it out of the folder"
        )
    writer = _Writer(dropped, matter)
    if tree is not None:
        writer.write(tree)
    return "".join(writer.pieces)


class _Writer:
    def __init__(self, dropped: Counter[str], matter: Mapping[str, str]) -> None:
        self._dropped = dropped
        self._matter = matter
        self.pieces: list[str] = [""]
        # Number of open headings and open <pre> elements.
        self._headings = 0
        self._preformatted = 0

    def write(self, tree: etree._Element) -> None:
        # Walks the tree without recursion, since downloaded pages may be nested deeply.
        walker = etree.iterwalk(tree, events=("start", "end"))
        skipped = None
        for event, element in walker:
            if event == "end":
                self._end(element, is_dropped=element is skipped)
                continue
            reason = self._why_dropped(element)
            if reason:
                self._dropped[reason] += 1
                skipped = element
                walker.skip_subtree()
            self._start(element, is_dropped=reason is not None)

    def _start(self, element: etree._Element, is_dropped: bool) -> None:
        if element.tag in _BLOCKS:
            self._break(element)
        if is_dropped:
            return
        if _is_heading(element):
            if not self._headings:
                self.pieces.append(HEADING)
            self._headings += 1
        self._preformatted += element.tag == "pre"
        if element.tag == "br":
            self.pieces.append(" " if self._headings else "\n")
        elif element.tag == "img" and len(element.get("alt", "")) == 1:
            # A drop cap: <img alt="T">he mill
            self._write_text(element.get("alt"))
        self._write_text(element.text)

    def _end(self, element: etree._Element, is_dropped: bool) -> None:
        if not is_dropped:
            self._headings -= _is_heading(element)
            self._preformatted -= element.tag == "pre"
        if element.tag in _BLOCKS:
            self._break(element)
        self._write_text(element.tail)

    def _break(self, element: etree._Element) -> None:
        if self._headings:
            self.pieces.append(" ")
        elif not _LINES.isdisjoint(element.get("class", "").split()):
            # Lines of verse stay together: they are separated by a line break instead of a blank line.
            self.pieces.append("" if self.pieces[-1].endswith("\n") else "\n")
        else:
            self.pieces.append("\n\n")

    def _write_text(self, text: str | None) -> None:
        text = (text or "").translate(_INVISIBLE)
        if not self._preformatted:
            text = _SPACE.sub(" ", text)
            if self.pieces[-1].endswith(("\n", HEADING)):
                text = text.lstrip(" ")
        if text:
            self.pieces.append(text)

    def _why_dropped(self, element: etree._Element) -> str | None:
        tag = element.tag
        if tag in _TAGS:
            return _TAGS[tag]
        if _is_hidden(element):
            return "hidden"
        if tag in _HEADINGS:
            return None
        if tag in ("a", "sup") and self._is_note_mark(element):
            return "footnote"
        if tag in ("p", "li", "dt", "dd") and _has_only_links(element):
            return "table of contents"
        if element.get("id") in self._matter:
            return self._matter[element.get("id")]
        types = f"{element.get('epub:type', '')} {element.get('role', '').removeprefix('doc-')}"
        classes = f"{element.get('class', '')} {element.get('id', '')}"
        reasons = [*map(TYPES.get, types.split()), *map(_CLASSES.get, classes.lower().split())]
        return next(filter(None, reasons), None)

    def _is_note_mark(self, element: etree._Element) -> bool:
        text = ""
        for piece in element.itertext():
            text += piece
            if len(text) > MAX_NOTE_MARK:
                return False
        if not _NOTE_MARK.fullmatch(text):
            return False
        if element.tag == "a":
            return "#" in element.get("href", "")
        return len(element) > 0 or not text.strip().isdecimal() or not _BASE.search(self.pieces[-1])


def _is_heading(element: etree._Element) -> bool:
    if element.tag in _HEADINGS:
        return True
    return element.tag in ("p", "div") and not _HEADING_TYPES.isdisjoint(element.get("epub:type", "").split())


def _is_hidden(element: etree._Element) -> bool:
    if element.get("hidden") is not None or element.get("aria-hidden") == "true":
        return True
    return _HIDDEN.search(element.get("style", "")) is not None


def _has_only_links(element: etree._Element) -> bool:
    # An element that contains only links is an entry of a table of contents.
    between = element.text or ""
    links = 0
    for child in element:
        if child.tag not in ("a", "br") or "://" in child.get("href", ""):
            return False
        links += "href" in child.attrib
        between += child.tail or ""
    return links > 0 and not _LETTER.search(between)
