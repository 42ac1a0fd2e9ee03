"""Load the tokenizer, of any kind, from a vocabulary folder or a model folder."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

from tokenizers import Tokenizer

from pipeline_src.base.errors import PipelineError, is_panic
from pipeline_src.base.names import shown
from pipeline_src.tokenizer import byte_bpe, unigram, wordpiece
from pipeline_src.tokenizer.special_tokens import Kind, read_templates

# Model in `tokenizers` -> its kinds of vocabulary, the default first.
KINDS: dict[str, tuple[Kind, ...]] = {
    "WordPiece": (wordpiece.KIND,),
    "BPE": (byte_bpe.KIND, byte_bpe.DEBERTA),
    "Unigram": (unigram.KIND, unigram.DEBERTA),
}
# In no vocabulary, so encoding it fails if the model's unknown token is missing.
RARE = "𓀀"


def kind_of(tokenizer: Tokenizer) -> Kind:
    name = type(tokenizer.model).__name__
    if name not in KINDS:
        raise PipelineError(
            "a kind of vocabulary that is not supported",
            name,
            where="tokenizer.json",
            hint=f"use a tokenizer whose model is one of {', '.join(KINDS)}",
        )
    for kind in KINDS[name]:
        if None not in map(tokenizer.token_to_id, (kind.pad, kind.unk, kind.mask)):
            return kind
    return KINDS[name][0]


@contextmanager
def tokenizer_errors(where: object, hint: str) -> Iterator[None]:
    # `tokenizers` raises exceptions or Rust panics for a damaged file.
    try:
        yield
    except PipelineError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and not is_panic(error):
            raise
        raise PipelineError("not a tokenizer", error, where=where, hint=hint) from None


def load_tokenizer(folder: str | Path) -> Tokenizer:
    path = Path(folder) / "tokenizer.json"
    vocab_txt = Path(folder) / "vocab.txt"
    hint = "run the stage that makes this folder again, or `dvc pull` its output"
    if not path.exists():
        raise PipelineError("no tokenizer here", path, hint=hint)
    with tokenizer_errors(path, hint):
        tokenizer = Tokenizer.from_file(str(path))
        vocabulary = tokenizer.get_vocab(with_added_tokens=False)
        # Without a vocab.txt, special tokens may be added tokens.
        known = vocabulary if vocab_txt.exists() else tokenizer.get_vocab()
        kind = kind_of(tokenizer)
        for token in (kind.pad, kind.unk, kind.mask):
            if token not in known:
                raise PipelineError("the vocabulary lacks a special token", token, where=path, hint="train it again")
        # It is not saved in tokenizer.json.
        tokenizer.encode_special_tokens = True
        # Some published files set truncation, which would cut texts silently.
        tokenizer.no_truncation()
        tokenizer.no_padding()
        # These raise an error if special tokens are missing.
        read_templates(tokenizer)
        tokenizer.encode(RARE)
        entries = sorted(vocabulary, key=vocabulary.__getitem__)
        for first, second in pairwise(entries):
            if vocabulary[first] == vocabulary[second]:
                pair = f"{shown(first)} and {shown(second)}"
                raise PipelineError("two entries of the vocabulary have one id", pair, where=path, hint=hint)
        if vocab_txt.exists() and vocab_txt.read_bytes() != "".join(f"{entry}\n" for entry in entries).encode():
            raise PipelineError("not the vocabulary of tokenizer.json", vocab_txt, where=path, hint=hint)
    return tokenizer


def check_vocab_size(tokenizer: Tokenizer, vocab_size: int, where: object) -> None:
    """Check that a model with ``vocab_size`` embeddings has one for each id of ``tokenizer``."""
    entry, largest = max(tokenizer.get_vocab().items(), key=lambda item: item[1])
    if largest >= vocab_size:
        raise PipelineError(
            "the tokenizer has more entries than the model",
            f"{shown(entry)} has id {largest:,}, of {vocab_size:,} ids",
            where=where,
            hint="use the tokenizer that was saved with it",
        )


def reading_masks(tokenizer: Tokenizer) -> Tokenizer:
    """Return a copy of a tokenizer that encodes the mask token in a text as such, other special tokens as text."""
    state = json.loads(tokenizer.to_str())
    for token in state["added_tokens"]:
        token["special"] = token["special"] and token["content"] != kind_of(tokenizer).mask
    copy = Tokenizer.from_str(json.dumps(state))
    # Tokens that are marked special are encoded as text; the mask is no longer marked.
    copy.encode_special_tokens = True
    return copy
