"""A corpus as params.yaml has it, for stages that read its text: of a source they ask its name alone."""

from __future__ import annotations

from typing import Any

from pipeline_src.study.data import CorpusParams

KINDS = {"wikipedia": {"kind": "wikipedia", "parts": ("a",)}, "books": {"kind": "books"}}


def corpus_of(*names: str, **params: Any) -> CorpusParams:
    """Sources of these names, or a Wikipedia and books."""
    sources = {name: {"kind": "text", "from": "x"} | KINDS.get(name, {}) for name in names or KINDS}
    return CorpusParams(sources=sources, **params)
