"""Special tokens and the templates in which they surround texts, such as [CLS] A [SEP] B [SEP].

The post-processor of a tokenizer defines its templates (the paper, section 3). RoBERTa's is ``<s> A </s></s> B </s>``.
This module reads the templates once and applies them to arrays of ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from tokenizers import Encoding, Tokenizer
from tokenizers.processors import TemplateProcessing

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import atomic_file, write_json

HINT = "use the tokenizer of the stage `train_tokenizer`, or one with special tokens for pairs of texts"


@dataclass(frozen=True)
class Template:
    """The special tokens around one text or around a pair of texts.

    Attributes:
        special_ids: ids before the first text, between the texts, and after the last text.
        token_type_ids: one type for each run of special tokens and for each text, in order. It is (0, 0, 0, 1, 1) for
            [CLS] A [SEP] B [SEP].
    """

    special_ids: tuple[tuple[int, ...], ...]
    token_type_ids: tuple[int, ...]

    @property
    def size(self) -> int:
        return sum(map(len, self.special_ids))

    def apply(self, *texts: Sequence[int]) -> tuple[list[int], list[int]]:
        """Return the ids and token_type_ids of a sequence with one or two texts."""
        # [CLS] A [SEP] B [SEP] has five runs of ids, each with a type.
        runs: list[Sequence[int]] = [self.special_ids[0]]
        for text, special in zip(texts, self.special_ids[1:], strict=True):
            runs += [text, special]
        ids: list[int] = []
        token_type_ids: list[int] = []
        for run, type_id in zip(runs, self.token_type_ids, strict=True):
            ids += run
            token_type_ids += [type_id] * len(run)
        return ids, token_type_ids

    def apply_batch(self, texts: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the ids and token_type_ids of many concatenated sequences, int64 [tokens].

        Args:
            texts: ids of all texts, concatenated.
            lengths: number of tokens of each text, int64 [sequences, texts per sequence].
        """
        is_text = self.is_text(lengths)
        ids = np.empty(len(is_text), np.int64)
        ids[is_text] = texts
        ids[~is_text] = np.tile([number for special in self.special_ids for number in special], len(lengths))
        return ids, np.repeat(np.tile(self.token_type_ids, len(lengths)), self._runs(lengths))

    def is_text(self, lengths: np.ndarray) -> np.ndarray:
        # Return which tokens are text, not special tokens, bool [tokens]. `lengths` as in `apply_batch`.
        is_text_run = np.arange(len(self.token_type_ids)) % 2 == 1
        return np.repeat(np.tile(is_text_run, len(lengths)), self._runs(lengths))

    def _runs(self, lengths: np.ndarray) -> np.ndarray:
        # Return the number of tokens in each run of special tokens and in each text, in order, int64 [runs].
        runs = np.empty((len(lengths), len(self.token_type_ids)), np.int64)
        runs[:, 0::2] = [len(special) for special in self.special_ids]
        runs[:, 1::2] = lengths
        return runs.ravel()


@dataclass(frozen=True)
class Templates:
    single: Template
    pair: Template

    @property
    def special_ids(self) -> tuple[int, ...]:
        # Return the distinct special ids in both templates, ascending.
        runs = (*self.single.special_ids, *self.pair.special_ids)
        return tuple(sorted({number for run in runs for number in run}))


def read_templates(tokenizer: Tokenizer) -> Templates:
    text = next((piece for piece in tokenizer.get_vocab() if tokenizer.encode(piece, add_special_tokens=False).ids), "")
    single, pair = tokenizer.encode(text), tokenizer.encode(text, text)
    return Templates(_read_template(tokenizer, single, 1), _read_template(tokenizer, pair, 2))


def _read_template(tokenizer: Tokenizer, encoding: Encoding, texts: int) -> Template:
    special_ids: list[list[int]] = [[] for _ in range(texts + 1)]
    token_type_ids = [0] * (2 * texts + 1)
    # Index of the current run: even for special tokens, odd for texts.
    run = 0
    tokens = zip(encoding.ids, encoding.tokens, encoding.type_ids, encoding.sequence_ids, strict=True)
    for number, token, type_id, text in tokens:
        if text is not None:
            run = 2 * text + 1
        else:
            run += run % 2
            special_ids[run // 2].append(number)
            if tokenizer.token_to_id(token) != number:
                raise PipelineError("the vocabulary lacks a special token", token, hint=HINT)
        token_type_ids[run] = type_id
    if not all(special_ids):
        raise PipelineError(
            "the tokenizer adds no special tokens around a text",
            f"{texts} texts are encoded as {encoding.tokens}",
            where="post_processor in tokenizer.json",
            hint=HINT,
        )
    return Template(tuple(map(tuple, special_ids)), tuple(token_type_ids))


def template_processing(
    tokenizer: Tokenizer, cls: str, sep: str, pair: str = "{cls} $A {sep} $B:1 {sep}:1"
) -> TemplateProcessing:
    # The template for one text is "cls A sep". `pair` is the template for two texts, by default that of BERT.
    special = [(token, tokenizer.token_to_id(token)) for token in dict.fromkeys((cls, sep))]
    return TemplateProcessing(f"{cls} $A {sep}", pair.format(cls=cls, sep=sep), special)


class Counted(Protocol):
    """Distinct words with their counts: a dictionary or ``WordCounts``."""

    def items(self) -> Iterable[tuple[str, int]]: ...


@dataclass(frozen=True)
class Kind:
    """A kind of vocabulary: how it spells special tokens and subwords. ``load.KINDS`` lists all kinds.

    Attributes:
        pad, unk, mask: the special tokens that are in no template.
        continues_word: function that tells whether a piece continues the word of the previous piece.
        spelt: function that returns the letters of a piece, without its prefix such as ``##``.
        by_chunk: whether text can be split at spaces and encoded chunk by chunk with the same ids.
    """

    pad: str
    unk: str
    mask: str
    continues_word: Callable[[str], bool]
    spelt: Callable[[str], str]
    by_chunk: bool = False

    def id_of(self, tokenizer: Tokenizer, token: str) -> int:
        number = tokenizer.token_to_id(token)
        if number is None:
            raise PipelineError("the vocabulary lacks a special token", token, hint=HINT)
        return number

    def is_continuation(self, tokenizer: Tokenizer) -> np.ndarray:
        """Return, for each id, whether it continues a word, bool [vocab_size]."""
        continues = np.zeros(tokenizer.get_vocab_size(), bool)
        continues[[number for piece, number in tokenizer.get_vocab().items() if self.continues_word(piece)]] = True
        return continues


def save_fast_tokenizer(folder: Path, tokenizer: Tokenizer, special: Mapping[str, str], inputs: Sequence[str]) -> None:
    """Write ``tokenizer.json`` and ``tokenizer_config.json``.

    Args:
        special: special tokens by their key in the config, such as ``cls_token``.
        inputs: value of ``model_input_names`` in the config.
    """
    # PreTrainedTokenizerFast uses tokenizer.json unchanged. Classes such as RobertaTokenizerFast rebuild parts of it.
    with atomic_file(folder / "tokenizer.json") as file:
        file.write(tokenizer.to_str(pretty=True))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": 512,
        "model_input_names": list(inputs),
        "clean_up_tokenization_spaces": False,
        **special,
    }
    write_json(folder / "tokenizer_config.json", config)
