"""Several processes on one batch: the same losses as one, one writer, and a stop that all agree on."""

import os
import shutil
import signal
import time
from pathlib import Path

import pytest

from pipeline_src.common.files import hash_file
from tests.unit.training.processes import SRUN, STEADY, TORCHRUN, assert_same, finish, launch, new_study, said


@pytest.fixture(scope="module")
def fresh(tmp_path_factory) -> Path:
    """What a training reads."""
    return new_study(tmp_path_factory.mktemp("study"))


@pytest.fixture
def study(fresh, tmp_path) -> Path:
    """A folder in which nothing was trained."""
    return shutil.copytree(fresh, tmp_path / "study")


@pytest.fixture(scope="module")
def alone(fresh, tmp_path_factory):
    """The folder in which one process trained, by optimiser."""
    folders = {}

    def trained(optimiser: str) -> Path:
        if optimiser not in folders:
            folder = folders[optimiser] = shutil.copytree(fresh, tmp_path_factory.mktemp("alone") / "study")
            assert finish(launch(folder, 1, {}, **STEADY, optimiser=optimiser)) == [0]
        return folders[optimiser]

    return trained


WORLDS = [(2, "none", "lamb", TORCHRUN), (2, "optimiser", "lamb", SRUN)]  # below is one with "full"
MORE_WORLDS = [
    *((size, sharding, "lamb", TORCHRUN) for size in (4, 8) for sharding in ("none", "optimiser", "full")),
    *((2, sharding, optimiser, TORCHRUN) for sharding in ("optimiser", "full") for optimiser in ("adamw", "bert_adam")),
]


@pytest.mark.parametrize(
    ("size", "sharding", "optimiser", "variables"),
    [*WORLDS, *(pytest.param(*world, marks=pytest.mark.slow) for world in MORE_WORLDS)],
)
def test_the_same_batch_gives_the_same_losses(study, alone, size, sharding, optimiser, variables):
    """To 1e-5 in float32 after twelve steps; what differs is the order of sums."""
    assert finish(launch(study, size, variables, **STEADY, sharding=sharding, optimiser=optimiser)) == [0] * size
    assert_same(study, alone(optimiser))


def test_a_checkpoint_goes_on_under_another_number_of_processes_and_sharding(study, alone):
    """What each process cuts differs in number, so that with full sharding some take a pass for nothing."""
    chain = [(2, "full", 4), (1, "none", 7), (3, "optimiser", 9), (2, "full", 0)]
    for size, sharding, stop in chain:
        changes = {**STEADY, "sharding": sharding, "optimiser": "lamb", "stop_after": stop}
        smaller = [{"max_tokens": 60 if rank == 0 else 20} for rank in range(size)]
        statuses = finish(launch(study, size, TORCHRUN if size > 1 else {}, smaller, **changes))
        assert statuses == [1 if stop else 0] * size
        if stop:
            assert max(path.name for path in study.glob("checkpoints/short/*/step-*")) == f"step-{stop:08d}"
    assert_same(study, alone("lamb"))


def test_processes_that_see_different_checkpoints_stop(study, fresh, tmp_path):
    assert finish(launch(study, 2, TORCHRUN, short=9, stop_after=5)) == [1, 1]
    other = shutil.copytree(fresh, tmp_path / "other")
    processes = launch([study, other], 2, TORCHRUN, short=9)
    texts = said(processes)
    assert [process.returncode for process in processes] == [1, 1]
    for text in texts:
        assert "the processes see different checkpoints: process 0 step 5" in text and "process 1 step 0" in text


def test_a_process_that_died_or_hangs_is_named_and_the_others_end(fresh, tmp_path, monkeypatch):
    """Three trainings side by side, for most of it is waiting."""
    monkeypatch.setenv("PIPELINE_HUNG_AFTER", "3")
    long = {"short": 100_000, "curve_points": 10_000}  # a row every ten steps
    studies = {way: shutil.copytree(fresh, tmp_path / way) for way in ("killed", "halted", "asleep")}
    running = {
        way: launch(study, 2, TORCHRUN, [{}, {"sleep_after": 30} if way == "asleep" else {}], **long)
        for way, study in studies.items()
    }
    for way, study in studies.items():
        curve = study / "logs/dvclive/short/plots/metrics/loss.tsv"
        deadline = time.monotonic() + 120
        while not curve.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        if way != "asleep":
            running[way][1].send_signal(signal.SIGKILL if way == "killed" else signal.SIGSTOP)
    began = time.monotonic()
    try:
        for main, _ in running.values():
            (text,) = said([main])
            assert main.returncode == 1
            assert f"have ended or hang: process 1 on {os.uname().nodename}" in text
        assert time.monotonic() - began < 40
    finally:
        for _, other in running.values():
            if other.returncode is None:
                other.send_signal(signal.SIGKILL)


def test_two_processes_that_are_stopped_go_on_to_the_same_bytes(study):
    folder = study
    changes = {"short": 60, "dropout": 0.1}
    assert finish(launch(folder, 2, TORCHRUN, **changes)) == [0, 0]
    expected = hash_file(folder / "models/pretrained/short/model.safetensors")
    shutil.rmtree(folder / "models")
    os.environ["PIPELINE_CHECKPOINT_MINUTES"] = "0"
    try:
        processes = launch(folder, 2, TORCHRUN, **changes)
        deadline = time.monotonic() + 120
        while not list(folder.glob("checkpoints/short/*/step-*")) and time.monotonic() < deadline:
            time.sleep(0.005)
        processes[1].send_signal(signal.SIGTERM)  # one is told, both stop
        assert finish(processes) == [1, 1]  # as the script does not turn Interrupted into a status
        steps = sorted(path.name for path in folder.glob("checkpoints/short/*/step-*"))
        assert steps and steps[-1] < "step-00000060"
    finally:
        del os.environ["PIPELINE_CHECKPOINT_MINUTES"]
    assert finish(launch(folder, 2, TORCHRUN, **changes)) == [0, 0]
    assert hash_file(folder / "models/pretrained/short/model.safetensors") == expected


def test_more_processes_than_sequences_is_one_clear_error(study):
    statuses = finish(launch(study, 2, TORCHRUN, short=2, batch=1))
    assert statuses == [1, 1]
