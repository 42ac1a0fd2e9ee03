"""Stage ``tokenize``: encode every document as sentences of token ids, in a training and a validation split.

A document with the same tokens as a document of an earlier source is left out and counted, so that no source trains on
another source's validation documents. With ``corpus.near_duplicates``, near-copies of earlier documents, also of the
same source, are dropped; with ``corpus.decontaminate: remove``, training documents that share a passage with an
evaluation set.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from hashlib import blake2b
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from pipeline_src.common.addresses import Location, input_folder
from pipeline_src.common.beam import Workers
from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import atomic_directory, hash_file, write_json
from pipeline_src.common.paths import EVALUATION_TEXTS, TEXT, TOKENS, VOCABULARY
from pipeline_src.common.progress import Progress, log
from pipeline_src.config.data import CorpusParams
from pipeline_src.corpus.contamination import EvaluationRuns, Words, end_to_end, read_texts
from pipeline_src.corpus.documents import (
    Document,
    ShardSlice,
    corpus_folders,
    few_validation_documents,
    in_validation_split,
    language_of,
    read_manifest,
    read_slice,
    slice_shards,
)
from pipeline_src.corpus.dropped import DroppedSample, Record
from pipeline_src.corpus.near_duplicates import Shingles, find_copies, shingle_slice
from pipeline_src.corpus.sentences import split_sentences
from pipeline_src.examples.segmenter import continues_word, load_segmenter, segmenter_version
from pipeline_src.examples.token_store import SPLITS, EncodedDocuments, TokenWriter, id_type
from pipeline_src.tokenizer.encode import Encoder
from pipeline_src.tokenizer.load import load_tokenizer
from pipeline_src.tokenizer.special_tokens import read_templates

OTHER_COPY = "copy_of_another_source"
NEAR_COPY = "near_duplicate"
SHARED = "text_of_an_evaluation_set"
Item = TypeVar("Item")
Result = TypeVar("Result")
PASSAGE_LENGTH = 500  # characters of an evaluation text, shown next to a document that shares a part of it


def run(*, seed: int, corpus: CorpusParams, beam_args: Sequence[str] = ()) -> None:
    """Read ``data/text``, ``data/vocabulary`` and ``data/evaluation_texts``, write ``data/tokens``.

    Args:
        beam_args: see ``common.beam.Workers``.
    """
    tokenizer = load_tokenizer(VOCABULARY)  # so that errors are raised before any process starts
    templates = read_templates(tokenizer)
    folders = corpus_folders(TEXT, corpus.sources)
    slices = {source: slice_shards(text) for source, text in folders.items()}
    languages = {source: language_of(text) for source, text in folders.items()}
    segmenters = {source: corpus.source(source).segmenter for source in folders}
    used = sorted({name for name in segmenters.values() if name})
    for name in used:
        load_segmenter(name)  # so that errors are raised before any process starts
    parts: dict[str, dict[str, Counter[str]]] = {split: {} for split in SPLITS}
    dropped: Counter[str] = Counter()
    sample = DroppedSample()
    evaluation = list(read_texts(EVALUATION_TEXTS)) if corpus.decontaminate == "remove" else []
    if corpus.decontaminate == "remove" and not evaluation:
        log.warning("corpus.decontaminate: remove has nothing to remove: no task of the study is fetched")
    encoder = Encoder(tokenizer)
    runs = EvaluationRuns.of(Words.of(tokenizer), *end_to_end([encoder.encode(text) for _, text in evaluation]))
    with atomic_directory(TOKENS) as folder, Workers(beam_args, folder) as workers:
        encode = partial(
            encode_slice,
            vocabulary=workers.send(VOCABULARY),
            sha256=hash_file(VOCABULARY / "tokenizer.json"),
            seed=seed,
            validation=corpus.validation,
            runs=runs,
            segmented=bool(used),
        )
        work = [
            (replace(part, path=workers.send(part.path)), languages[source], segmenters[source])
            for source, of_source in slices.items()
            for part in of_source
        ]
        sent = [part for part, _, _ in work]
        shingles = _map_slices("looking for near-copies", workers, shingle_slice, sent, sent)
        near_copies = _NearCopies(list(chain.from_iterable(slices.values())), shingles, corpus.near_duplicates, folder)
        items = ((*item, near_copies.in_slice(index)) for index, item in enumerate(work))
        encoded = _map_slices("encoding", workers, encode, items, sent)
        writers = {split: TokenWriter(folder, split, tokenizer.get_vocab_size(), bool(used)) for split in SPLITS}
        earlier = np.empty(0, np.uint64)  # digests of the documents of earlier sources
        for source, of_source in slices.items():
            before = {split: Counter(writer.counts) for split, writer in writers.items()}
            seen = [earlier]
            for documents, digests, lost, examples in islice(encoded, len(of_source)):
                for split, encoded_documents in documents.items():
                    new = ~np.isin(digests[split], earlier)
                    writers[split].add(*(encoded_documents if new.all() else encoded_documents.pick(new)))
                    dropped.update({OTHER_COPY: int(len(new) - new.sum())} if not new.all() else {})
                seen += digests.values()
                dropped.update(lost)
                for example in examples:
                    if example["reason"] == SHARED:
                        task, passage = evaluation[example["value"]]
                        example["value"] = f"{task}: {passage[:PASSAGE_LENGTH]}"
                sample.merge(examples)
            earlier = np.unique(np.concatenate(seen))
            for split, writer in writers.items():
                counts = Counter(writer.counts)
                counts.subtract(before[split])
                parts[split][source] = counts
        splits = {split: writer.close() for split, writer in writers.items()}
        few = few_validation_documents(parts)
        empty = [f"in split {split!r}" for split, about in splits.items() if not about["documents"]]
        empty += [f"of {source} for validation" for source, count in few.items() if not count]
        if empty:
            raise PipelineError(
                f"no document {empty[0]}",
                f"corpus.validation = {corpus.validation:g}",
                where=TEXT,
                hint="give more text, or another corpus.validation or seed",
            )
        manifest = {
            "splits": splits,
            "marks": {"single": templates.single.size, "pair": templates.pair.size},  # special tokens in an example
            "parts": parts,
            "dropped": dict(sorted(dropped.items())),
            "sources": _origins(folders.values()),
            **({"segmenters": [*map(segmenter_version, used)]} if used else {}),
        }
        write_json(folder / "manifest.json", manifest)
        for record in sample.records():
            if record["reason"] == NEAR_COPY:
                record["value"] = near_copies.document(record["value"]).id
        sample.write(folder)
    for split, about in splits.items():
        log.info("%s: %d documents, %d tokens", split, about["documents"], about["tokens"])
    if dropped[OTHER_COPY]:
        log.warning("%d documents are copies of documents of another source, and left out", dropped[OTHER_COPY])
    if dropped[NEAR_COPY]:
        log.info("%d documents are near-copies of earlier documents, and left out", dropped[NEAR_COPY])
    for source, count in few.items():
        log.warning(
            "%s: only %d documents for validation, so that figures on them say little; give more text, or a larger "
            "corpus.validation",
            source,
            count,
        )


def _map_slices(
    what: str, workers: Workers, function: Callable[[Item], Result], items: Iterable[Item], slices: list[ShardSlice]
) -> Iterator[Result]:
    """Yield ``function(item)`` for the item of every slice, in order, and show the progress."""
    with Progress(what, sum(part.bytes for part in slices), "B") as progress:
        for part, result in zip(slices, workers.map(function, items, through_beam=False), strict=True):
            progress.advance(part.bytes)
            yield result


class _NearCopies:
    def __init__(
        self, slices: list[ShardSlice], shingles: Iterable[Shingles], threshold: float | None, folder: Path
    ) -> None:
        self._slices = slices
        self._starts = [0]  # number of documents before each slice
        self._copy_of = np.empty(0, np.int64)
        if threshold is not None:
            self._copy_of = find_copies(self._counted(shingles), threshold, folder)

    def _counted(self, shingles: Iterable[Shingles]) -> Iterator[Shingles]:
        for of_slice in shingles:
            self._starts.append(self._starts[-1] + len(of_slice.counts))
            yield of_slice

    def in_slice(self, index: int) -> dict[int, int]:
        """Return the position in a slice of each document to drop -> the number of the document that it copies."""
        if not len(self._copy_of):
            return {}
        copy_of = self._copy_of[self._starts[index] : self._starts[index + 1]]
        return {position: int(copy_of[position]) for position in np.flatnonzero(copy_of >= 0).tolist()}

    def document(self, number: int) -> Document:
        index = bisect_right(self._starts, number) - 1
        return next(islice(read_slice(self._slices[index]), number - self._starts[index], None))


def _origins(folders: Iterable[Path]) -> list[dict[str, str]]:
    """Return the distinct origins of the text, which the model card names."""
    named = {origin["name"]: origin for folder in folders for origin in read_manifest(folder).get("sources", [])}
    return list(named.values())


def encode_slice(
    slice_of_source: tuple[ShardSlice, str, str | None, Mapping[int, int]],
    vocabulary: Location,
    sha256: str,
    seed: int,
    validation: float,
    runs: EvaluationRuns,
    segmented: bool,
) -> tuple[dict[str, EncodedDocuments], dict[str, np.ndarray], Counter[str], list[Record]]:
    """Encode a slice: return documents and digests of their tokens by split, drops by reason, a few dropped documents.

    Args:
        slice_of_source: the slice, its source's language and ``segmenter``, and its near-copies, which are dropped.
        runs: runs of evaluation texts; a training document with such a run is dropped, with the text's index as value.
        segmented: whether to return ``continues``, since a source of the corpus has a segmenter.
    """
    part, language, segmenter, near_copies = slice_of_source
    segment = load_segmenter(segmenter) if segmenter else None
    encoder, words = _encoder(vocabulary, sha256)
    sample = DroppedSample()
    collected = {split: _Collector(encoder.id_type) for split in SPLITS}
    dropped: Counter[str] = Counter()
    for position, document in enumerate(read_slice(part)):
        if position in near_copies:
            dropped[NEAR_COPY] += 1
            sample.add(NEAR_COPY, document, near_copies[position])
            continue
        split = "validation" if in_validation_split(document.id, seed, validation) else "train"
        sentences = chain.from_iterable(split_sentences(line, language) for line in document.text.split("\n"))
        pairs = [(sentence, ids) for sentence in sentences if (ids := encoder.encode_bytes(sentence))]
        encoded = [ids for _, ids in pairs]
        shared = None
        if split == "train" and len(runs.hashes):
            shared = runs.shared_text(words, np.frombuffer(b"".join(encoded), encoder.id_type))
        if encoded and shared is None:
            collected[split].add(encoded)
            if segment is not None:
                ends = [(text, encoder.token_ends(text)) for text, _ in pairs]
                collected[split].continues += [continues_word(text, segment, positions) for text, positions in ends]
            continue
        reason = SHARED if encoded else "document_without_tokens"
        dropped[reason] += 1
        sample.add(reason, document, shared)
    splits = {split: documents.encoded() for split, documents in collected.items()}
    if segmented and segment is None:
        splits = {split: part._replace(continues=words.continues[part.ids]) for split, part in splits.items()}
    return splits, {split: documents.digests() for split, documents in collected.items()}, dropped, sample.records()


@lru_cache(maxsize=1)  # one encoder per process, whose cache of chunks is kept from slice to slice
def _encoder(vocabulary: Location, sha256: str) -> tuple[Encoder, Words]:  # the hash is part of the key
    with input_folder(vocabulary) as folder:
        tokenizer = load_tokenizer(folder)
    return Encoder(tokenizer, id_type(tokenizer.get_vocab_size()).newbyteorder("=")), Words.of(tokenizer)


class _Collector:
    def __init__(self, id_type: np.dtype[Any]) -> None:
        self._id_type = id_type
        self._ids: list[bytes] = []
        self._sentences, self._documents = array("q"), array("q")
        self.continues: list[np.ndarray] = []  # for each sentence, if the source has a segmenter

    def add(self, sentences: list[bytes]) -> None:
        self._ids.append(b"".join(sentences))
        self._sentences.extend(len(ids) // self._id_type.itemsize for ids in sentences)
        self._documents.append(len(sentences))

    def digests(self) -> np.ndarray:
        """Return a digest of each document's tokens, uint64 [documents]."""
        return np.frombuffer(b"".join(blake2b(ids, digest_size=8).digest() for ids in self._ids), np.uint64)

    def encoded(self) -> EncodedDocuments:
        ids = np.frombuffer(b"".join(self._ids), self._id_type)
        continues = np.concatenate(self.continues) if self.continues else None
        return EncodedDocuments(ids, np.asarray(self._sentences), np.asarray(self._documents), continues)
