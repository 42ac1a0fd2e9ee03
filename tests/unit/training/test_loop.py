"""The training loop: its guards and rows, how batches are split, requests to stop."""

import itertools
import os
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import torch

from pipeline_src.__main__ import main
from pipeline_src.common.errors import Interrupted, PipelineError
from pipeline_src.training import loop as module
from pipeline_src.training.distributed import single_process
from pipeline_src.training.loop import (
    SIGNALS,
    Loop,
    LossTerm,
    Objective,
    TrainState,
    catch_stop_requests,
    split_balanced,
    split_greedy,
)
from pipeline_src.training.optimizers import make_optimizer
from tests.handlers import kept_handlers


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

    def forward(self, batch: Number) -> dict[str, LossTerm]:
        output = self.model(torch.ones(1, 2)).sum()
        return {"task": LossTerm(output * batch.value, torch.tensor(1)), "size": LossTerm(output**2)}


def loop_over(values, last, state=None, every=2, size_weight=0.0):
    torch.manual_seed(0)
    model = Product({"task": 1.0, "size": size_weight})

    optimizer = make_optimizer(model, 0.1, 0.0)
    loop = Loop(
        model,
        optimizer,
        lambda _: 0.1,
        last=last,
        log_at=lambda step: step % every == 0,
        name="trying",
        seed=5,
        distributed=single_process(),
        state=state,
    )
    return loop, model, optimizer, loop.run([Number(value)] for value in values)


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
    first, stopped, optimizer, steps = loop_over(values, 5)
    for step in steps:
        if step == 3:
            break
    steps.close()
    state = first.state()
    assert state.count == 1 and state.sums
    second, again, second_optimiser, steps = loop_over(values[3:], 5, TrainState(**vars(state)))
    again.load_state_dict(stopped.state_dict())
    second_optimiser.load_state_dict(optimizer.state_dict())
    list(steps)
    assert second.rows == whole.rows
    for one, two in zip(model.parameters(), again.parameters(), strict=True):
        assert torch.equal(one, two)


def test_what_the_data_raises_is_raised():
    def broken():
        yield [Number(1.0)]
        raise PipelineError("token shard is damaged", hint="run it again")

    loop, *_ = loop_over([], 5)
    with pytest.raises(PipelineError, match="damaged"):
        list(loop.run(broken()))


def test_a_row_counts_the_step_that_ends_it():
    loop, _, _, steps = loop_over([1.0] * 4, 4)
    counted: list[dict[str, float]] = []
    loop.on_step, loop._measure = counted.append, lambda: {"counted": len(counted)}
    assert [loop.throughput["counted"] for step in steps if step % 2 == 0] == [2, 4]
    assert counted[0]["task"] == 2


class Nothing(Product):
    """Of whose batches nothing is asked."""

    def count(self, batch: Number) -> dict[str, int]:
        return {"task": 0, "size": 0}

    def forward(self, batch: Number) -> dict[str, LossTerm]:
        nothing = 0.0 * self.model(torch.ones(1, 2)).sum()
        return {"task": LossTerm(nothing, torch.tensor(0)), "size": LossTerm(nothing)}


def test_a_batch_of_which_nothing_is_asked_has_a_loss_of_zero():
    model = Nothing({"task": 1.0, "size": 1.0})
    optimizer = make_optimizer(model, 0.1, 0.0)
    loop = Loop(
        model, optimizer, lambda _: 0.1, last=1, log_at=lambda step: True, name="trying", seed=5,
        distributed=single_process(),
    )  # fmt: skip
    list(loop.run([[Number(1.0)]]))
    assert loop.rows[0]["loss"] == 0 and loop.rows[0]["task_accuracy"] == 0


@pytest.mark.parametrize("tokens", [1, 20, 1000])
@pytest.mark.parametrize("cut", [split_greedy, split_balanced])
def test_pieces_keep_the_order_and_the_budget(cut, tokens):
    lengths = np.asarray([5, 12, 1, 3, 8, 25])
    pieces = cut(lengths, tokens)
    assert np.concatenate([lengths[piece] for piece in pieces]).tolist() == lengths.tolist()
    assert all(lengths[piece].sum() <= tokens or len(lengths[piece]) == 1 for piece in pieces)


def test_what_is_left_over_is_shared_out():
    """A batch of BERT-base on one GPU: 217 sequences of 128 tokens, of which 128 fit at once."""
    sums = [[int(lengths[piece].sum()) for piece in cut(lengths, 16_384)] for cut in (split_greedy, split_balanced)
            for lengths in [np.full(217, 128)]]  # fmt: skip
    assert sums == [[16_384, 11_392], [13_952, 13_824]]


def test_the_largest_of_even_pieces_is_as_small_as_can_be():
    rng = np.random.default_rng(0)
    for _ in range(30):
        lengths, tokens = rng.integers(1, 20, 9), int(rng.integers(20, 60))
        pieces, fewest = split_balanced(lengths, tokens), len(split_greedy(lengths, tokens))
        smallest = min(
            max(part.sum() for part in np.split(lengths, edges))
            for edges in itertools.combinations(range(1, len(lengths)), fewest - 1)
        )
        assert len(pieces) <= fewest and max(lengths[piece].sum() for piece in pieces) == smallest


def test_what_fits_is_not_cut():
    assert split_balanced(np.full(8, 16), 128) == split_balanced(np.full(8, 16), None) == [slice(0, 8)]


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_asks(number):
    before = signal.default_int_handler  # whatever a shell in the background has made of it
    kept = signal.signal(number, before)
    with catch_stop_requests() as stop_request:
        assert not stop_request
        os.kill(os.getpid(), number)
        assert stop_request
        message = str(stop_request.interrupted("training", 1200))
        assert number.name in message and "1,200" in message
    assert signal.signal(number, kept) is before


def test_a_signal_that_was_ignored_stays_so():
    """As SIGHUP under nohup."""
    with kept_handlers():
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        with catch_stop_requests() as stop_request:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not stop_request


def test_a_second_sigterm_ends_the_process_and_a_second_sigurg_or_the_same_handed_on_does_not():
    script = """
import os, signal, time
from pipeline_src.training import loop
with loop.catch_stop_requests():
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGTERM)
    loop.AGAIN = 0
    os.kill(os.getpid(), signal.SIGURG)
    print("alive", flush=True)
    os.kill(os.getpid(), signal.SIGTERM)
    print("not reached", flush=True)
"""
    root = Path(module.__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", script], cwd=root, capture_output=True, text=True)
    assert done.returncode == -signal.SIGTERM and done.stdout == "alive\n"


def test_outside_the_main_thread_nothing_is_caught():
    before, seen = signal.getsignal(signal.SIGTERM), []

    def work() -> None:
        with catch_stop_requests() as stop_request:
            seen.append(bool(stop_request))

    thread = threading.Thread(target=work)
    thread.start(), thread.join()
    assert seen == [False] and signal.getsignal(signal.SIGTERM) is before


def test_the_status_of_a_stage_that_was_stopped(monkeypatch, capsys):
    def stopped(*_: object) -> None:
        raise Interrupted("pretraining, short stopped by SIGTERM after step 5; its checkpoint is saved")

    monkeypatch.setattr("pipeline_src.__main__.run_stage", stopped)
    with kept_handlers():
        assert main(["pretrain", "--phase", "phase1"]) == Interrupted.STATUS == 75
    assert "run the same command again to continue" in capsys.readouterr().err
