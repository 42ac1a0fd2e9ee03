"""What a template puts into the sentence around it, by the tables of its wiki's language (``tables/``).

A template that no table knows may have shown words. It leaves a hole, and the sentence with the hole goes (prose.py),
so that no sentence is kept that lost a part without a trace. Only what is known to show nothing vanishes.
"""

from __future__ import annotations

import re
from collections import Counter

from pipeline_src.wikipedia.placeholders import BOX, FIRST_NAME, GONE, LAST_NAME, MARKS, PLACEHOLDER
from pipeline_src.wikipedia.template_arguments import Arguments, Handler
from pipeline_src.wikipedia.template_tables import TemplateTable, template_table

_CALL = re.compile(r"#?\w+\Z")  # a function of the parser, before its colon
LONGEST_NAME = 80  # characters of a template's name that are kept for the statistics
MOST_NAMES = ord(LAST_NAME) - ord(FIRST_NAME)


class Templates:
    """The templates of one page.

    Attributes:
        unknown: how many sentences (or asides in brackets) went for each template that no table knows.
    """

    def __init__(self, language: str, unknown: Counter[str]) -> None:
        self.unknown = unknown
        self._table = template_table(language)
        self._numbers: dict[str, int] = {}  # of the unknown templates
        self._names: list[str] = []  # the same, by number

    def expand(self, body: str) -> str:
        """The words that ``{{body}}`` shows; a mark of placeholders.py where they are not known, or none.

        ``body`` holds no markup of its own any more: links and templates within it are already text.
        """
        if GONE in body:
            body = body.replace(GONE, "")
        spelt, bar, rest = body.partition("|")
        spelt = spelt.strip()
        name = spelt.lower()
        handler = self._table.find(name)
        if handler is None:
            name = _normal(name)
            handler = self._table.find(name)
        if handler is None and ":" in name:
            handler = _parser_function(name, self._table)
        if handler is None:
            if "\n" in body:
                return BOX
            return self._hole(name)
        shown = handler(Arguments(spelt, rest if bar else None))
        return PLACEHOLDER if shown is None else shown

    @property
    def met_unknown(self) -> bool:
        """Whether the page has templates that no table knows."""
        return bool(self._numbers)

    def count(self, sentence: str) -> None:
        """Take down the unknown templates that left their holes in ``sentence``, which goes."""
        if len(self._names) < len(self._numbers):
            self._names = list(self._numbers)
        for mark in {character for character in sentence if FIRST_NAME <= character <= LAST_NAME}:
            number = ord(mark) - ord(FIRST_NAME)
            if number < len(self._names):  # else the page itself holds this character
                self.unknown[self._names[number]] += 1

    def _hole(self, name: str) -> str:
        number = self._numbers.setdefault(name[:LONGEST_NAME], min(len(self._numbers), MOST_NAMES))
        return chr(ord(FIRST_NAME) + number) + PLACEHOLDER


def _normal(name: str) -> str:
    """A template's name as its table spells it: without marks, comments' traces, underscores and its namespace."""
    name = " ".join((name if name.isascii() else MARKS.sub("", name)).replace("_", " ").split())
    if ":" not in name:
        return name
    for prefix in ("template:", "subst:", "safesubst:", "msg:", "msgnw:"):
        name = name.removeprefix(prefix).lstrip()
    return name


def _parser_function(name: str, table: TemplateTable) -> Handler | None:
    """``{{formatnum:4000}}``, ``{{DEFAULTSORT:Lincoln}}``, ``{{#if:a|b}}``: what stands before the colon decides."""
    function, colon, value = name.partition(":")
    if not colon or not _CALL.match(function):
        return None
    known = table.find(f"{function}:")
    if known is None:
        return None
    return lambda arguments: known(Arguments(function, f"{value}|{arguments.raw or ''}"))
