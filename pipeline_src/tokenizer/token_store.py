"""Token ids of a whole corpus on disk, end to end, with the places where sentences and documents start.

``<folder>/<split>.ids`` holds uint16 ids, ``.sentences`` the int64 offset of each sentence's first id, ``.documents``
the int64 number of each document's first sentence; both end with one number more, where the next would start. All are
little-endian and read through memory maps, so that a corpus of any size takes no memory.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import hash_file, read_json

SPLITS = ("train", "validation")
# Documents in memory: ids of all their tokens (uint16), tokens of each sentence, sentences of each document (int64).
Block = tuple[np.ndarray, np.ndarray, np.ndarray]
TYPES: dict[str, np.dtype[Any]] = {"ids": np.dtype("<u2"), "sentences": np.dtype("<i8"), "documents": np.dtype("<i8")}


def _path(folder: Path, split: str, kind: str) -> Path:
    return folder / f"{split}.{kind}"


class TokenWriter:
    """Appends documents to one split; memory does not grow with it."""

    def __init__(self, folder: Path, split: str) -> None:
        self._paths = {kind: _path(folder, split, kind) for kind in TYPES}
        self._files = {kind: open(path, "wb") for kind, path in self._paths.items()}
        self.counts: Counter[str] = Counter(documents=0, single_sentence_documents=0, sentences=0, tokens=0)

    def add(self, ids: np.ndarray, sentences: np.ndarray, documents: np.ndarray) -> None:
        """Append documents.

        Args:
            ids: all their tokens, [tokens].
            sentences: tokens of each sentence, at least one, int64 [sentences].
            documents: sentences of each document, at least one, int64 [documents].

        Raises:
            OverflowError: an id does not fit 16 bits.
        """
        if ids.dtype != TYPES["ids"] and ids.max(initial=0) > np.iinfo(TYPES["ids"]).max:
            raise OverflowError(f"id {ids.max()} does not fit 16 bits")
        self._write("ids", ids)
        self._write("sentences", self.counts["tokens"] + np.cumsum(sentences) - sentences)
        self._write("documents", self.counts["sentences"] + np.cumsum(documents) - documents)
        single = int(np.count_nonzero(documents == 1))  # kept; their pairs always have a random second part
        counted = (len(documents), single, len(sentences), len(ids))
        self.counts.update(dict(zip(self.counts, counted, strict=True)))

    def _write(self, kind: str, values: np.ndarray) -> None:
        self._files[kind].write(np.ascontiguousarray(values, TYPES[kind]).data)

    def close(self) -> dict[str, Any]:
        """Finish the files and return the split's row of the manifest: counts, and the sum of the ids."""
        self._write("sentences", np.asarray([self.counts["tokens"]]))
        self._write("documents", np.asarray([self.counts["sentences"]]))
        for file in self._files.values():
            file.close()
        return {**self.counts, "sha256": hash_file(self._paths["ids"])}


class TokenStore:
    """One split, read through memory maps.

    Attributes:
        ids: uint16 [tokens].
        sentences: offset of each sentence's first id, int64 [sentences + 1].
        documents: number of each document's first sentence, int64 [documents + 1].

    Raises:
        PipelineError: a file is missing or has another size than the manifest says.
    """

    def __init__(self, folder: str | Path, split: str) -> None:
        self._opened = folder, split
        folder = Path(folder)
        row = read_json(folder / "manifest.json")["splits"][split]
        self.ids = _map(_path(folder, split, "ids"), row["tokens"], TYPES["ids"])
        self.sentences = _map(_path(folder, split, "sentences"), row["sentences"] + 1, TYPES["sentences"])
        self.documents = _map(_path(folder, split, "documents"), row["documents"] + 1, TYPES["documents"])

    def __reduce__(self) -> tuple[Any, ...]:  # another process maps the files itself
        return TokenStore, self._opened

    def __len__(self) -> int:
        """Documents."""
        return len(self.documents) - 1

    def counts(self, entries: int) -> np.ndarray:
        """How often each id occurs, int64 [entries]."""
        total = np.zeros(entries, np.int64)
        for start in range(0, len(self.ids), 1 << 24):
            total += np.bincount(self.ids[start : start + (1 << 24)], minlength=entries)
        return total


def _map(path: Path, length: int, dtype: np.dtype) -> np.ndarray:
    size = length * dtype.itemsize
    if not path.exists() or path.stat().st_size != size:
        found = path.stat().st_size if path.exists() else "no file"
        raise PipelineError(
            "token shard is damaged", f"{found} where {size} bytes belong", where=path,
            remedy="run the stage `tokenize` again",
        )  # fmt: skip
    # a plain array over the map: the class memmap makes every slice ten times as slow
    return np.asarray(np.memmap(path, dtype, "r")) if length else np.empty(0, dtype)
