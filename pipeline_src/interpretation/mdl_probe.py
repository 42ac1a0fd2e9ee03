"""Minimum description length probing: the online code length of labels given vectors (Voita and Titov 2020).

Accuracy only counts the labels that a probe predicts in the end. The code length also depends on how many words the
probe needs and how probable its labels are, so that labels which are only memorised cost more.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pipeline_src.common.counter_rng import derive_seed, permuted
from pipeline_src.interpretation.bootstrap import intervals, rounded, rounded_list
from pipeline_src.interpretation.probes import LabelledWords, probe_targets, train_probes

# Fractions of the words after which a probe is trained again on the words so far (Voita and Titov 2020, section 3.2).
PORTIONS = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.0625, 0.125, 0.25, 0.5, 1.0)

Train = Callable[[Tensor, Tensor, int, int], tuple[Tensor, Tensor]]


def online_code(words: LabelledWords, classes: int, seed: int) -> tuple[np.ndarray, dict[str, Any]]:
    """Compute the online code of labels for each layer, and of the control task if there is one.

    Returns the bits of each word's label, float64 [L + 1, W], and figures: ``code`` is the length in kilobits;
    ``compression`` is the length of the uniform code divided by it, with intervals ``between``. The prefix ``control_``
    marks the control task, ``frequencies_`` a code by the frequencies of labels, without vectors.
    """
    targets = probe_targets(words, words, classes, seed)
    bits = bits_of_words(words.vectors, targets, classes, seed)
    frequencies = bits_of_words(words.vectors[:1], targets[:, :1], classes, seed, count_labels)
    uniform = math.log2(classes)
    figures: dict[str, Any] = {"uniform": rounded(uniform * len(words.labels) / 1000)}
    for name, of_task in [("frequencies_", frequencies[0]), *zip(("", "control_"), bits, strict=False)]:
        figures[f"{name}code"] = rounded_list(of_task.sum(1) / 1000)
        figures[f"{name}compression"] = rounded_list(uniform / of_task.mean(1))
        # Fewer bits are more compression, so the ends of the interval change places.
        figures[f"{name}between"] = [
            [rounded(uniform / end) for end in reversed(ends)] for ends in intervals(of_task, words.documents, seed)
        ]
    return bits[0], figures


def bits_of_words(vectors: Tensor, targets: Tensor, classes: int, seed: int, train: Train = train_probes) -> np.ndarray:
    """Return the bits of each label, float64 [tasks, S, W], by probes trained on the portions before the label's.

    Labels of the first portion take log2(``classes``) bits. ``vectors`` are [S, W, H], ``targets`` int64 [W, tasks].
    """
    layers, words, _ = vectors.shape
    tasks = targets.shape[1]
    order = torch.from_numpy(permuted(derive_seed(seed, "online code"), np.arange(words), words))
    sent, labels = vectors[:, order], targets[order]
    ends = sorted({max(1, math.ceil(portion * words)) for portion in PORTIONS})
    bits = np.full((tasks, layers, words), math.log2(classes))
    for start, end in zip(ends, ends[1:], strict=False):
        weights, bias = train(sent[:, :start], labels[:start], classes, seed)
        logits = torch.baddbmm(bias, sent[:, start:end], weights).view(layers, end - start, tasks, classes)
        index = labels[None, start:end, :, None].expand(layers, -1, -1, -1)
        portion = -logits.log_softmax(-1).gather(3, index)[..., 0] / math.log(2)  # [S, portion, tasks]
        bits[:, :, order[start:end].numpy()] = portion.permute(2, 0, 1).numpy()
    return bits


def count_labels(vectors: Tensor, targets: Tensor, classes: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return probes that ignore ``vectors`` and predict label frequencies, with one added to each count (Laplace)."""
    counts = torch.stack([torch.bincount(column, minlength=classes) + 1 for column in targets.T])
    bias = (counts / counts.sum(1, keepdim=True)).log().view(1, 1, -1).expand(len(vectors), 1, -1)
    return torch.zeros(len(vectors), vectors.shape[2], counts.numel()), bias
