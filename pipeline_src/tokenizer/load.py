"""Loading the tokenizer of a vocabulary or model folder, whichever kind of vocabulary it has."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tokenizers import Tokenizer

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.names import shown
from pipeline_src.tokenizer import byte_bpe, unigram, wordpiece
from pipeline_src.tokenizer.frame import read_frames
from pipeline_src.tokenizer.kind import Kind

# Name of a model in `tokenizers` -> what its vocabularies spell in a way of their own; the usual one first.
KINDS: dict[str, tuple[Kind, ...]] = {
    "WordPiece": (wordpiece.KIND,),
    "BPE": (byte_bpe.KIND, byte_bpe.DEBERTA),
    "Unigram": (unigram.KIND, unigram.DEBERTA),
}


def kind_of(tokenizer: Tokenizer) -> Kind:
    """The kind of a tokenizer's vocabulary.

    Raises:
        PipelineError: it is none of :data:`KINDS`.
    """
    name = type(tokenizer.model).__name__
    if name not in KINDS:
        raise PipelineError(
            "a kind of vocabulary that is not supported", name, where="tokenizer.json",
            remedy=f"use a tokenizer whose model is one of {', '.join(KINDS)}",
        )  # fmt: skip
    return next((kind for kind in KINDS[name] if kind.all_in(tokenizer)), KINDS[name][0])


def load_tokenizer(folder: str | Path) -> Tokenizer:
    """The tokenizer of a vocabulary or model folder.

    Raises:
        PipelineError: there is no ``tokenizer.json``, it cannot be read or is of an unknown kind, it lacks a special
            token or a mark, two entries have one id, or a ``vocab.txt`` beside it says otherwise.
    """
    path, listed = Path(folder) / "tokenizer.json", Path(folder) / "vocab.txt"
    remedy = "run the stage that makes this folder again, or `dvc pull` its output"
    if not path.exists():
        raise PipelineError("no tokenizer here", path, remedy=remedy)
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # tokenizers raises no narrower class
        raise PipelineError("not a tokenizer", error, where=path, remedy=remedy) from None
    vocabulary, kind = tokenizer.get_vocab(with_added_tokens=False), kind_of(tokenizer)
    for token in (kind.pad, kind.unk, kind.mask):
        if token not in (vocabulary if listed.exists() else tokenizer.get_vocab()):  # some stand beside it
            raise PipelineError("the vocabulary lacks a special token", token, where=path, remedy="train it again")
    tokenizer.encode_special_tokens = True  # not kept by tokenizer.json
    tokenizer.no_truncation()  # which some published files hold, and which would cut texts unseen
    tokenizer.no_padding()
    read_frames(tokenizer)  # what is wrong with its marks is said here
    entries = sorted(vocabulary, key=vocabulary.__getitem__)
    if len(set(vocabulary.values())) < len(entries):
        raise PipelineError("two entries of the vocabulary have one id", _twice(vocabulary), where=path, remedy=remedy)
    if listed.exists() and listed.read_bytes() != "".join(f"{entry}\n" for entry in entries).encode():
        raise PipelineError("not the vocabulary of tokenizer.json", listed, where=path, remedy=remedy)
    return tokenizer


def _twice(vocabulary: Mapping[str, int]) -> str:
    """Two entries of one id."""
    first: dict[int, str] = {}
    pair = next(
        (first[number], entry) for entry, number in vocabulary.items() if first.setdefault(number, entry) != entry
    )
    return " and ".join(map(shown, pair))


def check_entries(tokenizer: Tokenizer, most: int, where: object) -> None:
    """Hold a tokenizer's ids to what a model has rows for.

    Raises:
        PipelineError: there is an id from ``most`` on.
    """
    entry, largest = max(tokenizer.get_vocab().items(), key=lambda item: item[1])
    if largest >= most:
        raise PipelineError(
            "the tokenizer has more entries than the model", f"{shown(entry)} has id {largest:,}, of {most:,} ids",
            where=where, remedy="use the tokenizer that was saved with it",
        )  # fmt: skip
