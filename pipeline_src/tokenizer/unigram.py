"""ALBERT's unigram vocabulary (Kudo 2018).

Every piece has a probability, and a text is split so that the product of probabilities is highest. sentencepiece learns
the vocabulary from word counts. The trainer of `tokenizers` is not used, since its result differs from run to run.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tokenizers import AddedToken, Regex, Tokenizer
from tokenizers.decoders import Metaspace as MetaspaceDecoder
from tokenizers.models import Unigram
from tokenizers.normalizers import NFKC, NFKD, Lowercase, Normalizer, Replace, Sequence, Strip, StripAccents
from tokenizers.pre_tokenizers import Metaspace

from pipeline_src.base.errors import PipelineError
from pipeline_src.study.data import VocabularyParams
from pipeline_src.tokenizer.special_tokens import Counted, Kind, save_fast_tokenizer, template_processing

if TYPE_CHECKING:
    import sentencepiece

# Ids 0 to 4 in ALBERT.
PAD, UNK, CLS, SEP, MASK = SPECIAL_TOKENS = ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")
ALBERT_TOKENS = {"cls": CLS, "pad": PAD, "sep": SEP, "unk": UNK, "mask": MASK}
# Score of special tokens, lower than the score of any spelling in letters.
NEVER = -10_000.0
# Fraction of the characters in the text that get a piece (google-research/albert, README.md).
COVERAGE = 0.99995
# A fixed number of threads, since it affects the rounding of sums and thus the result.
THREADS = 4
# The mark at the start of a word.
SPACE = "▁"
KIND = Kind(
    pad=PAD,
    unk=UNK,
    mask=MASK,
    continues_word=lambda piece: not piece.startswith(SPACE) and piece not in (*SPECIAL_TOKENS, "[PAD]", "[UNK]"),
    spelt=lambda piece: piece.removeprefix(SPACE),
)
# The spelling in the vocabulary of DeBERTa-v3.
DEBERTA = replace(KIND, pad="[PAD]", unk="[UNK]")


def normalizer(lowercase: bool) -> Normalizer:
    # Normalise as ALBERT does (NFKC or NFKD), and replace a run of white space by one space. For longer runs,
    # `tokenizers` would make pieces that sentencepiece never learnt. A space at the start of a text is kept, since the
    # text may follow a mask.
    letters = [NFKD(), StripAccents(), Lowercase()] if lowercase else [NFKC()]
    return Sequence([*letters, Replace(Regex(r"[\s\x00]+"), " "), Strip(left=False)])


def build_tokenizer(pieces: list[tuple[str, float]], lowercase: bool) -> Tokenizer:
    # The id of a piece is its position in `pieces`, which begin with SPECIAL_TOKENS. Special tokens get the score
    # NEVER, so that "[SEP]" written in a text is spelled in letters and does not get the id of the special token.
    pieces = [(piece, NEVER if piece in SPECIAL_TOKENS else score) for piece, score in pieces]
    tokenizer = Tokenizer(Unigram(pieces, unk_id=SPECIAL_TOKENS.index(UNK), byte_fallback=False))
    tokenizer.normalizer = normalizer(lowercase)
    tokenizer.pre_tokenizer = Metaspace(replacement=SPACE, prepend_scheme="first")
    tokenizer.decoder = MetaspaceDecoder(replacement=SPACE, prepend_scheme="first")
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True, normalized=False, lstrip=token == MASK) for token in SPECIAL_TOKENS]
    )
    tokenizer.post_processor = template_processing(tokenizer, CLS, SEP)
    tokenizer.encode_special_tokens = True
    return tokenizer


def save_tokenizer(folder: Path, pieces: list[tuple[str, float]], lowercase: bool) -> None:
    names = {f"{role}_token": token for role, token in ALBERT_TOKENS.items()}
    inputs = ["input_ids", "token_type_ids", "attention_mask"]
    save_fast_tokenizer(folder, build_tokenizer(pieces, lowercase), names, inputs)


def learn(folder: Path, words: Counted, texts: Iterable[str], params: VocabularyParams) -> int:
    pieces = pieces_of(learn_model(words, params))
    save_tokenizer(folder, pieces, params.lowercase)
    return len(pieces)


def pieces_of(model: sentencepiece.SentencePieceProcessor) -> list[tuple[str, float]]:
    return [(model.id_to_piece(number), model.get_score(number)) for number in range(model.get_piece_size())]


def learn_model(words: Counted, params: VocabularyParams) -> sentencepiece.SentencePieceProcessor:
    # Imported here, since the import takes 40 ms and only this stage needs it.
    import sentencepiece

    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=(f"{word}\t{count}" for word, count in words.items() if count >= params.min_frequency),
            input_format="tsv",
            model_writer=model,
            model_type="unigram",
            vocab_size=params.vocab_size,
            hard_vocab_limit=False,
            character_coverage=COVERAGE,
            # `tokenizers` has normalised the words.
            normalization_rule_name="identity",
            pad_id=0,
            pad_piece=PAD,
            unk_id=1,
            unk_piece=UNK,
            bos_id=-1,
            eos_id=-1,
            control_symbols=[CLS, SEP, MASK],
            # Needed to spell special tokens that are written in a text.
            required_chars=normalizer(params.lowercase).normalize_str("".join(SPECIAL_TOKENS)),
            num_threads=THREADS,
            # Maximum number of bytes in a line. Longer lines would be skipped.
            max_sentence_length=4 * params.max_word_length + 32,
            minloglevel=2,
        )
    except RuntimeError as error:
        if "sentences_.empty()" in str(error):
            raise PipelineError(
                "no word is frequent enough for a vocabulary",
                f"min_frequency = {params.min_frequency}",
                where="params.yaml, block vocabulary",
                hint="lower min_frequency, or add text",
            ) from None
        if "smaller than required_chars" not in str(error):
            raise
        raise PipelineError(
            "the vocabulary is too small",
            str(error).partition("required_chars. ")[2].partition(".")[0],
            where="params.yaml, block vocabulary",
            hint="raise vocab_size above the number of distinct characters in the text",
        ) from None
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
