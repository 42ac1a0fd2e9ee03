"""Token ids of a whole corpus on disk, end to end, with the places where sentences and documents start.

``<folder>/<split>.ids`` holds ids, of 16 bits where the vocabulary has few enough entries and else of 32 (the manifest
says which); ``.sentences`` the int64 offset of each sentence's first id, ``.documents`` the int64 number of each
document's first sentence; both end with one number more, where the next would start. All are little-endian and read
through memory maps, so that a corpus of any size takes no memory.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import hash_file, read_json
from pipeline_src.common.names import shown

SPLITS = ("train", "validation")
ROW = {"documents": int, "sentences": int, "tokens": int, "id_type": str}  # of the manifest
AT_ONCE = 1 << 24  # numbers that are looked at together
REMEDY = "run the stage `tokenize` again"
OFFSETS = np.dtype("<i8")  # of sentences and documents


def id_type(entries: int) -> np.dtype[Any]:
    """The type that ids of a vocabulary of so many entries are stored as: uint16 where it numbers them all."""
    return np.dtype("<u2") if entries <= 1 << 16 else np.dtype("<u4")


class EncodedDocuments(NamedTuple):
    """Documents in memory.

    Attributes:
        ids: of all their tokens, [tokens].
        sentences: tokens of each sentence, at least one, int64 [sentences].
        documents: sentences of each document, at least one, int64 [documents].
    """

    ids: np.ndarray
    sentences: np.ndarray
    documents: np.ndarray


def _path(folder: Path, split: str, kind: str) -> Path:
    return folder / f"{split}.{kind}"


class TokenWriter:
    """Appends documents to one split; memory does not grow with it.

    Args:
        folder, split: where.
        entries: of the vocabulary.
    """

    def __init__(self, folder: Path, split: str, entries: int) -> None:
        self._types = {"ids": id_type(entries), "sentences": OFFSETS, "documents": OFFSETS}
        self._paths = {kind: _path(folder, split, kind) for kind in self._types}
        self._files = {kind: open(path, "wb") for kind, path in self._paths.items()}
        self.counts: Counter[str] = Counter(documents=0, single_sentence_documents=0, sentences=0, tokens=0)

    def add(self, ids: np.ndarray, sentences: np.ndarray, documents: np.ndarray) -> None:
        """Append documents, as :class:`EncodedDocuments` holds them.

        Raises:
            OverflowError: an id does not fit the type that ids are stored as.
        """
        stored = self._types["ids"]
        if ids.dtype != stored and ids.max(initial=0) > np.iinfo(stored).max:
            raise OverflowError(f"id {ids.max()} does not fit {8 * stored.itemsize} bits")
        self._write("ids", ids)
        self._write("sentences", self.counts["tokens"] + np.cumsum(sentences) - sentences)
        self._write("documents", self.counts["sentences"] + np.cumsum(documents) - documents)
        single = int(np.count_nonzero(documents == 1))  # kept; their pairs always have a random second part
        counted = (len(documents), single, len(sentences), len(ids))
        self.counts.update(dict(zip(self.counts, counted, strict=True)))

    def _write(self, kind: str, values: np.ndarray) -> None:
        self._files[kind].write(np.ascontiguousarray(values, self._types[kind]).data)

    def close(self) -> dict[str, Any]:
        """Finish the files and return the split's row of the manifest: counts, the type of the ids, and their sum."""
        self._write("sentences", np.asarray([self.counts["tokens"]]))
        self._write("documents", np.asarray([self.counts["sentences"]]))
        for file in self._files.values():
            file.close()
        return {**self.counts, "id_type": self._types["ids"].name, "sha256": hash_file(self._paths["ids"])}


class TokenStore:
    """One split, read through memory maps.

    Attributes:
        ids: uint16 or uint32 [tokens].
        sentences: offset of each sentence's first id, int64 [sentences + 1].
        documents: number of each document's first sentence, int64 [documents + 1].

    Raises:
        PipelineError: a file is missing, has another size than the manifest says, or offsets that are none.
    """

    def __init__(self, folder: str | Path, split: str, checked: bool = False) -> None:
        self.folder = folder = Path(folder)
        self._split = split
        row = read_json(folder / "manifest.json", {"splits": {split: ROW}})["splits"][split]
        if row["id_type"] not in (id_type(1).name, id_type(1 << 17).name):
            raise PipelineError("not a type of ids", shown(row["id_type"]), where=folder, remedy=REMEDY)
        self.ids = _map(_path(folder, split, "ids"), row["tokens"], np.dtype(row["id_type"]).newbyteorder("<"))
        self.sentences = _map(_path(folder, split, "sentences"), row["sentences"] + 1, OFFSETS)
        self.documents = _map(_path(folder, split, "documents"), row["documents"] + 1, OFFSETS)
        if not checked:
            _check_offsets(self.sentences, row["tokens"], _path(folder, split, "sentences"))
            _check_offsets(self.documents, row["sentences"], _path(folder, split, "documents"))

    def __reduce__(self) -> tuple[Any, ...]:  # another process maps the files itself
        return TokenStore, (self.folder, self._split, True)

    def __len__(self) -> int:
        """Documents."""
        return len(self.documents) - 1

    def counts(self, entries: int) -> np.ndarray:
        """How often each id occurs, int64 [entries]."""
        total = np.zeros(entries, np.int64)
        for start in range(0, len(self.ids), AT_ONCE):
            some = self.ids[start : start + AT_ONCE]
            check_ids(some, entries, self.folder)
            total += np.bincount(some, minlength=entries)
        return total


def check_ids(ids: np.ndarray, entries: int | None, where: object) -> None:
    """Hold ids of a store to the vocabulary's number of entries, where that is known.

    Raises:
        PipelineError: there is one from ``entries`` on.
    """
    if entries is not None and (largest := int(ids.max(initial=0))) >= entries:
        raise PipelineError(
            "an id that the vocabulary does not have", f"{largest:,} of {entries:,}", where=where, remedy=REMEDY
        )


def _check_offsets(offsets: np.ndarray, end: int, path: Path) -> None:
    """Offsets begin with 0, rise, and end where the next would start."""
    blocks = (offsets[start : start + AT_ONCE + 1] for start in range(0, len(offsets), AT_ONCE))
    if not (offsets[0] == 0 and offsets[-1] == end and all(bool((np.diff(block) > 0).all()) for block in blocks)):
        wrong = f"offsets that do not rise from 0 to {end:,}"
        raise PipelineError("token shard is damaged", wrong, where=path, remedy=REMEDY)


def _map(path: Path, length: int, dtype: np.dtype) -> np.ndarray:
    size = length * dtype.itemsize
    if not path.exists() or path.stat().st_size != size:
        actual = path.stat().st_size if path.exists() else "no file"
        raise PipelineError(
            "token shard is damaged", f"{actual} where {size} bytes belong", where=path,
            remedy=REMEDY,
        )  # fmt: skip
    # a plain array over the map: the class memmap makes every slice ten times as slow
    return np.asarray(np.memmap(path, dtype, "r")) if length else np.empty(0, dtype)
