"""Every fault that the doctor looks for is made, and found."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline_src import __main__ as command
from pipeline_src.base.errors import PipelineError
from pipeline_src.study.data import Lengths
from pipeline_src.study.study import load_study
from pipeline_src.tools import doctor
from pipeline_src.tools.doctor import OK, PROBLEM, WARNING
from tests.studies import load_preset
from tests.unit.pretrain.small import build_teacher, make_study

SIZES = {"vocab_size": 9, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}


def test_doctor_valid_study_has_no_problem(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "the study can run" in lines[-1] and all(len(line) <= 80 for line in lines)


def test_doctor_invalid_study_is_a_problem_in_json(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "params.yaml").write_text("seed: 1\n")
    assert command.main(["doctor", "--json"]) == 2
    by_check = {entry["check"]: entry for entry in json.loads(capsys.readouterr().out)}
    assert by_check["params.yaml"]["state"] == PROBLEM and "a key is missing" in by_check["params.yaml"]["message"]
    assert by_check["versions"]["state"] == OK and by_check["versions"]["hint"] is None


def test_doctor_runs_on_the_standard_library_alone(root: Path, project: Path) -> None:
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); sys.argv = ['', 'doctor']; "
        "from pipeline_src.__main__ import main; sys.exit(main())"
    )
    done = subprocess.run([sys.executable, "-S", "-c", program, str(root)], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "not installed" in " ".join(done.stdout.split()) and "make study" in done.stdout


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({}, OK),
        ({"torch": "2.99.0+cpu", "python": "3.14.1"}, OK),
        ({"torch": "2.9.1"}, PROBLEM),
        ({"dvc": "3.60.0"}, PROBLEM),
        ({"snakemake": None}, PROBLEM),
        ({"python": "3.10.2"}, PROBLEM),
        ({"python": "3.15.0"}, PROBLEM),
    ],
)
def test_check_versions_reports_versions_outside_pyproject_range(changes: dict[str, str | None], state: str) -> None:
    finding = doctor.check_versions(doctor.installed_versions() | changes)
    assert finding.state == state
    assert state == OK or any(name in finding.message for name in changes)


def test_check_memory_and_disk_too_small_for_study_are_reported() -> None:
    base, small = load_preset("bert-base"), load_preset("sample")
    assert doctor.check_memory(base, available=1e9).state == WARNING
    assert doctor.check_memory(small, available=8e9).state == OK
    assert [doctor.check_disk(base, free=free).state for free in (1e9, 100e9, 1e12)] == [PROBLEM, WARNING, OK]
    assert [doctor.check_disk(small, free=free).state for free in (0.3e9, 2e9, 4e9)] == [PROBLEM, WARNING, OK]


def test_check_sources_does_not_request_list_of_all_parts() -> None:
    study = load_preset("bert-base")
    corpus = study.corpus.model_copy(update={"sources": {"wikipedia": study.corpus.sources["wikipedia"]}})
    assert doctor.check_sources(study.model_copy(update={"corpus": corpus})).state == OK


def test_check_start_model_that_does_not_fit_is_a_problem(project: Path) -> None:
    study = load_study()
    assert doctor.check_start_model(study).state == OK
    (project / "config.json").write_text(json.dumps(SIZES))
    given = {"vocabulary": study.vocabulary.model_copy(update={"kind": "given"})}
    given["pretrain"] = study.pretrain.model_copy(update={"init_from": "."})
    finding = doctor.run_check("start model", doctor.check_start_model, study.model_copy(update=given))
    assert finding.state == PROBLEM


def test_check_start_model_shorter_than_a_task_is_a_problem(tmp_path: Path) -> None:
    """Fine-tuning would notice it after hours of pretraining."""
    make_study(tmp_path)
    build_teacher(tmp_path)
    study = load_preset("sample", vocabulary={"kind": "given"}, pretrain={"init_from": str(tmp_path / "teacher")})
    lengths = study.examples.model_copy(update={"max_seq_length": Lengths(phase1=16, phase2=32)})
    study = study.model_copy(update={"examples": lengths})
    finding = doctor.run_check("start model", doctor.check_start_model, study)
    assert finding.state == PROBLEM and "128 tokens" in finding.message and "at most 32" in str(finding.hint)

    short = {name: recipe.model_copy(update={"max_length": 32}) for name, recipe in study.finetune.per_task.items()}
    defaults = study.finetune.defaults.model_copy(update={"max_length": 32})
    finetune = study.finetune.model_copy(update={"per_task": short, "defaults": defaults})
    assert doctor.check_start_model(study.model_copy(update={"finetune": finetune})).state == OK


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (ImportError("no", name="torch"), WARNING),
        (PipelineError("no such part", "x", hint="name another"), PROBLEM),
        (PermissionError(errno.EACCES, "Permission denied", "data/own/train.tsv"), PROBLEM),
    ],
)
def test_run_check_exception_becomes_finding(error: Exception, state: str) -> None:
    def check(study: object) -> doctor.Finding:
        raise error

    finding = doctor.run_check("memory", check, None)
    assert (finding.check, finding.state) == ("memory", state)


def test_usable_memory_respects_container_limit(tmp_path: Path) -> None:
    (tmp_path / "max").write_text("2000000000\n")
    (tmp_path / "none").write_text("max\n")
    assert doctor.usable_memory([tmp_path / "max"]) == 2e9
    assert doctor.usable_memory([tmp_path / "none", tmp_path / "absent"]) > 1e8
