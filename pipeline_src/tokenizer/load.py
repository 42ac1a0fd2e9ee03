"""Load the tokenizer of a vocabulary or model folder, of any kind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tokenizers import Tokenizer

from pipeline_src.common.errors import PipelineError, is_panic
from pipeline_src.common.names import shown
from pipeline_src.tokenizer import byte_bpe, unigram, wordpiece
from pipeline_src.tokenizer.special_tokens import Kind, read_templates

# Name of a model in `tokenizers` -> its kinds of vocabulary, the usual one first.
KINDS: dict[str, tuple[Kind, ...]] = {
    "WordPiece": (wordpiece.KIND,),
    "BPE": (byte_bpe.KIND, byte_bpe.DEBERTA),
    "Unigram": (unigram.KIND, unigram.DEBERTA),
}


RARE = "𓀀"  # of no vocabulary: fails to be encoded if the model's unknown token is missing


def kind_of(tokenizer: Tokenizer) -> Kind:
    """Return the kind of a tokenizer's vocabulary."""
    name = type(tokenizer.model).__name__
    if name not in KINDS:
        raise PipelineError(
            "a kind of vocabulary that is not supported", name, where="tokenizer.json",
            hint=f"use a tokenizer whose model is one of {', '.join(KINDS)}",
        )  # fmt: skip
    return next(
        (kind for kind in KINDS[name] if None not in map(tokenizer.token_to_id, (kind.pad, kind.unk, kind.mask))),
        KINDS[name][0],
    )


@contextmanager
def tokenizer_errors(where: object, hint: str) -> Iterator[None]:
    """Convert what ``tokenizers`` raises for a damaged file, which has no class of its own, to PipelineError."""
    try:
        yield
    except PipelineError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and not is_panic(error):
            raise
        raise PipelineError("not a tokenizer", error, where=where, hint=hint) from None


def load_tokenizer(folder: str | Path) -> Tokenizer:
    """Return the tokenizer of a vocabulary or model folder."""
    path, listed = Path(folder) / "tokenizer.json", Path(folder) / "vocab.txt"
    hint = "run the stage that makes this folder again, or `dvc pull` its output"
    if not path.exists():
        raise PipelineError("no tokenizer here", path, hint=hint)
    with tokenizer_errors(path, hint):
        return _checked(Tokenizer.from_file(str(path)), path, listed, hint)


def _checked(tokenizer: Tokenizer, path: Path, listed: Path, hint: str) -> Tokenizer:
    vocabulary, kind = tokenizer.get_vocab(with_added_tokens=False), kind_of(tokenizer)
    for token in (kind.pad, kind.unk, kind.mask):
        if token not in (vocabulary if listed.exists() else tokenizer.get_vocab()):  # some are added tokens
            raise PipelineError("the vocabulary lacks a special token", token, where=path, hint="train it again")
    tokenizer.encode_special_tokens = True  # not kept by tokenizer.json
    tokenizer.no_truncation()  # some published files hold it, and it would cut texts silently
    tokenizer.no_padding()
    read_templates(tokenizer)  # raises if special tokens are missing
    tokenizer.encode(RARE)
    entries = sorted(vocabulary, key=vocabulary.__getitem__)
    if len(set(vocabulary.values())) < len(entries):
        raise PipelineError("two entries of the vocabulary have one id", _twice(vocabulary), where=path, hint=hint)
    if listed.exists() and listed.read_bytes() != "".join(f"{entry}\n" for entry in entries).encode():
        raise PipelineError("not the vocabulary of tokenizer.json", listed, where=path, hint=hint)
    return tokenizer


def _twice(vocabulary: Mapping[str, int]) -> str:
    first: dict[int, str] = {}
    pair = next(
        (first[number], entry) for entry, number in vocabulary.items() if first.setdefault(number, entry) != entry
    )
    return " and ".join(map(shown, pair))


def check_vocab_size(tokenizer: Tokenizer, vocab_size: int, where: object) -> None:
    """Check that a model has an embedding for each id."""
    entry, largest = max(tokenizer.get_vocab().items(), key=lambda item: item[1])
    if largest >= vocab_size:
        raise PipelineError(
            "the tokenizer has more entries than the model",
            f"{shown(entry)} has id {largest:,}, of {vocab_size:,} ids",
            where=where, hint="use the tokenizer that was saved with it",
        )  # fmt: skip
