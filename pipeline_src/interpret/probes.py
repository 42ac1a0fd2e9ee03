"""Probes: softmax regressions from the word vectors of each layer to labels. All layers are trained at once.

A probe shows which information a layer contains, not which information the model uses (Belinkov 2022). There are three
controls:

- a control task with random labels for word types (Hewitt and Liang 2019, "selectivity")
- the most frequent label of each type
- the same probe on random weights, which the caller trains
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.linalg import vector_norm
from torch.nn.functional import one_hot

from pipeline_src.base.counter_rng import derive_seed, permuted, uniform
from pipeline_src.interpret.bootstrap import balanced, mean, rounded
from pipeline_src.interpret.model import ProbedModel, Sentence, word_vectors

# Settings of Adam. With these values, a probe is as accurate as a converged regression (benchmarks/interpretation.py).
NUM_EPOCHS = 10
BATCH_SIZE = 256
LEARNING_RATE = 0.01
# Minimum number of word types for a control task. With fewer types, a probe memorises the control labels.
MIN_CONTROL_TYPES = 1000
# Label of words that are left out of training and testing.
NO_LABEL = -1
CAPITALS = ("small", "capital")


@dataclass(frozen=True)
class LabelledWords:
    """Labels and vectors of W words.

    Attributes:
        vectors: vectors of the words in every layer, float32 [L + 1, W, H], the embeddings first.
        labels: int64 [W].
        types: the words in lower case.
        documents: the document of each word.
    """

    vectors: Tensor
    labels: np.ndarray
    types: Sequence[str]
    documents: Sequence[str]


@dataclass(frozen=True)
class ProbeResult:
    """Results of the probes for one kind of label on W test words.

    Attributes:
        correct: whether each layer's probe is correct, bool [L + 1, W].
        control: like ``correct``, for the control task; None if there are too few types.
        by_type: whether the most frequent label of the word's type is correct, bool [W].
        figures: scores and counts, as JSON values.
    """

    correct: np.ndarray
    control: np.ndarray | None
    by_type: np.ndarray
    figures: dict[str, Any]


def labelled_words(model: ProbedModel, sentences: Sequence[Sentence], labels: Sequence[Sequence[int]]) -> LabelledWords:
    words = word_vectors(model, sentences)
    selected: list[int] = []
    label_of_word: list[int] = []
    types: list[str] = []
    documents: list[str] = []
    sentence_positions = zip(words.sentence.tolist(), words.position.tolist(), strict=True)
    for index, (number, position) in enumerate(sentence_positions):
        label = labels[number][position]
        if label == NO_LABEL:
            continue
        selected.append(index)
        label_of_word.append(label)
        types.append(sentences[number].words[position].lower())
        documents.append(sentences[number].document)
    return LabelledWords(words.vectors[:, selected], np.array(label_of_word, np.int64), types, documents)


def capitals(sentences: Sequence[Sentence]) -> list[list[int]]:
    # Returns, for each word, the index of its label in CAPITALS. The first word of a sentence, and words that do not
    # begin with a letter, get NO_LABEL.
    labels = []
    for sentence in sentences:
        # The first word of a sentence is always capitalised.
        of_sentence = [NO_LABEL]
        for word in sentence.words[1:]:
            of_sentence.append(int(word[0].isupper()) if word[0].isalpha() else NO_LABEL)
        labels.append(of_sentence)
    return labels


def probe(train: LabelledWords, test: LabelledWords, classes: int, seed: int) -> ProbeResult:
    weights, bias = train_probes(train.vectors, probe_targets(train, train, classes, seed), classes, seed)
    # The labels, and the labels of the control task if there is one, int64 [tasks, W].
    targets = probe_targets(test, train, classes, seed).T.numpy()
    logits = torch.baddbmm(bias, test.vectors, weights)
    layers, words, _ = logits.shape
    # [L + 1, W, tasks] -> [tasks, L + 1, W].
    predicted = logits.view(layers, words, len(targets), classes).argmax(-1).permute(2, 0, 1).numpy()
    all_correct = predicted == targets[:, None]
    correct = all_correct[0]
    control = all_correct[1] if len(all_correct) > 1 else None

    by_type = type_majority(train.types, train.labels, test.types) == test.labels
    seen = set(train.types)
    unseen = np.array([word_type not in seen for word_type in test.types])
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
        figures["selectivity"] = []
        for accuracy, of_control in zip(figures["accuracy"], figures["control"], strict=True):
            figures["selectivity"].append(rounded(accuracy - of_control))
    return ProbeResult(correct, control, by_type, figures)


def probe_targets(words: LabelledWords, train: LabelledWords, classes: int, seed: int) -> Tensor:
    # Returns the labels, and the labels of the control task if there are enough types, int64 [W, tasks].
    columns = [words.labels]
    if len(set(train.types)) >= MIN_CONTROL_TYPES:
        columns.append(control_labels(words.types, train.labels, classes, seed))
    return torch.from_numpy(np.stack(columns, 1))


def control_labels(types: Sequence[str], labels: np.ndarray, classes: int, seed: int) -> np.ndarray:
    """Sample a control label for each word of ``types``, int64 [W] (Hewitt and Liang 2019).

    Labels are sampled with the frequencies of ``labels``. All words of a type get the same label, which depends only on
    the frequencies, the seed and the type.
    """
    # Each type has its own random stream. The first number of the stream, in [0, 1), selects the label.
    distinct = sorted(set(types))
    streams = [derive_seed(seed, "control task", word_type) for word_type in distinct]
    first = np.zeros(len(distinct), np.int64)
    numbers = uniform(np.array(streams, np.uint64), first, 0)

    # Example: if three words have label 0 and one has label 1, numbers below 3/4 select label 0, the others label 1.
    cumulative = np.bincount(labels, minlength=classes).cumsum()
    sampled = np.searchsorted(cumulative, numbers * cumulative[-1], side="right")
    label_of_type = dict(zip(distinct, sampled.tolist(), strict=True))
    of_words = [label_of_type[word_type] for word_type in types]
    return np.array(of_words, np.int64)


def type_majority(types: Sequence[str], labels: np.ndarray, tested: Sequence[str]) -> np.ndarray:
    counts: dict[str, np.ndarray] = defaultdict(lambda: np.zeros(labels.max() + 1, np.int64))
    for word_type, label in zip(types, labels.tolist(), strict=True):
        counts[word_type][label] += 1
    most_frequent = np.bincount(labels).argmax()
    best = []
    for word_type in tested:
        if word_type in counts:
            best.append(counts[word_type].argmax())
        else:
            # An unseen type gets the most frequent label of all words.
            best.append(most_frequent)
    return np.array(best, np.int64)


def train_probes(vectors: Tensor, targets: Tensor, classes: int, seed: int) -> tuple[Tensor, Tensor]:
    """Train a softmax regression for each layer and each task.

    Args:
        vectors: [S, W, H], for S layers and W words.
        targets: labels of each task, int64 [W, tasks].

    Returns:
        Weights [S, H, tasks x classes] and biases [S, 1, tasks x classes]. Training standardises the vectors, but the
        returned weights apply to the original vectors.
    """
    layers, words, width = vectors.shape
    tasks = targets.shape[1]
    # The words are shuffled once, into a copy, so that every batch is a slice.
    order = torch.from_numpy(permuted(derive_seed(seed, "probe"), np.arange(words), words))
    scaled = vectors[:, order]
    center = scaled.mean(1, keepdim=True)
    scaled.sub_(center)
    deviation = vector_norm(scaled, dim=1, keepdim=True).div_(words**0.5).clamp_(min=1e-6)
    scaled.div_(deviation)
    # One-hot labels, [tasks x classes, W]. Matrix products are faster in this layout than in [W, tasks x classes].
    one_hot_targets = one_hot(targets[order], classes).view(words, -1).T.float().contiguous()
    weight = torch.zeros(layers, tasks * classes, width)
    # The biases are initialised with the logarithms of the label frequencies.
    counts = one_hot_targets.sum(1).view(tasks, classes) + 1
    log_frequencies = (counts / counts.sum(1, keepdim=True)).log()
    bias = log_frequencies.view(1, -1, 1).repeat(layers, 1, 1)
    weight_moments = torch.zeros_like(weight), torch.zeros_like(weight)
    bias_moments = torch.zeros_like(bias), torch.zeros_like(bias)
    batches = math.ceil(words / BATCH_SIZE)
    step = 0
    with torch.no_grad():
        for epoch in range(NUM_EPOCHS):
            # Every epoch has the same batches, in a different order.
            turns = permuted(derive_seed(seed, "probe", epoch), np.arange(batches), batches)
            for start in (turns * BATCH_SIZE).tolist():
                batch = scaled[:, start : start + BATCH_SIZE]
                expected = one_hot_targets[:, start : start + BATCH_SIZE]
                logits = torch.bmm(weight, batch.transpose(1, 2)).add_(bias)
                predicted = logits.view(layers, tasks, classes, -1).softmax(2).view_as(logits)
                # The gradient of the mean cross-entropy is (predicted - expected) / number of words.
                grad_logits = predicted.sub_(expected).div_(batch.shape[1])
                # The learning rate decays linearly to 0.
                rate = LEARNING_RATE * (1 - step / (NUM_EPOCHS * batches))
                step += 1
                _adam_step(weight, grad_logits @ batch, weight_moments, step, rate)
                _adam_step(bias, grad_logits.sum(2, keepdim=True), bias_moments, step, rate)
    # Convert w · (x - center) / deviation + b into weights and a bias for the original x.
    weight = weight.transpose(1, 2) / deviation.transpose(1, 2)
    return weight, bias.transpose(1, 2) - center @ weight


def _adam_step(values: Tensor, grad: Tensor, moments: tuple[Tensor, Tensor], step: int, rate: float) -> None:
    # One step of Adam with its default constants (Kingma and Ba 2015).
    first, second = moments
    first.lerp_(grad, 0.1)
    second.mul_(0.999).addcmul_(grad, grad, value=0.001)
    scale = (second / (1 - 0.999**step)).sqrt_().add_(1e-8)
    values.addcdiv_(first, scale, value=-rate / (1 - 0.9**step))
