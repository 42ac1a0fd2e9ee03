"""Batches of pretraining examples, made from a sample index and its token store: flat, unpadded tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor

from pipeline_src.common.counter_rng import bits, derive_seed, permuted
from pipeline_src.common.files import read_json
from pipeline_src.common.paths import EXAMPLES, TOKENS
from pipeline_src.common.registry import architecture_spec
from pipeline_src.config.pretrain import Masking
from pipeline_src.examples.token_store import TokenStore, check_ids, read_sample_index
from pipeline_src.models.flops import Workload
from pipeline_src.pretraining.masking import Collator, collator_class
from pipeline_src.tokenizer.load import kind_of
from pipeline_src.tokenizer.special_tokens import Templates, read_templates
from pipeline_src.training.batches import split_balanced

LOOKAHEAD_BATCHES = 64  # batches whose examples are looked up together, for speed
NUM_SHOWN = 5  # examples in the report
PAIR_LABELS = {  # examples.pair_objective -> meanings of the labels 0 and 1 of a pair
    "nsp": ("B follows A", "B is a random text"),
    "nsp_balanced": ("B follows A", "B is a random text"),
    "sop": ("A and B in order", "A and B swapped, or B a random text"),
}


@dataclass(frozen=True)
class PretrainingBatch:
    """Sequences laid end to end, without padding.

    Attributes:
        ids: input ids, int64 [tokens].
        segments: token type ids (0 up to the first [SEP], 1 after it), int64 [tokens].
        cu_seqlens: start of each sequence, then the number of tokens, int64 [sequences + 1].
        predicted: positions at which the model predicts a token, int64 [predictions].
        labels: the tokens to predict at these positions, int64 [predictions].
        pair_label: 1 if segment B is random or both are swapped (google-research/bert and albert), int64 [sequences].
        examples: for each sequence, the index of its example in the sample index, int64 [sequences].
        sampling_noise: uniform random numbers in [0, 1) with which objectives sample tokens, float32 [predictions];
            they depend on seed, epoch, example and position. None in batches that were not read from examples.
    """

    ids: np.ndarray
    segments: np.ndarray
    cu_seqlens: np.ndarray
    predicted: np.ndarray
    labels: np.ndarray
    pair_label: np.ndarray
    examples: np.ndarray
    sampling_noise: np.ndarray | None = None

    @property
    def max_seqlen(self) -> int:
        return int(np.diff(self.cu_seqlens).max())


@dataclass(frozen=True)
class TensorBatch:
    """A microbatch as tensors; attributes without a description are as in ``PretrainingBatch``.

    Attributes:
        output_positions: positions whose last hidden state an MLM reads (outputs): the predicted tokens and the first
            token of each sequence, ascending, int64 [R].
        output_offsets: index of each sequence's first output, then R, int64 [sequences + 1].
        predicted_outputs: indices of the predicted positions among the outputs, int64 [predictions].
        max_seqlen, max_outputs: largest number of tokens, and of outputs, in a sequence.
    """

    ids: Tensor
    segments: Tensor
    cu_seqlens: Tensor
    predicted: Tensor
    labels: Tensor
    pair_label: Tensor
    output_positions: Tensor
    output_offsets: Tensor
    predicted_outputs: Tensor
    max_seqlen: int
    max_outputs: int
    workload: Workload
    examples: np.ndarray
    sampling_noise: Tensor | None = None

    GIVEN = ("ids", "segments", "cu_seqlens", "predicted", "labels", "pair_label")

    @classmethod
    def of(cls, batch: PretrainingBatch) -> TensorBatch:
        """Convert a batch to tensors on the host."""
        positions = np.union1d(batch.predicted, batch.cu_seqlens[:-1])
        arrays = {name: getattr(batch, name) for name in cls.GIVEN}
        arrays |= {
            "output_positions": positions,
            "output_offsets": np.searchsorted(positions, batch.cu_seqlens),
            "predicted_outputs": np.searchsorted(positions, batch.predicted),
        }
        lengths, read = np.diff(batch.cu_seqlens), np.diff(arrays["output_offsets"])
        work = Workload(
            sequences=len(lengths),
            tokens=len(batch.ids),
            sum_len_squared=int(lengths @ lengths),
            predictions=len(batch.labels),
            num_outputs=len(positions),
            attended_pairs=int(lengths @ read),
        )
        return cls(
            **{name: torch.from_numpy(array) for name, array in arrays.items()},
            max_seqlen=int(lengths.max()),
            max_outputs=int(read.max()),
            workload=work,
            examples=batch.examples,
            sampling_noise=None if batch.sampling_noise is None else torch.from_numpy(batch.sampling_noise),
        )


@dataclass(frozen=True)
class DataShard:
    """Which part of every batch a process gets, and how the part is split into microbatches.

    Attributes:
        tokens: maximum number of tokens in a microbatch of several sequences; None: one microbatch.
        sequences: maximum number of sequences in a microbatch; the numbers are then nearly equal, whatever ``tokens``.
    """

    tokens: int | None = None
    rank: int = 0
    processes: int = 1
    sequences: int | None = None

    def split(self, lengths: np.ndarray) -> list[slice]:
        """Split this process's sequences, given their ``lengths``, in order into microbatches."""
        if self.sequences is None:
            return split_balanced(lengths, self.tokens)
        count, parts = len(lengths), -(-len(lengths) // self.sequences)
        return [slice(count * part // parts, count * (part + 1) // parts) for part in range(parts)]


class PretrainingExamples:
    """The examples of one phase and split.

    Args:
        sample_index: the file ``data/examples/<phase>/<split>.npy``.
        pairs: the parameter ``examples.pair_objective``.
        vocab_size: ids are checked to be below this when they are read; None: no check.

    Attributes:
        sources: names of the sources of text; empty before ``assign_sources``.
        source_of: for each example, the index in ``sources`` of its first segment's source, int64 [examples].
    """

    def __init__(
        self,
        sample_index: Path,
        store: TokenStore,
        collator: Collator,
        templates: Templates,
        pairs: str,
        seed: int = 0,
        vocab_size: int | None = None,
    ) -> None:
        self.sources: tuple[str, ...] = ()
        self.source_of = np.empty(0, np.int64)
        self.sample_index = read_sample_index(sample_index, len(store.ids))
        self.store, self.collator, self.pairs = store, collator, pairs
        self.has_pairs = pairs != "none"
        self.template = templates.pair if self.has_pairs else templates.single
        self._key, self._vocab_size, self._num_special = derive_seed(seed, "draws"), vocab_size, self.template.size

    def __len__(self) -> int:
        return len(self.sample_index)

    def assign_sources(self, documents: Mapping[str, int]) -> None:
        """Assign a source to each example; ``documents``: source -> number of documents, in the store's order."""
        self.sources = tuple(name for name, count in documents.items() if count)
        ends = self.store.sentences[self.store.documents[np.cumsum([documents[name] for name in self.sources])]]
        self.source_of = np.searchsorted(ends, self.sample_index["a"], side="right")

    def lengths(self, examples: np.ndarray | slice = slice(None)) -> np.ndarray:
        """Return the number of tokens, special tokens included, of each example in ``examples`` (indices), int64."""
        index = self.sample_index[examples]
        return index["a_length"].astype(np.int64) + index["b_length"] + self._num_special

    def order(self, seed: int, epoch: int, positions: np.ndarray) -> np.ndarray:
        """Return the examples (indices, int64) at ``positions`` of the epoch's order, shuffled by ``seed``."""
        return permuted(derive_seed(seed, "order", epoch), positions, len(self.sample_index))

    def batches(
        self, size: int, seed: int, first_step: int, steps: int, shard: DataShard
    ) -> Iterator[list[PretrainingBatch]]:
        """Yield this process's microbatches for each of the steps ``first_step`` .. ``first_step + steps - 1``.

        A batch has ``size`` examples, perhaps the end of one epoch and the start of the next. The process of rank r
        takes every ``shard.processes``-th example of a batch, from the r-th on.
        """
        for first in range(first_step, first_step + steps, LOOKAHEAD_BATCHES):
            last = min(first + LOOKAHEAD_BATCHES, first_step + steps)
            epochs, positions = np.divmod(np.arange(first * size, last * size), len(self.sample_index))
            order = np.concatenate([self.order(seed, int(e), positions[epochs == e]) for e in np.unique(epochs)])
            for start in range(0, len(order), size):
                selected = slice(start + shard.rank, start + size, shard.processes)
                examples, passes = order[selected], epochs[selected]
                microbatches = shard.split(self.lengths(examples))
                yield [self.batch(examples[part], passes[part]) for part in microbatches]

    def batch(self, examples: np.ndarray, epochs: np.ndarray | int = 0) -> PretrainingBatch:
        """Assemble [CLS] A [SEP] B [SEP], or [CLS] A [SEP], for ``examples`` (indices), and mask tokens.

        ``epochs`` is the epoch of each example; with dynamic masking, its masks depend on it.
        """
        index = self.sample_index[examples]
        texts = ("a", "b") if self.has_pairs else ("a",)
        text_lengths = np.stack([index[f"{text}_length"].astype(np.int64) for text in texts], axis=1)
        starts, counts = np.stack([index[text] for text in texts], axis=1).ravel(), text_lengths.ravel()
        offsets = np.repeat(starts - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())  # in the store
        text = self.store.ids[offsets]
        check_ids(text, self._vocab_size, self.store.folder)
        ids, segments = self.template.apply_batch(text, text_lengths)
        continues = None
        if self.store.continues is not None:
            continues = np.zeros(len(ids), bool)
            continues[self.template.is_text(text_lengths)] = self.store.continues[offsets]
        lengths = text_lengths.sum(axis=1) + self._num_special
        passes = epochs if self.collator.dynamic else 0
        numbers = examples + passes * len(self.sample_index)
        input_ids, predicted = self.collator.apply(ids, lengths, numbers, continues)
        cu_seqlens = np.concatenate([[0], np.cumsum(lengths)])
        sequence = np.searchsorted(cu_seqlens, predicted, side="right") - 1
        noise_keys = (examples + epochs * len(self.sample_index))[sequence]
        sampling_noise = bits(self._key, noise_keys, predicted - cu_seqlens[sequence]) >> np.uint64(40)
        return PretrainingBatch(
            ids=input_ids,
            segments=segments,
            cu_seqlens=cu_seqlens,
            predicted=predicted,
            labels=ids[predicted + self.collator.label_shift],
            pair_label=index["is_random"].astype(np.int64),
            examples=examples,
            sampling_noise=sampling_noise.astype(np.float32) * np.float32(2.0**-24),  # below 1 in float32 too
        )


def open_examples(
    phase: str,
    split: str,
    tokenizer: Tokenizer,
    mask_prob: float,
    masking: Masking,
    seed: int,
    objective: str,
    architecture: str = "bert",
) -> PretrainingExamples:
    """Open the examples of one phase and split, masked for ``objective`` as the recipe of ``architecture`` does."""
    special_replacements = architecture_spec(architecture).special_replacements
    collator = collator_class(objective).of(tokenizer, mask_prob, masking, seed, special_replacements)
    sample_index = EXAMPLES / phase / f"{split}.npy"
    pairs = read_json(EXAMPLES / "manifest.json", {"pairs": str})["pairs"]
    store, templates = TokenStore(TOKENS, split), read_templates(tokenizer)
    return PretrainingExamples(sample_index, store, collator, templates, pairs, seed, tokenizer.get_vocab_size())


@dataclass(frozen=True)
class ReadablePiece:
    """One subword of a segment.

    Attributes:
        text: the model's input, without the prefix of a continuation subword.
        inner: whether the subword continues the word before it.
        was: the original subword if the model predicts it, else None.
        fate: what replaces a predicted subword in the input: ``mask``, ``random`` (another) or ``keep`` (itself);
            ``next`` if the model predicts it from the text before; None if the model does not predict it.
    """

    text: str
    inner: bool
    was: str | None = None
    fate: str | None = None


def readable_pieces(batch: PretrainingBatch, tokenizer: Tokenizer, label_shift: int) -> list[list[ReadablePiece]]:
    """Return the subwords of each segment of a batch's first example, without special tokens."""
    kind, marks = kind_of(tokenizer), read_templates(tokenizer).special_ids
    pieces = {number: piece for piece, number in tokenizer.get_vocab().items()}
    labels = dict(zip((batch.predicted + label_shift).tolist(), batch.labels.tolist(), strict=True))
    segments: list[list[ReadablePiece]] = [[], []]
    for position in range(int(batch.cu_seqlens[1])):
        input_id, label = int(batch.ids[position]), labels.get(position)
        if (input_id if label is None else label) in marks:
            continue
        text, segment = pieces[input_id], segments[int(batch.segments[position])]
        if label is None:
            segment.append(ReadablePiece(kind.spelt(text), kind.continues_word(text)))
            continue
        was = pieces[label]
        fate = "next" if label_shift else "mask" if text == kind.mask else "keep" if text == was else "random"
        segment.append(ReadablePiece(kind.spelt(text), kind.continues_word(was), kind.spelt(was), fate))
    return segments if segments[1] else segments[:1]


def shown_examples(examples: PretrainingExamples, tokenizer: Tokenizer, seed: int) -> list[dict[str, Any]]:
    """Return a few examples, chosen by the seed, for the report, as training sees them.

    An example has ``example`` (its number), ``pair`` (what its label means; None if examples are not pairs) and
    ``segments``, lists of ``ReadablePiece`` as dictionaries.
    """
    numbers = permuted(derive_seed(seed, "shown"), np.arange(min(NUM_SHOWN, len(examples))), len(examples))
    result = []
    for number in numbers.tolist():
        batch = examples.batch(np.asarray([number]))
        pieces = readable_pieces(batch, tokenizer, examples.collator.label_shift)
        segments = [[asdict(piece) for piece in segment] for segment in pieces]
        result.append({"example": number, "pair": pair_label(examples, batch), "segments": segments})
    return result


def pair_label(examples: PretrainingExamples, batch: PretrainingBatch) -> str | None:
    """Return what the label of a batch's first example means; None if examples are not pairs."""
    return PAIR_LABELS[examples.pairs][int(batch.pair_label[0])] if examples.has_pairs else None
