"""Expand templates to text by the table ``tables/templates.yaml``, which explains how to add a name.

A template that is not in the table may have words. It leaves a hole, and prose.py drops the sentence with the hole, so
that no sentence silently loses a part. Only templates that are known to have no words are removed without a hole.

A name is looked up in the wiki's own language first, then in English, which most wikis share. Last come names that mean
the same in every other language that has them.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from html import unescape
from typing import Any, NamedTuple

from pipeline_src.text.wikipedia.locale import TABLES, Locale, country_names, read_locale, read_table
from pipeline_src.text.wikipedia.markers import BOX, FIRST_NAME, GONE, LAST_NAME, MARKS, NAMES, PLACEHOLDER
from pipeline_src.text.wikipedia.template_arguments import Arguments, Handler
from pipeline_src.text.wikipedia.template_functions import FACTORIES, HANDLERS
from pipeline_src.text.wikipedia.unit_templates import raised

MEANINGS = TABLES / "templates.yaml"
COMMON = "en"
# A shorter name of another language is too likely to mean something else here.
MIN_SHARED_LENGTH = 5
# Maximum number of names in the cache.
MAX_CACHED = 100_000

_TOKEN = re.compile(r"\{([^{}]+)\}|<|>")


class Field(NamedTuple):
    # The place of an argument in a pattern: {lt|2}, or {2:USD=US$;EUR=€}, which maps values to words.
    keys: tuple[str, ...]
    mark: str
    words: dict[str, str] | None


# Part of a pattern: text, an argument, or an optional list of parts.
Part = str | Field | list["Part"]


def compile_pattern(pattern: str) -> Handler:
    # The handler returns None, which leaves a hole, if the pattern needs arguments and the call has none.
    parts = _parse(pattern)
    if not any(isinstance(part, (Field, list)) for part in parts):
        # A template with fixed words, such as a unit, may be called with a number. How it is shown is unknown: a hole.
        if any(map(str.isalpha, pattern)):
            return lambda arguments: None if any(arguments.plain[:1]) else pattern
        return lambda _: pattern
    # Most patterns are a single argument.
    if len(parts) == 1 and isinstance(parts[0], Field):
        field = parts[0]
        return lambda arguments: _value(field, arguments, optional=False)
    needed = any(isinstance(part, Field) and part.words is None for part in parts)
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
            stack[-1].append(_field(token[1]))
    if done < len(pattern):
        stack[-1].append(pattern[done:])
    # This fails if a pattern in the table has "<" without ">".
    (parts,) = stack
    return parts


def _field(text: str) -> Field:
    keys, has_words, words = text.partition(":")
    mark = keys[-1] if keys[-1] in "#.^" else ""
    pairs = [pair.split("=", 1) for pair in words.split(";")] if has_words else None
    return Field(tuple(keys.removesuffix(mark).split("|")), mark, None if pairs is None else dict(pairs))


def _show(parts: list[Part], arguments: Arguments, *, optional: bool) -> str | None:
    # Return None if an argument is missing or, in an optional part, empty.
    out = []
    for part in parts:
        if isinstance(part, str):
            out.append(part)
        elif isinstance(part, Field):
            value = _value(part, arguments, optional=optional)
            if value is None:
                return None
            out.append(value)
        else:
            out.append(_show(part, arguments, optional=True) or "")
    return "".join(out)


def _value(field: Field, arguments: Arguments, *, optional: bool) -> str | None:
    value = None
    for key in field.keys:
        # A key that begins with "=" is a default: {1|=e} gives "e" if there is no first argument.
        given = key[1:] if key[0] == "=" else arguments.get(key)
        if given:
            value = given
            break
        if given is not None:
            value = ""
    if field.words is not None:
        return field.words.get(value or "", field.words.get("*"))
    if not value:
        return None if optional else value
    if field.mark == "^":
        return raised(value)
    return arguments.locale.number(value, grouped=field.mark == "#") if field.mark else value


def choose(key: str, patterns: dict[str, str]) -> Handler:
    # Return a handler that chooses between several patterns by the value of one argument.
    field = _field(key)
    forms = {str(value): compile_pattern(pattern) for value, pattern in patterns.items()}

    def show(arguments: Arguments) -> str | None:
        form = forms.get(_value(field, arguments, optional=False) or "", forms.get("*"))
        return form(arguments) if form else None

    return show


# `word` replaces {word} in the pattern or call of a meaning.
def make_handler(meaning: dict[str, Any], word: str = "") -> Handler:
    if "call" in meaning:
        function, _, parameter = meaning["call"].replace("{word}", word).partition(" ")
        return HANDLERS[function] if function in HANDLERS else FACTORIES[function](parameter)
    if "by" in meaning:
        return choose(meaning["by"], {key: form.replace("{word}", word) for key, form in meaning["shows"].items()})
    return compile_pattern(meaning["shows"].replace("{word}", word))


class Names(NamedTuple):
    """Template names of one language that share a handler.

    Attributes:
        shown_alike: whether the handler adds no words of this language, so that other languages may use it.
    """

    language: str
    names: list[str]
    handler: Handler
    shown_alike: bool


@cache
def read_names() -> list[Names]:
    entries: list[Names] = []
    for meaning in read_table(MEANINGS):
        handler = make_handler(meaning)
        for language, listed in meaning.get("names", {}).items():
            entries.append(Names(language, split_names(listed), handler, shown_alike=True))
        for language, words in meaning.get("words", {}).items():
            for word, listed in words.items():
                entries.append(Names(language, split_names(listed), make_handler(meaning, word), shown_alike=False))
    return entries


def split_names(listed: str) -> list[str]:
    # A comma inside a name is written &comma; in the table.
    return [unescape(name.strip()) for name in listed.split(",")]


class TemplateTable:
    def __init__(self, locale: Locale) -> None:
        self.locale = locale
        self._exact: dict[str, Handler] = {}
        self._beginnings: dict[str, Handler] = {}
        self._endings: dict[str, Handler] = {}
        self._cache: dict[str, Handler | None] = {}

    @property
    def names(self) -> list[str]:
        return list(self._exact)

    def add(self, name: str, handler: Handler) -> None:
        # If a name is added several times, its first handler is kept.
        if name.endswith("*") and len(name) > 1:
            self._beginnings.setdefault(name[:-1], handler)
        elif name.startswith("*") and len(name) > 1:
            self._endings.setdefault(name[1:], handler)
        else:
            self._exact.setdefault(name, handler)

    def add_shared(self, language: str) -> None:
        # Add the names that mean the same in every language that has them. Names of `language` itself are skipped.
        shared: dict[str, Handler | None] = {}
        for entry in read_names():
            handler = entry.handler if entry.shown_alike else None
            for name in entry.names:
                if entry.language != language and len(name) >= MIN_SHARED_LENGTH and "*" not in name:
                    shared[name] = handler if shared.get(name, handler) is handler else None
        for name, shared_handler in shared.items():
            if shared_handler is not None:
                self.add(name, shared_handler)

    def find(self, name: str) -> Handler | None:
        # `name` is in lower case.
        handler = self._exact.get(name)
        if handler is None:
            if name in self._cache:
                return self._cache[name]
            handler = self._find_by_affix(name)
            if len(self._cache) < MAX_CACHED:
                self._cache[name] = handler
        return handler

    def find_in_capitals(self, name: str) -> Handler | None:
        # Country codes are listed in capitals.
        return self._exact.get(name) if name.isupper() else None

    def _find_by_affix(self, name: str) -> Handler | None:
        # The longest match counts.
        for size in range(min(len(name), 40), 0, -1):
            for affixes, affix in ((self._beginnings, name[:size]), (self._endings, name[-size:])):
                if affix in affixes:
                    return affixes[affix]
        return None


@cache
def template_table(language: str) -> TemplateTable:
    # A variant such as pt-br also uses the names of pt.
    base = language.partition("-")[0]
    table = TemplateTable(read_locale(base))
    for code in dict.fromkeys((language, base, COMMON)):
        for entry in read_names():
            if entry.language == code:
                for name in entry.names:
                    table.add(name, entry.handler)
    for country in country_names():
        table.add(country, HANDLERS["country"])
    table.add_shared(base)
    return table


def languages() -> list[str]:
    return sorted({entry.language for entry in read_names()})


# The name of a parser function, before its colon: "#if"
_CALL = re.compile(r"#?\w+\Z")
# Maximum number of characters of a template's name in the statistics.
MAX_NAME_LENGTH = 80
MAX_NAMES = ord(LAST_NAME) - ord(FIRST_NAME)


class TemplateExpander:
    """Expands the templates of one page.

    Attributes:
        unknown: name of a template whose words are unknown -> number of sentences and asides dropped because of it.
    """

    def __init__(self, language: str, unknown: Counter[str]) -> None:
        self.unknown = unknown
        self._table = template_table(language)
        # Name of a template whose words are unknown -> its number on this page.
        self._numbers: dict[str, int] = {}
        self._names: list[str] = []

    def expand(self, body: str) -> str:
        """Return the words of ``{{body}}``, or a marker if it has no words or they are unknown.

        Links and templates inside ``body`` have already been expanded.
        """
        if GONE in body:
            body = body.replace(GONE, "")
        spelling, bar, arguments = body.partition("|")
        spelling = spelling.strip()
        name = spelling.lower()
        handler = self._table.find_in_capitals(spelling) or self._table.find(name)
        if handler is None:
            name = _normal(name)
            handler = self._table.find(name)
        if handler is None and ":" in name:
            name, handler = _parser_function(name, self._table)
        if handler is None:
            return BOX if "\n" in body else self._hole(name)
        # Remove the namespace.
        spelling = spelling.rpartition(":")[2].strip()
        words = handler(Arguments(spelling, arguments if bar else None, self._table.locale))
        return self._hole(name) if words is None else words or GONE

    def count(self, sentence: str) -> None:
        """Count the templates that left holes in a dropped sentence."""
        if len(self._names) < len(self._numbers):
            self._names = list(self._numbers)
        for mark in set(NAMES.findall(sentence)):
            number = ord(mark) - ord(FIRST_NAME)
            # A larger number means that the page itself contains this character.
            if number < len(self._names):
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
    # Examples of parser functions are {{formatnum:4000}}, {{DEFAULTSORT:Lincoln}} and {{#if:a}}. Any other word before
    # a colon may be the wiki's name for the namespace of templates.
    function, _, value = name.partition(":")
    known = table.find(f"{function}:") if _CALL.match(function) else None
    # A namespace in German: {{Vorlage:Lang|la|colonia}}
    if known is None:
        return name, table.find(value.strip()) if function.replace(" ", "").isalpha() else None

    def call(arguments: Arguments) -> str | None:
        return known(Arguments(function, f"{value}|{arguments.raw or ''}", arguments.locale))

    return f"{function}:", call
