"""Measure a model on the validation set, with the metrics of masked and causal language modelling."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from pipeline_src.base.files import read_json
from pipeline_src.base.paths import TOKENS
from pipeline_src.base.progress import log
from pipeline_src.examples.token_store import TokenStore
from pipeline_src.pretrain.data import PretrainingBatch, PretrainingExamples, TensorBatch, open_examples
from pipeline_src.pretrain.fill_mask_samples import FillMaskSamples
from pipeline_src.pretrain.objective import Metric, PretrainingObjective
from pipeline_src.study.pretrain import Masking
from pipeline_src.training.batches import to_device
from pipeline_src.training.distributed import Distributed, reshard
from pipeline_src.training.trainer import Callback, Trainer

# All studies are validated with the masking rate of Devlin et al. 2018, so that their losses can be compared.
MASK_PROB = 0.15
SEED = 0
# The first range of positions, over which the loss is averaged, has this size, BERT's maximum length.
MIN_RANGE = 512
# Losses above this, such as a diverged model's, are cut: exp(loss) would overflow.
MAX_NATS = 700.0
MAX_BATCH_TOKENS = 16_384
# Each prediction needs memory for its logits over the vocabulary, so their number is limited too.
MAX_BATCH_PREDICTIONS = 4_096


@dataclass(frozen=True)
class ValidationBatch:
    """Batch of validation examples with P predictions, masked at 15 % in every study.

    Attributes:
        unseen: True if the model does not see the token that it predicts, because the input is [MASK] or the model is
            causal, bool [P].
        unigram_losses: cross-entropy of each label in a unigram model of the training text, float64 [P]. None: no
            comparison with a unigram model.
        sources: index of each prediction's source in ``source_names``, int64 [P].
        positions: position of each prediction in its sequence, int64 [P].
        ranges: ranges of positions whose loss is measured (see ``position_ranges``).
    """

    tensors: TensorBatch
    has_pairs: bool
    unseen: np.ndarray
    unigram_losses: np.ndarray | None
    sources: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    source_names: tuple[str, ...] = ()
    positions: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    ranges: Sequence[tuple[int, int]] = ()


def masked_lm_metrics(model: nn.Module, batch: ValidationBatch) -> dict[str, Metric]:
    """Return the metrics of a model that predicts tokens, and perhaps labels of pairs.

    Returns:
        - over all predicted tokens: ``mlm_loss`` (nats), ``mlm_perplexity``, ``mlm_accuracy``
        - over the unseen tokens: ``mask_loss``, ``unigram_loss``
        - for pairs: ``nsp_loss``, ``nsp_accuracy``, and ``nsp_majority``, the share of the more frequent label
        - MLM loss of each source, ``mlm_loss_<source>``, and of each range of positions, ``<first>-<last>``
        - counts: ``examples``, ``predictions``
    """
    tensors = batch.tensors
    tokens, pairs = model(tensors.ids, tensors.segments, tensors.cu_seqlens, tensors.predicted, tensors.max_seqlen)
    losses, correct = losses_and_correct(tokens, tensors.labels)
    metrics = {
        "mlm_loss": Metric(losses.sum(), len(losses)),
        "mlm_perplexity": Metric(losses.sum(), len(losses), _perplexity),
        "mlm_accuracy": Metric(correct.sum(), len(losses)),
        "examples": Metric(tensors.workload.sequences, 0, _total),
        "predictions": Metric(len(losses), 0, _total),
    }
    # In a small batch, no predicted token may be [MASK].
    unseen = batch.unseen
    if unseen.any():
        metrics["mask_loss"] = Metric(losses[unseen].sum(), unseen.sum())
        if batch.unigram_losses is not None:
            metrics["unigram_loss"] = Metric(batch.unigram_losses[unseen].sum(), unseen.sum())
    if batch.has_pairs and pairs is not None:
        pair_losses, pairs_correct = losses_and_correct(pairs, tensors.pair_label)
        metrics["nsp_loss"] = Metric(pair_losses.sum(), len(pair_losses))
        metrics["nsp_accuracy"] = Metric(pairs_correct.sum(), len(pair_losses))
        metrics["nsp_majority"] = Metric(float(tensors.pair_label.sum()), len(pair_losses), _majority)
    # The loss of all predicted tokens, for each source of text and each range of positions.
    for number, name in enumerate(batch.source_names):
        of_source = batch.sources == number
        if of_source.any():
            metrics[f"mlm_loss_{name}"] = Metric(losses[of_source].sum(), of_source.sum())
    for first, stop in batch.ranges:
        in_range = (first <= batch.positions) & (batch.positions < stop)
        if in_range.any():
            metrics[f"{first}-{stop - 1}"] = Metric(losses[in_range].sum(), in_range.sum())
    return metrics


def position_ranges(length: int) -> list[tuple[int, int]]:
    # Returns (first, stop) pairs: 0-511, 512-1023, 1024-2047, ... up to ``length``. Returns [] if ``length`` <= 512.
    edges = [0]
    stop = MIN_RANGE
    while stop < length:
        edges.append(stop)
        stop *= 2
    return list(pairwise([*edges, length])) if len(edges) > 1 else []


def losses_and_correct(logits: Tensor, labels: Tensor) -> tuple[np.ndarray, np.ndarray]:
    losses = torch.nn.functional.cross_entropy(logits.float(), labels, reduction="none")
    # Comparing with the maximum takes half the time of argmax. But bfloat16 logits have many ties, for which it would
    # count several tokens as predicted.
    if logits.dtype == torch.float32:
        of_label = logits.gather(1, labels[:, None]).squeeze(1)
        correct = of_label >= logits.amax(dim=1)
    else:
        correct = logits.argmax(dim=1) == labels
    return losses.cpu().double().numpy(), correct.cpu().numpy()


def _perplexity(total: float, count: float) -> float:
    return math.exp(min(total / count, MAX_NATS)) if count else math.nan


def _majority(positives: float, count: float) -> float:
    return max(positives / count, 1 - positives / count)


def _total(total: float, count: float) -> int:
    return int(total)


def shared_batches(
    examples: PretrainingExamples, distributed: Distributed, max_predictions: int = MAX_BATCH_PREDICTIONS
) -> Iterator[tuple[PretrainingBatch, bool]]:
    # Yields (batch, whether it counts). All processes get the same number of batches, so that they call collectives
    # equally often. A batch that is repeated for this reason does not count.
    max_seqlen = examples.lengths().max(keepdims=True)
    per_example = int(examples.collator.num_predictions(max_seqlen)[0])
    size = max(1, min(MAX_BATCH_TOKENS // int(max_seqlen[0]), max_predictions // max(1, per_example)))

    # For example, of five batches, process 0 gets 0 2 4, and process 1 gets 1 3 0, of which the last does not count.
    num_batches = -(-len(examples) // size)
    rounds = -(-num_batches // distributed.world_size)
    for turn in range(rounds):
        number = turn * distributed.world_size + distributed.rank
        first = number % num_batches * size
        stop = min(first + size, len(examples))
        yield examples.batch(np.arange(first, stop)), number < num_batches


def open_validation_examples(
    phase: str, tokenizer: Tokenizer, objective: str, architecture: str
) -> PretrainingExamples:
    # The masks are the same in all studies, whatever their masking rate and seed.
    return open_examples(phase, "validation", tokenizer, MASK_PROB, Masking(), SEED, objective, architecture)


def source_documents(split: str) -> dict[str, int]:
    parts = read_json(TOKENS / "manifest.json", {"parts": {split: dict}})["parts"][split]
    return {source: counts["documents"] for source, counts in parts.items()}


class ValidationSet:
    def __init__(
        self,
        phase: str,
        tokenizer: Tokenizer,
        objective: str,
        architecture: str,
        store: TokenStore,
        distributed: Distributed,
        by_source: bool = False,
    ) -> None:
        self.distributed = distributed
        self.store = store
        self.tokenizer = tokenizer
        self.objective = objective
        self.architecture = architecture
        self.examples = open_validation_examples(phase, tokenizer, objective, architecture)
        if by_source:
            self.examples.assign_sources(source_documents("validation"))
        # Names of the metrics that are measured per source.
        self.by_source = [f"mlm_loss_{name}" for name in self.examples.sources]

    @cached_property
    def train_counts(self) -> np.ndarray:
        # Token counts of the training text. The main process counts them, at the first measurement.
        counts = self.store.counts(self.tokenizer.get_vocab_size()) if self.distributed.is_main else None
        return self.distributed.gather(counts)[0]

    @cached_property
    def fill_mask_samples(self) -> FillMaskSamples:
        return FillMaskSamples(self.examples, self.tokenizer)

    def measure(self, objective: PretrainingObjective[Any]) -> dict[str, float]:
        unigram_losses = None if objective.predictor is None else unigram_cross_entropy(self.train_counts)
        return measure_examples(objective, self.examples, unigram_losses, self.distributed)

    def measure_positions(self, objective: PretrainingObjective[Any], phase: str, length: int) -> dict[str, float]:
        ranges = position_ranges(length)
        if not ranges:
            return {}
        examples = open_validation_examples(phase, self.tokenizer, self.objective, self.architecture)
        metrics = measure_examples(objective, examples, None, self.distributed, ranges=ranges)
        return {name: value for name, value in metrics.items() if name[0].isdigit()}


def unigram_cross_entropy(counts: np.ndarray) -> np.ndarray:
    losses: np.ndarray = -np.log((counts + 1) / (counts.sum() + len(counts)))
    return losses


def measure_examples(
    objective: PretrainingObjective[Any],
    examples: PretrainingExamples,
    unigram_losses: np.ndarray | None,
    distributed: Distributed,
    max_predictions: int = MAX_BATCH_PREDICTIONS,
    ranges: Sequence[tuple[int, int]] = (),
) -> dict[str, float]:
    """Return the objective's metrics on ``examples``, without dropout. All processes must call this.

    The metrics do not depend on the number of processes. Besides those of ``validation_metrics``, the result has
    ``gap``, which is ``unigram_loss`` minus ``mask_loss``.

    Args:
        unigram_losses: result of ``unigram_cross_entropy``. None: no comparison with a unigram model.
    """
    training = objective.training
    sums: dict[str, Metric] = {}
    objective.eval()
    for batch, is_counted in shared_batches(examples, distributed, max_predictions):
        unseen = examples.collator.predicts_unseen(batch.ids[batch.predicted], batch.labels)
        losses = None if unigram_losses is None else unigram_losses[batch.labels]
        sequence = np.searchsorted(batch.cu_seqlens, batch.predicted, side="right") - 1
        positions = batch.predicted - batch.cu_seqlens[sequence]
        sources = examples.sources_at(batch.examples[sequence], positions)
        tensors = to_device(TensorBatch.of(batch), distributed.device)
        prepared = ValidationBatch(
            tensors, examples.has_pairs, unseen, losses, sources, examples.sources, positions, ranges
        )
        # no_grad, since weights that FSDP gathers under inference_mode could not be trained afterwards.
        with torch.no_grad(), distributed.autocast():
            measured = objective.validation_metrics(prepared)
        if is_counted:
            _add(sums, measured)
    objective.train(training)
    reshard(objective)
    totals: dict[str, Metric] = {}
    for share in distributed.gather(sums):
        _add(totals, share)
    metrics = {name: compute(total, count) for name, (total, count, compute) in totals.items()}
    if "unigram_loss" in metrics:
        metrics["gap"] = metrics["unigram_loss"] - metrics["mask_loss"]
    log.info("validation: %s", ", ".join(f"{name} {value:.4g}" for name, value in metrics.items()))
    return metrics


def _add(sums: dict[str, Metric], metrics: Mapping[str, Metric]) -> None:
    for name, (total, count, compute) in metrics.items():
        before = sums.get(name, Metric(0, 0))
        sums[name] = Metric(before.total + total, before.count + count, compute)


class Validator(Callback):
    """Measure the model on the validation set every ``every`` steps, except after the last step.

    The metrics select the best checkpoint. Those in ``columns``, and the loss of each source, are columns
    ``validation_<metric>`` of the training curve.
    """

    def __init__(self, validation: ValidationSet, columns: Sequence[str], every: int | None, last: int) -> None:
        super().__init__([every], before=last)
        self.validation = validation
        self.columns = [*columns, *validation.by_source]

    def after_step(self, trainer: Trainer[Any]) -> None:
        self.measure(trainer)
        trainer.state.row().update(self.row(trainer.metrics))

    def measure(self, trainer: Trainer[Any]) -> None:
        objective = trainer.objective
        assert isinstance(objective, PretrainingObjective)
        trainer.metrics = self.validation.measure(objective)
        samples = self.validation.fill_mask_samples
        trainer.state.samples += samples.fill(objective, trainer.state.step, trainer.distributed)

    def row(self, metrics: Mapping[str, float]) -> dict[str, float]:
        return {f"validation_{name}": metrics[name] for name in self.columns if name in metrics}
