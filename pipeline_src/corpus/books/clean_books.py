"""Stage ``clean`` for sources of books or other text: documents of clean prose without duplicates, in shards.

A long book becomes several documents, cut at its headings, so that the validation set has parts of many books instead
of few books as a whole. Other text keeps its documents, and all of their lines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate, chain, pairwise
from typing import Any

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import atomic_directory
from pipeline_src.common.parallel import map_in_order
from pipeline_src.common.paths import clean_text, raw_files
from pipeline_src.common.progress import log, track
from pipeline_src.config.data import BooksParams, FilesParams
from pipeline_src.corpus.books.encodings import check_encoding, decode
from pipeline_src.corpus.books.markdown import markdown_paragraphs
from pipeline_src.corpus.books.near_duplicates import Copies, Shingles, digest, normal_words, shingle
from pipeline_src.corpus.books.plain_text import plain_paragraphs
from pipeline_src.corpus.books.readers import RawDocument, count_others, find_books, read_books, suffix_of
from pipeline_src.corpus.documents import (
    ENGLISH,
    Document,
    part_names,
    read_origins,
    subsample_to_words,
    write_manifest,
    write_shard,
)
from pipeline_src.corpus.dropped import CHARACTERS, DroppedSample
from pipeline_src.corpus.filters import Refusal, refusal
from pipeline_src.corpus.language import check_language

SHARD = 64_000_000  # characters of text, after which a new shard begins
PART = 1_000  # words, from which a document ends at the next heading
LONG_PART = 5_000  # words, from which it ends with the paragraph
MAX_COPIES = 300  # listed in the manifest


@dataclass(frozen=True)
class Cleaned:
    """A worker's result for one :class:`RawDocument`.

    Attributes:
        document: id, title and prose; of a dropped one, the start of the text that explains why.
        why_not: the reason to drop it, or ''.
        dropped: number of removed blocks by reason.
        encoding: of its file, if it is a whole file.
        sentences: see :class:`RawDocument`.
        headings: number of paragraphs before each heading of a book, ascending; None for other text, which is not cut.
        words: :func:`digest` of its words.
        shingles: of its words, if near-duplicates are searched.
        value: what broke the rule ``why_not``.
        limit: the threshold that it broke.
        refused: number of a document of :meth:`documents` -> the filter's rule that it breaks.
    """

    document: Document
    why_not: str
    dropped: Counter[str]
    encoding: str | None
    sentences: int
    headings: list[int] | None = None
    words: bytes = b""
    shingles: Shingles | None = None
    value: object = None
    limit: int | None = None
    refused: Mapping[int, Refusal] = field(default_factory=dict)

    def documents(self) -> Iterator[Document]:
        """Yield the documents that the book becomes."""
        yield from [self.document] if self.headings is None else cut(self.document, self.headings)


def run(source: str, params: FilesParams) -> None:
    """Clean every book in ``data/raw/<source>/fetched-files/`` into ``data/text/<source>/clean-text/``."""
    check_encoding(params.encoding)
    files = raw_files(source)
    paths = find_books(files)
    books_filter = _BookFilter(source, params)
    books_filter.dropped["unknown_format"] = count_others(files)
    raw = read_books(
        source, paths, params.sentences_per_document, params.encoding, params.text_column, books_filter.encodings
    )
    origins = read_origins(files, part_names(files, params.parts))
    language = params.language or next((each["language"] for each in origins if "language" in each), ENGLISH)
    check_language(params.filters, language, source)
    cleaned = map_in_order(partial(clean_document, params=params, language=language), raw)
    documents = books_filter.kept(track(cleaned, f"cleaning {source}", "book"))
    with atomic_directory(clean_text(source)) as folder:
        shards: list[dict[str, Any]] = []
        while (first := next(documents, None)) is not None:
            shard = chain([first], up_to(SHARD - len(first.text), documents))
            shards.append(write_shard(folder / f"books-{len(shards):05d}.jsonl", shard))
        shards, books_filter.dropped["beyond_max_words"] = subsample_to_words(folder, shards, params.max_words)
        manifest = write_manifest(
            folder, shards, +books_filter.dropped,
            files=len(paths),
            books=books_filter.num_kept,
            parts={"at_headings_from_words": PART, "anywhere_from_words": LONG_PART},
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
                "no book is left", manifest["dropped"], where=files,
                hint=f"lower corpus.sources.{source}.min_words in params.yaml, or add books",
            )  # fmt: skip
    log.info(
        "%d books, cut into %d documents, %d words kept; dropped %s",
        *(manifest[key] for key in ("books", "documents", "words", "dropped")),
    )


class _BookFilter:
    """Decides which books are kept, in order, and counts the rest."""

    def __init__(self, source: str, params: FilesParams) -> None:
        self._source = source
        self.dropped: Counter[str] = Counter()  # files, and documents that a filter refuses, by reason
        self.sample = DroppedSample()
        self.blocks: Counter[str] = Counter()  # removed within documents, by reason
        self.encodings: Counter[str] = Counter()  # files, by encoding
        self.parts: dict[str, dict[str, int]] = {}  # file -> number of its sentences and documents
        self.copies: dict[str, str] = {}  # dropped id -> id of the book it copies
        self.num_kept = 0
        self._known = Copies(params.near_duplicates)
        self._ids: set[str] = set()

    def kept(self, cleaned: Iterator[Cleaned]) -> Iterator[Document]:
        for book in cleaned:
            name = book.document.id
            if name in self._ids:
                raise PipelineError(
                    "two books have the same id", name, where=raw_files(self._source),
                    hint="rename one of the files, or give its row another id",
                )  # fmt: skip
            self._ids.add(name)
            self.blocks.update(book.dropped)
            if book.encoding:
                self.encodings[book.encoding] += 1
            if book.sentences:
                part = self.parts.setdefault(name.removeprefix(f"{self._source}:").rpartition("-")[0], Counter())
                part["documents"] += 1
                part["sentences"] += book.sentences
            copied = None if book.why_not else self._known.find(name, book.words, book.shingles)
            if copied and len(self.copies) < MAX_COPIES:
                self.copies[name] = copied[1]
            if reason := copied[0] if copied else book.why_not:
                self.dropped[reason] += 1
                self.sample.add(reason, book.document, copied[1] if copied else book.value, book.limit)
                continue
            num_left = 0
            for number, document in enumerate(book.documents()):
                if broken := book.refused.get(number):
                    self.dropped[broken.rule] += 1
                    self.sample.add(broken.rule, document, broken.value, broken.limit)
                else:
                    num_left += 1
                    yield document
            self.num_kept += num_left > 0


def clean_document(raw: RawDocument, params: FilesParams, language: str = "") -> Cleaned:
    """Clean one document; an undecodable file is dropped or an error, by ``undecodable`` of its source."""
    dropped: Counter[str] = Counter()
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
            nothing = Document(raw.id, raw.title, "")
            return Cleaned(nothing, "undecodable", dropped, None, raw.sentences, value=error.what)
    start = text[:CHARACTERS]
    if raw.sentences or not isinstance(params, BooksParams):
        text = "\n".join(line for line in (" ".join(line.split()) for line in text.split("\n")) if line)
    else:
        headings = []
        clean = markdown_paragraphs if suffix_of(raw.path) == ".md" else plain_paragraphs
        text = "\n".join(clean(text, dropped, headings))
    words = normal_words(text)
    document = Document(raw.id, raw.title, text)
    if not words:
        return Cleaned(replace(document, text=start), "empty", dropped, encoding, raw.sentences)
    if document.words < params.min_words:
        short = replace(document, text=text[:CHARACTERS])
        return Cleaned(
            short, "too_short", dropped, encoding, raw.sentences, value=document.words, limit=params.min_words
        )
    shingles = shingle(words) if params.near_duplicates else None
    book = Cleaned(document, "", dropped, encoding, raw.sentences, headings, digest(words), shingles)
    if not params.filters.model_fields_set:
        return book
    judged = ((number, refusal(each.text, params.filters, language)) for number, each in enumerate(book.documents()))
    return replace(book, refused={number: broken for number, broken in judged if broken})


def cut(book: Document, headings: Sequence[int]) -> Iterator[Document]:
    """Yield the documents of a book.

    Each ends at the first heading after ``PART`` words, or with the first paragraph after ``LONG_PART``. Less than
    ``PART`` words at the end of the book belong to its last document.
    """
    paragraphs = book.text.split("\n")
    words = list(accumulate((len(paragraph.split()) for paragraph in paragraphs), initial=0))
    starts, ends_at = [0], frozenset(headings)
    for number in range(1, len(paragraphs)):
        size = words[number] - words[starts[-1]]
        if size >= (PART if number in ends_at else LONG_PART) and words[-1] - words[number] >= PART:
            starts.append(number)
    if len(starts) == 1:
        yield book
        return
    for part, (start, end) in enumerate(pairwise([*starts, len(paragraphs)]), start=1):
        text = "\n".join(paragraphs[start:end])
        yield Document(f"{book.id}/{part:03d}", f"{book.title}, part {part}", text)


def up_to(size: int, documents: Iterator[Document]) -> Iterator[Document]:
    """Yield documents until their texts have ``size`` characters."""
    while size > 0 and (document := next(documents, None)) is not None:
        size -= len(document.text)
        yield document
