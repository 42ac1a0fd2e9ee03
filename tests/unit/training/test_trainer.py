"""The trainer: steps, checks of the loss, rows of the training curve, and callbacks."""

import weakref
from dataclasses import asdict, dataclass, field

import numpy as np
import pytest
import torch

from pipeline_src.base.errors import PipelineError
from pipeline_src.model.flops import Workload
from pipeline_src.training.distributed import single_process
from pipeline_src.training.throughput import ComputeTracker, Peak
from pipeline_src.training.trainer import (
    Callback,
    CurveLogger,
    LossTerm,
    Objective,
    OptimizerConfig,
    Trainer,
    TrainState,
    make_trainer,
)


@dataclass(frozen=True)
class Number:
    """A batch that is one number."""

    value: float
    examples: np.ndarray = field(default_factory=lambda: np.array([7, 11]))
    workload: Workload = Workload(sequences=2, tokens=4)


class Product(Objective[Number]):
    """Objective with two terms: the output of a small network times the number, and its square, without accuracy."""

    def __init__(self, weights) -> None:
        super().__init__()
        self.model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout(0.5), torch.nn.Linear(2, 1))
        self.weights = weights

    def loss_counts(self, work: Workload) -> dict[str, int]:
        return {"task": work.sequences, "size": work.tokens}

    def forward(self, batch: Number) -> dict[str, LossTerm]:
        output = self.model(torch.ones(1, 2)).sum()
        return {"task": LossTerm(output * batch.value, torch.tensor(1)), "size": LossTerm(output**2)}


def trainer_of(model: Objective[Number], last: int, every: int = 2, **options) -> Trainer[Number]:
    config = OptimizerConfig(0.1, last, decay_steps=0, weight_decay=0.0, max_grad_norm=options.pop("clip", 1.0))
    options = {"name": "trying", "seed": 5, "callbacks": [CurveLogger([every], last)]} | options
    return make_trainer(model, config, single_process(), last=last, **options)


def train(values, last=None, size_weight=0.0, **options) -> Trainer[Number]:
    torch.manual_seed(0)
    trainer = trainer_of(Product({"task": 1.0, "size": size_weight}), last or len(values), **options)
    trainer.run([Number(value)] for value in values)
    return trainer


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_trainer_non_finite_loss_names_step_and_examples(bad):
    torch.manual_seed(0)
    trainer = trainer_of(Product({"task": 1.0, "size": 0.0}), 4)
    with pytest.raises(PipelineError, match="(?s)step 3.*examples 7, 11"):
        trainer.run([Number(value)] for value in (1.0, 1.0, bad, 1.0))
    assert [row["step"] for row in trainer.state.curve] == [2]


def test_curve_logger_rows_are_means_since_last_row():
    curve = train([1.0, 2.0, 3.0]).state.curve
    assert [row["step"] for row in curve] == [2, 3]
    assert all(row["task_accuracy"] == 0.5 and row["learning_rate"] == 0.1 for row in curve)
    assert set(curve[0]) == {"step", "loss", "task_loss", "task_accuracy", "size_loss", "grad_norm", "learning_rate"}
    single = train([1.0, 2.0, 3.0], every=1).state.curve
    assert curve[0]["loss"] == pytest.approx((single[0]["loss"] + single[1]["loss"]) / 2)


def test_trainer_weights_scale_loss_but_not_term_columns():
    (before,), (after,) = train([1.0]).state.curve, train([1.0], size_weight=3.0).state.curve
    assert before["loss"] == before["task_loss"] and before["size_loss"] == after["size_loss"] > 0
    assert after["loss"] == pytest.approx(after["task_loss"] + 3 * after["size_loss"])
    assert after["grad_norm"] != before["grad_norm"]


def test_trainer_without_steps_changes_nothing():
    model = Product({"task": 1.0, "size": 0.0})
    trainer, before = trainer_of(model, 0), [parameter.clone() for parameter in model.parameters()]
    trainer.run([])
    assert trainer.state == TrainState() and all(map(torch.equal, before, model.parameters()))


class SquaredError(Objective[Number]):
    """Objective: twice the squared difference between a weight and the batch's number."""

    weights = {"task": 1.0}

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))

    def loss_counts(self, work: Workload) -> dict[str, int]:
        return {"task": work.sequences}

    def forward(self, batch: Number) -> dict[str, LossTerm]:
        return {"task": LossTerm(2 * (self.weight - batch.value) ** 2)}


def test_trainer_microbatches_sum_to_batch_mean():
    trainer = trainer_of(SquaredError(), 1, clip=None)
    trainer.run([[Number(1.0), Number(3.0)]])
    (row,) = trainer.state.curve
    assert row["loss"] == (1.0 + 9.0) / 2 and row["grad_norm"] == 2 * (1.0 + 3.0) / 2


def test_trainer_is_freed_with_its_model():
    trainer = train([1.0, 2.0])
    model = weakref.ref(trainer.objective)
    del trainer
    assert model() is None


def test_trainer_resumed_between_rows_has_identical_curve():
    values = [1.0, -1.0, 2.0, 0.5, 1.5]
    full = train(values)
    first = train(values[:3], last=5)
    state = asdict(first.state) | {"sums": {name: float(value) for name, value in first.state.sums.items()}}
    assert state["summed_steps"] == 1 and state["sums"]
    second = trainer_of(Product({"task": 1.0, "size": 0.0}), 5)
    second.objective.load_state_dict(first.objective.state_dict())
    second.optimizer.load_state_dict(first.optimizer.state_dict())
    second.load_state(TrainState(**state))
    second.run([Number(value)] for value in values[3:])
    assert second.state.curve == full.state.curve
    for one, two in zip(full.objective.parameters(), second.objective.parameters(), strict=True):
        assert torch.equal(one, two)


def test_trainer_counts_compute_before_callbacks():
    class Watcher(Callback):
        def after_step(self, trainer):
            seen.append(trainer.compute_tracker.deterministic()["tokens"])

    seen: list[int] = []
    sizes = type("Sizes", (), {"training_flops": lambda self, work: work.tokens})()
    compute = ComputeTracker(
        sizes, torch.device("cpu"), precision=torch.float32, parameters=1, tokens_per_batch=4, peak=Peak(1.0, "a test")
    )
    train([1.0] * 4, compute_tracker=compute, callbacks=[Watcher([2])])
    assert seen == [8, 16]


@pytest.mark.parametrize(
    ("every", "at", "before", "steps"),
    [([3, None], (), None, [3, 6]), ([3], (4,), None, [3, 4, 6]), ([2], (), 6, [2, 4]), ([], (), None, [])],
)
def test_callback_is_due_at_given_steps_only(every, at, before, steps):
    class Idle(Callback):
        def after_step(self, trainer): ...

    assert [step for step in range(1, 8) if Idle(every, at, before).due(step)] == steps


def test_trainer_checks_losses_before_callbacks():
    class Saver(Callback):
        def after_step(self, trainer):
            saved.append(trainer.state.step)

    saved: list[int] = []
    with pytest.raises(PipelineError, match="NaN"):
        train([1.0, float("nan")], callbacks=[Saver([1])])
    assert saved == [1]


class NoLosses(Product):
    """Objective whose batches have no losses."""

    def loss_counts(self, work: Workload) -> dict[str, int]:
        return {"task": 0, "size": 0}

    def forward(self, batch: Number) -> dict[str, LossTerm]:
        nothing = 0.0 * self.model(torch.ones(1, 2)).sum()
        return {"task": LossTerm(nothing, torch.tensor(0)), "size": LossTerm(nothing)}


def test_trainer_batch_without_losses_has_zero_loss():
    trainer = trainer_of(NoLosses({"task": 1.0, "size": 1.0}), 1)
    trainer.run([[Number(1.0)]])
    assert trainer.state.curve[0]["loss"] == 0 and trainer.state.curve[0]["task_accuracy"] == 0


def test_trainer_out_of_memory_error_names_setting_to_lower():
    class Large(Product):
        def forward(self, batch: Number) -> dict[str, LossTerm]:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB\nmore")

    with pytest.raises(PipelineError, match=r"(?s)out of GPU memory.*: 4 tokens.*lower microbatch_tokens"):
        trainer_of(Large({"task": 1.0, "size": 0.0}), 1).run([[Number(1.0)]])
