"""Two machines with a network of their own between them, as namespaces of this one: what each can and cannot see."""

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.training.processes import new_study

ADDRESSES = {"IPv4": ("10.77.0.1", "10.77.0.2"), "IPv6": ("fd00:77::1", "fd00:77::2")}
NAMES = ("first", "second")  # of the machines
INTERFACE = {"GLOO_SOCKET_IFNAME": "veth0"}  # else gloo takes the address of the machine's name, 127.0.1.1
pytestmark = pytest.mark.slow  # each starts two trainings
PROGRAM = "from tests.unit.pretraining.small import train_short; train_short()"
PATIENCE = 240  # seconds


def ip(*words: str) -> bool:
    return subprocess.run(["ip", *words], capture_output=True, check=False).returncode == 0


class Machines:
    """Two network namespaces, joined by one link; Debian's way, each knows its own name as 127.0.1.1."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.spaces = [f"{name}-{os.getpid()}" for name in NAMES]

    def join(self, addresses: tuple[str, str]) -> bool:
        """Whether this host let it be done."""
        first, two = self.spaces
        link = ["link", "add", "veth0", "netns", first, "type", "veth", "peer", "name", "veth0", "netns", two]
        done = ip("netns", "add", first) and ip("netns", "add", two) and ip(*link)
        for number, space in enumerate(self.spaces):
            own, second = addresses[number], addresses[1 - number]
            form = [f"{own}/64", "nodad"] if ":" in own else [f"{own}/24"]
            done = done and ip("-n", space, "addr", "add", form[0], "dev", "veth0", *form[1:])
            done = done and ip("-n", space, "link", "set", "veth0", "up") and ip("-n", space, "link", "set", "lo", "up")
            hosts = f"127.0.0.1 localhost\n127.0.1.1 {NAMES[number]}\n{second} {NAMES[1 - number]}\n"
            (self.folder / f"{space}.hosts").write_text(hosts)
        return done

    def start(self, number: int, command: list[str], study: Path, root: Path, **more: str) -> subprocess.Popen[str]:
        """A program on one of them, in a folder that both see."""
        hosts = shlex.quote(str(self.folder / f"{self.spaces[number]}.hosts"))
        inner = f"hostname {NAMES[number]} && mount --bind {hosts} /etc/hosts && exec {shlex.join(command)}"
        outer = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "MASTER_"))}
        return subprocess.Popen(
            ["ip", "netns", "exec", self.spaces[number], "unshare", "--uts", "sh", "-c", inner],
            cwd=study, env=outer | {"PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"} | INTERFACE | more, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def part(self) -> None:
        """Take all of it down again."""
        for space in self.spaces:
            ip("netns", "del", space)


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    if os.geteuid() != 0 or not shutil.which("ip") or not shutil.which("unshare"):
        pytest.skip("network namespaces need root, ip (iproute2) and unshare (util-linux)")
    made = Machines(tmp_path)
    yield made
    made.part()


def train(
    machines: Machines, family: str, study: Path, root: Path, command: list[str], status: int = 0, **more: str
) -> list[str]:
    """Return the outputs of both, which must end with ``status``."""
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
    """By its name in the step's list; where the first looks it up, it is an address that nobody else reaches."""
    changes = json.dumps({"phase1": 5})
    command = [sys.executable, "-c", PROGRAM, changes]
    train(machines, family, new_study(tmp_path / "study"), root, command, SLURM_STEP_NODELIST=",".join(NAMES))


def test_srun_tasks_at_loopback_address_name_variable_to_set(machines, tmp_path, root):
    """Without GLOO_SOCKET_IFNAME each machine gives its name's address, 127.0.1.1, to the other."""
    command, names = [sys.executable, "-c", PROGRAM, json.dumps({"phase1": 5})], ",".join(NAMES)
    alone = {"GLOO_SOCKET_IFNAME": "", "PIPELINE_HUNG_AFTER": "5", "SLURM_STEP_NODELIST": names}
    texts = train(machines, "IPv4", new_study(tmp_path / "study"), root, command, 1, **alone)
    assert any("cannot connect" in text and "GLOO_SOCKET_IFNAME" in text for text in texts)


def test_torchrun_workers_on_two_machines_connect(machines, tmp_path, root):
    """The documented line; torchrun's own agents meet by the first machine's name."""
    shape = ["--nnodes", "2", "--nproc-per-node", "1", "--max-restarts", "0", "--rdzv-backend", "c10d"]
    launcher = [sys.executable, str(root / "workflow/torchrun.py"), *shape, "--rdzv-endpoint", f"{NAMES[0]}:29400"]
    command = [*launcher, "--no-python", sys.executable, "-c", PROGRAM, json.dumps({"phase1": 5})]
    train(machines, "IPv4", new_study(tmp_path / "study"), root, command)
