"""Wikitext to prose: what a reader of the article would call its text, one paragraph a line."""

from __future__ import annotations

import re
from collections import Counter
from html import unescape

from pipeline_src.wikipedia.placeholders import PLACEHOLDER, resolve_sounds, without_marks
from pipeline_src.wikipedia.prose import is_whole, mend, paragraphs
from pipeline_src.wikipedia.scanner import drop_elements, resolve
from pipeline_src.wikipedia.siteinfo import ENGLISH, SiteInfo
from pipeline_src.wikipedia.templates import expand
from pipeline_src.wikipedia.unit_templates import RAISED

_PLAIN_LINK = re.compile(r"\[\[(?:[^\[\]{}|:\n]*\|)?([^\[\]{}|:\n]+)\]\]")
_LANGUAGE_LINK = re.compile(r"[a-z]{2,3}(?:-[a-z-]+)?:\S")  # [[de:Erde]]: the same article elsewhere
_PROJECT = re.compile(r":?(?:[a-z]{1,3}|wikt|wiktionary|wikisource|commons|[Ww]ikipedia):(?=\S)")  # [[wikt:word]]
_EXTERNAL_LINK = re.compile(r"\[(?:(?:https?|ftp)?:?//|mailto:)[^\s\]\[<>\"]+[ \t]*([^\]\[\n]{0,400})\]", re.IGNORECASE)
_BARE_ADDRESS = re.compile(r"https?://[^\s<>\[\]|)\"]+")
_ITEM = re.compile(r"<(?:li|dd|dt)\b[^<>\n]{0,600}>", re.IGNORECASE)
_LIST_END = re.compile(r"</(?:ol|ul|dl)\b", re.IGNORECASE)
_POWER = re.compile(r"<sup>([0-9+−–-]{1,6})</sup>")
_BASELESS = re.compile(r"<sub>(?<=[\s(]<sub>)")  # the letter before it was a template
_TAG = re.compile(r"</?[a-zA-Z][a-zA-Z0-9]{0,20}\b[^<>\n]{0,600}>")
_BREAK = re.compile(r"<br[ /]*>", re.IGNORECASE)
_POSSESSIVE = re.compile(r"(?<!')''(?!')([^'\n]{1,100})'''(?=s\b)")  # ''Iliad'''s: italics, then an apostrophe
_ELISION = re.compile(r"'''(?<=[^\W\d_]''')(?=\w)([^'\n]{1,100})''(?!')")  # dell'''Iliade'': an apostrophe, italics
_ELIDED = re.compile(r"(?:^|[^\w'])(?:l|d|un|(?:de|a|da|ne|su|que)ll|[cnsjmt]|qu)\Z", re.IGNORECASE)
_SWITCH = re.compile(r"__[A-Z]{3,}__")
_HEADING = re.compile(r"\n(={1,6})([^\n]*)")
_BLANKS = {"\r": "", "\u200b": "", "\u200e": "", "\ufeff": ""}
_BLANKS |= dict.fromkeys("\t\u00a0\u2009\u202f" + "\v\f\x1c\x1d\x1e\x1f\x85\u2028\u2029", " ")  # the latter break lines


def clean(text: str, siteinfo: SiteInfo = ENGLISH, dropped: Counter[str] | None = None) -> str:
    """Turn the wikitext of one page into prose.

    Lists, tables, headings, references, captions, categories, formulas and galleries go, and so do whole sections
    without prose; templates that are part of a sentence are expanded. Never raises; takes time linear in ``text``.

    Args:
        text: wikitext as the editor typed it (the XML's escapes already undone), without lone surrogates.
        siteinfo: the wiki it comes from.
        dropped: is given the number of sections and lines left out, by reason.

    Returns:
        Paragraphs of prose, one a line, without blank lines; '' where the page has none.
    """
    dropped = Counter() if dropped is None else dropped
    if "<" in text:
        text = drop_elements(text)
    text = cut_sections(text, siteinfo.sections, dropped)
    text = "".join(_PLAIN_LINK.split(text))  # as sub(r"\1"), in a third of its time
    text = resolve(text, lambda body: link_text(body, siteinfo.hidden), expand)
    if "//" in text or "mailto:" in text:
        text = _BARE_ADDRESS.sub("", "".join(_EXTERNAL_LINK.split(text)))
    if "'''" in text:
        if "'''s" in text:
            text = _POSSESSIVE.sub(r"\1'", text)
        text = _ELISION.sub(_elision, text)
    if "''" in text:
        text = text.replace("'''''", "").replace("'''", "").replace("''", "")
    if "&" in text:
        text = unescape(text).replace("''", '"')
    if "<sup>" in text:
        text = _POWER.sub(lambda power: power[1].translate(RAISED), text)
    if "<" in text:
        if "<li" in text or "<dd" in text or "<dt" in text:
            text = _LIST_END.sub(r"\n\g<0>", _ITEM.sub("\n* ", text))
        if "<sub>" in text:
            text = _BASELESS.sub(PLACEHOLDER, text)
        text = _TAG.sub("", _BREAK.sub(" ", text))
    if "__" in text:
        text = _SWITCH.sub("", text)
    for blank, plain in _BLANKS.items():
        if blank in text:
            text = text.replace(blank, plain)
    prose = paragraphs(resolve_sounds(text), dropped, siteinfo.language)
    mended = (mend(without_marks(paragraph)) for paragraph in prose)
    return "\n".join(paragraph for paragraph in mended if is_whole(paragraph))


def _elision(match: re.Match[str]) -> str:
    before = match.string[max(0, match.start() - 6) : match.start()]
    return f"'{match[1]}" if _ELIDED.search(before) else match[0]


def link_text(body: str, hidden: frozenset[str]) -> str:
    """The words that ``[[body]]`` shows: its label, else its target; '' for files, categories and other languages."""
    target, bar, _ = body.partition("|")
    prefix, colon, _ = target.partition(":")
    if colon:
        if prefix.strip().lower() in hidden or (_LANGUAGE_LINK.match(target) and not bar):
            return ""
        if not bar:
            return _PROJECT.sub("", target)
    if "\n\n" in body:
        return body  # an opener without its closer met a stray closer: this is text, not a link
    label = body[body.rfind("|") + 1 :] if bar else target
    return label or target.lstrip(":")


def cut_sections(text: str, titles: frozenset[str], dropped: Counter[str]) -> str:
    """Leave out the sections called one of ``titles`` (lower case), with all their subsections."""
    out: list[str] = []
    kept_from: int | None = 0
    cut_level = 0
    text = f"\n{text}"  # so that every heading follows a line break
    for match in _HEADING.finditer(text):
        line = match[2].rstrip()
        level = min(len(match[1]), len(line) - len(line.rstrip("=")))
        if level == 0:
            continue
        if kept_from is None and level <= cut_level:
            kept_from = match.start()
        if kept_from is not None and line.strip("= '\t:").lower() in titles:
            out.append(text[kept_from : match.start()])
            kept_from, cut_level = None, level
            dropped["section"] += 1
    if kept_from is not None:
        out.append(text[kept_from:])
    return "".join(out)
