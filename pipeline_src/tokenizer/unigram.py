"""ALBERT's kind of vocabulary: pieces with probabilities; a text is cut where their product is highest (Kudo 2018)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer
from tokenizers.decoders import Metaspace as MetaspaceDecoder
from tokenizers.models import Unigram
from tokenizers.normalizers import NFKC, NFKD, Lowercase, Normalizer, Replace, Sequence, Strip, StripAccents
from tokenizers.pre_tokenizers import Metaspace
from tokenizers.processors import TemplateProcessing

from pipeline_src.tokenizer.kind import Kind
from pipeline_src.tokenizer.save import save_built

PAD, UNK, CLS, SEP, MASK = SPECIAL_TOKENS = ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")  # ids 0 to 4 in ALBERT's
ALBERT_TOKENS = {"cls": CLS, "pad": PAD, "sep": SEP, "unk": UNK, "mask": MASK}
NEVER = -10_000.0  # a score below that of any spelling by letters
SPACE = "▁"  # opens a word
KIND = Kind(
    pad=PAD,
    unk=UNK,
    mask=MASK,
    continues_word=lambda piece: not piece.startswith(SPACE) and piece not in (*SPECIAL_TOKENS, "[PAD]", "[UNK]"),
    spelt=lambda piece: piece.removeprefix(SPACE),
)
DEBERTA = replace(KIND, pad="[PAD]", unk="[UNK]")  # as DeBERTa v3's vocabulary spells them


def normalizer(lowercase: bool) -> Normalizer:
    """What happens to a text first: compatible characters made one, as ALBERT has it, and every white space one space.

    A run of spaces is one, or `tokenizers` would write pieces that sentencepiece never learnt. A space before a text
    stays, since that may follow a mask.
    """
    letters = [NFKD(), StripAccents(), Lowercase()] if lowercase else [NFKC()]
    return Sequence([*letters, Replace(Regex(r"[\s\x00]+"), " "), Strip(left=False)])


def build_tokenizer(pieces: list[tuple[str, float]], lowercase: bool) -> Tokenizer:
    """ALBERT's tokenizer; the id of a piece is its place in ``pieces``, which begin with SPECIAL_TOKENS.

    `tokenizers` would take a special token written in the text for its piece, which sentencepiece does not.
    """
    pieces = [(piece, NEVER if piece in SPECIAL_TOKENS else score) for piece, score in pieces]
    ids = {piece: number for number, (piece, _) in enumerate(pieces)}
    tokenizer = Tokenizer(Unigram(pieces, unk_id=ids[UNK], byte_fallback=False))
    tokenizer.normalizer = normalizer(lowercase)
    tokenizer.pre_tokenizer = Metaspace(replacement=SPACE, prepend_scheme="first")
    tokenizer.decoder = MetaspaceDecoder(replacement=SPACE, prepend_scheme="first")
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True, normalized=False, lstrip=token == MASK) for token in SPECIAL_TOKENS]
    )
    tokenizer.post_processor = TemplateProcessing(
        single=f"{CLS} $A {SEP}",
        pair=f"{CLS} $A {SEP} $B:1 {SEP}:1",
        special_tokens=[(CLS, ids[CLS]), (SEP, ids[SEP])],
    )
    tokenizer.encode_special_tokens = True
    return tokenizer


def save_tokenizer(folder: Path, pieces: list[tuple[str, float]], lowercase: bool) -> None:
    """Write ``tokenizer.json`` and ``tokenizer_config.json``, which `transformers` loads."""
    names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), SPECIAL_TOKENS, strict=True))
    save_built(folder, build_tokenizer(pieces, lowercase), names, ["input_ids", "token_type_ids", "attention_mask"])
