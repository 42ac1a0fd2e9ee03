"""Which GPU a process takes, on a machine whose GPUs are pretended."""

from types import SimpleNamespace

import pytest
import torch

from pipeline_src.common.errors import PipelineError
from pipeline_src.training import distributed, free_gpu
from pipeline_src.training.distributed import Distributed, single_process


@pytest.fixture
def gpus(monkeypatch, tmp_path):
    """Says how many GPUs this process sees, and lists those that were set."""
    monkeypatch.setattr(free_gpu.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(free_gpu, "_HELD", [])
    monkeypatch.delenv(free_gpu.VISIBLE, raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    chosen = []
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: chosen.append(device.index))

    def see(count: int) -> list[int]:
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
        return chosen

    yield see
    for lock in free_gpu._HELD:
        lock.close()


@pytest.mark.parametrize(("seen", "local_rank", "number"), [(1, 3, 0), (8, 3, 3), (4, 5, 1)])
def test_a_task_that_sees_its_own_gpu_alone_takes_number_0(gpus, seen, local_rank, number):
    """``--gpus-per-task 1``: the number among the tasks of a machine is not that of a device."""
    chosen = gpus(seen)
    assert distributed._own_device(local_rank) == torch.device("cuda", number)
    assert chosen == [number]


def test_two_processes_on_one_gpu_are_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid="GPU-1"))

    class Two(Distributed):
        def gather(self, value):
            return [("node1", "GPU-1"), ("node1", "GPU-2"), ("node2", "GPU-1"), *others]

    world = Two(0, 4, torch.device("cuda", 0))
    others = [("node2", "GPU-2")]
    distributed._check_devices(world)
    others = [("node1", "GPU-2")]
    with pytest.raises(PipelineError, match="processes 1 and 3 have the same"):
        distributed._check_devices(world)


def test_trainings_side_by_side_take_different_gpus(gpus):
    chosen = gpus(3)
    devices = [single_process().device for _ in range(4)]
    assert [device.index for device in devices] == chosen == [0, 1, 2, 0]  # the fourth shares
    free_gpu._HELD.pop(1).close()  # one ends
    assert single_process().device.index == 1


def test_gpus_are_told_apart_by_what_cuda_was_told_to_see(gpus, monkeypatch):
    gpus(2)
    monkeypatch.setenv(free_gpu.VISIBLE, "4,5")
    assert [single_process().device.index for _ in range(2)] == [0, 1]
    monkeypatch.setenv(free_gpu.VISIBLE, "5,6")
    assert single_process().device.index == 1  # 6; 5 is taken
    gpus(1)
    assert single_process().device.index == 0
