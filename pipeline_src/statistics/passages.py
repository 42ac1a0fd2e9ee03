"""A little of the text that was trained on, for the report: cleaned passages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipeline_src.common.counter_rng import derive_seed
from pipeline_src.corpus.documents import Document, ShardSlice, corpus_label, read_slice, slice_shards

PASSAGES = 5
FEWEST, MOST = 40, 90  # words of a passage, where a document has as many


def sample_passages(folders: Sequence[Path], root: Path, seed: int) -> list[dict[str, Any]]:
    """Cleaned passages, in turn from the books and each part of Wikipedia.

    They are keyed by the seed, and no more of the corpus is read than is shown.

    Args:
        folders: of the corpus, below ``root``.
        root: that a part is named after.
        seed: of the study.

    Returns:
        ``part``, ``id``, ``title``, ``text`` and ``words`` of each.

    Raises:
        PipelineError: a shard is missing or damaged.
    """
    passages: dict[str, dict[str, Any]] = {}
    shards = {folder: [part for part in slice_shards(folder) if part.bytes] for folder in folders}
    filled = [folder for folder in folders if shards[folder]]
    for turn in range(PASSAGES if filled else 0):
        folder = filled[turn % len(filled)]
        document = _document_at(shards[folder], derive_seed(seed, "passage", turn))
        name = corpus_label(folder, root)
        passages.setdefault(
            document.id, {"part": name, "id": document.id, "title": document.title} | _passage(document)
        )
    return list(passages.values())


def _document_at(slices: list[ShardSlice], draw: int) -> Document:
    """The first document that begins at or after a drawn byte of the folder, else its first."""
    place = draw % sum(part.bytes for part in slices)
    for part in slices:
        if place < part.bytes:
            break
        place -= part.bytes
    after = ShardSlice(part.path, part.start + place, part.stop)
    return next(read_slice(after), None) or next(document for part in slices for document in read_slice(part))


def _passage(document: Document) -> dict[str, Any]:
    """The first lines that make up a passage, from the middle of the document on; cut where it grows too long."""
    lines = document.text.split("\n")
    words: list[str] = []
    for line in lines[len(lines) // 2 :] if document.words > 2 * MOST else lines:
        words += line.split()
        if len(words) >= FEWEST:
            break
    return {"text": " ".join(words[:MOST]) + (" …" if len(words) > MOST else ""), "words": min(len(words), MOST)}
