"""Learning a unigram vocabulary (Kudo 2018) with sentencepiece, from counts of words.

`tokenizers` uses such vocabularies, but learns others in every process.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from pathlib import Path

import sentencepiece

from pipeline_src.common.errors import PipelineError
from pipeline_src.params.vocabulary import VocabularyParams
from pipeline_src.tokenizer.unigram import CLS, MASK, PAD, SEP, SPECIAL_TOKENS, UNK, normalizer, save_tokenizer
from pipeline_src.tokenizer_training.counting import WordCounts
from pipeline_src.tokenizer_training.learn import Counted

COVERAGE = 0.99995  # share of the text's characters that have a piece (google-research/albert, README.md)
THREADS = 4  # how sums are split among them decides their last bits, so it is the same on every machine


def learn(folder: Path, words: WordCounts, texts: Iterable[str], params: VocabularyParams) -> int:
    """Write the tokenizer's files into ``folder``; returns its entries, fewer than asked for if ``words`` have no more.

    Raises:
        PipelineError: the vocabulary has no room for the characters.
    """
    pieces = pieces_of(learn_model(words, params))
    save_tokenizer(folder, pieces, params.lowercase)
    return len(pieces)


def pieces_of(model: sentencepiece.SentencePieceProcessor) -> list[tuple[str, float]]:
    """Every piece with its score, a log probability, in the order of their ids."""
    return [(model.id_to_piece(number), model.get_score(number)) for number in range(model.get_piece_size())]


def learn_model(words: Counted, params: VocabularyParams) -> sentencepiece.SentencePieceProcessor:
    """sentencepiece's model of normalised words: counts of them say all that it asks of a text.

    Raises:
        PipelineError: the vocabulary has no room for the characters.
    """
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=_lines(words, params.min_count),
            input_format="tsv",
            model_writer=model,
            model_type="unigram",
            vocab_size=params.entries,
            hard_vocab_limit=False,
            character_coverage=COVERAGE,
            normalization_rule_name="identity",  # `tokenizers` has normalised the words
            pad_id=0, pad_piece=PAD, unk_id=1, unk_piece=UNK, bos_id=-1, eos_id=-1,
            control_symbols=[CLS, SEP, MASK],
            required_chars=normalizer(params.lowercase).normalize_str("".join(SPECIAL_TOKENS)),  # to spell them by
            num_threads=THREADS,
            max_sentence_length=4 * params.longest_word + 32,  # bytes of a line; longer ones would be skipped
            minloglevel=2,
        )  # fmt: skip
    except RuntimeError as error:
        if "smaller than required_chars" not in str(error):
            raise
        raise PipelineError(
            "the vocabulary is too small", str(error).partition("required_chars. ")[2].partition(".")[0],
            where="params.yaml, block vocabulary", remedy="set entries to more than there are characters in the text",
        ) from None  # fmt: skip
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def _lines(words: Counted, min_count: int) -> Iterator[str]:
    return (f"{word}\t{count}" for word, count in words.items() if count >= min_count)
