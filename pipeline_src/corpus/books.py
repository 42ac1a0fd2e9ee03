"""Stage ``books``: a folder of books to documents of clean prose, one document a book."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path

from pipeline_src.corpus.documents import Document, write_manifest, write_shard
from pipeline_src.corpus.markdown import markdown_paragraphs
from pipeline_src.corpus.plain_text import is_sentence_list, plain_paragraphs
from pipeline_src.errors import PipelineError
from pipeline_src.files import atomic_directory
from pipeline_src.params.books import BooksParams
from pipeline_src.progress import log, track

RAW, TEXT = Path("data/raw/books"), Path("data/text/books")
READERS = {".txt": plain_paragraphs, ".md": markdown_paragraphs}


def run(books: BooksParams) -> None:
    """Clean every book in ``data/raw/books/`` into ``data/text/books/``.

    Raises:
        PipelineError: no books there, a book that is not UTF-8, two books of one name, or no book left.
    """
    paths = find_books(RAW)
    dropped = Counter({"unknown_format": n} if (n := count_others(RAW)) else {})
    blocks: Counter[str] = Counter()
    seen: set[bytes] = set()

    def kept() -> Iterator[Document]:
        for path in track(paths, "cleaning books", "book", total=len(paths)):
            for document in read_book(path, books.sentences_per_document, blocks):
                reason = _why_drop(document, books.min_words, seen)
                if reason:
                    dropped[reason] += 1
                else:
                    yield document

    with atomic_directory(TEXT) as folder:
        shard = write_shard(folder / "books.jsonl", kept())
        manifest = write_manifest(
            folder, [shard], dropped, files=len(paths), dropped_blocks=dict(sorted(blocks.items()))
        )
        if not manifest["documents"]:
            raise PipelineError(
                "no book is left", dict(dropped), where=RAW, remedy="lower books.min_words in params.yaml, or add books"
            )
    log.info("%d books, %d words kept; dropped %s", manifest["documents"], manifest["words"], manifest["dropped"])


def find_books(folder: Path) -> list[Path]:
    """Every book below ``folder``, in the order of their paths.

    Raises:
        PipelineError: there is none, or two have the same name, so that their documents would share an id.
    """
    paths = sorted(path for path in folder.rglob("*") if path.suffix.lower() in READERS and path.name[0] != ".")
    if not paths:
        raise PipelineError(
            "no books found", where=folder, remedy="run `download_books`, or put .txt or .md files there (UTF-8)"
        )
    by_name: dict[str, Path] = {}
    for path in paths:
        if path.stem in by_name:
            raise PipelineError(
                "two books have the same name", path, where=by_name[path.stem], remedy="rename or remove one of them"
            )
        by_name[path.stem] = path
    return paths


def count_others(folder: Path) -> int:
    """How many files below ``folder`` are in no format that can be read (the download's own record apart)."""
    files = (
        path for path in folder.rglob("*") if path.is_file() and path.name[0] != "." and path.name != "source.json"
    )
    return sum(path.suffix.lower() not in READERS for path in files)


def read_book(path: Path, sentences_per_document: int, dropped: Counter[str]) -> Iterator[Document]:
    """Yield the documents of one file: one, or many where it is a list of sentences without book boundaries.

    Raises:
        PipelineError: the file is not UTF-8; the offset of the first wrong byte is named.
    """
    text = _decode(path).replace("\r\n", "\n").replace("\r", "\n")
    title = " ".join(path.stem.replace("_", " ").replace("-", " ").split())
    if path.suffix.lower() == ".txt" and is_sentence_list(text):
        sentences = [" ".join(line.split()) for line in text.split("\n") if line.strip()]
        for number, start in enumerate(range(0, len(sentences), sentences_per_document)):
            lines = sentences[start : start + sentences_per_document]
            yield Document(f"books:{path.stem}-{number:06d}", f"{title}, part {number + 1}", "\n".join(lines))
        return
    yield Document(f"books:{path.stem}", title, "\n".join(READERS[path.suffix.lower()](text, dropped)))


def _decode(path: Path) -> str:
    data = path.read_bytes()
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise PipelineError(
            "a book is not UTF-8", path, where=f"byte {error.start:,} (0x{data[error.start]:02x})",
            remedy=f"re-encode it, for example `iconv -f WINDOWS-1252 -t UTF-8 {path.name} > new.txt`",
        ) from None  # fmt: skip


def _why_drop(document: Document, min_words: int, seen: set[bytes]) -> str | None:
    words = document.text.split()
    if not words:
        return "empty"
    if len(words) < min_words:
        return "too_short"
    digest = blake2b(" ".join(words).lower().encode(), digest_size=16).digest()  # line ends do not count
    if digest in seen:
        return "duplicate"
    seen.add(digest)
    return None
