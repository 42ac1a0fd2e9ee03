"""How well a pretrained model predicts documents it never saw."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer

from pipeline_src.common.progress import log
from pipeline_src.models.heads import BertForPretraining
from pipeline_src.params.pretrain import Masking
from pipeline_src.pretraining.loading.batches import PretrainingBatch, PretrainingExamples, open_examples
from pipeline_src.pretraining.mask_probes import MaskProbes
from pipeline_src.tokenizer.token_store import TokenStore
from pipeline_src.training.objective import PretrainingObjective

MASK_PROB = 0.15  # the paper's rate, whatever the study's own, so that studies compare
SEED = 0
TOKENS_PER_BATCH, PREDICTIONS_PER_BATCH = 16_384, 4_096  # at most; scores of every entry are made for each prediction


@torch.inference_mode()
def measure_validation(
    model: BertForPretraining, examples: PretrainingExamples, train_counts: np.ndarray
) -> dict[str, float]:
    """Losses and accuracies on all validation examples, beside what the simplest predictors reach.

    Args:
        model: left in evaluation mode.
        examples: of the validation split, masked at the paper's 15 % whatever the study's own rate, so that studies
            of different rates compare; or left to right, with a model that has a causal mask.
        train_counts: how often each id occurs in the training text, int64 [entries].

    Returns:
        ``mlm_loss`` (nats) and ``mlm_accuracy`` over all predicted tokens; ``mask_loss`` over those the model saw as
        [MASK] (left to right: all but [SEP]), and there too ``unigram_loss``, the cross-entropy of add-one unigram
        counts of the training text, and ``gap``, their difference. Where examples
        are pairs, ``nsp_accuracy`` beside ``nsp_majority``, the share of its larger class, and ``nsp_loss``.
    """
    model.eval()
    device = next(model.parameters()).device
    unigram = -np.log((train_counts + 1) / (train_counts.sum() + len(train_counts)))
    losses, right, unseen, simple, nsp_losses, nsp_right, random = [], [], [], [], [], [], []
    for batch in _batches(examples):
        words, pairs = model(
            *(
                torch.from_numpy(part).to(device)
                for part in (batch.ids, batch.segments, batch.cu_seqlens, batch.predicted)
            ),
            batch.max_seqlen,
        )
        labels = torch.from_numpy(batch.labels).to(device)
        is_random = torch.from_numpy(batch.pair_label).to(device)
        losses.append(torch.nn.functional.cross_entropy(words.float(), labels, reduction="none").cpu().numpy())
        best = words.gather(1, labels[:, None]).squeeze(1) >= words.amax(dim=1)  # half the time of argmax
        right.append(best.cpu().numpy())
        unseen.append(examples.objective.unseen(batch.ids[batch.predicted], batch.labels))
        simple.append(unigram[batch.labels])
        nsp_losses.append(torch.nn.functional.cross_entropy(pairs.float(), is_random, reduction="none").cpu().numpy())
        nsp_right.append((pairs.argmax(-1) == is_random).cpu().numpy())
        random.append(batch.pair_label)
    loss, masked = np.concatenate(losses), np.concatenate(unseen)
    mask_loss, unigram_loss = float(loss[masked].mean()), float(np.concatenate(simple)[masked].mean())
    figures = {
        "mlm_loss": float(loss.mean()),
        "mlm_perplexity": math.exp(float(loss.mean())),
        "mlm_accuracy": float(np.concatenate(right).mean()),
        "mask_loss": mask_loss,
        "unigram_loss": unigram_loss,
        "gap": unigram_loss - mask_loss,
        "examples": len(examples),
        "predictions": len(loss),
    }
    if examples.next_sentence:
        share = float(np.concatenate(random).mean())
        figures["nsp_loss"] = float(np.concatenate(nsp_losses).mean())
        figures["nsp_accuracy"] = float(np.concatenate(nsp_right).mean())
        figures["nsp_majority"] = max(share, 1 - share)
    return figures


def _batches(examples: PretrainingExamples) -> Iterator[PretrainingBatch]:
    max_seqlen = examples.lengths().max(keepdims=True)
    most = int(examples.objective.predictions(max_seqlen)[0])
    size = max(1, min(TOKENS_PER_BATCH // int(max_seqlen[0]), PREDICTIONS_PER_BATCH // most))
    for first in range(0, len(examples), size):
        yield examples.batch(np.arange(first, min(first + size, len(examples))))


class ValidationSet:
    """The validation examples of a phase, measured as often as wanted.

    Args:
        phase: whose examples.
        tokenizer: the vocabulary.
        objective: what is predicted, by its name.
        store: the training text, whose words are counted at the first measurement.
    """

    def __init__(self, phase: str, tokenizer: Tokenizer, objective: str, store: TokenStore) -> None:
        self.examples = open_examples(phase, "validation", tokenizer, MASK_PROB, Masking(), SEED, objective)
        self.store, self.tokenizer, self.entries = store, tokenizer, tokenizer.get_vocab_size()

    @cached_property
    def train_counts(self) -> np.ndarray:
        """How often each id occurs in the training text, int64 [entries]."""
        return self.store.counts(self.entries)

    @cached_property
    def probes(self) -> MaskProbes:
        """Some of their masked words, whose guesses are written down."""
        return MaskProbes(self.examples, self.tokenizer)

    def measure(self, objective: PretrainingObjective[Any]) -> dict[str, float]:
        """The objective's own figures on these examples; it is left as it was."""
        training = objective.training
        objective.eval()
        figures = objective.measure(self)
        objective.train(training)
        log.info("validation: %s", ", ".join(f"{name} {value:.4g}" for name, value in figures.items()))
        return figures
