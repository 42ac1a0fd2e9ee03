"""Stage ``download_books``: the books in params.yaml."""

from __future__ import annotations

from pipeline_src.common.files import atomic_directory
from pipeline_src.common.paths import RAW_BOOKS
from pipeline_src.common.progress import log
from pipeline_src.common.yaml_files import SOURCES
from pipeline_src.config.data import BooksParams
from pipeline_src.download.catalogue import load_source, resolve
from pipeline_src.download.fetch import obtain, place


def run(books: BooksParams) -> None:
    """Fetch and verify the books into ``data/raw/books/``, with a ``source.json``."""
    source = resolve(books.source, load_source(SOURCES, books.source))
    obtained = obtain(books.source, source)
    with atomic_directory(RAW_BOOKS) as folder:
        place(books.source, source, obtained, folder)
    log.info("%s, of %d files fetched, is in %s", books.source, len(obtained), RAW_BOOKS)
