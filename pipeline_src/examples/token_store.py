"""Token ids of a corpus on disk, and the examples that index them.

``<folder>/<split>.ids`` holds all ids end to end, uint16 if the vocabulary is small enough and else uint32 (see the
manifest); ``.sentences`` the int64 offset of each sentence's first id, ``.documents`` the int64 index of each
document's first sentence; both end with one more number, where the next would start. ``.continues`` says of each id
whether it continues a word, if a source has a segmenter. All are little-endian and read through memory maps, so that a
corpus of any size takes no memory.
"""

from __future__ import annotations

import copy
import hashlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import hash_file, read_json
from pipeline_src.common.names import shown

SPLITS = ("train", "validation")
ROW = {"documents": int, "sentences": int, "tokens": int, "id_type": str}  # of the manifest
IDS_AT_ONCE = 1 << 24  # numbers checked together
HINT = "run the stage `tokenize` again"
SAMPLE_INDEX = np.dtype([("a", "<i8"), ("b", "<i8"), ("a_length", "<u2"), ("b_length", "<u2"), ("is_random", "u1")])
ROWS_AT_ONCE = 1 << 20  # rows checked together
OFFSETS = np.dtype("<i8")  # of sentences and documents


def id_type(vocab_size: int) -> np.dtype[Any]:
    """Return the dtype in which ids are stored: uint16 if ``vocab_size`` allows."""
    return np.dtype("<u2") if vocab_size <= 1 << 16 else np.dtype("<u4")


class EncodedDocuments(NamedTuple):
    """Documents in memory.

    Attributes:
        ids: of all their tokens, [tokens].
        sentences: tokens of each sentence, at least one, int64 [sentences].
        documents: sentences of each document, at least one, int64 [documents].
        continues: which tokens continue the word before them, bool [tokens]; None if no source has a segmenter.
    """

    ids: np.ndarray
    sentences: np.ndarray
    documents: np.ndarray
    continues: np.ndarray | None = None

    def pick(self, which: np.ndarray) -> EncodedDocuments:
        """Return the documents that a mask, bool [documents], selects."""
        sentences = np.repeat(which, self.documents)
        ids = np.repeat(sentences, self.sentences)
        continues = None if self.continues is None else self.continues[ids]
        return EncodedDocuments(self.ids[ids], self.sentences[sentences], self.documents[which], continues)


def _path(folder: Path, split: str, kind: str) -> Path:
    return folder / f"{split}.{kind}"


class TokenWriter:
    """Appends documents to one split; memory does not grow with it.

    Args:
        vocab_size: decides the dtype of the ids.
        segmented: whether ``continues`` is written too, since a source has a segmenter.
    """

    def __init__(self, folder: Path, split: str, vocab_size: int, segmented: bool = False) -> None:
        self._types = {"ids": id_type(vocab_size), "sentences": OFFSETS, "documents": OFFSETS}
        if segmented:
            self._types["continues"] = np.dtype(bool)
        self._paths = {kind: _path(folder, split, kind) for kind in self._types}
        self._files = {kind: open(path, "wb") for kind, path in self._paths.items()}
        self.counts: Counter[str] = Counter(documents=0, single_sentence_documents=0, sentences=0, tokens=0)

    def add(
        self, ids: np.ndarray, sentences: np.ndarray, documents: np.ndarray, continues: np.ndarray | None = None
    ) -> None:
        """Append documents; see ``EncodedDocuments``.

        Raises:
            OverflowError: an id does not fit the stored dtype.
        """
        stored = self._types["ids"]
        if ids.dtype != stored and ids.max(initial=0) > np.iinfo(stored).max:
            raise OverflowError(f"id {ids.max()} does not fit {8 * stored.itemsize} bits")
        self._write("ids", ids)
        if continues is not None:
            self._write("continues", continues)
        self._write("sentences", self.counts["tokens"] + np.cumsum(sentences) - sentences)
        self._write("documents", self.counts["sentences"] + np.cumsum(documents) - documents)
        single = int(np.count_nonzero(documents == 1))  # kept; their pairs always have a random second part
        counted = (len(documents), single, len(sentences), len(ids))
        self.counts.update(dict(zip(self.counts, counted, strict=True)))

    def _write(self, kind: str, values: np.ndarray) -> None:
        self._files[kind].write(np.ascontiguousarray(values, self._types[kind]).data)

    def close(self) -> dict[str, Any]:
        """Finish the files and return the split's row of the manifest: counts, dtype and sha256 of the ids."""
        self._write("sentences", np.asarray([self.counts["tokens"]]))
        self._write("documents", np.asarray([self.counts["sentences"]]))
        for file in self._files.values():
            file.close()
        segmented = {"segmented": True} if "continues" in self._types else {}
        return {**self.counts, "id_type": self._types["ids"].name, "sha256": hash_file(self._paths["ids"]), **segmented}


class TokenStore:
    """One split, read through memory maps.

    Attributes:
        ids: uint16 or uint32 [tokens].
        sentences: offset of each sentence's first id, int64 [sentences + 1].
        documents: index of each document's first sentence, int64 [documents + 1].
        continues: which tokens continue a word, bool [tokens]; None if their ids say so.
    """

    def __init__(self, folder: str | Path, split: str, checked: bool = False) -> None:
        self.folder = folder = Path(folder)
        self._split, self._range = split, slice(None)
        row = read_json(folder / "manifest.json", {"splits": {split: ROW}})["splits"][split]
        if row["id_type"] not in (id_type(1).name, id_type(1 << 17).name):
            raise PipelineError("not a type of ids", shown(row["id_type"]), where=folder, hint=HINT)
        self.ids = _map(_path(folder, split, "ids"), row["tokens"], np.dtype(row["id_type"]).newbyteorder("<"))
        self.sentences = _map(_path(folder, split, "sentences"), row["sentences"] + 1, OFFSETS)
        self.documents = _map(_path(folder, split, "documents"), row["documents"] + 1, OFFSETS)
        self.continues = None
        if row.get("segmented"):
            self.continues = _map(_path(folder, split, "continues"), row["tokens"], np.dtype(bool))
        if not checked:
            _check_offsets(self.sentences, row["tokens"], _path(folder, split, "sentences"))
            _check_offsets(self.documents, row["sentences"], _path(folder, split, "documents"))

    def __reduce__(self) -> tuple[Any, ...]:  # another process maps the files itself
        return _reopen, (self.folder, self._split, self._range)

    def of_documents(self, first: int, stop: int) -> TokenStore:
        """Return these documents alone; ``ids`` and ``sentences`` stay those of all."""
        part = copy.copy(self)
        part.documents, part._range = self.documents[first : stop + 1], slice(first, stop + 1)
        return part

    def __len__(self) -> int:
        """Number of documents."""
        return len(self.documents) - 1

    def counts(self, vocab_size: int) -> np.ndarray:
        """Return the number of occurrences of each id, int64 [vocab_size]."""
        total = np.zeros(vocab_size, np.int64)
        for start in range(0, len(self.ids), IDS_AT_ONCE):
            some = self.ids[start : start + IDS_AT_ONCE]
            check_ids(some, vocab_size, self.folder)
            total += np.bincount(some, minlength=vocab_size)
        return total


def _reopen(folder: Path, split: str, documents: slice) -> TokenStore:
    store = TokenStore(folder, split, checked=True)
    store.documents, store._range = store.documents[documents], documents
    return store


def check_ids(ids: np.ndarray, vocab_size: int | None, where: object) -> None:
    """Check that ids are below ``vocab_size``, if that is known."""
    if vocab_size is not None and (largest := int(ids.max(initial=0))) >= vocab_size:
        raise PipelineError(
            "an id that the vocabulary does not have", f"{largest:,} of {vocab_size:,}", where=where, hint=HINT
        )


def _check_offsets(offsets: np.ndarray, end: int, path: Path) -> None:
    blocks = (offsets[start : start + IDS_AT_ONCE + 1] for start in range(0, len(offsets), IDS_AT_ONCE))
    if not (offsets[0] == 0 and offsets[-1] == end and all(bool((np.diff(block) > 0).all()) for block in blocks)):
        wrong = f"offsets that do not rise from 0 to {end:,}"
        raise PipelineError("token shard is damaged", wrong, where=path, hint=HINT)


def _map(path: Path, length: int, dtype: np.dtype) -> np.ndarray:
    size = length * dtype.itemsize
    if not path.exists() or path.stat().st_size != size:
        actual = path.stat().st_size if path.exists() else "no file"
        raise PipelineError(
            "token shard is damaged", f"{actual} where {size} bytes belong", where=path,
            hint=HINT,
        )  # fmt: skip
    # a plain array over the map: the class memmap makes every slice ten times as slow
    return np.asarray(np.memmap(path, dtype, "r")) if length else np.empty(0, dtype)


def read_sample_index(path: Path, tokens: int | None = None) -> np.ndarray:
    """Return the examples of a file, ``SAMPLE_INDEX`` [examples], through a memory map.

    Args:
        tokens: number of tokens in the store; None skips the check that every example is within them.
    """
    hint = "run the stage `build_examples` again"
    if not path.exists():
        raise PipelineError("no sample index", path, hint="run the stage `build_examples`")
    try:
        rows = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise PipelineError("the sample index is damaged", error, where=path, hint=hint) from None
    if not isinstance(rows, np.ndarray) or rows.dtype != SAMPLE_INDEX or rows.ndim != 1:
        found = f"{rows.dtype} {rows.shape}" if isinstance(rows, np.ndarray) else type(rows).__name__
        raise PipelineError("the sample index is damaged", f"a table of {found}", where=path, hint=hint)
    rows = rows.view(np.ndarray)
    if tokens is None:
        return rows
    for start in range(0, len(rows), ROWS_AT_ONCE):
        some = rows[start : start + ROWS_AT_ONCE]
        wrong = np.zeros(len(some), bool)
        for text in ("a", "b"):
            wrong |= (some[text] < 0) | (some[text] > tokens - some[f"{text}_length"].astype(np.int64))
        if wrong.any():
            raise PipelineError(
                "the sample index is damaged", f"example {start + int(wrong.argmax()):,} is not within the tokens",
                where=path, hint=hint,
            )  # fmt: skip
    return rows


def write_sample_index(path: Path, blocks: Iterator[np.ndarray]) -> tuple[int, str]:
    """Write blocks of rows as one .npy file without holding them; return the number of rows and their sha256.

    numpy reserves space in the header for any number of rows, so it is rewritten when their number is known.
    """
    count, digest = 0, hashlib.sha256()
    with open(path, "wb") as file:
        _write_header(file, count)
        for rows in blocks:
            file.write(rows.tobytes())
            digest.update(rows.tobytes())
            count += len(rows)
        file.seek(0)
        _write_header(file, count)
    return count, digest.hexdigest()


def _write_header(file: IO[bytes], rows: int) -> None:
    header = {"descr": np.lib.format.dtype_to_descr(SAMPLE_INDEX), "fortran_order": False, "shape": (rows,)}
    np.lib.format.write_array_header_1_0(file, header)
