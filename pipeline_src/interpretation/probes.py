"""Probes: softmax regressions from the word vectors of each layer to labels, all layers trained at once.

A probe shows which information a layer has, not which information the model uses (Belinkov 2022). Its controls are a
task with random labels for word types (Hewitt and Liang 2019, "selectivity"), the most frequent label of each type, and
the same probe on random weights, which the caller measures.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.linalg import vector_norm
from torch.nn.functional import one_hot

from pipeline_src.common.counter_rng import derive_seed, permuted, uniform
from pipeline_src.interpretation.bootstrap import balanced, mean, rounded
from pipeline_src.interpretation.model import ProbedModel, Sentence, word_vectors

# For Adam. With these values, a probe is as good as a converged regression (benchmarks/interpretation.py).
NUM_EPOCHS, BATCH_SIZE, LEARNING_RATE = 10, 256, 0.01
MIN_CONTROL_TYPES = 1000  # a control task over fewer types is memorised, so its accuracy is meaningless
NO_LABEL = -1
CAPITALS = ("small", "capital")


@dataclass(frozen=True)
class LabelledWords:
    """Labels of W words, and the vectors of the words in every layer."""

    vectors: Tensor  # float32 [L + 1, W, H]
    labels: np.ndarray  # int64 [W]
    types: Sequence[str]  # lower-cased words
    documents: Sequence[str]


@dataclass(frozen=True)
class ProbeResult:
    """Results of the probes of one label set on W test words."""

    correct: np.ndarray  # bool [L + 1, W]
    control: np.ndarray | None  # as ``correct``, for the control task; None if there are too few types
    by_type: np.ndarray  # whether the most frequent label of a word's type is correct, bool [W]
    figures: dict[str, Any]


def labelled_words(model: ProbedModel, sentences: Sequence[Sentence], labels: Sequence[Sequence[int]]) -> LabelledWords:
    """Return the vectors of all words whose label is not NO_LABEL, with their labels."""
    words = word_vectors(model, sentences)
    label = np.array([labels[s][p] for s, p in zip(words.sentence, words.position, strict=True)], np.int64)
    selected = np.flatnonzero(label != NO_LABEL)
    of_word = [sentences[number] for number in words.sentence[selected]]
    types = [s.words[position].lower() for s, position in zip(of_word, words.position[selected], strict=True)]
    documents = [sentence.document for sentence in of_word]
    return LabelledWords(words.vectors[:, selected], label[selected], types, documents)


def capitals(sentences: Sequence[Sentence]) -> list[list[int]]:
    """Return an index of CAPITALS for each word, which says whether it is capitalised.

    The first word of a sentence and words that do not begin with a letter get NO_LABEL.
    """
    return [
        [
            int(word[0].isupper()) if position and word[0].isalpha() else NO_LABEL
            for position, word in enumerate(sentence.words)
        ]
        for sentence in sentences
    ]


def probe(train: LabelledWords, test: LabelledWords, classes: int, seed: int) -> ProbeResult:
    """Train probes on all layers and test them; ``unseen`` is the accuracy on types that training words do not have."""
    weights, bias = train_probes(train.vectors, probe_targets(train, train, classes, seed), classes, seed)
    targets = probe_targets(test, train, classes, seed).T.numpy()
    logits = torch.baddbmm(bias, test.vectors, weights)
    predicted = logits.view(*logits.shape[:2], len(targets), -1).argmax(-1).permute(2, 0, 1).numpy()
    all_correct = predicted == targets[:, None]  # [tasks, L + 1, W]
    correct, control = all_correct[0], all_correct[1] if len(all_correct) > 1 else None
    by_type = type_majority(train.types, train.labels, test.types) == test.labels
    seen = set(train.types)
    unseen = np.array([name not in seen for name in test.types])
    figures: dict[str, Any] = {
        "classes": classes,
        "trained_on": len(train.labels),
        "tested_on": len(test.labels),
        "documents": len(set(test.documents)),
        "types": len(seen),
        "type_majority": mean(by_type),
        "type_majority_balanced": balanced(by_type, test.labels),
        "unseen_share": mean(unseen),
        "accuracy": [mean(row) for row in correct],
        "balanced": [balanced(row, test.labels) for row in correct],
        "unseen": [mean(row[unseen]) for row in correct],
        "unseen_balanced": [balanced(row[unseen], test.labels[unseen]) for row in correct],
    }
    if control is not None:
        figures["control"] = [mean(row) for row in control]
        pairs = zip(figures["accuracy"], figures["control"], strict=True)
        figures["selectivity"] = [rounded(accuracy - of_control) for accuracy, of_control in pairs]
    return ProbeResult(correct, control, by_type, figures)


def probe_targets(words: LabelledWords, train: LabelledWords, classes: int, seed: int) -> Tensor:
    """Return the labels of ``words``, and those of the control task if ``train`` has enough types, int64 [W, tasks]."""
    columns = [words.labels]
    if len(set(train.types)) >= MIN_CONTROL_TYPES:
        columns.append(control_labels(words.types, train.labels, classes, seed))
    return torch.from_numpy(np.stack(columns, 1))


def control_labels(types: Sequence[str], labels: np.ndarray, classes: int, seed: int) -> np.ndarray:
    """Sample a label for each of ``types`` by the frequencies of ``labels``, int64 [W] (Hewitt and Liang 2019).

    It depends only on the frequencies, the seed and the type, so that words of one type have the same label.
    """
    cumulative = np.bincount(labels, minlength=classes).cumsum()
    names = sorted(set(types))
    streams = np.array([derive_seed(seed, "control task", name) for name in names], np.uint64)
    sampled = uniform(streams, np.zeros(len(names), np.int64), 0) * cumulative[-1]
    label_of = dict(zip(names, np.searchsorted(cumulative, sampled, side="right").tolist(), strict=True))
    return np.array([label_of[name] for name in types], np.int64)


def type_majority(types: Sequence[str], labels: np.ndarray, tested: Sequence[str]) -> np.ndarray:
    """Return the most frequent label of each of ``tested`` types, int64; for an unseen type, of all words."""
    counts: dict[str, np.ndarray] = defaultdict(lambda: np.zeros(labels.max() + 1, np.int64))
    for name, label in zip(types, labels.tolist(), strict=True):
        counts[name][label] += 1
    fallback = np.bincount(labels).argmax()
    return np.array([counts[name].argmax() if name in counts else fallback for name in tested], np.int64)


def train_probes(vectors: Tensor, targets: Tensor, classes: int, seed: int) -> tuple[Tensor, Tensor]:
    """Train a softmax regression for each layer of ``vectors`` [S, W, H] and column of ``targets``, int64 [W, tasks].

    Training standardises vectors in each dimension, but the returned weights [S, H, tasks x classes] and biases
    [S, 1, tasks x classes] are for the original vectors.
    """
    layers, words, width = vectors.shape
    tasks = targets.shape[1]
    order = torch.from_numpy(permuted(derive_seed(seed, "probe"), np.arange(words), words))
    scaled = vectors[:, order]  # copied once, so that every batch is a slice
    center = scaled.mean(1, keepdim=True)
    deviation = vector_norm(scaled.sub_(center), dim=1, keepdim=True).div_(words**0.5).clamp_(min=1e-6)
    scaled.div_(deviation)
    one_hot_targets = one_hot(targets[order], classes).view(words, -1).T.float().contiguous()
    weight = torch.zeros(layers, tasks * classes, width)  # labels come before words: products are faster in this layout
    counts = one_hot_targets.sum(1).view(tasks, classes) + 1
    bias = (counts / counts.sum(1, keepdim=True)).log().view(1, -1, 1).repeat(layers, 1, 1)  # log label frequencies
    moments = [torch.zeros_like(part) for part in (weight, weight, bias, bias)]
    batches = -(-words // BATCH_SIZE)
    step = 0
    with torch.no_grad():
        for epoch in range(NUM_EPOCHS):
            turns = permuted(derive_seed(seed, "probe", epoch), np.arange(batches), batches)
            for start in (turns * BATCH_SIZE).tolist():
                batch = scaled[:, start : start + BATCH_SIZE]
                logits = torch.bmm(weight, batch.transpose(1, 2)).add_(bias)
                predicted = logits.view(layers, tasks, classes, -1).softmax(2).view_as(logits)
                grad_logits = predicted.sub_(one_hot_targets[:, start : start + BATCH_SIZE]).div_(batch.shape[1])
                rate = LEARNING_RATE * (1 - step / (NUM_EPOCHS * batches))  # decays to 0
                step += 1
                _adam_step(weight, grad_logits @ batch, moments[0], moments[1], step, rate)
                _adam_step(bias, grad_logits.sum(2, keepdim=True), moments[2], moments[3], step, rate)
    # w · (x - center) / deviation + b, as weights and a bias of x.
    weight = weight.transpose(1, 2) / deviation.transpose(1, 2)
    return weight, bias.transpose(1, 2) - center @ weight


def _adam_step(values: Tensor, grad: Tensor, first: Tensor, second: Tensor, step: int, rate: float) -> None:
    """Update in place with Adam's default constants (Kingma and Ba 2015)."""
    first.lerp_(grad, 0.1)
    second.mul_(0.999).addcmul_(grad, grad, value=0.001)
    scale = (second / (1 - 0.999**step)).sqrt_().add_(1e-8)
    values.addcdiv_(first, scale, value=-rate / (1 - 0.9**step))
