"""Probes: softmax regressions from the word vectors of every layer to labels, all trained at once.

A probe says what can be read off a layer, not what the model uses (Belinkov 2022). So each has its controls: a task
whose labels are random by word type (Hewitt and Liang 2019, "selectivity"), the most frequent label of the type, and
the same probe on the same encoder with random weights, which the caller measures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.linalg import vector_norm
from torch.nn.functional import one_hot

from pipeline_src.common.counter_rng import derive_seed, integers, permuted
from pipeline_src.interpretation.labels import control_labels, type_majority

EPOCHS, BATCH, RATE = 10, 256, 0.01  # Adam's; by them a probe is as good as a converged regression (benchmarks)
DRAWS = 1000  # of documents, for an interval
CONTROL_TYPES = 1000  # a control task over fewer is learnt by heart, and its accuracy says nothing


@dataclass(frozen=True)
class Labelled:
    """Words with labels.

    Attributes:
        vectors: float32 [L + 1, W, H].
        labels: int64 [W], none of them missing.
        types: of each word, in small letters.
        documents: of each word.
    """

    vectors: Tensor
    labels: np.ndarray
    types: Sequence[str]
    documents: Sequence[str]


@dataclass(frozen=True)
class Outcome:
    """What the probes of one label set say.

    Attributes:
        right: whether each tested word's label is right, by layer, bool [L + 1, W].
        control: likewise of the control task; None where there are too few types.
        by_type: whether the most frequent label of its type is, bool [W].
        figures: what is written down.
    """

    right: np.ndarray
    control: np.ndarray | None
    by_type: np.ndarray
    figures: dict[str, Any]


def probe(train: Labelled, test: Labelled, classes: int, seed: int) -> Outcome:
    """Train probes on all layers at once and test them.

    Shares are of words. ``by_layer`` holds accuracy, balanced accuracy (the mean over labels), accuracy on types not
    seen in training and on types seen with several labels, and that of the control task.
    """
    weights, bias = train_probes(train.vectors, targets_of(train, train, classes, seed), classes, seed)
    targets = targets_of(test, train, classes, seed).T.numpy()
    rights = _predict(test, weights, bias, len(targets)) == targets[:, None]  # [tasks, L + 1, W]
    right, control = rights[0], rights[1] if len(rights) > 1 else None
    majority, seen, ambiguous = type_majority(train.types, train.labels, test.types)
    of_types = {
        "unseen": np.array([name not in seen for name in test.types]),
        "ambiguous": np.array([name in ambiguous for name in test.types]),
    }
    commonest = int(np.bincount(train.labels, minlength=classes).argmax())
    figures: dict[str, Any] = {
        "classes": classes,
        "trained_on": len(train.labels),
        "tested_on": len(test.labels),
        "documents": len(set(test.documents)),
        "types": len(set(train.types)),
        "majority": share(test.labels == commonest),
        "type_majority": share(majority == test.labels),
        "type_majority_balanced": balanced(majority == test.labels, test.labels),
        **{f"{name}_share": share(chosen) for name, chosen in of_types.items()},
        "accuracy": [share(row) for row in right],
        "balanced": [balanced(row, test.labels) for row in right],
        **{name: [share(row[chosen]) for row in right] for name, chosen in of_types.items()},
        "unseen_balanced": [balanced(row[of_types["unseen"]], test.labels[of_types["unseen"]]) for row in right],
    }
    if control is not None:
        figures["control"] = [share(row) for row in control]
        figures["control_seen"] = [share(row[~of_types["unseen"]]) for row in control]
        figures["selectivity"] = [
            rounded(ours - theirs) for ours, theirs in zip(figures["accuracy"], figures["control"], strict=True)
        ]
    return Outcome(right, control, majority == test.labels, figures)


def targets_of(words: Labelled, train: Labelled, classes: int, seed: int) -> Tensor:
    """Labels of words, and beside them those of the control task where there are enough types, int64 [W, tasks].

    Args:
        words: whose labels they are.
        train: words that probes are trained on; the control task has the frequencies of their labels.
        classes: how many labels there are.
        seed: of the control task.
    """
    columns = [words.labels]
    if len(set(train.types)) >= CONTROL_TYPES:
        columns.append(control_labels(words.types, train.labels, classes, seed))
    return torch.from_numpy(np.stack(columns, 1))


def train_probes(vectors: Tensor, targets: Tensor, classes: int, seed: int) -> tuple[Tensor, Tensor]:
    """Softmax regressions by Adam: one for each layer and column of ``targets``.

    Args:
        vectors: float32 [S, W, H]; they are scaled to mean 0 and deviation 1 in each dimension.
        targets: int64 [W, tasks].
        classes: of each task.
        seed: which words make a batch, and the order of the batches in each epoch, are functions of it.

    Returns:
        Weights [S, H, tasks x classes] and biases [S, 1, tasks x classes], for vectors as they are.
    """
    layers, words, width = vectors.shape
    tasks = targets.shape[1]
    order = torch.from_numpy(permuted(derive_seed(seed, "probe"), np.arange(words), words))
    scaled = vectors[:, order]  # a copy, made once: every batch is a slice of it
    mean = scaled.mean(1, keepdim=True)
    deviation = vector_norm(scaled.sub_(mean), dim=1, keepdim=True).div_(words**0.5).clamp_(min=1e-6)
    scaled.div_(deviation)
    wanted = one_hot(targets[order], classes).view(words, -1).T.float().contiguous()
    weight = torch.zeros(layers, tasks * classes, width)  # labels before words throughout: the products are faster so
    counts = wanted.sum(1).view(tasks, classes) + 1
    bias = (counts / counts.sum(1, keepdim=True)).log().view(1, -1, 1).repeat(layers, 1, 1)  # the labels' frequencies
    moments = [torch.zeros_like(part) for part in (weight, weight, bias, bias)]
    batches = -(-words // BATCH)
    step = 0
    with torch.no_grad():
        for epoch in range(EPOCHS):
            turns = permuted(derive_seed(seed, "probe", epoch), np.arange(batches), batches)
            for start in (turns * BATCH).tolist():
                batch = scaled[:, start : start + BATCH]
                scores = torch.bmm(weight, batch.transpose(1, 2)).add_(bias)
                guessed = scores.view(layers, tasks, classes, -1).softmax(2).view_as(scores)
                slope = guessed.sub_(wanted[:, start : start + BATCH]).div_(batch.shape[1])  # of the cross-entropy
                rate = RATE * (1 - step / (EPOCHS * batches))  # to 0, in place of an average over the last steps
                step += 1
                _adam(weight, slope @ batch, moments[0], moments[1], step, rate)
                _adam(bias, slope.sum(2, keepdim=True), moments[2], moments[3], step, rate)
    weight = weight.transpose(1, 2) / deviation.transpose(1, 2)
    return weight, bias.transpose(1, 2) - mean @ weight


def _adam(values: Tensor, slope: Tensor, first: Tensor, second: Tensor, step: int, rate: float) -> None:
    """One step of Adam with its usual constants (Kingma and Ba 2015), in place."""
    first.lerp_(slope, 0.1)
    second.mul_(0.999).addcmul_(slope, slope, value=0.001)
    scale = (second / (1 - 0.999**step)).sqrt_().add_(1e-8)
    values.addcdiv_(first, scale, value=-rate / (1 - 0.9**step))


def _predict(words: Labelled, weights: Tensor, bias: Tensor, tasks: int) -> np.ndarray:
    """The likeliest label of each word, int64 [tasks, L + 1, W]."""
    scores = torch.baddbmm(bias, words.vectors, weights)
    return scores.view(*scores.shape[:2], tasks, -1).argmax(-1).permute(2, 0, 1).numpy()


def intervals(values: np.ndarray, documents: Sequence[str], seed: int) -> list[list[float]]:
    """From 2.5 to 97.5 % of the mean of each row, as documents are drawn anew (bootstrap, Efron 1979).

    Args:
        values: what is averaged, for each word, [rows, W].
        documents: of each word.
        seed: draws are a function of it.

    Returns:
        Both ends for each row.
    """
    names, of_word = np.unique(np.asarray(documents), return_inverse=True)
    words = np.bincount(of_word, minlength=len(names))
    sums = np.stack([np.bincount(of_word, weights=row.astype(float), minlength=len(names)) for row in values])
    drawn = _times_drawn(seed, len(names))
    ends = np.quantile(sums @ drawn.T / (drawn @ words), [0.025, 0.975], axis=1)
    return [[rounded(end) for end in both] for both in ends.T]


@lru_cache(maxsize=2)  # of the training documents, and of those tested on
def _times_drawn(seed: int, documents: int) -> np.ndarray:
    """How often each document is drawn, float64 [DRAWS, documents]: as many in all as there are."""
    every = np.arange(documents)
    drawn = integers(derive_seed(seed, "documents drawn"), np.arange(DRAWS)[:, None], every[None], documents)
    return np.stack([np.bincount(row, minlength=documents) for row in drawn]).astype(float)


def interval(ours: np.ndarray, theirs: np.ndarray, documents: Sequence[str], seed: int) -> list[float]:
    """As :func:`intervals`, of the difference of two shares (paired bootstrap).

    Args:
        ours, theirs: what is averaged, for each word, [W].
        documents: of each word.
        seed: draws are a function of it.
    """
    return intervals((ours.astype(float) - theirs.astype(float))[None], documents, seed)[0]


def balancing(right: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """What ``right`` weighs so that its mean is the balanced accuracy: every label as much as any other."""
    counts = np.bincount(labels)
    present = (counts > 0).sum()
    return right * len(labels) / (present * counts[labels])


def share(flags: np.ndarray) -> float | None:
    """The mean of flags, to four digits; None of none."""
    return rounded(float(flags.mean())) if len(flags) else None


def balanced(right: np.ndarray, labels: np.ndarray) -> float | None:
    """The mean over labels of the share that is right."""
    return rounded(float(balancing(right, labels).mean())) if len(right) else None


def rounded(value: float) -> float:
    """To four digits: what a study writes down."""
    return round(float(value), 4)
