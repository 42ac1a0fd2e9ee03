"""Two of the paper's ablations after a study, as `make ablations` runs them, at the scale of the `test` preset.

Both fine-tune from models that one pretraining left on its way (figure 5). Then the study is shared with a second
clone through a folder.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

if TYPE_CHECKING:
    from conftest import Project

pytestmark = pytest.mark.slow  # two experiments beside a study
TASKS = "[rte]"
EARLY, LATE = "figure5-masked-003", "figure5-masked-040"
ROUNDS = 4  # two are enough (the second experiment shares a pretraining), unless DVC's last worker is just ending
RUN_TIMEOUT = 900  # seconds; both experiments take one or two minutes
STEPS = {EARLY: 1, LATE: 12}  # of 30
SAVED_STEPS = {"phase1": {1, 2, 3, 6, 12, 18}, "phase2": {24}}


@pytest.fixture(scope="module")
def ablated(finished_study: Project, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """A study that both experiments follow, as `make ablations` has it, the later one applied."""
    project = finished_study.copy(tmp_path_factory.mktemp("ablated") / "study")
    project.edit("params.yaml", "tasks:\n- rte\n- squad2\n- swag", f"tasks: {TASKS}")
    for task in ("squad2", "swag"):  # a task that is taken out leaves its predictions, which `evaluate` depends on
        shutil.rmtree(project.path / "results/predictions" / task)
    project.run("make", "identity", GIT_CONFIG_NOSYSTEM="1")
    project.commit()
    output = ""
    for _ in range(ROUNDS):
        queue = ("ablations", "figure5", "--queue", "--only", EARLY, LATE)
        output += project.run("python", "-m", "pipeline_src", *queue).stdout
        runner = project.start("dvc", "exp", "run", "--run-all")
        try:
            output += runner.communicate(timeout=RUN_TIMEOUT)[0]
            assert not runner.returncode, output
        except subprocess.TimeoutExpired:  # DVC can wait without end for a worker that has ended; users press Ctrl-C
            runner.kill()
            output += f"no end within {RUN_TIMEOUT} s\n"
        if {EARLY, LATE} <= set(project.dvc("exp", "list", "--name-only").split()):
            break
    else:
        pytest.fail(output + project.dvc("queue", "status"))
    project.dvc("exp", "apply", LATE)
    yield project
    project.dvc("queue", "stop", "--kill", check=False)


def test_each_experiment_has_its_own_params_and_results(ablated: Project) -> None:
    models = {}
    for name, step in STEPS.items():
        study = yaml.safe_load(committed(ablated, name, "params.yaml"))
        assert study["finetune"]["model"] == f"models/pretrained/phase1/steps/{step}"
        assert set(study["pretrain"]["keep_checkpoint_steps"]) == SAVED_STEPS["phase1"] | SAVED_STEPS["phase2"]
        stages = yaml.safe_load(committed(ablated, name, "dvc.lock"))["stages"]
        assert f"models/pretrained/phase1/steps/{step}" in {dep["path"] for dep in stages["finetune@rte-1"]["deps"]}
        models[name] = (stages["pretrain_phase1"]["outs"], stages["finetune@rte-1"]["outs"])
        summary = json.loads(committed(ablated, name, "results/summary.json"))
        assert summary["mlm_loss"] > 0
    assert models[EARLY][0] == models[LATE][0] and models[EARLY][1] != models[LATE][1]
    for phase, steps in SAVED_STEPS.items():
        assert set(map(int, os.listdir(ablated.path / f"models/pretrained/{phase}/steps"))) == steps
    assert json.loads((ablated.path / "results/scores.json").read_text())


def test_second_experiment_reuses_pretraining_of_first(ablated: Project) -> None:
    output = ablated.dvc("queue", "logs", LATE)
    assert "Running stage 'finetune@rte-1'" in output
    assert "Running stage 'pretrain_phase1'" not in output and "Running stage 'pretrain_phase2'" not in output


def test_applied_experiment_is_fresh_in_both_engines(ablated: Project) -> None:
    assert ablated.nothing_to_do()


def test_second_clone_pulls_experiment_and_runs_no_job(ablated: Project, tmp_path: Path) -> None:
    ablated.dvc("remote", "add", "-f", "-d", "shelf", str(tmp_path / "shelf"))
    ablated.dvc("push")
    ablated.commit()
    ablated.run("git", "clone", "-q", str(ablated.path), str(tmp_path / "clone"))
    clone = type(ablated)(tmp_path / "clone", tmp_path / "home")
    clone.home.mkdir()
    clone.dvc("pull")
    assert clone.nothing_to_do()
    assert "Running stage" not in clone.dvc("repro")
    for made in ("models/pretrained/phase2/model.safetensors", "results/report.html", "results/summary.json"):
        assert (clone.path / made).read_bytes() == (ablated.path / made).read_bytes()


def committed(project: Project, experiment: str, file: str) -> str:
    """A file of an experiment, as git keeps it."""
    refs = project.run("git", "for-each-ref", "--format=%(refname)", "refs/exps").stdout.split()
    ref = next(ref for ref in refs if ref.endswith(f"/{experiment}"))
    return project.run("git", "show", f"{ref}:{file}").stdout
