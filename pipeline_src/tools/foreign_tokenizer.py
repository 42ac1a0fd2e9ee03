"""The tokenizer of a Hugging Face folder, byte-level BPE or unigram, with the ids that transformers 5 gives.

transformers takes ``tokenizer.json`` as it is for some classes, and builds the others (``tokenizer_classes.py``).
"""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import Tokenizer
from tokenizers.models import BPE

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import read_json
from pipeline_src.tokenizer.frame import read_frames
from pipeline_src.tokenizer.load import kind_of
from pipeline_src.tokenizer.save import save_built
from pipeline_src.tools.tokenizer_classes import AS, BUILDERS, ROLES, SENTENCEPIECE, USUAL, Source

AS_SAVED = (None, "PreTrainedTokenizer", "TokenizersBackend")  # classes that take tokenizer.json as it is
REMEDY = "give a folder whose tokenizer is a WordPiece, RoBERTa's, DeBERTa's or ALBERT's, or a whole tokenizer.json"


def read_foreign(folder: Path, model_type: str) -> Tokenizer | None:
    """The tokenizer of a folder whose vocabulary is no WordPiece; None where it is one, or where there is none.

    Raises:
        PipelineError: a file is damaged, or transformers would give other ids than can be given here.
    """
    source = _source(folder)
    beside = [name for name in (*SENTENCEPIECE, "merges.txt") if (folder / name).exists()]
    if source.model.get("type", "WordPiece") == "WordPiece" and not beside:
        return None
    named = source.settings.get("tokenizer_class") or USUAL.get(model_type)
    name = None if named is None else str(named).removesuffix("Fast")
    try:
        if name in AS_SAVED and source.saved:
            tokenizer = Tokenizer.from_str(json.dumps(source.saved))
        elif name in BUILDERS:
            build, usual = BUILDERS[name]
            roles = {role: source.spelt(role, usual[AS.get(role, role)]) for role in ROLES}
            tokenizer = build(source, roles)
        else:
            raise PipelineError("a tokenizer whose ids would not be the same here", name, where=folder, remedy=REMEDY)
    except PipelineError:
        raise
    except Exception as error:  # tokenizers raises no narrower class
        raise PipelineError("not a tokenizer", error, where=folder, remedy="fetch the model again") from None
    return _checked(tokenizer, source)


def save_foreign(folder: Path, tokenizer: Tokenizer) -> None:
    """Write the files in which transformers finds this tokenizer, with the same ids."""
    kind, frames = kind_of(tokenizer), read_frames(tokenizer)
    first, last = (str(tokenizer.id_to_token(frames.single.marks[place][0])) for place in (0, -1))
    names = {"pad_token": kind.pad, "unk_token": kind.unk, "cls_token": first, "sep_token": last}
    segments = ["token_type_ids"] if any(frames.pair.segments) else []
    inputs = ["input_ids", *segments, "attention_mask"]
    save_built(folder, tokenizer, {**names, "mask_token": kind.mask}, inputs)


def _checked(tokenizer: Tokenizer, source: Source) -> Tokenizer:
    kind, folder = kind_of(tokenizer), source.folder
    if isinstance(tokenizer.model, BPE) and "ByteLevel" not in str(json.loads(tokenizer.to_str())["pre_tokenizer"]):
        raise PipelineError("a BPE that is not of bytes", "pre_tokenizer", where=folder, remedy=REMEDY)
    for role, token in (("pad", kind.pad), ("unk", kind.unk), ("mask", kind.mask)):
        if tokenizer.token_to_id(token) is None:
            raise PipelineError("the vocabulary lacks a special token", token, where=folder, remedy=REMEDY)
        if source.spelt(role, token) != token:
            raise PipelineError(
                "a special token that is spelt in another way", source.spelt(role, token), where=folder, remedy=REMEDY
            )
    read_frames(tokenizer)
    return tokenizer


def _source(folder: Path) -> Source:
    settings, saved, special = (
        read_json(folder / name) if (folder / name).exists() else {}
        for name in ("tokenizer_config.json", "tokenizer.json", "special_tokens_map.json")
    )
    for name, found in (("tokenizer_config.json", settings), ("tokenizer.json", saved)):
        if not isinstance(found, dict):
            raise PipelineError("not a tokenizer's file", name, where=folder, remedy="fetch the model again")
    if "added_tokens_decoder" not in settings and isinstance(special, dict):
        settings = {**settings, **special}
    return Source(folder, settings, saved)
