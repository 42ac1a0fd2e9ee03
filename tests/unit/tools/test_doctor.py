"""The doctor: every fault that it looks for is made, and found."""

import json
import re
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest

from pipeline_src import __main__ as command
from pipeline_src.params.study import load_study
from pipeline_src.tools.doctor import checkout, cluster, machine, needs, software
from pipeline_src.tools.doctor.finding import OK, PROBLEM, WARNING


@pytest.fixture
def project(tmp_path, monkeypatch, root):
    """A folder that looks like a fresh clone to the doctor."""
    for name in ("pyproject.toml", "torch.lock", "locks/study.lock", ".dvc/config"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(root / name, tmp_path / name)
    shutil.copy(root / "workflow/presets/test.yaml", tmp_path / "params.yaml")
    (tmp_path / "workflow/profiles").mkdir(parents=True)
    shutil.copytree(root / "workflow/profiles/slurm", tmp_path / "workflow/profiles/slurm")
    (tmp_path / "slurm").symlink_to("workflow/profiles/slurm")
    subprocess.run(["git", "init", "-q", "."], cwd=tmp_path, check=True)
    for key, value in {"user.name": "a", "user.email": "a@b"}.items():
        subprocess.run(["git", "config", key, value], cwd=tmp_path, check=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def without_gpus(monkeypatch):
    """torch is not asked, which takes seconds."""
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=SimpleNamespace(is_available=lambda: False)))
    monkeypatch.setattr(machine, "product_rates", lambda: (1e11, 1e11))


def test_a_sound_clone_has_no_problem(project, without_gpus, capsys):
    assert command.main(["doctor"]) == 0
    shown = capsys.readouterr().out
    assert "the study can run" in shown
    assert all(len(line) <= 80 for line in shown.splitlines() if str(project) not in shown or len(line.split()) > 3)
    assert not list(project.glob(".doctor-*"))


def test_json_holds_what_the_lines_say(project, without_gpus, capsys):
    (project / "params.yaml").write_text("seed: 1\n")
    assert command.main(["doctor", "--json"]) == 2
    found = {entry["check"]: entry for entry in json.loads(capsys.readouterr().out)}
    assert found["params.yaml"]["state"] == PROBLEM and "a key is missing" in found["params.yaml"]["found"]
    assert found["python"]["state"] == OK and found["python"]["remedy"] is None
    assert all(entry["remedy"] for entry in found.values() if entry["state"] != OK)


def test_it_runs_on_the_standard_library_alone(root, project):
    asked = [sys.executable, "-S", "-c", "import sys; sys.path.insert(0, sys.argv[1]); sys.argv = ['', 'doctor']; "
             "from pipeline_src.__main__ import main; sys.exit(main())", str(root)]  # fmt: skip
    done = subprocess.run(asked, capture_output=True, text=True)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "is not installed" in " ".join(done.stdout.split()) and "make study" in done.stdout


def test_versions_beside_the_lock(project, monkeypatch):
    assert software.engines().state == OK
    pins = software.pinned()
    there = {**pins, "torch": f"{pins['torch']}+cpu"}
    monkeypatch.setattr(software, "installed", there.get)
    assert [check().state for check in (software.engines, software.packages, software.torch)] == [OK] * 3
    there |= {"dvc": "3.60.0", "numpy": "1.0", "torch": "2.12.0"}
    assert software.engines().state == PROBLEM and "3.60.0" in software.engines().found
    assert software.packages().state == WARNING and "numpy 1.0" in software.packages().found
    assert software.torch().state == WARNING
    there["torch"] = "2.9.1"
    assert software.torch().state == PROBLEM
    del there["numpy"]
    assert software.packages().state == PROBLEM
    monkeypatch.chdir(project / "workflow")
    assert software.packages().state == PROBLEM


@pytest.mark.parametrize(
    ("version", "machine", "state", "said"),
    [
        ((3, 10), ("Linux", "x86_64"), PROBLEM, "use Python 3.11 to 3.14"),
        ((3, 11), ("Linux", "aarch64"), OK, ""),
        ((3, 13), ("Darwin", "arm64"), OK, ""),
        ((3, 13), ("Windows", "AMD64"), WARNING, "without a wheel"),
        ((3, 14), ("Linux", "x86_64"), WARNING, "C compiler"),
        ((3, 15), ("Linux", "x86_64"), PROBLEM, "use Python 3.11 to 3.14"),
    ],
)
def test_pythons_and_machines(project, monkeypatch, version, machine, state, said):
    monkeypatch.setattr(software, "sys", SimpleNamespace(version_info=version, executable="python3"))
    monkeypatch.setattr(software.platform, "system", lambda: machine[0])
    monkeypatch.setattr(software.platform, "machine", lambda: machine[1])
    found = software.python()
    assert found.state == state and said in (found.remedy or "")


def test_a_pin_counts_where_its_marker_applies(project):
    with open(project / "locks/study.lock", "a") as lock:
        lock.write("nowhere==1 ; python_full_version < '3'\nhere==2 ; python_full_version >= '3.2'\n")
    assert software.pinned()["here"] == "2" and "nowhere" not in software.pinned()
    assert "here" in software.packages().found


def test_git_and_the_remote(project, monkeypatch, tmp_path):
    assert checkout.git().state == OK and checkout.remote().state == WARNING
    (project / ".dvc/config").write_text("[core]\n    remote = a\n['remote \"a\"']\n    url = /storage/a\n")
    assert checkout.remote().state == OK and checkout.remote().found == "/storage/a"
    (project / ".dvc/config").write_text("not a configuration")
    assert checkout.remote().state == PROBLEM
    (project / ".dvc/config").unlink()
    assert checkout.remote().state == PROBLEM
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    subprocess.run(["git", "config", "--unset", "user.email"], check=True)
    assert checkout.git().state == WARNING
    shutil.rmtree(project / ".git")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(project.parent))
    assert checkout.git().state == PROBLEM
    monkeypatch.setenv("PATH", "")
    assert checkout.git().found == "git is not installed"


def test_links_and_the_right_to_write(project, monkeypatch):
    assert checkout.links().state == OK and checkout.folder().state == OK
    (project / "slurm").unlink()
    assert checkout.links().state == WARNING

    def refuse(**_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(checkout.tempfile, "TemporaryDirectory", refuse)
    assert checkout.folder().state == PROBLEM


@pytest.mark.parametrize(
    ("script", "state", "said"),
    [
        ("echo 'batch* 2 gpu:8'", OK, "gpu:8"),
        ("echo no such controller >&2; exit 1", WARNING, "no such controller"),
        ("exec sleep 5", WARNING, "no answer"),
    ],
)
def test_slurm_answers_refuses_or_is_silent(tmp_path, monkeypatch, script, state, said):
    for name in cluster.COMMANDS:
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(cluster, "SECONDS", 0.5)
    found = cluster.slurm()
    assert found.state == state and said in found.found
    (tmp_path / "srun").unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "srun" in cluster.slurm().found
    monkeypatch.setenv("PATH", "")
    assert cluster.slurm().state == OK


def test_a_machine_too_small_is_told(project, root, monkeypatch, without_gpus):
    study = load_study(root / "workflow/presets/bert-base.yaml")
    monkeypatch.setattr(machine.shutil, "disk_usage", lambda _: SimpleNamespace(free=1e9))
    monkeypatch.setattr(machine, "usable_memory", lambda: 1e9)
    monkeypatch.setattr(machine, "usable_cores", lambda: 1)
    assert machine.disk(study).state == PROBLEM
    assert machine.memory(study).state == WARNING and machine.cores(study).state == WARNING
    assert machine.gpus(study).state == WARNING and "109 M" in machine.gpus(study).found
    assert machine.disk(None).state == OK  # without a valid study nothing is known to be too little


@pytest.mark.parametrize(
    ("asked", "narrow", "state", "said"),
    [
        ("auto", 2.2e11, OK, "2.2 times as fast.*precision: bfloat16"),
        ("auto", 1.1e11, OK, "0.9 times as long"),
        ("bfloat16", 2.2e11, OK, "2.2 times as fast"),
        ("bfloat16", 2e10, WARNING, "5.0 times as long"),
    ],
)
def test_a_cpu_is_told_from_one_that_multiplies_bfloat16(
    project, without_gpus, monkeypatch, asked, narrow, state, said
):
    (project / "machine.yaml").write_text(f"precision: {asked}\n")
    monkeypatch.setattr(machine, "product_rates", lambda: (1e11, narrow))
    found = machine.precision(None)
    assert found.state == state and re.search(said, found.found)


def test_rates_of_products_are_measured():
    assert all(1e8 < rate < 1e15 for rate in machine.product_rates())


def test_needs_follow_the_study(root):
    small, base = (load_study(root / f"workflow/presets/{name}.yaml") for name in ("sample", "bert-base"))
    assert needs.parameters(base) == pytest.approx(109e6, rel=0.02)  # paper: 110 M
    assert 2e9 < needs.disk(small) < 4e9 < 50e9 < needs.disk(base)
    assert needs.memory(small) < 2e9 < needs.memory(base) < 5e9


def test_memory_is_what_a_container_is_allowed(tmp_path, monkeypatch):
    (tmp_path / "meminfo").write_text("MemTotal:       16000000 kB\nMemFree: 1 kB\n")
    (tmp_path / "max").write_text("2000000000\n")
    (tmp_path / "none").write_text("max\n")
    monkeypatch.setattr(machine, "MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(machine, "LIMITS", (tmp_path / "none", tmp_path / "absent"))
    assert machine.usable_memory() == 16_384_000_000
    monkeypatch.setattr(machine, "LIMITS", (tmp_path / "max",))
    assert machine.usable_memory() == 2e9
