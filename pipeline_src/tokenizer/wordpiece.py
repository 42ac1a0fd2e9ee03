"""Build BERT's WordPiece tokenizer, and write its files for `tokenizers` and `transformers`."""

from __future__ import annotations

from pathlib import Path

from tokenizers import AddedToken, Tokenizer
from tokenizers.decoders import WordPiece as WordPieceDecoder
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import atomic_file, write_json
from pipeline_src.tokenizer.special_tokens import Kind, template_processing

PAD, UNK, CLS, SEP, MASK = SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
# Prefix of a piece that continues a word.
INNER = "##"
KIND = Kind(PAD, UNK, MASK, lambda piece: piece.startswith(INNER), lambda piece: piece.removeprefix(INNER), True)
# Number of reserved entries before [UNK] in the released vocabularies.
UNUSED_FIRST = 99
# Words with more characters become [UNK]. The limit is that of transformers; in google-research/bert, it is 200.
MAX_WORD_LENGTH = 100


def reserved_tokens(unused: int) -> list[str]:
    # Return special and reserved tokens in the order of Google's released vocabularies.
    reserved = [f"[unused{number}]" for number in range(unused)]
    return [PAD, *reserved[:UNUSED_FIRST], UNK, CLS, SEP, MASK, *reserved[UNUSED_FIRST:]]


def build_tokenizer(vocabulary: list[str], lowercase: bool, max_word_length: int = MAX_WORD_LENGTH) -> Tokenizer:
    # The id of a piece is its position in `vocabulary`. A special or reserved token that is written in a text ("[SEP]")
    # is split like other text and does not get its own id.
    for token in SPECIAL_TOKENS:
        if token not in vocabulary:
            raise PipelineError("the vocabulary lacks a special token", token, hint="train it again")
    ids = {piece: number for number, piece in enumerate(vocabulary)}
    tokenizer = Tokenizer(WordPiece(ids, unk_token=UNK, max_input_chars_per_word=max_word_length))
    tokenizer.normalizer = BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = BertPreTokenizer()
    tokenizer.decoder = WordPieceDecoder(prefix=INNER)
    tokenizer.post_processor = template_processing(tokenizer, CLS, SEP)
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL_TOKENS])
    tokenizer.encode_special_tokens = True
    return tokenizer


def save_tokenizer(
    folder: Path, vocabulary: list[str], lowercase: bool, max_word_length: int = MAX_WORD_LENGTH
) -> None:
    """Write ``vocab.txt``, ``tokenizer.json`` and ``tokenizer_config.json``.

    `transformers` gives the same ids as this tokenizer, with one exception: it encodes "[SEP]" or "[MASK]" in a text as
    the special token. With ``split_special_tokens=True``, it splits them like other text, as this tokenizer does.
    """
    with atomic_file(folder / "vocab.txt") as file:
        file.write("".join(f"{piece}\n" for piece in vocabulary))
    with atomic_file(folder / "tokenizer.json") as file:
        file.write(build_tokenizer(vocabulary, lowercase, max_word_length).to_str(pretty=True))
    names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), SPECIAL_TOKENS, strict=True))
    # BertTokenizer has a fixed maximum word length.
    kind = "BertTokenizer" if max_word_length == MAX_WORD_LENGTH else "PreTrainedTokenizerFast"
    write_json(
        folder / "tokenizer_config.json",
        {"tokenizer_class": kind, "do_lower_case": lowercase, "model_max_length": 512, **names},
    )
