"""A little of the text that was trained on, for the report: cleaned passages, and examples with their masks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from pipeline_src.corpus.documents import Document, ShardSlice, corpus_folders, read_slice, slice_shards
from pipeline_src.evaluation.statistics import TEXT, VOCABULARY
from pipeline_src.examples.keyed import key, shuffled
from pipeline_src.examples.loading import open_examples
from pipeline_src.examples.readable import shown_pieces
from pipeline_src.params.pretrain import PretrainParams
from pipeline_src.vocabulary.wordpiece import load_tokenizer

PASSAGES, EXAMPLES = 5, 5
FEWEST, MOST = 40, 90  # words of a passage, where a document has as many


def corpus_samples(parts: Sequence[str], seed: int, mask_prob: float, pretrain: PretrainParams) -> dict[str, Any]:
    """Cleaned passages, in turn from the books and each part of Wikipedia, and examples as training sees them.

    Both are keyed by the seed, and read no more of the corpus than they show.

    Args:
        parts: of Wikipedia, as params.yaml lists them.
        seed, mask_prob, pretrain: of the study, which decide the masks.

    Returns:
        ``passages``: ``part``, ``id``, ``title``, ``text`` and ``words`` of each; ``shown_examples``: ``example``
        (its number), ``is_random`` (None without next sentences) and ``segments``, lists of
        :class:`pipeline_src.examples.readable.Shown` as blocks.

    Raises:
        PipelineError: a manifest, a shard or the plan is missing or damaged.
    """
    tokenizer = load_tokenizer(VOCABULARY)
    examples = open_examples("short", "train", tokenizer, mask_prob, pretrain.masking, seed, pretrain.objective)
    numbers = shuffled(key(seed, "shown"), np.arange(min(EXAMPLES, len(examples))), len(examples))
    shown = []
    for number in numbers.tolist():
        batch = examples.batch(np.asarray([number]))
        segments = [[asdict(piece) for piece in segment] for segment in shown_pieces(batch, tokenizer)]
        is_random = bool(batch.is_random[0]) if examples.next_sentence else None
        shown.append({"example": number, "is_random": is_random, "segments": segments})
    return {"passages": _passages(corpus_folders(TEXT, parts), seed), "shown_examples": shown}


def _passages(folders: Sequence[Path], seed: int) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    shards = {folder: [part for part in slice_shards(folder) if part.bytes] for folder in folders}
    filled = [folder for folder in folders if shards[folder]]
    for turn in range(PASSAGES if filled else 0):
        folder = filled[turn % len(filled)]
        document = _document_at(shards[folder], key(seed, "passage", turn))
        name = "-".join(folder.relative_to(TEXT).parts)
        found.setdefault(document.id, {"part": name, "id": document.id, "title": document.title} | _passage(document))
    return list(found.values())


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
