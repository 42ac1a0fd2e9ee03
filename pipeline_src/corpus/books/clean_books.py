"""Stage ``clean`` for sources of books or other text: documents of clean prose without duplicates, in shards.

A long book becomes several documents, cut at its headings, so that the validation set has parts of many books instead
of few books as a whole. Other text keeps its documents, and all of their lines.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate, chain, pairwise, repeat
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import atomic_directory
from pipeline_src.common.parallel import map_in_order
from pipeline_src.common.paths import clean_text, raw_files
from pipeline_src.common.progress import log, track
from pipeline_src.config.data import BooksParams, FilesParams
from pipeline_src.corpus.books.encodings import check_encoding, decode
from pipeline_src.corpus.books.markdown import markdown_paragraphs
from pipeline_src.corpus.books.plain_text import plain_paragraphs
from pipeline_src.corpus.books.readers import RawDocument, count_unknown, find_books, read_books, suffix_of
from pipeline_src.corpus.documents import ENGLISH, Document, part_names, read_origins, write_manifest, write_shard
from pipeline_src.corpus.dropped import MAX_CHARACTERS, DroppedSample, drop_documents
from pipeline_src.corpus.filters import Refusal, refusal
from pipeline_src.corpus.language import check_language
from pipeline_src.corpus.near_duplicates import Shingles, digest, find_copies, normal_words, shingle

SHARD_CHARACTERS = 64_000_000  # of text, after which a new shard begins
MIN_PART_WORDS = 1_000  # after which a document ends at the next heading
MAX_PART_WORDS = 5_000  # after which it ends with the paragraph
MAX_COPIES = 300  # listed in the manifest


@dataclass(frozen=True)
class Cleaned:
    """A worker's result for one ``RawDocument``.

    Attributes:
        document: id, title and prose; of a dropped one, the start of the text that explains why.
        headings: number of paragraphs before each heading of a book, ascending; None for other text.
        reason, value, limit: why it is dropped, or ''; the value that broke the rule; the rule's threshold.
        digest, shingles: of the words, to find copies; neither if nothing of it is kept.
        refused: index in ``documents()`` of each document that the filter refuses -> the rule that it breaks.
    """

    document: Document
    dropped_blocks: Counter[str]
    encoding: str | None
    num_sentences: int
    headings: list[int] | None = None
    digest: bytes = b""
    shingles: Shingles | None = None
    reason: str = ""
    value: object = None
    limit: int | None = None
    refused: Mapping[int, Refusal] = field(default_factory=dict)

    def documents(self) -> Iterator[Document]:
        """Yield the documents that the book becomes."""
        yield from [self.document] if self.headings is None else split_book(self.document, self.headings)


def run(source: str, params: FilesParams) -> None:
    """Clean every text in ``data/raw/<source>/fetched-files/`` into ``data/text/<source>/clean-text/``."""
    check_encoding(params.encoding)
    files = raw_files(source)
    paths = find_books(files)
    books_filter = _BookFilter(source, params)
    books_filter.dropped["unknown_format"] = count_unknown(files)
    raw = read_books(
        source, paths, params.sentences_per_document, params.encoding, params.text_column, books_filter.encodings
    )
    origins = read_origins(files, part_names(files, params.parts))
    language = params.language or next((origin["language"] for origin in origins if "language" in origin), ENGLISH)
    check_language(params.filters, language, source)
    cleaned = map_in_order(partial(clean_document, params=params, language=language), raw)
    with atomic_directory(clean_text(source)) as folder:
        documents = books_filter.select(track(cleaned, f"cleaning {source}", "text"), folder)
        shards: list[dict[str, Any]] = []
        while (first := next(documents, None)) is not None:
            shard = chain([first], _take(SHARD_CHARACTERS - len(first.text), documents))
            shards.append(write_shard(folder / f"books-{len(shards):05d}.jsonl", shard))
        shards, dropped = drop_documents(folder, shards, params.max_words, books_filter.sample)
        manifest = write_manifest(
            folder, shards, +(books_filter.dropped + dropped),
            files=len(paths),
            books=books_filter.num_books,
            parts={"at_headings_from_words": MIN_PART_WORDS, "anywhere_from_words": MAX_PART_WORDS},
            dropped_blocks=dict(sorted(books_filter.blocks.items())),
            encodings=dict(sorted(books_filter.encodings.items())),
            pseudo_documents=dict(sorted(books_filter.parts.items())),
            copies=books_filter.copies,
            language=language,
            sources=origins,
        )  # fmt: skip
        books_filter.sample.write(folder)
        if not manifest["documents"]:
            raise PipelineError(
                "no text is left", manifest["dropped"], where=files,
                hint=f"lower corpus.sources.{source}.min_words in params.yaml, or add texts",
            )  # fmt: skip
    log.info(
        "%d texts, cut into %d documents, %d words kept; dropped %s",
        *(manifest[key] for key in ("books", "documents", "words", "dropped")),
    )


class _BookFilter:
    def __init__(self, source: str, params: FilesParams) -> None:
        self._source = source
        self.dropped: Counter[str] = Counter()  # files, and documents that a filter refuses, by reason
        self.sample = DroppedSample()
        self.blocks: Counter[str] = Counter()  # removed within documents, by reason
        self.encodings: Counter[str] = Counter()  # files, by encoding
        self.parts: dict[str, dict[str, int]] = {}  # file -> number of its sentences and documents
        self.copies: dict[str, str] = {}  # dropped id -> id of the book it copies
        self.num_books = 0
        self._threshold = params.near_duplicates
        self._ids: dict[str, None] = {}

    def select(self, cleaned: Iterator[Cleaned], folder: Path) -> Iterator[Document]:
        cleaned = self._check_ids(cleaned)
        copies: Iterable[int] = repeat(-1)
        with TemporaryFile(dir=folder) as file:
            if self._threshold is not None:  # a book's original is known after the last book
                copies = find_copies(_spool(cleaned, file), self._threshold, folder)
                file.seek(0)
                cleaned = (pickle.load(file) for _ in copies)
            ids = list(self._ids)
            ids_by_digest: dict[bytes, str] = {}
            for book, original in zip(cleaned, copies, strict=False):
                name, reason, value = book.document.id, book.reason, book.value
                if not reason and (book.digest in ids_by_digest or original >= 0):
                    reason = "duplicate" if book.digest in ids_by_digest else "near_duplicate"
                    value = ids_by_digest.get(book.digest) or ids[original]
                    if len(self.copies) < MAX_COPIES:
                        self.copies[name] = value
                if reason:
                    self.dropped[reason] += 1
                    self.sample.add(reason, book.document, value, book.limit)
                else:
                    if book.digest:
                        ids_by_digest[book.digest] = name
                    yield from self._documents(book)

    def _check_ids(self, cleaned: Iterator[Cleaned]) -> Iterator[Cleaned]:
        for book in cleaned:
            name = book.document.id
            if name in self._ids:
                raise PipelineError(
                    "two texts have the same id", name, where=raw_files(self._source),
                    hint="rename one of the files, or give its row another id",
                )  # fmt: skip
            self._ids[name] = None
            self.blocks.update(book.dropped_blocks)
            if book.encoding:
                self.encodings[book.encoding] += 1
            if book.num_sentences:
                part = self.parts.setdefault(name.removeprefix(f"{self._source}:").rpartition("-")[0], Counter())
                part["documents"] += 1
                part["sentences"] += book.num_sentences
            yield book

    def _documents(self, book: Cleaned) -> Iterator[Document]:
        num_documents = 0
        for index, document in enumerate(book.documents()):
            if broken := book.refused.get(index):
                self.dropped[broken.rule] += 1
                self.sample.add(broken.rule, document, broken.value, broken.limit)
            else:
                num_documents += 1
                yield document
        self.num_books += num_documents > 0


def _spool(cleaned: Iterable[Cleaned], file: IO[bytes]) -> Iterator[Shingles]:
    for book in cleaned:
        pickle.dump(replace(book, shingles=None), file)
        yield book.shingles or shingle([[]])


def clean_document(raw: RawDocument, params: FilesParams, language: str = "") -> Cleaned:
    """Clean one document; an undecodable file is dropped or an error, as ``params.undecodable`` says."""
    blocks: Counter[str] = Counter()
    encoding = None
    headings: list[int] | None = None
    text = raw.text
    if text is None:
        try:
            text, encoding = decode(raw.path.read_bytes(), raw.path, params.encoding)
        except PipelineError as error:
            if params.undecodable == "error":
                raise
            log.warning("%s: dropped: %s (%s)", raw.path, error.what, error.where)
            document = Document(raw.id, raw.title, "")
            return Cleaned(document, blocks, None, raw.num_sentences, reason="undecodable", value=error.what)
    start = text[:MAX_CHARACTERS]
    if raw.num_sentences or not isinstance(params, BooksParams):
        text = "\n".join(line for line in (" ".join(line.split()) for line in text.split("\n")) if line)
    else:
        headings = []
        clean = markdown_paragraphs if suffix_of(raw.path) == ".md" else plain_paragraphs
        text = "\n".join(clean(text, blocks, headings))
    words = normal_words(text)
    book = Cleaned(Document(raw.id, raw.title, text), blocks, encoding, raw.num_sentences)
    if not words:
        return replace(book, document=replace(book.document, text=start), reason="empty")
    if (num_words := book.document.words) < params.min_words:
        short = replace(book.document, text=text[:MAX_CHARACTERS])
        return replace(book, document=short, reason="too_short", value=num_words, limit=params.min_words)
    shingles = shingle([words]) if params.near_duplicates else None
    book = replace(book, headings=headings, digest=digest(words), shingles=shingles)
    if not params.filters.model_fields_set:
        return book
    refusals = [refusal(part.text, params.filters, language) for part in book.documents()]
    book = replace(book, refused={number: broken for number, broken in enumerate(refusals) if broken})
    return replace(book, digest=b"", shingles=None) if all(refusals) else book


def split_book(book: Document, headings: Sequence[int]) -> Iterator[Document]:
    """Yield the documents of a book.

    Each ends at the first heading after ``MIN_PART_WORDS`` words, or at the first end of a paragraph after
    ``MAX_PART_WORDS``. If fewer than ``MIN_PART_WORDS`` words remain of the book, they join its last document.
    """
    paragraphs = book.text.split("\n")
    words = list(accumulate((len(paragraph.split()) for paragraph in paragraphs), initial=0))
    starts, heading_set = [0], frozenset(headings)
    for index in range(1, len(paragraphs)):
        size = words[index] - words[starts[-1]]
        min_size = MIN_PART_WORDS if index in heading_set else MAX_PART_WORDS
        if size >= min_size and words[-1] - words[index] >= MIN_PART_WORDS:
            starts.append(index)
    if len(starts) == 1:
        yield book
        return
    for part, (start, end) in enumerate(pairwise([*starts, len(paragraphs)]), start=1):
        text = "\n".join(paragraphs[start:end])
        yield Document(f"{book.id}/{part:03d}", f"{book.title}, part {part}", text)


def _take(num_characters: int, documents: Iterator[Document]) -> Iterator[Document]:
    while num_characters > 0 and (document := next(documents, None)) is not None:
        num_characters -= len(document.text)
        yield document
