"""Convert wikitext to prose: the text that a reader of the article sees, one paragraph per line."""

from __future__ import annotations

import re
from collections import Counter
from html import unescape

from pipeline_src.text.wikipedia.gaps import close_sentences, join_formulas
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
from pipeline_src.text.wikipedia.prose import is_paragraph, paragraphs
from pipeline_src.text.wikipedia.repair import repair
from pipeline_src.text.wikipedia.scanner import ATTRIBUTES, choose_variants, drop_elements, drop_hidden, resolve
from pipeline_src.text.wikipedia.siteinfo import BIDI_CONTROLS, ENGLISH, LANGUAGES, SiteInfo, is_file_name
from pipeline_src.text.wikipedia.templates import TemplateExpander
from pipeline_src.text.wikipedia.unit_templates import RAISED

_PLAIN_LINK = re.compile(r"\[\[(?!//)(?:[^\[\]{}|:\n]*\|)?([^\[\]{}|:\n]+)\]\]")
# Prefixes of links to other wikis and to the project pages of this wiki. [[wikt:word]] shows "word".
_PROJECTS = frozenset(
    """w wikipedia wp project wikt wiktionary s wikisource q wikiquote b wikibooks n wikinews
    v wikiversity voy wikivoyage c commons d wikidata m meta species wikispecies mw""".split()
)
_IPV6 = r"(?:\[[0-9a-fA-F:.]{2,45}\])?"
_EXTERNAL_LINK = re.compile(
    rf"\[(?:(?:(?:https?|ftp):)?//|mailto:)(?![\s\]]){_IPV6}[^\s\]\[<>\"']*+(?>(?:'(?!')[^\s\]\[<>\"']*+)*)[ \t]*"
    # The words of the link, which may contain brackets: [http://a.b The mill [sic] is old]
    r"([^\]\[\n]{0,400}+(?>(?:\[[^\]\[\n]{0,100}+\][^\]\[\n]{0,400}+){0,3}))\]",
    re.IGNORECASE,
)
_BARE_ADDRESS = re.compile(rf"https?://{_IPV6}(?>(?:[^\s<>\[\]|\"'{JOINER}{MARKERS}]++|'(?!'))*)")
_ADDRESS = re.compile(r"//\S*\s*")


def _tag(names: str, slash: str = "/?") -> str:
    return rf"(?i:<{slash}(?:{names})\b)(?=[^<]{{0,600}}>){ATTRIBUTES}>"


# A tag. Words without a value are not attributes, so "x <y and y> z" has no tag.
_TAG = re.compile(_tag(r"[a-z][a-z0-9]{0,20}\b(?!\s+\w+\s+\w+[\s>]|[,;)])"))
_ITEM = re.compile(_tag("li|dd|dt", ""))
_LINE_BREAK = re.compile(_tag("br"))
_BLOCK = re.compile(
    _tag(
        "p|blockquote|div|center|h[1-6]|hr|section|article|aside|main|header|footer|figure|figcaption|table|tr|td|th|caption"
    )
)
_POWER = re.compile(_tag("sup", "") + "([0-9+−–-]{1,6})</sup>")
# A hand-written reference: word<sup>1</sup>and
_FOOTNOTE = re.compile(_tag("sup", "") + "[0-9*†‡]{1,3}</sup>(?=[a-z]{2})")
# A degree sign: 10<sup>o</sup>C
_DEGREE = re.compile(r"<sup>(?<=\d<sup>)[oº]</sup>(?=\s?[CFNSEW]\b)")
# Exponents such as x<sup>n</sup> and 2<sup>n+1</sup>, but not 4<sup>th</sup>, n<sup>o</sup>, M<sup>me</sup>,
# 5<sup>h</sup>
_EXPONENT = re.compile(
    r"<sup>(?:(?<=[\W\d_][^\W\d_]<sup>)|(?<=[\d)\]]<sup>))"
    r"([+−–-]?\d{0,3}(?:[bcfgi-lnpqu-zα-ω]|m(?<!\d<sup>m))(?:[+−–-]\d{1,3})?)</sup>"
)
# An index is written with "_", since a<sub>n</sub> would look like the word "an". C<sub>n</sub>H and pK<sub>a</sub> get
# no such mark.
_INDEX = re.compile(r"<sub>(?<=[\s\d([=+−–*·,/][a-zα-ω]<sub>)(\d{0,3}[^\W\d_]{1,3}(?:[+−–-]\d{1,3})?)</sub>(?![\w<])")
_LIST_END = re.compile(r"</(?:ol|ul|dl)\b", re.IGNORECASE)
# An index whose base was a template.
_BASELESS = re.compile(r"<sub>(?<=[\s(]<sub>)")
# Italics followed by an apostrophe: ''Iliad'''s
_POSSESSIVE = re.compile(r"(?<!')''(?!')([^'\n]{1,100})'''(?=s\b)")
# An apostrophe followed by italics: dell'''Iliade''
_ELISION = re.compile(r"'''(?<=[^\W\d_]''')(?=\w)((?:[^'\n]|'(?!')){1,100})''(?!')")
_ELIDED = re.compile(r"(?:^|[^\w'])(?:l|d|un|(?:de|a|da|ne|su|que)ll|[cnsjmt]|qu)\Z", re.IGNORECASE)
# "(r. {{reign|1066|1087}})" gives two abbreviations: one from the page, one from the template.
TWICE = ("r. r. ", "c. c. ", "fl. fl. ")
_TWICE = re.compile(r"(?<!\w)(r|c|fl)\. \1\. (?=\d)")
_PAGE_NAME = re.compile(r"\{\{(?:FULL|BASE)?PAGENAME\}\}")
_SWITCH = re.compile(r"(?:__|＿＿)(?=[^\W\d_])([^\s<>\[\]{}|=＿]{2,60}?)(?:__|＿＿)")
# Behavior switches that MediaWiki also accepts in lower case. Other words, such as Python's __init__, are text.
_SWITCHES = frozenset("toc forcetoc notoc noeditsection nogallery notitleconvert notc nocontentconvert nocc".split())
_HEADING = re.compile(r"\n(={1,6})([^\n]*)")
# Remove carriage returns and invisible characters.
_BLANKS = dict.fromkeys("\r\u00ad\u200b\u2060\ufeff" + BIDI_CONTROLS, "")
# Replace special spaces (first string) and all line breaks but "\\n" (second string) by a space.
_BLANKS |= dict.fromkeys("\t\u00a0\u2009\u202f" + "\v\f\x1c\x1d\x1e\x1f\x85\u2028\u2029", " ")
# Stand for &lt; and &gt; until tags are removed, since they do not form tags.
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
    Templates and short formulas in a sentence are replaced by the text that readers see. If this text is unknown, or a
    formula does not fit on a line, the sentence is dropped (templates.py, formulas.py). The function accepts any text
    without raising an error, and takes time linear in its length.

    Args:
        dropped: incremented by the number of dropped sections and lines, by reason.
        unknown: incremented by the number of dropped sentences and asides, by the name of the template that costs them.
        title: title of the page, which replaces {{PAGENAME}}; '' if unknown.
        lists: ``drop`` drops all lists. ``sentences`` keeps list items that are whole sentences.

    Returns:
        Paragraphs of prose, one per line, without blank lines; '' if the page has none.
    """
    language = siteinfo.language
    dropped = Counter() if dropped is None else dropped
    templates = TemplateExpander(language, Counter() if unknown is None else unknown)

    # Whole elements and sections are removed first, so that no time is spent on what they contain.
    if title and "PAGENAME}}" in text:
        text = _PAGE_NAME.sub(lambda _: title, text)
    if "<" in text:
        text = drop_elements(text)
    if "-{" in text:
        text = choose_variants(text, language)
    text = cut_sections(text, siteinfo.sections, dropped)

    # Then each kind of markup is replaced by the text that it shows.
    # Equals _PLAIN_LINK.sub(r"\1", text), but takes a third of the time.
    text = "".join(_PLAIN_LINK.split(text))
    text = resolve(text, lambda body: link_text(body, siteinfo.hidden), templates.expand)
    if any(twice in text for twice in TWICE):
        text = _TWICE.sub(r"\1. ", text)
    if "//" in text or "mailto:" in text:
        text = _BARE_ADDRESS.sub(_after_address, "".join(_EXTERNAL_LINK.split(text)))
    if "''" in text:
        text = _without_bold_and_italics(text)
    if "&" in text:
        text = _resolve_entities(text)
    if "<" in text:
        text = _resolve_tags(drop_hidden(text))
    if "__" in text or "＿＿" in text:
        text = _SWITCH.sub(_behavior_switch, text)
    for character, plain in _BLANKS.items():
        if character in text:
            text = text.replace(character, plain)

    # Where the text of a template or formula is unknown, the sentence is repaired or dropped.
    text = resolve_sounds(text)
    if PLACEHOLDER in text:
        text = close_sentences(text)
    if FORMULA in text:
        text = join_formulas(text)

    # Of the lines, those that are prose are kept.
    text = "\n".join(paragraphs(text, dropped, language, templates.count, lists))
    # Markers that are still here were characters of the page itself.
    if any(mark in text for mark in MARKERS):
        text = MARKS.sub("", text)
    repaired = (repair(line, language) for line in text.split("\n"))
    return "\n".join(paragraph for paragraph in repaired if is_paragraph(paragraph, language))


def _without_bold_and_italics(text: str) -> str:
    if "'''" in text:
        if "'''s" in text:
            text = _POSSESSIVE.sub(r"\1'", text)
        text = _ELISION.sub(_elision, text)
    return text.replace("'''''", "").replace("'''", "").replace("''", "")


def _resolve_entities(text: str) -> str:
    text = _ANGLE.sub(lambda entity: LESS if entity[1] else GREATER, text)
    # Two apostrophes as entities are a quotation mark, since the markup of italics is gone.
    return unescape(text).replace("''", '"')


def _resolve_tags(text: str) -> str:
    if "<sup" in text:
        text = _FOOTNOTE.sub(GONE, text)
        text = _POWER.sub(lambda power: power[1].translate(RAISED), text)
        text = _DEGREE.sub("°", text)
        text = _EXPONENT.sub(r"^\1", text)
    if "<li" in text or "<dd" in text or "<dt" in text:
        text = _ITEM.sub("\n* ", text)
        text = _LIST_END.sub(rf"\n{GONE}\g<0>", text)
    if "<sub>" in text:
        text = _BASELESS.sub(PLACEHOLDER, text)
        text = _INDEX.sub(r"_\1", text)
    text = _LINE_BREAK.sub(" ", text)
    text = _BLOCK.sub(BREAK, text)
    return _TAG.sub("", text)


def _after_address(match: re.Match[str]) -> str:
    # Keep the punctuation after an address, which belongs to the sentence: "(see http://a.b/c_(d))." keeps ")."
    address = match[0].rstrip(".,;:!?")
    if address.count(")") > address.count("("):
        address = address.removesuffix(")").rstrip(".,;:!?")
    return match[0][len(address) :]


def _behavior_switch(match: re.Match[str]) -> str:
    # Remove a behavior switch such as __NOTOC__. It is in capitals, in another script, or one of _SWITCHES in lower
    # case.
    name = match[1]
    return "" if not name.isascii() or name.isupper() or name.lower() in _SWITCHES else match[0]


def _elision(match: re.Match[str]) -> str:
    before = match.string[max(0, match.start() - 6) : match.start()]
    return f"'{match[1]}" if _ELIDED.search(before) else match[0]


def link_text(body: str, hidden: frozenset[str]) -> str:
    # Return the label of a link, or its target if it has no label. Links to files, categories and other languages show
    # nothing.
    # [[//example.org words]] is an external link in brackets.
    if body.startswith("//"):
        return _ADDRESS.sub("", body, count=1)
    # The template {{!}} stands for "|".
    if "&#124;" in body and "|" not in body:
        body = body.replace("&#124;", "|")
    target, bar, _ = body.partition("|")
    prefix, colon, name = target.partition(":")
    if colon:
        prefix = prefix.replace("_", " ").strip(f" {GONE}{BIDI_CONTROLS}").lower()
        if prefix in hidden or _is_file(prefix, name, body) or (not bar and prefix in LANGUAGES and name[:1].strip()):
            return GONE
        if not bar:
            # [[:Category:Rivers]] shows "Category:Rivers".
            if not prefix:
                prefix, colon, after = name.partition(":")
                return after if colon and _is_elsewhere(prefix) and after.strip() else name
            return name if _is_elsewhere(prefix) and name.strip() else target
    if "\n\n" in body:
        # An unclosed "[[" was paired with a stray "]]" in another paragraph: this is text, not a link.
        return body
    label = body[body.rfind("|") + 1 :] if bar else target
    return label or target.lstrip(":")


def _is_file(prefix: str, name: str, body: str) -> bool:
    # Recognise a file by its name, since no list has all prefixes of file links.
    # A title may look like a file name: [[Error: x.pdf|this]]
    is_words = name[:1].isspace() and body.count("|") < 2
    is_title = prefix == "" or "\n" in prefix or is_words or _is_elsewhere(prefix)
    return is_file_name(name) and not is_title


def _is_elsewhere(prefix: str) -> bool:
    prefix = prefix.strip().lower()
    return prefix in _PROJECTS or prefix in LANGUAGES


def cut_sections(text: str, titles: frozenset[str], dropped: Counter[str]) -> str:
    # Remove the sections whose lower-case heading is in `titles`, with all their subsections.
    out: list[str] = []
    kept_from: int | None = 0
    cut_level = 0
    # So that every heading follows a line break.
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
