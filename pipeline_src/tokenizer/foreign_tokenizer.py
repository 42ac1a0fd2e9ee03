"""Load a byte-level BPE or unigram tokenizer of a Hugging Face model, with the same ids as transformers 5.

If the model has a ``tokenizer.json``, it is used unchanged. Instead of it, the first releases of RoBERTa and DeBERTa
have ``vocab.json`` and ``merges.txt``, and those of DeBERTa-v2 and v3 have a SentencePiece model. From these files,
this module builds the same tokenizer as ``models/<name>/tokenization_<name>.py`` in transformers.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet
from sentencepiece import SentencePieceProcessor
from tokenizers import AddedToken, Regex, Tokenizer, normalizers, pre_tokenizers
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.decoders import Metaspace as MetaspaceDecoder
from tokenizers.models import BPE, Unigram
from tokenizers.processors import RobertaProcessing

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import read_json
from pipeline_src.tokenizer.byte_bpe import DEBERTA_TOKENS, ROBERTA_TOKENS
from pipeline_src.tokenizer.load import RARE, kind_of, tokenizer_errors
from pipeline_src.tokenizer.special_tokens import read_templates, save_fast_tokenizer, template_processing
from pipeline_src.tokenizer.unigram import pieces_of

# Field numbers and enum values in sentencepiece_model.proto. The protobuf module of sentencepiece is not used, since it
# needs the newest protobuf, which other dependencies of this project do not accept yet.
# Fields of ModelProto.
PIECES = 1
TRAINER = 2
# A field of SentencePiece, and a field of TrainerSpec.
KIND_OF_PIECE = 3
KIND_OF_MODEL = 3
# A model type, and three types of pieces.
UNIGRAM = 1
NORMAL = 1
CONTROL = 3
USER_DEFINED = 4

SENTENCEPIECE = "spm.model"
# Role of a special token -> role whose token is its default. The order is that in which transformers adds missing
# tokens.
ROLES = {"bos": "cls", "eos": "sep", "unk": "unk", "sep": "sep", "pad": "pad", "cls": "cls", "mask": "mask"}
FLAGS = ("lstrip", "rstrip", "single_word", "normalized")
HINT = "use a model with a tokenizer.json, or an original release of RoBERTa, DeBERTa, DeBERTa-v2 or DeBERTa-v3"
Settings = dict[str, Any]


def read_foreign(folder: Path, model_type: str) -> Tokenizer | None:
    """Return the tokenizer in a folder, or None if there is none or its vocabulary is WordPiece."""
    with tokenizer_errors(folder, "fetch the model again"):
        settings, saved = _read_files(folder)
        if saved and saved.get("model", {}).get("type", "WordPiece") != "WordPiece":
            tokenizer = Tokenizer.from_str(json.dumps(saved))
        elif (folder / SENTENCEPIECE).exists():
            tokenizer = _deberta_v2(folder / SENTENCEPIECE, settings)
        elif (folder / "merges.txt").exists():
            tokenizer = _byte_bpe(folder, settings, model_type)
        elif (folder / "spiece.model").exists():
            raise PipelineError("the SentencePiece model has no tokenizer.json", folder, hint=HINT)
        else:
            return None
        _check(tokenizer, settings, folder)
    return tokenizer


def _read_files(folder: Path) -> tuple[Settings, dict[str, Any]]:
    def read(name: str) -> Any:
        content = read_json(folder / name) if (folder / name).exists() else {}
        if not isinstance(content, dict):
            raise PipelineError(
                "the tokenizer file is not a JSON object", name, where=folder, hint="fetch the model again"
            )
        return content

    settings = read("tokenizer_config.json")
    if "added_tokens_decoder" not in settings:
        settings = {**settings, **read("special_tokens_map.json")}
    return settings, read("tokenizer.json")


def _byte_bpe(folder: Path, settings: Settings, model_type: str) -> Tokenizer:
    tokens = DEBERTA_TOKENS if model_type == "deberta" else ROBERTA_TOKENS
    vocabulary, merges = BPE.read_file(str(folder / "vocab.json"), str(folder / "merges.txt"))
    tokenizer = Tokenizer(BPE(vocabulary, merges, continuing_subword_prefix="", end_of_word_suffix=""))
    prefix_space = bool(settings.get("add_prefix_space", False))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix_space)
    tokenizer.decoder = ByteLevelDecoder()
    roles = _add_tokens(tokenizer, settings, tokens)
    cls, sep = roles["cls"], roles["sep"]
    if model_type == "deberta":
        pair = "{cls} $A {sep} {sep} $B {sep}"
        tokenizer.post_processor = template_processing(tokenizer, cls, sep, pair)
    else:
        trims = bool(settings.get("trim_offsets", True))
        ids = tokenizer.get_vocab()
        tokenizer.post_processor = RobertaProcessing((sep, ids[sep]), (cls, ids[cls]), trims, prefix_space)
    return tokenizer


def _deberta_v2(path: Path, settings: Settings) -> Tokenizer:
    # Like transformers, this ignores the normalization rules of the SentencePiece model.
    model, symbols = read_sentencepiece(path)
    pieces = pieces_of(model)
    unknown = (_token(settings, "unk", DEBERTA_TOKENS["unk"]), 0.0)
    unk_id = pieces.index(unknown) if unknown in pieces else model.unk_id()
    tokenizer = Tokenizer(Unigram(pieces, unk_id=unk_id))
    steps: list[Any] = []
    if settings.get("do_lower_case", False):
        steps.append(normalizers.Lowercase())
    steps.append(normalizers.Replace(Regex(r"\s{2,}|[\n\r\t]"), " "))
    steps.append(normalizers.NFC())
    steps.append(normalizers.Strip(left=False, right=True))
    tokenizer.normalizer = normalizers.Sequence(steps)

    scheme = "always" if settings.get("add_prefix_space", True) else "first"
    splits: list[Any] = [pre_tokenizers.Metaspace(replacement="▁", prepend_scheme=scheme)]
    if settings.get("split_by_punct"):
        splits.insert(0, pre_tokenizers.Punctuation("isolated"))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(splits)
    tokenizer.decoder = MetaspaceDecoder(replacement="▁", prepend_scheme=scheme)
    roles = _add_tokens(tokenizer, settings, DEBERTA_TOKENS, symbols)
    tokenizer.post_processor = template_processing(tokenizer, roles["cls"], roles["sep"])
    return tokenizer


def read_sentencepiece(path: Path) -> tuple[SentencePieceProcessor, list[AddedToken]]:
    # Return a unigram model, and its control and user-defined symbols, which are matched before other pieces.
    try:
        proto = path.read_bytes()
        kinds = []
        for piece in _fields(proto, PIECES):
            # The field is absent for a normal piece.
            kind = _fields(piece, KIND_OF_PIECE) or [NORMAL]
            kinds.append(kind[0])
        models = [kind for trainer in _fields(proto, TRAINER) for kind in _fields(trainer, KIND_OF_MODEL)]
        model = SentencePieceProcessor(model_proto=proto)
    except (DecodeError, RuntimeError) as error:
        raise PipelineError("invalid SentencePiece model", error, where=path, hint="fetch it again") from None
    if models not in ([], [UNIGRAM]):
        raise PipelineError("the SentencePiece model is not a unigram model", path.name, where=path.parent, hint=HINT)
    symbols = [
        AddedToken(model.id_to_piece(number), normalized=False, special=kind == CONTROL)
        for number, kind in enumerate(kinds)
        if kind in (CONTROL, USER_DEFINED)
    ]
    return model, symbols


def _fields(message: bytes, number: int) -> list[Any]:
    # Return all values of a field. Raises DecodeError if `message` is not a protobuf message.
    return [field.data for field in UnknownFieldSet(Empty.FromString(message)) if field.field_number == number]


def _token(settings: Settings, role: str, default: str) -> str:
    token = settings.get(f"{role}_token") or default
    return str(token["content"] if isinstance(token, dict) else token)


def _add_tokens(
    tokenizer: Tokenizer, settings: Settings, defaults: dict[str, str], symbols: list[AddedToken] | None = None
) -> dict[str, str]:
    # Add the special tokens in the order of transformers. Return role -> token.
    roles = {role: _token(settings, role, defaults[same]) for role, same in ROLES.items()}
    listed = settings.get("added_tokens_decoder") or {}
    tokens = [AddedToken(**listed[number]) for number in sorted(listed, key=int)]
    known = {token.content for token in tokens}
    for role, content in roles.items():
        if content in known:
            continue
        # In the settings, a token is a string or a dictionary with flags.
        options: dict[str, Any] = {"normalized": False}
        setting = settings.get(f"{role}_token")
        if isinstance(setting, dict):
            options |= {key: value for key, value in setting.items() if key in FLAGS}
        known.add(content)
        tokens.append(AddedToken(content, **options, special=True))
    tokens += [token for token in symbols or () if token.content not in known]
    for token in tokens:
        token.special = token.special or token.content in roles.values()
    tokenizer.add_tokens(tokens)
    return roles


def _check(tokenizer: Tokenizer, settings: Settings, folder: Path) -> None:
    kind = kind_of(tokenizer)
    pre_tokenizer = json.loads(tokenizer.to_str())["pre_tokenizer"]
    if isinstance(tokenizer.model, BPE) and "ByteLevel" not in str(pre_tokenizer):
        raise PipelineError("the BPE tokenizer is not byte-level", "pre_tokenizer", where=folder, hint=HINT)
    for role, token in (("pad", kind.pad), ("unk", kind.unk), ("mask", kind.mask)):
        if tokenizer.token_to_id(token) is None:
            raise PipelineError("the vocabulary lacks a special token", token, where=folder, hint=HINT)
        spelt = _token(settings, role, token)
        if spelt != token:
            raise PipelineError("unsupported spelling of a special token", spelt, where=folder, hint=HINT)
    # Both calls raise an error if special tokens are missing.
    read_templates(tokenizer)
    tokenizer.encode(RARE)


def save_foreign(folder: Path, tokenizer: Tokenizer) -> None:
    """Write a tokenizer to files from which transformers loads it, with the same ids."""
    kind = kind_of(tokenizer)
    templates = read_templates(tokenizer)
    special_ids = templates.single.special_ids
    names = {
        "pad_token": kind.pad,
        "unk_token": kind.unk,
        "cls_token": str(tokenizer.id_to_token(special_ids[0][0])),
        "sep_token": str(tokenizer.id_to_token(special_ids[-1][0])),
        "mask_token": kind.mask,
    }
    inputs = ["input_ids", "attention_mask"]
    if any(templates.pair.token_type_ids):
        inputs.insert(1, "token_type_ids")
    save_fast_tokenizer(folder, tokenizer, names, inputs)
