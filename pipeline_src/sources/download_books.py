"""Stage ``download_books``: the shelf that params.yaml names."""

from __future__ import annotations

from pipeline_src.common.files import atomic_directory
from pipeline_src.common.paths import RAW_BOOKS
from pipeline_src.common.progress import log
from pipeline_src.params.books import BooksParams
from pipeline_src.sources.catalogue import resolve
from pipeline_src.sources.corpus_source import load_corpus_source
from pipeline_src.sources.fetch import obtain, place


def run(books: BooksParams) -> None:
    """Fetch and verify the books into ``data/raw/books/``, with a ``source.json``."""
    source = resolve(books.source, load_corpus_source(books.source))
    obtained = obtain(books.source, source)
    with atomic_directory(RAW_BOOKS) as folder:
        place(books.source, source, obtained, folder)
    log.info("%d books of %s in %s", len(obtained), books.source, RAW_BOOKS)
