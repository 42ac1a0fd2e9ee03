"""How good a cleaner's output is, judged against what mwparserfromhell's parse tree says about the page.

The judge shares no code with the cleaner. It reads the tree of a page into units: paragraphs, which are prose, and
headings, list lines, table cells, captions, references, template arguments and sections of sources, which are not.
What a template or formula would show is unknown to it, so no n-gram runs across one. Where the tree has one amid a
sentence, and the output has the words before and after it with nothing between them, words are missing, unless the
page says them so elsewhere.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import mwparserfromhell
from mwparserfromhell import nodes

# Words of an n-gram.
N = 5
# Fewest words of a paragraph that must survive.
FEWEST_WORDS = 15
END_MATTER = re.compile(
    r"(?:references?|notes|notes and references|references and notes|footnotes|citations|sources|bibliography|"
    r"see also|further reading|external links|works cited|publications|gallery|discography|filmography|"
    r"selected bibliography|.*\bbibliography|"
    r"note|bibliografia|voci correlate|altri progetti|collegamenti esterni|filmografia|discografia|galleria)$"
)
HIDDEN = "file|image|media|category|immagine|categoria"
HIDDEN_LINK = re.compile(rf":?\s*(?:(?:{HIDDEN})\s*:|[a-z]{{2,3}}(?:-[a-z-]+)?\s*:(?=\S))", re.IGNORECASE)
# Such a link is not parsed, since a tag in it may end beyond it.
FILE = re.compile(r"\[\[\s*(?:file|image|immagine)\s*:", re.IGNORECASE)
# Templates that hold prose: quotations, in Italian also words that an editor doubts.
QUOTES = {"quote", "blockquote", "cquote", "quotation", "bquote", "quote box"} | {
    "citazione",
    "q",
    "cit",
    "citazione necessaria",
    "senza fonte",
    "chiarire",
}
INLINE = """b i u s em strong small big sub sup span div center blockquote abbr cite font p q tt var ins del strike
    nowiki includeonly onlyinclude dfn samp kbd bdi poem section""".split()
# Stand for what the tree does not tell: what a template shows, and a formula or code.
UNKNOWN, FORMULA = "\x00", "\x02"
# Stands for a template that is known to show no words.
NOTHING = "\x03"
# Families of templates that show no words: notes and sources, doubts of editors, anchors, blanks, boxes and notices.
NAMES = r"""cite|citations?|harvid|sfn\w*|efn\w*|refn|refs?|reflist|rp|r|fn|nb|notes?|note ?tag|note label|
    ref label|cref2?|cn|facts?|when|who|where|why|how|which|whom|by whom|according to whom|says who|clarify|vague|
    dubious|specify|verify|full|check|weasel|peacock|pov|or|page needed|not in source|qualify evidence|quantify|syn|
    what|huh|elaborate|vs|fv|dn|request quotation|anchors?|shortcut|clear|clr|-|main|see also|further|details|about|
    for|hatnote|distinguish|redirect\d?|other uses|nbsp|nobreak space|spaces?|sp|thinsp|hairsp|zwsp|shy|wbr|br|
    break|unicode|portal|portal bar|toc\w*|good article|featured article|multiple images?|listen|video|image|
    wide image|location map|flag ?icon|legend|defaultsort|displaytitle|#tag:ref|ref-\w+|link \w+|use \w+ \w+|
    engvar\w?|short description|refimprove|unreferenced|subscription required|registration required|dead ?link|
    webarchive|wayback|cbignore|inflation-?\w*|
    citazione necessaria|senza fonte|chiarire"""
BEGINNINGS = r"""cite|citation|infobox|taxobox|geobox|navbox|sidebar|pp|efn|sfn|ref|expand|update|cleanup|quote box|
    wik\w+|commons|campaignbox|use|bots|ipa|refn|anchor"""
ENDINGS = "needed|inline|stub|infobox|sidebar|navbox|verification|source|statement|icon|taxobox|box"
SHOWS_NOTHING = re.compile(
    rf"(?:{NAMES})\??\Z|(?:{BEGINNINGS})\b(?!.*\bspan\b)|.*(?:{ENDINGS})\??\Z".replace("\n    ", "")
)
# A template's name between its marks.
NAMED = re.compile(f"{UNKNOWN}[^{UNKNOWN}]*{UNKNOWN}")
# Templates alone on their line.
BY_ITSELF = re.compile(f"(?:{UNKNOWN}[^{UNKNOWN}]*{UNKNOWN}|{NOTHING}|{FORMULA}|\\s)+")
# Letters on each side of a template.
CONTEXT = 24
# Fewest letters on both sides together that tell whether they were joined.
JOINED = 6
# Begins a list line.
LIST = "\x01"
# Begins a list line that is written without wikitext.
TYPED_LIST = ("- ", "• ")
QUOTE_MARKS = re.compile(r"('{2,}|\n)")
# Unclosed tags such as "<small>", and switches such as "__NOTOC__".
LEFT_OVER = re.compile(rf"</?(?:{'|'.join(INLINE)})\b[^<>\n]*>|__[A-Z]{{3,}}__", re.IGNORECASE)
SENTENCE_END = re.compile(r"(?<=[.!?])[\"'”’)\]]*\s+(?=[\"'“‘(]*[^\W\d_a-z])")
# Most characters of a line that is figures, and no prose about them.
LONGEST_FIGURES = 120
FULL_STOP = re.compile(r"[.!?…][\"'”’)\]]*$")

MARKUP = re.compile(
    r"\{\{|\}\}|\[\[|\]\]|\{\||\|\}|\|-|==|''|<!--|-->|__[A-Z]{3,}__|\[https?:|"
    r"</?(?:ref|references|br|sub|sup|div|span|small|big|math|gallery|nowiki|center|blockquote|table|tr|td|th|li|ul|ol|"
    r"code|pre|font|p|b|i|u)\b[^<>\n]*>?|&(?:[a-z]{2,8}|#\d{2,6}|#x[0-9a-f]{2,5});|"
    r"\b(?:file|image|category):\S|\b(?:thumb|right|left|\d+px)\||^[*#:;|!]",
    re.IGNORECASE | re.MULTILINE,
)
HOLES = re.compile(
    r"\([ ,;:]*\)|\( *[,;:]|[(\[] |[,;:] ?\)| \)|(?<=\w) [,;:.](?=\s)|,[ ]?,|;[ ]?[;,]|(?<=[\w,;(])  +(?=\S)"
)


@dataclass(frozen=True)
class Paragraph:
    """Runs of words, split at unknown parts: of all its sentences, and of those that any cleaner should keep.

    A cleaner may leave out a sentence with a formula or code in it, a last sentence without a full stop (it announces
    a list, table or formula) and a first one that begins with a small letter (the rest of a sentence before those).
    """

    runs: list[list[str]]
    due: list[list[str]]


@dataclass
class Truth:
    """Parts of a page, as lists of words.

    Attributes:
        paragraphs: its prose, in order.
        seams: for each template or formula amid a sentence its name, and the letters before and after it.
        joined: the letters of each paragraph, with marks where it has templates and formulas.
        asides: prose that may be kept or not: quotations in templates, lines shown as typed.
        headings: the words of each heading.
        others: list lines, cells, captions, references, template arguments, sections of sources.
    """

    paragraphs: list[Paragraph] = field(default_factory=list)
    seams: list[tuple[str, str, str]] = field(default_factory=list)
    joined: list[str] = field(default_factory=list)
    asides: list[list[str]] = field(default_factory=list)
    headings: list[list[str]] = field(default_factory=list)
    others: list[list[str]] = field(default_factory=list)


@dataclass(frozen=True)
class Quality:
    """The figures of one cleaner over a set of pages; rates per MB are per 10⁶ bytes of its output.

    Attributes:
        markup_per_mb: marks, tags and entities of wikitext left.
        non_prose_percent: share of the output's characters in lines that are not prose (``is_prose``).
        headings: lines of the output that are a heading of the page.
        holes_per_mb: empty brackets, doubled or loose punctuation and spaces, as removed markup leaves them.
        missing_per_mb: places in a sentence where a template or formula shows words, and the output joins what stands
            before and after it. Templates count that are not of a family known to show nothing.
        ngrams_lost_percent: share of the 5-grams of the prose that the output lacks.
        paragraphs_lost_percent: share of the paragraphs with 15 words or more of which the output holds fewer than
            half of the 5-grams; sentences that may be left out (``Paragraph``) do not count.
        lead_ins_too_percent: the same where those sentences do count: the price of leaving them out.
    """

    markup_per_mb: float
    non_prose_percent: float
    headings: int
    holes_per_mb: float
    missing_per_mb: float
    ngrams_lost_percent: float
    paragraphs_lost_percent: float
    lead_ins_too_percent: float


def words(text: str) -> list[str]:
    # "²" counts as "2".
    return re.findall(r"\w+", unicodedata.normalize("NFKC", text).lower())


def ngrams(run: list[str]) -> Iterator[tuple[str, ...]]:
    # A run of fewer words is one n-gram.
    if run:
        for start in range(max(1, len(run) - N + 1)):
            yield tuple(run[start : start + N])


def read_truth(wikitext: str) -> Truth:
    truth = Truth()
    segment: list[nodes.Node] = []
    # Level of the section of sources that this is in; 0 outside of one.
    end_level = 0
    for node in [*_parse(wikitext).nodes, None]:
        if node is not None and not isinstance(node, nodes.Heading):
            segment.append(node)
            continue
        _read_lines(_flat(segment, truth), truth, end_level > 0)
        segment = []
        if node is not None:
            title = _words(node.title.nodes, truth)
            truth.headings.append(title)
            if not end_level or node.level <= end_level:
                end_level = node.level if END_MATTER.match(" ".join(title)) else 0
    return truth


def _parse(wikitext: str) -> mwparserfromhell.wikicode.Wikicode:
    # the parser hides whole sections within an unbalanced ''', so those marks are left to _text
    return mwparserfromhell.parse(wikitext, skip_style_tags=True)


def _read_lines(text: str, truth: Truth, end_matter: bool) -> None:
    block: list[str] = []
    for line in [*_plain(text).split("\n"), ""]:
        bare = line.strip()
        if FILE.match(bare):
            truth.others.append(words(bare))
            continue
        typed = bare.startswith(TYPED_LIST) or _is_figures(bare)
        if bare and not typed and line[0] not in " |!{}" and line[0] != LIST:
            block.append(bare)
            continue
        if block:
            text = " ".join(block)
            paragraph = _paragraph(text)
            if end_matter:
                truth.others.extend(paragraph.runs)
            else:
                truth.paragraphs.append(paragraph)
                # A box or list below the paragraph.
                while block and BY_ITSELF.fullmatch(block[-1]):
                    block.pop()
                truth.seams.extend(_seams(" ".join(block)))
                truth.joined.append(letters(NAMED.sub(UNKNOWN, text).replace(NOTHING, "")))
            block = []
        if bare:
            (truth.asides if line[0] == " " else truth.others).append(words(bare))


def _is_figures(line: str) -> bool:
    """Return whether at least half of a line's words hold digits: ``1 KiB = 1 024 B``, a reaction, a row of a table."""
    if UNKNOWN in line or FORMULA in line or len(line) > LONGEST_FIGURES:
        return False
    found = words(line)
    return 2 * sum(any(map(str.isdecimal, word)) for word in found) >= max(len(found), 1)


def _seams(text: str) -> Iterator[tuple[str, str, str]]:
    # What shows each template or formula amid a sentence, and the letters before and after it.
    parts = re.split(f"((?:{UNKNOWN}[^{UNKNOWN}]*{UNKNOWN}|{FORMULA})+)", text.replace(NOTHING, ""))
    for index in range(1, len(parts), 2):
        before, after = parts[index - 1], parts[index + 1]
        if not before.strip() and index > 1 or not after.strip() and index + 2 < len(parts):
            continue
        between = not before.strip() or FULL_STOP.search(before.rstrip())
        if between and not after.lstrip()[:1].islower():
            # A whole sentence, or a mark after one, for all the judge can tell.
            continue
        name = parts[index].replace(UNKNOWN, " ").replace(FORMULA, "formula").strip()
        yield name, letters(before)[-CONTEXT:] or "\n", letters(after)[:CONTEXT] or "\n"


def letters(text: str) -> str:
    """``text`` without blanks and capitals, compatibility characters as plain ones; line breaks stay."""
    return re.sub(r"[^\S\n]+", "", unicodedata.normalize("NFKC", text).lower())


def _paragraph(text: str) -> Paragraph:
    text = NAMED.sub(UNKNOWN, text).replace(NOTHING, UNKNOWN)
    sentences = SENTENCE_END.split(text)
    due = [sentence for sentence in sentences if FORMULA not in sentence]
    if due and due[-1] is sentences[-1] and not FULL_STOP.search(due[-1].rstrip(f" {UNKNOWN}")):
        due.pop()
    if due and due[0] is sentences[0] and due[0].lstrip(f" {UNKNOWN}")[:1].islower():
        due.pop(0)
    return Paragraph(_runs(text), [run for sentence in due for run in _runs(sentence)])


def _runs(text: str) -> list[list[str]]:
    return [run for part in re.split(f"[{UNKNOWN}{FORMULA}]", text) if (run := words(part))]


def _words(tree: Iterable[nodes.Node], truth: Truth) -> list[str]:
    return words(_plain(_flat(tree, truth)))


def _plain(text: str) -> str:
    """``text`` without marks of bold and italics, and without what the parser left of an element it could not read.

    Three marks after a letter that two close are an apostrophe and italics: ``dell'''Iliade''``.
    """
    parts = QUOTE_MARKS.split(LEFT_OVER.sub("", text))
    bold = False
    for index in range(1, len(parts), 2):
        before, mark, following = parts[index - 1], parts[index], "".join(parts[index + 2 : index + 3])
        if mark == "\n":
            bold = False
        elif mark == "'''" and not bold and following == "''" and before[-1:].isalpha():
            parts[index] = "'"
        else:
            parts[index] = "'" if len(mark) == 4 else ""
            bold ^= len(mark) > 2
    return "".join(parts)


def _flat(tree: Iterable[nodes.Node], truth: Truth) -> str:
    # What is not prose goes to the truth on the way.
    return "".join(_text(node, truth) for node in tree)


def _text(node: nodes.Node, truth: Truth) -> str:
    if isinstance(node, nodes.Text):
        return str(node.value)
    if isinstance(node, nodes.HTMLEntity):
        return node.normalize()
    if isinstance(node, nodes.Wikilink):
        if HIDDEN_LINK.match(str(node.title)) and (node.text is None or not str(node.title).startswith(":")):
            for argument in str(node.text or "").split("|")[-1:]:
                truth.others.append(_words(_parse(argument).nodes, truth))
            truth.others.append(words(str(node.title)))
            return ""
        return _flat((node.title if node.text is None else node.text).nodes, truth)
    if isinstance(node, nodes.ExternalLink):
        return _flat(node.title.nodes, truth) if node.title is not None else ""
    if isinstance(node, nodes.Template):
        quoted = str(node.name).strip().lower() in QUOTES
        for parameter in node.params:
            (truth.asides if quoted else truth.others).append(_words(parameter.value.nodes, truth))
        return NOTHING if _shows_nothing(node) else f"{UNKNOWN}{' '.join(str(node.name).split())}{UNKNOWN}"
    if isinstance(node, nodes.Tag):
        return _tag(node, truth)
    return "" if isinstance(node, nodes.Comment) else f"{UNKNOWN}argument{UNKNOWN}"


def _shows_nothing(template: nodes.Template) -> bool:
    name = " ".join(str(template.name).replace("_", " ").split()).lower()
    if name == "coord":
        titles = [str(parameter.value) for parameter in template.params if "display" in str(parameter.name)]
        return any("title" in where and "inline" not in where for where in titles)
    return SHOWS_NOTHING.match(name) is not None


def _tag(node: nodes.Tag, truth: Truth) -> str:
    name = str(node.tag).strip().lower()
    if node.wiki_markup in ("*", "#", ":", ";"):
        return LIST
    if name in ("br", "hr"):
        return " " if name == "br" else "\n\n"
    contents = _flat(node.contents.nodes, truth) if node.contents is not None else ""
    if name in INLINE:
        return contents
    # A table or reference that was never closed: who knows what is in it.
    misread = "\n==" in str(node)
    (truth.asides if misread else truth.others).extend(words(line) for line in _plain(contents).split("\n"))
    if name == "table":
        return "\n\n"
    return "" if name in ("ref", "references", "gallery", "td", "tr", "th") else FORMULA


class _Judge:
    def __init__(self, truth: Truth) -> None:
        self.truth = truth
        runs = [run for paragraph in truth.paragraphs for run in paragraph.runs] + truth.asides
        self.prose = {gram for run in runs for gram in ngrams(run)}
        self.short = f" {' | '.join(' '.join(run) for run in runs)} "
        self.headings = {tuple(heading) for heading in truth.headings}
        self.units = self.headings | {tuple(unit) for unit in truth.others}

    def is_prose(self, line: list[str]) -> bool:
        # Half of the line's 5-grams must be in paragraphs; a shorter line must be in one, and be no other part.
        if len(line) < N:
            return tuple(line) not in self.units and f" {' '.join(line)} " in self.short
        grams = list(ngrams(line))
        return 2 * sum(gram in self.prose for gram in grams) >= len(grams)


def judge(pages: list[Truth], outputs: list[str]) -> tuple[Quality, dict[str, list[str]]]:
    """Score a cleaner's outputs for pages; also returns what it flagged, for reading: lines, paragraphs, marks."""
    kinds = ("non-prose", "headings", "lost", "markup", "holes", "missing")
    flagged: dict[str, list[str]] = {kind: [] for kind in kinds}
    totals: Counter[str] = Counter()
    for truth, output in zip(pages, outputs, strict=True):
        judge_page = _Judge(truth)
        lines = [(line, words(line)) for line in output.split("\n") if line.strip()]
        got: set[tuple[str, ...]] = set()
        for line, tokens in lines:
            got.update(
                tuple(tokens[start : start + size])
                for size in range(1, N + 1)
                for start in range(len(tokens) - size + 1)
            )
            totals["characters"] += len(line)
            if tuple(tokens) in judge_page.headings:
                flagged["headings"].append(line)
            if not judge_page.is_prose(tokens):
                totals["non-prose"] += len(line)
                flagged["non-prose"].append(line)
        for paragraph in truth.paragraphs:
            num_kept, grams = _count(paragraph.runs, got)
            totals["grams"] += grams
            totals["kept"] += num_kept
            if sum(map(len, paragraph.runs)) >= FEWEST_WORDS:
                totals["paragraphs with all sentences"] += 1
                totals["lost with all sentences"] += 2 * num_kept < grams
            if sum(map(len, paragraph.due)) >= FEWEST_WORDS:
                num_kept, grams = _count(paragraph.due, got)
                totals["paragraphs"] += 1
                if 2 * num_kept < grams:
                    flagged["lost"].append(" … ".join(" ".join(run) for run in paragraph.runs))
        joined = f"\n{letters(output)}\n"
        page = "\n".join(["", *truth.joined, ""])
        for name, before, after in truth.seams:
            if len(before) + len(after) < JOINED or before + after not in joined:
                continue
            # The page may say the same elsewhere.
            if joined.count(before + after) > page.count(before + after):
                flagged["missing"].append(f"{before} {{{{{name}}}}} {after}")
        totals["bytes"] += len(output.encode())
        for name, pattern in (("markup", MARKUP), ("holes", HOLES)):
            flagged[name] += [output[max(0, hit.start() - 30) : hit.end() + 30] for hit in pattern.finditer(output)]
    megabytes = totals["bytes"] / 1e6
    quality = Quality(
        markup_per_mb=len(flagged["markup"]) / megabytes,
        non_prose_percent=100 * totals["non-prose"] / totals["characters"],
        headings=len(flagged["headings"]),
        holes_per_mb=len(flagged["holes"]) / megabytes,
        missing_per_mb=len(flagged["missing"]) / megabytes,
        ngrams_lost_percent=100 * (1 - totals["kept"] / totals["grams"]),
        paragraphs_lost_percent=100 * len(flagged["lost"]) / totals["paragraphs"],
        lead_ins_too_percent=100 * totals["lost with all sentences"] / totals["paragraphs with all sentences"],
    )
    return quality, flagged


def _count(runs: list[list[str]], got: set[tuple[str, ...]]) -> tuple[int, int]:
    # How many of the n-grams the output has, and how many there are.
    grams = [gram for run in runs for gram in ngrams(run)]
    return sum(gram in got for gram in grams), len(grams)
