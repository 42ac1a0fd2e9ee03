"""Stage ``train_tokenizer``: learn the WordPiece vocabulary from the training documents."""

from __future__ import annotations

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
from pipeline_src.tokenizer.encode import Encoder
from pipeline_src.tokenizer.load import load_tokenizer
from pipeline_src.tokenizer.wordpiece import UNK, save_tokenizer
from pipeline_src.tokenizer_training.counting import TOO_LONG, WordCounts, count_shards
from pipeline_src.tokenizer_training.learn import learn_vocabulary


def run(*, seed: int, corpus: CorpusParams, vocabulary: VocabularyParams, wikipedia: WikipediaParams) -> None:
    """Read ``data/text``, write ``data/vocabulary``.

    Raises:
        PipelineError: no training document holds a word, or ``vocabulary.entries`` has no room for the characters.
    """
    slices = [part for folder in corpus_folders(TEXT, wikipedia.parts) for part in slice_shards(folder)]
    with atomic_directory(VOCABULARY) as folder, TemporaryDirectory(dir=folder) as runs:
        words = WordCounts(Path(runs))
        dropped = count_shards(slices, words, vocabulary.lowercase, vocabulary.longest_word, seed, corpus.validation)
        if not words:
            raise PipelineError("no text to learn a vocabulary from", TEXT, remedy="see the drops in its manifest.json")
        pieces = learn_vocabulary(
            words, vocabulary.entries, vocabulary.alphabet, vocabulary.min_count, vocabulary.unused
        )
        if len(pieces) < vocabulary.entries:
            log.warning(
                "the text holds %d pieces only, fewer than vocabulary.entries %d", len(pieces), vocabulary.entries
            )
        save_tokenizer(folder, pieces, vocabulary.lowercase, vocabulary.longest_word)
        manifest = {"entries": len(pieces), **measure(folder, words, dropped[TOO_LONG])}
        write_json(folder / "manifest.json", manifest)
    log.info(
        "%d entries; %.3f %% of words covered, %.2f pieces a word",
        len(pieces),
        100 * manifest["coverage"],
        manifest["pieces_per_word"],
    )


def measure(folder: Path, words: WordCounts, too_long: int) -> dict[str, Any]:
    """How the tokenizer in ``folder`` writes the words: the share of them without [UNK], and pieces a word.

    Args:
        folder: as ``save_tokenizer`` writes it.
        words: counts of words that are not too long.
        too_long: words longer than the tokenizer takes, each of them one [UNK].
    """
    tokenizer = load_tokenizer(folder)
    encoder, unknown = Encoder(tokenizer), tokenizer.token_to_id(UNK)
    total = written = too_long
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
