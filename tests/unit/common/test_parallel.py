"""Work over processes: order kept, errors passed on, a killed worker told."""

import os
import signal
from itertools import count, islice

import pytest

from pipeline_src.common import parallel
from pipeline_src.common.errors import PipelineError
from pipeline_src.common.parallel import count_workers, map_in_order


def square(number: int) -> int:
    return number * number


def fail(number: int) -> int:
    if number == 3:
        raise PipelineError("bad item", number, hint="mend it")
    return number


def die(number: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return number


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_results_come_in_order(workers):
    assert list(map_in_order(square, range(40), workers)) == [n * n for n in range(40)]


def test_items_are_read_as_workers_become_free():
    assert list(islice(map_in_order(square, count(), 2), 5)) == [0, 1, 4, 9, 16]


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_comes_as_it_is(workers):
    with pytest.raises(PipelineError, match="bad item: 3"):
        list(map_in_order(fail, range(10), workers))


@pytest.mark.parametrize("again", range(10))
def test_a_killed_worker_is_one_clear_error(again):
    """Whether it was killed while another one started or not."""
    with pytest.raises(PipelineError, match="worker process was killed"):
        list(map_in_order(die, range(3), 2))


def test_the_number_of_workers(monkeypatch):
    monkeypatch.setenv("PIPELINE_WORKERS", "3")
    assert count_workers() == 3
    monkeypatch.setenv("PIPELINE_WORKERS", "none")
    with pytest.raises(PipelineError, match="not a number of workers"):
        count_workers()
    monkeypatch.delenv("PIPELINE_WORKERS")
    assert count_workers() == len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("nodes", "first"),
    [
        ("node07", "node07"),
        ("a1,a2", "a1"),
        ("node[03-05,9],x", "node03"),
        ("gpu-[1,4]", "gpu-1"),
        ("n[001-100]", "n001"),
        ("rack[0-1]node[2-3]", "rack0node2"),
        ("rack[0-1]node[2-3]-ib,x[1-2]", "rack0node2-ib"),
    ],
)
def test_the_first_host_of_a_step(nodes, first):
    assert parallel._first_host({"SLURM_STEP_NODELIST": nodes}) == first


def test_a_batch_script_that_runs_one_process_of_many_is_a_team_of_one(monkeypatch):
    for name in ("RANK", "SLURM_STEP_NUM_TASKS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SLURM_NTASKS", "8")
    monkeypatch.setenv("SLURM_PROCID", "0")
    assert parallel.place() == (0, 1, 0)


@pytest.mark.parametrize(
    ("launched", "named"),
    [
        ({"RANK": "abc", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "a", "MASTER_PORT": "1"}, "RANK"),
        ({"RANK": "2", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "a", "MASTER_PORT": "1"}, "RANK"),
        ({"RANK": "0"}, "WORLD_SIZE"),
        ({"RANK": "0", "WORLD_SIZE": "0", "LOCAL_RANK": "0"}, "WORLD_SIZE"),
        ({"RANK": "0", "WORLD_SIZE": "2"}, "LOCAL_RANK"),
        ({"RANK": "0", "WORLD_SIZE": "²", "LOCAL_RANK": "0"}, "WORLD_SIZE"),
        ({"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0"}, "MASTER_ADDR"),
        ({"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "a"}, "MASTER_PORT"),
        ({"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "a", "MASTER_PORT": "x"}, "MASTER_PORT"),
        ({"SLURM_STEP_NUM_TASKS": "x"}, "SLURM_STEP_NUM_TASKS"),
        ({"SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "-1"}, "SLURM_PROCID"),
        ({"SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "0", "SLURM_LOCALID": ""}, "SLURM_LOCALID"),
        ({"SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "0", "SLURM_JOB_ID": "7_1"}, "SLURM_JOB_ID"),
    ],
)
def test_a_wrong_launcher_is_one_error(monkeypatch, launched, named):
    monkeypatch.setattr(os, "environ", dict(launched))
    with pytest.raises(PipelineError) as caught:
        parallel.place()
    assert caught.value.where == f"${named}"
