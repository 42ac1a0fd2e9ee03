"""The peers that clean wikitext, each called as its own program calls it, without the files it would write."""

from __future__ import annotations

import re
from html import escape
from io import StringIO

import mwparserfromhell
from wikiextractor.extract import _DEFAULT_IGNORED_TAG_PATTERNS, Extractor, ignoreTag

_TAGS = [*_DEFAULT_IGNORED_TAG_PATTERNS, ignoreTag("a")]
_FILE = re.compile(r"^(?:file|image|media):", re.IGNORECASE)
_CATEGORY = re.compile(r"^category:", re.IGNORECASE)
_SWITCH = re.compile(r"__[A-Z]*__")


def escaped(text: str) -> str:
    # The article as XML of a dump, which wikiextractor reads.
    return escape(text, quote=False)


def wikiextractor(text: str) -> str:
    """Return the ``--text`` output of wikiextractor 3.1.0 for one article, without template definitions."""
    out = StringIO()
    lines = text.splitlines(keepends=True)
    extractor = Extractor(
        "1", "1", "https://en.wikipedia.org/wiki", "Title", lines, to_text=True, ignored_tag_patterns=_TAGS
    )
    extractor.extract(out, html_safe=False)
    return out.getvalue()


def tfds(text: str) -> str:
    """The cleaner that TensorFlow Datasets and Hugging Face's ``wikipedia`` publish, by their description.

    Section by section: links to files go, links to categories keep the name, references and tables go, and
    mwparserfromhell's ``strip_code`` does the rest (headings and lists stay, templates go); then magic words go.
    """
    sections = []
    for section in mwparserfromhell.parse(text).get_sections(flat=True, include_lead=True, include_headings=True):
        for link in section.filter_wikilinks(recursive=True):
            if _FILE.match(str(link.title)):
                _remove(section, link)
            elif _CATEGORY.match(str(link.title)):
                link.text = _CATEGORY.sub("", str(link.title))
        for tag in section.filter_tags(matches=lambda tag: str(tag.tag) in {"ref", "table"}, recursive=True):
            _remove(section, tag)
        sections.append(_SWITCH.sub("", section.strip_code().strip()))
    return "\n\n".join(sections)


def _remove(section: mwparserfromhell.wikicode.Wikicode, node: mwparserfromhell.nodes.Node) -> None:
    try:
        section.remove(node)
    except ValueError:
        # The node was inside another node that has already been removed.
        pass
