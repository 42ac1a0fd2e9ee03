"""Token shards on disk: ids of whole corpora end to end, with the places where sentences and documents start.

``<folder>/<split>/<part>.ids`` holds uint16 ids, ``.sentences`` the int64 offset of each sentence's first id,
``.documents`` the int64 number of each document's first sentence; all little-endian, read through memory maps.
``<folder>/manifest.json`` names the parts of each split in order; offsets over all parts of a split ("global"
offsets) count in that order.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pipeline_src.errors import PipelineError
from pipeline_src.files import hash_file, read_json

SPLITS = ("train", "heldout")


@dataclass(frozen=True)
class TokenBlock:
    """Documents in memory, one after another.

    Attributes:
        ids: uint16 [tokens].
        sentences: int64 [sentences], how many ids each has.
        documents: int64 [documents], how many sentences each has.
    """

    ids: np.ndarray
    sentences: np.ndarray
    documents: np.ndarray


class TokenWriter:
    """Appends documents to one part of one split; memory does not grow with the part."""

    def __init__(self, folder: Path, split: str, part: str) -> None:
        (folder / split).mkdir(exist_ok=True)
        self._stem = folder / split / part
        self.split, self.part = split, part
        self.documents = self.sentences = self.tokens = self.single = 0
        self._files = {kind: open(self._path(kind), "wb") for kind in ("ids", "sentences", "documents")}

    def _path(self, kind: str) -> Path:
        return self._stem.with_name(f"{self._stem.name}.{kind}")

    def append(self, block: TokenBlock) -> None:
        """Append a block of documents."""
        self._files["ids"].write(block.ids.astype("<u2", copy=False).data)
        for kind, lengths, before in (
            ("sentences", block.sentences, self.tokens),
            ("documents", block.documents, self.sentences),
        ):
            self._files[kind].write((before + np.cumsum(lengths) - lengths).astype("<i8", copy=False).data)
        self.tokens += len(block.ids)
        self.sentences += len(block.sentences)
        self.documents += len(block.documents)
        self.single += int(np.count_nonzero(block.documents == 1))

    def add(self, sentences: Iterable[Sequence[int]]) -> None:
        """Append one document, given as the ids of its sentences (each at least one id)."""
        ids = [np.asarray(sentence, np.uint16) for sentence in sentences]
        lengths = np.array([len(sentence) for sentence in ids], np.int64)
        self.append(TokenBlock(np.concatenate(ids), lengths, np.array([len(ids)], np.int64)))

    def close(self) -> dict[str, Any]:
        """Finish the part and return its row of the manifest."""
        for file in self._files.values():
            file.close()
        return {
            "name": self.part,
            "documents": self.documents,
            "single_sentence_documents": self.single,  # kept; their pairs always have a random second part
            "sentences": self.sentences,
            "tokens": self.tokens,
            "sha256": hash_file(self._path("ids")),
        }


@dataclass(frozen=True)
class TokenPart:
    """One part of a split.

    Attributes:
        ids: uint16 [tokens].
        sentences: int64 [sentences + 1], offset of each sentence's first id, and the number of ids.
        documents: int64 [documents + 1], number of each document's first sentence, and the number of sentences.
        first_token, first_document: what comes before this part in its split.
    """

    ids: np.ndarray
    sentences: np.ndarray
    documents: np.ndarray
    first_token: int
    first_document: int


class TokenStore:
    """All parts of one split, read through memory maps.

    Raises:
        PipelineError: a file of the manifest is missing or has another size.
    """

    def __init__(self, folder: str | Path, split: str) -> None:
        folder = Path(folder)
        self.parts: list[TokenPart] = []
        self.tokens = self.documents = 0
        for row in read_json(folder / "manifest.json")["splits"][split]:
            stem = folder / split / row["name"]
            ids = _map(stem, "ids", np.uint16, row["tokens"])
            sentences = np.append(_map(stem, "sentences", np.int64, row["sentences"]), row["tokens"])
            documents = np.append(_map(stem, "documents", np.int64, row["documents"]), row["sentences"])
            self.parts.append(TokenPart(ids, sentences, documents, self.tokens, self.documents))
            self.tokens += row["tokens"]
            self.documents += row["documents"]
        self._first_tokens = [part.first_token for part in self.parts]
        self._first_documents = [part.first_document for part in self.parts]

    def document(self, number: int) -> np.ndarray:
        """Global offsets of a document's sentences, int64 [sentences + 1]; ``number`` counts over all parts."""
        part = self.parts[bisect_right(self._first_documents, number) - 1]
        first, last = part.documents[number - part.first_document : number - part.first_document + 2]
        return part.sentences[first : last + 1] + part.first_token

    def span(self, start: int, stop: int) -> np.ndarray:
        """Ids between two global offsets (within one part), uint16 [stop - start]."""
        part = self.parts[bisect_right(self._first_tokens, start) - 1]
        return part.ids[start - part.first_token : stop - part.first_token]

    def counts(self, entries: int) -> np.ndarray:
        """How often each id occurs, int64 [entries]."""
        total = np.zeros(entries, np.int64)
        for part in self.parts:
            for start in range(0, len(part.ids), 1 << 24):
                total += np.bincount(part.ids[start : start + (1 << 24)], minlength=entries)
        return total


def _map(stem: Path, kind: str, dtype: type, length: int) -> np.ndarray:
    path = stem.with_name(f"{stem.name}.{kind}")
    size = length * np.dtype(dtype).itemsize
    if not path.exists() or path.stat().st_size != size:
        found = path.stat().st_size if path.exists() else "no file"
        raise PipelineError(
            "token shard is damaged",
            f"{found} where {size} bytes belong",
            where=path,
            remedy="run stage `tokens` again",
        )
    return np.memmap(path, dtype, "r") if length else np.empty(0, dtype)
