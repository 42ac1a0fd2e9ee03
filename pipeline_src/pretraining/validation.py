"""How well a pretrained model predicts documents it never saw."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor

from pipeline_src.common.progress import log
from pipeline_src.models.heads import BertForMaskedLM, BertForPretraining
from pipeline_src.params.pretrain import Masking
from pipeline_src.pretraining.loading.batches import PretrainingBatch, PretrainingExamples, open_examples
from pipeline_src.pretraining.mask_probes import MaskProbes
from pipeline_src.pretraining.tensor_batch import TensorBatch
from pipeline_src.tokenizer.token_store import TokenStore
from pipeline_src.training.distributed import Distributed
from pipeline_src.training.objective import PretrainingObjective
from pipeline_src.training.sharding import give_back
from pipeline_src.training.transfer import to_device

MASK_PROB = 0.15  # the paper's rate, whatever the study's own, so that studies compare
SEED = 0
SUMS = (  # over predicted tokens, over those that the model saw as [MASK], over pairs
    *("predictions", "losses", "right", "unseen", "unseen_losses", "unigram_losses"),
    *("pair_losses", "pairs_right", "random_pairs"),
)
MOST_NATS = 700.0  # of which a perplexity is still a number; a model that has diverged may be further off
TOKENS_PER_BATCH, PREDICTIONS_PER_BATCH = 16_384, 4_096  # at most; scores of every entry are made for each prediction


@torch.no_grad()  # not inference_mode: weights gathered in it could not be trained afterwards
def measure_validation(
    model: BertForPretraining | BertForMaskedLM,
    examples: PretrainingExamples,
    train_counts: np.ndarray,
    distributed: Distributed,
) -> dict[str, float]:
    """Losses and accuracies on all validation examples, beside what the simplest predictors reach.

    Each process measures its share of the batches, and sums are exchanged: figures do not depend on how many there are.

    Args:
        model: left in evaluation mode.
        examples: of the validation split, masked at the paper's 15 % whatever the study's own rate, so that studies
            of different rates compare; or left to right, with a model that has a causal mask.
        train_counts: how often each id occurs in the training text, int64 [entries].
        distributed: the processes that measure; all of them must call this.

    Returns:
        ``mlm_loss`` (nats) and ``mlm_accuracy`` over all predicted tokens; ``mask_loss`` over those the model saw as
        [MASK] (left to right: all but marks), and there too ``unigram_loss``, the cross-entropy of add-one unigram
        counts of the training text, and ``gap``, their difference. Where examples are pairs and the model judges
        them, ``nsp_accuracy`` beside ``nsp_majority``, the share of its larger class, and ``nsp_loss``.
    """
    model.eval()
    device = distributed.device
    unigram = -np.log((train_counts + 1) / (train_counts.sum() + len(train_counts)))
    sums = dict.fromkeys(SUMS, 0.0)
    judges_pairs = False
    for batch, counts in shared_batches(examples, distributed):
        with distributed.autocast():
            words, pairs = model(
                *(
                    torch.from_numpy(part).to(device)
                    for part in (batch.ids, batch.segments, batch.cu_seqlens, batch.predicted)
                ),
                batch.max_seqlen,
            )
        judges_pairs = pairs is not None
        if not counts:
            continue
        unseen = examples.corruption.unseen(batch.ids[batch.predicted], batch.labels)
        losses, right = _judged(words, batch.labels)
        here = [len(losses), losses.sum(), right.sum(), unseen.sum(), losses[unseen].sum()]
        here.append(unigram[batch.labels][unseen].sum())
        if pairs is not None:
            pair_losses, pairs_right = _judged(pairs, batch.pair_label)
            here += [pair_losses.sum(), pairs_right.sum(), batch.pair_label.sum()]
        for name, number in zip(SUMS, here, strict=False):
            sums[name] += float(number)
    sums = dict(zip(SUMS, distributed.all_reduce(list(sums.values())), strict=True))
    mlm_loss = _mean(sums["losses"], sums["predictions"])
    mask_loss, unigram_loss = (_mean(sums[name], sums["unseen"]) for name in ("unseen_losses", "unigram_losses"))
    figures = {
        "mlm_loss": mlm_loss,
        "mlm_perplexity": math.exp(min(mlm_loss, MOST_NATS)),
        "mlm_accuracy": _mean(sums["right"], sums["predictions"]),
        "examples": len(examples),
        "predictions": int(sums["predictions"]),
    }
    if sums["unseen"]:  # of a few predicted tokens, all may be shown as they are
        figures |= {"mask_loss": mask_loss, "unigram_loss": unigram_loss, "gap": unigram_loss - mask_loss}
    if examples.has_pairs and judges_pairs:
        share = sums["random_pairs"] / len(examples)
        figures["nsp_loss"] = sums["pair_losses"] / len(examples)
        figures["nsp_accuracy"] = sums["pairs_right"] / len(examples)
        figures["nsp_majority"] = max(share, 1 - share)
    return figures


@torch.no_grad()
def measure_terms(
    objective: PretrainingObjective[TensorBatch], examples: PretrainingExamples, distributed: Distributed
) -> dict[str, float]:
    """``<term>_loss`` of each term of an objective on all validation examples; all processes must call this."""
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
    return {f"{name}_loss": _mean(totals[place], totals[place + len(names)]) for place, name in enumerate(names)}


def shared_batches(examples: PretrainingExamples, distributed: Distributed) -> Iterator[tuple[PretrainingBatch, bool]]:
    """This process's batches, each with whether it counts: all processes take as many, some take one for nothing."""
    max_seqlen = examples.lengths().max(keepdims=True)
    most = int(examples.corruption.predictions(max_seqlen)[0])
    size = max(1, min(TOKENS_PER_BATCH // int(max_seqlen[0]), PREDICTIONS_PER_BATCH // max(1, most)))
    total = -(-len(examples) // size)
    for number in range(
        distributed.rank, -(-total // distributed.world_size) * distributed.world_size, distributed.world_size
    ):
        first = number % total * size
        yield examples.batch(np.arange(first, min(first + size, len(examples)))), number < total


def _judged(scores: Tensor, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Cross-entropy of each row of scores [N, classes], float64 [N], and whether its best guess is right, bool [N]."""
    wanted = torch.from_numpy(labels).to(scores.device)
    losses = torch.nn.functional.cross_entropy(scores.float(), wanted, reduction="none")
    if scores.dtype == torch.float32:  # half the time of argmax
        right = scores.gather(1, wanted[:, None]).squeeze(1) >= scores.amax(dim=1)
    else:  # in bfloat16 many scores are equal
        right = scores.argmax(dim=1) == wanted
    return losses.cpu().double().numpy(), right.cpu().numpy()


def _mean(total: float, count: float) -> float:
    return total / count if count else math.nan


class ValidationSet:
    """The validation examples of a phase, measured as often as wanted.

    Args:
        phase: whose examples.
        tokenizer: the vocabulary.
        objective: what is predicted, by its name.
        store: the training text, whose words are counted at the first measurement.
        distributed: the processes that measure together.
    """

    def __init__(
        self, phase: str, tokenizer: Tokenizer, objective: str, store: TokenStore, distributed: Distributed
    ) -> None:
        self.distributed = distributed
        self.examples = open_examples(phase, "validation", tokenizer, MASK_PROB, Masking(), SEED, objective)
        self.store, self.tokenizer, self.entries = store, tokenizer, tokenizer.get_vocab_size()

    @cached_property
    def train_counts(self) -> np.ndarray:
        """How often each id occurs in the training text, int64 [entries]; the main process counts for all."""
        counts = self.store.counts(self.entries) if self.distributed.is_main else None
        return self.distributed.gather(counts)[0]

    @cached_property
    def probes(self) -> MaskProbes:
        """Some of their masked words, whose guesses are written down."""
        return MaskProbes(self.examples, self.tokenizer)

    def measure(self, objective: PretrainingObjective[Any]) -> dict[str, float]:
        """The objective's own figures on these examples; it is left as it was. All processes must call it."""
        training = objective.training
        objective.eval()
        figures = objective.measure(self)
        objective.train(training)
        give_back(objective)
        log.info("validation: %s", ", ".join(f"{name} {value:.4g}" for name, value in figures.items()))
        return figures
