"""Each promise that Snakemake and DVC hold one idea of what is done, shown with both on the toy study."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.workflow.conftest import EVERYTHING, FROM_PRETRAIN, MEMBERS, Project, write_study
from tests.workflow.documented import CLEAR_KILLED, READ_ONLY_CACHE, SECOND_CHECKOUT, programs

Register = Callable[["subprocess.Popen[str]"], "subprocess.Popen[str]"]

FINETUNE = MEMBERS["finetune"]
OUTPUTS = ("data/", "models/", "results/")
LOOKING = [["-n", "all"], ["--dag"], ["--lint"], ["--summary"], ["--list-rules"], ["--report", "report.html"]]
COMMANDS = {
    "snakemake": ["snakemake", "--cores", "1", "all"],
    "dvc repro": ["dvc", "repro"],
    "dvc exp run": ["dvc", "exp", "run"],
}

FORMS = """
vars: [{out: out, words: {end: done}}]
stages:
  mapping:
    foreach:
      one: {lang: en, n: 1, word: one}
      two: {lang: de, n: 2, word: "${word}"}
    do:
      vars: [{file: words.txt}]
      cmd: mkdir -p ${out}/${item.lang}-${item.n} && echo ${item.word} > ${out}/${item.lang}-${item.n}/${file}
      outs: ["${out}/${item.lang}-${item.n}/${file}"]
  grid:
    matrix: {a: [x, y], b: [1, 2.5]}
    cmd: mkdir -p out/grid/${item.a}/${item.b} && echo ${key} > out/grid/${item.a}/${item.b}/key
    outs: ["out/grid/${item.a}/${item.b}"]
  inside:
    wdir: sub
    cmd: mkdir -p made && cp given made/copy
    deps: [given]
    outs: [made]
  join:
    cmd:
      - mkdir -p out/join && cat out/*/words.txt sub/made/copy > out/join/all.txt
      - echo 3 > out/join/lines.json && printf 'x\\ty\\n1\\t2\\n' > out/join/curve.tsv
    deps: [out/en-1, out/de-2, out/grid, sub/made]
    outs: [out/join/all.txt]
    metrics: [{out/join/lines.json: {cache: false}}]
    plots: [{out/join/curve.tsv: {cache: false, x: x, y: y}}]
"""
FORMS_PARAMS = "word: zwei\n"


def run(study: Project, engine: str) -> str:
    """Bring everything up to date by an engine, and return its output."""
    return study.snakemake() if engine == "snakemake" else study.dvc("repro")


def made(study: Project) -> dict[str, str]:
    """What every output holds."""
    return {name: content for name, (_, content) in study.files().items() if name.startswith(OUTPUTS)}


def kill(process: subprocess.Popen[str]) -> None:
    """Kill an engine with all that it has started, as a machine that goes down does; until they are gone."""
    engine = psutil.Process(process.pid)
    killed = [*engine.children(recursive=True), engine]
    for child in killed:
        child.kill()
    process.wait()
    psutil.wait_procs(killed, timeout=60)


def start_slow_pretrain(study: Project, background: Register) -> subprocess.Popen[str]:
    """Start Snakemake, and return when the stage `pretrain` waits for the file `go`."""
    process = background(study.start(*COMMANDS["snakemake"], TOY_SLOW="pretrain"))
    study.wait_for("pretrain")
    return process


both_engines = pytest.mark.parametrize("engine", ["snakemake", "dvc"])


# ---------------------------------------------------------------- nothing is done twice


def test_after_dvc_repro_snakemake_has_nothing_to_do(study: Project) -> None:
    for name in (".snakemake", "code", "data", "models", "results", ".dvc/cache", "dvc.lock"):
        path = study.path / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    study.dvc("repro")
    assert set(study.ran()) == EVERYTHING
    assert study.nothing_to_do()
    assert "metadata" not in study.snakemake("-n")  # of which Snakemake has none here
    study.snakemake()
    assert study.ran() == []


def test_dvc_experiments_and_checkouts_leave_nothing_to_do(study: Project) -> None:
    study.dvc("exp", "run", "-n", "more-masks", "-S", "mask_prob=0.2")
    assert set(study.ran()) == FROM_PRETRAIN
    assert study.nothing_to_do()
    study.run("git", "checkout", "-q", "-f", ".")
    study.dvc("checkout")
    assert study.nothing_to_do()
    study.dvc("exp", "apply", "more-masks")
    assert study.nothing_to_do()
    assert "0.2" in (study.path / "models/pretrained/model.txt").read_text()


@both_engines
def test_outputs_of_earlier_params_are_restored(study: Project, engine: str) -> None:
    study.edit("params.yaml", "mask_prob: 0.15", "mask_prob: 0.2")
    run(study, engine)
    assert set(study.ran()) == FROM_PRETRAIN
    study.edit("params.yaml", "mask_prob: 0.2", "mask_prob: 0.15")
    run(study, engine)
    assert study.ran() == []
    assert study.nothing_to_do()


@pytest.mark.parametrize("way", ["pull", "run-cache"])
def test_clone_with_remote_cache_runs_no_stage(study: Project, tmp_path: Path, way: str) -> None:
    study.dvc("remote", "add", "-d", "shelf", str(tmp_path / "shelf"))
    study.dvc("push", "--run-cache")
    study.commit()
    clone = study.clone(tmp_path / "clone")
    if way == "pull":
        clone.dvc("pull")
        assert clone.nothing_to_do()
    else:
        clone.dvc("fetch", "--run-cache")
        clone.snakemake()
    assert set(clone.ran()) <= {"report"}  # DVC keeps no runs of a stage with an output that is in git
    assert clone.nothing_to_do()


@both_engines
def test_clone_without_cache_runs_every_stage(study: Project, tmp_path: Path, engine: str) -> None:
    clone = study.clone(tmp_path / "clone")
    run(clone, engine)
    assert EVERYTHING - FINETUNE <= set(clone.ran())  # fine-tunings make the same, which one puts into the cache
    assert clone.nothing_to_do()


def test_second_checkout_with_shared_cache_runs_no_stage(study: Project) -> None:
    study.edit("params.yaml", "mask_prob: 0.15", "mask_prob: 0.2")
    study.snakemake()
    assert set(study.ran()) == FROM_PRETRAIN
    second = second_checkout(study)
    assert second.nothing_to_do()
    second.edit("params.yaml", "mask_prob: 0.15", "mask_prob: 0.2")  # which git does not have yet
    second.snakemake()
    assert set(second.ran()) <= {"report"}  # DVC keeps no runs of a stage with an output that is in git
    assert second.nothing_to_do()


def test_two_checkouts_run_experiments_at_once(study: Project, background: Register) -> None:
    """In worktrees of git they would not: DVC keeps a running experiment in git's references, which these share."""
    second = second_checkout(study)
    running = background(study.start("dvc", "exp", "run", "-n", "first", "-S", "mask_prob=0.3", TOY_SLOW="pretrain"))
    study.wait_for("pretrain")
    second.dvc("exp", "run", "--queue", "-n", "queued", "-S", "mask_prob=0.6")
    second.dvc("exp", "run", "--temp", "-n", "apart", "-S", "mask_prob=0.5")
    second.dvc("exp", "run", "-n", "second", "-S", "mask_prob=0.4")
    (study.path / "go").touch()
    output, _ = running.communicate()
    assert running.returncode == 0, output
    assert study.nothing_to_do() and second.nothing_to_do()
    second.dvc("exp", "push", "origin", "second")
    for name, rate in {"second": 0.4, "first": 0.3}.items():
        study.dvc("exp", "apply", name)
        assert (study.path / "models/pretrained/model.txt").read_text().startswith(f"{rate} ")
        assert study.nothing_to_do()


def second_checkout(study: Project) -> Project:
    """The second checkout of the same cache, as the page says, with a git identity."""
    study.run("bash", "-c", " && ".join(SECOND_CHECKOUT))
    second = type(study)(study.path.parent / "edit", study.home)
    second.run("git", "config", "user.name", "a")
    second.run("git", "config", "user.email", "a@example.org")
    return second


def test_killed_experiments_are_cleared(study: Project, background: Register) -> None:
    process = background(study.start("dvc", "exp", "run", "--temp", "-S", "mask_prob=0.4", TOY_SLOW="pretrain"))
    deadline = time.monotonic() + 240
    while not any("pretrain" in notes.read_text() for notes in study.path.glob(".dvc/tmp/exps/standalone/*/runs.txt")):
        assert process.poll() is None and time.monotonic() < deadline, "the experiment never began"
        time.sleep(0.1)
    kill(process)
    study.dvc("exp", "run", "--queue", "-S", "mask_prob=0.5")
    shown = study.dvc("exp", "show", "--csv", "--no-pager")
    assert "Running" in shown and "Queued" in shown
    study.run("bash", "-c", CLEAR_KILLED)
    shown = study.dvc("exp", "show", "--csv", "--no-pager")
    assert "Running" not in shown and "Queued" in shown
    study.dvc("exp", "run", "--run-all")
    assert "Success" in study.dvc("queue", "status")


# ---------------------------------------------------------------- what goes stale


@both_engines
def test_edited_module_runs_its_stage_and_later_ones(study: Project, engine: str) -> None:
    study.edit("toy/finetune.py", "read(", "sys.argv[1] + read(")
    run(study, engine)
    assert set(study.ran()) == {*FINETUNE, "report"}
    assert study.nothing_to_do()


@both_engines
def test_comment_in_code_makes_no_stage_stale(study: Project, engine: str) -> None:
    for name in ("common", "pretrain"):
        path = study.path / f"toy/{name}.py"
        path.write_text(f"# a comment\n{path.read_text()}")
    if engine == "snakemake":
        assert "Nothing to be done" in study.snakemake("-n")  # which lets the stage `code` look
    run(study, engine)
    assert study.ran() == []
    assert study.nothing_to_do()


@both_engines
def test_unchanged_output_makes_later_stages_fresh(study: Project, engine: str) -> None:
    before = made(study)
    study.edit("toy/shard.py", "item = sys.argv[1]", "item = sys.argv[1] + ''")
    run(study, engine)
    assert set(study.ran()) == {"shard@a", "shard@b"}
    assert made(study) == before
    assert study.nothing_to_do()


def test_tasks_yaml_edit_makes_only_its_task_stale(study: Project) -> None:
    study.edit("tasks.yaml", "labels: 2", "labels: 3")
    study.snakemake()
    assert set(study.ran()) == {name for name in FINETUNE if "cola" in name}  # the report: their output is as before
    assert study.nothing_to_do()


def test_snakemake_named_stage_runs_with_its_dependencies(study: Project) -> None:
    study.edit("params.yaml", "size: 3", "size: 4")
    study.run("snakemake", "--cores", "2", "pretrain")
    assert study.ran() == ["count", "pretrain"]
    assert "Nothing to be done" in study.run("snakemake", "-n", "pretrain").stdout


def test_snakemake_dry_run_and_reports_run_no_stage(study: Project) -> None:
    study.edit("params.yaml", "mask_prob: 0.15", "mask_prob: 0.4")
    before = study.files()
    for looking in LOOKING:
        output = study.run("snakemake", *looking, check="--lint" not in looking).stdout
        assert "Traceback" not in output and study.files() == before, looking
    assert study.ran() == []
    output = study.snakemake("-n")
    assert "rule pretrain" in output and "rule count" not in output


OPTIONS = [
    ["--rerun-triggers", "input"],
    ["--rerun-triggers", "code", "params", "input", "mtime", "software-env"],
    ["--workflow-profile", "none"],
    ["--no-hooks"],
    ["--forceall"],
]


def test_snakemake_options_run_stale_stages_only(study: Project) -> None:
    study.edit("params.yaml", "mask_prob: 0.15", "mask_prob: 0.4")
    for options in OPTIONS[:-1]:
        planned = set(re.findall(r"^rule (\w+):", study.run("snakemake", "-n", "all", *options).stdout, re.MULTILINE))
        assert planned == {name.partition("@")[0] for name in FROM_PRETRAIN} | {"all"}, options
    study.run(*COMMANDS["snakemake"], *OPTIONS[-1])
    assert set(study.ran()) == FROM_PRETRAIN
    assert study.nothing_to_do()


def test_snakemake_touch_does_not_mark_stages_fresh(study: Project) -> None:
    study.edit("toy/count.py", "begin()", "begin(); assert True")
    study.snakemake("--touch", check=False)
    assert study.ran() == []
    assert "count" in study.dvc("status")
    assert "rule count" in study.snakemake("-n")


def test_snakemake_inputs_dated_in_future_delete_no_output(study: Project) -> None:
    study.edit("params.yaml", "mask_prob: 0.15", "mask_prob: 0.2")
    ahead = time.time() + 3 * 3600
    for path in [*study.path.glob("data/**/*"), *study.path.glob("toy/*")]:
        os.utime(path, (ahead, ahead))
    study.snakemake()
    assert set(study.ran()) == FROM_PRETRAIN
    assert study.nothing_to_do()


# ---------------------------------------------------------------- kills, edits, failures


@both_engines
def test_after_kill_only_interrupted_stage_runs_again(study: Project, background: Register, engine: str) -> None:
    study.edit("params.yaml", "size: 3", "size: 4")
    command = COMMANDS["snakemake"] if engine == "snakemake" else COMMANDS["dvc repro"]
    process = background(study.start(*command, TOY_SLOW="pretrain"))
    study.wait_for("pretrain")
    kill(process)
    assert study.ran() == ["count", "pretrain"]
    run(study, "dvc" if engine == "snakemake" else "snakemake")  # the other one goes on
    assert set(study.ran()) == FROM_PRETRAIN
    assert study.nothing_to_do()


def test_stage_continues_after_snakemake_is_killed_and_is_recorded(study: Project, background: Register) -> None:
    study.edit("params.yaml", "size: 3", "size: 4")
    process = start_slow_pretrain(study, background)
    orphans = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.wait()
    output = study.snakemake(check=False)
    assert "is busy" in output and "repro --single-item pretrain" in output and "Traceback" not in output
    (study.path / "go").touch()
    psutil.wait_procs(orphans, timeout=60)
    study.snakemake()
    assert sorted(study.ran()) == sorted({"count", *FROM_PRETRAIN})
    assert study.nothing_to_do()


def test_outputs_changed_after_kill_are_not_recorded(study: Project, background: Register) -> None:
    study.edit("params.yaml", "mask_prob: 0.15", "mask_prob: 0.3")
    process = start_slow_pretrain(study, background)
    kill(process)
    study.ran()
    (study.path / "models/pretrained").mkdir(parents=True, exist_ok=True)
    (study.path / "models/pretrained/model.txt").write_text("mine\n")
    study.snakemake()
    assert study.ran()[0] == "pretrain"
    assert (study.path / "models/pretrained/model.txt").read_text().startswith("0.3 ")
    assert study.nothing_to_do()


@pytest.mark.parametrize("put_back", [True, False])
def test_code_edited_while_stage_runs_is_recorded_as_it_ran(
    study: Project, background: Register, put_back: bool
) -> None:
    study.edit("params.yaml", "mask_prob: 0.15", "mask_prob: 0.3")
    process = start_slow_pretrain(study, background)
    study.edit("toy/pretrain.py", "begin()", "begin(); assert True")
    assert "is busy" in study.run("snakemake", "-n", "all", check=False).stdout
    assert "is busy" in study.dvc("repro", "-s", "code", check=False)  # what it makes is being read
    if put_back:
        study.edit("toy/pretrain.py", "begin(); assert True", "begin()")
    (study.path / "go").touch()
    assert process.wait(240) == 0, process.communicate()[0]
    assert set(study.ran()) == FROM_PRETRAIN
    if put_back:
        assert study.nothing_to_do()
    else:
        study.snakemake()
        assert study.ran() == ["pretrain"]  # which makes what it had made
        assert study.nothing_to_do()


def test_snakemake_failed_stage_keeps_finished_stages(study: Project) -> None:
    study.edit("params.yaml", "mask_prob: 0.15", "mask_prob: 0.3")
    output = study.snakemake("--keep-going", check=False, TOY_FAIL="finetune@cola-1")
    assert "told to fail" in output and "Traceback" not in output
    study.ran()
    study.snakemake()
    assert set(study.ran()) == {"finetune@cola-1", "report"}
    assert study.nothing_to_do()


@pytest.mark.parametrize("first", ["snakemake", "dvc repro"])
def test_second_engine_is_rejected_with_process_of_first(study: Project, background: Register, first: str) -> None:
    study.edit("params.yaml", "mask_prob: 0.15", "mask_prob: 0.3")
    process = background(study.start(*COMMANDS[first], TOY_SLOW="pretrain"))
    study.wait_for("pretrain")
    before = made(study)
    for second in ("snakemake", "dvc repro"):
        done = study.run(*COMMANDS[second], check=False)
        assert done.returncode and "is busy" in done.stdout and re.search(r"\(PID \d+\)", done.stdout), done.stdout
        assert "Traceback" not in done.stdout
        assert made(study) == before
    assert "is busy" in study.snakemake("-n", check=False)
    (study.path / "go").touch()
    output, _ = process.communicate(timeout=240)
    assert process.returncode == 0, output
    assert sorted(study.ran()) == sorted(FROM_PRETRAIN)  # nothing twice
    assert study.nothing_to_do()


def test_snakemake_shows_log_of_code_stage(study: Project) -> None:
    study.edit("toy/code.py", "import ast", "print('deleted a folder', file=sys.stderr); import ast")
    assert "deleted a folder" in study.snakemake("-n")


def test_snakemake_failed_code_stage_shows_error_of_dvc(study: Project) -> None:
    study.edit("toy/code.py", "import ast", "sys.exit(3); import ast")
    output = study.snakemake(check=False)
    assert "failed to reproduce 'code': failed to run: python -m toy.code, exited with 3" in output


def test_code_in_use_by_another_dvc_is_reported_with_process_number(study: Project) -> None:
    study.edit("toy/count.py", "begin()", "begin(); assert True")
    process = {"pid": os.getpid(), "cmd": "dvc repro"}
    reader = {"read": {str(study.path / "code"): [process]}}  # `dvc status` may read too
    (study.path / ".dvc/tmp/rwlock").write_text(json.dumps(reader))
    output = study.snakemake(check=False)
    assert "is busy" in output and f"(PID {os.getpid()})" in output, output


# ---------------------------------------------------------------- damaged and lost files


def test_truncated_rwlock_is_removed(study: Project) -> None:
    study.edit("params.yaml", "mask_prob: 0.15", "mask_prob: 0.4")
    for table, looking in {"": ["-n"], "[1]": ["-n"], '{"/a": 1}': ["-n"], '{"/a": {"read": {': []}.items():
        (study.path / ".dvc/tmp/rwlock").write_text(table)
        output = study.run("snakemake", "--cores", "2", *looking, "pretrain").stdout
        assert ".dvc/tmp/rwlock was damaged by a kill" in output, table
    assert study.ran() == ["pretrain"]
    assert "up to date" in study.dvc("status", "pretrain")


@pytest.mark.parametrize("program", ["sleep", "dvc"])
def test_rwlock_with_reused_process_number_is_removed_unless_it_is_a_dvc(
    study: Project, background: Register, tmp_path: Path, program: str
) -> None:
    """After a restart of the machine or of its container, the number of a killed DVC is soon another process's."""
    (tmp_path / program).symlink_to(shutil.which("sleep") or "")
    process = background(study.start(str(tmp_path / program), "600"))
    rwlock = study.path / ".dvc/tmp/rwlock"
    writer = {"pid": process.pid, "cmd": "dvc repro"}
    rwlock.write_text(json.dumps({"write": {str(study.path / "models/pretrained"): writer}}))
    os.utime(rwlock, (time.time() - 3600, time.time() - 3600))
    assert "is busy" in study.dvc("status", check=False)  # DVC asks only for the number
    os.utime(rwlock, (time.time() - 3600, time.time() - 3600))
    output = study.snakemake("-n", check=False)
    assert ("is busy" in output) == (program == "dvc"), output


PUT_BACK = "dvc.lock lacked entries that it had before"


@pytest.mark.parametrize("length", [0, 1003])
def test_dvc_lock_cut_off_is_restored(study: Project, length: int) -> None:
    study.edit("params.yaml", "mask_prob: 0.15", "mask_prob: 0.2")
    study.dvc("repro")
    assert set(study.ran()) == FROM_PRETRAIN
    lock = study.path / "dvc.lock"
    lock.write_text(lock.read_text()[:length])
    output = study.snakemake()
    assert output.count(PUT_BACK) == 1
    assert set(study.ran()) <= {"report"}  # what the copy lacks comes from the run-cache
    assert study.nothing_to_do()


def test_dvc_lock_truncated_at_line_end_is_restored_in_clone_without_rerunning_stages(
    study: Project, tmp_path: Path
) -> None:
    """Most such files are valid for DVC: they lack stages, or outputs of the last stage."""
    study.dvc("remote", "add", "-d", "shelf", str(tmp_path / "shelf"))
    study.dvc("push")
    study.commit()
    clone = study.clone(tmp_path / "clone")
    clone.dvc("pull")
    lock = clone.path / "dvc.lock"
    whole = lock.read_text()
    ends = [match.end() for match in re.finditer("\n", whole)]
    stages = [match.start() for match in re.finditer(r"^  [\w@-]+:$", whole, re.MULTILINE)]
    in_number = re.search(r"      md5: \d", whole)  # which is a number so far
    assert in_number
    for length in [stages[1], stages[-1], in_number.end(), ends[len(ends) // 2], ends[-3], whole.rindex("    - path")]:
        lock.write_text(whole[:length])
        (clone.path / ".snakemake/dvc/dvc.lock").unlink(missing_ok=True)  # for the copy in git
        assert PUT_BACK in clone.snakemake(), whole[:length][-200:]
        assert lock.read_text() == whole and clone.ran() == []
        lock.write_text(whole[:length])
        assert PUT_BACK in clone.snakemake()  # from Snakemake's copy
        assert lock.read_text() == whole and clone.ran() == []


def test_truncated_dvc_lock_is_not_repaired_while_dvc_runs(study: Project) -> None:
    process = {"pid": os.getpid(), "cmd": "dvc repro"}
    (study.path / ".dvc/tmp/rwlock").write_text(json.dumps({"read": {str(study.path / "elsewhere"): [process]}}))
    lock = study.path / "dvc.lock"
    damaged = lock.read_text()[:1003]
    lock.write_text(damaged)
    assert "git checkout dvc.lock" in study.snakemake(check=False)
    assert lock.read_text() == damaged


@both_engines
def test_dvc_lock_cut_off_without_copy_loses_no_stage(study: Project, engine: str) -> None:
    study.edit("params.yaml", "mask_prob: 0.15", "mask_prob: 0.2")
    study.dvc("repro")
    assert set(study.ran()) == FROM_PRETRAIN
    lock = study.path / "dvc.lock"
    lock.write_text(lock.read_text()[:1003])
    (study.path / ".snakemake/dvc/dvc.lock").unlink()
    if engine == "snakemake":
        assert PUT_BACK in study.snakemake("-n")  # from git
    else:
        study.run("git", "checkout", "dvc.lock")
    run(study, engine)
    assert study.ran() == []  # what the older file lacks comes from the run-cache
    assert study.nothing_to_do()


def test_dvc_lock_entry_of_removed_stage_is_deleted_and_restored(study: Project) -> None:
    lock = study.path / "dvc.lock"
    before = lock.read_text()
    entry = re.search(r"^  finetune@squad2-1:\n(    .*\n)+", before, re.MULTILINE)
    assert entry
    study.edit("params.yaml", "[cola, squad2]", "[cola]")
    study.snakemake("-n")
    assert lock.read_text() == before
    study.snakemake("--forceall")  # to which DVC answers that nothing has changed
    assert lock.read_text() == before.replace(entry[0], "")
    study.edit("params.yaml", "[cola]", "[cola, squad2]")
    study.snakemake()
    assert study.ran() == []  # from the run-cache
    assert study.nothing_to_do()


@pytest.mark.parametrize("end", ["hash: m", "md5: ", "outs:"])
def test_dvc_lock_truncated_in_entry_without_copy_is_repaired(study: Project, end: str) -> None:
    """Of an unknown name of a hash, such as `m`, DVC says `unexpected error` and nothing more."""
    lock = study.path / "dvc.lock"
    text = lock.read_text()
    lock.write_text(text[: text.rindex(end) + len(end)])
    (study.path / ".snakemake/dvc/dvc.lock").unlink()
    study.run("git", "rm", "-q", "--cached", "dvc.lock")
    study.run("git", "commit", "-qm", "without a record")
    assert "error:" not in study.snakemake()
    assert set(study.ran()) <= {"report"}
    assert study.nothing_to_do()


def test_dvc_lock_restored_by_git_reuses_cached_runs(study: Project, tmp_path: Path) -> None:
    """Another machine makes other bytes from the same inputs."""
    lock = study.path / "dvc.lock"
    before = lock.read_text()
    digest = re.search(r"    - path: models/pretrained\n      hash: md5\n      md5: (\w+)", before)
    assert digest
    lock.write_text(before.replace(digest[1], "0" * 32))
    study.commit()
    assert "rule pretrain" in study.snakemake("-n")
    study.snakemake()
    assert study.ran() == [] and lock.read_text() == before
    assert study.nothing_to_do()


def test_dvc_lock_with_merge_conflict_is_rejected(study: Project) -> None:
    lock = study.path / "dvc.lock"
    conflict = f"<<<<<<< HEAD\n{lock.read_text()}=======\n{lock.read_text()}>>>>>>> theirs\n"
    lock.write_text(conflict)
    for arguments in (["-n"], []):
        output = study.snakemake(*arguments, check=False)
        assert "dvc.lock holds both sides of a merge" in output and "git checkout --ours dvc.lock" in output
        assert "Traceback" not in output and lock.read_text() == conflict
    assert study.ran() == []


@pytest.mark.parametrize("twice", ["schema: '2.0'\\n", "      md5: .*\\n", "  count:\\n(    .*\\n)*"])
def test_dvc_lock_with_duplicate_entries_after_merge_is_rejected(study: Project, twice: str) -> None:
    lock = study.path / "dvc.lock"
    merged = re.sub(f"({twice})", r"\1\1", lock.read_text(), count=1)
    assert merged != lock.read_text()
    lock.write_text(merged)
    output = study.snakemake("-n", check=False)
    assert "dvc.lock has entries twice" in output and "git checkout HEAD^ -- dvc.lock" in output
    assert "Traceback" not in output and lock.read_text() == merged


def test_lost_cache_deletes_no_output(study: Project) -> None:
    before = made(study)
    (study.path / ".dvc/cache").rename(study.path / "elsewhere")
    for arguments in (["-n"], []):
        output = study.snakemake(*arguments)
        assert "Nothing to be done" in output and made(study) == before
    (command,) = re.findall(r"put them back: (dvc commit -f .*)", output)
    study.run(*command.split())
    assert study.nothing_to_do()
    study.dvc("repro")
    assert study.ran() == []
    shutil.rmtree(study.path / "models")
    study.snakemake()  # the cache holds all of it again
    assert made(study) == before and study.ran() == []


def test_output_written_by_hand_is_not_offered_for_commit(study: Project) -> None:
    (study.path / ".dvc/cache").rename(study.path / "elsewhere")
    (study.path / "models/pretrained/model.txt").write_text("mine\n")
    output = study.snakemake("-n")
    (command,) = re.findall(r"put them back: dvc commit -f (.*)", output)
    assert "pretrain" not in command.split() and "rule pretrain" in output


def test_outputs_are_restored_from_cache_without_dvc(study: Project, root: Path) -> None:
    before = made(study)
    for folder in ("code", "data", "models", "results"):
        shutil.rmtree(study.path / folder)
    (program,) = programs(root / "docs/two-engines.md")
    study.run("python", "-c", program)
    assert made(study) == before


def test_output_edited_by_hand_is_restored(study: Project) -> None:
    path = study.path / "models/pretrained/model.txt"
    good = path.read_text()
    path.write_text("tampered\n")
    study.snakemake()
    assert study.ran() == []  # it was in the cache
    assert path.read_text() == good
    assert study.nothing_to_do()


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="only root becomes another user")
def test_cache_of_another_user_is_linked_or_used_as_remote(study: Project) -> None:
    """The other user may read all, since Python and the tests' folders may be root's alone, and writes what is its."""
    shared, mine, user = study.path.parent / "shared", study.path.parent / "mine", "65534"
    (study.path / ".dvc/cache").rename(shared)
    study.run("git", "clone", "-q", ".", str(mine))
    home = mine / ".home"
    home.mkdir()
    study.run("chmod", "-R", "a+rX,go-w", str(shared))
    study.run("chown", "-R", f"{user}:{user}", str(mine))
    become = f"setpriv --reuid {user} --regid {user} --clear-groups --inh-caps +dac_read_search".split()
    become += ["--ambient-caps", "+dac_read_search"]
    clone = type(study)(mine, home)

    def run(command: str, check: bool = True) -> str:
        return clone.run(*become, "bash", "-c", command, check=check).stdout

    run(f"dvc cache dir --local {shared} && dvc config --local cache.type symlink && dvc checkout")
    assert "Nothing to be done" in run("snakemake -n all") and "up to date" in run("dvc status")
    assert (mine / "data/count.txt").resolve().is_relative_to(shared)

    clone.edit("params.yaml", "mask_prob: 0.15", "mask_prob: 0.2")
    output = run("snakemake --cores 2 all", check=False)
    assert output.splitlines()[-1].startswith("error: DVC's cache is read-only"), output
    assert clone.ran() == []
    run(" && ".join(READ_ONLY_CACHE).replace("/shared/dvc/bert", str(shared)))
    run("snakemake --cores 2 all")
    assert set(clone.ran()) == FROM_PRETRAIN
    assert "Nothing to be done" in run("snakemake -n all") and "up to date" in run("dvc status")


@pytest.mark.parametrize("folder", [".dvc/tmp", ".dvc/cache", ".snakemake", ".snakemake/dvc"])
def test_unwritable_folder_is_reported_without_traceback(study: Project, folder: str) -> None:
    study.edit("params.yaml", "mask_prob: 0.15", "mask_prob: 0.4")
    lock = (study.path / "dvc.lock").read_text()
    shutil.rmtree(study.path / folder)
    (study.path / folder).write_text("a file in its place, which stops root too\n")
    output = study.snakemake(check=False)
    assert "Traceback" not in output and ("rror" in output), output
    assert study.ran() == [] and (study.path / "dvc.lock").read_text() == lock


def test_stale_stamp_with_future_date_is_deleted(study: Project) -> None:
    """Also a file server's clock may be ahead of this machine's."""
    stamps = study.path / ".snakemake/dvc"
    for name in ("pretrain", "report"):
        os.utime(stamps / name, (time.time() + 3600, time.time() + 3600))
    study.edit("params.yaml", "mask_prob: 0.15", "mask_prob: 0.3")
    study.snakemake()
    assert "pretrain" in study.ran()
    assert study.nothing_to_do()


# ---------------------------------------------------------------- dvc.yaml and the rules


def test_bridge_reads_every_stage_syntax(tmp_path: Path, root: Path) -> None:
    project = Project(tmp_path / "study", tmp_path / "home")
    write_study(project.path, root / "workflow", FORMS, FORMS_PARAMS)
    (project.path / "sub").mkdir()
    (project.path / "sub/given").write_text("given\n")
    project.run("git", "init", "-q", "-b", "main")
    project.snakemake()
    assert project.nothing_to_do()
    assert (project.path / "out/de-2/words.txt").read_text() == "zwei\n"
    shutil.rmtree(project.path / "out")
    (project.path / "dvc.lock").unlink()
    project.dvc("repro", "--no-run-cache")
    assert project.nothing_to_do()
    project.edit("params.yaml", "word: zwei", "word: ZWEI")
    ran = re.findall(r"^rule (\w+):|^    wildcards: (.*)$", project.snakemake("-n"), re.MULTILINE)
    assert [name or values for name, values in ran] == ["mapping", "item=two", "join", "all"]


def test_bridge_stage_without_rule_or_rule_without_stage_is_rejected(study: Project) -> None:
    def assert_rejected(message: str, target: str = "all") -> None:
        done = study.run("snakemake", "-n", target, check=False)
        last = done.stdout.splitlines()[-1]
        assert done.returncode == 1 and "Traceback" not in done.stdout
        assert last.startswith("error: dvc.yaml has ") and message in last, done.stdout

    study.edit("workflow/Snakefile", "'report'", "'raport'")
    assert_rejected("stages without a rule: report")
    study.edit("workflow/Snakefile", "'raport'", "'report'")
    study.edit("dvc.yaml", "  report:", "  extra:\n    cmd: echo\n    outs: [extra.txt]\n  report:")
    assert_rejected("stages without a rule: extra")
    study.edit("dvc.yaml", "  extra:\n    cmd: echo\n    outs: [extra.txt]\n", "")
    assert_rejected("no stage finetune@none-1", target=".snakemake/dvc/finetune@none-1")
