"""Each promise that Snakemake and DVC hold one idea of what is done, shown with both on the toy study."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Project

FINETUNE = {f"finetune@{task}-{seed}" for task in ("cola", "squad2") for seed in (1, 2)}
FROM_PRETRAIN = {"pretrain", *FINETUNE, "report"}
EVERYTHING = {"shard@a", "shard@b", "count", *FROM_PRETRAIN}
Register = Callable[["subprocess.Popen[str]"], "subprocess.Popen[str]"]


def test_after_snakemake_dvc_has_nothing_to_do(study: Project) -> None:
    assert study.nothing_to_do()
    study.dvc("repro")
    assert study.ran() == []


def test_after_dvc_repro_snakemake_has_nothing_to_do(study: Project) -> None:
    for made in (".snakemake", "data", "models", "results", ".dvc/cache", "dvc.lock"):
        path = study.path / made
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    study.dvc("repro")
    assert set(study.ran()) == EVERYTHING
    assert study.nothing_to_do()
    assert not (study.path / ".snakemake/dvc").exists()  # looking wrote no stamp
    study.snakemake()
    assert study.ran() == []


def test_experiments_and_checkouts_leave_nothing_to_do(study: Project) -> None:
    study.dvc("exp", "run", "-n", "more-masks", "-S", "mask_prob=0.2")
    assert set(study.ran()) == FROM_PRETRAIN
    assert study.nothing_to_do()
    study.run("git", "checkout", "-q", "-f", ".")
    study.dvc("checkout")
    assert study.nothing_to_do()
    study.dvc("exp", "apply", "more-masks")
    assert study.nothing_to_do()
    assert "0.2" in (study.path / "models/pretrained/model.txt").read_text()


def test_params_that_were_run_before_run_no_job(study: Project) -> None:
    study.edit("params.yaml", "mask_prob: 0.15", "mask_prob: 0.2")
    study.snakemake()
    assert set(study.ran()) == FROM_PRETRAIN
    study.edit("params.yaml", "mask_prob: 0.2", "mask_prob: 0.15")
    study.snakemake()
    assert study.ran() == []
    assert study.nothing_to_do()


@pytest.mark.parametrize("way", ["pull", "run-cache"])
def test_a_clone_runs_no_job(study: Project, tmp_path: Path, way: str) -> None:
    study.dvc("remote", "add", "-d", "shelf", str(tmp_path / "shelf"))
    study.dvc("push", "--run-cache")
    study.commit()
    study.run("git", "clone", "-q", str(study.path), str(tmp_path / "clone"))
    clone = type(study)(tmp_path / "clone", study.home)
    if way == "pull":
        clone.dvc("pull")
        assert clone.nothing_to_do()
    else:
        clone.dvc("fetch", "--run-cache")
        clone.snakemake()
    assert clone.ran() == []
    assert clone.nothing_to_do()


@pytest.mark.parametrize("engine", ["snakemake", "dvc"])
def test_an_edited_module_runs_its_stage_and_what_follows(study: Project, engine: str) -> None:
    study.edit("toy/finetune.py", "read(", "sys.argv[1] + read(")
    study.snakemake() if engine == "snakemake" else study.dvc("repro")
    assert set(study.ran()) == {*FINETUNE, "report"}
    assert study.nothing_to_do()


def test_one_task_of_many_goes_stale(study: Project) -> None:
    study.edit("toy/tasks.yaml", "labels: 2", "labels: 3")
    study.snakemake()
    assert set(study.ran()) == {"finetune@cola-1", "finetune@cola-2", "report"}
    assert study.nothing_to_do()


def test_after_kill_only_jobs_in_flight_run_again(study: Project, background: Register) -> None:
    study.edit("params.yaml", "size: 3", "size: 4")
    process = background(study.start("snakemake", "--cores", "1", "all", TOY_SLOW="pretrain"))
    study.wait_for("pretrain")
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert study.ran() == ["count", "pretrain"]
    assert "Nothing" not in study.snakemake("-n")
    said = study.snakemake()
    assert "committing count" in said
    assert set(study.ran()) == FROM_PRETRAIN
    assert study.nothing_to_do()


@pytest.mark.parametrize(
    "file, old, new", [("toy/count.py", "write(", "write( "), ("params.yaml", "size: 4", "size: 5")]
)
def test_what_was_edited_while_it_ran_is_not_committed(
    study: Project, background: Register, file: str, old: str, new: str
) -> None:
    study.edit("params.yaml", "size: 3", "size: 4")
    process = background(study.start("snakemake", "--cores", "1", "all", TOY_SLOW="pretrain"))
    study.wait_for("pretrain")
    study.edit(file, old, new)
    (study.path / "go").touch()
    said, _ = process.communicate(timeout=60)
    assert "count changed while it ran, not committed" in said
    study.ran()
    assert "count" in study.snakemake("-n")
    assert "count" in study.dvc("status")
    study.snakemake()
    assert study.ran()[0] == "count"
    assert study.nothing_to_do()


def test_touch_blesses_nothing(study: Project) -> None:
    study.edit("toy/count.py", "write(", "write( ")
    study.snakemake("--touch")
    assert study.ran() == []
    assert "count" in study.dvc("status")
    assert "rule count" in study.snakemake("-n")


def test_output_edited_by_hand_is_put_right(study: Project) -> None:
    path = study.path / "models/pretrained/model.txt"
    good = path.read_text()
    path.write_text("tampered\n")
    study.snakemake()
    assert study.ran() == []  # it lay in the cache
    assert path.read_text() == good
    assert study.nothing_to_do()


def test_a_failure_keeps_what_was_finished(study: Project) -> None:
    study.edit("params.yaml", "mask_prob: 0.15", "mask_prob: 0.3")
    said = study.snakemake("--keep-going", check=False, TOY_FAIL="finetune@cola-1")
    assert "committing finetune@squad2-2" in said
    study.ran()
    study.snakemake()
    assert set(study.ran()) == {"finetune@cola-1", "report"}
    assert study.nothing_to_do()


def test_the_second_of_two_engines_stops_and_names_the_first(study: Project, background: Register) -> None:
    study.edit("params.yaml", "mask_prob: 0.15", "mask_prob: 0.3")
    process = background(study.start("snakemake", "--cores", "1", "all", TOY_SLOW="pretrain"))
    study.wait_for("pretrain")
    second = study.run("snakemake", "--cores", "1", "all", check=False)
    assert second.returncode and f"Process {process.pid} (snakemake" in second.stdout
    assert "Traceback" not in second.stdout
    third = study.run("dvc", "repro", check=False)
    assert third.returncode and f"PID {process.pid}" in third.stdout
    assert "rule report" in study.snakemake("-n")  # looking is always allowed
    (study.path / "go").touch()
    process.communicate(timeout=60)
    assert process.returncode == 0
    assert sorted(study.ran()) == sorted(FROM_PRETRAIN)  # nothing twice
    assert study.nothing_to_do()


def test_snakemake_stops_beside_dvc_repro(study: Project, background: Register) -> None:
    study.edit("params.yaml", "mask_prob: 0.15", "mask_prob: 0.3")
    process = background(study.start("dvc", "repro", TOY_SLOW="pretrain"))
    study.wait_for("pretrain")
    second = study.run("snakemake", "--cores", "1", "all", check=False)
    assert second.returncode and f"Process {process.pid} (" in second.stdout
    (study.path / "go").touch()
    process.communicate(timeout=60)
    assert sorted(study.ran()) == sorted(FROM_PRETRAIN)
    assert study.nothing_to_do()


def test_a_stage_without_a_rule_and_a_rule_without_a_stage(study: Project) -> None:
    study.edit("workflow/Snakefile", 'dag["report"].input', 'dag["raport"].input')
    assert "'raport', which dvc.yaml does not declare" in study.snakemake("-n", check=False)
    study.edit("workflow/Snakefile", 'dag["raport"].input', 'dag["report"].input')
    study.edit("dvc.yaml", "  report:", "  extra:\n    cmd: echo\n    outs: [extra.txt]\n  report:")
    said = study.snakemake("-n", check=False)
    assert "declares extra, which no rule" in said
    assert "Traceback" not in said
