"""How many bits it takes to send the labels of words to one who has their vectors: the online code of a probe.

Accuracy says how many labels a probe gets right in the end; the length of this code says how soon and how surely too,
so that labels which are merely learnt by heart cost more (Voita and Titov 2020, "minimum description length").
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pipeline_src.common.counter_rng import derive_seed, permuted
from pipeline_src.interpretation.probes import Labelled, intervals, rounded, targets_of, train_probes

# of the words, that are sent before a probe is trained anew (Voita and Titov 2020, section 3.2)
PORTIONS = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.0625, 0.125, 0.25, 0.5, 1.0)

Train = Callable[[Tensor, Tensor, int, int], tuple[Tensor, Tensor]]


def online_code(words: Labelled, classes: int, seed: int) -> tuple[np.ndarray, dict[str, Any]]:
    """The code of labels, and of the control task where there is one, by layer.

    Args:
        words: whose labels are sent.
        classes: how many labels there are, two at least.
        seed: the order in which words are sent is a function of it, as is the control task.

    Returns:
        Bits of each word's label, float64 [L + 1, W], and the figures: ``code`` in kilobits, ``compression`` (how many
        times shorter that is than the uniform code, ``uniform``) with its intervals, those of the control task, and
        those of frequencies, which look at no vector, in one row.
    """
    targets = targets_of(words, words, classes, seed)
    bits = bits_of_words(words.vectors, targets, classes, seed)
    blind = bits_of_words(words.vectors[:1], targets[:, :1], classes, seed, count_labels)
    uniform = math.log2(classes)
    figures: dict[str, Any] = {"uniform": rounded(uniform * len(words.labels) / 1000)}
    for name, of_task in [("frequencies_", blind[0]), *zip(("", "control_"), bits, strict=False)]:
        figures[f"{name}code"] = [rounded(row.sum() / 1000) for row in of_task]
        figures[f"{name}compression"] = [rounded(uniform / row.mean()) for row in of_task]
        figures[f"{name}between"] = [
            [rounded(uniform / end) for end in reversed(ends)] for ends in intervals(of_task, words.documents, seed)
        ]
    return bits[0], figures


def bits_of_words(vectors: Tensor, targets: Tensor, classes: int, seed: int, train: Train = train_probes) -> np.ndarray:
    """How many bits each label takes: those of the first portion log2 of ``classes``, every other one −log2 of the
    probability that probes give it which were trained on the portions before its own.

    Args:
        vectors: float32 [S, W, H].
        targets: int64 [W, tasks].
        classes: of each task.
        seed: the order of the words is a function of it.
        train: trains the probes, as :func:`train_probes` does.

    Returns:
        float64 [tasks, S, W], in the order of the words as they are given.
    """
    layers, words, _ = vectors.shape
    tasks = targets.shape[1]
    order = torch.from_numpy(permuted(derive_seed(seed, "online code"), np.arange(words), words))
    sent, of_sent = vectors[:, order], targets[order]
    ends = sorted({max(1, math.ceil(share * words)) for share in PORTIONS})
    bits = np.full((tasks, layers, words), math.log2(classes))
    for start, end in zip(ends, ends[1:], strict=False):
        weights, bias = train(sent[:, :start], of_sent[:start], classes, seed)
        scores = torch.baddbmm(bias, sent[:, start:end], weights).view(layers, end - start, tasks, classes)
        labels = of_sent[None, start:end, :, None].expand(layers, -1, -1, -1)
        surprise = -scores.log_softmax(-1).gather(3, labels)[..., 0] / math.log(2)  # [S, portion, tasks]
        bits[:, :, order[start:end].numpy()] = surprise.permute(2, 0, 1).numpy()
    return bits


def count_labels(vectors: Tensor, targets: Tensor, classes: int, seed: int) -> tuple[Tensor, Tensor]:
    """A probe that looks at no vector: a label is as likely as it was often so far, one more for each (Laplace)."""
    counts = torch.stack([torch.bincount(column, minlength=classes) + 1 for column in targets.T])
    bias = (counts / counts.sum(1, keepdim=True)).log().view(1, 1, -1).expand(len(vectors), 1, -1)
    return torch.zeros(len(vectors), vectors.shape[2], counts.numel()), bias
