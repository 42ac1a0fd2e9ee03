"""Wikitext to prose: the text that a reader of the article sees, one paragraph per line."""

from __future__ import annotations

import re
from collections import Counter
from html import unescape

from pipeline_src.text.wikipedia.markers import (
    BREAK,
    FORMULA,
    GONE,
    JOINER,
    MARKERS,
    MARKS,
    PLACEHOLDER,
    resolve_sounds,
)
from pipeline_src.text.wikipedia.prose import close_sentences, is_paragraph, join_formulas, paragraphs, repair
from pipeline_src.text.wikipedia.scanner import ATTRIBUTES, choose_variants, drop_elements, drop_hidden, resolve
from pipeline_src.text.wikipedia.siteinfo import BIDI_CONTROLS, ENGLISH, LANGUAGES, SiteInfo, is_file_name
from pipeline_src.text.wikipedia.templates import TemplateExpander
from pipeline_src.text.wikipedia.unit_templates import RAISED

_PLAIN_LINK = re.compile(r"\[\[(?!//)(?:[^\[\]{}|:\n]*\|)?([^\[\]{}|:\n]+)\]\]")
# Prefixes of links to other wikis, and to this one's own pages about itself: [[wikt:word]] shows the word.
_PROJECTS = frozenset(
    """w wikipedia wp project wikt wiktionary s wikisource q wikiquote b wikibooks n wikinews
    v wikiversity voy wikivoyage c commons d wikidata m meta species wikispecies mw""".split()
)
_IPV6 = r"(?:\[[0-9a-fA-F:.]{2,45}\])?"
_EXTERNAL_LINK = re.compile(
    rf"\[(?:(?:(?:https?|ftp):)?//|mailto:)(?![\s\]]){_IPV6}[^\s\]\[<>\"']*+(?:'(?!')[^\s\]\[<>\"']*+)*+[ \t]*"
    # its words, also some in brackets: [http://a.b The mill [sic] is old]
    r"([^\]\[\n]{0,400}+(?:\[[^\]\[\n]{0,100}+\][^\]\[\n]{0,400}+){0,3}+)\]",
    re.IGNORECASE,
)
_BARE_ADDRESS = re.compile(rf"https?://{_IPV6}(?:[^\s<>\[\]|\"'{JOINER}{MARKERS}]++|'(?!'))*+")
_ADDRESS = re.compile(r"//\S*\s*")


def _tag(names: str, slash: str = "/?") -> str:
    return rf"(?i:<{slash}(?:{names})\b)(?=[^<]{{0,600}}>){ATTRIBUTES}>"


# Words without a value are no attributes: x <y and y> z.
_TAG = re.compile(_tag(r"[a-z][a-z0-9]{0,20}\b(?!\s+\w+\s+\w+[\s>]|[,;)])"))
_ITEM = re.compile(_tag("li|dd|dt", ""))
_LINE_BREAK = re.compile(_tag("br"))
_BLOCK = re.compile(
    _tag(
        "p|blockquote|div|center|h[1-6]|hr|section|article|aside|main|header|footer|figure|figcaption|table|tr|td|th|caption"
    )
)
_POWER = re.compile(_tag("sup", "") + "([0-9+−–-]{1,6})</sup>")
# A reference written by hand: word<sup>1</sup>and
_FOOTNOTE = re.compile(_tag("sup", "") + "[0-9*†‡]{1,3}</sup>(?=[a-z]{2})")
# 10<sup>o</sup>C
_DEGREE = re.compile(r"<sup>(?<=\d<sup>)[oº]</sup>(?=\s?[CFNSEW]\b)")
# x<sup>n</sup>, 2<sup>n+1</sup>; not of the letters in 4<sup>th</sup>, n<sup>o</sup>, M<sup>me</sup>, 5<sup>h</sup>
_EXPONENT = re.compile(
    r"<sup>(?:(?<=[\W\d_][^\W\d_]<sup>)|(?<=[\d)\]]<sup>))"
    r"([+−–-]?\d{0,3}(?:[bcfgi-lnpqu-zα-ω]|m(?<!\d<sup>m))(?:[+−–-]\d{1,3})?)</sup>"
)
# a<sub>n</sub> would become a word; C<sub>n</sub>H and pK<sub>a</sub> are written without a mark
_INDEX = re.compile(r"<sub>(?<=[\s\d([=+−–*·,/][a-zα-ω]<sub>)(\d{0,3}[^\W\d_]{1,3}(?:[+−–-]\d{1,3})?)</sub>(?![\w<])")
_LIST_END = re.compile(r"</(?:ol|ul|dl)\b", re.IGNORECASE)
# The letter before it was a template.
_BASELESS = re.compile(r"<sub>(?<=[\s(]<sub>)")
# ''Iliad'''s: italics, then an apostrophe
_POSSESSIVE = re.compile(r"(?<!')''(?!')([^'\n]{1,100})'''(?=s\b)")
_ELISION = re.compile(
    r"'''(?<=[^\W\d_]''')(?=\w)((?:[^'\n]|'(?!')){1,100})''(?!')"
)  # dell'''Iliade'': an apostrophe, italics
_ELIDED = re.compile(r"(?:^|[^\w'])(?:l|d|un|(?:de|a|da|ne|su|que)ll|[cnsjmt]|qu)\Z", re.IGNORECASE)
# (r. {{reign|1066|1087}}): one is the page's, one the template's
TWICE = ("r. r. ", "c. c. ", "fl. fl. ")
_TWICE = re.compile(r"(?<!\w)(r|c|fl)\. \1\. (?=\d)")
_PAGE_NAME = re.compile(r"\{\{(?:FULL|BASE)?PAGENAME\}\}")
_SWITCH = re.compile(r"(?:__|＿＿)(?=[^\W\d_])([^\s<>\[\]{}|=＿]{2,60}?)(?:__|＿＿)")
# those that MediaWiki understands in small letters too, unlike Python's __init__
_SWITCHES = frozenset("toc forcetoc notoc noeditsection nogallery notitleconvert notc nocontentconvert nocc".split())
_HEADING = re.compile(r"\n(={1,6})([^\n]*)")
_BLANKS = dict.fromkeys(
    "\r\u00ad\u200b\u2060\ufeff" + BIDI_CONTROLS, ""
)  # the first ends lines, the others show nothing
# The second group of characters breaks lines.
_BLANKS |= dict.fromkeys("\t\u00a0\u2009\u202f" + "\v\f\x1c\x1d\x1e\x1f\x85\u2028\u2029", " ")
# &lt; and &gt;, which do not make tags
LESS, GREATER = "\ue006", "\ue007"
_BLANKS |= {LESS: "<", GREATER: ">"}
_ANGLE = re.compile(r"&(?:(lt|#0*60|#x0*3c)|gt|#0*62|#x0*3e);", re.IGNORECASE)


def clean(
    text: str,
    siteinfo: SiteInfo = ENGLISH,
    dropped: Counter[str] | None = None,
    unknown: Counter[str] | None = None,
    title: str = "",
    lists: str = "drop",
) -> str:
    """Turn the wikitext of one page into prose.

    Lists, tables, headings, references, captions, categories, galleries and sections without prose are removed.
    Templates and short formulas within a sentence become the text that readers see; if that is unknown or does not fit
    on a line, the sentence is dropped (templates.py, formulas.py). Never raises; takes time linear in ``text``.

    Args:
        dropped: incremented by the number of sections and lines left out, by reason.
        unknown: incremented by the number of sentences and asides left out, by name of the template that costs them.
        lists: ``drop`` or ``sentences``, which keeps the items of lists that are whole sentences.

    Returns:
        Paragraphs of prose, one per line, without blank lines; '' if the page has none.
    """
    dropped = Counter() if dropped is None else dropped
    templates = TemplateExpander(siteinfo.language, Counter() if unknown is None else unknown)
    if title and "PAGENAME}}" in text:
        text = _PAGE_NAME.sub(lambda _: title, text)
    if "<" in text:
        text = drop_elements(text)
    if "-{" in text:
        text = choose_variants(text, siteinfo.language)
    text = cut_sections(text, siteinfo.sections, dropped)
    # This does what sub(r"\1") does, in a third of its time.
    text = "".join(_PLAIN_LINK.split(text))
    text = resolve(text, lambda body: link_text(body, siteinfo.hidden), templates.expand)
    if any(twice in text for twice in TWICE):
        text = _TWICE.sub(r"\1. ", text)
    if "//" in text or "mailto:" in text:
        text = _BARE_ADDRESS.sub(_after_address, "".join(_EXTERNAL_LINK.split(text)))
    if "'''" in text:
        if "'''s" in text:
            text = _POSSESSIVE.sub(r"\1'", text)
        text = _ELISION.sub(_elision, text)
    if "''" in text:
        text = text.replace("'''''", "").replace("'''", "").replace("''", "")
    if "&" in text:
        text = _ANGLE.sub(lambda entity: LESS if entity[1] else GREATER, text)
        text = unescape(text).replace("''", '"')
    if "<" in text:
        text = drop_hidden(text)
    if "<sup" in text:
        text = _FOOTNOTE.sub(GONE, text)
        text = _POWER.sub(lambda power: power[1].translate(RAISED), text)
        text = _EXPONENT.sub(r"^\1", _DEGREE.sub("°", text))
    if "<" in text:
        if "<li" in text or "<dd" in text or "<dt" in text:
            text = _LIST_END.sub(rf"\n{GONE}\g<0>", _ITEM.sub("\n* ", text))
        if "<sub>" in text:
            text = _INDEX.sub(r"_\1", _BASELESS.sub(PLACEHOLDER, text))
        text = _TAG.sub("", _BLOCK.sub(BREAK, _LINE_BREAK.sub(" ", text)))
    if "__" in text or "＿＿" in text:
        text = _SWITCH.sub(_behavior_switch, text)
    for character, plain in _BLANKS.items():
        if character in text:
            text = text.replace(character, plain)
    text = resolve_sounds(text)
    if PLACEHOLDER in text:
        text = close_sentences(text)
    if FORMULA in text:
        text = join_formulas(text)
    text = "\n".join(paragraphs(text, dropped, siteinfo.language, templates.count, lists))
    # The page itself has such characters.
    if any(mark in text for mark in MARKERS):
        text = MARKS.sub("", text)
    repaired = (repair(line, siteinfo.language) for line in text.split("\n"))
    return "\n".join(paragraph for paragraph in repaired if is_paragraph(paragraph, siteinfo.language))


# The punctuation after an address is the sentence's: (see http://a.b/c_(d)). ends in ).
def _after_address(match: re.Match[str]) -> str:
    address = match[0].rstrip(".,;:!?")
    if address.count(")") > address.count("("):
        address = address.removesuffix(")").rstrip(".,;:!?")
    return match[0][len(address) :]


# __NOTOC__ is in capitals, in a script without them, or in the small letters of any language.
def _behavior_switch(match: re.Match[str]) -> str:
    name = match[1]
    return "" if not name.isascii() or name.isupper() or name.lower() in _SWITCHES else match[0]


def _elision(match: re.Match[str]) -> str:
    before = match.string[max(0, match.start() - 6) : match.start()]
    return f"'{match[1]}" if _ELIDED.search(before) else match[0]


# [[body]] shows its label, else its target; nothing for files, categories and other languages.
def link_text(body: str, hidden: frozenset[str]) -> str:
    # [[//example.org words]] is a link in brackets
    if body.startswith("//"):
        return _ADDRESS.sub("", body, count=1)
    # {{!}}
    if "&#124;" in body and "|" not in body:
        body = body.replace("&#124;", "|")
    target, bar, _ = body.partition("|")
    prefix, colon, name = target.partition(":")
    if colon:
        prefix = prefix.replace("_", " ").strip(f" {GONE}{BIDI_CONTROLS}").lower()
        if prefix in hidden or _is_file(prefix, name, body) or (not bar and prefix in LANGUAGES and name[:1].strip()):
            return GONE
        if not bar:
            # [[:Category:Rivers]] shows the whole name, [[:de:Erde]] too
            if not prefix:
                prefix, colon, after = name.partition(":")
                return after if colon and _is_elsewhere(prefix) and after.strip() else name
            return name if _is_elsewhere(prefix) and name.strip() else target
    if "\n\n" in body:
        # An unclosed opener met a stray closer: this is text, not a link.
        return body
    label = body[body.rfind("|") + 1 :] if bar else target
    return label or target.lstrip(":")


# No list has every prefix that a wiki understands, so that a name alone may tell.
def _is_file(prefix: str, name: str, body: str) -> bool:
    # [[Error: x.pdf|this]]
    is_words = name[:1].isspace() and body.count("|") < 2
    is_title = prefix == "" or "\n" in prefix or is_words or _is_elsewhere(prefix)
    return is_file_name(name) and not is_title


def _is_elsewhere(prefix: str) -> bool:
    prefix = prefix.strip().lower()
    return prefix in _PROJECTS or prefix in LANGUAGES


# titles are in lower case. A section goes with all its subsections.
def cut_sections(text: str, titles: frozenset[str], dropped: Counter[str]) -> str:
    out: list[str] = []
    kept_from: int | None = 0
    cut_level = 0
    # Now every heading follows a line break.
    text = f"\n{text}"
    for match in _HEADING.finditer(text):
        line = match[2].replace(GONE, "").rstrip()
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
