"""The online code of labels, in bits."""

from __future__ import annotations

from math import log2

import numpy as np
import pytest
import torch
from torch import Tensor

from pipeline_src.common.counter_rng import derive_seed, permuted
from pipeline_src.interpretation.mdl_probe import bits_of_words, count_labels, online_code
from pipeline_src.interpretation.probes import LabelledWords


def test_bits_of_words_four_words_as_worked_by_hand():
    # portions of one, one and two words, since half of four words is two
    sent = permuted(derive_seed(7, "online code"), np.arange(4), 4)
    targets = torch.zeros(4, 2, dtype=torch.long)
    targets[sent[1], 1] = 1  # in the second task, the second word has the other label
    bits = bits_of_words(torch.zeros(1, 4, 3), targets, 2, 7, train=count_labels)
    assert bits.shape == (2, 1, 4)
    assert bits[0, 0, sent] == pytest.approx([1, log2(3 / 2), log2(4 / 3), log2(4 / 3)], abs=1e-6)
    assert bits[1, 0, sent] == pytest.approx([1, log2(3), 1, 1], abs=1e-6)


def test_bits_of_words_portions_are_those_of_the_paper():
    counts = []

    def train(vectors: Tensor, targets: Tensor, classes: int, seed: int) -> tuple[Tensor, Tensor]:
        counts.append(len(targets))
        return count_labels(vectors, targets, classes, seed)

    bits_of_words(torch.zeros(1, 16_000, 1), torch.zeros(16_000, 1, dtype=torch.long), 4, 1, train)
    assert counts == [16, 32, 64, 128, 256, 512, 1000, 2000, 4000, 8000]


def test_online_code_compresses_labels_that_the_vectors_hold(material):
    train, _ = material
    bits, figures = online_code(train, 4, 1)
    assert figures["uniform"] == 4.8  # 2,400 words at 2 bits
    assert figures["code"] == pytest.approx(bits.sum(1) / 1000, abs=1e-4)
    assert figures["compression"] == pytest.approx(4.8 / bits.sum(1) * 1000, abs=1e-3)
    assert figures["compression"][1] > 1.3 and max(figures["control_compression"]) < 1.05 > figures["compression"][0]
    for name in ("", "control_", "frequencies_"):
        for value, (low, high) in zip(figures[f"{name}compression"], figures[f"{name}between"], strict=True):
            assert low < value < high
    assert online_code(train, 4, 1)[1] == figures


def test_online_code_few_types_have_no_control_task(material):
    train, _ = material
    few = LabelledWords(train.vectors, train.labels, ["x"] * len(train.labels), train.documents)
    figures = online_code(few, 4, 1)[1]
    assert len(figures) == 7 and not any(name.startswith("control") for name in figures)


def test_online_code_random_vectors_cost_little_more_than_frequencies(rng):
    labels = (rng.random(4000) < 0.1).astype(np.int64)
    vectors = torch.from_numpy(rng.normal(size=(1, 4000, 4)).astype(np.float32))
    words = LabelledWords(vectors, labels, ["x"] * 4000, [str(number // 100) for number in range(4000)])
    _, figures = online_code(words, 2, 1)
    entropy = -sum(share * log2(share) for share in (labels.mean(), 1 - labels.mean()))
    (frequencies,), (vectors,) = figures["frequencies_compression"], figures["compression"]
    assert 0.97 / entropy < frequencies < 1 / entropy and 0.95 < vectors / frequencies < 1.01
