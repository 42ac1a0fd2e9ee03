"""Stage ``train_tokenizer``: learn the vocabulary, of whichever kind, from the training documents."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import atomic_directory, write_json
from pipeline_src.common.paths import TEXT, VOCABULARY
from pipeline_src.common.progress import log, track
from pipeline_src.corpus.documents import corpus_folders, slice_shards
from pipeline_src.params.corpus import CorpusParams
from pipeline_src.params.vocabulary import VocabularyParams
from pipeline_src.params.wikipedia import WikipediaParams
from pipeline_src.tokenizer import byte_bpe, unigram, wordpiece
from pipeline_src.tokenizer.encode import Encoder
from pipeline_src.tokenizer.load import kind_of, load_tokenizer
from pipeline_src.tokenizer_training import byte_bpe as learn_byte_bpe
from pipeline_src.tokenizer_training import unigram as learn_unigram
from pipeline_src.tokenizer_training.counting import (
    TOO_LONG,
    Count,
    WordCounts,
    count_chunks,
    count_shards,
    count_words,
    training_texts,
)
from pipeline_src.tokenizer_training.learn import learn_vocabulary


@dataclass(frozen=True)
class Learner:
    """How a kind of vocabulary is learnt.

    Attributes:
        count: of texts, the words that it is learnt from, and measured on.
        learn: writes the tokenizer's files into a folder, of words and the texts they are from; returns its entries.
    """

    count: Callable[[VocabularyParams], Count]
    learn: Callable[[Path, WordCounts, Iterable[str], VocabularyParams], int]


def _learn_wordpiece(folder: Path, words: WordCounts, texts: Iterable[str], params: VocabularyParams) -> int:
    pieces = learn_vocabulary(words, params.entries, params.alphabet, params.min_count, params.unused)
    wordpiece.save_tokenizer(folder, pieces, params.lowercase, params.longest_word)
    return len(pieces)


LEARNERS = {  # vocabulary.kind -> how it is learnt
    "wordpiece": Learner(
        lambda params: partial(count_words, lowercase=params.lowercase, longest=params.longest_word),
        _learn_wordpiece,
    ),
    "byte_bpe": Learner(
        lambda params: partial(
            count_chunks, normalizer=byte_bpe.normalizer(params.lowercase), longest=params.longest_word
        ),
        learn_byte_bpe.learn,
    ),
    "unigram": Learner(
        lambda params: partial(
            count_chunks, normalizer=unigram.normalizer(params.lowercase), longest=params.longest_word
        ),
        learn_unigram.learn,
    ),
}


def run(*, seed: int, corpus: CorpusParams, vocabulary: VocabularyParams, wikipedia: WikipediaParams) -> None:
    """Read ``data/text``, write ``data/vocabulary``.

    Raises:
        PipelineError: no training document holds a word, or ``vocabulary.entries`` has no room for the characters.
    """
    slices = [part for folder in corpus_folders(TEXT, wikipedia.parts) for part in slice_shards(folder)]
    with atomic_directory(VOCABULARY) as folder, TemporaryDirectory(dir=folder) as runs:
        words = WordCounts(Path(runs))
        learner = LEARNERS[vocabulary.kind]
        dropped = count_shards(slices, words, learner.count(vocabulary), seed, corpus.validation)
        if not words:
            raise PipelineError("no text to learn a vocabulary from", TEXT, remedy="see the drops in its manifest.json")
        texts = chain.from_iterable(training_texts(part, seed, corpus.validation) for part in slices)
        entries = learner.learn(folder, words, texts, vocabulary)
        if entries < vocabulary.entries:
            log.warning("the text holds %d pieces only, fewer than vocabulary.entries %d", entries, vocabulary.entries)
        manifest = {"entries": entries, **measure(folder, words, dropped[TOO_LONG])}
        write_json(folder / "manifest.json", manifest)
    log.info(
        "%d entries; %.3f %% of words covered, %.2f pieces a word",
        entries,
        100 * manifest["coverage"],
        manifest["pieces_per_word"],
    )


def measure(folder: Path, words: WordCounts, too_long: int) -> dict[str, Any]:
    """How the tokenizer in ``folder`` writes the words: the share of them without [UNK], and pieces a word.

    Args:
        folder: as a learner writes it.
        words: counts of words that are not too long.
        too_long: words longer than ``longest_word``: of WordPiece each is one [UNK]; the other kinds write them in
            pieces, and they are not measured.
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
