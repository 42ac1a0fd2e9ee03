"""A dump cleaned by Dask workers that are a Slurm array on two nodes, as docs/your-cluster.md says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pipeline_src.study.preset import preset_text
from tests.made_dump import shards, write_dump
from tests.workflow.on_slurm import on, wait_until

if TYPE_CHECKING:
    from tests.workflow.cluster import Cluster

pytestmark = pytest.mark.slow  # it waits for Slurm
DASK = "[--runner=apache_beam.runners.dask.dask_runner.DaskRunner, --dask_scheduler_file=logs/dask.json]"


def test_clean_on_dask_slurm_array_gives_same_bytes(cluster: Cluster, tmp_path: Path, root: Path) -> None:
    study = tmp_path / "study"
    write_dump(study, part="excerpt", words=5_000)  # three ranges
    (study / "logs").mkdir()
    (study / "params.yaml").write_text(preset_text("sample", root / "workflow/presets"))
    for name in ("pipeline_src", "catalogue"):
        (study / name).symlink_to(root / name)

    def clean(beam_args: str) -> dict[str, bytes]:
        (study / "machine.yaml").write_text(f"beam_args: {beam_args}\n")
        command = [sys.executable, "-m", "pipeline_src", "clean", "--source", "wikipedia"]
        done = subprocess.run(command, cwd=study, env=on(cluster), text=True, capture_output=True)
        assert done.returncode == 0, done.stderr
        return shards(study / "data/text/wikipedia/clean-text")

    def submit(command: str, *options: str) -> str:
        words = ["sbatch", "--parsable", "-D", str(study), "-o", str(study / "logs/%A_%a.out"), *options]
        job = cluster.ask(*words, "--wrap", f"PATH={on(cluster)['PATH']} {command}").strip()
        jobs.append(job)
        return job

    expected = clean("[]")
    jobs: list[str] = []
    try:
        submit("python -m dask scheduler --scheduler-file logs/dask.json --no-dashboard")
        wait_until((study / "logs/dask.json").exists, "the scheduler")
        worker = "python -m dask worker --scheduler-file logs/dask.json --nworkers 1 --nthreads 1 --no-dashboard"
        array = submit(f"{worker} --preload pipeline_src.text.beam", "--array=1-2", "--cpus-per-task=12")
        nodes = wait_until(
            lambda: sorted(cluster.ask("squeue", "-h", "-r", "-t", "R", "-j", array, "-o", "%N").split())[1:], "workers"
        )
        assert nodes == ["node2"]  # the second; the first is node1
        made = clean(DASK)
    finally:
        cluster.ask("scancel", *jobs)
    assert made == expected and sum(name.endswith(".jsonl") for name in made) > 3
    logs = "".join(path.read_text() for path in study.glob("logs/*_[12].out"))
    assert logs.count("Registered to") == 2, logs
