"""Store the token ids of a corpus on disk, and the examples that refer to them.

``<folder>/<split>.ids`` has all token ids, concatenated, as uint16 or, for a large vocabulary, uint32 (see the
manifest). ``<split>.sentences`` has the offset of each sentence's first id, int64. ``<split>.documents`` has the index
of each document's first sentence, int64. Both have an additional last entry for the end. If a source has a segmenter,
``<split>.continues`` has, for each id, whether it continues a word. All files are little-endian and memory-mapped.
"""

from __future__ import annotations

import copy
import hashlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import hash_file, read_json
from pipeline_src.base.names import shown

SPLITS = ("train", "validation")
# Schema of a split's entry in the manifest.
SPLIT_SHAPE = {"documents": int, "sentences": int, "tokens": int, "id_type": str}
# Numbers of ids and of examples that are checked at once.
IDS_PER_BLOCK = 1 << 24
EXAMPLES_PER_BLOCK = 1 << 20
HINT = "run the stage `tokenize` again"
SAMPLE_INDEX = np.dtype([("a", "<i8"), ("b", "<i8"), ("a_length", "<u2"), ("b_length", "<u2"), ("is_random", "u1")])
# Dtype of the files .sentences and .documents.
OFFSETS = np.dtype("<i8")


def id_type(vocab_size: int) -> np.dtype[Any]:
    return np.dtype("<u2") if vocab_size <= 1 << 16 else np.dtype("<u4")


class EncodedDocuments(NamedTuple):
    """Encoded documents in memory.

    Attributes:
        ids: token ids of all documents, concatenated, [tokens].
        sentences: number of tokens in each sentence, at least one, int64 [sentences].
        documents: number of sentences in each document, at least one, int64 [documents].
        continues: which tokens continue the word before them, bool [tokens]; None if no source has a segmenter.
    """

    ids: np.ndarray
    sentences: np.ndarray
    documents: np.ndarray
    continues: np.ndarray | None = None

    def pick(self, selected: np.ndarray) -> EncodedDocuments:
        # Return some of the documents. `selected` is a mask, bool [documents].
        sentences = np.repeat(selected, self.documents)
        ids = np.repeat(sentences, self.sentences)
        continues = None if self.continues is None else self.continues[ids]
        return EncodedDocuments(self.ids[ids], self.sentences[sentences], self.documents[selected], continues)


class TokenWriter:
    """Writes the files of one split; ``segmented``: whether to write ``.continues`` too."""

    def __init__(self, folder: Path, split: str, vocab_size: int, segmented: bool = False) -> None:
        self._types = {"ids": id_type(vocab_size), "sentences": OFFSETS, "documents": OFFSETS}
        if segmented:
            self._types["continues"] = np.dtype(bool)
        self._files = {kind: open(folder / f"{split}.{kind}", "wb") for kind in self._types}
        self.counts: Counter[str] = Counter(documents=0, single_sentence_documents=0, sentences=0, tokens=0)

    def add(
        self, ids: np.ndarray, sentences: np.ndarray, documents: np.ndarray, continues: np.ndarray | None = None
    ) -> None:
        # The arguments are the fields of `EncodedDocuments`.
        self._write("ids", ids)
        if continues is not None:
            self._write("continues", continues)
        self._write("sentences", self.counts["tokens"] + np.cumsum(sentences) - sentences)
        self._write("documents", self.counts["sentences"] + np.cumsum(documents) - documents)
        self.counts.update(
            documents=len(documents),
            # Reported, since such a sentence is always paired with random text.
            single_sentence_documents=int(np.count_nonzero(documents == 1)),
            sentences=len(sentences),
            tokens=len(ids),
        )

    def _write(self, kind: str, values: np.ndarray) -> None:
        self._files[kind].write(np.ascontiguousarray(values, self._types[kind]).data)

    def close(self) -> dict[str, Any]:
        # Return the entry of the split for the manifest: counts, and dtype and sha256 of the ids.
        self._write("sentences", np.asarray([self.counts["tokens"]]))
        self._write("documents", np.asarray([self.counts["sentences"]]))
        for file in self._files.values():
            file.close()
        about: dict[str, Any] = dict(self.counts)
        about["id_type"] = self._types["ids"].name
        about["sha256"] = hash_file(self._files["ids"].name)
        if "continues" in self._types:
            about["segmented"] = True
        return about


class TokenStore:
    """The token ids of one split, memory-mapped. ``checked=True`` skips the check of the offsets.

    Attributes:
        ids: token ids, uint16 or uint32 [tokens].
        sentences: offset of each sentence's first id, and a last entry for the end, int64 [sentences + 1].
        documents: index of each document's first sentence, and a last entry for the end, int64 [documents + 1].
        continues: which tokens continue a word, bool [tokens]; None if this follows from the ids.
    """

    def __init__(self, folder: str | Path, split: str, checked: bool = False) -> None:
        self.folder = Path(folder)
        self._split = split
        self._range = slice(None)
        shape = {"splits": {split: SPLIT_SHAPE}}
        about = read_json(self.folder / "manifest.json", shape)["splits"][split]
        if about["id_type"] not in ("uint16", "uint32"):
            raise PipelineError(
                "invalid id_type in the manifest", shown(about["id_type"]), where=self.folder, hint=HINT
            )

        path = self.folder / split
        ids_type = np.dtype(about["id_type"]).newbyteorder("<")
        self.ids = _map(path.with_suffix(".ids"), about["tokens"], ids_type)
        self.sentences = _map(path.with_suffix(".sentences"), about["sentences"] + 1, OFFSETS)
        self.documents = _map(path.with_suffix(".documents"), about["documents"] + 1, OFFSETS)
        self.continues = None
        # For text without spaces, word starts cannot be derived from the ids, so the stage `tokenize` stores them.
        if about.get("segmented"):
            self.continues = _map(path.with_suffix(".continues"), about["tokens"], np.dtype(bool))
        if not checked:
            _check_offsets(self.sentences, about["tokens"], path.with_suffix(".sentences"))
            _check_offsets(self.documents, about["sentences"], path.with_suffix(".documents"))

    # Pickled as its path: another process maps the files itself.
    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (self.folder, self._split, self._range)

    def of_documents(self, first: int, stop: int) -> TokenStore:
        """Return a store of the documents ``first`` to ``stop - 1``.

        Its ``ids`` and ``sentences`` are still those of the whole split.
        """
        part = copy.copy(self)
        part.documents = self.documents[first : stop + 1]
        part._range = slice(first, stop + 1)
        return part

    def __len__(self) -> int:
        return len(self.documents) - 1

    def counts(self, vocab_size: int) -> np.ndarray:
        total = np.zeros(vocab_size, np.int64)
        for start in range(0, len(self.ids), IDS_PER_BLOCK):
            block = self.ids[start : start + IDS_PER_BLOCK]
            check_ids(block, vocab_size, self.folder)
            total += np.bincount(block, minlength=vocab_size)
        return total


def _reopen(folder: Path, split: str, documents: slice) -> TokenStore:
    store = TokenStore(folder, split, checked=True)
    store.documents = store.documents[documents]
    store._range = documents
    return store


def check_ids(ids: np.ndarray, vocab_size: int | None, where: object) -> None:
    if vocab_size is None:
        return
    largest = int(ids.max(initial=0))
    if largest >= vocab_size:
        raise PipelineError(
            "token id outside the vocabulary", f"{largest:,}, with vocab_size {vocab_size:,}", where=where, hint=HINT
        )


def _check_offsets(offsets: np.ndarray, end: int, path: Path) -> None:
    rises = bool(offsets[0] == 0 and offsets[-1] == end)
    for start in range(0, len(offsets), IDS_PER_BLOCK):
        # Include the first offset of the next block, so that it is compared with the last offset of this block.
        block = offsets[start : start + IDS_PER_BLOCK + 1]
        rises = rises and bool((np.diff(block) > 0).all())
    if not rises:
        wrong = f"offsets that do not rise from 0 to {end:,}"
        raise PipelineError("token shard is damaged", wrong, where=path, hint=HINT)


def _map(path: Path, length: int, dtype: np.dtype) -> np.ndarray:
    size = length * dtype.itemsize
    actual = path.stat().st_size if path.exists() else "no file"
    if actual != size:
        raise PipelineError("token shard is damaged", f"{actual} instead of {size} bytes", where=path, hint=HINT)
    if not length:
        return np.empty(0, dtype)
    # A plain array, since slicing an np.memmap takes ten times as long.
    return np.asarray(np.memmap(path, dtype, "r"))


def read_sample_index(path: Path, tokens: int | None = None) -> np.ndarray:
    """Read a file of examples as a memory-mapped array, dtype ``SAMPLE_INDEX`` [examples].

    Args:
        tokens: number of tokens in the store, to check that all examples lie within it. None skips the check.
    """
    hint = "run the stage `build_examples` again"
    if not path.exists():
        raise PipelineError("sample index not found", path, hint="run the stage `build_examples`")
    try:
        examples = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise PipelineError("the sample index is damaged", error, where=path, hint=hint) from None
    kind = getattr(examples, "dtype", None)
    if kind != SAMPLE_INDEX or examples.ndim != 1:
        raise PipelineError("the sample index is damaged", f"an array of dtype {kind}", where=path, hint=hint)
    examples = examples.view(np.ndarray)
    if tokens is None:
        return examples
    for start in range(0, len(examples), EXAMPLES_PER_BLOCK):
        block = examples[start : start + EXAMPLES_PER_BLOCK]
        outside = np.zeros(len(block), bool)
        for text in ("a", "b"):
            outside |= (block[text] < 0) | (block[text] > tokens - block[f"{text}_length"].astype(np.int64))
        if outside.any():
            message = f"example {start + int(outside.argmax()):,} exceeds the token store"
            raise PipelineError("the sample index is damaged", message, where=path, hint=hint)
    return examples


def write_sample_index(path: Path, blocks: Iterator[np.ndarray]) -> tuple[int, str]:
    # Write all blocks to one .npy file. Return the number of examples and their sha256.
    count = 0
    digest = hashlib.sha256()
    with open(path, "wb") as file:
        _write_header(file, count)
        for examples in blocks:
            file.write(examples.tobytes())
            digest.update(examples.tobytes())
            count += len(examples)
        # numpy pads the header, so the final count fits.
        file.seek(0)
        _write_header(file, count)
    return count, digest.hexdigest()


def _write_header(file: IO[bytes], count: int) -> None:
    header = {"descr": np.lib.format.dtype_to_descr(SAMPLE_INDEX), "fortran_order": False, "shape": (count,)}
    np.lib.format.write_array_header_1_0(file, header)
