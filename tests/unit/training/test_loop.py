"""The loop's guards, its rows, and that what goes wrong in the data comes out whole."""

from dataclasses import dataclass, field

import numpy as np
import pytest
import torch

from pipeline_src.common.errors import PipelineError
from pipeline_src.training.distributed import single_process
from pipeline_src.training.loop import Loop, Objective, Term, TrainState
from pipeline_src.training.optimiser import make_optimiser


@dataclass(frozen=True)
class Number:
    """A batch that is one number."""

    value: float
    examples: np.ndarray = field(default_factory=lambda: np.array([7, 11]))


class Product(Objective[Number]):
    """Two terms: what a small network makes of ones times the number, and its square, which has no right guess."""

    def __init__(self, weights) -> None:
        super().__init__()
        self.model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout(0.5), torch.nn.Linear(2, 1))
        self.weights = weights

    def count(self, batch: Number) -> dict[str, int]:
        return {"task": 2, "size": 4}

    def forward(self, batch: Number) -> dict[str, Term]:
        output = self.model(torch.ones(1, 2)).sum()
        return {"task": Term(output * batch.value, torch.tensor(1)), "size": Term(output**2)}


def loop_over(values, last, state=None, every=2, size_weight=0.0):
    torch.manual_seed(0)
    model = Product({"task": 1.0, "size": size_weight})

    optimiser = make_optimiser(model, 0.1, 0.0)
    loop = Loop(
        model,
        optimiser,
        lambda _: 0.1,
        last=last,
        row_ends=lambda step: step % every == 0,
        what="trying",
        stream=5,
        distributed=single_process(),
        state=state,
    )
    return loop, model, optimiser, loop.run([Number(value)] for value in values)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_loss_that_is_nan_or_infinite_stops_with_step_and_examples(bad):
    loop, _, _, steps = loop_over([1.0, 1.0, bad, 1.0], 4)
    assert next(steps) == 1 and next(steps) == 2
    with pytest.raises(PipelineError, match="(?s)step 3.*examples 7, 11"):
        next(steps)
    assert len(loop.rows) == 1


def test_rows_are_means_of_the_steps_since_the_last_one():
    loop, *_, steps = loop_over([1.0, 2.0, 3.0], 3)
    list(steps)
    assert [row["step"] for row in loop.rows] == [2, 3]
    assert all(row["task_accuracy"] == 0.5 and row["learning_rate"] == 0.1 for row in loop.rows)
    assert set(loop.rows[0]) == {
        "step",
        "loss",
        "task_loss",
        "task_accuracy",
        "size_loss",
        "grad_norm",
        "learning_rate",
    }


def test_each_term_is_weighted_in_the_loss_and_stands_in_the_curve_as_it_is():
    plain, *_, steps = loop_over([1.0], 1)
    list(steps)
    weighted, *_, steps = loop_over([1.0], 1, size_weight=3.0)
    list(steps)
    (before,), (after,) = plain.rows, weighted.rows
    assert before["loss"] == before["task_loss"] and before["size_loss"] == after["size_loss"] > 0
    assert after["loss"] == pytest.approx(after["task_loss"] + 3 * after["size_loss"])
    assert after["grad_norm"] != before["grad_norm"]


def test_a_loop_that_has_no_step_to_take_takes_none():
    loop, model, _, steps = loop_over([], 0)
    before = [parameter.clone() for parameter in model.parameters()]
    assert list(steps) == [] and loop.rows == [] and loop.state() == TrainState()
    assert all(map(torch.equal, before, model.parameters()))


def test_a_loop_that_goes_on_in_the_middle_of_a_row_ends_alike():
    values = [1.0, -1.0, 2.0, 0.5, 1.5]
    whole, model, _, steps = loop_over(values, 5)
    list(steps)
    first, stopped, optimiser, steps = loop_over(values, 5)
    for step in steps:
        if step == 3:
            break
    steps.close()
    state = first.state()
    assert state.count == 1 and state.sums
    second, again, second_optimiser, steps = loop_over(values[3:], 5, TrainState(**vars(state)))
    again.load_state_dict(stopped.state_dict())
    second_optimiser.load_state_dict(optimiser.state_dict())
    list(steps)
    assert second.rows == whole.rows
    for one, two in zip(model.parameters(), again.parameters(), strict=True):
        assert torch.equal(one, two)


def test_what_the_data_raises_is_raised():
    def broken():
        yield [Number(1.0)]
        raise PipelineError("token shard is damaged", remedy="run it again")

    loop, *_ = loop_over([], 5)
    with pytest.raises(PipelineError, match="damaged"):
        list(loop.run(broken()))


def test_a_row_counts_the_step_that_ends_it():
    loop, _, _, steps = loop_over([1.0] * 4, 4)
    counted: list[dict[str, float]] = []
    loop.counted, loop.rates = counted.append, lambda: {"counted": len(counted)}
    assert [loop.pace["counted"] for step in steps if step % 2 == 0] == [2, 4]
    assert counted[0]["task"] == 2


class Nothing(Product):
    """Of whose batches nothing is asked."""

    def count(self, batch: Number) -> dict[str, int]:
        return {"task": 0, "size": 0}

    def forward(self, batch: Number) -> dict[str, Term]:
        nothing = 0.0 * self.model(torch.ones(1, 2)).sum()
        return {"task": Term(nothing, torch.tensor(0)), "size": Term(nothing)}


def test_a_batch_of_which_nothing_is_asked_has_a_loss_of_zero():
    model = Nothing({"task": 1.0, "size": 1.0})
    optimiser = make_optimiser(model, 0.1, 0.0)
    loop = Loop(
        model, optimiser, lambda _: 0.1, last=1, row_ends=lambda step: True, what="trying", stream=5,
        distributed=single_process(),
    )  # fmt: skip
    list(loop.run([[Number(1.0)]]))
    assert loop.rows[0]["loss"] == 0 and loop.rows[0]["task_accuracy"] == 0
