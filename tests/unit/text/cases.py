"""Test cases as YAML: title -> rows of strings, in which the names of ``SENTENCES`` stand for these."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

SENTENCES = {
    "PLAIN": "The river runs north through two counties before it meets the sea.",
    "STANDS": "The mill stands by the river.",
    "WHOLE": "The people of the towns around skate on the river in winter",
    "LAST": "Nobody knows how old the bridge is.",
    "LEAD_IN": "The old mill by the river has the following parts:",
    "ITEM": "The wheel is in the river and drives the two heavy stones.",
}
PLAIN = SENTENCES["PLAIN"]


def read_cases(name: str, title: str | None = None) -> list:
    """Return the rows of a file below this folder, or those of one of its titles; title and number name each."""
    text = (Path(__file__).parent / name).read_text(encoding="utf-8")
    for word, sentence in SENTENCES.items():
        text = text.replace(word, sentence)
    tables = yaml.load(text, Loader=yaml.CSafeLoader)
    rows = []
    for key in [title] if title else tables:
        for number, row in enumerate(tables[key]):
            rows.append(pytest.param(*row, id=f"{key} {number}"))
    return rows
