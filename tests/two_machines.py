"""Two machines with a network of their own between them, as namespaces of this one."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ADDRESSES = {"IPv4": ("10.77.0.1", "10.77.0.2"), "IPv6": ("fd00:77::1", "fd00:77::2")}
NAMES = ("first", "second")  # of the machines
INTERFACE = {"GLOO_SOCKET_IFNAME": "veth0"}  # else gloo takes the address of the machine's name, 127.0.1.1


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


@contextmanager
def two_machines(folder: Path) -> Iterator[Machines]:
    """Yield two machines that are not joined yet, or skip the test."""
    if os.geteuid() != 0 or not shutil.which("ip") or not shutil.which("unshare"):
        pytest.skip("network namespaces need root, ip (iproute2) and unshare (util-linux)")
    made = Machines(folder)
    try:
        yield made
    finally:
        made.part()
