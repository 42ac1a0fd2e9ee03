"""Maps over processes, and ranks given by launchers."""

import os
import signal
from itertools import count, islice

import pytest

from pipeline_src.base import parallel
from pipeline_src.base.errors import PipelineError
from pipeline_src.base.parallel import count_workers, map_in_order


def square(number: int) -> int:
    return number * number


def fail(number: int) -> int:
    if number == 3:
        raise PipelineError("bad item", number, hint="fix it")
    return number


def die(number: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return number


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_map_in_order_keeps_order_with_any_number_of_workers(workers):
    assert list(map_in_order(square, range(40), workers)) == [n * n for n in range(40)]
    assert list(islice(map_in_order(square, count(), workers), 5)) == [0, 1, 4, 9, 16]  # reads items as workers finish


@pytest.mark.parametrize("workers", [1, 2])
def test_map_in_order_raises_error_of_worker(workers):
    with pytest.raises(PipelineError, match="bad item: 3"):
        list(map_in_order(fail, range(10), workers))


@pytest.mark.parametrize("repetition", range(5))
def test_map_in_order_killed_worker_raises_pipeline_error(repetition):
    """Also while another worker is starting."""
    with pytest.raises(PipelineError, match="worker process was killed"):
        list(map_in_order(die, range(3), 2))


def test_count_workers_reads_environment(monkeypatch):
    monkeypatch.setenv("PIPELINE_WORKERS", "3")
    assert count_workers() == 3
    for value in ("none", "0"):
        monkeypatch.setenv("PIPELINE_WORKERS", value)
        with pytest.raises(PipelineError, match="invalid number of workers"):
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
        ("rack[0-1]node[2-3]-ib,x[1-2]", "rack0node2-ib"),
    ],
)
def test_first_host_is_first_of_node_list(nodes, first):
    assert parallel._first_host({"SLURM_STEP_NODELIST": nodes}) == first


TORCHRUN = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "a", "MASTER_PORT": "1"}
SRUN = {"SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "3", "SLURM_LOCALID": "1", "SLURM_JOB_ID": "71001"}


@pytest.mark.parametrize(
    ("environment", "rank"),
    [
        ({}, (0, 1, 0)),
        (TORCHRUN, (1, 2, 0)),
        (SRUN, (3, 4, 1)),
        ({"SLURM_NTASKS": "8", "SLURM_PROCID": "0"}, (0, 1, 0)),  # a batch script that runs one process
    ],
)
def test_process_rank_is_read_from_launcher_variables(monkeypatch, environment, rank):
    monkeypatch.setattr(os, "environ", dict(environment))
    assert parallel.process_rank() == rank
    if environment is SRUN:
        assert os.environ["MASTER_ADDR"] == "localhost" and os.environ["MASTER_PORT"] == "29401"


@pytest.mark.parametrize(
    ("environment", "name"),
    [
        (TORCHRUN | {"RANK": "abc"}, "RANK"),
        (TORCHRUN | {"RANK": "2"}, "RANK"),
        ({"RANK": "0"}, "WORLD_SIZE"),
        (TORCHRUN | {"WORLD_SIZE": "0"}, "WORLD_SIZE"),
        (TORCHRUN | {"WORLD_SIZE": "²"}, "WORLD_SIZE"),
        ({"RANK": "0", "WORLD_SIZE": "2"}, "LOCAL_RANK"),
        ({"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0"}, "MASTER_ADDR"),
        ({"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "a"}, "MASTER_PORT"),
        (TORCHRUN | {"MASTER_PORT": "x"}, "MASTER_PORT"),
        (TORCHRUN | {"MASTER_PORT": "65536"}, "MASTER_PORT"),
        ({"SLURM_STEP_NUM_TASKS": "x"}, "SLURM_STEP_NUM_TASKS"),
        (SRUN | {"SLURM_PROCID": "-1"}, "SLURM_PROCID"),
        (SRUN | {"SLURM_LOCALID": ""}, "SLURM_LOCALID"),
        (SRUN | {"SLURM_JOB_ID": "7_1"}, "SLURM_JOB_ID"),
    ],
)
def test_process_rank_invalid_variable_is_rejected(monkeypatch, environment, name):
    monkeypatch.setattr(os, "environ", dict(environment))
    with pytest.raises(PipelineError) as caught:
        parallel.process_rank()
    assert caught.value.where == f"${name}"
