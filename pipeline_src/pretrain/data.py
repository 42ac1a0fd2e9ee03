"""Read batches of pretraining examples, without padding, from a sample index and a token store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor

from pipeline_src.base.counter_rng import bits, derive_seed, permuted
from pipeline_src.base.files import read_json
from pipeline_src.base.paths import EXAMPLES, TOKENS
from pipeline_src.base.registry import architecture_spec
from pipeline_src.examples.masking import Collator, make_collator
from pipeline_src.examples.token_store import TokenStore, check_ids, read_sample_index
from pipeline_src.model.flops import Workload
from pipeline_src.study.pretrain import Masking
from pipeline_src.tokenizer.load import kind_of
from pipeline_src.tokenizer.special_tokens import Templates, read_templates
from pipeline_src.training.batches import split_balanced

# The order of examples is computed for this many batches at once, which is faster.
LOOKAHEAD_BATCHES = 64
# The report shows this many examples.
NUM_SHOWN = 5
# Value of examples.pair_objective -> what the labels 0 and 1 of a pair mean.
PAIR_LABELS = {
    "nsp": ("B follows A", "B is a random text"),
    "nsp_balanced": ("B follows A", "B is a random text"),
    "sop": ("A and B in order", "A and B swapped, or B a random text"),
}


@dataclass(frozen=True)
class PretrainingBatch:
    """Batch of sequences, concatenated without padding.

    Attributes:
        ids: input ids, int64 [tokens].
        segments: token type ids (0 up to the first [SEP], 1 after it), int64 [tokens].
        cu_seqlens: start index of each sequence, with the number of tokens at the end, int64 [sequences + 1].
        predicted: positions in ``ids`` at which the model predicts a token, int64 [predictions].
        labels: tokens to predict at these positions, int64 [predictions].
        pair_label: label of each pair of segments, int64 [sequences]. ``PAIR_LABELS`` says what 0 and 1 mean.
        examples: number of each sequence's example in the sample index, int64 [sequences].
        sampling_noise: uniform random numbers in [0, 1) with which objectives sample tokens, float32 [predictions].
            They depend only on seed, epoch, example and position. None in batches that were not read from examples.
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
    """Microbatch of tensors. See ``PretrainingBatch`` for the other attributes.

    The outputs are the R tokens whose last hidden state an MLM head or pair head reads: all predicted tokens, and the
    first token of each sequence.

    Attributes:
        output_positions: positions of the outputs in ``ids``, ascending, int64 [R].
        output_offsets: index of each sequence's first output, with R at the end, int64 [sequences + 1].
        predicted_outputs: indices of the predicted tokens among the outputs, int64 [predictions].
        max_seqlen: largest number of tokens in a sequence.
        max_outputs: largest number of outputs in a sequence.
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
        positions = np.union1d(batch.predicted, batch.cu_seqlens[:-1])
        arrays = {name: getattr(batch, name) for name in cls.GIVEN}
        arrays |= {
            "output_positions": positions,
            "output_offsets": np.searchsorted(positions, batch.cu_seqlens),
            "predicted_outputs": np.searchsorted(positions, batch.predicted),
        }
        lengths = np.diff(batch.cu_seqlens)
        outputs = np.diff(arrays["output_offsets"])
        work = Workload(
            sequences=len(lengths),
            tokens=len(batch.ids),
            sum_len_squared=int(lengths @ lengths),
            predictions=len(batch.labels),
            num_outputs=len(positions),
            attended_pairs=int(lengths @ outputs),
        )
        return cls(
            **{name: torch.from_numpy(array) for name, array in arrays.items()},
            max_seqlen=int(lengths.max()),
            max_outputs=int(outputs.max()),
            workload=work,
            examples=batch.examples,
            sampling_noise=None if batch.sampling_noise is None else torch.from_numpy(batch.sampling_noise),
        )


@dataclass(frozen=True)
class DataShard:
    """How a batch is split among processes, and each process's part into microbatches.

    Attributes:
        tokens: maximum number of tokens in a microbatch of several sequences. None: no split into microbatches.
        sequences: maximum number of sequences in a microbatch. If given, microbatches get nearly equal numbers of
            sequences, and ``tokens`` is ignored.
    """

    tokens: int | None = None
    rank: int = 0
    processes: int = 1
    sequences: int | None = None

    def split(self, lengths: np.ndarray) -> list[slice]:
        if self.sequences is None:
            return split_balanced(lengths, self.tokens)
        count = len(lengths)
        parts = -(-count // self.sequences)
        # For example, 10 sequences in 3 microbatches are split into 0 .. 2, 3 .. 5 and 6 .. 9.
        return [slice(count * part // parts, count * (part + 1) // parts) for part in range(parts)]


class PretrainingExamples:
    """Pretraining examples of one phase and one split (train or validation).

    Args:
        sample_index: the file ``data/examples/<phase>/<split>.npy``.
        pairs: value of the setting ``examples.pair_objective``.
        vocab_size: upper bound of token ids, checked when they are read. None: ids are not checked.

    Attributes:
        sources: names of the sources of text. Empty until ``assign_sources`` is called.
        source_of: index in ``sources`` of the texts of each example's segments A and B, int64 [examples, 2].
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
        self.source_of = np.empty((0, 2), np.int64)
        self.sample_index = read_sample_index(sample_index, len(store.ids))
        self.store = store
        self.collator = collator
        self.pairs = pairs
        self.has_pairs = pairs != "none"
        self.template = templates.pair if self.has_pairs else templates.single
        self._key = derive_seed(seed, "draws")
        self._vocab_size = vocab_size
        self._num_special = self.template.size

    def __len__(self) -> int:
        return len(self.sample_index)

    def assign_sources(self, documents: Mapping[str, int]) -> None:
        self.sources = tuple(name for name, count in documents.items() if count)
        last_documents = np.cumsum([documents[name] for name in self.sources])
        # The index of the token at which each source ends.
        ends = self.store.sentences[self.store.documents[last_documents]]
        starts = np.stack([self.sample_index["a"], self.sample_index["b"]], axis=1)
        self.source_of = np.searchsorted(ends, starts, side="right")

    def sources_at(self, examples: np.ndarray, positions: np.ndarray) -> np.ndarray:
        # Return the source of each token, as an index in `sources`. A random segment B may be of another source than A.
        # `positions`: of the tokens in their examples, special tokens included. Without sources, the result is empty.
        if not self.sources:
            return np.empty(0, np.int64)
        end_of_a = len(self.template.special_ids[0]) + self.sample_index["a_length"][examples].astype(np.int64)
        is_b = self.has_pairs & (positions >= end_of_a)
        return self.source_of[examples, is_b.astype(np.int64)]

    def lengths(self, examples: np.ndarray | slice = slice(None)) -> np.ndarray:
        index = self.sample_index[examples]
        return index["a_length"].astype(np.int64) + index["b_length"] + self._num_special

    def order(self, seed: int, epoch: int, positions: np.ndarray) -> np.ndarray:
        return permuted(derive_seed(seed, "order", epoch), positions, len(self.sample_index))

    def batches(
        self, size: int, seed: int, first_step: int, steps: int, shard: DataShard
    ) -> Iterator[list[PretrainingBatch]]:
        """Yield, for each of ``steps`` steps from ``first_step``, this process's microbatches.

        A batch has ``size`` examples over all processes, and may span the end of one epoch and the start of the next.
        Of P processes, process r gets the examples r, r + P, r + 2 P, ... of the batch.
        """
        stop = first_step + steps
        for first in range(first_step, stop, LOOKAHEAD_BATCHES):
            last = min(first + LOOKAHEAD_BATCHES, stop)
            # Find each example's epoch and its position in the epoch's order. With 1,000 examples in batches of 256,
            # step 3 takes positions 768 .. 999 of epoch 0 and 0 .. 23 of epoch 1.
            drawn = np.arange(first * size, last * size)
            epochs, positions = np.divmod(drawn, len(self.sample_index))
            orders = [self.order(seed, int(epoch), positions[epochs == epoch]) for epoch in np.unique(epochs)]
            order = np.concatenate(orders)
            for start in range(0, len(order), size):
                selected = slice(start + shard.rank, start + size, shard.processes)
                examples = order[selected]
                passes = epochs[selected]
                microbatches = shard.split(self.lengths(examples))
                yield [self.batch(examples[part], passes[part]) for part in microbatches]

    def batch(self, examples: np.ndarray, epochs: np.ndarray | int = 0) -> PretrainingBatch:
        """Assemble [CLS] A [SEP] B [SEP] (or [CLS] A [SEP] without pairs), and mask tokens.

        Args:
            examples: indices in the sample index.
            epochs: epoch of each example. Masks depend on the epoch if masking is dynamic.
        """
        index = self.sample_index[examples]
        # Arrays of shape [examples, segments], with 2 segments for pairs, else 1.
        segment_names = ("a", "b") if self.has_pairs else ("a",)
        text_lengths = np.stack([index[f"{name}_length"].astype(np.int64) for name in segment_names], axis=1)
        text_starts = np.stack([index[name] for name in segment_names], axis=1)

        # The index of each token in the store. Segments of 2 and 3 tokens that start at 50 and 90 have the indices
        # 50 51 90 91 92.
        counts = text_lengths.ravel()
        segment_offsets = text_starts.ravel() - np.cumsum(counts) + counts
        offsets = np.repeat(segment_offsets, counts) + np.arange(counts.sum())
        text = self.store.ids[offsets]
        check_ids(text, self._vocab_size, self.store.folder)
        ids, segments = self.template.apply_batch(text, text_lengths)
        continues = None
        if self.store.continues is not None:
            continues = np.zeros(len(ids), bool)
            continues[self.template.is_text(text_lengths)] = self.store.continues[offsets]

        # Random numbers are derived from a number that an example does not share with any other example or epoch:
        # epoch * (number of examples) + index.
        lengths = text_lengths.sum(axis=1) + self._num_special
        numbers = examples + epochs * len(self.sample_index)
        mask_numbers = numbers if self.collator.dynamic else examples
        input_ids, predicted = self.collator.apply(ids, lengths, mask_numbers, continues)
        cu_seqlens = np.concatenate([[0], np.cumsum(lengths)])
        sequence = np.searchsorted(cu_seqlens, predicted, side="right") - 1
        random = bits(self._key, numbers[sequence], predicted - cu_seqlens[sequence])
        # Keep 24 bits, which float32 represents exactly. More bits might be rounded up to 1.
        sampling_noise = (random >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-24)
        return PretrainingBatch(
            ids=input_ids,
            segments=segments,
            cu_seqlens=cu_seqlens,
            predicted=predicted,
            labels=ids[predicted + self.collator.label_shift],
            pair_label=index["is_random"].astype(np.int64),
            examples=examples,
            sampling_noise=sampling_noise,
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
    """Open the examples of one phase and one split (train or validation).

    ``objective`` decides which tokens are predicted. ``architecture`` decides whether a masked token may be replaced by
    a special token at random, as in the architecture's original code.
    """
    special_replacements = architecture_spec(architecture).special_replacements
    collator = make_collator(objective, tokenizer, mask_prob, masking, seed, special_replacements)
    sample_index = EXAMPLES / phase / f"{split}.npy"
    pairs = read_json(EXAMPLES / "manifest.json", {"pairs": str})["pairs"]
    store = TokenStore(TOKENS, split)
    templates = read_templates(tokenizer)
    return PretrainingExamples(sample_index, store, collator, templates, pairs, seed, tokenizer.get_vocab_size())


@dataclass(frozen=True)
class ReadablePiece:
    # The input subword, without a continuation prefix such as "##".
    text: str
    # Whether the subword continues a word ("##ing").
    inner: bool
    # The original subword, if the model predicts it.
    was: str | None = None
    # What the input has in place of a predicted subword: "mask" ([MASK]), "random" (a random token) or "keep" (the
    # original). "next" if a causal model predicts it from the text before it.
    fate: str | None = None


def readable_pieces(batch: PretrainingBatch, tokenizer: Tokenizer, label_shift: int) -> list[list[ReadablePiece]]:
    kind = kind_of(tokenizer)
    marks = read_templates(tokenizer).special_ids
    subwords = {number: subword for subword, number in tokenizer.get_vocab().items()}
    # Position of the predicted token -> its id.
    labels = dict(zip((batch.predicted + label_shift).tolist(), batch.labels.tolist(), strict=True))
    segments: list[list[ReadablePiece]] = [[], []]
    segment = 0
    for position in range(int(batch.cu_seqlens[1])):
        input_id = int(batch.ids[position])
        label = labels.get(position, input_id)
        if label in marks:
            # After the special tokens behind A comes B.
            segment = 1 if segments[0] else 0
            continue
        text = subwords[input_id]
        was = subwords[label]
        inner = kind.continues_word(was)
        piece = ReadablePiece(kind.spelt(text), inner)
        if position in labels:
            if label_shift:
                fate = "next"
            elif text == kind.mask:
                fate = "mask"
            else:
                fate = "keep" if text == was else "random"
            piece = ReadablePiece(kind.spelt(text), inner, kind.spelt(was), fate)
        segments[segment].append(piece)
    return segments if segments[1] else segments[:1]


def shown_examples(examples: PretrainingExamples, tokenizer: Tokenizer, seed: int) -> list[dict[str, Any]]:
    """Return ``NUM_SHOWN`` random examples as training sees them, for the report.

    Returns:
        For each example: ``example``, its number in the sample index; ``pair``, the meaning of its label (None if
        examples are not pairs); and ``segments``, lists of ``ReadablePiece`` as dictionaries.
    """
    count = min(NUM_SHOWN, len(examples))
    numbers = permuted(derive_seed(seed, "shown"), np.arange(count), len(examples))
    result = []
    for number in numbers.tolist():
        batch = examples.batch(np.asarray([number]))
        segments = []
        for pieces in readable_pieces(batch, tokenizer, examples.collator.label_shift):
            segments.append([asdict(piece) for piece in pieces])
        result.append({"example": number, "pair": pair_label(examples, batch), "segments": segments})
    return result


def pair_label(examples: PretrainingExamples, batch: PretrainingBatch) -> str | None:
    if not examples.has_pairs:
        return None
    return PAIR_LABELS[examples.pairs][int(batch.pair_label[0])]
