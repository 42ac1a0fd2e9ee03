"""Where a corpus comes from: an entry of ``catalogue/sources``, named by ``wikipedia.dump`` or ``books.source``."""

from __future__ import annotations

from pipeline_src.common.catalogue import SOURCES
from pipeline_src.sources.catalogue import Source, load_source


def load_corpus_source(name: str) -> Source:
    """Read the entry.

    Raises:
        PipelineError: no such entry, or it is not written as the catalogue's README says.
    """
    return load_source(SOURCES, name)
