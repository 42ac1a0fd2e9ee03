"""Kill a study again and again at random moments, until it has ended, and compare it with an undisturbed one."""

from __future__ import annotations

import contextlib
import random
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import yaml

ENGINES = {"snakemake": ["snakemake", "--cores", "2", "all"], "dvc": ["dvc", "repro"]}
Lock = dict[str, dict[str, Any]]


@dataclass
class Attempt:
    """One start of an engine, which was killed or ended by itself."""

    engine: str
    killed: bool
    ran: list[str]
    recorded: set[str]  # when it began, so that it must not run them
    repaired: bool = False  # DVC found one of its own files damaged

    @property
    def lost(self) -> set[str]:
        """Stages that ran again though they were finished."""
        return self.recorded & set(self.ran) - {"code"}  # which looks at the code at every start


@dataclass
class Outcome:
    seed: str
    attempts: list[Attempt] = field(default_factory=list)
    different: list[str] = field(default_factory=list)
    fresh: bool = False

    @property
    def good(self) -> bool:
        """Return whether no stage ran twice, DVC calls all up to date, and all outputs are as without a kill."""
        return self.fresh and not self.different and not any(attempt.lost for attempt in self.attempts)

    def __str__(self) -> str:
        kills = sum(attempt.killed for attempt in self.attempts)
        repaired = sum(attempt.repaired for attempt in self.attempts)
        lost = sorted({stage for attempt in self.attempts for stage in attempt.lost})
        text = f"run {self.seed}: {kills} kills, {' '.join(attempt.engine for attempt in self.attempts)}"
        text += f"; DVC's files repaired {repaired}x" if repaired else ""
        text += f"; lost {', '.join(lost)}" if lost else ""
        text += f"; differs: {', '.join(self.different)}" if self.different else ""
        return text + ("" if self.fresh else "; DVC calls it stale") + ("" if self.good else "; NOT GOOD")


def disturb(
    path: Path, undisturbed: Lock, environment: Mapping[str, str], seed: str, wait: tuple[float, float], kills: int
) -> Outcome:
    """Run the study in ``path`` to its end through random kills, and compare its lock with an undisturbed one.

    ``wait`` is the shortest and the longest time between a start and its kill, in seconds. The start after the last
    kill is left alone.
    """
    draw = random.Random(seed)
    outcome = Outcome(seed)
    while not outcome.attempts or outcome.attempts[-1].killed or outcome.attempts[-1].repaired:
        pause = draw.uniform(*wait) if len(outcome.attempts) < kills else None
        outcome.attempts.append(_start(path, draw.choice(sorted(ENGINES)), pause, environment, undisturbed))
    # dvc.lock may hold more: stages of another study that stood in this checkout before
    lock = {name: stage for name, stage in read_lock(path).items() if name in undisturbed}
    expected, ended = hashes(undisturbed), hashes(lock)
    outcome.different = sorted(name for name in {*expected, *ended} if expected.get(name) != ended.get(name))
    status = subprocess.run(["dvc", "status"], cwd=path, env=dict(environment), text=True, capture_output=True).stdout
    outcome.fresh = "up to date" in status
    return outcome


def read_lock(path: Path) -> Lock:
    """Return the stages of dvc.lock."""
    lock = path / "dvc.lock"
    return (yaml.safe_load(lock.read_text(encoding="utf-8")) or {}).get("stages", {}) if lock.exists() else {}


def hashes(lock: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Return the hash of every output in dvc.lock by its path."""
    outputs = [out for stage in lock.values() for out in stage.get("outs", [])]
    return {out["path"]: out["md5"] for out in outputs}


def forget(path: Path, stages: Iterable[str]) -> None:
    """Make a finished study one in which these stages never ran: no outputs, records, run-cache or checkpoints."""
    lock = yaml.safe_load((path / "dvc.lock").read_text(encoding="utf-8"))
    for name in set(stages) & set(lock["stages"]):
        for out in lock["stages"].pop(name)["outs"]:
            made = path / out["path"]
            shutil.rmtree(made) if made.is_dir() else made.unlink(missing_ok=True)
    (path / "dvc.lock").write_text(yaml.safe_dump(lock, sort_keys=False), encoding="utf-8")
    for folder in (".dvc/cache/runs", ".snakemake", "checkpoints"):
        shutil.rmtree(path / folder, ignore_errors=True)


def _start(path: Path, engine: str, pause: float | None, environment: Mapping[str, str], undisturbed: Lock) -> Attempt:
    """Start an engine and kill it after ``pause`` seconds; None leaves it alone."""
    try:
        lock = read_lock(path)
    except (yaml.YAMLError, AttributeError):
        lock = {}  # damaged
    recorded = {name for name, stage in lock.items() if _same(stage, undisturbed.get(name, {}))}
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(ENGINES[engine], cwd=path, env=dict(environment), stdout=output, stderr=output)
        try:
            process.wait(pause)
            killed = False
        except subprocess.TimeoutExpired:
            killed = True
        finally:
            _kill(process)
        output.seek(0)
        text = output.read()
    attempt = Attempt(engine, killed, re.findall(r"^Running stage '([^']+)'", text, re.MULTILINE), recorded)
    if not killed and process.returncode:
        if "dvc.lock" not in text and "RWLock-file" not in text:
            raise RuntimeError(f"{engine} failed after a kill:\n{text[-4000:]}")
        command = "git checkout dvc.lock" if "dvc.lock" in text else "rm .dvc/tmp/rwlock"  # see docs/two-engines.md
        subprocess.run(command.split(), cwd=path, env=dict(environment), check=True, stdout=subprocess.DEVNULL)
        attempt.repaired = True
    return attempt


def _same(record: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether two records of a stage agree in command, dependencies, parameters and hashes of outputs."""
    parts = ("cmd", "deps", "params")
    return all(record.get(part) == other.get(part) for part in parts) and hashes({"": record}) == hashes({"": other})


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End an engine and all that it has started at once, as a machine that goes down does."""
    try:
        engine = psutil.Process(process.pid)
        killed = [engine, *engine.children(recursive=True)]
    except psutil.NoSuchProcess:
        return
    for child in killed:
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()
    process.wait()
    psutil.wait_procs(killed, timeout=60)
