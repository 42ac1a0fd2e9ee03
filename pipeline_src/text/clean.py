"""Stage ``clean``: the files of one source to documents of clean prose, by the source's kind."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from pipeline_src.study.data import CorpusParams

# kind of a source -> module whose ``run`` cleans it, loaded by name: a stage depends on the code of its own kind alone
CLEANERS = {
    "wikipedia": "pipeline_src.text.wikipedia.clean_wikipedia",
    "books": "pipeline_src.text.books.clean_books",
    "text": "pipeline_src.text.books.clean_books",
}


def run(corpus: CorpusParams, source: str, beam_args: Sequence[str] = ()) -> None:
    """Clean ``data/raw/<source>/fetched-files/`` into ``data/text/<source>/clean-text/``.

    Args:
        beam_args: see ``text.beam.Workers``; only for a Wikipedia, since books are read one after another.
    """
    params = corpus.source(source)
    more = {"beam_args": beam_args} if params.kind == "wikipedia" else {}
    importlib.import_module(CLEANERS[params.kind]).run(source, params, **more)
