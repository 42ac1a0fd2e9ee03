"""Load a tokenizer of any kind from a vocabulary folder or a model folder."""

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

# Model class in `tokenizers` -> kinds of vocabulary, the default first.
KINDS: dict[str, tuple[Kind, ...]] = {
    "WordPiece": (wordpiece.KIND,),
    "BPE": (byte_bpe.KIND, byte_bpe.DEBERTA),
    "Unigram": (unigram.KIND, unigram.DEBERTA),
}
# A character that is in no vocabulary. Encoding it fails if the unknown token is missing.
RARE = "𓀀"


def kind_of(tokenizer: Tokenizer) -> Kind:
    name = type(tokenizer.model).__name__
    if name not in KINDS:
        raise PipelineError(
            "unsupported kind of vocabulary",
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
    # For a damaged file, `tokenizers` raises an exception or a Rust panic. Turn both into a PipelineError.
    try:
        yield
    except PipelineError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and not is_panic(error):
            raise
        raise PipelineError("the tokenizer cannot be loaded", error, where=where, hint=hint) from None


def load_tokenizer(folder: str | Path) -> Tokenizer:
    path = Path(folder) / "tokenizer.json"
    vocab_txt = Path(folder) / "vocab.txt"
    hint = "run the stage that makes this folder again, or `dvc pull` its output"
    if not path.exists():
        raise PipelineError("tokenizer not found", path, hint=hint)
    with tokenizer_errors(path, hint):
        tokenizer = Tokenizer.from_file(str(path))
        vocabulary = tokenizer.get_vocab(with_added_tokens=False)
        # Without a vocab.txt, special tokens may be outside the vocabulary, as added tokens.
        known = vocabulary if vocab_txt.exists() else tokenizer.get_vocab()
        kind = kind_of(tokenizer)
        for token in (kind.pad, kind.unk, kind.mask):
            if token not in known:
                raise PipelineError("the vocabulary lacks a special token", token, where=path, hint="train it again")
        # This setting is not saved in tokenizer.json.
        tokenizer.encode_special_tokens = True
        # Some published files enable truncation, which would cut texts silently.
        tokenizer.no_truncation()
        tokenizer.no_padding()
        # Both calls raise an error if special tokens are missing.
        read_templates(tokenizer)
        tokenizer.encode(RARE)
        entries = sorted(vocabulary, key=vocabulary.__getitem__)
        for first, second in pairwise(entries):
            if vocabulary[first] == vocabulary[second]:
                pair = f"{shown(first)} and {shown(second)}"
                raise PipelineError("two vocabulary entries have the same id", pair, where=path, hint=hint)
        if vocab_txt.exists() and vocab_txt.read_bytes() != "".join(f"{entry}\n" for entry in entries).encode():
            raise PipelineError("vocab.txt differs from tokenizer.json", vocab_txt, where=path, hint=hint)
    return tokenizer


def check_vocab_size(tokenizer: Tokenizer, vocab_size: int, where: object) -> None:
    """Raise an error if a tokenizer has ids for which a model has no embedding."""
    entry, largest = max(tokenizer.get_vocab().items(), key=lambda item: item[1])
    if largest >= vocab_size:
        raise PipelineError(
            "the tokenizer has more entries than the model has embeddings",
            f"{shown(entry)} has id {largest:,}, the model {vocab_size:,} embeddings",
            where=where,
            hint="use the tokenizer that was saved with the model",
        )


def reading_masks(tokenizer: Tokenizer) -> Tokenizer:
    """Return a copy of a tokenizer that recognises the mask token in a text, but no other special token."""
    state = json.loads(tokenizer.to_str())
    for token in state["added_tokens"]:
        token["special"] = token["special"] and token["content"] != kind_of(tokenizer).mask
    copy = Tokenizer.from_str(json.dumps(state))
    # Encode special tokens as text. The mask token is no longer special, so its id is used.
    copy.encode_special_tokens = True
    return copy
