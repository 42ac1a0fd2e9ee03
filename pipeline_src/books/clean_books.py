"""Stage ``clean_books``: a shelf of books to documents of clean prose without copies, in shards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

from pipeline_src.books.encodings import check_encoding, decode
from pipeline_src.books.markdown import markdown_paragraphs
from pipeline_src.books.near_duplicates import Copies, Shingles, digest, normal_words, shingle
from pipeline_src.books.plain_text import plain_paragraphs
from pipeline_src.books.shelf import Piece, count_others, find_books, read_shelf, suffix_of
from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import atomic_directory
from pipeline_src.common.parallel import map_in_order
from pipeline_src.common.paths import RAW_BOOKS, TEXT_BOOKS
from pipeline_src.common.progress import log, track
from pipeline_src.corpus.documents import Document, read_source, write_manifest, write_shard
from pipeline_src.params.books import BooksParams

SHARD = 64_000_000  # characters of text, from which the next document begins a new shard
MOST_COPIES = 300  # that the manifest names


@dataclass(frozen=True)
class Cleaned:
    """What a worker hands back of a :class:`Piece`.

    Attributes:
        document: id, title and prose.
        why_not: the reason to drop it, '' for none; without its text then.
        dropped: what was left out within it, by reason.
        encoding: of its file, where it is a whole file.
        sentences: as in :class:`Piece`.
        words: :func:`near_duplicates.digest` of its words.
        shingles: of its words, where near copies are looked for.
    """

    document: Document
    why_not: str
    dropped: Counter[str]
    encoding: str | None
    sentences: int
    words: bytes = b""
    shingles: Shingles | None = None


def run(books: BooksParams) -> None:
    """Clean every book in ``data/raw/books/`` into ``data/text/books/``.

    Raises:
        PipelineError: no books there, one that cannot be read, two of one id, or no book left.
    """
    check_encoding(books.encoding)
    paths = find_books(RAW_BOOKS)
    shelf = _Shelf(books)
    shelf.dropped["unknown_format"] = count_others(RAW_BOOKS)
    pieces = read_shelf(paths, books.sentences_per_document, books.encoding, books.text_column, shelf.encodings)
    cleaned = map_in_order(partial(clean_piece, params=books), pieces)
    documents = shelf.kept(track(cleaned, "cleaning books", "book"))
    with atomic_directory(TEXT_BOOKS) as folder:
        shards: list[dict[str, Any]] = []
        while (first := next(documents, None)) is not None:
            shard = chain([first], up_to(SHARD - len(first.text), documents))
            shards.append(write_shard(folder / f"books-{len(shards):05d}.jsonl", shard))
        manifest = write_manifest(
            folder, shards, +shelf.dropped,
            files=len(paths),
            dropped_blocks=dict(sorted(shelf.blocks.items())),
            encodings=dict(sorted(shelf.encodings.items())),
            pseudo_documents=dict(sorted(shelf.parts.items())),
            copies=shelf.copies,
            sources=read_source(RAW_BOOKS),
        )  # fmt: skip
        if not manifest["documents"]:
            raise PipelineError(
                "no book is left", manifest["dropped"], where=RAW_BOOKS,
                remedy="lower books.min_words in params.yaml, or add books",
            )  # fmt: skip
    log.info("%d books, %d words kept; dropped %s", manifest["documents"], manifest["words"], manifest["dropped"])


class _Shelf:
    """Which books are kept, in their order, and what is counted on the way."""

    def __init__(self, params: BooksParams) -> None:
        self.dropped: Counter[str] = Counter()  # documents, by reason
        self.blocks: Counter[str] = Counter()  # what was left out within them, by reason
        self.encodings: Counter[str] = Counter()  # files, by encoding
        self.parts: dict[str, dict[str, int]] = {}  # file -> sentences and documents made of them
        self.copies: dict[str, str] = {}  # dropped id -> id of the book it copies
        self._known = Copies(params.near_duplicates)
        self._ids: set[str] = set()

    def kept(self, cleaned: Iterator[Cleaned]) -> Iterator[Document]:
        for book in cleaned:
            name = book.document.id
            if name in self._ids:
                raise PipelineError(
                    "two books have the same id", name, where=RAW_BOOKS,
                    remedy="rename one of the files, or give its row another id",
                )  # fmt: skip
            self._ids.add(name)
            self.blocks.update(book.dropped)
            if book.encoding:
                self.encodings[book.encoding] += 1
            if book.sentences:
                part = self.parts.setdefault(name.removeprefix("books:").rpartition("-")[0], Counter())
                part["documents"] += 1
                part["sentences"] += book.sentences
            copied = None if book.why_not else self._known.find(name, book.words, book.shingles)
            if copied and len(self.copies) < MOST_COPIES:
                self.copies[name] = copied[1]
            if reason := copied[0] if copied else book.why_not:
                self.dropped[reason] += 1
            else:
                yield book.document


def clean_piece(piece: Piece, params: BooksParams) -> Cleaned:
    """Clean one piece; a file that is no text, or whose encoding cannot be told, is dropped or an error by params."""
    dropped: Counter[str] = Counter()
    encoding = None
    text = piece.text
    if text is None:
        try:
            text, encoding = decode(piece.path.read_bytes(), piece.path, params.encoding)
        except PipelineError as error:
            if params.undecodable == "error":
                raise
            log.warning("%s: dropped: %s (%s)", piece.path, error.what, error.where)
            return Cleaned(Document(piece.id, piece.title, ""), "undecodable", dropped, None, piece.sentences)
    if piece.sentences:
        text = "\n".join(" ".join(line.split()) for line in text.split("\n"))
    else:
        clean = markdown_paragraphs if suffix_of(piece.path) == ".md" else plain_paragraphs
        text = "\n".join(clean(text, dropped))
    words = normal_words(text)
    if why_not := "empty" if not words else "too_short" if len(text.split()) < params.min_words else "":
        return Cleaned(Document(piece.id, piece.title, ""), why_not, dropped, encoding, piece.sentences)
    shingles = shingle(words) if params.near_duplicates else None
    document = Document(piece.id, piece.title, text)
    return Cleaned(document, "", dropped, encoding, piece.sentences, digest(words), shingles)


def up_to(size: int, documents: Iterator[Document]) -> Iterator[Document]:
    """Yield documents until their texts have ``size`` characters."""
    while size > 0 and (document := next(documents, None)) is not None:
        size -= len(document.text)
        yield document
