"""Stage ``tokens``: every document as sentences of token ids, held-out documents apart."""

from __future__ import annotations

from array import array
from collections import Counter
from functools import lru_cache, partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from pipeline_src.corpus.documents import ShardSlice, corpus_folders, read_manifest, read_slice, slice_shards
from pipeline_src.corpus.heldout import is_heldout
from pipeline_src.corpus.sentences import split_sentences
from pipeline_src.errors import PipelineError
from pipeline_src.examples.store import SPLITS, TokenBlock, TokenWriter
from pipeline_src.files import atomic_directory, hash_file, read_json, write_json
from pipeline_src.parallel import map_in_order
from pipeline_src.params.corpus import CorpusParams
from pipeline_src.params.wikipedia import WikipediaParams
from pipeline_src.progress import Progress, log
from pipeline_src.vocabulary.encode import Encoder
from pipeline_src.vocabulary.wordpiece import load_tokenizer

TEXT, VOCABULARY, OUTPUT = Path("data/text"), Path("data/vocabulary"), Path("data/tokens")
STATISTICS = Path("results/corpus.json")


def run(*, seed: int, corpus: CorpusParams, wikipedia: WikipediaParams) -> None:
    """Read ``data/text`` and ``data/vocabulary``, write ``data/tokens`` and ``results/corpus.json``.

    Raises:
        PipelineError: a split ends up without a document.
    """
    load_tokenizer(VOCABULARY)  # what is wrong with it is said before any process starts
    folders = corpus_folders(TEXT, wikipedia.parts)
    slices = [slice_shards(text) for text in folders]
    splits: dict[str, list[dict[str, Any]]] = {split: [] for split in SPLITS}
    dropped: Counter[str] = Counter()
    encode = partial(
        encode_slice, vocabulary=VOCABULARY.resolve(), sha256=hash_file(VOCABULARY / "tokenizer.json"),
        seed=seed, heldout=corpus.heldout,
    )  # fmt: skip
    encoded = map_in_order(encode, chain.from_iterable(slices))
    total = sum(piece.bytes for pieces in slices for piece in pieces)
    with atomic_directory(OUTPUT) as folder, Progress("encoding", total, "B") as progress:
        for text, pieces in zip(folders, slices, strict=True):
            writers = {split: TokenWriter(folder, split, _name(text)) for split in SPLITS}
            for piece, (blocks, lost) in zip(pieces, encoded, strict=False):
                for split, block in blocks.items():
                    writers[split].append(block)
                dropped.update(lost)
                progress.advance(piece.bytes)
            for split, writer in writers.items():
                splits[split].append(writer.close())
        for split, parts in splits.items():
            if not sum(part["documents"] for part in parts):
                raise PipelineError(
                    f"no document in split {split!r}",
                    f"corpus.heldout = {corpus.heldout:g}",
                    where=TEXT,
                    remedy="give more documents, or another corpus.heldout or seed",
                )
        write_json(folder / "manifest.json", {"splits": splits, "dropped": dict(dropped)})
    write_json(STATISTICS, _statistics(folders, splits, dropped))
    for split, parts in splits.items():
        log.info(
            "%s: %d documents, %d tokens",
            split,
            sum(part["documents"] for part in parts),
            sum(part["tokens"] for part in parts),
        )


def encode_slice(
    piece: ShardSlice, vocabulary: Path, sha256: str, seed: int, heldout: float
) -> tuple[dict[str, TokenBlock], Counter[str]]:
    """The documents of one slice as token blocks, one a split, and how many were dropped for which reason."""
    encoder = _encoder(vocabulary, sha256)
    collected = {split: _Collector() for split in SPLITS}
    dropped: Counter[str] = Counter()
    for document in read_slice(piece):
        split = "heldout" if is_heldout(document.id, seed, heldout) else "train"
        sentences = (sentence for paragraph in document.text.split("\n") for sentence in split_sentences(paragraph))
        encoded = [ids for sentence in sentences if (ids := encoder.encode_bytes(sentence))]
        if encoded:
            collected[split].add(encoded)
        else:
            dropped["document_without_tokens"] += 1
    return {split: documents.block() for split, documents in collected.items()}, dropped


@lru_cache(maxsize=1)  # one a process: its cache of chunks lasts from slice to slice
def _encoder(vocabulary: Path, sha256: str) -> Encoder:  # the hash tells a vocabulary from an older one in its place
    return Encoder(load_tokenizer(vocabulary))


class _Collector:
    """Gathers encoded documents into a block."""

    def __init__(self) -> None:
        self._ids: list[bytes] = []
        self._sentences, self._documents = array("q"), array("q")

    def add(self, sentences: list[bytes]) -> None:
        self._ids.append(b"".join(sentences))
        self._sentences.extend(len(ids) // 2 for ids in sentences)
        self._documents.append(len(sentences))

    def block(self) -> TokenBlock:
        return TokenBlock(
            np.frombuffer(b"".join(self._ids), np.uint16),
            np.asarray(self._sentences),
            np.asarray(self._documents),
        )


def _name(text: Path) -> str:
    return "-".join(text.relative_to(TEXT).parts)


def _statistics(folders: list[Path], splits: dict[str, list[dict[str, Any]]], dropped: Counter[str]) -> dict[str, Any]:
    """What the report says of the corpus: per part its documents, words, drops by reason, sentences and tokens."""
    parts = {}
    for text in folders:
        manifest = read_manifest(text)
        name = _name(text)
        parts[name] = {key: manifest[key] for key in ("documents", "words", "bytes", "dropped")}
        parts[name]["dropped_inside"] = manifest.get("dropped_lines") or manifest.get("dropped_blocks") or {}
        for split, rows in splits.items():
            parts[name][split] = next(
                {key: row[key] for key in ("documents", "sentences", "tokens")} for row in rows if row["name"] == name
            )
    return {"parts": parts, "vocabulary": read_json(VOCABULARY / "manifest.json"), "dropped": dict(dropped)}
