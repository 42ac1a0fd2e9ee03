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

RUN_ID = "DISTURBED_RUN"  # variable by which a run's processes are known, whoever is their parent now
HOUR = 3600
HANG_TIMEOUT = 300  # seconds
ORPHAN_TIMEOUT = 1800
POLL_SECONDS = 0.01
ENGINES = {"snakemake": ["snakemake", "--cores", "2", "all"], "dvc": ["dvc", "repro"]}
MISSES = ("lost", "different", "half", "failed")
# Half of the faults wait for a write to one of these, where they may do most harm.
WATCHED = (
    *("dvc.lock", ".dvc/tmp", ".dvc/cache/files/md5", ".dvc/cache/runs", ".snakemake/dvc", "code", "data"),
    *("models/pretrained", "models/finetuned", "results", "results/predictions", "checkpoints"),
)
Lock = dict[str, dict[str, Any]]
# The clock of a study's processes, which a test may set at any moment. Elapsed time and the times of files are those
# of the machine, so file times lie hours before or after now, as with a file server whose clock differs.
CLOCK = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>

static const int *offset;

__attribute__((constructor)) static void start(void) {
    int file = open(getenv("CLOCK_OFFSET"), O_RDONLY);
    void *shared = file < 0 ? MAP_FAILED : mmap(0, sizeof *offset, PROT_READ, MAP_SHARED, file, 0);
    if (shared != MAP_FAILED) offset = shared;
}
int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, now);
    if (clock == CLOCK_REALTIME && offset) now->tv_sec += *offset;
    return result;
}
int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec exact;
    int result = clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec, now->tv_usec = exact.tv_nsec / 1000;
    return result;
}
time_t time(time_t *copy) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (copy) *copy = now.tv_sec;
    return now.tv_sec;
}
"""


@dataclass
class Target:
    """A study in ``path`` whose processes have ``RUN_ID`` set to ``run_id``, and the engine at work on it."""

    path: Path
    run_id: str
    engine: subprocess.Popen[bytes]
    draw: random.Random
    environment: Mapping[str, str]

    def ended_within(self, seconds: float | None) -> bool:
        """Wait for the engine's end, at most so long; return whether it has ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.engine.wait(seconds)
        return self.engine.returncode is not None

    def ended(self) -> bool:
        """Wait for the engine's end; False if it hangs: its processes use no CPU time for minutes."""
        used = -1.0
        while not self.ended_within(HANG_TIMEOUT):
            before, used = used, sum(_cpu_seconds(process) for process in processes(self.run_id))
            if used == before:
                return False
        return True


Fault = Callable[[Target], None]


def processes(run_id: str) -> list[psutil.Process]:
    """Return the living processes of a run, orphans included, zombies not."""
    living = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(RUN_ID) == run_id:
                living.append(process)
    return living


def _cpu_seconds(process: psutil.Process) -> float:
    with contextlib.suppress(psutil.NoSuchProcess):
        times = process.cpu_times()
        return float(times.user + times.system)
    return 0.0


def kill_all(run_id: str) -> None:
    """End all processes of a run at once, as a machine that goes down does."""
    while living := processes(run_id):
        for process in living:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        time.sleep(0.02)  # psutil.wait_procs would take the engine's status from its Popen


def kill_engine(target: Target) -> None:
    kill_all(target.run_id)
    target.engine.wait()


def kill_process(target: Target) -> None:
    """Kill one process that the engine has started: a stage, its DVC, a shell, a worker; not those below it."""
    started = [process for process in processes(target.run_id) if process.pid != target.engine.pid]
    if started:
        with contextlib.suppress(psutil.NoSuchProcess):
            target.draw.choice(started).kill()


def kill_group(target: Target) -> None:
    """Kill the engine without its Slurm jobs."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(target.engine.pid, signal.SIGKILL)


def interrupt(target: Target) -> None:
    """Send SIGINT or SIGTERM to the engine alone, as a scheduler does, or to all, as a terminal does."""
    send = target.draw.choice([os.kill, os.killpg])
    with contextlib.suppress(ProcessLookupError):
        send(target.engine.pid, target.draw.choice([signal.SIGINT, signal.SIGTERM]))


def fill_disk(target: Target) -> None:
    """Leave the study's disk next to no room for some seconds."""
    filler = target.path.parent / "filler"
    disk = os.statvfs(target.path)
    room = disk.f_bavail * disk.f_frsize - target.draw.choice([0, 4096, 10**5, 10**6, 4 * 10**6])
    try:
        with filler.open("wb") as file, contextlib.suppress(OSError):
            os.posix_fallocate(file.fileno(), 0, max(room, 1))
        target.ended_within(target.draw.uniform(1, 10))
    finally:
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
        source, library, offset = (folder / name for name in ("clock.c", "clock.so", "clock.offset"))
        source.write_text(CLOCK)
        subprocess.run(["cc", "-shared", "-fPIC", "-O", "-o", library, source, "-ldl"], check=True, capture_output=True)
        offset.write_bytes(bytes(4))
        with offset.open("r+b") as file:
            self._offset = mmap.mmap(file.fileno(), 4)
        self.variables = {"LD_PRELOAD": str(library), "CLOCK_OFFSET": str(offset)}

    def set(self, seconds: int) -> None:
        """Set the difference from this machine's clock."""
        self._offset[:] = seconds.to_bytes(4, sys.byteorder, signed=True)

    def jump(self, target: Target) -> None:
        self.set(target.draw.choice([-48, -5, -1, 1, 5, 48]) * HOUR + target.draw.randrange(HOUR))


def crash_daemon(cluster: Cluster) -> Fault:
    """Return the fault that kills one of Slurm's daemons and starts it again after some seconds."""

    def crash(target: Target) -> None:
        daemon = target.draw.choice(["slurmctld", *(f"slurmd-node{number}" for number in range(1, NODES + 1))])
        cluster.kill(daemon)
        time.sleep(target.draw.uniform(0.5, 10))
        cluster.start(daemon)

    return crash


def hold_dvc_lock(target: Target) -> None:
    """Keep DVC's commands from starting and from recording, as a slow `dvc push` does."""
    with contextlib.suppress(FileNotFoundError), open(target.path / ".dvc/tmp/lock", "r+") as lock:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        target.ended_within(target.draw.uniform(1, 15))


def exchange_file(target: Target) -> None:
    """Put other bytes of the same number and time in place of a recorded output that stages read, then it itself."""
    recorded = [target.path / output for output in hashes(read_lock(target.path, damaged={})) if output != "code"]
    files = [file for output in recorded for file in ([output] if output.is_file() else output.rglob("*"))]
    files = sorted(file for file in files if file.is_file() and file.stat().st_size)
    if not files:
        return
    path, aside = target.draw.choice(files), target.path.parent / "aside"
    with contextlib.suppress(FileNotFoundError):  # DVC or a stage removed it
        content, state = path.read_bytes(), path.stat()
        path.rename(aside)
        path.write_bytes(content[::-1])
        os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
        target.ended_within(target.draw.uniform(0, 3))
        if path.exists():
            aside.rename(path)


def forget_runs(target: Target) -> None:
    """Delete DVC's run-cache, which a clone lacks that was pulled without it."""
    shutil.rmtree(target.path / ".dvc/cache/runs", ignore_errors=True)


def cut_lock(target: Target) -> None:
    """Kill everything, cut dvc.lock off anywhere, and start Snakemake, as the manual says; without the run-cache."""
    kill_engine(target)
    forget_runs(target)
    lock = target.path / "dvc.lock"
    if lock.exists():
        lock.write_bytes(lock.read_bytes()[: target.draw.randrange(lock.stat().st_size + 1)])
    environment = {**target.environment, RUN_ID: target.run_id}
    subprocess.run(["snakemake", "-n", "all"], cwd=target.path, env=environment, capture_output=True, check=False)


KINDS: dict[str, Fault] = {
    "engine": kill_engine,
    "process": kill_process,
    "signal": interrupt,
    "held lock": hold_dvc_lock,
    "exchange": exchange_file,
    "run-cache": forget_runs,
    "cut lock": cut_lock,
}


@dataclass
class Attempt:
    """One start of an engine, with the faults that struck it."""

    engine: str
    recorded: set[str]  # when it began, so that it must not run them
    faults: list[str] = field(default_factory=list)
    ran: list[str] = field(default_factory=list)
    text: str = ""
    status: int | None = None

    @property
    def lost(self) -> set[str]:
        """Stages that ran again though they were finished."""
        return self.recorded & set(self.ran) - {"code"}  # which looks at the code at every start


@dataclass
class Outcome:
    """What came of one run; all lists but ``attempts`` should be empty."""

    attempts: list[Attempt] = field(default_factory=list)
    repaired: list[str] = field(default_factory=list)
    different: set[str] = field(default_factory=set)
    half: set[str] = field(default_factory=set)
    failed: list[str] = field(default_factory=list)

    @property
    def lost(self) -> set[str]:
        return {stage for attempt in self.attempts for stage in attempt.lost}

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


@dataclass(frozen=True)
class Record:
    """What a finished study has: dvc.lock's stages, and output -> its files -> their hashes."""

    lock: Lock
    files: dict[str, dict[str, str]]

    @staticmethod
    def read(path: Path, stages: Iterable[str]) -> Record:
        """Leave out all but ``stages``: dvc.lock may hold those of another study that stood in this checkout before."""
        lock = {name: stage for name, stage in read_lock(path).items() if name in stages}
        return Record(lock, {name: hash_files(path / name) for name in hashes(lock)})


@dataclass
class Run:
    """A study in ``path``, and what strikes it.

    ``max_pause`` is the longest time, in seconds, from the start of a stage to a fault.
    """

    path: Path
    environment: Mapping[str, str]
    undisturbed: Record
    draw: random.Random
    max_pause: float
    kinds: Mapping[str, Fault] = field(default_factory=lambda: KINDS)
    engines: Mapping[str, list[str]] = field(default_factory=lambda: ENGINES)
    run_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    outcome: Outcome = field(default_factory=Outcome)

    def to_end(self, max_faults: int) -> Outcome:
        """Start engines until one ends by itself, through at most ``max_faults`` faults, and compare."""
        outcome = self.outcome
        try:
            while len(outcome.failed) < 3:
                attempt = self._start(max_faults - outcome.faults.total())
                outcome.attempts.append(attempt)
                if attempt.status == 0:
                    break
                if not attempt.faults:
                    self._remedy(attempt)
                self._fill_cache(attempt)
            self._wait_for_orphans()
        finally:
            kill_all(self.run_id)
        expected, actual = self.undisturbed, Record({}, {})
        if self._lock_is_whole():
            actual = Record.read(self.path, expected.lock)
        for before, after in ((hashes(expected.lock), hashes(actual.lock)), (expected.files, actual.files)):
            outcome.different |= {name for name in before if before[name] != after.get(name)}
        command = subprocess.run(["dvc", "status"], cwd=self.path, env=self.environment, text=True, capture_output=True)
        if "up to date" not in command.stdout:
            outcome.failed.append(f"dvc status: {command.stdout}{command.stderr}")
        return outcome

    def _start(self, max_faults: int) -> Attempt:
        """Start an engine; let at most ``max_faults`` faults strike it; return when it has ended."""
        engine = self.draw.choice(sorted(self.engines))
        attempt, before = Attempt(engine, self._recorded()), self._job_logs()
        with tempfile.NamedTemporaryFile() as output:

            def read_logs() -> str:
                logs = [*sorted(self._job_logs() - before), Path(output.name)]
                return "\n".join(log.read_text(errors="replace") for log in logs)

            process = subprocess.Popen(
                self.engines[engine], cwd=self.path, env={**self.environment, RUN_ID: self.run_id},
                stdout=output, stderr=output, process_group=0,
            )  # fmt: skip
            target = Target(self.path, self.run_id, process, self.draw, self.environment)
            while len(attempt.faults) < max_faults and not self._ended_before_fault(target, read_logs):
                kind = self.draw.choice(sorted(self.kinds))
                attempt.faults.append(kind)
                self.kinds[kind](target)
            if not target.ended():
                self.outcome.failed.append(f"{engine} hangs")
                kill_engine(target)
            attempt.text = read_logs()
        if not processes(self.run_id):
            self.outcome.half |= self._half_outputs()
        attempt.status = process.returncode
        attempt.ran = stages_begun(attempt.text)
        return attempt

    def _ended_before_fault(self, target: Target, read_logs: Callable[[], str]) -> bool:
        """Wait for the moment of the next fault; return whether the engine has ended before.

        The moment is drawn: at most one more stage begins, and then a pause or a write passes. It comes when the stage
        after that begins, at the latest. So a study of many stages is struck often, however fast the machine is.
        """

        def num_begun() -> int:
            return sum(stage != "code" for stage in stages_begun(read_logs()))

        begun = num_begun() + self.draw.choice([0, 1])
        deadline = time.monotonic() + HANG_TIMEOUT
        while num_begun() < begun and time.monotonic() < deadline:
            if target.ended_within(POLL_SECONDS):
                return True
        watched = self.path / self.draw.choice(WATCHED) if self.draw.random() < 0.5 else None
        deadline = time.monotonic() + (HANG_TIMEOUT if watched else self.draw.uniform(0, self.max_pause))
        before = _mtime(watched)
        while num_begun() <= begun and time.monotonic() < deadline:
            if target.ended_within(POLL_SECONDS):
                return True
            if _mtime(watched) != before:
                return target.ended_within(self.draw.uniform(0, 0.1))
        return False

    def _remedy(self, attempt: Attempt) -> None:
        """Do what the manual says about an engine that failed although nothing struck it."""
        waited = self._wait_for_orphans()
        # A job that was cancelled may have ended after squeue named it; but not twice.
        before = self.outcome.attempts[-2:-1]
        ended = "are at work" in attempt.text and not any("are at work" in start.text for start in before)
        if "Unable to read RWLock-file" in attempt.text or ("is busy" in attempt.text and not waited):
            (self.path / ".dvc/tmp/rwlock").unlink(missing_ok=True)
            self.outcome.repaired.append("rwlock")
        elif re.search(r"'./dvc.lock' validation failed|unexpected error", attempt.text) and not self._lock_is_whole():
            subprocess.run(["git", "checkout", "-q", "dvc.lock"], cwd=self.path, env=self.environment, check=True)
            self.outcome.repaired.append("dvc.lock")
        elif ended or (waited and re.search("is busy|runs already|are at work", attempt.text)):
            self.outcome.repaired.append("waited")
        else:
            self.outcome.failed.append(f"{attempt.engine}: {attempt.text[-3000:]}")

    def _fill_cache(self, attempt: Attempt) -> None:
        """Put recorded outputs into DVC's cache, as the manual says, that a full disk has kept out of it."""
        if "failed to transfer" not in attempt.text:
            return
        self._wait_for_orphans()
        recorded = {name: hashes({name: self.undisturbed.lock[name]}) for name in sorted(self._recorded())}
        there = [name for name, outs in recorded.items() if all((self.path / out).exists() for out in outs)]
        if there:  # without names, DVC would commit all stages
            command = ["dvc", "commit", "-q", "-f", *there]
            subprocess.run(command, cwd=self.path, env=self.environment, check=False)
            self.outcome.repaired.append("cache")

    def _wait_for_orphans(self) -> bool:
        """Wait for processes and Slurm jobs that go on without their engine; return whether there were any."""
        waited, deadline = False, time.monotonic() + ORPHAN_TIMEOUT
        while orphans := processes(self.run_id) or self._slurm_jobs():
            waited = True
            if time.monotonic() > deadline:
                self.outcome.failed.append(f"orphans hang: {orphans}")
                kill_all(self.run_id)
                break
            time.sleep(0.5)
        return waited

    def _slurm_jobs(self) -> list[str]:
        squeue = shutil.which("squeue", path=self.environment.get("PATH"))
        if squeue is None:
            return []
        command = [squeue, "--me", "--noheader", "--format=%i|%Z"]
        lines = subprocess.run(command, text=True, capture_output=True, check=False).stdout.splitlines()
        return [line for line in lines if line.endswith(f"|{self.path}")]

    def _job_logs(self) -> set[Path]:
        """Return what Slurm's jobs have said; those of other engines say it to their engine."""
        return set((self.path / ".snakemake/slurm_logs").rglob("*.log"))

    def _recorded(self) -> set[str]:
        lock = read_lock(self.path) if self._lock_is_whole() else {}
        return {name for name, stage in lock.items() if _same(stage, self.undisturbed.lock.get(name, {}))}

    def _lock_is_whole(self) -> bool:
        """Return whether DVC could read dvc.lock; a kill may have cut it off."""
        lock = self.path / "dvc.lock"
        with contextlib.suppress(yaml.YAMLError, UnicodeDecodeError, Invalid):
            return not lock.exists() or bool(COMPILED_LOCKFILE_SCHEMA(yaml.safe_load(lock.read_bytes())))
        return False

    def _half_outputs(self) -> set[str]:
        """Outputs that have their final name but not all of their final content."""
        return {
            name
            for name, files in self.undisturbed.files.items()
            if (self.path / name).exists() and hash_files(self.path / name) != files
        }


def read_lock(path: Path, damaged: Lock | None = None) -> Lock:
    """Return the stages of dvc.lock; ``damaged`` if it is no YAML."""
    lock = path / "dvc.lock"
    if not lock.exists():
        return {}
    try:
        return (yaml.safe_load(lock.read_text(encoding="utf-8")) or {}).get("stages", {})
    except (yaml.YAMLError, AttributeError):
        if damaged is None:
            raise
        return damaged


def hashes(lock: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Return the hash of every output in dvc.lock by its path."""
    outputs = [out for stage in lock.values() for out in stage.get("outs", [])]
    return {out["path"]: out.get("md5", "") for out in outputs}


def hash_files(path: Path) -> dict[str, str]:
    """Return the hash of every file of an output by its path; of a file by ``.``."""
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return {str(file.relative_to(path)): hashlib.md5(file.read_bytes()).hexdigest() for file in files}


def stages_begun(log: str) -> list[str]:
    return re.findall(r"^Running stage '([^']+)'", log, re.MULTILINE)


def _mtime(path: Path | None) -> int:
    with contextlib.suppress(OSError):
        return path.stat().st_mtime_ns if path else 0
    return 0


def _same(record: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether two records of a stage agree in command, dependencies, parameters and hashes of outputs."""
    parts = ("cmd", "deps", "params")
    return all(record.get(part) == other.get(part) for part in parts) and hashes({"": record}) == hashes({"": other})


def format_counts(counter: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counter.items()))
