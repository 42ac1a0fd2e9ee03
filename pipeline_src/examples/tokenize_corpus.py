"""Stage ``tokenize``: every document as sentences of token ids, validation documents apart."""

from __future__ import annotations

from array import array
from collections import Counter
from functools import lru_cache, partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import atomic_directory, hash_file, write_json
from pipeline_src.common.parallel import map_in_order
from pipeline_src.common.paths import TEXT, TOKENS, VOCABULARY
from pipeline_src.common.progress import Progress, log
from pipeline_src.corpus.documents import (
    ShardSlice,
    corpus_folders,
    corpus_label,
    read_manifest,
    read_slice,
    slice_shards,
)
from pipeline_src.corpus.sentences import split_sentences
from pipeline_src.corpus.validation_split import in_validation_split
from pipeline_src.params.corpus import CorpusParams
from pipeline_src.params.wikipedia import WikipediaParams
from pipeline_src.tokenizer.encode import Encoder
from pipeline_src.tokenizer.frame import read_frames
from pipeline_src.tokenizer.load import load_tokenizer
from pipeline_src.tokenizer.token_store import SPLITS, EncodedDocuments, TokenWriter


def run(*, seed: int, corpus: CorpusParams, wikipedia: WikipediaParams) -> None:
    """Read ``data/text`` and ``data/vocabulary``, write ``data/tokens``.

    Raises:
        PipelineError: a split ends up without a document.
    """
    tokenizer = load_tokenizer(VOCABULARY)  # what is wrong with it is said before any process starts
    frames = read_frames(tokenizer)
    folders = corpus_folders(TEXT, wikipedia.parts)
    slices = [slice_shards(text) for text in folders]
    parts: dict[str, dict[str, Counter[str]]] = {split: {} for split in SPLITS}
    dropped: Counter[str] = Counter()
    encode = partial(
        encode_slice, vocabulary=VOCABULARY.resolve(), sha256=hash_file(VOCABULARY / "tokenizer.json"),
        seed=seed, validation=corpus.validation,
    )  # fmt: skip
    encoded = map_in_order(encode, chain.from_iterable(slices))
    total = sum(part.bytes for of_folder in slices for part in of_folder)
    with atomic_directory(TOKENS) as folder, Progress("encoding", total, "B") as progress:
        writers = {split: TokenWriter(folder, split, tokenizer.get_vocab_size()) for split in SPLITS}
        for text, of_folder in zip(folders, slices, strict=True):
            before = {split: Counter(writer.counts) for split, writer in writers.items()}
            for part, (documents, lost) in zip(of_folder, encoded, strict=False):
                for split, of_split in documents.items():
                    writers[split].add(*of_split)
                dropped.update(lost)
                progress.advance(part.bytes)
            for split, writer in writers.items():
                counts = Counter(writer.counts)
                counts.subtract(before[split])
                parts[split][corpus_label(text, TEXT)] = counts
        splits = {split: writer.close() for split, writer in writers.items()}
        for split, counted in splits.items():
            if not counted["documents"]:
                raise PipelineError(
                    f"no document in split {split!r}", f"corpus.validation = {corpus.validation:g}", where=TEXT,
                    remedy="give more documents, or another corpus.validation or seed",
                )  # fmt: skip
        manifest = {
            "splits": splits,
            "marks": {"single": frames.single.size, "pair": frames.pair.size},  # of one example
            "parts": parts,
            "dropped": dict(dropped),
            "sources": _sources(folders),
        }
        write_json(folder / "manifest.json", manifest)
    for split, counted in splits.items():
        log.info("%s: %d documents, %d tokens", split, counted["documents"], counted["tokens"])
    for source, counts in parts["validation"].items():
        if not counts["documents"] and parts["train"][source]["documents"]:
            log.warning("%s: no document is kept for validation; a larger corpus.validation would keep some", source)


def _sources(folders: list[Path]) -> list[dict[str, str]]:
    """Whose text it is: every source of the folders once, for the card of a model that learns from it."""
    named = {source["name"]: source for folder in folders for source in read_manifest(folder).get("sources", [])}
    return list(named.values())


def encode_slice(
    part: ShardSlice, vocabulary: Path, sha256: str, seed: int, validation: float
) -> tuple[dict[str, EncodedDocuments], Counter[str]]:
    """The documents of one slice by split, and how many were dropped for which reason."""
    encoder = _encoder(vocabulary, sha256)
    collected = {split: _Collector(encoder.id_type) for split in SPLITS}
    dropped: Counter[str] = Counter()
    for document in read_slice(part):
        split = "validation" if in_validation_split(document.id, seed, validation) else "train"
        sentences = (sentence for paragraph in document.text.split("\n") for sentence in split_sentences(paragraph))
        encoded = [ids for sentence in sentences if (ids := encoder.encode_bytes(sentence))]
        if encoded:
            collected[split].add(encoded)
        else:
            dropped["document_without_tokens"] += 1
    return {split: documents.encoded() for split, documents in collected.items()}, dropped


@lru_cache(maxsize=1)  # one a process: its cache of chunks lasts from slice to slice
def _encoder(vocabulary: Path, sha256: str) -> Encoder:  # the hash tells a vocabulary from an older one in its place
    return Encoder(load_tokenizer(vocabulary))


class _Collector:
    """Gathers the encoded documents of a split."""

    def __init__(self, id_type: np.dtype[Any]) -> None:
        self._id_type = id_type
        self._ids: list[bytes] = []
        self._sentences, self._documents = array("q"), array("q")

    def add(self, sentences: list[bytes]) -> None:
        self._ids.append(b"".join(sentences))
        self._sentences.extend(len(ids) // self._id_type.itemsize for ids in sentences)
        self._documents.append(len(sentences))

    def encoded(self) -> EncodedDocuments:
        ids = np.frombuffer(b"".join(self._ids), self._id_type)
        return EncodedDocuments(ids, np.asarray(self._sentences), np.asarray(self._documents))
