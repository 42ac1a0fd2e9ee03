"""A real Slurm of two nodes on this machine, in a folder of its own.

Nothing is installed: Debian's packages are unpacked below the folder, and every daemon gets its files by options, so
root is not needed and the machine stays as it was. GPUs are stand-ins: links to ``/dev/null`` that Slurm hands out.
A Slurm that the machine already has is used as it is installed, with this configuration.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import psutil

PACKAGES = ("slurmctld", "slurmd", "slurm-client", "munge")
COMMANDS = ("sacct", "sacctmgr", "salloc", "sbatch", "scancel", "scontrol", "sinfo", "squeue", "srun", "sshare")
NODES, CPUS, GPUS, MEMORY = 2, 16, 8, 16_000
CONFIGURATION = """
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CryptoType=crypto/munge
PluginDir={plugins}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/pid/slurmctld
SlurmdPidFile={folder}/pid/slurmd-%n
SlurmctldLogFile={folder}/log/slurmctld
SlurmdLogFile={folder}/log/slurmd-%n
# with linuxproc the children of a killed job ran on beside its successor
ProctrackType=proctrack/pgid
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=1,bf_interval=1,sched_min_interval=0
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
JobRequeue=1
MpiDefault=none
ReturnToService=2
# finished jobs stay in squeue, where the executor looks for them
MinJobAge=3600
KillWait=5
GresTypes=gpu
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
{nodes}
PartitionName=cpu Nodes=ALL Default=YES MaxTime=UNLIMITED DefMemPerCPU=500 PriorityTier=10 State=UP
PartitionName=gpu Nodes=ALL MaxTime=UNLIMITED DefMemPerCPU=500 PriorityTier=10 State=UP
PartitionName=urgent Nodes=ALL MaxTime=UNLIMITED DefMemPerCPU=500 PriorityTier=20 State=UP
"""


class Unavailable(Exception):
    """Slurm cannot be had or started here; the text says why."""


class Cluster:
    """The cluster whose files lie in ``folder``.

    Attributes:
        environment: what a process needs to talk to it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        packed = self.folder / "root"
        self._plugins = Path("/usr/lib/x86_64-linux-gnu/slurm-wlm")
        self._programs = f"/usr/sbin{os.pathsep}{os.environ['PATH']}"
        self._own = {"SLURM_CONF": str(self.folder / "slurm.conf")}
        if not shutil.which("slurmctld", path=self._programs):
            libraries = next(packed.glob("usr/lib/*-linux-gnu"), packed)
            self._plugins = libraries / "slurm-wlm"
            self._programs = f"{packed}/usr/sbin{os.pathsep}{packed}/usr/bin"
            self._own["LD_LIBRARY_PATH"] = f"{self._plugins}{os.pathsep}{libraries}"
        self.environment = {"PATH": f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}"}

    def up(self) -> None:
        """Start it, and return when every node takes jobs.

        Raises:
            Unavailable: it cannot be unpacked or started here.
        """
        for name in ("state", "munge", "pid", "log", "dev", *(f"spool-node{n}" for n in range(1, NODES + 1))):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        self._configure()
        self._wrap()
        munge = self.folder / "munge"
        munge.chmod(0o711)
        (munge / "key").write_bytes(os.urandom(1024))
        (munge / "key").chmod(0o400)
        options = {"socket": "socket", "key-file": "key", "log-file": "log", "pid-file": "pid", "seed-file": "seed"}
        self._start("munged", "--force", *(f"--{name}={munge / file}" for name, file in options.items()))
        self._start("slurmctld", "-c")
        for number in range(1, NODES + 1):
            self.start(f"slurmd-node{number}")
        deadline = time.monotonic() + 120
        while len(self.ask("sinfo", "-h", "-N", "-p", "cpu", "-t", "idle", "-o", "%N").split()) < NODES:
            if time.monotonic() > deadline:
                logs = "\n".join(path.read_text()[-1000:] for path in (self.folder / "log").iterdir())
                raise Unavailable(f"its nodes do not come up:\n{logs}")
            time.sleep(0.2)

    def down(self) -> None:
        """End all daemons."""
        for name in (*(f"slurmd-node{n}" for n in range(1, NODES + 1)), "slurmctld", "../munge/pid"):
            with contextlib.suppress(FileNotFoundError, ValueError, psutil.NoSuchProcess):
                daemon = psutil.Process(int((self.folder / "pid" / name).read_text()))
                daemon.terminate()
                try:
                    daemon.wait(timeout=5)
                except psutil.TimeoutExpired:
                    daemon.kill()

    def start(self, daemon: str) -> None:
        """Start ``slurmctld`` or ``slurmd-NODE`` with the state that it had."""
        program, _, node = daemon.partition("-")
        step_daemon = shutil.which("slurmstepd", path=self._programs) or ""
        self._start(program, *(["-N", node, "-d", step_daemon] if node else []))

    def kill(self, daemon: str) -> None:
        """End ``slurmctld`` or ``slurmd-NODE`` at once."""
        os.kill(int((self.folder / "pid" / daemon).read_text()), signal.SIGKILL)

    def ask(self, *command: str) -> str:
        """What one of Slurm's commands says."""
        program = shutil.which(command[0], path=self.environment["PATH"]) or command[0]
        return subprocess.run([program, *command[1:]], text=True, capture_output=True, timeout=120).stdout

    def _configure(self) -> None:
        host = socket.gethostname().split(".")[0]
        ports = _free_ports(NODES + 1)
        nodes = [
            f"NodeName=node{n} NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[n]} CPUs={CPUS} Boards=1 "
            f"SocketsPerBoard=1 CoresPerSocket={CPUS} ThreadsPerCore=1 RealMemory={MEMORY} Gres=gpu:fake:{GPUS}"
            for n in range(1, NODES + 1)
        ]
        values = {"host": host, "port": ports[0], "user": getpass.getuser(), "nodes": "\n".join(nodes)}
        text = CONFIGURATION.format(folder=self.folder, plugins=self._plugins, **values)
        (self.folder / "slurm.conf").write_text(text)
        for number in range(GPUS):
            link = self.folder / "dev" / f"nvidia{number}"
            link.unlink(missing_ok=True)
            # Slurm wants a device.
            link.symlink_to("/dev/null")
        (self.folder / "gres.conf").write_text(
            f"AutoDetect=off\nNodeName=node[1-{NODES}] Name=gpu Type=fake "
            f"File={self.folder}/dev/nvidia[0-{GPUS - 1}] Flags=nvidia_gpu_env\n"
        )
        (self.folder / "cgroup.conf").write_text("CgroupAutomount=no\n")

    def _wrap(self) -> None:
        """Put commands that find this cluster by themselves into ``bin``: jobs get no ``SLURM_CONF``."""
        (self.folder / "bin").mkdir(exist_ok=True)
        settings = "".join(f"export {name}={value}\n" for name, value in self._own.items())
        for command in COMMANDS:
            wrapper = self.folder / "bin" / command
            wrapper.write_text(f'#!/bin/sh\n{settings}exec {shutil.which(command, path=self._programs)} "$@"\n')
            wrapper.chmod(0o755)

    def _start(self, *command: str) -> None:
        program = shutil.which(command[0], path=self._programs) or command[0]
        done = subprocess.run(
            [program, *command[1:]],
            env=os.environ | self._own,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=120,
        )
        if done.returncode:
            raise Unavailable(f"{command[0]} does not start: {done.stdout.strip()[-500:]}")


def unpack(folder: Path) -> None:
    """Put Slurm's programs below ``folder/root``, unless the machine has them.

    Raises:
        Unavailable: there is no apt here, or it has no Slurm or no network.
    """
    if shutil.which("slurmctld", path=f"/usr/sbin{os.pathsep}{os.environ['PATH']}"):
        return
    if not (shutil.which("apt-get") and shutil.which("dpkg")):
        raise Unavailable("Slurm is not installed, and there is no apt to fetch it with")
    archives, root = folder / "packages", folder / "root"
    (archives / "partial").mkdir(parents=True, exist_ok=True)
    fetch = ["apt-get", "install", "-y", "-q", "--no-install-recommends", "--download-only"]
    fetch += ["-o", f"Dir::Cache::archives={archives.absolute()}", "-o", "Debug::NoLocking=1", *PACKAGES]
    done = subprocess.run(fetch, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    packages = sorted(archives.glob("*.deb"))
    if done.returncode or not packages:
        raise Unavailable(f"apt has no Slurm: {done.stdout.strip()[-300:]}")
    for package in packages:
        subprocess.run(["dpkg", "-x", package, root], check=True)
    # They get the names that `update-alternatives` would give.
    for program in root.glob("usr/*bin/*-wlm"):
        program.with_name(program.name.removesuffix("-wlm")).symlink_to(program.name)


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for sock in sockets:
            sock.bind(("127.0.0.1", 0))
        return [sock.getsockname()[1] for sock in sockets]
