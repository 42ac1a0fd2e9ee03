"""Batches of pretraining examples: a plan and its token shards in, flat unpadded arrays out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from pipeline_src.common.counter_rng import derive_seed, permuted
from pipeline_src.common.errors import PipelineError
from pipeline_src.common.paths import EXAMPLES, TOKENS
from pipeline_src.params.pretrain import Masking
from pipeline_src.pretraining.loading.left_to_right import LeftToRight
from pipeline_src.pretraining.loading.masking import MaskedLM
from pipeline_src.tokenizer.token_store import TokenStore
from pipeline_src.tokenizer.wordpiece import CLS, MASK, PAD, SEP

Objective = MaskedLM | LeftToRight  # what is predicted
AHEAD = 64  # batches whose examples are looked up at once; for speed alone


@dataclass(frozen=True)
class PretrainingBatch:
    """Sequences laid end to end, without padding.

    Attributes:
        ids: what the model sees, int64 [tokens].
        segments: 0 up to the first [SEP], 1 after it, int64 [tokens].
        cu_seqlens: where each sequence starts, and the number of tokens, int64 [sequences + 1].
        predicted: places at which a token is predicted, int64 [predictions].
        labels: the tokens that belong there, int64 [predictions].
        pair_label: what is learnt of each pair, 1 where segment B is a random one (google-research/bert's label), int64
            [sequences].
        examples: number of each sequence's example in its plan, int64 [sequences].
    """

    ids: np.ndarray
    segments: np.ndarray
    cu_seqlens: np.ndarray
    predicted: np.ndarray
    labels: np.ndarray
    pair_label: np.ndarray
    examples: np.ndarray

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


def pieces(lengths: np.ndarray, tokens: int | None) -> list[int]:
    """Where to cut sequences of these lengths, in order, so that no piece holds more than ``tokens``.

    Returns:
        The first sequence of each piece, and the number of sequences.
    """
    ends = np.cumsum(lengths)
    edges = [0]
    while edges[-1] < len(lengths):
        before = ends[edges[-1] - 1] if edges[-1] else 0
        stop = len(lengths) if tokens is None else int(np.searchsorted(ends, before + tokens, side="right"))
        edges.append(max(stop, edges[-1] + 1))
    return edges


class PretrainingExamples:
    """The examples of one phase and split.

    Args:
        plan: ``data/examples/<phase>/<split>.npy``.
        store: the split's tokens.
        objective: what is predicted.
        cls_id, sep_id: ids of [CLS] and [SEP].

    Attributes:
        next_sentence: whether examples are pairs; else they are single segments.
    """

    def __init__(self, plan: Path, store: TokenStore, objective: Objective, cls_id: int, sep_id: int) -> None:
        if not plan.exists():
            raise PipelineError("no plan of examples", plan, remedy="run the stage `build_examples`")
        self.plan = np.load(plan, mmap_mode="r").view(np.ndarray)
        self.store, self.objective, self.cls_id, self.sep_id = store, objective, cls_id, sep_id
        self.next_sentence = bool(self.plan["b_length"][0])  # pairs have both segments, single segments never B

    def __len__(self) -> int:
        return len(self.plan)

    def lengths(self, examples: np.ndarray | slice = slice(None)) -> np.ndarray:
        """Tokens of the examples of these numbers (of all), with [CLS] and [SEP], int64."""
        rows = self.plan[examples]
        return rows["a_length"].astype(np.int64) + rows["b_length"] + (3 if self.next_sentence else 2)

    def order(self, seed: int, epoch: int, places: np.ndarray) -> np.ndarray:
        """Which examples stand at ``places`` of the epoch's order, keyed by seed and epoch, int64."""
        return permuted(derive_seed(seed, "order", epoch), places, len(self.plan))

    def batches(self, size: int, seed: int, first_step: int, steps: int, cut: Cut) -> Iterator[list[PretrainingBatch]]:
        """Yield the batches of steps ``first_step`` .. ``first_step + steps - 1``, each cut into pieces.

        Epoch after epoch without a break: a batch may hold the end of one and the start of the next. The process of
        rank r takes every ``cut.processes``-th example of a batch from the r-th on.
        """
        for first in range(first_step, first_step + steps, AHEAD):
            last = min(first + AHEAD, first_step + steps)
            epochs, places = np.divmod(np.arange(first * size, last * size), len(self.plan))
            picked = np.concatenate([self.order(seed, int(e), places[epochs == e]) for e in np.unique(epochs)])
            for start in range(0, len(picked), size):
                mine = slice(start + cut.rank, start + size, cut.processes)
                examples, passes = picked[mine], epochs[mine]
                edges = pieces(self.lengths(examples), cut.tokens)
                yield [self.batch(examples[a:b], passes[a:b]) for a, b in zip(edges, edges[1:], strict=False)]

    def batch(self, examples: np.ndarray, epochs: np.ndarray | int = 0) -> PretrainingBatch:
        """Assemble [CLS] A [SEP] B [SEP], or [CLS] A [SEP], for the examples of these numbers, and what is predicted.

        The epoch in which each stands decides its masks where masking is dynamic.
        """
        rows = self.plan[examples]
        ids, both = self._assemble(rows)
        lengths = both.sum(axis=1)
        passes = epochs if self.objective.dynamic else 0
        seen, predicted = self.objective.apply(ids, lengths, examples + passes * len(self.plan))
        return PretrainingBatch(
            ids=seen,
            segments=np.repeat(np.tile([0, 1], len(examples)), both.ravel()),
            cu_seqlens=np.concatenate([[0], np.cumsum(lengths)]),
            predicted=predicted,
            labels=ids[predicted + self.objective.label_shift],
            pair_label=rows["is_random"].astype(np.int64),
            examples=examples,
        )

    def _assemble(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Ids of the examples end to end, int64 [tokens], and tokens of each one's two segments, int64 [rows, 2].

        The first segment counts [CLS] and its [SEP], the second its [SEP]; all text is gathered at once.
        """
        ones = np.ones(len(rows), np.int64)
        last_sep = ones if self.next_sentence else ones - 1
        pieces = np.stack([ones, rows["a_length"], ones, rows["b_length"], last_sep], axis=1)
        stops = np.cumsum(pieces).reshape(pieces.shape)
        starts = stops - pieces
        text = pieces[:, [1, 3]].ravel()  # tokens from the store, A and B in turn
        source = np.stack([rows["a"], rows["b"]], axis=1).ravel()
        place = np.repeat(source - np.cumsum(text) + text, text) + np.arange(text.sum())
        ids = np.full(stops[-1, -1], self.sep_id, np.int64)
        ids[starts[:, 0]] = self.cls_id
        of_text = np.ones(len(ids), bool)
        of_text[starts[:, [0, 2]]] = of_text[stops[:, -1] - 1] = False
        ids[of_text] = self.store.ids[place]
        return ids, np.stack([pieces[:, :3].sum(axis=1), pieces[:, 3:].sum(axis=1)], axis=1)


def _masked(ids: dict[str, int], mask_prob: float, masking: Masking, seed: int) -> Objective:
    special, inner = np.zeros(len(ids), bool), np.zeros(len(ids), bool)
    special[[ids[CLS], ids[SEP], ids[PAD]]] = True
    inner[[number for piece, number in ids.items() if piece.startswith("##")]] = True
    return MaskedLM(mask_prob, masking, ids[MASK], special, inner, seed)


def _left_to_right(ids: dict[str, int], mask_prob: float, masking: Masking, seed: int) -> Objective:
    return LeftToRight(ids[SEP])


# From the ids of all entries, and how to mask and draw.
OBJECTIVES: dict[str, Callable[[dict[str, int], float, Masking, int], Objective]] = {
    "masked": _masked,
    "left_to_right": _left_to_right,
}


def open_examples(
    phase: str,
    split: str,
    tokenizer: Tokenizer,
    mask_prob: float,
    masking: Masking,
    seed: int,
    objective: str = "masked",
) -> PretrainingExamples:
    """The examples that the stage ``build_examples`` planned for one phase and split.

    Args:
        phase, split: which.
        tokenizer: of the vocabulary that their tokens are of.
        mask_prob, masking, seed: how to mask, where the objective is ``masked``.
        objective: a key of ``OBJECTIVES``.

    Raises:
        PipelineError: there is no such plan, or the tokens are damaged.
    """
    ids = tokenizer.get_vocab()
    plan = EXAMPLES / phase / f"{split}.npy"
    predicted = OBJECTIVES[objective](ids, mask_prob, masking, seed)
    return PretrainingExamples(plan, TokenStore(TOKENS, split), predicted, ids[CLS], ids[SEP])
