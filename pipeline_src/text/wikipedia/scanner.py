"""Remove or resolve the nested and the opaque parts of wikitext, each in one pass and in linear time."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable
from functools import cache

from pipeline_src.text.wikipedia.formulas import code_text, formula_text
from pipeline_src.text.wikipedia.locale import VARIANTS
from pipeline_src.text.wikipedia.markers import BREAK, FORMULA, GONE, JOINER, PLACEHOLDER

# Elements whose content is not prose. ``nowiki`` is here because its content is text, even if it looks like markup.
OPAQUE = """ref references math chem ce gallery timeline syntaxhighlight source score imagemap hiero graph mapframe
    maplink templatestyles section inputbox pre code table indicator poem categorytree dynamicpagelist nowiki
    includeonly style""".split()
REPLACED = frozenset("ce chem hiero syntaxhighlight source score".split())
# These stand between paragraphs, as a list does, unless they are "inline": the sentence before may lead to them.
BLOCKS = frozenset(
    """gallery imagemap table graph categorytree dynamicpagelist pre poem timeline syntaxhighlight source""".split()
)
_OPENER = re.compile(rf"<(?:!--|({'|'.join(OPAQUE)})\b)", re.IGNORECASE)
# Most elements are these: removed at C's speed, without a marker where nothing would use it. The next tag may begin
# within one: <ref name=a<ref>Reed</ref>
_PLAIN_REFERENCE = re.compile(r"<ref(?:(?<!\n<ref)|(?=[^<>]*<ref))(?:[^<>]*+<ref){0,2}[^<>]*?(?:/>|>[^<]*</ref>)(?!\w)")
# The content of these tags is shown.
_TRANSCLUSION = re.compile(r"</?(?:noinclude|onlyinclude)\s*/?>", re.IGNORECASE)
# of a tag: as in HTML, > may stand within quotes, but an open quote hides no tag
ATTRIBUTES = r"""(?:[^<>"'\n]++|\n(?!\n)|"[^"<\n]*"(?=[\s/>])|'[^'<\n]*'(?=[\s/>])|["'])*+"""
_TAG_END = re.compile(f"{ATTRIBUTES}>")
_ELEMENT = re.compile(rf"<(/?)([a-z][a-z0-9]*)\b{ATTRIBUTES}(?<!/)>", re.IGNORECASE)
# Struck text, and what a style, a class of MediaWiki's or most Wikipedias' style sheets, or an attribute hides.
_HIDES = re.compile(
    r"""<(?:del|s|strike)\b|display\s*:\s*none|visibility\s*:\s*(?:hidden|collapse)
    |\bclass\s*=[^<>=]*?(?<![\w-])(?:geo-nondefault|geo-multi-punct|geo-inline-hidden|mw-empty-elt|hiddenStructure
    |sortkey|nodisplay)(?![\w-])
    |\shidden(?=[\s=/>])(?=(?:[^"]*"[^"]*")*[^"]*\Z)  # outside of quotes
    """,
    re.IGNORECASE | re.VERBOSE,
)
_LITERAL = {ord(mark): f"&#{ord(mark)};" for mark in "{}[]|=<>'&*#:;"}
_DELIMITER = re.compile(r"\{\{+|\}\}+|\[\[|\]\]|\{\||\|\}(?=\}\}|[^}]|\Z)")
_BEFORE_TABLE = f" \t:{GONE}"
# A minus before {{…}} is none.
_CONVERSION = r"-\{(?:(?!\{)|(?=\{\{(?!\{)))"
_OPEN_CONVERSION = re.compile(_CONVERSION)
_CONVERSION_PART = re.compile(rf"{_CONVERSION}|\{{\{{|\}}\}}|\}}-")
_FLAGS = re.compile(r"[\w\s;+-]*")
# Conversions within each other, as in MediaWiki.
MAX_CONVERSIONS = 10
# Unclosed delimiters that one closing delimiter may jump over.
MAX_UNCLOSED = 8


def drop_elements(text: str) -> str:
    """Remove comments and the elements of ``OPAQUE`` with their content.

    Formulas and code stay if they are short enough to read as text; otherwise a placeholder replaces them. An element
    without words leaves a marker (markers.py).

    An unclosed element loses only its tag; an unclosed comment extends to the end, as in MediaWiki. A closing tag that
    is known to be absent is not searched for again, hence linear time.
    """
    if "include>" in text:
        text = _TRANSCLUSION.sub("", text)
    if "<nowiki" not in text:
        text = _PLAIN_REFERENCE.sub("", text)
    out: list[str] = []
    done = 0
    absent: set[str] = set()
    lower = ""
    for match in _OPENER.finditer(text):
        start = match.start()
        if start < done:
            continue
        out.append(text[done:start])
        if match[1] is None:
            end = text.find("-->", start + 4)
            if end < 0:
                return "".join(out)
            done = end + 3
            if start and text[start - 1] == "\n":
                if text[done : done + 1] == "\n":
                    # A line with only a comment is no line.
                    done += 1
                else:
                    out.append(GONE)
            continue
        name = match[1].lower()
        tag = _TAG_END.match(text, match.end())
        if tag:
            tag_end = tag.end() - 1
        else:
            tag_end = -1 if ">" in absent else text.find(">", match.end())
        if tag_end < 0:
            absent.add(">")
            done = match.end()
            continue
        done = tag_end + 1
        if text[tag_end - 1] == "/" or name in absent:
            out.append(JOINER if name == "nowiki" and not _begins_line(text, start) else GONE)
            continue
        closer = f"</{name}"
        end = text.find(closer, tag_end)
        # It may be written in capitals.
        if end < 0:
            # lower() may change a length (İ); then positions no longer match and only the plain spelling counts
            lower = lower or (text.lower() if len(text.lower()) == len(text) else text)
            end = lower.find(closer, tag_end)
        if end < 0:
            absent.add(name)
            continue
        if name == "nowiki":
            out.append(text[done:end].translate(_LITERAL))
        elif name == "math":
            rendered = formula_text(text[done:end])
            own_line = rendered and _begins_line(text, start)
            out.append(f"{FORMULA}{rendered}{FORMULA}" if own_line else rendered or PLACEHOLDER)
        elif name == "code":
            out.append(code_text(text[done:end]) or PLACEHOLDER)
        elif name in BLOCKS and "inline" not in text[match.end() : tag_end]:
            out += (BREAK, PLACEHOLDER, BREAK)
        elif name in REPLACED:
            out.append(PLACEHOLDER)
        else:
            out.append(GONE)
        done = text.find(">", end) + 1
        if not done:
            absent.add(">")
            done = end + len(closer)
    out.append(text[done:])
    return "".join(out)


def drop_hidden(text: str) -> str:
    """Remove the elements that a style, a class or an attribute hides, and struck text.

    ``The mill<span style="display:none">000</span> stands``. An unclosed element loses only its tag.
    """
    unclosed: defaultdict[str, list[re.Match[str]]] = defaultdict(list)
    hidden: list[tuple[int, int]] = []
    for tag in _ELEMENT.finditer(text):
        openers = unclosed[tag[2].lower()]
        if not tag[1]:
            openers.append(tag)
        elif openers:
            opener = openers.pop()
            if _HIDES.search(opener[0]):
                while hidden and hidden[-1][0] > opener.start():
                    hidden.pop()
                # What the closing tag ends is ended without the element, too.
                hidden.append((opener.start(), tag.start()))
    out: list[str] = []
    done = 0
    for start, end in hidden:
        out += (text[done:start], GONE)
        done = end
    return "".join(out) + text[done:]


def choose_variants(text: str, language: str) -> str:
    """Resolve the language converter's ``-{…}-``, innermost first.

    An opening delimiter without a closing one is removed.
    """
    language = language.partition("-")[0]
    if language not in VARIANTS:
        return text
    # Text before each open -{, and number of templates open there.
    stack: list[tuple[list[str], int]] = []
    current: list[str] = []
    templates = done = position = 0
    while match := (_CONVERSION_PART if stack else _OPEN_CONVERSION).search(text, position):
        start, position = match.span()
        if match[0] == "{{":
            templates += 1
        elif match[0] == "}}":
            if templates:
                templates -= 1
            else:
                # "}}-" may be "}" and "}-".
                position -= 1
        elif match[0] == "-{":
            if len(stack) < MAX_CONVERSIONS:
                current.append(text[done:start])
                stack.append((current, templates))
                current, templates, done = [], 0, position
        elif not templates:
            current.append(text[done:start])
            shown = _converted("".join(current), language)
            current, templates = stack.pop()
            current.append(shown)
            done = position
    return "".join("".join(before) for before, _ in stack) + "".join(current) + text[done:]


# The words of -{body}- in the first of the language's VARIANTS that it has, else in any.
# See https://www.mediawiki.org/wiki/Writing_systems/Syntax.
def _converted(body: str, language: str) -> str:
    rules = body
    flags, bar, rest = body.partition("|")
    if bar and _FLAGS.fullmatch(flags):
        rules = rest
        names = set(flags.upper().replace(";", " ").split())
        # Rules for the rest of the page, or for its title.
        if names & {"H", "T", "-"}:
            return ""
        # The flag R: the body has no rules.
        if "R" in names:
            return rules
        # All rules or a variant, described in words that MediaWiki has.
        if names & {"D", "N"}:
            return PLACEHOLDER
    separator, variant = _rule_patterns(language)
    texts: dict[str, str] = {}
    for rule in separator.split(rules):
        match = variant.match(rule)
        if match:
            texts.setdefault(match[1].lower(), rule[match.end() :].strip())
        elif rule.strip():
            # Text that is not converted.
            return rules
    return next((texts[code] for code in [*VARIANTS[language].split(), language, *texts] if code in texts), "")


# Patterns of what separates rules (zh-hans:text or text=>zh-hans:text), and of a rule's start.
@cache
def _rule_patterns(language: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    # Inuktitut (iu) has the code ike-cans.
    code = rf"(?:{language}|ike)(?:-[a-z]+)*"
    return (
        re.compile(rf";(?=\s*{code}\s*:|[^;]*?=>\s*{code}\s*:|\s*\Z)", re.IGNORECASE),
        re.compile(rf"(?:(?s:.*?)=>)?\s*({code})\s*:", re.IGNORECASE),
    )


def resolve(text: str, link: Callable[[str], str], template: Callable[[str], str]) -> str:
    """Replace ``[[…]]`` by ``link(…)`` and ``{{…}}`` by ``template(…)``; drop ``{|…|}``.

    Closing delimiters without an opener are removed. An unclosed template or table loses only its first line, so
    that an editor's slip costs a line, not an article.
    """
    current: list[str] = []
    # Text before each open delimiter, and its kind: { [ |.
    stack: list[tuple[list[str], str]] = []
    done = 0
    for match in _DELIMITER.finditer(text):
        start, end = match.span()
        mark = text[start]
        if mark == "{":
            if text[end - 1] == "|":
                if not _begins_line(text, start):
                    # A table begins a line; elsewhere {| is text.
                    continue
                current.append(text[done:start])
                stack.append((current, "|"))
                current = []
            else:
                current.append(text[done:start])
                for _ in range((end - start) // 2):
                    stack.append((current, "{"))
                    current = []
            done = end
        elif mark == "[":
            current.append(text[done:start])
            stack.append((current, "["))
            current = []
            done = end
        elif mark == "]":
            current.append(text[done:start])
            done = end
            if stack and stack[-1][1] == "[":
                body = "".join(current)
                current = stack.pop()[0]
                current.append(link(body))
        elif mark == "}":
            current.append(text[done:start])
            done = end
            for _ in range((end - start) // 2):
                depth = _opener(stack, "{")
                if depth < 0:
                    break
                # The text of unclosed links inside stays.
                while len(stack) > depth + 1:
                    inner, (current, _kind) = current, stack.pop()
                    current.extend(inner)
                body = "".join(current)
                current = stack.pop()[0]
                current.append(template(body))
        else:
            depth = _opener(stack, "|")
            if depth < 0:
                continue
            current = stack[depth][0]
            # This tells that the sentence before introduced a table.
            current.append(f"!\n{GONE}")
            del stack[depth:]
            done = end
    current.append(text[done:])
    return _unwind(stack, current)


def _begins_line(text: str, position: int) -> bool:
    while position and text[position - 1] in _BEFORE_TABLE:
        position -= 1
    return not position or text[position - 1] == "\n"


# Around unclosed delimiters, the text stays without the first line after each open template or table.
def _unwind(stack: list[tuple[list[str], str]], end: list[str]) -> str:
    texts = ["".join(text) for text, _ in stack] + ["".join(end)]
    out = texts[:1]
    skipping = False
    for (_, kind), segment in zip(stack, texts[1:], strict=True):
        skipping = skipping or kind != "["
        if skipping:
            line_end = segment.find("\n")
            if line_end < 0:
                continue
            segment, skipping = segment[line_end:], False
        out.append(segment)
    return "".join(out)


def _opener(stack: list[tuple[list[str], str]], kind: str) -> int:
    for depth in range(len(stack) - 1, max(-1, len(stack) - 1 - MAX_UNCLOSED), -1):
        if stack[depth][1] == kind:
            return depth
    return -1
