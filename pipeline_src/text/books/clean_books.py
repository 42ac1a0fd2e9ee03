"""Stage ``clean`` for books and other text files: write shards of clean documents without duplicates.

A long book is split into several documents at its headings, so that the validation set gets parts of many books instead
of a few whole books. Documents of sources with ``kind: text`` are not split and keep all of their lines. A paragraph as
long as a chapter is split between sentences.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, chain, pairwise, repeat
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import atomic_directory
from pipeline_src.base.parallel import map_in_order
from pipeline_src.base.paths import clean_text, raw_files
from pipeline_src.base.progress import log, track
from pipeline_src.study.data import BooksParams, FilesParams
from pipeline_src.text.books.encodings import check_encoding
from pipeline_src.text.books.html import html_text, is_html
from pipeline_src.text.books.markdown import markdown_paragraphs
from pipeline_src.text.books.plain_text import HEADING, one_line, plain_paragraphs
from pipeline_src.text.books.readers import RawDocument, count_unknown, find_books, read_books, read_text, suffix_of
from pipeline_src.text.documents import (
    ENGLISH,
    Document,
    part_names,
    read_origins,
    without_controls,
    write_manifest,
    write_shard,
)
from pipeline_src.text.dropped import MAX_CHARACTERS, DroppedSample, drop_documents
from pipeline_src.text.filters import Refusal, refusal
from pipeline_src.text.language import check_language
from pipeline_src.text.near_duplicates import Shingles, digest, find_copies, hash_words, shingle
from pipeline_src.text.sentences import split_sentences
from pipeline_src.text.words import count_words

# A shard ends with the document that reaches this number of characters.
SHARD_CHARACTERS = 64_000_000
# A document with at least this many words ends before the next heading.
MIN_PART_WORDS = 1_000
# A document with at least this many words ends with the current paragraph.
MAX_PART_WORDS = 5_000
# A paragraph with at least twice this many words is split into parts of about this size.
PARAGRAPH_WORDS = 6_000
# Maximum number of copies that the manifest lists.
MAX_COPIES = 300


@dataclass(frozen=True)
class Cleaned:
    """The result of cleaning one ``RawDocument``.

    Attributes:
        start: id, title and start of the text, which is shown if the text is dropped.
        dropped_blocks: number of blocks removed from the text, by reason.
        encoding: encoding of the file; None for rows and lists of sentences.
        documents: the documents into which the text was split.
        refusals: for each document, the filter rule that it breaks, or None.
        digest: hash of the words, to find exact copies; empty if no document is kept.
        shingles: hashes of word runs, to find near-copies; None if no document is kept.
        reason: why the whole text is dropped; '' if it is kept.
        value: the value that led to ``reason``, such as the number of words.
        limit: the threshold that ``value`` was compared with.
    """

    start: Document
    dropped_blocks: Counter[str]
    encoding: str | None = None
    documents: Sequence[Document] = ()
    refusals: Sequence[Refusal | None] = ()
    digest: bytes = b""
    shingles: Shingles | None = None
    reason: str = ""
    value: object = None
    limit: int | None = None


def run(source: str, params: FilesParams) -> None:
    """Clean ``data/raw/<source>/fetched-files/`` and write ``data/text/<source>/clean-text/``."""
    check_encoding(params.encoding)
    files = raw_files(source)
    names = find_books(files)
    books_filter = _BookFilter(source, params)
    books_filter.dropped["unknown_format"] = count_unknown(files)
    raw = read_books(source, names, params, books_filter.encodings)
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
            folder,
            shards,
            +(books_filter.dropped + dropped),
            files=len(names),
            books=books_filter.num_books,
            dropped_blocks=books_filter.blocks,
            encodings=books_filter.encodings,
            copies=books_filter.copies,
            language=language,
            sources=origins,
        )
        books_filter.sample.write(folder)
        if not manifest["documents"]:
            raise PipelineError(
                "cleaning dropped every text",
                manifest["dropped"],
                where=files,
                hint=f"lower corpus.sources.{source}.min_words in params.yaml, or add texts",
            )
    log.info(
        "%d texts, cut into %d documents, %d words kept; dropped %s",
        *(manifest[key] for key in ("books", "documents", "words", "dropped")),
    )


class _BookFilter:
    def __init__(self, source: str, params: FilesParams) -> None:
        self._source = source
        # Reason -> number of dropped files, and of documents that a filter refused.
        self.dropped: Counter[str] = Counter()
        self.sample = DroppedSample()
        # Reason -> number of blocks that were removed from texts.
        self.blocks: Counter[str] = Counter()
        # Encoding -> number of files.
        self.encodings: Counter[str] = Counter()
        # Id of a dropped copy -> id of the book that is kept.
        self.copies: dict[str, str] = {}
        self.num_books = 0
        self._threshold = params.near_duplicates
        self._ids: dict[str, None] = {}

    def select(self, cleaned: Iterator[Cleaned], folder: Path) -> Iterator[Document]:
        cleaned = self._check_ids(cleaned)
        copies: Iterable[int] = repeat(-1)
        with TemporaryFile(dir=folder) as file:
            # Near-copies are known only after the last book, so the cleaned books are stored in a file until then.
            if self._threshold is not None:
                copies = find_copies(_spool(cleaned, file), self._threshold, folder)
                file.seek(0)
                cleaned = (pickle.load(file) for _ in copies)
            ids = list(self._ids)
            ids_by_digest: dict[bytes, str] = {}
            for book, original in zip(cleaned, copies, strict=False):
                name, reason, value = book.start.id, book.reason, book.value
                if not reason and (book.digest in ids_by_digest or original >= 0):
                    reason = "duplicate" if book.digest in ids_by_digest else "near_duplicate"
                    value = ids_by_digest.get(book.digest) or ids[original]
                    if len(self.copies) < MAX_COPIES:
                        self.copies[name] = value
                if reason:
                    self.dropped[reason] += 1
                    self.sample.add(reason, book.start, value, book.limit)
                else:
                    if book.digest:
                        ids_by_digest[book.digest] = name
                    yield from self._documents(book)

    def _check_ids(self, cleaned: Iterator[Cleaned]) -> Iterator[Cleaned]:
        for book in cleaned:
            name = book.start.id
            if name in self._ids:
                raise PipelineError(
                    "two texts have the same id",
                    name,
                    where=raw_files(self._source),
                    hint="rename one of the files, or give its row another id",
                )
            self._ids[name] = None
            self.blocks.update(book.dropped_blocks)
            if book.encoding:
                self.encodings[book.encoding] += 1
            yield book

    def _documents(self, book: Cleaned) -> Iterator[Document]:
        self.num_books += not all(book.refusals)
        for document, broken in zip(book.documents, book.refusals, strict=True):
            if broken is None:
                yield document
            else:
                self.dropped[broken.rule] += 1
                self.sample.add(broken.rule, document, broken.value, broken.limit)


def _spool(cleaned: Iterable[Cleaned], file: IO[bytes]) -> Iterator[Shingles]:
    for book in cleaned:
        pickle.dump(replace(book, shingles=None), file)
        yield book.shingles or shingle(hash_words(""))


def clean_document(raw: RawDocument, params: FilesParams, language: str = "") -> Cleaned:
    blocks: Counter[str] = Counter()
    encoding = None
    try:
        if raw.text is None:
            source, encoding = read_text(raw.path, params.encoding, blocks)
        else:
            has_markup = _is_book(raw, params) and is_html(raw.text)
            source = html_text(raw.text, raw.id, blocks, {}) if has_markup else raw.text
    except PipelineError as error:
        if params.undecodable == "error":
            raise
        log.warning("%s: dropped: %s (%s)", raw.path, error.what, error.where)
        return Cleaned(Document(raw.id, raw.title, ""), blocks, reason="undecodable", value=error.what)
    text, headings = _prose(without_controls(source), raw, params, language, blocks)
    book = Document(raw.id, raw.title, text)
    words = digest(text)
    start = Document(raw.id, raw.title, (text if words else source.replace(HEADING, ""))[:MAX_CHARACTERS])
    cleaned = partial(Cleaned, start, blocks, encoding)
    if not words:
        return cleaned(reason="empty")
    if book.words < params.min_words:
        return cleaned(reason="too_short", value=book.words, limit=params.min_words)
    documents = [book] if headings is None else list(split_book(book, headings))
    refusals = [refusal(document.text, params.filters, language) for document in documents]
    if all(refusals):
        return cleaned(documents, refusals)
    shingles = shingle(hash_words(text)) if params.near_duplicates else None
    return cleaned(documents, refusals, words, shingles)


def _is_book(raw: RawDocument, params: FilesParams) -> bool:
    # A list of sentences has neither paragraphs nor headings.
    return isinstance(params, BooksParams) and not raw.num_sentences


def _prose(
    source: str, raw: RawDocument, params: FilesParams, language: str, blocks: Counter[str]
) -> tuple[str, list[int] | None]:
    # Return the paragraphs, one per line, and for each heading the number of paragraphs before it. For text that is not
    # a book, return None instead of the headings.
    if not _is_book(raw, params):
        lines = filter(None, map(one_line, source.replace(HEADING, "").split("\n")))
        parts = [part for line in lines for part in split_paragraph(line, language)]
        return "\n".join(parts), None
    headings: list[int] = []
    clean = markdown_paragraphs if suffix_of(raw.path) == ".md" else plain_paragraphs
    parts, starts = [], [0]
    for paragraph in clean(source, blocks, headings):
        parts += split_paragraph(paragraph, language)
        starts.append(len(parts))
    # A heading comes before the first part of the paragraph that follows it.
    headings = [starts[index] for index in headings]
    return "\n".join(parts), headings


def split_paragraph(paragraph: str, language: str) -> Iterator[str]:
    # Split a long paragraph into parts of about PARAGRAPH_WORDS words. A part ends between sentences or, if it has only
    # one sentence, between words.
    num_words = count_words(paragraph) if len(paragraph) > PARAGRAPH_WORDS else 0
    start = 0
    for num_parts in range(num_words // PARAGRAPH_WORDS, 1, -1):
        size = (len(paragraph) - start) // num_parts
        part = paragraph[start : start + size]
        # The last sentence of this part may be incomplete, so it goes into the next part.
        last = split_sentences(part, language)[-1]
        part = part[: part.rindex(last)].rstrip() or part[: part.rfind(" ") + 1].rstrip() or part
        yield part.strip()
        start += len(part)
    yield paragraph[start:].strip()


def split_book(book: Document, headings: Sequence[int]) -> Iterator[Document]:
    """Split a book into documents.

    A document ends before the first heading after ``MIN_PART_WORDS`` words. If no heading comes within
    ``MAX_PART_WORDS`` words, it ends with the current paragraph. If fewer than ``MIN_PART_WORDS`` words remain, they
    are added to the last document.

    Args:
        headings: for each heading, the number of paragraphs before it.
    """
    paragraphs = book.text.split("\n")
    words = list(accumulate(map(count_words, paragraphs), initial=0))
    heading_set = frozenset(headings)
    starts = [0]
    for index in range(1, len(paragraphs)):
        size = words[index] - words[starts[-1]]
        min_size = MIN_PART_WORDS if index in heading_set else MAX_PART_WORDS
        if size >= min_size and words[-1] - words[index] >= MIN_PART_WORDS:
            starts.append(index)
    if len(starts) == 1:
        yield book
        return
    starts.append(len(paragraphs))
    for part, (start, end) in enumerate(pairwise(starts), start=1):
        text = "\n".join(paragraphs[start:end])
        yield Document(f"{book.id}/{part:03d}", f"{book.title}, part {part}", text)


def _take(num_characters: int, documents: Iterator[Document]) -> Iterator[Document]:
    while num_characters > 0 and (document := next(documents, None)) is not None:
        num_characters -= len(document.text)
        yield document
