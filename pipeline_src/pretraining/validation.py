"""Measure how well a pretrained model predicts the validation set."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor

from pipeline_src.common.files import read_json
from pipeline_src.common.paths import TOKENS
from pipeline_src.common.progress import log
from pipeline_src.config.pretrain import Masking
from pipeline_src.examples.token_store import TokenStore
from pipeline_src.models.bert import BertForMaskedLM, BertForPretraining
from pipeline_src.pretraining.data import PretrainingBatch, PretrainingExamples, TensorBatch, open_examples
from pipeline_src.pretraining.fill_mask_samples import FillMaskSamples
from pipeline_src.training.distributed import Distributed, reshard
from pipeline_src.training.objective import PretrainingObjective
from pipeline_src.training.prefetch import to_device

MASK_PROB = 0.15  # the paper's rate for every study, so that they compare
SEED = 0
SUMS = (  # over predicted tokens, over those that the model saw as [MASK], over pairs
    *("predictions", "losses", "correct", "unseen", "unseen_losses", "unigram_losses"),
    *("pair_losses", "pairs_correct", "random_pairs"),
)
MOST_NATS = 700.0  # largest loss whose perplexity is finite; that of a diverged model may be larger
TOKENS_PER_BATCH, PREDICTIONS_PER_BATCH = 16_384, 4_096  # at most; each prediction takes logits over the vocabulary


@torch.no_grad()  # not inference_mode: weights gathered in it could not be trained afterwards
def measure_validation(
    model: BertForPretraining | BertForMaskedLM,
    examples: PretrainingExamples,
    train_counts: np.ndarray,
    distributed: Distributed,
    max_predictions: int = PREDICTIONS_PER_BATCH,
) -> dict[str, float]:
    """Return losses and accuracies on all validation examples, and those of the simplest baselines.

    Each process measures a part of the batches, and sums are exchanged, so the number of processes changes no figure.

    Args:
        model: is left in evaluation mode.
        examples: of the validation split, masked at the paper's 15 %, so that studies with different rates compare; or
            left to right, for a model with a causal mask.
        train_counts: frequency of each id in the training text, int64 [vocab_size].
        distributed: the processes that measure; all of them must call this.
        max_predictions: of a batch; changes figures by rounding alone.

    Returns:
        ``mlm_loss`` (nats) and ``mlm_accuracy`` over all predicted tokens; ``mask_loss`` over those that the model saw
        as [MASK] (left to right: all but special tokens), for the same tokens ``unigram_loss``, the cross-entropy of
        add-one unigram counts of the training text, and ``gap``, their difference. If the model classifies pairs,
        ``nsp_loss``, ``nsp_accuracy`` and ``nsp_majority``, the share of the larger class. If the examples know their
        sources, ``mlm_loss_<source>``.
    """
    model.eval()
    device = distributed.device
    unigram = -np.log((train_counts + 1) / (train_counts.sum() + len(train_counts)))
    sums = dict.fromkeys(SUMS, 0.0)
    of_source = np.zeros((2, len(examples.sources)))  # losses and predictions
    classifies_pairs = False
    for batch, counts in shared_batches(examples, distributed, max_predictions):
        with distributed.autocast():
            words, pairs = model(
                *(
                    torch.from_numpy(part).to(device)
                    for part in (batch.ids, batch.segments, batch.cu_seqlens, batch.predicted)
                ),
                batch.max_seqlen,
            )
        classifies_pairs = pairs is not None
        if not counts:
            continue
        unseen = examples.corruption.predicts_unseen(batch.ids[batch.predicted], batch.labels)
        losses, correct = _losses_and_hits(words, batch.labels)
        here = [len(losses), losses.sum(), correct.sum(), unseen.sum(), losses[unseen].sum()]
        here.append(unigram[batch.labels][unseen].sum())
        if pairs is not None:
            pair_losses, pairs_correct = _losses_and_hits(pairs, batch.pair_label)
            here += [pair_losses.sum(), pairs_correct.sum(), batch.pair_label.sum()]
        for name, number in zip(SUMS, here, strict=False):
            sums[name] += float(number)
        if examples.sources:
            example = batch.examples[np.searchsorted(batch.cu_seqlens, batch.predicted, side="right") - 1]
            source = examples.source_of[example]
            for row, weights in zip(of_source, (losses, None), strict=True):
                row += np.bincount(source, weights, len(row))
    sums = dict(zip(SUMS, distributed.all_reduce(list(sums.values())), strict=True))
    of_source = np.reshape(distributed.all_reduce(of_source.ravel().tolist()), of_source.shape)
    mlm_loss = _mean(sums["losses"], sums["predictions"])
    mask_loss, unigram_loss = (_mean(sums[name], sums["unseen"]) for name in ("unseen_losses", "unigram_losses"))
    figures = {
        "mlm_loss": mlm_loss,
        "mlm_perplexity": math.exp(min(mlm_loss, MOST_NATS)),
        "mlm_accuracy": _mean(sums["correct"], sums["predictions"]),
        "examples": len(examples),
        "predictions": int(sums["predictions"]),
    }
    for name, total, count in zip(examples.sources, *of_source, strict=True):
        if count:
            figures[f"mlm_loss_{name}"] = float(total / count)
    if sums["unseen"]:  # of a few predicted tokens, all may be shown as they are
        figures |= {"mask_loss": mask_loss, "unigram_loss": unigram_loss, "gap": unigram_loss - mask_loss}
    if examples.has_pairs and classifies_pairs:
        share = sums["random_pairs"] / len(examples)
        figures["nsp_loss"] = sums["pair_losses"] / len(examples)
        figures["nsp_accuracy"] = sums["pairs_correct"] / len(examples)
        figures["nsp_majority"] = max(share, 1 - share)
    return figures


@torch.no_grad()
def measure_terms(
    objective: PretrainingObjective[TensorBatch], examples: PretrainingExamples, distributed: Distributed
) -> dict[str, float]:
    """Return ``<term>_loss`` of each term of an objective on the validation set. All processes must call this."""
    objective.eval()
    device, names = distributed.device, list(objective.weights)
    sums, counted = dict.fromkeys(names, 0.0), dict.fromkeys(names, 0.0)
    for batch, counts in shared_batches(examples, distributed):
        part = to_device(TensorBatch.of(batch), device)
        with distributed.autocast():
            terms, numbers = objective(part), objective.count(part)
        for name in names if counts else ():
            sums[name] += float(terms[name].loss)
            counted[name] += numbers[name]
    totals = distributed.all_reduce([*sums.values(), *counted.values()])
    return {f"{name}_loss": _mean(totals[i], totals[i + len(names)]) for i, name in enumerate(names)}


def shared_batches(
    examples: PretrainingExamples, distributed: Distributed, max_predictions: int = PREDICTIONS_PER_BATCH
) -> Iterator[tuple[PretrainingBatch, bool]]:
    """Yield this process's batches, each with a flag that it counts.

    All processes take the same number of batches, so some repeat one at their end, which does not count.
    """
    max_seqlen = examples.lengths().max(keepdims=True)
    most = int(examples.corruption.num_predictions(max_seqlen)[0])
    size = max(1, min(TOKENS_PER_BATCH // int(max_seqlen[0]), max_predictions // max(1, most)))
    total = -(-len(examples) // size)
    for number in range(
        distributed.rank, -(-total // distributed.world_size) * distributed.world_size, distributed.world_size
    ):
        first = number % total * size
        yield examples.batch(np.arange(first, min(first + size, len(examples)))), number < total


def _losses_and_hits(logits: Tensor, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the cross-entropy of each row of logits [N, classes], float64 [N], and where its argmax is correct."""
    target = torch.from_numpy(labels).to(logits.device)
    losses = torch.nn.functional.cross_entropy(logits.float(), target, reduction="none")
    if logits.dtype == torch.float32:  # half the time of argmax
        correct = logits.gather(1, target[:, None]).squeeze(1) >= logits.amax(dim=1)
    else:  # in bfloat16 many logits are equal
        correct = logits.argmax(dim=1) == target
    return losses.cpu().double().numpy(), correct.cpu().numpy()


def _mean(total: float, count: float) -> float:
    return total / count if count else math.nan


def source_documents(split: str) -> dict[str, int]:
    """Return the number of documents of each source, all parts of Wikipedia together, in the order of their tokens."""
    documents: dict[str, int] = {}
    for label, counts in read_json(TOKENS / "manifest.json", {"parts": {split: dict}})["parts"][split].items():
        source = label.partition("-")[0]
        documents[source] = documents.get(source, 0) + counts["documents"]
    return documents


class ValidationSet:
    """The validation examples of a phase.

    Args:
        phase: its name.
        tokenizer: has the vocabulary.
        objective: name of the objective, which decides what is predicted.
        store: the training text, whose tokens are counted at the first measurement.
        distributed: the processes that measure together.
        by_source: measure the text of each source, such as ``wikipedia``, too.

    Attributes:
        by_source: names of the figures by source.
    """

    def __init__(
        self,
        phase: str,
        tokenizer: Tokenizer,
        objective: str,
        store: TokenStore,
        distributed: Distributed,
        by_source: bool = False,
    ) -> None:
        self.distributed = distributed
        self.examples = open_examples(phase, "validation", tokenizer, MASK_PROB, Masking(), SEED, objective)
        self.store, self.tokenizer = store, tokenizer
        if by_source:
            self.examples.know_sources(source_documents("validation"))
        self.by_source = [f"mlm_loss_{name}" for name in self.examples.sources]

    @cached_property
    def train_counts(self) -> np.ndarray:
        """Frequency of each id in the training text, int64 [vocab_size]; the main process counts for all."""
        counts = self.store.counts(self.tokenizer.get_vocab_size()) if self.distributed.is_main else None
        return self.distributed.gather(counts)[0]

    @cached_property
    def fill_mask_samples(self) -> FillMaskSamples:
        """Masked words whose predictions are recorded."""
        return FillMaskSamples(self.examples, self.tokenizer)

    def measure(self, objective: PretrainingObjective[Any]) -> dict[str, float]:
        """Return the objective's figures on these examples, without dropout. All processes must call this."""
        training = objective.training
        objective.eval()
        figures = objective.measure(self)
        objective.train(training)
        reshard(objective)
        log.info("validation: %s", ", ".join(f"{name} {value:.4g}" for name, value in figures.items()))
        return figures
