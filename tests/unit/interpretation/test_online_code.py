"""The online code of labels, in bits."""

from __future__ import annotations

from math import log2

import numpy as np
import pytest
import torch
from torch import Tensor

from pipeline_src.common.counter_rng import derive_seed, permuted
from pipeline_src.interpretation.online_code import bits_of_words, online_code


def count(vectors: Tensor, targets: Tensor, classes: int, seed: int) -> tuple[Tensor, Tensor]:
    """A probe that looks at no vector: each label is as likely as it was often before, one more for each."""
    counts = torch.stack([torch.bincount(column, minlength=classes) + 1 for column in targets.T]).double()
    bias = (counts / counts.sum(1, keepdim=True)).log().float().view(1, 1, -1)
    return torch.zeros(len(vectors), vectors.shape[2], counts.numel()), bias.expand(len(vectors), 1, -1)


def test_the_code_of_four_words_is_as_worked_by_hand():
    # sent one, one, two at a time: half of four words is two
    sent = permuted(derive_seed(7, "online code"), np.arange(4), 4)
    targets = torch.zeros(4, 2, dtype=torch.long)
    targets[sent[1], 1] = 1  # in the second task, the second word sent is another than the rest
    bits = bits_of_words(torch.zeros(1, 4, 3), targets, 2, 7, train=count)
    assert bits.shape == (2, 1, 4)
    assert bits[0, 0, sent] == pytest.approx([1, log2(3 / 2), log2(4 / 3), log2(4 / 3)], abs=1e-6)
    assert bits[1, 0, sent] == pytest.approx([1, log2(3), 1, 1], abs=1e-6)


def test_portions_are_those_of_the_paper():
    seen = []

    def train(vectors: Tensor, targets: Tensor, classes: int, seed: int) -> tuple[Tensor, Tensor]:
        seen.append(len(targets))
        return count(vectors, targets, classes, seed)

    bits_of_words(torch.zeros(1, 16_000, 1), torch.zeros(16_000, 1, dtype=torch.long), 4, 1, train)
    assert seen == [16, 32, 64, 128, 256, 512, 1000, 2000, 4000, 8000]


def test_labels_that_a_layer_tells_take_fewer_bits_than_random_ones(material):
    train, _ = material
    bits, figures = online_code(train, 4, 1)
    assert figures["uniform"] == 4.8  # 2,400 words at 2 bits
    assert figures["code"] == pytest.approx(bits.sum(1) / 1000, abs=1e-4)
    assert figures["compression"] == pytest.approx(4.8 / bits.sum(1) * 1000, abs=1e-3)
    assert figures["compression"][1] > 1.3 and max(figures["control_compression"]) < 1 > figures["compression"][0]
    for name in ("", "control_"):
        for value, (low, high) in zip(figures[f"{name}compression"], figures[f"{name}between"], strict=True):
            assert low < value < high
    assert online_code(train, 4, 1)[1] == figures


def test_few_types_have_no_control_task(material):
    train, _ = material
    few = type(train)(train.vectors, train.labels, ["x"] * len(train.labels), train.documents)
    assert online_code(few, 4, 1)[1].keys() == {"uniform", "code", "compression", "between"}
