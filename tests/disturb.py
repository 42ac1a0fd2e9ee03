"""Faults that strike a study while an engine runs it, and what came of it; ``tests.stress.chaos`` draws from these."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import mmap
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import yaml
from dvc.schema import COMPILED_LOCKFILE_SCHEMA
from voluptuous import Invalid

from tests.workflow.cluster import NODES, Cluster

# The variable by which a run's processes are known, whoever is their parent now.
RUN_ID = "DISTURBED_RUN"
HANG_SECONDS, MOMENT_SECONDS, POLL_SECONDS = 1800, 300, 0.01
ENGINES = {"snakemake": ["snakemake", "--cores", "2", "all"], "dvc": ["dvc", "repro"]}
MISSES = ("lost", "different", "half", "failed")
# Half of the faults wait for a write to one of these, where they may do most harm.
WATCHED = (
    *("dvc.lock", ".dvc/tmp", ".dvc/cache/files/md5", ".dvc/cache/runs", ".snakemake/dvc", "code", "data"),
    *("models/pretrained", "models/finetuned", "results", "results/predictions", "checkpoints"),
)
Lock = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Record:
    """What a finished study has: dvc.lock's stages, and output -> its files -> their hashes."""

    lock: Lock
    files: dict[str, dict[str, str]]

    @staticmethod
    def read(path: Path, stages: Iterable[str]) -> Record:
        """Leave out all but ``stages``: dvc.lock may hold those of another study that stood in this checkout before."""
        lock = {name: stage for name, stage in (read_lock(path) or {}).items() if name in stages}
        return Record(lock, {name: hash_files(path / name) for name in hashes(lock)})


@dataclass
class Attempt:
    """One start of an engine: what was recorded before, and the faults that struck it."""

    engine: str
    recorded: set[str]
    faults: list[str] = field(default_factory=list)
    text: str = ""
    status: int | None = None

    @property
    def lost(self) -> set[str]:
        """Stages that ran again though they were recorded; ``code`` looks at the code at every start."""
        return self.recorded & set(stages_begun(self.text)) - {"code"}


@dataclass
class Run:
    """A study in ``path``, what strikes it, and what came of it: ``lost``, ``different``, ``half``, ``failed``.

    ``max_pause`` is the longest time, in seconds, from the start of a stage to a fault.
    """

    path: Path
    environment: Mapping[str, str]
    undisturbed: Record
    draw: random.Random
    max_pause: float
    kinds: Mapping[str, Callable[[Run], None]] = field(default_factory=lambda: KINDS)
    engines: Mapping[str, list[str]] = field(default_factory=lambda: ENGINES)
    run_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    attempts: list[Attempt] = field(default_factory=list)
    repaired: list[str] = field(default_factory=list)
    different: set[str] = field(default_factory=set)
    half: set[str] = field(default_factory=set)
    failed: list[str] = field(default_factory=list)
    engine: subprocess.Popen[bytes] = field(init=False)

    @property
    def lost(self) -> set[str]:
        return set().union(*(attempt.lost for attempt in self.attempts))

    @property
    def faults(self) -> Counter[str]:
        return Counter(fault for attempt in self.attempts for fault in attempt.faults)

    @property
    def good(self) -> bool:
        return not any(getattr(self, miss) for miss in MISSES)

    def __str__(self) -> str:
        repaired = format_counts(Counter(self.repaired)) or "nothing"
        text = f"{format_counts(self.faults)}; {len(self.attempts)} starts; repaired {repaired}"
        for miss in MISSES:
            text += f"; {miss.upper()}: {', '.join(sorted(getattr(self, miss)))}" if getattr(self, miss) else ""
        return text

    def to_end(self, max_faults: int) -> None:
        """Start engines until one ends by itself, through at most ``max_faults`` faults, and compare."""
        try:
            while len(self.failed) < 3:
                attempt = self._start(max_faults - self.faults.total())
                self.attempts.append(attempt)
                if attempt.status == 0:
                    break
                if not attempt.faults:
                    self._remedy(attempt)
                self._fill_cache(attempt)
            self._wait_for_orphans()
        finally:
            kill_all(self.run_id)
        expected = self.undisturbed
        actual = Record.read(self.path, expected.lock)
        for before, after in ((hashes(expected.lock), hashes(actual.lock)), (expected.files, actual.files)):
            self.different |= {name for name in before if before[name] != after.get(name)}
        status = self.run("dvc", "status")
        if "up to date" not in status:
            self.failed.append(f"dvc status: {status}")

    def run(self, *command: str) -> str:
        """Run a command in the study, which no fault strikes; return its output."""
        streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        return subprocess.run(command, cwd=self.path, env=self.environment, text=True, **streams).stdout

    def ended_within(self, seconds: float) -> bool:
        """Wait for the engine's end, at most so long; return whether it has ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.engine.wait(seconds)
        return self.engine.returncode is not None

    def _start(self, max_faults: int) -> Attempt:
        """Start an engine; let at most ``max_faults`` faults strike it; return when it has ended."""
        engine = self.draw.choice(sorted(self.engines))
        attempt, before = Attempt(engine, self.recorded()), self._job_logs()
        with tempfile.NamedTemporaryFile() as output:

            def read_logs() -> str:
                logs = [*sorted(self._job_logs() - before), Path(output.name)]
                return "\n".join(log.read_text(errors="replace") for log in logs)

            environment = {**self.environment, RUN_ID: self.run_id}
            files: dict[str, Any] = {"stdout": output, "stderr": output}
            self.engine = subprocess.Popen(
                self.engines[engine], cwd=self.path, env=environment, process_group=0, **files
            )
            while len(attempt.faults) < max_faults and not self._ended_before_fault(read_logs):
                kind = self.draw.choice(sorted(self.kinds))
                attempt.faults.append(kind)
                self.kinds[kind](self)
            if not self.ended_within(HANG_SECONDS):
                self.failed.append(f"{engine} hangs")
                kill_engine(self)
            attempt.text = read_logs()
        if not processes(self.run_id):
            for name, hashed in self.undisturbed.files.items():
                if (self.path / name).exists() and hash_files(self.path / name) != hashed:
                    self.half.add(name)
        attempt.status = self.engine.returncode
        return attempt

    def _ended_before_fault(self, read_logs: Callable[[], str]) -> bool:
        """Wait for the moment of the next fault; return whether the engine has ended before.

        The moment is drawn: at most one more stage begins, and then a pause or a write passes. It comes when the stage
        after that begins, at the latest. So a study of many stages is struck often, however fast the machine is.
        """

        def num_begun() -> int:
            return sum(stage != "code" for stage in stages_begun(read_logs()))

        begun = num_begun() + self.draw.choice([0, 1])
        deadline = time.monotonic() + MOMENT_SECONDS
        while num_begun() < begun and time.monotonic() < deadline:
            if self.ended_within(POLL_SECONDS):
                return True
        watched = self.path / self.draw.choice(WATCHED) if self.draw.random() < 0.5 else None
        deadline = time.monotonic() + (MOMENT_SECONDS if watched else self.draw.uniform(0, self.max_pause))
        before = _mtime(watched)
        while num_begun() <= begun and time.monotonic() < deadline:
            if self.ended_within(POLL_SECONDS):
                return True
            if _mtime(watched) != before:
                return self.ended_within(self.draw.uniform(0, 0.1))
        return False

    def _remedy(self, attempt: Attempt) -> None:
        """Do what the manual says about an engine that failed although nothing struck it."""
        waited = self._wait_for_orphans()
        # A job that was cancelled may have ended after squeue named it; but not twice.
        before = self.attempts[-2:-1]
        ended = "are active" in attempt.text and not any("are active" in start.text for start in before)
        if "Unable to read RWLock-file" in attempt.text or ("is busy" in attempt.text and not waited):
            (self.path / ".dvc/tmp/rwlock").unlink(missing_ok=True)
            self.repaired.append("rwlock")
        elif (
            re.search(r"'./dvc.lock' validation failed|unexpected error", attempt.text) and read_lock(self.path) is None
        ):
            self.run("git", "checkout", "-q", "dvc.lock")
            self.repaired.append("dvc.lock")
        elif ended or (waited and re.search("is busy|runs already|are active", attempt.text)):
            self.repaired.append("waited")
        else:
            self.failed.append(f"{attempt.engine}: {attempt.text[-3000:]}")

    def _fill_cache(self, attempt: Attempt) -> None:
        """Put recorded outputs into DVC's cache, as the manual says, that a full disk has kept out of it."""
        if "failed to transfer" not in attempt.text:
            return
        self._wait_for_orphans()
        recorded = {name: hashes({name: self.undisturbed.lock[name]}) for name in sorted(self.recorded())}
        there = [name for name, outs in recorded.items() if all((self.path / out).exists() for out in outs)]
        # Without names, DVC would commit all stages.
        if there:
            self.run("dvc", "commit", "-q", "-f", *there)
            self.repaired.append("cache")

    def _wait_for_orphans(self) -> bool:
        """Wait for processes and Slurm jobs that go on without their engine; return whether there were any."""
        waited, deadline = False, time.monotonic() + HANG_SECONDS
        while orphans := processes(self.run_id) or self._slurm_jobs():
            waited = True
            if time.monotonic() > deadline:
                self.failed.append(f"orphans hang: {orphans}")
                kill_all(self.run_id)
                break
            time.sleep(0.5)
        return waited

    def _slurm_jobs(self) -> list[str]:
        squeue = shutil.which("squeue", path=self.environment.get("PATH"))
        lines = self.run(squeue, "--me", "--noheader", "--format=%i|%Z").splitlines() if squeue else []
        return [line for line in lines if line.endswith(f"|{self.path}")]

    def _job_logs(self) -> set[Path]:
        """Return what Slurm's jobs have said; those of other engines say it to their engine."""
        return set((self.path / ".snakemake/slurm_logs").rglob("*.log"))

    def recorded(self) -> set[str]:
        """Return the stages that dvc.lock has with the commands, inputs and outputs of the undisturbed study."""
        lock = read_lock(self.path) or {}
        return {name for name, stage in lock.items() if _entry(stage) == _entry(self.undisturbed.lock.get(name, {}))}


def kill_engine(run: Run) -> None:
    kill_all(run.run_id)
    run.engine.wait()


def kill_process(run: Run) -> None:
    """Kill one process that the engine has started: a stage, its DVC, a shell, a worker; not those below it."""
    started = [process for process in processes(run.run_id) if process.pid != run.engine.pid]
    if started:
        with contextlib.suppress(psutil.NoSuchProcess):
            run.draw.choice(started).kill()


def kill_group(run: Run) -> None:
    """Kill the engine without its Slurm jobs."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(run.engine.pid, signal.SIGKILL)


def interrupt(run: Run) -> None:
    """Send SIGINT or SIGTERM to the engine alone, as a scheduler does, or to all, as a terminal does."""
    send = run.draw.choice([os.kill, os.killpg])
    with contextlib.suppress(ProcessLookupError):
        send(run.engine.pid, run.draw.choice([signal.SIGINT, signal.SIGTERM]))


def fill_disk(run: Run) -> None:
    """Leave the study's disk next to no room for some seconds."""
    filler, disk = run.path.parent / "filler", os.statvfs(run.path)
    room = disk.f_bavail * disk.f_frsize - run.draw.choice([0, 4096, 10**5, 10**6, 4 * 10**6])
    with filler.open("wb") as file, contextlib.suppress(OSError):
        os.posix_fallocate(file.fileno(), 0, max(room, 1))
    run.ended_within(run.draw.uniform(1, 10))
    filler.unlink()


@contextlib.contextmanager
def small_disk(path: Path, size: str) -> Iterator[bool]:
    """Mount a small disk in memory at ``path``, or make a plain folder where that is not allowed; say which."""
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(path)]
    mounted = not subprocess.run(command, capture_output=True, check=False).returncode
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", path], check=True)
        shutil.rmtree(path)


class Clock:
    """A clock that jumps for all processes with ``variables``."""

    def __init__(self, folder: Path) -> None:
        source, library, offset = Path(__file__).with_name("clock.c"), folder / "clock.so", folder / "clock.offset"
        subprocess.run(["cc", "-shared", "-fPIC", "-O", "-o", library, source, "-ldl"], check=True, capture_output=True)
        offset.write_bytes(bytes(4))
        with offset.open("r+b") as file:
            self._offset = mmap.mmap(file.fileno(), 4)
        self.variables = {"LD_PRELOAD": str(library), "CLOCK_OFFSET": str(offset)}

    def set(self, seconds: int) -> None:
        """Set the difference from this machine's clock."""
        self._offset[:] = seconds.to_bytes(4, sys.byteorder, signed=True)

    def jump(self, run: Run) -> None:
        self.set(run.draw.choice([-48, -5, -1, 1, 5, 48]) * 3600 + run.draw.randrange(3600))


def crash_daemon(cluster: Cluster) -> Callable[[Run], None]:
    """Return the fault that kills one of Slurm's daemons and starts it again after some seconds."""

    def crash(run: Run) -> None:
        daemon = run.draw.choice(["slurmctld", *(f"slurmd-node{number}" for number in range(1, NODES + 1))])
        cluster.kill(daemon)
        time.sleep(run.draw.uniform(0.5, 10))
        cluster.start(daemon)

    return crash


def hold_dvc_lock(run: Run) -> None:
    """Keep DVC's commands from starting and from recording, as a slow `dvc push` does."""
    with contextlib.suppress(FileNotFoundError), open(run.path / ".dvc/tmp/lock", "r+") as lock:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        run.ended_within(run.draw.uniform(1, 15))


def exchange_file(run: Run) -> None:
    """Put other bytes of the same number and time in place of a recorded output that stages read, then it itself."""
    recorded = [run.path / output for output in hashes(read_lock(run.path) or {}) if output != "code"]
    files = [file for output in recorded for file in (output, *output.rglob("*"))]
    files = sorted(file for file in files if file.is_file() and file.stat().st_size)
    if not files:
        return
    path, aside = run.draw.choice(files), run.path.parent / "aside"
    # DVC or a stage may remove it.
    with contextlib.suppress(FileNotFoundError):
        content, state = path.read_bytes(), path.stat()
        path.rename(aside)
        path.write_bytes(content[::-1])
        os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
        run.ended_within(run.draw.uniform(0, 3))
        if path.exists():
            aside.rename(path)


def forget_runs(run: Run) -> None:
    """Delete DVC's run-cache, which a clone lacks that was pulled without it."""
    shutil.rmtree(run.path / ".dvc/cache/runs", ignore_errors=True)


def cut_lock(run: Run) -> None:
    """Kill everything, cut dvc.lock off anywhere, and start Snakemake, as the manual says; without the run-cache."""
    kill_engine(run)
    forget_runs(run)
    lock = run.path / "dvc.lock"
    if lock.exists():
        os.truncate(lock, run.draw.randrange(lock.stat().st_size + 1))
    run.run("snakemake", "-n", "all")


KINDS: dict[str, Callable[[Run], None]] = {
    "engine": kill_engine,
    "process": kill_process,
    "signal": interrupt,
    "held lock": hold_dvc_lock,
    "exchange": exchange_file,
    "run-cache": forget_runs,
    "cut lock": cut_lock,
}


def processes(run_id: str) -> list[psutil.Process]:
    """Return the living processes of a run, orphans included, zombies not."""
    living = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(RUN_ID) == run_id:
                living.append(process)
    return living


def kill_all(run_id: str) -> None:
    """End all processes of a run at once, as a machine that goes down does."""
    while living := processes(run_id):
        for process in living:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        # psutil.wait_procs would take the engine's status from its Popen.
        time.sleep(0.02)


def read_lock(path: Path) -> Lock | None:
    """Return the stages of dvc.lock; None if DVC cannot read it, since a kill has cut it off."""
    with contextlib.suppress(yaml.YAMLError, UnicodeDecodeError, Invalid):
        if (path / "dvc.lock").exists():
            return COMPILED_LOCKFILE_SCHEMA(yaml.safe_load((path / "dvc.lock").read_bytes())).get("stages", {})
        return {}
    return None


def hashes(lock: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Return the hash of every output in dvc.lock by its path."""
    outputs = [out for stage in lock.values() for out in stage.get("outs", [])]
    return {out["path"]: out.get("md5", "") for out in outputs}


def hash_files(path: Path) -> dict[str, str]:
    """Return the hash of every file of an output by its path; of a file by ``.``."""
    files = [file for file in (path, *path.rglob("*")) if file.is_file()]
    return {str(file.relative_to(path)): hashlib.md5(file.read_bytes()).hexdigest() for file in files}


def stages_begun(log: str) -> list[str]:
    return re.findall(r"^Running stage '([^']+)'", log, re.MULTILINE)


def _mtime(path: Path | None) -> int:
    with contextlib.suppress(OSError):
        return path.stat().st_mtime_ns if path else 0
    return 0


def _entry(stage: Mapping[str, Any]) -> list[Any]:
    return [*(stage.get(part) for part in ("cmd", "deps", "params")), hashes({"": stage})]


def format_counts(counter: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counter.items()))
