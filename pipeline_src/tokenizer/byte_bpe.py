"""RoBERTa's kind of vocabulary: pieces of bytes, merged by byte pair encoding (Radford et al. 2019; Liu et al. 2019).

No text lacks a piece, since every byte is one. A text is read as if a space stood before it, so that a word has the
same ids at its start as inside it: sentences are encoded one by one here and then laid end to end.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tokenizers import AddedToken, Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.normalizers import NFC, NFD, Lowercase, Normalizer, Sequence, StripAccents
from tokenizers.pre_tokenizers import ByteLevel, Metaspace, PreTokenizer
from tokenizers.pre_tokenizers import Sequence as PreTokenizers
from tokenizers.processors import RobertaProcessing

from pipeline_src.tokenizer.kind import Kind
from pipeline_src.tokenizer.save import save_built

CLS, PAD, SEP, UNK, MASK = "<s>", "<pad>", "</s>", "<unk>", "<mask>"
FIRST = (CLS, PAD, SEP, UNK)  # ids 0 to 3 in RoBERTa's vocabulary; <mask> is its last entry
ROBERTA_TOKENS = {"cls": CLS, "pad": PAD, "sep": SEP, "unk": UNK, "mask": MASK}
DEBERTA_TOKENS = {"cls": "[CLS]", "pad": "[PAD]", "sep": "[SEP]", "unk": "[UNK]", "mask": "[MASK]"}  # ModernBERT's too
SPECIAL_TOKENS = (*ROBERTA_TOKENS.values(), *DEBERTA_TOKENS.values())
SPACE = "Ġ"  # how byte-level pieces write the space before a word
_DECODER = ByteLevelDecoder()


def _spelt(piece: str) -> str:
    return piece if piece in SPECIAL_TOKENS else str(_DECODER.decode([piece])).strip()


KIND = Kind(
    pad=PAD,
    unk=UNK,
    mask=MASK,
    continues_word=lambda piece: not piece.startswith(SPACE) and piece not in SPECIAL_TOKENS,
    spelt=_spelt,
)
DEBERTA = replace(KIND, pad=DEBERTA_TOKENS["pad"], unk=DEBERTA_TOKENS["unk"], mask=DEBERTA_TOKENS["mask"])


def normalizer(lowercase: bool) -> Normalizer:
    """What happens to a text first: lower case without accents, or one code point a letter where there is one."""
    return Sequence([NFD(), StripAccents(), Lowercase()]) if lowercase else NFC()


def pre_tokenizer() -> PreTokenizer:
    """Words as GPT-2 has them, each with the space before it; a text begins with one."""
    begins_with_space = Metaspace(replacement=" ", prepend_scheme="first", split=False)
    return PreTokenizers([begins_with_space, ByteLevel(add_prefix_space=False)])


def build_tokenizer(vocabulary: list[str], merges: list[tuple[str, str]], lowercase: bool) -> Tokenizer:
    """RoBERTa's tokenizer; the id of a piece is its place in ``vocabulary``, which holds the special tokens."""
    ids = {piece: number for number, piece in enumerate(vocabulary)}
    tokenizer = Tokenizer(BPE(ids, merges, unk_token=UNK))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer(lowercase), pre_tokenizer()
    tokenizer.decoder = ByteLevelDecoder()
    # the space before a mask belongs to the hidden word
    specials = [AddedToken(token, special=True, normalized=False, lstrip=token == MASK) for token in (*FIRST, MASK)]
    tokenizer.add_special_tokens(specials)
    tokenizer.post_processor = RobertaProcessing(
        (SEP, ids[SEP]), (CLS, ids[CLS]), trim_offsets=True, add_prefix_space=False
    )
    tokenizer.encode_special_tokens = True
    return tokenizer


def save_tokenizer(folder: Path, vocabulary: list[str], merges: list[tuple[str, str]], lowercase: bool) -> None:
    """Write ``tokenizer.json`` and ``tokenizer_config.json``, which `transformers` loads."""
    names = {"pad_token": PAD, "unk_token": UNK, "cls_token": CLS, "sep_token": SEP, "mask_token": MASK}
    # all of a pair is one segment: RoBERTa has no other
    save_built(folder, build_tokenizer(vocabulary, merges, lowercase), names, ["input_ids", "attention_mask"])
