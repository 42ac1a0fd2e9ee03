"""Training steps on a GPU equal those on a CPU, are repeatable, and can be resumed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from benchmarks._gpu_steps import SHAPES, VARIANTS, Shape, trainer_of
from benchmarks._pretrain_sides import process_on
from pipeline_src.examples.build_examples import run as plan_examples
from pipeline_src.study.machine import Precision
from tests.unit.pretrain.small import EXAMPLES, make_study, train_phase

# CUDA reads this variable when it starts. Deterministic matrix products need it.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

MINI = SHAPES["mini"]._replace(sequences=8, length=64)
# More steps than run before the capture.
STEPS = 8
BITS = {"eval_steps": 7, "phase1": 20, "hidden_dropout_prob": 0.1}


@pytest.fixture
def deterministic() -> Iterator[None]:
    """Use deterministic kernels where torch has them."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


def losses(
    shape: Shape, variant: str = "eager", device: str = "cuda", precision: Precision = "auto", seed: int = 1
) -> list[float]:
    """Return the loss of each of the first steps."""
    result: list[float] = []
    with trainer_of(shape, variant, process_on(device, precision)) as (trainer, step):
        trainer.seed = seed
        for _ in range(STEPS):
            step()
            result.append(float(trainer.state.sums.pop("loss")))
            trainer.state.sums.clear()
    return result


@pytest.mark.parametrize("architecture", ["bert", "modernbert"])
def test_training_steps_bfloat16_on_gpu_equal_float32_on_cpu(architecture: str) -> None:
    shape = MINI._replace(architecture=architecture)
    assert losses(shape, precision="bfloat16") == pytest.approx(losses(shape, "eager", "cpu", "float32"), rel=5e-3)


@pytest.mark.parametrize("architecture", ["bert", "modernbert"])
@pytest.mark.parametrize("variant", list(VARIANTS)[1:])
def test_training_steps_variant_equals_eager(variant: str, architecture: str) -> None:
    shape = MINI._replace(architecture=architecture)
    assert losses(shape, variant) == pytest.approx(losses(shape), rel=5e-3)


@pytest.mark.parametrize("variant", VARIANTS)
def test_training_steps_dropout_same_seed_gives_same_losses(variant: str) -> None:
    """Only the first steps are compared exactly.

    A backward pass may sum in any order, so later steps may differ in their last bits.
    """
    shape = MINI._replace(architecture="bert", optimizer="adamw", dropout=0.1)
    first, again, other = (losses(shape, variant, seed=seed) for seed in (1, 1, 2))
    assert again[0] == first[0] and again == pytest.approx(first, rel=1e-3)
    assert other[0] != first[0] and other != pytest.approx(first, rel=1e-5)


@pytest.mark.usefixtures("deterministic")
def test_pretrain_on_gpu_resumed_training_is_bitwise_identical(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make_study(tmp_path)
    plan_examples(seed=1, examples=EXAMPLES)

    def stop(taken: int) -> None:
        if taken == 13:
            raise KeyboardInterrupt

    def weights() -> dict[str, torch.Tensor]:
        result = load_file("models/pretrained/phase1/model.safetensors")
        shutil.rmtree("models"), shutil.rmtree("results")
        return result

    train_phase("phase1", **BITS)
    expected = weights()
    train_phase("phase1", **BITS)
    assert max_difference(weights(), expected) == 0, "two trainings that nothing stopped differ"
    with pytest.raises(KeyboardInterrupt):
        train_phase("phase1", after_step=stop, **BITS)
    train_phase("phase1", **BITS)
    assert max_difference(weights(), expected) == 0


def max_difference(result: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> float:
    assert result.keys() == expected.keys()
    return max(float((result[name] - expected[name]).abs().max()) for name in expected)
