"""Stage ``train_tokenizer``: learn the vocabulary from the training documents."""

from __future__ import annotations

import heapq
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tokenizers.normalizers import Normalizer, Sequence

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import atomic_directory, write_json
from pipeline_src.common.parallel import map_in_order
from pipeline_src.common.paths import START_MODEL, TEXT, VOCABULARY
from pipeline_src.common.progress import Progress, log, track
from pipeline_src.config.data import CorpusParams, VocabularyParams
from pipeline_src.corpus.documents import ShardSlice, corpus_folders, in_validation_split, read_slice, slice_shards
from pipeline_src.tokenizer import byte_bpe, unigram, wordpiece
from pipeline_src.tokenizer.encode import Encoder, WordSplitter
from pipeline_src.tokenizer.extend import extend
from pipeline_src.tokenizer.load import kind_of, load_tokenizer
from pipeline_src.tokenizer.wordpiece import LONGEST_WORD
from pipeline_src.tokenizer.wordpiece_trainer import learn_vocabulary

MOST_WORDS = 4_000_000  # held in memory, at some 200 bytes each; more go to disk
TOO_LONG = "longer_than_longest_word"

Count = Callable[..., Counter[str]]  # counts the words of texts, and the drops in its argument `dropped`


@dataclass(frozen=True)
class Learner:
    """The training of a kind of vocabulary.

    Attributes:
        count: returns the counter of the words of texts that it is learnt from and measured on.
        learn: writes the tokenizer's files into a folder, from words and their texts; returns its vocab_size.
    """

    count: Callable[[VocabularyParams], Count]
    learn: Callable[[Path, WordCounts, Iterable[str], VocabularyParams], int]


def _learn_wordpiece(folder: Path, words: WordCounts, texts: Iterable[str], params: VocabularyParams) -> int:
    pieces = learn_vocabulary(words, params.vocab_size, params.limit_alphabet, params.min_frequency, params.unused)
    wordpiece.save_tokenizer(folder, pieces, params.lowercase, params.max_word_length)
    return len(pieces)


def _count_given(params: VocabularyParams) -> Count:
    """Count the words of the start model's vocabulary."""
    tokenizer = load_tokenizer(START_MODEL)
    if kind_of(tokenizer) is wordpiece.KIND:
        longest = tokenizer.model.max_input_chars_per_word
        return partial(count_words, lowercase=tokenizer.normalizer.lowercase, longest=longest)
    return partial(count_chunks, normalizer=tokenizer.normalizer or Sequence([]), longest=LONGEST_WORD)


def _take_given(folder: Path, words: WordCounts, texts: Iterable[str], params: VocabularyParams) -> int:
    """Copy the start model's tokenizer; with ``num_added_tokens``, add entries to it."""
    tokenizer = load_tokenizer(START_MODEL)
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt"):
        if (START_MODEL / name).exists():
            shutil.copyfile(START_MODEL / name, folder / name)
    return (
        extend(folder, tokenizer, words, params.num_added_tokens)
        if params.num_added_tokens
        else tokenizer.get_vocab_size()
    )


LEARNERS = {  # vocabulary.kind -> how it is learnt
    "wordpiece": Learner(
        lambda params: partial(count_words, lowercase=params.lowercase, longest=params.max_word_length),
        _learn_wordpiece,
    ),
    "byte_bpe": Learner(
        lambda params: partial(
            count_chunks, normalizer=byte_bpe.normalizer(params.lowercase), longest=params.max_word_length
        ),
        byte_bpe.learn,
    ),
    "unigram": Learner(
        lambda params: partial(
            count_chunks, normalizer=unigram.normalizer(params.lowercase), longest=params.max_word_length
        ),
        unigram.learn,
    ),
    "given": Learner(_count_given, _take_given),
}


def run(*, seed: int, corpus: CorpusParams, vocabulary: VocabularyParams) -> None:
    """Read ``data/text``, write ``data/vocabulary``."""
    slices = [part for folder in corpus_folders(TEXT, corpus.sources).values() for part in slice_shards(folder)]
    with atomic_directory(VOCABULARY) as folder, TemporaryDirectory(dir=folder) as runs:
        words = WordCounts(Path(runs))
        learner = LEARNERS[vocabulary.kind]
        dropped = count_shards(slices, words, learner.count(vocabulary), seed, corpus.validation)
        if not words:
            raise PipelineError("no text to learn a vocabulary from", TEXT, hint="see the drops in its manifest.json")
        texts = chain.from_iterable(training_texts(part, seed, corpus.validation) for part in slices)
        entries = learner.learn(folder, words, texts, vocabulary)
        if vocabulary.kind != "given" and entries < vocabulary.vocab_size:
            log.warning(
                "the text gives only %d pieces, fewer than vocabulary.vocab_size %d", entries, vocabulary.vocab_size
            )
        manifest = {"entries": entries, **measure(folder, words, dropped[TOO_LONG])}
        write_json(folder / "manifest.json", manifest)
    log.info(
        "%d entries; %.3f %% of words covered, %.2f pieces a word",
        entries,
        100 * manifest["coverage"],
        manifest["pieces_per_word"],
    )


def measure(folder: Path, words: WordCounts, too_long: int) -> dict[str, Any]:
    """Return the fraction of words that the tokenizer encodes without [UNK], and its pieces per word.

    Args:
        words: counts of words that are not too long.
        too_long: number of words longer than ``max_word_length``: each is one [UNK] in WordPiece; the other kinds
            write them in pieces, and they are not measured.
    """
    tokenizer = load_tokenizer(folder)
    kind = kind_of(tokenizer)
    encoder, unknown = Encoder(tokenizer), tokenizer.token_to_id(kind.unk)
    total = written = too_long if kind is wordpiece.KIND else 0
    distinct = known = 0
    for word, count in track(words.items(), "measuring the vocabulary", "word"):
        ids = encoder.encode(word)
        distinct += 1
        total += count
        written += count * len(ids)
        known += count * (unknown not in ids)
    return {
        "words": total,
        "distinct_words": distinct,  # of those that are not too long
        "coverage": round(known / total, 6),
        "pieces_per_word": round(written / total, 4),
        "dropped": {TOO_LONG: too_long},
    }


def count_words(
    paragraphs: Iterable[str], lowercase: bool, longest: int = LONGEST_WORD, dropped: Counter[str] | None = None
) -> Counter[str]:
    """Count the words of BERT's tokenizer, those of more than ``longest`` characters only in ``dropped``.

    Chunks between spaces are counted first, which is fast, and only distinct ones are normalised and split.
    """
    chunks: Counter[str] = Counter()
    for paragraph in paragraphs:
        chunks.update(paragraph.split(" "))
    split = WordSplitter(lowercase).split
    words: Counter[str] = Counter()
    for chunk, count in chunks.items():
        for word in split(chunk):
            if len(word) <= longest:
                words[word] += count
            elif dropped is not None:
                dropped[TOO_LONG] += count
    return words


def count_chunks(
    paragraphs: Iterable[str], normalizer: Normalizer, longest: int, dropped: Counter[str] | None = None
) -> Counter[str]:
    """Count the chunks between spaces of normalised text, those of more than ``longest`` only in ``dropped``."""
    raw: Counter[str] = Counter()
    for paragraph in paragraphs:
        raw.update(paragraph.split())
    chunks: Counter[str] = Counter()
    for text, count in raw.items():
        for chunk in normalizer.normalize_str(text).split():
            if len(chunk) <= longest:
                chunks[chunk] += count
            elif dropped is not None:
                dropped[TOO_LONG] += count
    return chunks


class WordCounts:
    """Sums of counts; when there are many words, a part is kept on disk in sorted runs.

    Args:
        folder: folder of the runs; the caller deletes it.
        most: most distinct words in memory between two additions.
    """

    def __init__(self, folder: Path, most: int = MOST_WORDS) -> None:
        self._folder, self._most = folder, most
        self._counts: Counter[str] = Counter()
        self._runs: list[Path] = []

    def add(self, counts: Mapping[str, int]) -> None:
        self._counts.update(counts)
        if len(self._counts) > self._most:
            path = self._folder / f"{len(self._runs)}.tsv"
            with open(path, "w", encoding="utf-8", newline="\n") as file:
                file.writelines(f"{word}\t{count}\n" for word, count in sorted(self._counts.items()))
            self._runs.append(path)
            self._counts.clear()

    def __bool__(self) -> bool:
        return bool(self._counts or self._runs)

    def items(self) -> Iterator[tuple[str, int]]:
        """Yield every word once with its count, in the order of code points."""
        if not self._runs:
            yield from sorted(self._counts.items())
            return
        entries = heapq.merge(sorted(self._counts.items()), *map(_read_run, self._runs))
        for word, same in groupby(entries, key=itemgetter(0)):
            yield word, sum(count for _, count in same)


def _read_run(path: Path) -> Iterator[tuple[str, int]]:
    with open(path, encoding="utf-8", newline="\n") as file:
        for line in file:
            word, _, count = line.rpartition("\t")  # a word holds no white space
            yield word, int(count)


def count_shards(
    slices: list[ShardSlice], words: WordCounts, count: Count, seed: int, validation: float
) -> Counter[str]:
    """Add the words of all training documents to ``words``; return the number of drops by reason."""
    dropped: Counter[str] = Counter()
    count_slice = partial(_count_slice, count=count, seed=seed, validation=validation)
    with Progress("counting words", sum(part.bytes for part in slices), "B") as progress:
        for part, (counts, lost) in zip(slices, map_in_order(count_slice, slices), strict=True):
            words.add(counts)
            dropped.update(lost)
            progress.advance(part.bytes)
    return dropped


def _count_slice(part: ShardSlice, count: Count, seed: int, validation: float) -> tuple[Counter[str], Counter[str]]:
    dropped: Counter[str] = Counter()
    return count(training_texts(part, seed, validation), dropped=dropped), dropped


def training_texts(part: ShardSlice, seed: int, validation: float) -> Iterator[str]:
    """Return the texts of a slice's training documents, each in one line."""
    return (
        document.text.replace("\n", " ")
        for document in read_slice(part)
        if not in_validation_split(document.id, seed, validation)
    )
