"""Batches of pretraining examples: a sample index and its token store in, flat unpadded arrays out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from pipeline_src.common.counter_rng import bits, derive_seed, permuted
from pipeline_src.common.files import read_json
from pipeline_src.common.paths import EXAMPLES, TOKENS
from pipeline_src.params.pretrain import Masking
from pipeline_src.pretraining.loading.corruption import Corruption, corruption_of
from pipeline_src.tokenizer.frame import Frames, read_frames
from pipeline_src.tokenizer.sample_index import read_sample_index
from pipeline_src.tokenizer.token_store import TokenStore, check_ids
from pipeline_src.training.cutting import cut_evenly

AHEAD = 64  # batches whose examples are looked up at once; for speed alone


@dataclass(frozen=True)
class PretrainingBatch:
    """Sequences laid end to end, without padding.

    Attributes:
        ids: what the model sees, int64 [tokens].
        segments: as the frame has them (0 up to the first [SEP], 1 after it), int64 [tokens].
        cu_seqlens: where each sequence starts, and the number of tokens, int64 [sequences + 1].
        predicted: places at which a token is predicted, int64 [predictions].
        labels: the tokens to predict there, int64 [predictions].
        pair_label: what is learnt of each pair, 1 where segment B is a random one or both are swapped (the label of
            google-research/bert and google-research/albert), int64 [sequences].
        examples: number of each sequence's example in its sample index, int64 [sequences].
        draws: a uniform number for each prediction, by which an objective samples there; keyed by seed, epoch, example
            and place, float32 [predictions]. None where nothing is to be sampled.
    """

    ids: np.ndarray
    segments: np.ndarray
    cu_seqlens: np.ndarray
    predicted: np.ndarray
    labels: np.ndarray
    pair_label: np.ndarray
    examples: np.ndarray
    draws: np.ndarray | None = None

    @property
    def max_seqlen(self) -> int:
        """Tokens of the longest sequence."""
        return int(np.diff(self.cu_seqlens).max())


@dataclass(frozen=True)
class Cut:
    """Which part of every batch a process gets, and in pieces of how many tokens.

    Attributes:
        tokens: most tokens of a piece; a longer sequence is a piece of its own. None never cuts.
        rank, processes: this process's number, and how many share a batch.
    """

    tokens: int | None = None
    rank: int = 0
    processes: int = 1


class PretrainingExamples:
    """The examples of one phase and split.

    Args:
        sample_index: ``data/examples/<phase>/<split>.npy``.
        store: the split's tokens.
        corruption: what is predicted, and what the model sees.
        frames: where the tokenizer puts its marks.
        pairs: what is learnt of an example's two segments, as ``examples.pairs`` of params.yaml has it.
        seed: keys the draws of batches.
        entries: of the vocabulary, which ids are held to; None where they are known to be its.

    Raises:
        PipelineError: the sample index is missing, damaged, or not of these tokens.
    """

    def __init__(
        self,
        sample_index: Path,
        store: TokenStore,
        corruption: Corruption,
        frames: Frames,
        pairs: str,
        seed: int = 0,
        entries: int | None = None,
    ) -> None:
        self._entries = entries
        self.sample_index = read_sample_index(sample_index, len(store.ids))
        self.store, self.corruption, self.pairs, self._draws = store, corruption, pairs, derive_seed(seed, "draws")
        self.frame = frames.pair if self.has_pairs else frames.single

    @property
    def has_pairs(self) -> bool:
        """Whether examples are pairs; else they are single segments."""
        return self.pairs != "none"

    def __len__(self) -> int:
        return len(self.sample_index)

    def lengths(self, examples: np.ndarray | slice = slice(None)) -> np.ndarray:
        """Tokens of the examples of these numbers (of all), marks included, int64."""
        rows = self.sample_index[examples]
        return rows["a_length"].astype(np.int64) + rows["b_length"] + self.frame.size

    def order(self, seed: int, epoch: int, places: np.ndarray) -> np.ndarray:
        """Which examples stand at ``places`` of the epoch's order, keyed by seed and epoch, int64."""
        return permuted(derive_seed(seed, "order", epoch), places, len(self.sample_index))

    def batches(self, size: int, seed: int, first_step: int, steps: int, cut: Cut) -> Iterator[list[PretrainingBatch]]:
        """Yield the batches of steps ``first_step`` .. ``first_step + steps - 1``, each cut into pieces.

        Epoch after epoch without a break: a batch may hold the end of one and the start of the next. The process of
        rank r takes every ``cut.processes``-th example of a batch from the r-th on.
        """
        for first in range(first_step, first_step + steps, AHEAD):
            last = min(first + AHEAD, first_step + steps)
            epochs, places = np.divmod(np.arange(first * size, last * size), len(self.sample_index))
            picked = np.concatenate([self.order(seed, int(e), places[epochs == e]) for e in np.unique(epochs)])
            for start in range(0, len(picked), size):
                mine = slice(start + cut.rank, start + size, cut.processes)
                examples, passes = picked[mine], epochs[mine]
                pieces = cut_evenly(self.lengths(examples), cut.tokens)
                yield [self.batch(examples[piece], passes[piece]) for piece in pieces]

    def batch(self, examples: np.ndarray, epochs: np.ndarray | int = 0) -> PretrainingBatch:
        """Assemble [CLS] A [SEP] B [SEP], or [CLS] A [SEP], for the examples of these numbers, and what is predicted.

        The epoch in which each stands decides its masks where masking is dynamic.
        """
        rows = self.sample_index[examples]
        texts = ("a", "b") if self.has_pairs else ("a",)
        text_lengths = np.stack([rows[f"{text}_length"].astype(np.int64) for text in texts], axis=1)
        ids, segments = self.frame.lay_out(self._text(rows, texts, text_lengths.ravel()), text_lengths)
        lengths = text_lengths.sum(axis=1) + self.frame.size
        passes = epochs if self.corruption.dynamic else 0
        seen, predicted = self.corruption.apply(ids, lengths, examples + passes * len(self.sample_index))
        cu_seqlens = np.concatenate([[0], np.cumsum(lengths)])
        sequence = np.searchsorted(cu_seqlens, predicted, side="right") - 1
        draw_rows = (examples + epochs * len(self.sample_index))[sequence]
        return PretrainingBatch(
            ids=seen,
            segments=segments,
            cu_seqlens=cu_seqlens,
            predicted=predicted,
            labels=ids[predicted + self.corruption.label_shift],
            pair_label=rows["is_random"].astype(np.int64),
            examples=examples,
            draws=(bits(self._draws, draw_rows, predicted - cu_seqlens[sequence]) >> np.uint64(40)).astype(np.float32)
            * np.float32(2.0**-24),  # below 1 in float32 too
        )

    def _text(self, rows: np.ndarray, texts: Sequence[str], lengths: np.ndarray) -> np.ndarray:
        """The texts of the examples end to end, A and B in turn: all is gathered from the store at once."""
        source = np.stack([rows[text] for text in texts], axis=1).ravel()
        ids = self.store.ids[np.repeat(source - np.cumsum(lengths) + lengths, lengths) + np.arange(lengths.sum())]
        check_ids(ids, self._entries, self.store.folder)
        return ids


def open_examples(
    phase: str, split: str, tokenizer: Tokenizer, mask_prob: float, masking: Masking, seed: int, objective: str
) -> PretrainingExamples:
    """The examples of one phase and split, of which the stage ``build_examples`` wrote the sample index.

    Args:
        phase, split: which.
        tokenizer: of the vocabulary that their tokens are of.
        mask_prob, masking, seed: how to mask, where the objective masks.
        objective: ``pretrain.objective``.

    Raises:
        PipelineError: there is no such index, or it or the tokens are damaged.
    """
    corruption = corruption_of(objective)(tokenizer, mask_prob, masking, seed)
    sample_index = EXAMPLES / phase / f"{split}.npy"
    pairs = read_json(EXAMPLES / "manifest.json", {"pairs": str})["pairs"]
    store, frames = TokenStore(TOKENS, split), read_frames(tokenizer)
    return PretrainingExamples(sample_index, store, corruption, frames, pairs, seed, tokenizer.get_vocab_size())
