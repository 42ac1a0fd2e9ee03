"""Stage ``clean``: turn the files of one source into documents of clean prose."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from pipeline_src.study.data import CorpusParams

# Kind of a source -> module whose `run` cleans it. The module is imported by name, so that the stage of a source
# depends only on the code for its kind.
CLEANERS = {
    "wikipedia": "pipeline_src.text.wikipedia.clean_wikipedia",
    "books": "pipeline_src.text.books.clean_books",
    "text": "pipeline_src.text.books.clean_books",
}


def run(corpus: CorpusParams, source: str, beam_args: Sequence[str] = ()) -> None:
    """Clean ``data/raw/<source>/fetched-files/`` and write ``data/text/<source>/clean-text/``.

    Args:
        beam_args: see ``text.beam.Workers``. Used only for a Wikipedia; books are cleaned without Beam.
    """
    params = corpus.source(source)
    more = {"beam_args": beam_args} if params.kind == "wikipedia" else {}
    importlib.import_module(CLEANERS[params.kind]).run(source, params, **more)
