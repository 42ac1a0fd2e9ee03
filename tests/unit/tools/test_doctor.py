"""The doctor: every fault that it looks for is made, and found."""

import json
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest
import yaml

from pipeline_src import __main__ as command
from pipeline_src.config.study import check_study, load_study
from pipeline_src.tools import doctor
from pipeline_src.tools.doctor import OK, PROBLEM, WARNING
from pipeline_src.tools.preset import preset_text

SIZES = {"vocab_size": 9, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}


@pytest.fixture
def project(tmp_path, monkeypatch, root):
    """A folder that looks like a fresh clone to the doctor."""
    for name in ("pyproject.toml", "torch.lock", "locks/study.lock", ".dvc/config"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(root / name, tmp_path / name)
    (tmp_path / "params.yaml").write_text(preset_text("test", root / "workflow/presets"))
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
    assert found["python"]["state"] == OK and found["python"]["hint"] is None
    assert all(entry["hint"] for entry in found.values() if entry["state"] != OK)


def test_it_runs_on_the_standard_library_alone(root, project):
    asked = [sys.executable, "-S", "-c", "import sys; sys.path.insert(0, sys.argv[1]); sys.argv = ['', 'doctor']; "
             "from pipeline_src.__main__ import main; sys.exit(main())", str(root)]  # fmt: skip
    done = subprocess.run(asked, capture_output=True, text=True)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "is not installed" in " ".join(done.stdout.split()) and "make study" in done.stdout


def test_versions_beside_the_lock(project, monkeypatch):
    assert doctor.engines().state == OK
    pins = doctor.pinned()
    there = {**pins, "torch": f"{pins['torch']}+cpu"}
    monkeypatch.setattr(doctor, "installed", there.get)
    assert [check().state for check in (doctor.engines, doctor.packages, doctor.torch)] == [OK] * 3
    there |= {"dvc": "3.60.0", "numpy": "1.0", "torch": "2.12.0"}
    assert doctor.engines().state == PROBLEM and "3.60.0" in doctor.engines().found
    assert doctor.packages().state == WARNING and "numpy 1.0" in doctor.packages().found
    assert doctor.torch().state == WARNING
    there["torch"] = "2.9.1"
    assert doctor.torch().state == PROBLEM
    del there["numpy"]
    assert doctor.packages().state == PROBLEM
    monkeypatch.chdir(project / "workflow")
    assert doctor.packages().state == PROBLEM


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
    monkeypatch.setattr(doctor, "sys", SimpleNamespace(version_info=version, executable="python3"))
    monkeypatch.setattr(doctor.platform, "system", lambda: machine[0])
    monkeypatch.setattr(doctor.platform, "machine", lambda: machine[1])
    found = doctor.python()
    assert found.state == state and said in (found.hint or "")


def test_a_pin_counts_where_its_marker_applies(project):
    with open(project / "locks/study.lock", "a") as lock:
        lock.write("nowhere==1 ; python_full_version < '3'\nhere==2 ; python_full_version >= '3.2'\n")
    assert doctor.pinned()["here"] == "2" and "nowhere" not in doctor.pinned()
    assert "here" in doctor.packages().found


def test_git_and_the_remote(project, monkeypatch, tmp_path):
    assert doctor.git().state == OK and doctor.remote().state == WARNING
    (project / "catalogue/tasks").mkdir(parents=True)
    (project / "catalogue/tasks/mine.yaml").touch()
    assert doctor.git().state == WARNING and doctor.git().hint == "git add catalogue/tasks/mine.yaml"
    subprocess.run(["git", "add", "catalogue"], check=True)
    assert doctor.git().state == OK
    (project / ".dvc/config").write_text("[core]\n    remote = a\n['remote \"a\"']\n    url = /storage/a\n")
    assert doctor.remote().state == OK and doctor.remote().found == "/storage/a"
    (project / ".dvc/config").write_text("not a configuration")
    assert doctor.remote().state == PROBLEM
    (project / ".dvc/config").unlink()
    assert doctor.remote().state == PROBLEM
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    subprocess.run(["git", "config", "--unset", "user.email"], check=True)
    assert doctor.git().state == WARNING
    shutil.rmtree(project / ".git")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(project.parent))
    assert doctor.git().state == PROBLEM
    monkeypatch.setenv("PATH", "")
    assert doctor.git().found == "git is not installed"


def test_links_and_the_right_to_write(project, monkeypatch):
    assert doctor.links().state == OK and doctor.folder().state == OK
    (project / "slurm").unlink()
    assert doctor.links().state == WARNING

    def refuse(**_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(doctor.tempfile, "TemporaryDirectory", refuse)
    assert doctor.folder().state == PROBLEM


@pytest.mark.parametrize(
    ("script", "state", "said"),
    [
        ("echo 'batch* 2 gpu:8'", OK, "gpu:8"),
        ("echo no such controller >&2; exit 1", WARNING, "no such controller"),
        ("exec sleep 5", WARNING, "no answer"),
    ],
)
def test_slurm_answers_refuses_or_is_silent(tmp_path, monkeypatch, script, state, said):
    for name in doctor.SLURM:
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(doctor, "SECONDS", 0.5)
    found = doctor.slurm()
    assert found.state == state and said in found.found
    (tmp_path / "srun").unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "srun" in doctor.slurm().found
    monkeypatch.setenv("PATH", "")
    assert doctor.slurm().state == OK


def test_a_machine_too_small_is_told(project, root, monkeypatch, without_gpus):
    study = check_study(yaml.safe_load(preset_text("bert-base", root / "workflow/presets")))
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _: SimpleNamespace(free=1e9))
    monkeypatch.setattr(doctor, "usable_memory", lambda: 1e9)
    monkeypatch.setattr(doctor, "usable_cores", lambda: 1)
    assert doctor.disk(study).state == PROBLEM
    assert doctor.memory(study).state == WARNING and "use a larger machine" in str(doctor.memory(study).hint)
    assert doctor.cores(study).state == WARNING
    assert doctor.gpus(study).state == WARNING and "109 M" in doctor.gpus(study).found
    assert doctor.disk(None).state == OK  # without a valid study nothing is known to be too little


def test_needs_follow_the_study(root):
    small, base = (
        check_study(yaml.safe_load(preset_text(name, root / "workflow/presets"))) for name in ("sample", "bert-base")
    )
    assert doctor.encoder_parameters(base) == pytest.approx(109e6, rel=0.02)  # paper: 110 M
    assert 2e9 < doctor.needed_disk(small) < 4e9 < 50e9 < doctor.needed_disk(base)


ENTRY = {"description": "d", "licence": "l", "citation": "c"}


@pytest.mark.parametrize(
    ("changes", "entry", "pattern", "file"),
    [
        ({"wikipedia": {"from": "own-wikipedia"}}, None, "data/own/wikipedia/excerpt.xml.bz2", "excerpt.xml.bz2"),
        ({"books": {"from": "mine"}}, "sources/mine", "data/own/books/*.txt", "a.txt"),
        ({"tasks": ["rte", "mine"]}, "task_sources/mine", "data/own/mine/**/*", "train.tsv"),
        ({"interpretation": {"minimal_pairs": ["mine"]}}, "task_sources/mine", "data/own/mine/a.jsonl", "a.jsonl"),
    ],
)
def test_local_sources_have_to_be_there(project, root, catalogue, changes, entry, pattern, file):
    raw = yaml.safe_load(preset_text("test", root / "workflow/presets"))
    assert doctor.local_sources(check_study(raw)).found == "none is local"
    if entry:
        files = [{"path": ".", "url": f"file:{pattern}"}]
        (catalogue / f"{entry}.yaml").write_text(json.dumps(ENTRY | {"files": files}))
        declared = (catalogue / "tasks/cola.yaml").read_text()
        (catalogue / "tasks/mine.yaml").write_text(declared.replace("cola:", "mine:"))
        raw["finetune"]["per_task"]["mine"] = {}
    for key, value in changes.items():
        raw_of = raw["corpus"]["sources"] if key in raw["corpus"]["sources"] else raw
        raw_of[key] = {**raw_of[key], **value} if isinstance(value, dict) else value
    study = check_study(raw)
    assert doctor.local_sources(study).state == PROBLEM
    assert doctor.local_sources(study).found == f"cannot be opened: {pattern}"
    folder = project / pattern.partition("*")[0]
    folder = folder if "*" in pattern else folder.parent
    folder.mkdir(parents=True)
    (folder / file).write_text("text")
    assert doctor.local_sources(study).found == "1 local files can be opened"


def test_the_start_model_has_to_fit(project):
    study = load_study()
    assert doctor.start_model(study).found.startswith("none")
    (project / "config.json").write_text(json.dumps(SIZES))
    given = {"vocabulary": study.vocabulary.model_copy(update={"kind": "given"})}
    given["pretrain"] = study.pretrain.model_copy(update={"init_from": "."})
    found = doctor.start_model(study.model_copy(update=given))
    assert (found.state, found.found) == (PROBLEM, "no weights to read: model.safetensors or pytorch_model.bin")


def test_memory_is_what_a_container_is_allowed(tmp_path, monkeypatch):
    (tmp_path / "meminfo").write_text("MemTotal:       16000000 kB\nMemFree: 1 kB\n")
    (tmp_path / "max").write_text("2000000000\n")
    (tmp_path / "none").write_text("max\n")
    monkeypatch.setattr(doctor, "MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(doctor, "LIMITS", (tmp_path / "none", tmp_path / "absent"))
    assert doctor.usable_memory() == 16_384_000_000
    monkeypatch.setattr(doctor, "LIMITS", (tmp_path / "max",))
    assert doctor.usable_memory() == 2e9
