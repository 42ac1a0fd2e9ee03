"""Stage ``train_tokenizer``: learn the vocabulary from the training documents."""

from __future__ import annotations

import heapq
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tokenizers.normalizers import Normalizer, Sequence

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import atomic_directory, write_json
from pipeline_src.base.parallel import map_in_order
from pipeline_src.base.paths import START_MODEL, TEXT, VOCABULARY
from pipeline_src.base.progress import Progress, log, track
from pipeline_src.study.data import CorpusParams, VocabularyParams
from pipeline_src.text.documents import ShardSlice, corpus_folders, in_validation_split, read_slice, slice_shards
from pipeline_src.tokenizer import byte_bpe, unigram, wordpiece
from pipeline_src.tokenizer.encode import Encoder, WordSplitter
from pipeline_src.tokenizer.extend import extend
from pipeline_src.tokenizer.load import kind_of, load_tokenizer
from pipeline_src.tokenizer.wordpiece import MAX_WORD_LENGTH
from pipeline_src.tokenizer.wordpiece_trainer import learn_vocabulary

# Maximum number of distinct words in memory, which take about 200 bytes each. More words are written to disk.
MAX_WORDS_IN_MEMORY = 4_000_000
TOO_LONG = "longer_than_longest_word"

# Function that counts the words of texts. It adds the number of dropped words to its argument `dropped`.
Count = Callable[..., Counter[str]]


def word_counter(params: VocabularyParams) -> Count:
    # Return the function that counts words for learning and measuring a vocabulary of this kind.
    lowercase = params.lowercase
    max_length = params.max_word_length
    if params.kind == "wordpiece":
        return partial(count_words, lowercase=lowercase, max_length=max_length)
    if params.kind == "byte_bpe":
        return partial(count_chunks, normalizer=byte_bpe.normalizer(lowercase), max_length=max_length)
    if params.kind == "unigram":
        return partial(count_chunks, normalizer=unigram.normalizer(lowercase), max_length=max_length)
    tokenizer = load_tokenizer(START_MODEL)
    if kind_of(tokenizer) is wordpiece.KIND:
        max_length = tokenizer.model.max_input_chars_per_word
        return partial(count_words, lowercase=tokenizer.normalizer.lowercase, max_length=max_length)
    return partial(count_chunks, normalizer=tokenizer.normalizer or Sequence([]), max_length=MAX_WORD_LENGTH)


def _learn_wordpiece(folder: Path, words: WordCounts, texts: Iterable[str], params: VocabularyParams) -> int:
    pieces = learn_vocabulary(words, params.vocab_size, params.limit_alphabet, params.min_frequency, params.unused)
    wordpiece.save_tokenizer(folder, pieces, params.lowercase, params.max_word_length)
    return len(pieces)


def _copy_given(folder: Path, words: WordCounts, texts: Iterable[str], params: VocabularyParams) -> int:
    tokenizer = load_tokenizer(START_MODEL)
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt"):
        if (START_MODEL / name).exists():
            shutil.copyfile(START_MODEL / name, folder / name)
    if params.num_added_tokens:
        return extend(folder, tokenizer, words, params.num_added_tokens)
    return tokenizer.get_vocab_size()


# vocabulary.kind -> function that learns a vocabulary, writes the tokenizer files, and returns the vocab_size.
LEARNERS: dict[str, Callable[[Path, WordCounts, Iterable[str], VocabularyParams], int]] = {
    "wordpiece": _learn_wordpiece,
    "byte_bpe": byte_bpe.learn,
    "unigram": unigram.learn,
    "given": _copy_given,
}


def run(*, seed: int, corpus: CorpusParams, vocabulary: VocabularyParams) -> None:
    """Read ``data/text`` and write ``data/vocabulary``."""
    slices = [part for folder in corpus_folders(TEXT, corpus.sources).values() for part in slice_shards(folder)]
    with atomic_directory(VOCABULARY) as folder, TemporaryDirectory(dir=folder) as runs:
        words = WordCounts(Path(runs))
        dropped = count_shards(slices, words, word_counter(vocabulary), seed, corpus.validation)
        if not words:
            raise PipelineError(
                "no text to learn a vocabulary from",
                TEXT,
                hint="see in the manifest.json of each source why its texts were dropped, and change its settings",
            )
        texts = (text for part in slices for text in training_texts(part, seed, corpus.validation))
        entries = LEARNERS[vocabulary.kind](folder, words, texts, vocabulary)
        if vocabulary.kind != "given" and entries < vocabulary.vocab_size:
            log.warning("only %d pieces in the text, fewer than vocab_size %d", entries, vocabulary.vocab_size)
        manifest = {"entries": entries, **measure(folder, words, dropped[TOO_LONG])}
        write_json(folder / "manifest.json", manifest)
    log.info(
        "%d entries; %.3f %% of words covered, %.2f pieces a word",
        entries,
        100 * manifest["coverage"],
        manifest["pieces_per_word"],
    )


def measure(folder: Path, words: WordCounts, too_long: int) -> dict[str, Any]:
    # Measure the fraction of words that the tokenizer encodes without [UNK], and the number of pieces per word.
    # `too_long` is the number of words that are longer than `max_word_length` and therefore not in `words`. In
    # WordPiece, each of them counts as one [UNK]. In other vocabularies, they do not count.
    tokenizer = load_tokenizer(folder)
    kind = kind_of(tokenizer)
    encoder = Encoder(tokenizer)
    unknown = tokenizer.token_to_id(kind.unk)
    total = too_long if kind is wordpiece.KIND else 0
    written = total
    known = 0
    # Number of distinct words, without those that are too long.
    distinct = 0
    for word, count in track(words.items(), "measuring the vocabulary", "word"):
        ids = encoder.encode(word)
        distinct += 1
        total += count
        written += count * len(ids)
        known += count * (unknown not in ids)
    return {
        "words": total,
        "distinct_words": distinct,
        "coverage": round(known / total, 6),
        "pieces_per_word": round(written / total, 4),
        "dropped": {TOO_LONG: too_long},
    }


def count_words(
    paragraphs: Iterable[str], lowercase: bool, max_length: int = MAX_WORD_LENGTH, dropped: Counter[str] | None = None
) -> Counter[str]:
    chunks = Counter(chain.from_iterable(paragraph.split(" ") for paragraph in paragraphs))
    return _count_parts(chunks, WordSplitter(lowercase).split, max_length, dropped)


def count_chunks(
    paragraphs: Iterable[str], normalizer: Normalizer, max_length: int, dropped: Counter[str] | None = None
) -> Counter[str]:
    chunks = Counter(chain.from_iterable(paragraph.split() for paragraph in paragraphs))
    return _count_parts(chunks, lambda chunk: normalizer.normalize_str(chunk).split(), max_length, dropped)


def _count_parts(
    chunks: Counter[str], split: Callable[[str], list[str]], max_length: int, dropped: Counter[str] | None
) -> Counter[str]:
    # Normalising and splitting only the distinct chunks saves time.
    parts: Counter[str] = Counter()
    for chunk, count in chunks.items():
        for part in split(chunk):
            if len(part) <= max_length:
                parts[part] += count
            elif dropped is not None:
                dropped[TOO_LONG] += count
    return parts


class WordCounts:
    # Counts of distinct words. If there are too many for memory, they are written to `folder`, which the caller
    # deletes.

    def __init__(self, folder: Path, max_in_memory: int = MAX_WORDS_IN_MEMORY) -> None:
        self._folder = folder
        self._max_in_memory = max_in_memory
        self._counts: Counter[str] = Counter()
        self._runs: list[Path] = []

    def add(self, counts: Mapping[str, int]) -> None:
        self._counts.update(counts)
        if len(self._counts) <= self._max_in_memory:
            return
        path = self._folder / f"{len(self._runs)}.tsv"
        with open(path, "w", encoding="utf-8", newline="\n") as file:
            for word, count in sorted(self._counts.items()):
                file.write(f"{word}\t{count}\n")
        self._runs.append(path)
        self._counts.clear()

    def __bool__(self) -> bool:
        return bool(self._counts or self._runs)

    def items(self) -> Iterator[tuple[str, int]]:
        # Yield words and counts, sorted by code points.
        if not self._runs:
            yield from sorted(self._counts.items())
            return
        entries = heapq.merge(sorted(self._counts.items()), *map(_read_run, self._runs))
        for word, group in groupby(entries, key=itemgetter(0)):
            yield word, sum(count for _, count in group)


def _read_run(path: Path) -> Iterator[tuple[str, int]]:
    with open(path, encoding="utf-8", newline="\n") as file:
        for line in file:
            # A word contains no white space, so the last tab ends it.
            word, _, count = line.rpartition("\t")
            yield word, int(count)


def count_shards(
    slices: list[ShardSlice], words: WordCounts, count: Count, seed: int, validation: float
) -> Counter[str]:
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
    return (
        document.text.replace("\n", " ")
        for document in read_slice(part)
        if not in_validation_split(document.id, seed, validation)
    )
