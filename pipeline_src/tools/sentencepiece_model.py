"""What a model of sentencepiece says: its pieces, and how it changes characters before it looks for them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet
from sentencepiece import SentencePieceProcessor
from tokenizers import AddedToken

from pipeline_src.common.errors import PipelineError

# Numbers of fields and kinds in sentencepiece_model.proto. sentencepiece's own module for it asks for the newest
# protobuf, which other libraries of this project do not take yet.
PIECES, TRAINER, NORMALIZER = 1, 2, 3  # fields of the model
KIND_OF_PIECE, KIND_OF_MODEL, CHARSMAP = 3, 3, 2  # fields of these
UNIGRAM = 1
NORMAL, CONTROL, USER_DEFINED = 1, 3, 4


@dataclass(frozen=True)
class SentencepieceModel:
    """A unigram model.

    Attributes:
        pieces: with their scores, in the order of their ids.
        charsmap: the compiled map of characters; empty where there is none.
        added: pieces that are found before all others: control symbols, and those that its user defined.
        unk: the number of the unknown one.
    """

    pieces: list[tuple[str, float]]
    charsmap: bytes
    added: list[AddedToken]
    unk: int


def read_sentencepiece(path: Path) -> SentencepieceModel:
    """Read a ``.model`` file.

    Raises:
        PipelineError: it is none, or of another kind than unigram.
    """
    try:
        proto = path.read_bytes()
        kinds = [next(iter(_fields(piece, KIND_OF_PIECE)), NORMAL) for piece in _fields(proto, PIECES)]
        models = [kind for trainer in _fields(proto, TRAINER) for kind in _fields(trainer, KIND_OF_MODEL)]
        maps = [found for step in _fields(proto, NORMALIZER) for found in _fields(step, CHARSMAP)]
        model = SentencePieceProcessor(model_proto=proto)
    except (DecodeError, RuntimeError) as error:
        raise PipelineError("not a model of sentencepiece", error, where=path, remedy="fetch it again") from None
    if models not in ([], [UNIGRAM]):
        raise PipelineError(
            "a model of sentencepiece that is not unigram", path.name, where=path.parent,
            remedy="give a folder with a whole tokenizer.json",
        )  # fmt: skip
    pieces = [(model.id_to_piece(number), model.get_score(number)) for number in range(model.get_piece_size())]
    added = [
        AddedToken(piece, normalized=False, special=kind == CONTROL)
        for (piece, _), kind in zip(pieces, kinds, strict=True)
        if kind in (CONTROL, USER_DEFINED)
    ]
    return SentencepieceModel(pieces, next(iter(maps), b""), added, model.unk_id())


def _fields(message: bytes, number: int) -> list[Any]:
    """The values of one field of a protobuf message, in order.

    Raises:
        DecodeError: it is no such message.
    """
    return [field.data for field in UnknownFieldSet(Empty.FromString(message)) if field.field_number == number]
