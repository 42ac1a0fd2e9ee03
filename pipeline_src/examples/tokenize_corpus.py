"""Stage ``tokenize``: every document as sentences of token ids, validation documents apart."""

from __future__ import annotations

from array import array
from collections import Counter
from functools import lru_cache, partial
from itertools import chain
from pathlib import Path

import numpy as np

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import atomic_directory, hash_file, write_json
from pipeline_src.common.parallel import map_in_order
from pipeline_src.common.paths import TEXT, TOKENS, VOCABULARY
from pipeline_src.common.progress import Progress, log
from pipeline_src.corpus.documents import ShardSlice, corpus_folders, read_manifest, read_slice, slice_shards
from pipeline_src.corpus.sentences import split_sentences
from pipeline_src.corpus.validation_split import in_validation_split
from pipeline_src.params.corpus import CorpusParams
from pipeline_src.params.wikipedia import WikipediaParams
from pipeline_src.tokenizer.encode import Encoder
from pipeline_src.tokenizer.token_store import SPLITS, Block, TokenWriter
from pipeline_src.tokenizer.wordpiece import load_tokenizer


def run(*, seed: int, corpus: CorpusParams, wikipedia: WikipediaParams) -> None:
    """Read ``data/text`` and ``data/vocabulary``, write ``data/tokens``.

    Raises:
        PipelineError: a split ends up without a document.
    """
    load_tokenizer(VOCABULARY)  # what is wrong with it is said before any process starts
    folders = corpus_folders(TEXT, wikipedia.parts)
    slices = [slice_shards(text) for text in folders]
    parts: dict[str, dict[str, Counter[str]]] = {split: {} for split in SPLITS}
    dropped: Counter[str] = Counter()
    encode = partial(
        encode_slice, vocabulary=VOCABULARY.resolve(), sha256=hash_file(VOCABULARY / "tokenizer.json"),
        seed=seed, validation=corpus.validation,
    )  # fmt: skip
    encoded = map_in_order(encode, chain.from_iterable(slices))
    total = sum(piece.bytes for pieces in slices for piece in pieces)
    with atomic_directory(TOKENS) as folder, Progress("encoding", total, "B") as progress:
        writers = {split: TokenWriter(folder, split) for split in SPLITS}
        for text, pieces in zip(folders, slices, strict=True):
            before = {split: Counter(writer.counts) for split, writer in writers.items()}
            for piece, (blocks, lost) in zip(pieces, encoded, strict=False):
                for split, block in blocks.items():
                    writers[split].add(*block)
                dropped.update(lost)
                progress.advance(piece.bytes)
            for split, writer in writers.items():
                counts = Counter(writer.counts)
                counts.subtract(before[split])
                parts[split]["-".join(text.relative_to(TEXT).parts)] = counts
        splits = {split: writer.close() for split, writer in writers.items()}
        for split, counted in splits.items():
            if not counted["documents"]:
                raise PipelineError(
                    f"no document in split {split!r}", f"corpus.validation = {corpus.validation:g}", where=TEXT,
                    remedy="give more documents, or another corpus.validation or seed",
                )  # fmt: skip
        manifest = {"splits": splits, "parts": parts, "dropped": dict(dropped), "sources": _sources(folders)}
        write_json(folder / "manifest.json", manifest)
    for split, counted in splits.items():
        log.info("%s: %d documents, %d tokens", split, counted["documents"], counted["tokens"])


def _sources(folders: list[Path]) -> list[dict[str, str]]:
    """Whose text it is: every source of the folders once, for the card of a model that learns from it."""
    named = {source["name"]: source for folder in folders for source in read_manifest(folder).get("sources", [])}
    return list(named.values())


def encode_slice(
    piece: ShardSlice, vocabulary: Path, sha256: str, seed: int, validation: float
) -> tuple[dict[str, Block], Counter[str]]:
    """The documents of one slice as one block a split, and how many were dropped for which reason."""
    encoder = _encoder(vocabulary, sha256)
    collected = {split: _Collector() for split in SPLITS}
    dropped: Counter[str] = Counter()
    for document in read_slice(piece):
        split = "validation" if in_validation_split(document.id, seed, validation) else "train"
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

    def block(self) -> Block:
        ids = np.frombuffer(b"".join(self._ids), np.uint16)
        return ids, np.asarray(self._sentences), np.asarray(self._documents)
