"""Load the tokenizer of a Hugging Face folder, byte-level BPE or unigram, with the ids that transformers 5 gives.

For some classes, transformers loads ``tokenizer.json`` unchanged. For other classes, it takes only the vocabulary from
the folder, and builds the rest of the tokenizer in ``models/<name>/tokenization_<name>.py``. So does this module.
DeBERTa-v2's class ignores the character map of the sentencepiece model.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
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
from pipeline_src.tokenizer.unigram import ALBERT_TOKENS

# Numbers of fields and kinds in sentencepiece_model.proto. sentencepiece's own module for this format needs the newest
# protobuf, which other libraries of this project do not accept yet.
# Fields of the model.
PIECES = 1
TRAINER = 2
NORMALIZER = 3
# Fields of a piece, of the trainer and of the normalizer.
KIND_OF_PIECE = 3
KIND_OF_MODEL = 3
CHARSMAP = 2
# Kinds of models, and of pieces.
UNIGRAM = 1
NORMAL = 1
CONTROL = 3
USER_DEFINED = 4


@dataclass(frozen=True)
class SentencepieceModel:
    """A unigram model.

    Attributes:
        pieces: (subword, score) pairs in the order of their ids.
        charsmap: the compiled map of characters; empty if the model has no map.
        added: subwords that are matched before all others: control symbols and user-defined symbols.
        unk: id of the unknown token.
    """

    pieces: list[tuple[str, float]]
    charsmap: bytes
    added: list[AddedToken]
    unk: int


def read_sentencepiece(path: Path) -> SentencepieceModel:
    """Read a ``.model`` file."""
    try:
        proto = path.read_bytes()
        kinds = []
        for piece in _fields(proto, PIECES):
            # It is left out for a normal piece.
            kind = _fields(piece, KIND_OF_PIECE) or [NORMAL]
            kinds.append(kind[0])
        models = [kind for trainer in _fields(proto, TRAINER) for kind in _fields(trainer, KIND_OF_MODEL)]
        charsmaps = [charsmap for step in _fields(proto, NORMALIZER) for charsmap in _fields(step, CHARSMAP)]
        model = SentencePieceProcessor(model_proto=proto)
    except (DecodeError, RuntimeError) as error:
        raise PipelineError("not a model of sentencepiece", error, where=path, hint="fetch it again") from None
    if models not in ([], [UNIGRAM]):
        raise PipelineError(
            "a model of sentencepiece that is not unigram",
            path.name,
            where=path.parent,
            hint="give a folder with a complete tokenizer.json",
        )
    pieces = [(model.id_to_piece(number), model.get_score(number)) for number in range(model.get_piece_size())]
    added = [
        AddedToken(piece, normalized=False, special=kind == CONTROL)
        for (piece, _), kind in zip(pieces, kinds, strict=True)
        if kind in (CONTROL, USER_DEFINED)
    ]
    return SentencepieceModel(pieces, charsmaps[0] if charsmaps else b"", added, model.unk_id())


def _fields(message: bytes, number: int) -> list[Any]:
    """Return the values of field ``number`` in order; raises DecodeError if ``message`` is no protobuf message."""
    return [field.data for field in UnknownFieldSet(Empty.FromString(message)) if field.field_number == number]


# The order in which transformers adds missing tokens.
ROLES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
# Role -> role whose token is its default.
SPELT_AS = {"bos": "cls", "eos": "sep"}
SENTENCEPIECE = ("spiece.model", "spm.model")
FLAGS = ("lstrip", "rstrip", "single_word", "normalized")
Roles = dict[str, str]


@dataclass(frozen=True)
class Source:
    """Contents of the tokenizer files in a folder.

    Attributes:
        settings: ``tokenizer_config.json``, merged with ``special_tokens_map.json`` if transformers reads that too.
        saved: ``tokenizer.json``; empty if the file does not exist.
    """

    folder: Path
    settings: dict[str, Any]
    saved: dict[str, Any]

    def spelt(self, role: str, default: str) -> str:
        """Return the special token for a role, such as ``mask``."""
        token = self.settings.get(f"{role}_token") or default
        return str(token["content"] if isinstance(token, dict) else token)

    @property
    def model(self) -> dict[str, Any]:
        return dict(self.saved.get("model") or {})

    @property
    def added(self) -> dict[int, AddedToken]:
        """Id -> token, for the tokens added to the vocabulary."""
        listed = self.settings.get("added_tokens_decoder")
        if listed:
            return {int(number): AddedToken(**flags) for number, flags in listed.items()}
        added = {}
        for token in self.saved.get("added_tokens") or ():
            flags = dict(token)
            added[flags.pop("id")] = AddedToken(**flags)
        return added


def _bpe(source: Source, roles: Roles) -> Tokenizer:
    if source.saved:
        vocabulary = source.model["vocab"]
        # "a b", or ["a", "b"] in newer files.
        merges = []
        for merge in source.model["merges"]:
            merges.append(tuple(merge.split(" ") if isinstance(merge, str) else merge))
    else:
        vocabulary, merges = BPE.read_file(str(source.folder / "vocab.json"), str(source.folder / "merges.txt"))
    model = BPE(vocabulary, merges, continuing_subword_prefix="", end_of_word_suffix="", fuse_unk=False)
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=_prefix_space(source, False))
    tokenizer.decoder = ByteLevelDecoder()
    _add_tokens(tokenizer, source, roles)
    return tokenizer


def _roberta(source: Source, roles: Roles) -> Tokenizer:
    tokenizer = _bpe(source, roles)
    ids = tokenizer.get_vocab()
    sep = (roles["sep"], ids[roles["sep"]])
    cls = (roles["cls"], ids[roles["cls"]])
    trims = bool(source.settings.get("trim_offsets", True))
    tokenizer.post_processor = RobertaProcessing(sep, cls, trims, _prefix_space(source, False))
    return tokenizer


def _deberta(source: Source, roles: Roles) -> Tokenizer:
    tokenizer = _bpe(source, roles)
    pair = "{cls} $A {sep} {sep} $B {sep}"
    tokenizer.post_processor = template_processing(tokenizer, roles["cls"], roles["sep"], pair)
    return tokenizer


def _albert(source: Source, roles: Roles) -> Tokenizer:
    pieces, charsmap, more = _pieces(source)
    tokenizer = Tokenizer(Unigram(pieces, unk_id=1, byte_fallback=False))
    steps: list[Any] = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
    if not source.settings.get("keep_accents", False):
        steps += [normalizers.NFKD(), normalizers.StripAccents()]
    if source.settings.get("do_lower_case", True):
        steps.append(normalizers.Lowercase())
    if charsmap:
        steps.append(normalizers.Precompiled(charsmap))
    tokenizer.normalizer = normalizers.Sequence(steps)
    scheme = "always" if _prefix_space(source, True) else "never"
    space = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme=scheme)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), space])
    tokenizer.decoder = MetaspaceDecoder(replacement="▁", prepend_scheme=scheme)
    _add_tokens(tokenizer, source, roles, more)
    if source.saved:
        tokenizer.post_processor = Tokenizer.from_str(json.dumps(source.saved)).post_processor
    else:
        tokenizer.post_processor = template_processing(tokenizer, roles["cls"], roles["sep"])
    return tokenizer


def _deberta_v2(source: Source, roles: Roles) -> Tokenizer:
    pieces, _, more = _pieces(source)
    unknown = (roles["unk"], 0.0)
    unk_id = more.unk if more else source.settings.get("unk_id", 1)
    if unknown in pieces:
        unk_id = pieces.index(unknown)
    tokenizer = Tokenizer(Unigram(pieces, unk_id=unk_id))

    steps: list[Any] = []
    if source.settings.get("do_lower_case", False):
        steps.append(normalizers.Lowercase())
    steps.append(normalizers.Replace(Regex(r"\s{2,}|[\n\r\t]"), " "))
    steps.append(normalizers.NFC())
    steps.append(normalizers.Strip(left=False, right=True))
    tokenizer.normalizer = normalizers.Sequence(steps)

    scheme = "always" if _prefix_space(source, True) else "first"
    splits: list[Any] = [pre_tokenizers.Metaspace(replacement="▁", prepend_scheme=scheme)]
    if source.settings.get("split_by_punct"):
        splits.insert(0, pre_tokenizers.Punctuation("isolated"))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(splits)
    tokenizer.decoder = MetaspaceDecoder(replacement="▁", prepend_scheme=scheme)
    _add_tokens(tokenizer, source, roles, more)
    tokenizer.post_processor = template_processing(tokenizer, roles["cls"], roles["sep"])
    return tokenizer


def _prefix_space(source: Source, default: bool) -> bool:
    return bool(source.settings.get("add_prefix_space", default))


def _pieces(source: Source) -> tuple[list[tuple[str, float]], bytes, SentencepieceModel | None]:
    """Return (subword, score) pairs, the compiled map of characters, and the sentencepiece model if it was read."""
    if source.saved:
        pieces = [(str(piece), float(score)) for piece, score in source.model["vocab"]]
        normalizer = source.saved.get("normalizer") or {}
        # A sequence of steps, or a single step.
        steps = normalizer.get("normalizers", [normalizer])
        charsmap = b""
        for step in reversed(steps):
            if step.get("precompiled_charsmap"):
                charsmap = base64.b64decode(step["precompiled_charsmap"])
        return pieces, charsmap, None
    path = next(source.folder / name for name in SENTENCEPIECE if (source.folder / name).exists())
    model = read_sentencepiece(path)
    return model.pieces, model.charsmap, model


def _add_tokens(tokenizer: Tokenizer, source: Source, roles: Roles, more: SentencepieceModel | None = None) -> None:
    """Add the special and added tokens that the vocabulary lacks, in transformers' order."""
    added = source.added
    flags = {token.content: token for token in added.values()}
    tokens = [added[number] for number in sorted(added)]
    for role in ROLES:
        content = roles[role]
        if content in flags:
            continue
        # In the settings, a token is its text, or its text with flags.
        options: dict[str, Any] = {"normalized": False}
        setting = source.settings.get(f"{role}_token")
        if isinstance(setting, dict):
            options |= {key: value for key, value in setting.items() if key in FLAGS}
        flags[content] = AddedToken(content, **options, special=True)
        tokens.append(flags[content])
    if more is not None:
        tokens += [token for token in more.added if token.content not in flags]
    for token in tokens:
        token.special = token.special or token.content in roles.values()
    tokenizer.add_tokens(tokens)


# model_type -> transformers' class; for other types, it uses tokenizer.json unchanged.
DEFAULT_CLASSES = {
    **dict.fromkeys(("bert", "electra", "distilbert"), "BertTokenizer"),
    "roberta": "RobertaTokenizer",
    "deberta": "DebertaTokenizer",
    "albert": "AlbertTokenizer",
    "deberta-v2": "DebertaV2Tokenizer",
}
# Class -> builder, default tokens.
BUILDERS: dict[str | None, tuple[Callable[[Source, Roles], Tokenizer], Roles]] = {
    "RobertaTokenizer": (_roberta, ROBERTA_TOKENS),
    "DebertaTokenizer": (_deberta, DEBERTA_TOKENS),
    "AlbertTokenizer": (_albert, ALBERT_TOKENS),
    "DebertaV2Tokenizer": (_deberta_v2, DEBERTA_TOKENS),
}
# Classes that use tokenizer.json unchanged.
AS_SAVED = (None, "PreTrainedTokenizer", "TokenizersBackend")
HINT = "give a folder whose tokenizer is a WordPiece, RoBERTa's, DeBERTa's or ALBERT's, or a complete tokenizer.json"


def read_foreign(folder: Path, model_type: str) -> Tokenizer | None:
    """Return a folder's tokenizer; None if its vocabulary is WordPiece, or if the folder has no tokenizer."""
    with tokenizer_errors(folder, "fetch the model again"):
        return _read(_source(folder), model_type)


def _read(source: Source, model_type: str) -> Tokenizer | None:
    folder = source.folder
    is_other = any((folder / name).exists() for name in (*SENTENCEPIECE, "merges.txt"))
    if source.model.get("type", "WordPiece") == "WordPiece" and not is_other:
        return None
    name = source.settings.get("tokenizer_class") or DEFAULT_CLASSES.get(model_type)
    name = None if name is None else str(name).removesuffix("Fast")
    if name in AS_SAVED and source.saved:
        tokenizer = Tokenizer.from_str(json.dumps(source.saved))
    elif name in BUILDERS:
        build, default = BUILDERS[name]
        roles = {role: source.spelt(role, default[SPELT_AS.get(role, role)]) for role in ROLES}
        tokenizer = build(source, roles)
    else:
        raise PipelineError("a tokenizer whose ids would not be the same here", name, where=folder, hint=HINT)
    _check(tokenizer, source)
    return tokenizer


def save_foreign(folder: Path, tokenizer: Tokenizer) -> None:
    """Write the files from which transformers loads this tokenizer, with the same ids."""
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


def _check(tokenizer: Tokenizer, source: Source) -> None:
    folder = source.folder
    kind = kind_of(tokenizer)
    pre_tokenizer = json.loads(tokenizer.to_str())["pre_tokenizer"]
    if isinstance(tokenizer.model, BPE) and "ByteLevel" not in str(pre_tokenizer):
        raise PipelineError("a BPE that is not of bytes", "pre_tokenizer", where=folder, hint=HINT)
    for role, token in (("pad", kind.pad), ("unk", kind.unk), ("mask", kind.mask)):
        if tokenizer.token_to_id(token) is None:
            raise PipelineError("the vocabulary lacks a special token", token, where=folder, hint=HINT)
        spelt = source.spelt(role, token)
        if spelt != token:
            raise PipelineError("a special token of another spelling", spelt, where=folder, hint=HINT)
    read_templates(tokenizer)
    tokenizer.encode(RARE)


def _source(folder: Path) -> Source:
    def read(name: str) -> Any:
        return read_json(folder / name) if (folder / name).exists() else {}

    settings = read("tokenizer_config.json")
    saved = read("tokenizer.json")
    special = read("special_tokens_map.json")
    for name, value in (("tokenizer_config.json", settings), ("tokenizer.json", saved)):
        if not isinstance(value, dict):
            raise PipelineError("not a tokenizer's file", name, where=folder, hint="fetch the model again")
    if "added_tokens_decoder" not in settings and isinstance(special, dict):
        settings = {**settings, **special}
    return Source(folder, settings, saved)
