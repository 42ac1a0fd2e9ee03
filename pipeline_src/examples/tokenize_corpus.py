"""Stage ``tokenize``: encode all documents as token ids, split into training and validation.

A document with the same tokens as a document of an earlier source is dropped, so that no source trains on another
source's validation documents. With ``corpus.near_duplicates``, near-copies of earlier documents of any source are
dropped too. With ``corpus.decontaminate: remove``, so are training documents that share 13 consecutive words with an
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
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import atomic_directory, hash_file, write_json
from pipeline_src.base.paths import EVALUATION_TEXTS, TEXT, TOKENS, VOCABULARY
from pipeline_src.base.progress import Progress, log
from pipeline_src.examples.contamination import EvaluationRuns, Words, end_to_end
from pipeline_src.examples.encode_document import document_ids, encode_document
from pipeline_src.examples.segmenter import continues_word, load_segmenter, segmenter_version
from pipeline_src.examples.token_store import SPLITS, EncodedDocuments, TokenWriter, id_type
from pipeline_src.study.data import CorpusParams
from pipeline_src.tasks.evaluation_texts import read_texts
from pipeline_src.text.beam import Workers
from pipeline_src.text.documents import (
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
from pipeline_src.text.dropped import DroppedSample, Record
from pipeline_src.text.near_duplicates import Shingles, find_copies, shingle_slice
from pipeline_src.tokenizer.encode import Encoder
from pipeline_src.tokenizer.load import load_tokenizer
from pipeline_src.tokenizer.special_tokens import read_templates

OTHER_COPY = "copy_of_another_source"
NEAR_COPY = "near_duplicate"
SHARED = "text_of_an_evaluation_set"
# Number of characters of an evaluation text that dropped.jsonl shows next to a document that shares a passage with it.
PASSAGE_LENGTH = 500
Item = TypeVar("Item")
Result = TypeVar("Result")


class Source(NamedTuple):
    name: str
    slices: list[ShardSlice]
    language: str
    segmenter: str | None


class EncodedSlice(NamedTuple):
    """The encoded documents of one slice of a source.

    Attributes:
        documents: the documents of each split.
        digests: for each split, a digest of every document's tokens, uint64 [documents].
        dropped: number of dropped documents by reason.
        records: a sample of the dropped documents.
    """

    documents: dict[str, EncodedDocuments]
    digests: dict[str, np.ndarray]
    dropped: Counter[str]
    records: list[Record]


def run(*, seed: int, corpus: CorpusParams, beam_args: Sequence[str] = ()) -> None:
    """Read ``data/text``, ``data/vocabulary`` and ``data/evaluation_texts``; write ``data/tokens``.

    Args:
        beam_args: see ``text.beam.Workers``.
    """
    # Step 1: read all inputs, so that errors are raised before any process starts.
    tokenizer = load_tokenizer(VOCABULARY)
    vocab_size = tokenizer.get_vocab_size()
    templates = read_templates(tokenizer)
    folders = corpus_folders(TEXT, corpus.sources)
    sources = [
        Source(name, slice_shards(text), language_of(text), corpus.source(name).segmenter)
        for name, text in folders.items()
    ]
    segmenters = sorted({source.segmenter for source in sources if source.segmenter})
    for name in segmenters:
        load_segmenter(name)
    evaluation = list(read_texts(EVALUATION_TEXTS)) if corpus.decontaminate == "remove" else []
    runs = None
    if evaluation:
        encoder = Encoder(tokenizer)
        # Each text is encoded as if it were a document of the corpus, whose languages split sentences differently.
        texts = []
        for language in sorted({source.language for source in sources}):
            texts += [document_ids(encoder, text, language) for _, text in evaluation]
        runs = EvaluationRuns.of(Words.of(tokenizer), *end_to_end(texts))
    elif corpus.decontaminate == "remove":
        log.warning("corpus.decontaminate: remove has no effect, since no evaluation texts were downloaded")

    with atomic_directory(TOKENS) as folder, Workers(beam_args, folder) as workers:
        # Step 2: find near-copies among the documents of all sources.
        slices = [part for source in sources for part in source.slices]
        sent = [replace(part, path=part.path.absolute()) for part in slices]
        near_copies = None
        if corpus.near_duplicates is not None:
            shingles = _map_slices("looking for near-copies", workers, shingle_slice, sent, sent)
            near_copies = _NearCopies(slices, shingles, corpus.near_duplicates, folder)

        # Step 3: encode all slices, and write them source by source.
        encode = partial(
            encode_slice,
            vocabulary=VOCABULARY.absolute(),
            sha256=hash_file(VOCABULARY / "tokenizer.json"),
            seed=seed,
            validation=corpus.validation,
            runs=runs,
            continues=Words.of(tokenizer).continues if segmenters else None,
        )
        source_of = [source for source in sources for _ in source.slices]
        items = (
            (sent[index], source.language, source.segmenter, near_copies.in_slice(index) if near_copies else {})
            for index, source in enumerate(source_of)
        )
        encoded = _map_slices("encoding", workers, encode, items, sent)
        output = _Splits(folder, vocab_size, segmented=bool(segmenters))
        for source in sources:
            output.add_source(source.name, islice(encoded, len(source.slices)))

        # Step 4: reject a split or source without documents, and write the manifest and the dropped documents.
        splits = {split: writer.close() for split, writer in output.writers.items()}
        few = few_validation_documents(output.parts)
        empty = [f"in split {split!r}" for split, about in splits.items() if not about["documents"]]
        empty += [f"of {name} for validation" for name, count in few.items() if not count]
        if empty:
            raise PipelineError(
                f"no document {empty[0]}",
                f"corpus.validation = {corpus.validation:g}",
                where=TEXT,
                hint="add text, or change corpus.validation or the seed",
            )
        manifest = {
            "splits": splits,
            # Number of special tokens in an example with one segment, and with two.
            "marks": {"single": templates.single.size, "pair": templates.pair.size},
            "parts": output.parts,
            "dropped": dict(sorted(output.dropped.items())),
            "sources": _origins(folders.values()),
        }
        if segmenters:
            manifest["segmenters"] = [segmenter_version(name) for name in segmenters]
        write_json(folder / "manifest.json", manifest)
        for record in output.sample.records():
            if near_copies and record["reason"] == NEAR_COPY:
                record["value"] = near_copies.document(record["value"]).id
            elif record["reason"] == SHARED:
                # The value counts the texts again for each language.
                task, passage = evaluation[record["value"] % len(evaluation)]
                record["value"] = f"{task}: {passage[:PASSAGE_LENGTH]}"
        output.sample.write(folder)

    for split, about in splits.items():
        log.info("%s: %d documents, %d tokens", split, about["documents"], about["tokens"])
    other_copies = output.dropped[OTHER_COPY]
    if other_copies:
        log.warning("dropped %d documents that are copies of documents of another source", other_copies)
    if output.dropped[NEAR_COPY]:
        log.info("dropped %d documents that are near-copies of earlier documents", output.dropped[NEAR_COPY])
    for name, count in few.items():
        log.warning(
            "%s: only %d documents for validation, so its validation loss is unreliable; add text, or raise "
            "corpus.validation",
            name,
            count,
        )


class _Splits:
    # Writes the token files of both splits, source by source. Drops copies of documents of earlier sources.

    def __init__(self, folder: Path, vocab_size: int, segmented: bool) -> None:
        self.writers = {split: TokenWriter(folder, split, vocab_size, segmented) for split in SPLITS}
        # split -> source -> counts
        self.parts: dict[str, dict[str, Counter[str]]] = {split: {} for split in SPLITS}
        # reason -> number of documents
        self.dropped: Counter[str] = Counter()
        self.sample = DroppedSample()
        # Sorted digests of the documents of earlier sources.
        self._earlier = np.empty(0, np.uint64)

    def add_source(self, source: str, slices: Iterable[EncodedSlice]) -> None:
        before = {split: Counter(writer.counts) for split, writer in self.writers.items()}
        digests = [self._earlier]
        for encoded in slices:
            for split, documents in encoded.documents.items():
                # np.isin would first remove duplicates with a slow hash table (numpy 2.4.6).
                slice_digests = encoded.digests[split]
                first = np.searchsorted(self._earlier, slice_digests)
                is_copy = first < np.searchsorted(self._earlier, slice_digests, side="right")
                if is_copy.any():
                    documents = documents.pick(~is_copy)
                    self.dropped[OTHER_COPY] += int(is_copy.sum())
                self.writers[split].add(*documents)
            digests += encoded.digests.values()
            self.dropped.update(encoded.dropped)
            self.sample.merge(encoded.records)
        self._earlier = np.sort(np.concatenate(digests))
        for split, writer in self.writers.items():
            counts = Counter(writer.counts)
            counts.subtract(before[split])
            self.parts[split][source] = counts


def _map_slices(
    what: str, workers: Workers, function: Callable[[Item], Result], items: Iterable[Item], slices: list[ShardSlice]
) -> Iterator[Result]:
    with Progress(what, sum(part.bytes for part in slices), "B") as progress:
        for part, result in zip(slices, workers.map(function, items, through_beam=False), strict=True):
            progress.advance(part.bytes)
            yield result


class _NearCopies:
    # The near-copies among all documents, which are numbered from the first slice to the last.

    def __init__(self, slices: list[ShardSlice], shingles: Iterable[Shingles], threshold: float, folder: Path) -> None:
        self._slices = slices
        # Number of documents before each slice.
        self._starts = [0]
        # For each document, the number of the document that it copies, or -1.
        self._copy_of = find_copies(self._counted(shingles), threshold, folder)

    def _counted(self, shingles: Iterable[Shingles]) -> Iterator[Shingles]:
        for of_slice in shingles:
            self._starts.append(self._starts[-1] + len(of_slice.counts))
            yield of_slice

    def in_slice(self, index: int) -> dict[int, int]:
        # Return the position in the slice of each near-copy -> number of the document that it copies.
        copy_of = self._copy_of[self._starts[index] : self._starts[index + 1]]
        return {position: int(copy_of[position]) for position in np.flatnonzero(copy_of >= 0).tolist()}

    def document(self, number: int) -> Document:
        index = bisect_right(self._starts, number) - 1
        documents = read_slice(self._slices[index])
        return next(islice(documents, number - self._starts[index], None))


def _origins(folders: Iterable[Path]) -> list[dict[str, str]]:
    # Collect the origins of the sources, which the model card names.
    by_name = {}
    for folder in folders:
        for origin in read_manifest(folder).get("sources", []):
            by_name[origin["name"]] = origin
    return list(by_name.values())


def encode_slice(
    slice_of_source: tuple[ShardSlice, str, str | None, Mapping[int, int]],
    vocabulary: Path,
    sha256: str,
    seed: int,
    validation: float,
    runs: EvaluationRuns | None,
    continues: np.ndarray | None,
) -> EncodedSlice:
    # `continues` tells which ids continue a word, bool [vocab_size]. It is None if no source of the corpus has a
    # segmenter.
    part, language, segmenter, near_copies = slice_of_source
    segment = load_segmenter(segmenter) if segmenter else None
    encoder = _encoder(vocabulary, sha256)
    sample = DroppedSample()
    collected = {split: _Collector(encoder.id_type) for split in SPLITS}
    dropped: Counter[str] = Counter()

    def drop(reason: str, document: Document, value: object = None) -> None:
        dropped[reason] += 1
        sample.add(reason, document, value)

    for position, document in enumerate(read_slice(part)):
        if position in near_copies:
            drop(NEAR_COPY, document, near_copies[position])
            continue
        sentences, encoded = encode_document(encoder, document.text, language)
        if not encoded:
            drop("document_without_tokens", document)
            continue
        split = "validation" if in_validation_split(document.id, seed, validation) else "train"
        if split == "train" and runs is not None:
            text_index = runs.shared_text(np.frombuffer(b"".join(encoded), encoder.id_type))
            if text_index is not None:
                drop(SHARED, document, text_index)
                continue
        collected[split].add(encoded)
        if segment is not None:
            for sentence in sentences:
                ends = encoder.token_ends(sentence)
                collected[split].continues.append(continues_word(sentence, segment, ends))

    documents = {}
    digests = {}
    for split, collector in collected.items():
        documents[split], digests[split] = collector.encoded()
        if continues is not None and segment is None:
            # For a source without a segmenter, the ids themselves tell which tokens continue a word.
            documents[split] = documents[split]._replace(continues=continues[documents[split].ids])
    return EncodedSlice(documents, digests, dropped, sample.records())


# Cached, so that a process keeps its encoder, with the encoder's own cache of chunks, for all slices. `sha256` is an
# argument only to be part of the cache key.
@lru_cache(maxsize=1)
def _encoder(vocabulary: Path, sha256: str) -> Encoder:
    tokenizer = load_tokenizer(vocabulary)
    return Encoder(tokenizer, id_type(tokenizer.get_vocab_size()).newbyteorder("="))


class _Collector:
    def __init__(self, id_type: np.dtype[Any]) -> None:
        self._id_type = id_type
        # The ids of each document, the number of tokens in each sentence, and the number of sentences in each document.
        self._ids: list[bytes] = []
        self._sentences = array("q")
        self._documents = array("q")
        # One array per sentence, if the source has a segmenter.
        self.continues: list[np.ndarray] = []

    def add(self, sentences: list[bytes]) -> None:
        self._ids.append(b"".join(sentences))
        self._sentences.extend(len(ids) // self._id_type.itemsize for ids in sentences)
        self._documents.append(len(sentences))

    def encoded(self) -> tuple[EncodedDocuments, np.ndarray]:
        # Return the documents, and a digest of the tokens of each document.
        ids = np.frombuffer(b"".join(self._ids), self._id_type)
        continues = np.concatenate(self.continues) if self.continues else None
        documents = EncodedDocuments(ids, np.asarray(self._sentences), np.asarray(self._documents), continues)
        digests = b"".join(blake2b(document, digest_size=8).digest() for document in self._ids)
        return documents, np.frombuffer(digests, np.uint64)
