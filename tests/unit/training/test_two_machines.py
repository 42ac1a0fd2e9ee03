"""Training on two simulated machines that are connected by their own network."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.two_machines import ADDRESSES, NAMES, Machines, two_machines
from tests.unit.training.processes import new_study

pytestmark = pytest.mark.slow  # each starts two trainings
PROGRAM = "from tests.unit.pretrain.small import train_short; train_short()"
PATIENCE = 240  # seconds


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    with two_machines(tmp_path) as made:
        yield made


def train(
    machines: Machines, family: str, study: Path, root: Path, command: list[str], status: int = 0, **more: str
) -> list[str]:
    """Train on both machines, check that they end with ``status``, and return their outputs."""
    if not machines.join(ADDRESSES[family]):
        pytest.skip("this host makes no network namespaces")
    started = []
    for rank in range(2):
        step = {"SLURM_PROCID": str(rank), "SLURM_LOCALID": "0", "SLURM_STEP_NUM_TASKS": "2", "MASTER_PORT": "29500"}
        started.append(machines.start(rank, command, study, root, **({} if "--nnodes" in command else step), **more))
    try:
        texts = [process.communicate(timeout=PATIENCE)[0] for process in started]
    finally:
        for process in started:
            process.kill()
    assert [process.returncode for process in started] == [status, status], "\n".join(texts)[-4000:]
    assert (study / "models/pretrained/phase1/model.safetensors").exists() == (status == 0)
    return texts


@pytest.mark.parametrize("family", ADDRESSES)
def test_srun_tasks_on_two_machines_connect(machines, family, tmp_path, root):
    """The first machine's name, looked up there, gives an address that the other cannot reach."""
    changes = json.dumps({"phase1": 5})
    command = [sys.executable, "-c", PROGRAM, changes]
    train(machines, family, new_study(tmp_path / "study"), root, command, SLURM_STEP_NODELIST=",".join(NAMES))


def test_srun_tasks_at_loopback_address_name_variable_to_set(machines, tmp_path, root):
    """Without GLOO_SOCKET_IFNAME, each machine tells the other its loopback address, 127.0.1.1."""
    command, names = [sys.executable, "-c", PROGRAM, json.dumps({"phase1": 5})], ",".join(NAMES)
    alone = {"GLOO_SOCKET_IFNAME": "", "PIPELINE_HUNG_AFTER": "5", "SLURM_STEP_NODELIST": names}
    texts = train(machines, "IPv4", new_study(tmp_path / "study"), root, command, 1, **alone)
    assert any("cannot connect" in text and "GLOO_SOCKET_IFNAME" in text for text in texts)


def test_torchrun_workers_on_two_machines_connect(machines, tmp_path, root):
    """The documented command is used, with the first machine's name."""
    shape = ["--nnodes", "2", "--nproc-per-node", "1", "--max-restarts", "0", "--rdzv-backend", "c10d"]
    launcher = [sys.executable, str(root / "workflow/torchrun.py"), *shape, "--rdzv-endpoint", f"{NAMES[0]}:29400"]
    command = [*launcher, "--no-python", sys.executable, "-c", PROGRAM, json.dumps({"phase1": 5})]
    train(machines, "IPv4", new_study(tmp_path / "study"), root, command)
