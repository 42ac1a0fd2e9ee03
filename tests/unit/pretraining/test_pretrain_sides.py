"""The sides of the benchmark of a training step: the same batch in both forms, the same losses, steps that train."""

from __future__ import annotations

import numpy as np
import pytest
import torch

pytest.importorskip("transformers", reason="the peer of the benchmark is not installed")

from benchmarks._pretrain_sides import PREDICTED, SDPA, SIDES, Batch, process_on
from benchmarks.pretrain_step import SETUPS, verdict
from pipeline_src.models.bert import BertConfig
from pipeline_src.pretraining.data import PretrainingBatch

CPU = torch.device("cpu")
CONFIG = BertConfig(60, 32, 1, 1, 64, max_position_embeddings=16)


def batch() -> Batch:
    return Batch.of(
        PretrainingBatch(
            ids=np.array([2, 7, 8, 3, 9, 3, 2, 10, 3, 11, 3]),
            segments=np.array([0, 0, 0, 0, 1, 1, 0, 0, 0, 1, 1]),
            cu_seqlens=np.array([0, 6, 11]),
            predicted=np.array([1, 4, 7]),
            labels=np.array([20, 21, 22]),
            pair_label=np.array([0, 1]),
            examples=np.array([5, 3]),
        ),
        CPU,
    )


def test_a_batch_is_the_same_in_both_forms():
    both = batch()
    assert both.tokens == 11
    assert both.padded["input_ids"].tolist() == [[2, 7, 8, 3, 9, 3], [2, 10, 3, 11, 3, 0]]
    assert both.padded["token_type_ids"].tolist() == [[0, 0, 0, 0, 1, 1], [0, 0, 0, 1, 1, 0]]
    assert both.padded["attention_mask"].tolist() == [[1] * 6, [1] * 5 + [0]]
    assert both.padded["labels"].tolist() == [[-100, 20, -100, -100, 21, -100], [-100, 22, -100, -100, -100, -100]]
    assert both.padded["labels"].flatten()[both.rectangle].tolist() == [20, 21, 22]


def test_all_sides_start_from_one_loss_and_train():
    batches = [batch()] * 30
    sides = {name: SIDES[name](CONFIG, batches, process_on("cpu")) for name in ("ours", SDPA, PREDICTED)}
    before = {name: side.loss(batches[0]) for name, side in sides.items()}
    assert list(before.values()) == pytest.approx([before[SDPA]] * 3, rel=1e-6)
    for side in sides.values():
        for _ in batches:
            side.step()
    after = {name: side.loss(batches[0]) for name, side in sides.items()}
    assert all(after[name] < before[name] - 0.05 for name in sides)
    assert list(after.values()) == pytest.approx([after[SDPA]] * 3, rel=0.02)  # dropout apart, one training


@pytest.mark.parametrize(
    ("ratio", "memory", "met"), [(5.0, 99, True), (4.9, 99, False), (5.0, 100, False)], ids=["met", "slow", "large"]
)
def test_verdict(ratio, memory, met):
    sides = {"ours": {"of_training_mb": memory, "tokens_per_s": 1.0}}
    sides |= {peer: {"of_training_mb": 100} for peer in SETUPS["cpu"].peers}
    assert (
        verdict({"length": 128, "sides": sides, "ratios": {SDPA: ratio, PREDICTED: 1.0}}, SETUPS["cpu"], "tiny") is met
    )


def test_a_gpu_is_named_by_its_number():
    """A thread of its own brings batches there, and begins with no GPU chosen."""
    assert process_on("cuda", "float32").device == torch.device("cuda", 0)
    assert process_on("cpu").device == torch.device("cpu")
