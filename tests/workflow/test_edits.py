"""Files edited while a stage reads them: dvc.lock must never pair them with outputs of the old ones, in both engines.

A stage's process is stopped (SIGSTOP) when it has started, something is edited, and it continues.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
import yaml

if TYPE_CHECKING:
    from conftest import Project

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="no /proc here")]
FINETUNE, CLEAN, PRETRAIN = "finetune@rte-1", "clean@wikipedia", "pretrain_phase1"
BERT, HEADS, TABLE = (
    f"pipeline_src/{path}" for path in ("model/bert.py", "finetune/heads.py", "text/wikipedia/tables/units.tsv")
)
LIBRARY = {"finetune": "/torch/lib/", "clean": "/apache_beam/"}  # mapped after the stage has noted its files
# a stage of one parameter, and one that depends on params.yaml as a file and has outputs in git
REPEATED = "for _ in 1 2 3 4; do dvc --wait-for-lock repro -f -s evaluate report || exit; done"
REFUSED_FILE, REFUSED_CODE = "a dependency changed while the stage ran", "the code was edited since this run began"


def append(file: str, text: str = "\n") -> Callable[[Project], None]:
    """Return an edit that adds text to a file."""
    return lambda project: project.append(file, text)


def touch(file: str) -> Callable[[Project], None]:
    """Return an edit that leaves a file's bytes as they are, as one that was undone."""
    return lambda project: os.utime(project.path / file)


def other_bytes(content: bytes) -> bytes:
    """Return content of the same length that can be read as well: two letters of a word are swapped, or a last bit."""
    for word in re.finditer(rb" ([a-z])([a-z])", content[len(content) // 2 :]):
        if word[1] != word[2]:
            place = len(content) // 2 + word.start()
            return content[:place] + b" " + word[2] + word[1] + content[place + 3 :]
    return content[:-1] + bytes([content[-1] ^ 1])


def exchange(file: str) -> Callable[[Project], None]:
    """Return an edit that puts other bytes of the same number and time in a file's place."""

    def edit(project: Project) -> None:
        path, other = project.path / file, project.path / "other"
        other.write_bytes(other_bytes(path.read_bytes()))
        state = path.stat()
        # As `touch -r`, rsync, tar and cp -p do.
        os.utime(other, ns=(state.st_atime_ns, state.st_mtime_ns))
        other.replace(path)

    return edit


def check_out_other_data(project: Project) -> None:
    """Put another branch's version of the data in place, as `git checkout other; dvc checkout` does."""
    project.run("git", "checkout", "-q", "other", "--", "dvc.lock")
    project.dvc("checkout", "--force", "data/tasks")
    project.run("git", "checkout", "-q", "main", "--", "dvc.lock")


EDITS: dict[str, tuple[str, Callable[[Project], None], str | None]] = {
    "a task's entry in the catalogue": (FINETUNE, append("catalogue/tasks/rte.yaml", "# more\n"), REFUSED_FILE),
    "the data": (FINETUNE, append("data/tasks/rte/train.tsv"), REFUSED_FILE),
    "the data, put back": (FINETUNE, touch("data/tasks/rte/train.tsv"), REFUSED_FILE),
    "the model folder": (FINETUNE, append("models/pretrained/phase2/config.json"), REFUSED_FILE),
    "the teacher": (FINETUNE, append("catalogue/no-teacher"), REFUSED_FILE),
    "a fingerprint": (FINETUNE, append("code/finetune", "0"), REFUSED_CODE),
    "a member of the family": (FINETUNE, append(BERT, "MORE = 1\n"), REFUSED_CODE),
    "code": (FINETUNE, append(HEADS, "MORE = 1\n"), REFUSED_CODE),
    "code, put back": (FINETUNE, touch(HEADS), REFUSED_CODE),
    "a comment": (FINETUNE, append(HEADS, "# more\n"), None),
    "a table of a language": (CLEAN, append(TABLE, "# more\n"), REFUSED_CODE),
    "another branch's data": (FINETUNE, check_out_other_data, REFUSED_FILE),
    "the data, of equal size and time": (FINETUNE, exchange("data/tasks/rte/train.tsv"), REFUSED_FILE),
    "data in mid-training": (PRETRAIN, append("data/examples/manifest.json"), REFUSED_FILE),
    "code in mid-training": (PRETRAIN, append(BERT, "MORE = 1\n"), None),
}


@pytest.fixture(scope="module")
def done(finished_study: Project) -> Project:
    """A finished study, and a branch whose tasks have other examples."""
    project = finished_study
    project.run("make", "identity")
    project.run("git", "checkout", "-q", "-b", "other")
    project.edit("params.yaml", "seed: 1", "seed: 2")
    project.dvc("repro", "-s", "code", "download_tasks")
    project.commit()
    project.run("git", "checkout", "-q", "main")
    project.dvc("checkout", "--force")
    return project


@pytest.fixture
def study(done: Project, tmp_path: Path) -> Project:
    return done.copy(tmp_path / "study")


def recorded(project: Project) -> dict[str, Any]:
    stages: dict[str, Any] = yaml.safe_load((project.path / "dvc.lock").read_text())["stages"]
    return stages


def run_with_edit(project: Project, command: list[str], stage: str, edit: Callable[[Project], None]) -> str:
    """Run a command; edit while the stage's process is stopped: as it imports its libraries, or in mid-training."""
    name, begun = stage.partition("@")[0].partition("_")[0], time.time()
    log = project.path / "logs/pretrain/phase1.log"

    def has_begun(process: psutil.Process) -> bool:
        if name == "pretrain":  # all is imported, and the first steps are taken
            return log.exists() and log.stat().st_mtime > begun and "parameters, " in log.read_text()
        return _has_mapped(process, LIBRARY[name])

    engine = project.start(*command)
    process, deadline = None, time.monotonic() + 240
    while process is None or not has_begun(process):
        assert time.monotonic() < deadline and engine.poll() is None, engine.communicate()[0]
        time.sleep(0.002)
        process = process or next(
            filter(lambda candidate: _is_stage(candidate, project, name), psutil.process_iter()), None
        )
    process.send_signal(signal.SIGSTOP)
    edit(project)
    process.send_signal(signal.SIGCONT)
    output, _ = engine.communicate()
    return output


def _has_mapped(process: psutil.Process, library: str) -> bool:
    with contextlib.suppress(OSError):
        return library in Path(f"/proc/{process.pid}/maps").read_text()
    return False


def _is_stage(process: psutil.Process, project: Project, name: str) -> bool:
    with contextlib.suppress(psutil.Error):
        return process.cmdline()[1:4] == ["-m", "pipeline_src", name] and process.cwd() == str(project.path)
    return False


@pytest.mark.parametrize("edit", EDITS)
def test_dvc_repro_file_edited_while_stage_runs_is_not_recorded_with_old_outputs(study: Project, edit: str) -> None:
    stage, make, refusal = EDITS[edit]
    before = recorded(study)[stage]
    command = ["dvc", "repro", "--force", "--single-item", stage]
    output = run_with_edit(study, command, stage, make)
    if refusal is None:
        assert recorded(study)[stage]["outs"] == before["outs"] and "error" not in output, output
        return
    assert output.count(refusal) == 1 and "hint: " in output and "Traceback" not in output, output
    assert study.run("git", "diff", "dvc.lock").stdout == ""


@pytest.mark.parametrize("edit", ["the data", "code, put back", "the data, of equal size and time"])
def test_snakemake_file_edited_while_job_runs_is_not_recorded_with_old_outputs(study: Project, edit: str) -> None:
    stage, make, refusal = EDITS[edit]
    study.edit("params.yaml", "    rte: {}", "    rte: {epochs: 2}")
    before = recorded(study)[stage]
    output = run_with_edit(study, ["snakemake", "--cores", "1", "all"], stage, make)
    assert refusal and refusal in output, output
    assert recorded(study)[stage] == before
    study.snakemake()
    assert recorded(study)[stage] != before and study.nothing_to_do()


@pytest.mark.parametrize("way", [["--queue"], ["--temp", "--single-item", "evaluate"]])
def test_experiments_created_while_stage_runs_do_not_change_its_values_or_record(
    study: Project, way: list[str]
) -> None:
    # DVC writes params.yaml again by its values, but keeps what was there: here, edits that are not committed
    (study.path / "params.yaml").write_text("# mine\n" + (study.path / "params.yaml").read_text())
    study.dvc("repro", "-s", "code", "report")
    before, texts = recorded(study), (study.path / "results/scores.json").read_bytes()
    engine, ended = study.start("bash", "-c", REPEATED), 0
    while engine.poll() is None:
        output = study.dvc("exp", "run", *way, "-S", "tasks=[rte]", check=False)
        ended += "ERROR" not in output
    output, _ = engine.communicate()
    assert engine.returncode == 0 and ended > 1, output
    assert recorded(study) == before
    assert (study.path / "results/scores.json").read_bytes() == texts
    assert (study.path / "params.yaml").read_text().startswith("# mine\n")


# ---------------------------------------------------------------- while another DVC command holds DVC's lock

WAITING = "waiting for another DVC command"


@contextlib.contextmanager
def other_dvc_command(project: Project, stage: str, log: str) -> Iterator[Any]:
    """Run a stage by DVC, and hold DVC's lock from the stage's start, as a slow `dvc push` does."""
    path = project.path / log
    path.unlink(missing_ok=True)
    engine = project.start("dvc", "repro", "--force", "--single-item", stage)
    _wait_for(path, "")
    with open(project.path / ".dvc/tmp/lock", "r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _wait_for(path, WAITING)
        yield engine


def _wait_for(path: Path, text: str) -> None:
    deadline = time.monotonic() + 240
    while not path.exists() or text not in path.read_text():
        assert time.monotonic() < deadline, f"{path} has no {text!r}"
        time.sleep(0.02)


def test_dvc_repro_training_waits_for_other_dvc_command_and_is_recorded(study: Project) -> None:
    study.run("git", "checkout", "-q", "dvc.lock")
    with other_dvc_command(study, PRETRAIN, "logs/pretrain/phase1.log") as engine:
        time.sleep(5)  # DVC itself gives up after three
        assert any((study.path / "checkpoints/phase1").glob("*/step-*"))
    output, _ = engine.communicate()
    assert engine.returncode == 0, output
    assert "up to date" in study.dvc("status", PRETRAIN)
    study.dvc("repro", "--force", "--single-item", "report")
    assert not any((study.path / "checkpoints/phase1").glob("*/step-*")), "the next stage deletes them"


@pytest.mark.parametrize("way", ["DVC is killed", "its table of files in use is deleted"])
def test_dvc_repro_finished_but_unrecorded_training_is_not_repeated(study: Project, way: str) -> None:
    before = recorded(study)[PRETRAIN]
    study.edit("params.yaml", "mask_prob: 0.15", "mask_prob: 0.2")
    with other_dvc_command(study, PRETRAIN, "logs/pretrain/phase1.log") as engine:
        if way == "DVC is killed":
            for child in [*psutil.Process(engine.pid).children(recursive=True), psutil.Process(engine.pid)]:
                child.kill()
        else:
            (study.path / ".dvc/tmp/rwlock").resolve().unlink()
    output, _ = engine.communicate()
    assert engine.returncode and recorded(study)[PRETRAIN] == before, output
    output = study.dvc("repro", PRETRAIN)
    if way == "DVC is killed":
        steps = re.findall(r"resuming from the checkpoint of step ([0-9,]+)", output)
        assert max(map(int, steps)) == 20, output
    else:  # DVC has kept the run, and fails after that
        assert f"Stage '{PRETRAIN}' is cached - skipping run" in output
    assert recorded(study)[PRETRAIN] != before, output


def test_dvc_repro_input_edited_while_stage_waits_for_dvc_is_refused(study: Project) -> None:
    with other_dvc_command(study, FINETUNE, "logs/finetune/rte-1.log") as engine:
        exchange("data/tasks/rte/train.tsv")(study)
    output, _ = engine.communicate()
    assert engine.returncode and REFUSED_FILE in output, output
    assert study.run("git", "diff", "dvc.lock").stdout == ""


@pytest.mark.parametrize("command", [["dvc", "repro", "evaluate"], ["snakemake", "--cores", "1", "all"]])
def test_wrong_record_is_removed_at_next_start(study: Project, command: list[str]) -> None:
    """DVC was stopped between the end of a stage and its look at the stage's inputs, and these were edited."""
    train = study.path / "data/tasks/rte/train.tsv"
    original = train.read_bytes()
    study.edit("params.yaml", "    rte: {}", "    rte: {epochs: 2}")
    engine = study.start("dvc", "repro", "--single-item", FINETUNE)
    note = study.path / f".dvc/tmp/stage-inputs/{FINETUNE}.json"
    note.unlink(missing_ok=True)
    _wait_for(note, "{")
    os.kill(engine.pid, signal.SIGSTOP)
    append("data/tasks/rte/train.tsv", original.decode().splitlines()[-1] + "\n")(study)
    os.kill(engine.pid, signal.SIGCONT)
    engine.communicate()
    false = recorded(study)[FINETUNE]
    done_second = study.run(*command, check=False)
    sentence = "edited after the stage had read it"
    if command[0] == "dvc":
        assert done_second.returncode and sentence in done_second.stdout
        assert recorded(study)[FINETUNE]["deps"] != false["deps"], "the record from before is back"
        done_second = study.run(*command)
        assert f"Running stage '{FINETUNE}'" in done_second.stdout
    else:
        assert sentence in done_second.stdout and done_second.returncode == 0, done_second.stdout
    # DVC has put the edited data back, from which the outputs were made.
    assert recorded(study)[FINETUNE]["outs"] == false["outs"] and recorded(study)[FINETUNE]["deps"] != false["deps"]
