"""The loop's guards, its rows, and that what goes wrong in the data comes out whole."""

from dataclasses import dataclass, field

import numpy as np
import pytest
import torch

from pipeline_src.common.errors import PipelineError
from pipeline_src.training.distributed import alone
from pipeline_src.training.loop import Loop, Term, TrainState
from pipeline_src.training.optimiser import make_optimiser


@dataclass(frozen=True)
class Number:
    """A batch that is one number."""

    value: float
    counts: dict = field(default_factory=lambda: {"task": 2})
    examples: np.ndarray = field(default_factory=lambda: np.array([7, 11]))


def loop_over(values, last, reached=None, every=2):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout(0.5), torch.nn.Linear(2, 1))

    def objective(batch: Number) -> dict[str, Term]:
        return {"task": Term(model(torch.ones(1, 2)).sum() * batch.value, torch.tensor(1))}

    optimiser = make_optimiser(model, 0.1, 0.0)
    loop = Loop(
        model,
        objective,
        optimiser,
        lambda _: 0.1,
        last=last,
        row_ends=lambda step: step % every == 0,
        what="trying",
        stream=5,
        team=alone(),
        reached=reached,
    )
    return loop, model, optimiser, loop.run([Number(value)] for value in values)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_loss_that_is_no_number_stops_with_step_and_examples(bad):
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
    assert set(loop.rows[0]) == {"step", "loss", "task_loss", "task_accuracy", "grad_norm", "learning_rate"}


def test_a_loop_that_goes_on_in_the_middle_of_a_row_ends_alike():
    values = [1.0, -1.0, 2.0, 0.5, 1.5]
    whole, model, _, steps = loop_over(values, 5)
    list(steps)
    first, stopped, optimiser, steps = loop_over(values, 5)
    for step in steps:
        if step == 3:
            break
    steps.close()
    reached = first.reached()
    assert reached.count == 1 and reached.sums
    second, again, second_optimiser, steps = loop_over(values[3:], 5, TrainState(**vars(reached)))
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
