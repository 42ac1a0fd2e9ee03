"""Going on after a kill: seconds from the end of ``import torch`` to the start of the first new step, base on a CPU.

A study of a base model on real text is trained a few steps, saving after each, and killed with SIGKILL; then the same
command goes on in a new process, up to its next step, several times. The checkpoint (weights and both moments, 1.3 GB)
was just written, so it is read from memory where the machine has any to spare. There is no peer: ``ours`` and
``target`` are seconds, and less is better.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

from benchmarks._study import LENGTHS, study_folder
from pipeline_src.training.checkpoint_settings import MINUTES

TARGET = 5.0  # seconds
ROUNDS = 5
TIMEOUT = 300.0  # seconds that the first checkpoints may take
SAVED = 2  # steps whose checkpoints are waited for


def main() -> None:
    """Train, kill, go on, and report."""
    with TemporaryDirectory(dir=study_folder().parent) as name:
        folder = Path(name)
        make_study(folder)
        step = train_and_kill(folder)
        times = [go_on(folder, step) for _ in range(ROUNDS)]
        size = sum(path.stat().st_size for path in newest(folder).iterdir())
    seconds = statistics.median(times)
    print(f"resume, base on a CPU ({platform.python_implementation()} {platform.python_version()}):")
    print(f"  from the end of `import torch` to step {step + 1}: {seconds:.2f} s, target {TARGET:g} s or less")
    print(
        json.dumps(
            {
                "name": "resume",
                "ours": round(seconds, 3),
                "peer": None,
                "ratio": round(TARGET / seconds, 3),
                "target": TARGET,
                "ratios": {},
                "unit": "seconds",
                "met": seconds <= TARGET,
                "best": round(min(times), 3),
                "worst": round(max(times), 3),
                "checkpoint_mb": round(size / 1e6),
                "load": os.getloadavg()[0],
            }
        ),
        flush=True,
    )


def make_study(folder: Path) -> None:
    """A study of a base model in an empty folder: the benchmarks' data, small batches."""
    study = yaml.safe_load(Path("params.yaml").read_text(encoding="utf-8"))
    study["model"].update(layers=12, hidden=768, heads=None, feed_forward=None, positions=512)
    study["examples"]["lengths"] = LENGTHS.model_dump()
    study["pretrain"].update(batch=2, steps={"short": 1000, "long": 100}, evaluate_every=None, keep_steps=[])
    (folder / "params.yaml").write_text(yaml.safe_dump(study), encoding="utf-8")
    shutil.copytree(study_folder() / "data", folder / "data")


def train_and_kill(folder: Path) -> int:
    """Train until some checkpoints are there, kill the training, and return the step of the newest one."""
    program = [sys.executable, "-m", "pipeline_src", "pretrain", "--phase", "short"]
    with open(folder / "training.log", "wb") as log:
        training = subprocess.Popen(program, cwd=folder, env=_environment(), stdout=log, stderr=log)
        deadline = time.monotonic() + TIMEOUT
        while len(_checkpoints(folder)) < SAVED:
            time.sleep(0.05)
            if training.poll() is not None or time.monotonic() > deadline:
                training.kill()
                sys.exit("error: the training saved nothing\n" + (folder / "training.log").read_text())
        training.kill()  # SIGKILL
        training.wait()
    return int(newest(folder).name.removeprefix("step-"))


def go_on(folder: Path, step: int) -> float:
    """Seconds until the same command, in a new process, starts the step after ``step``."""
    program = [sys.executable, "-m", "benchmarks._resume_clock"]
    done = subprocess.run(program, cwd=folder, env=_environment(), capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"error: the training did not go on\n{done.stderr}")
    printed = json.loads(done.stdout.splitlines()[-1])
    if printed["step"] != step:
        sys.exit(f"error: it went on from step {printed['step']}, not {step}\n{done.stderr}")
    return printed["seconds"]


def newest(folder: Path) -> Path:
    """The newest checkpoint."""
    return _checkpoints(folder)[-1]


def _checkpoints(folder: Path) -> list[Path]:
    return sorted(folder.glob("checkpoints/short/*/step-*"))


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path.cwd()), MINUTES: "0"}


if __name__ == "__main__":
    main()
