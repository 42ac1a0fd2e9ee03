"""Captured steps equal eager steps, and compiling and capture are chosen by FLOPs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from torch import Tensor

from pipeline_src.base.errors import PipelineError
from pipeline_src.pretrain.data import TensorBatch
from pipeline_src.training.distributed import Distributed
from pipeline_src.training.gpu import (
    EAGER_STEPS,
    LAUNCH_SECONDS,
    MAX_UTILISATION,
    CapturedSteps,
    Outputs,
    choose_capture,
    choose_compile,
)
from pipeline_src.training.trainer import CurveLogger, OptimizerConfig, Trainer, make_trainer
from tests.unit.training.fake_gpu import make_batch, objective_of, run_again

CPU, STEPS, PEAK = torch.device("cpu"), 8, 1e12


def batches(count: int = STEPS) -> Iterator[list[TensorBatch]]:
    """Return batches of two microbatches of equal shapes."""
    rng = np.random.default_rng(0)
    for _ in range(count):
        yield [equal_batch(rng), equal_batch(rng)]


def equal_batch(rng: np.random.Generator, sequences: int = 3, length: int = 32) -> TensorBatch:
    """Return full sequences with five predictions each, none of them at the first token."""
    return make_batch(rng, [length] * sequences, [5] * sequences, skip=1)


def trainer_of(precision: torch.dtype = torch.float32, optimizer: str = "adamw") -> Trainer[TensorBatch]:
    objective = objective_of("mlm", attention="auto")()
    objective.init_weights(torch.Generator().manual_seed(0))
    config = OptimizerConfig(1e-3, STEPS, warmup_steps=2, optimizer=optimizer)
    trainer = make_trainer(objective, config, Distributed(0, 1, CPU, precision), name="test", last=STEPS, seed=3)
    trainer.callbacks = [CurveLogger([2], STEPS)]
    return trainer


def train(trainer: Trainer[TensorBatch]) -> tuple[list[dict[str, float]], list[Tensor]]:
    trainer.run(batches())
    return trainer.state.curve, [parameter.detach().clone() for parameter in trainer.objective.parameters()]


def assert_equal(one: Trainer[TensorBatch], other: Trainer[TensorBatch]) -> None:
    (curve, weights), (other_curve, other_weights) = train(one), train(other)
    assert curve == other_curve and len(curve) == STEPS // 2
    assert all(map(torch.equal, weights, other_weights))


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_captured_steps_equal_eager_steps(optimizer, caplog):
    captured = trainer_of(optimizer=optimizer)
    steps = CapturedSteps(captured, run_again)
    with caplog.at_level("INFO"):
        assert_equal(trainer_of(optimizer=optimizer), captured)
    assert f"captured in CUDA graphs from step {EAGER_STEPS + 1} on" in caplog.text
    assert captured.stepper is steps


@pytest.mark.parametrize("failing", [1, 2], ids=["backward", "update"])
def test_captured_steps_failed_capture_continues_eagerly(failing, caplog):
    captures = iter(range(1, 3))

    def fail(run: Callable[[], Outputs]) -> tuple[Callable[[], None], Outputs]:
        if next(captures) < failing:
            return run_again(run)
        torch.rand(1)
        raise RuntimeError("operation not permitted when stream is capturing\nCompile with TORCH_USE_CUDA_DSA")

    trainer = trainer_of()
    CapturedSteps(trainer, fail)
    with caplog.at_level("WARNING"):
        assert_equal(trainer_of(), trainer)
    (warning,) = [message for message in caplog.messages if "captured" in message]
    assert warning.endswith("train slower: operation not permitted when stream is capturing")
    assert trainer.stepper is None


def test_captured_steps_microbatch_of_other_shape_is_rejected():
    trainer, rng = trainer_of(), np.random.default_rng(0)
    CapturedSteps(trainer, run_again)
    longer = [[equal_batch(rng, 3, 32)]] * (EAGER_STEPS + 1) + [[equal_batch(rng, 4, 24)]]
    with pytest.raises(ValueError, match="differs from the captured one: cu_seqlens"):
        trainer.run(longer)
    other = [[equal_batch(rng)], [dataclasses.replace(equal_batch(rng), max_seqlen=33)]]
    with pytest.raises(ValueError, match="max_seqlen 33, not 32"):
        trainer.run(other)


def test_choose_capture_auto_captures_only_launch_bound_steps():
    trainer = trainer_of()
    assert not choose_capture("auto", 0.0, PEAK, trainer, True)  # on a CPU
    with pytest.raises(PipelineError, match="needs unsharded parameters on a CUDA device"):
        choose_capture(True, 0.0, PEAK, trainer, True)
    trainer.distributed = Distributed(0, 1, torch.device("cuda"))
    trainer.optimizer.defaults["capturable"] = True
    limit = LAUNCH_SECONDS * MAX_UTILISATION * PEAK
    assert choose_capture("auto", 0.9 * limit, PEAK, trainer, True) and not choose_capture(
        "auto", 1.1 * limit, PEAK, trainer, True
    )
    assert choose_capture(True, 9 * limit, PEAK, trainer, True) and not choose_capture(False, 0.0, PEAK, trainer, True)
    assert not choose_capture("auto", 0.0, PEAK, trainer, False)
    trainer.distributed = Distributed(0, 2, torch.device("cuda"))
    assert not choose_capture("auto", 0.0, PEAK, trainer, True)
    with pytest.raises(PipelineError, match="needs a single process"):
        choose_capture(True, 0.0, PEAK, trainer, True)


def test_choose_compile_without_c_compiler_is_rejected(monkeypatch):
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(PipelineError, match="torch.compile needs a C compiler"):
        choose_compile(True, 0.0, PEAK)
    assert choose_compile(False, 0.0, PEAK) is False


# In FLOPs.
FIVE_MINUTES = 300 * 0.25 * PEAK


@pytest.mark.parametrize(
    ("setting", "minutes", "compiler", "expected", "message"),
    [
        ("auto", 5.05, "cc", True, "compiled"),
        ("auto", 4.95, "cc", False, "not compiled: some 297"),
        ("auto", 45, "", False, "not compiled: there is no C compiler"),
        (True, 0, "cc", True, ""),
        (False, 45, "cc", False, ""),
    ],
)
def test_choose_compile_auto_compiles_over_five_minutes(
    monkeypatch, caplog, setting, minutes, compiler, expected, message
):
    monkeypatch.setenv("CC", compiler)
    monkeypatch.setenv("PATH", "")
    with caplog.at_level("INFO"):
        assert choose_compile(setting, minutes / 5 * FIVE_MINUTES, PEAK) is expected
        assert choose_compile(setting, 2 * minutes / 5 * FIVE_MINUTES, 2 * PEAK) is expected  # two GPUs
    assert all(text.startswith(message) for text in caplog.messages)
