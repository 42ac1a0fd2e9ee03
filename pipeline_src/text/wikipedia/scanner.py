"""Resolve or remove the nested parts of wikitext, each kind in one pass and in linear time."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable
from functools import cache

from pipeline_src.text.wikipedia.formulas import code_text, formula_text
from pipeline_src.text.wikipedia.locale import VARIANTS
from pipeline_src.text.wikipedia.markers import BREAK, FORMULA, GONE, JOINER, PLACEHOLDER

# Elements whose content is not parsed as wikitext. The content of ``nowiki`` is kept as text, even if it looks like
# markup.
OPAQUE = """ref references math chem ce gallery timeline syntaxhighlight source score imagemap hiero graph mapframe
    maplink templatestyles section inputbox pre code table indicator poem categorytree dynamicpagelist nowiki
    includeonly style""".split()
REPLACED = frozenset("ce chem hiero syntaxhighlight source score".split())
# Elements that stand between paragraphs unless they have the attribute "inline". Like a list, they may be introduced by
# the sentence before them.
BLOCKS = frozenset(
    """gallery imagemap table graph categorytree dynamicpagelist pre poem timeline syntaxhighlight source""".split()
)
_OPENER = re.compile(rf"<(?:!--|({'|'.join(OPAQUE)})\b)", re.IGNORECASE)
# Most elements are plain references. One substitution removes them fast, without a marker, since none is needed here.
# Due to slips of editors, a tag may begin inside another: <ref name=a<ref>Reed</ref>
_PLAIN_REFERENCE = re.compile(r"<ref(?:(?<!\n<ref)|(?=[^<>]*<ref))(?:[^<>]*+<ref){0,2}[^<>]*?(?:/>|>[^<]*</ref>)(?!\w)")
# Tags that are removed while their content is shown.
_TRANSCLUSION = re.compile(r"</?(?:noinclude|onlyinclude)\s*/?>", re.IGNORECASE)
# The attributes of a tag. As in HTML, ">" may stand inside quotes, but an unclosed quote does not hide the end of the
# tag.
ATTRIBUTES = r"""(?>(?:[^<>"'\n]++|\n(?!\n)|"[^"<\n]*"(?=[\s/>])|'[^'<\n]*'(?=[\s/>])|["'])*)"""
_TAG_END = re.compile(f"{ATTRIBUTES}>")
_ELEMENT = re.compile(rf"<(/?)([a-z][a-z0-9]*)\b{ATTRIBUTES}(?<!/)>", re.IGNORECASE)
# The opening tags of struck text, and of elements that are hidden by a style, an attribute, or a class in the style
# sheets of MediaWiki or of most Wikipedias.
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
# A minus sign before a template ("-{{…}}") does not open a conversion.
_CONVERSION = r"-\{(?:(?!\{)|(?=\{\{(?!\{)))"
_OPEN_CONVERSION = re.compile(_CONVERSION)
_CONVERSION_PART = re.compile(rf"{_CONVERSION}|\{{\{{|\}}\}}|\}}-")
_FLAGS = re.compile(r"[\w\s;+-]*")
# Maximum depth of nested conversions, as in MediaWiki.
MAX_CONVERSIONS = 10
# A closing delimiter may skip at most this many unclosed delimiters to find its opener.
MAX_UNCLOSED = 8


def drop_elements(text: str) -> str:
    """Remove comments and the elements of ``OPAQUE`` with their content.

    Formulas and code are kept if they are short enough to read as text; otherwise a placeholder replaces them. An
    element without words leaves a marker (markers.py).

    As in MediaWiki, an unclosed comment extends to the end of the page. Of an unclosed element, only the tag is
    removed. A closing tag that was not found once is never searched for again, so the function takes linear time.
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
                    # Remove a line that has only a comment.
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
        # The closing tag may be in capitals.
        if end < 0:
            # lower() may change the length of a text ("İ"), so that positions no longer match. Then capitals are not
            # found.
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
    """Remove struck text, and elements that are hidden by a style, a class or an attribute.

    In ``The mill<span style="display:none">000</span> stands``, the span is removed. The content of an unclosed element
    is kept.
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
                # The closing tag is kept in the text, where a later step removes it like any other tag.
                hidden.append((opener.start(), tag.start()))
    out: list[str] = []
    done = 0
    for start, end in hidden:
        out += (text[done:start], GONE)
        done = end
    return "".join(out) + text[done:]


def choose_variants(text: str, language: str) -> str:
    """Resolve ``-{…}-`` of MediaWiki's language converter, innermost first.

    An unclosed opening delimiter is removed.
    """
    language = language.partition("-")[0]
    if language not in VARIANTS:
        return text
    # For each open "-{", the text before it, and the number of templates that are open there.
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
                # "}}-" may be "}" followed by the closing delimiter "}-".
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


def _converted(body: str, language: str) -> str:
    # Return the words of -{body}- in the first of the language's VARIANTS that it has, else in any other variant. See
    # https://www.mediawiki.org/wiki/Writing_systems/Syntax.
    rules = body
    flags, bar, rest = body.partition("|")
    if bar and _FLAGS.fullmatch(flags):
        rules = rest
        names = set(flags.upper().replace(";", " ").split())
        # The flags H, T and -: the rules are for the rest of the page or for its title, so nothing is shown here.
        if names & {"H", "T", "-"}:
            return ""
        # The flag R: the body is raw text without rules.
        if "R" in names:
            return rules
        # The flags D and N: MediaWiki shows a description of the rules or the name of a variant.
        if names & {"D", "N"}:
            return PLACEHOLDER
    separator, variant = _rule_patterns(language)
    texts: dict[str, str] = {}
    for rule in separator.split(rules):
        match = variant.match(rule)
        if match:
            texts.setdefault(match[1].lower(), rule[match.end() :].strip())
        elif rule.strip():
            # A part that is not a rule: the body is plain text.
            return rules
    return next((texts[code] for code in [*VARIANTS[language].split(), language, *texts] if code in texts), "")


@cache
def _rule_patterns(language: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    # Return patterns for the separator between rules, and for the start of a rule (zh-hans:text or text=>zh-hans:text).
    # Variants of Inuktitut (iu) have codes that begin with "ike": ike-cans.
    code = rf"(?:{language}|ike)(?:-[a-z]+)*"
    return (
        re.compile(rf";(?=\s*{code}\s*:|[^;]*?=>\s*{code}\s*:|\s*\Z)", re.IGNORECASE),
        re.compile(rf"(?:(?s:.*?)=>)?\s*({code})\s*:", re.IGNORECASE),
    )


def resolve(text: str, link: Callable[[str], str], template: Callable[[str], str]) -> str:
    """Replace ``[[…]]`` by ``link(…)`` and ``{{…}}`` by ``template(…)``; drop ``{|…|}``.

    A closing delimiter without an opening one is removed. Of an unclosed template or table, only the first line is
    removed, so that a slip of an editor costs one line and not the whole article.
    """
    current: list[str] = []
    # For each open delimiter, the text before it, and its kind: "{", "[" or "|".
    stack: list[tuple[list[str], str]] = []
    done = 0
    for match in _DELIMITER.finditer(text):
        start, end = match.span()
        mark = text[start]
        if mark == "{":
            if text[end - 1] == "|":
                if not _begins_line(text, start):
                    # A table begins on a new line. Elsewhere "{|" is text.
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
                # Keep the text of unclosed links inside the template.
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
            # prose.py then knows that the sentence before may have introduced a table.
            current.append(f"!\n{GONE}")
            del stack[depth:]
            done = end
    current.append(text[done:])
    return _unwind(stack, current)


def _begins_line(text: str, position: int) -> bool:
    while position and text[position - 1] in _BEFORE_TABLE:
        position -= 1
    return not position or text[position - 1] == "\n"


def _unwind(stack: list[tuple[list[str], str]], end: list[str]) -> str:
    # Return the text around unclosed delimiters, without the first line of each unclosed template or table.
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
