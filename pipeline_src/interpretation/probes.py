"""Probes: softmax regressions from the word vectors of each layer to labels, all layers trained at once.

A probe shows which information a layer holds, not which information the model uses (Belinkov 2022). Its controls are a
task whose labels are random by word type (Hewitt and Liang 2019, "selectivity"), the most frequent label of each type,
and the same probe on the same encoder with random weights, which the caller measures.
"""

from __future__ import annotations

from collections import Counter
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
from pipeline_src.interpretation.model import Sentence, StudiedModel, word_vectors

EPOCHS, BATCH, RATE = 10, 256, 0.01  # of Adam; with these a probe is as good as a converged regression (benchmarks)
CONTROL_TYPES = 1000  # a control task over fewer types is memorised, so its accuracy is meaningless
NO_LABEL = -1
CAPITALS = ("small", "capital")


@dataclass(frozen=True)
class LabelledWords:
    """Words with labels.

    Attributes:
        vectors: float32 [L + 1, W, H].
        labels: int64 [W].
        types: lower-cased words, [W].
        documents: document of each word, [W].
    """

    vectors: Tensor
    labels: np.ndarray
    types: Sequence[str]
    documents: Sequence[str]


@dataclass(frozen=True)
class ProbeResult:
    """Results of the probes of one label set on W test words.

    Attributes:
        correct: by layer, bool [L + 1, W].
        control: the same for the control task; None if there are too few types.
        by_type: whether the most frequent label of a word's type is correct, bool [W].
        figures: the part that is written to disk.
    """

    correct: np.ndarray
    control: np.ndarray | None
    by_type: np.ndarray
    figures: dict[str, Any]


def labelled_words(
    model: StudiedModel, sentences: Sequence[Sentence], labels: Sequence[Sequence[int]]
) -> LabelledWords:
    """Return the vectors of all words whose label is not NO_LABEL."""
    words = word_vectors(model, sentences)
    places = list(zip(words.sentence.tolist(), words.position.tolist(), strict=True))
    of_word = np.array([labels[sentence][position] for sentence, position in places], np.int64)
    kept = np.flatnonzero(of_word != NO_LABEL)
    return LabelledWords(
        words.vectors[:, kept],
        of_word[kept],
        [sentences[places[number][0]].words[places[number][1]].lower() for number in kept],
        [sentences[places[number][0]].document for number in kept],
    )


def capitals(sentences: Sequence[Sentence]) -> list[list[int]]:
    """Label each word by whether it is capitalised, an index of CAPITALS.

    The first word of a sentence and words that do not begin with a letter have NO_LABEL.
    """
    return [
        [
            int(word[0].isupper()) if position and word[0].isalpha() else NO_LABEL
            for position, word in enumerate(sentence.words)
        ]
        for sentence in sentences
    ]


def probe(train: LabelledWords, test: LabelledWords, classes: int, seed: int) -> ProbeResult:
    """Train probes on all layers and test them.

    Each list of the figures has a value per layer: accuracy, balanced accuracy, accuracy on types that are not in the
    training words ("unseen") or that have several labels there ("ambiguous"), accuracy on the control task.
    """
    weights, bias = train_probes(train.vectors, probe_targets(train, train, classes, seed), classes, seed)
    targets = probe_targets(test, train, classes, seed).T.numpy()
    logits = torch.baddbmm(bias, test.vectors, weights)
    predicted = logits.view(*logits.shape[:2], len(targets), -1).argmax(-1).permute(2, 0, 1).numpy()
    all_correct = predicted == targets[:, None]  # [tasks, L + 1, W]
    correct, control = all_correct[0], all_correct[1] if len(all_correct) > 1 else None
    majority, seen, ambiguous = type_majority(train.types, train.labels, test.types)
    by_type = majority == test.labels
    subsets = {
        "unseen": np.array([name not in seen for name in test.types]),
        "ambiguous": np.array([name in ambiguous for name in test.types]),
    }
    unseen = subsets["unseen"]
    most_frequent = int(np.bincount(train.labels, minlength=classes).argmax())
    figures: dict[str, Any] = {
        "classes": classes,
        "trained_on": len(train.labels),
        "tested_on": len(test.labels),
        "documents": len(set(test.documents)),
        "types": len(set(train.types)),
        "majority": mean(test.labels == most_frequent),
        "type_majority": mean(by_type),
        "type_majority_balanced": balanced(by_type, test.labels),
        **{f"{name}_share": mean(subset) for name, subset in subsets.items()},
        "accuracy": [mean(row) for row in correct],
        "balanced": [balanced(row, test.labels) for row in correct],
        **{name: [mean(row[subset]) for row in correct] for name, subset in subsets.items()},
        "unseen_balanced": [balanced(row[unseen], test.labels[unseen]) for row in correct],
    }
    if control is not None:
        figures["control"] = [mean(row) for row in control]
        figures["control_seen"] = [mean(row[~unseen]) for row in control]
        pairs = zip(figures["accuracy"], figures["control"], strict=True)
        figures["selectivity"] = [rounded(ours - theirs) for ours, theirs in pairs]
    return ProbeResult(correct, control, by_type, figures)


def probe_targets(words: LabelledWords, train: LabelledWords, classes: int, seed: int) -> Tensor:
    """Return the labels and, if there are enough types, those of the control task, int64 [W, tasks].

    Args:
        words: the words to label.
        train: the words that probes are trained on; control labels have the frequencies of their labels.
        classes: number of labels.
        seed: keys the control task.
    """
    columns = [words.labels]
    if len(set(train.types)) >= CONTROL_TYPES:
        columns.append(control_labels(words.types, train.labels, classes, seed))
    return torch.from_numpy(np.stack(columns, 1))


def control_labels(types: Sequence[str], labels: np.ndarray, classes: int, seed: int) -> np.ndarray:
    """Return a random label for each word, the same for all words of a type (Hewitt and Liang 2019).

    Args:
        types: of each word, [W].
        labels: real labels, int64; the random ones are sampled by their frequencies.
        classes: number of labels.
        seed: a type's label depends only on it, the type and the frequencies.

    Returns:
        int64 [W].
    """
    cumulative = np.bincount(labels, minlength=classes).cumsum()
    names = sorted(set(types))
    streams = np.array([derive_seed(seed, "control task", name) for name in names], np.uint64)
    sampled = uniform(streams, np.zeros(len(names), np.int64), 0) * cumulative[-1]
    label_of = dict(zip(names, np.searchsorted(cumulative, sampled, side="right").tolist(), strict=True))
    return np.array([label_of[name] for name in types], np.int64)


def type_majority(
    types: Sequence[str], labels: np.ndarray, tested: Sequence[str]
) -> tuple[np.ndarray, set[str], set[str]]:
    """Predict each type's most frequent label; for an unseen type that of all words (Liu et al. 2019).

    Args:
        types, labels: of the training words.
        tested: types of the words to label.

    Returns:
        int64 [tested]; the training types; those with more than one label.
    """
    counts: dict[str, Counter[int]] = {}
    for name, label in zip(types, labels.tolist(), strict=True):
        counts.setdefault(name, Counter())[label] += 1
    fallback = _most_frequent(Counter(labels.tolist()))
    best = {name: _most_frequent(found) for name, found in counts.items()}
    ambiguous = {name for name, found in counts.items() if len(found) > 1}
    return np.array([best.get(name, fallback) for name in tested], np.int64), set(best), ambiguous


def _most_frequent(counts: Counter[int]) -> int:
    return min(counts, key=lambda label: (-counts[label], label))


def train_probes(vectors: Tensor, targets: Tensor, classes: int, seed: int) -> tuple[Tensor, Tensor]:
    """Train a softmax regression for each layer and column of ``targets`` with Adam.

    Args:
        vectors: float32 [S, W, H]; standardised in each dimension before training.
        targets: int64 [W, tasks].
        classes: of each task.
        seed: keys the batches and their order in each epoch.

    Returns:
        Weights [S, H, tasks x classes] and biases [S, 1, tasks x classes] for the original vectors.
    """
    layers, words, width = vectors.shape
    tasks = targets.shape[1]
    order = torch.from_numpy(permuted(derive_seed(seed, "probe"), np.arange(words), words))
    scaled = vectors[:, order]  # copied once, so that every batch is a slice
    center = scaled.mean(1, keepdim=True)
    deviation = vector_norm(scaled.sub_(center), dim=1, keepdim=True).div_(words**0.5).clamp_(min=1e-6)
    scaled.div_(deviation)
    wanted = one_hot(targets[order], classes).view(words, -1).T.float().contiguous()
    weight = torch.zeros(layers, tasks * classes, width)  # labels before words: the products are faster in this layout
    counts = wanted.sum(1).view(tasks, classes) + 1
    bias = (counts / counts.sum(1, keepdim=True)).log().view(1, -1, 1).repeat(layers, 1, 1)  # log label frequencies
    moments = [torch.zeros_like(part) for part in (weight, weight, bias, bias)]
    batches = -(-words // BATCH)
    step = 0
    with torch.no_grad():
        for epoch in range(EPOCHS):
            turns = permuted(derive_seed(seed, "probe", epoch), np.arange(batches), batches)
            for start in (turns * BATCH).tolist():
                batch = scaled[:, start : start + BATCH]
                logits = torch.bmm(weight, batch.transpose(1, 2)).add_(bias)
                predicted = logits.view(layers, tasks, classes, -1).softmax(2).view_as(logits)
                grad_logits = predicted.sub_(wanted[:, start : start + BATCH]).div_(batch.shape[1])  # of cross-entropy
                rate = RATE * (1 - step / (EPOCHS * batches))  # decay to 0 instead of averaging the last steps
                step += 1
                _adam_step(weight, grad_logits @ batch, moments[0], moments[1], step, rate)
                _adam_step(bias, grad_logits.sum(2, keepdim=True), moments[2], moments[3], step, rate)
    weight = weight.transpose(1, 2) / deviation.transpose(1, 2)
    return weight, bias.transpose(1, 2) - center @ weight


def _adam_step(values: Tensor, grad: Tensor, first: Tensor, second: Tensor, step: int, rate: float) -> None:
    """Update in place with Adam's default constants (Kingma and Ba 2015)."""
    first.lerp_(grad, 0.1)
    second.mul_(0.999).addcmul_(grad, grad, value=0.001)
    scale = (second / (1 - 0.999**step)).sqrt_().add_(1e-8)
    values.addcdiv_(first, scale, value=-rate / (1 - 0.9**step))
