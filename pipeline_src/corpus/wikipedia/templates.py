"""The text of templates, by the tables of the wiki's language (``tables/<language>.yaml``).

A template that no table knows may have words. It leaves a hole, and the sentence with the hole is dropped (prose.py),
so that no sentence loses a part silently. Only a template known to have no words is removed without a trace.

Each part of a table lists names in lower case between commas. ``infobox*`` is every name that begins with ``infobox``,
``*-stub`` every name that ends with ``-stub``.

- ``nothing``: no words in the sentence (references, maintenance, boxes next to the text);
- ``shows``: a form, and the templates with it. In a form ``{1}`` is the first argument without a name, ``{last}`` the
  last, ``{lt|2}`` the one named ``lt``, else the second. A part in ``< >`` is left out unless all its arguments are
  given and not empty: ``HMS {1}< ({2})>``;
- ``calls``: a function (template_functions.py), its parameter after a blank, and the templates that it computes;
- ``breaks``: ``list``, ``quote`` and ``paragraph``: templates that end the paragraph;
- ``computed``: words that only the wiki's server knows: a hole that no table can close;
- ``dates``: names of the months after a day (``months``) and ``alone``, the text ``between`` the parts of a date, and
  the ``first`` day of a month. ``numbers.tsv`` has each language's way to write numbers.

English counts in every language, since most wikis have its most frequent templates; a language's own table comes first.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from html import unescape
from typing import Any

import yaml

from pipeline_src.corpus.wikipedia.locale import TABLES, Locale, read_locale
from pipeline_src.corpus.wikipedia.markers import BOX, BREAK, FIRST_NAME, GONE, LAST_NAME, MARKS, NAMES, PLACEHOLDER
from pipeline_src.corpus.wikipedia.template_arguments import Arguments, Handler
from pipeline_src.corpus.wikipedia.template_functions import FUNCTIONS

_TOKEN = re.compile(r"\{([^{}]+)\}|<|>")
Part = str | tuple[str, ...] | list["Part"]  # text, the names of an argument, an optional part


def compile_pattern(pattern: str) -> Handler:
    """Return the handler of a form; it returns None, for a hole, if the form needs arguments and there are none."""
    parts = _parse(pattern)
    if not any(isinstance(part, (tuple, list)) for part in parts):
        if any(map(str.isalpha, pattern)):  # a unit, which may be written with its number: a hole
            return lambda arguments: None if any(arguments.plain[:1]) else pattern
        return lambda _: pattern
    if pattern in ("{1}", "{last}"):  # the most frequent
        key = pattern[1:-1]
        return lambda arguments: arguments.get(key)
    needed = any(isinstance(part, tuple) for part in parts)
    return lambda arguments: None if needed and arguments.raw is None else _show(parts, arguments, optional=False)


def _parse(pattern: str) -> list[Part]:
    stack: list[list[Part]] = [[]]
    done = 0
    for token in _TOKEN.finditer(pattern):
        if token.start() > done:
            stack[-1].append(pattern[done : token.start()])
        done = token.end()
        if token[0] == "<":
            stack.append([])
        elif token[0] == ">":
            part = stack.pop()
            stack[-1].append(part)
        else:
            stack[-1].append(tuple(token[1].split("|")))
    if done < len(pattern):
        stack[-1].append(pattern[done:])
    (parts,) = stack  # a form with < and without > is a mistake in the table
    return parts


def _show(parts: list[Part], arguments: Arguments, *, optional: bool) -> str | None:
    """Return the text of ``parts``; None if an argument is missing, or empty in an ``optional`` part."""
    out = []
    for part in parts:
        if isinstance(part, str):
            out.append(part)
        elif isinstance(part, list):
            out.append(_show(part, arguments, optional=True) or "")
        else:
            values = [value for key in part if (value := arguments.get(key)) is not None]
            value = next((value for value in values if value), None if optional or not values else "")
            if value is None:
                return None
            out.append(value)
    return "".join(out)


COMMON = "en"
MAX_CACHED = 100_000  # cached names


class TemplateTable:
    """The handler of each known template of one language."""

    def __init__(self, locale: Locale) -> None:
        self.locale = locale
        self._exact: dict[str, Handler] = {}
        self._beginnings: dict[str, Handler] = {}
        self._endings: dict[str, Handler] = {}
        self._cache: dict[str, Handler | None] = {}

    @property
    def names(self) -> list[str]:
        """The known names, except those listed with a ``*``."""
        return list(self._exact)

    def add(self, names: str, handler: Handler) -> None:
        """Add templates by their names, between commas; of a name in several tables, the first table counts."""
        for listed in names.split(","):
            name = unescape(" ".join(listed.split()))  # &comma; in a list between commas
            if name.endswith("*") and len(name) > 1:
                self._beginnings.setdefault(name[:-1], handler)
            elif name.startswith("*") and len(name) > 1:
                self._endings.setdefault(name[1:], handler)
            elif name:
                self._exact.setdefault(name, handler)

    def find(self, name: str) -> Handler | None:
        """Return the handler of the template ``name`` (lower case), or None."""
        handler = self._exact.get(name)
        if handler is None:
            if name in self._cache:
                return self._cache[name]
            handler = self._find_by_affix(name)
            if len(self._cache) < MAX_CACHED:
                self._cache[name] = handler
        return handler

    def _find_by_affix(self, name: str) -> Handler | None:
        for size in range(min(len(name), 40), 0, -1):  # the longest match counts
            for affixes, affix in ((self._beginnings, name[:size]), (self._endings, name[-size:])):
                if affix in affixes:
                    return affixes[affix]
        return None


@cache
def template_table(language: str) -> TemplateTable:
    """Return the table of ``language`` (``pt-br``: that of ``pt``), with English as fallback."""
    base = language.partition("-")[0]
    contents = [
        yaml.safe_load(path.read_text(encoding="utf-8"))
        for code in dict.fromkeys((language, base, COMMON))
        if (path := TABLES / f"{code}.yaml").exists()
    ]
    table_content = contents[0] if len(contents) > 1 or base == COMMON else {}
    table = TemplateTable(read_locale(base, table_content.get("dates", {})))
    for content in contents:
        _read(content, table)
    return table


def languages() -> list[str]:
    """Return the languages with a table."""
    return sorted(path.stem for path in TABLES.glob("*.yaml"))


def _read(content: dict[str, Any], table: TemplateTable) -> None:
    for pattern, names in content.get("shows", {}).items():
        table.add(names, compile_pattern(pattern))
    for call, names in content.get("calls", {}).items():
        function, _, parameter = call.partition(" ")
        table.add(names, FUNCTIONS[function](parameter))
    for kind, names in content.get("breaks", {}).items():
        table.add(names, BREAKS[kind])
    table.add(content.get("computed", ""), lambda _: None)
    table.add(content.get("nothing", ""), lambda _: "")


BREAKS: dict[str, Handler] = {
    "list": lambda _: f"\n*\n{GONE}",  # tells that the sentence before introduced a list
    # The introduction of a quotation often is half a sentence, so they are one paragraph, which ends there.
    "quote": lambda arguments: (
        f"{text}{BREAK}" if (text := arguments.get("1") or arguments.get("text") or arguments.get("quote")) else ""
    ),
    "paragraph": lambda _: BREAK,
}


_CALL = re.compile(r"#?\w+\Z")  # a function of the parser, before its colon
MAX_NAME_LENGTH = 80  # characters of a template's name that are kept for the statistics
MAX_NAMES = ord(LAST_NAME) - ord(FIRST_NAME)


class TemplateExpander:
    """Expands the templates of one page.

    Attributes:
        unknown: number of sentences (or asides in brackets) dropped, by name of the template whose words are unknown.
    """

    def __init__(self, language: str, unknown: Counter[str]) -> None:
        self.unknown = unknown
        self._table = template_table(language)
        self._numbers: dict[str, int] = {}  # of templates whose words are unknown
        self._names: list[str] = []  # by number

    def expand(self, body: str) -> str:
        """Return the words of ``{{body}}``, or a marker (markers.py) if they are unknown or there are none.

        Links and templates within ``body`` are already text.
        """
        if GONE in body:
            body = body.replace(GONE, "")
        spelling, bar, arguments = body.partition("|")
        spelling = spelling.strip()
        name = spelling.lower()
        handler = self._table.find(name)
        if handler is None:
            name = _normal(name)
            handler = self._table.find(name)
        if handler is None and ":" in name:
            name, handler = _parser_function(name, self._table)
        if handler is None:
            return BOX if "\n" in body else self._hole(name)
        spelling = spelling.rpartition(":")[2].strip()  # without a namespace
        words = handler(Arguments(spelling, arguments if bar else None, self._table.locale))
        return self._hole(name) if words is None else words or GONE

    def count(self, sentence: str) -> None:
        """Count the templates that left holes in ``sentence``; call it for sentences dropped because of holes."""
        if len(self._names) < len(self._numbers):
            self._names = list(self._numbers)
        for mark in set(NAMES.findall(sentence)):
            number = ord(mark) - ord(FIRST_NAME)
            if number < len(self._names):  # else the page itself has this character
                self.unknown[self._names[number]] += 1

    def _hole(self, name: str) -> str:
        number = self._numbers.setdefault(name[:MAX_NAME_LENGTH], min(len(self._numbers), MAX_NAMES))
        return chr(ord(FIRST_NAME) + number) + PLACEHOLDER


def _normal(name: str) -> str:
    name = " ".join((name if name.isascii() else MARKS.sub("", name)).replace("_", " ").split())
    if ":" not in name:
        return name
    for prefix in ("template:", "subst:", "safesubst:", "msg:", "msgnw:"):
        name = name.removeprefix(prefix).lstrip()
    return name


def _parser_function(name: str, table: TemplateTable) -> tuple[str, Handler | None]:
    """Return the function's name and handler of ``{{formatnum:4000}}``, ``{{DEFAULTSORT:Lincoln}}``, ``{{#if:a}}``.

    Any other word before a colon may be the namespace of templates, in the language of the wiki.
    """
    function, _, value = name.partition(":")
    known = table.find(f"{function}:") if _CALL.match(function) else None
    if known is None:  # {{Vorlage:Lang|la|colonia}}
        return name, table.find(value.strip()) if function.replace(" ", "").isalpha() else None

    def call(arguments: Arguments) -> str | None:
        return known(Arguments(function, f"{value}|{arguments.raw or ''}", arguments.locale))

    return f"{function}:", call
