"""RoBERTa's byte-level BPE vocabulary (Radford et al. 2019; Liu et al. 2019).

Every byte is a piece, so no text is unknown. A space is prepended to every text, so that a word has the same ids at the
start of a text as elsewhere. `tokenizers` learns the same merges in every process and with any number of threads.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from tokenizers import AddedToken, Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.normalizers import NFC, NFD, Lowercase, Normalizer, Sequence, StripAccents
from tokenizers.pre_tokenizers import ByteLevel, Metaspace, PreTokenizer
from tokenizers.pre_tokenizers import Sequence as PreTokenizers
from tokenizers.processors import RobertaProcessing
from tokenizers.trainers import BpeTrainer

from pipeline_src.study.data import VocabularyParams
from pipeline_src.tokenizer.special_tokens import Counted, Kind, save_fast_tokenizer

CLS, PAD, SEP, UNK, MASK = "<s>", "<pad>", "</s>", "<unk>", "<mask>"
# Ids 0 to 3 in RoBERTa's vocabulary; <mask> is its last entry.
FIRST = (CLS, PAD, SEP, UNK)
ROBERTA_TOKENS = {"cls": CLS, "pad": PAD, "sep": SEP, "unk": UNK, "mask": MASK}
# ModernBERT uses the same tokens.
DEBERTA_TOKENS = {"cls": "[CLS]", "pad": "[PAD]", "sep": "[SEP]", "unk": "[UNK]", "mask": "[MASK]"}
SPECIAL_TOKENS = (*ROBERTA_TOKENS.values(), *DEBERTA_TOKENS.values())
# How byte-level pieces spell the space before a word.
SPACE = "Ġ"
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
    return Sequence([NFD(), StripAccents(), Lowercase()]) if lowercase else NFC()


def pre_tokenizer() -> PreTokenizer:
    # Split into words as GPT-2 does, each with the space before it. The first word gets a space too.
    begins_with_space = Metaspace(replacement=" ", prepend_scheme="first", split=False)
    return PreTokenizers([begins_with_space, ByteLevel(add_prefix_space=False)])


def build_tokenizer(vocabulary: list[str], merges: list[tuple[str, str]], lowercase: bool) -> Tokenizer:
    # The id of a piece is its position in `vocabulary`, which includes the special tokens.
    ids = {piece: number for number, piece in enumerate(vocabulary)}
    tokenizer = Tokenizer(BPE(ids, merges, unk_token=UNK))
    tokenizer.normalizer = normalizer(lowercase)
    tokenizer.pre_tokenizer = pre_tokenizer()
    tokenizer.decoder = ByteLevelDecoder()
    # lstrip: <mask> includes the space before it, which belongs to the hidden word.
    specials = [AddedToken(token, special=True, normalized=False, lstrip=token == MASK) for token in (*FIRST, MASK)]
    tokenizer.add_special_tokens(specials)
    tokenizer.post_processor = RobertaProcessing(
        (SEP, ids[SEP]), (CLS, ids[CLS]), trim_offsets=True, add_prefix_space=False
    )
    tokenizer.encode_special_tokens = True
    return tokenizer


def save_tokenizer(folder: Path, vocabulary: list[str], merges: list[tuple[str, str]], lowercase: bool) -> None:
    names = {"pad_token": PAD, "unk_token": UNK, "cls_token": CLS, "sep_token": SEP, "mask_token": MASK}
    # RoBERTa has no token_type_ids.
    save_fast_tokenizer(folder, build_tokenizer(vocabulary, merges, lowercase), names, ["input_ids", "attention_mask"])


def learn(folder: Path, words: Counted, texts: Iterable[str], params: VocabularyParams) -> int:
    # As in RoBERTa, the order of ids is: four special tokens, 256 bytes, the pieces in the order of learning, <mask>.
    model = Tokenizer(BPE())
    model.normalizer = normalizer(params.lowercase)
    model.pre_tokenizer = pre_tokenizer()
    trainer = BpeTrainer(
        vocab_size=params.vocab_size - 1,
        min_frequency=params.min_frequency,
        special_tokens=list(FIRST),
        initial_alphabet=sorted(ByteLevel.alphabet()),
        show_progress=False,
    )
    model.train_from_iterator(texts, trainer)
    learnt = model.get_vocab()
    vocabulary = [*sorted(learnt, key=learnt.__getitem__), MASK]
    merges = [tuple(merge) for merge in json.loads(model.to_str())["model"]["merges"]]
    save_tokenizer(folder, vocabulary, merges, params.lowercase)
    return len(vocabulary)
