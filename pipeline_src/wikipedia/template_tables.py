"""The known templates of a language, read from ``tables/<language>.yaml``.

A table has these parts; each lists names in lower case between commas. ``infobox*`` stands for every name that begins
so, ``*-stub`` for every one that ends so.

- ``nothing``: show no words in the sentence (references, maintenance, boxes beside the text);
- ``shows``: a form (template_forms.py) and the templates that show it;
- ``calls``: a function (template_functions.py), what it is told after a blank, and the templates that it works out;
- ``breaks``: ``list``, ``quote`` and ``paragraph``: templates that end the paragraph;
- ``computed``: show words that only the wiki's server knows: a hole, but none that a table could mend.

English counts in every language, since most wikis have its commonest templates too; a language's own table comes first.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import yaml

from pipeline_src.wikipedia.placeholders import GONE
from pipeline_src.wikipedia.template_arguments import Handler
from pipeline_src.wikipedia.template_forms import compile_form
from pipeline_src.wikipedia.template_functions import FUNCTIONS

TABLES = Path(__file__).parent / "tables"
COMMON = "en"
MOST_FOUND = 100_000  # names whose handler is kept at hand


class TemplateTable:
    """What each known template of one language shows."""

    def __init__(self) -> None:
        self._exact: dict[str, Handler] = {}
        self._beginnings: dict[str, Handler] = {}
        self._endings: dict[str, Handler] = {}
        self._found: dict[str, Handler | None] = {}

    @property
    def names(self) -> list[str]:
        """The known names that are spelt out."""
        return list(self._exact)

    def add(self, names: str, handler: Handler) -> None:
        """Take down templates that are not known yet: the first table counts."""
        for listed in names.split(","):
            name = " ".join(listed.split())
            if name.endswith("*") and len(name) > 1:
                self._beginnings.setdefault(name[:-1], handler)
            elif name.startswith("*") and len(name) > 1:
                self._endings.setdefault(name[1:], handler)
            elif name:
                self._exact.setdefault(name, handler)

    def find(self, name: str) -> Handler | None:
        """What shows the template ``name`` (lower case); None for an unknown one."""
        handler = self._exact.get(name)
        if handler is None:
            if name in self._found:
                return self._found[name]
            handler = self._find_by_affix(name)
            if len(self._found) < MOST_FOUND:
                self._found[name] = handler
        return handler

    def _find_by_affix(self, name: str) -> Handler | None:
        for size in range(min(len(name), 40), 0, -1):  # the longest counts
            for affixes, affix in ((self._beginnings, name[:size]), (self._endings, name[-size:])):
                if affix in affixes:
                    return affixes[affix]
        return None


@cache
def template_table(language: str) -> TemplateTable:
    """The table of ``language`` (``pt-br``: that of ``pt``), and English below it."""
    table = TemplateTable()
    for code in dict.fromkeys((language, language.partition("-")[0], COMMON)):
        path = TABLES / f"{code}.yaml"
        if path.exists():
            _read(path, table)
    return table


def languages() -> list[str]:
    """The languages that have a table."""
    return sorted(path.stem for path in TABLES.glob("*.yaml"))


def _read(path: Path, table: TemplateTable) -> None:
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    for form, names in content.get("shows", {}).items():
        table.add(names, compile_form(form))
    for call, names in content.get("calls", {}).items():
        function, _, told = call.partition(" ")
        table.add(names, FUNCTIONS[function](told))
    for kind, names in content.get("breaks", {}).items():
        table.add(names, BREAKS[kind])
    table.add(content.get("computed", ""), lambda _: None)
    table.add(content.get("nothing", ""), lambda _: GONE)


BREAKS: dict[str, Handler] = {
    "list": lambda _: "\n*\n",  # shows that the sentence before it announced a list
    # What leads up to a quotation often is half a sentence, so they stay one paragraph; it ends there.
    "quote": lambda arguments: (
        f"{text}\n\n" if (text := arguments.get("1") or arguments.get("text") or arguments.get("quote")) else GONE
    ),
    "paragraph": lambda _: "\n\n",
}
