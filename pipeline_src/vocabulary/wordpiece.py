"""BERT's tokenizer over a given vocabulary, and the files in which `tokenizers` and `transformers` look for it."""

from __future__ import annotations

from pathlib import Path

from tokenizers import AddedToken, Tokenizer
from tokenizers.decoders import WordPiece as WordPieceDecoder
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import TemplateProcessing

from pipeline_src.errors import PipelineError
from pipeline_src.files import atomic_file, write_json

PAD, UNK, CLS, SEP, MASK = SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
LONGEST_WORD = 100  # characters; longer words become [UNK], as in transformers (google-research/bert: 200)


def build_tokenizer(vocabulary: list[str], lowercase: bool) -> Tokenizer:
    """BERT's tokenizer; the id of a piece is its place in ``vocabulary``.

    A special token written in the text ("[SEP]") is split like any other text and never becomes a control token.
    """
    ids = {piece: number for number, piece in enumerate(vocabulary)}
    tokenizer = Tokenizer(WordPiece(ids, unk_token=UNK, max_input_chars_per_word=LONGEST_WORD))
    tokenizer.normalizer = BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = BertPreTokenizer()
    tokenizer.decoder = WordPieceDecoder(prefix="##")
    tokenizer.post_processor = TemplateProcessing(
        single=f"{CLS} $A {SEP}",
        pair=f"{CLS} $A {SEP} $B:1 {SEP}:1",
        special_tokens=[(CLS, ids[CLS]), (SEP, ids[SEP])],
    )
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL_TOKENS])
    tokenizer.encode_special_tokens = True
    return tokenizer


def save_tokenizer(folder: Path, vocabulary: list[str], lowercase: bool) -> None:
    """Write ``vocab.txt`` (google-research/bert), ``tokenizer.json`` (`tokenizers`) and ``tokenizer_config.json``."""
    with atomic_file(folder / "vocab.txt") as file:
        file.write("".join(f"{piece}\n" for piece in vocabulary))
    with atomic_file(folder / "tokenizer.json") as file:
        file.write(build_tokenizer(vocabulary, lowercase).to_str(pretty=True))
    names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), SPECIAL_TOKENS, strict=True))
    write_json(
        folder / "tokenizer_config.json",
        {"tokenizer_class": "BertTokenizer", "do_lower_case": lowercase, "model_max_length": 512, **names},
    )


def load_tokenizer(folder: str | Path) -> Tokenizer:
    """The tokenizer of a vocabulary or model folder.

    Raises:
        PipelineError: there is no ``tokenizer.json``, or it lacks a special token.
    """
    path = Path(folder) / "tokenizer.json"
    if not path.exists():
        raise PipelineError("no tokenizer here", path, remedy="run the stage `vocabulary`, or `dvc pull` its output")
    tokenizer = Tokenizer.from_file(str(path))
    for token in SPECIAL_TOKENS:
        if tokenizer.token_to_id(token) is None:
            raise PipelineError("the vocabulary lacks a special token", token, where=path, remedy="train it again")
    tokenizer.encode_special_tokens = True  # not kept by tokenizer.json
    return tokenizer
