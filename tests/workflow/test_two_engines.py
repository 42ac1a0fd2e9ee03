"""Each promise that Snakemake and DVC hold one idea of what is done, shown with both on the toy study."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

if TYPE_CHECKING:
    from conftest import Project

WriteProject = Callable[[Path, Path, str, str], None]

FINETUNE = {f"finetune@{task}-{seed}" for task in ("cola", "squad2") for seed in (1, 2)}
FROM_PRETRAIN = {"pretrain", *FINETUNE, "report"}
EVERYTHING = {"shard@a", "shard@b", "count", *FROM_PRETRAIN}
OUTPUTS = ("data/", "models/", "results/")
IN_DATABASE = ["snakemake", "--persistence-backend", "db", "--cores", "1"]
LOOKING = [["-n", "all"], ["--dag"], ["--lint"], ["--report", "report.html"]]
COMMANDS = {
    "snakemake": ["snakemake", "--cores", "1", "all"],
    "dvc repro": ["dvc", "repro"],
    "dvc exp run": ["dvc", "exp", "run"],
    "dvc exp run -S": ["dvc", "exp", "run", "-S", "mask_prob=0.4"],
    "dvc exp run --queue": ["dvc", "exp", "run", "--queue", "-S", "mask_prob=0.4"],
}
# Beside a DVC command, DVC itself lets an experiment write its params.yaml before it refuses.
BESIDE = {
    "snakemake": list(COMMANDS),
    "dvc repro": ["snakemake", "dvc repro"],
    "dvc exp run": ["snakemake", "dvc repro"],
}
Register = Callable[["subprocess.Popen[str]"], "subprocess.Popen[str]"]

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
  large:
    cmd: mkdir -p out/large && head -c 100000000 /dev/zero > out/large/zeros && echo 1 > out/large/one
    outs: [out/large/]
  join:
    cmd:
      - mkdir -p out/join && cat out/*/words.txt sub/made/copy > out/join/all.txt
      - echo 3 > out/join/lines.json && printf 'x\\ty\\n1\\t2\\n' > out/join/curve.tsv
    deps: [out/en-1, out/de-2, out/grid, sub/made, out/large]
    outs: [out/join/all.txt]
    metrics: [{out/join/lines.json: {cache: false}}]
    plots: [{out/join/curve.tsv: {cache: false, x: x, y: y}}]
"""
FORMS_PARAMS = "word: zwei\n"


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
    assert "metadata" not in study.snakemake("-n")  # of which Snakemake has none here
    assert not (study.path / ".snakemake/dvc").exists()  # looking wrote nothing
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


@pytest.mark.parametrize("engine", ["snakemake", "dvc"])
def test_what_follows_is_spared_where_the_output_came_out_as_before(study: Project, engine: str) -> None:
    before = made(study)
    study.edit("toy/shard.py", "write(", "write( ")
    study.snakemake() if engine == "snakemake" else study.dvc("repro")
    assert set(study.ran()) == {"shard@a", "shard@b"}
    assert made(study) == before
    assert study.nothing_to_do()


def test_a_file_asked_for_by_name_is_made_anew_with_all_it_comes_from(study: Project) -> None:
    study.edit("params.yaml", "size: 3", "size: 4")
    study.run("snakemake", "--cores", "2", "models/pretrained")
    assert study.ran() == ["count", "pretrain"]
    assert "Nothing to be done" in study.run("snakemake", "-n", "models/pretrained").stdout


def test_what_is_stale_is_listed_by_the_options_that_only_look(study: Project) -> None:
    study.edit("params.yaml", "mask_prob: 0.15", "mask_prob: 0.4")
    before = study.files()
    listed = study.run("snakemake", "--summary").stdout
    plans = {line.split("\t")[0]: line.split("\t")[-1] for line in listed.splitlines() if "\t" in line}
    assert plans["models/pretrained"] == "update pending" and plans["data/count.txt"] == "no update"
    drawn = study.run("snakemake", "--dag").stdout
    drawn_anew = {"pretrain", "report"} - set(re.findall(r'label = "(\w+)[^"]*",[^\]]*dashed', drawn))
    assert "count" not in drawn_anew and {"pretrain", "report"} == drawn_anew
    for option in ("--list-rules", "--unlock", "--list-changes=code"):
        study.run("snakemake", "--cores", "1", option)
    assert study.files() == before and study.ran() == []


def test_a_run_without_hooks_is_recorded_as_well(study: Project) -> None:
    study.edit("params.yaml", "mask_prob: 0.15", "mask_prob: 0.4")
    study.snakemake("--no-hooks")
    assert set(study.ran()) == FROM_PRETRAIN
    assert study.nothing_to_do()


def test_one_task_of_many_goes_stale(study: Project) -> None:
    study.edit("toy/tasks.yaml", "labels: 2", "labels: 3")
    study.snakemake()
    assert set(study.ran()) == {"finetune@cola-1", "finetune@cola-2"}  # the report: their output is as before
    assert study.nothing_to_do()


@pytest.mark.parametrize("engine", ["snakemake", "dvc"])
def test_after_kill_only_jobs_in_flight_run_again(study: Project, background: Register, engine: str) -> None:
    study.edit("params.yaml", "size: 3", "size: 4")
    command = ["snakemake", "--cores", "1", "all"] if engine == "snakemake" else ["dvc", "repro"]
    process = background(study.start(*command, TOY_SLOW="pretrain"))
    study.wait_for("pretrain")
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert study.ran() == ["count", "pretrain"]
    before = study.files()
    for looking in LOOKING if engine == "snakemake" else LOOKING[:1]:
        said = study.run("snakemake", *looking, check="--lint" not in looking).stdout
        assert study.files() == before, said
        assert ("rule pretrain" in said and "rule count" not in said) or looking != ["-n", "all"]
    said = study.snakemake()
    assert "committing count" in said or engine == "dvc"
    assert set(study.ran()) == FROM_PRETRAIN
    assert study.nothing_to_do()


def test_a_kill_leaves_no_lock_in_a_database_of_snakemake(study: Project, background: Register) -> None:
    study.edit("params.yaml", "mask_prob: 0.15", "mask_prob: 0.4")
    process = background(study.start(*IN_DATABASE, "all", TOY_SLOW="pretrain"))
    study.wait_for("pretrain")
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    study.ran()
    study.run(*IN_DATABASE, "all")
    assert set(study.ran()) == FROM_PRETRAIN
    assert study.nothing_to_do()


@pytest.fixture
def recorded(study: Project, background: Register) -> subprocess.Popen[str]:
    """A Snakemake that is pretraining and has recorded what went before."""
    study.edit("params.yaml", "size: 3", "size: 4")
    process = background(study.start("snakemake", "--cores", "1", "all", TOY_SLOW="pretrain"))
    study.wait_for("pretrain")
    deadline = time.monotonic() + 240
    while yaml.safe_load((study.path / "dvc.lock").read_text())["stages"]["count"]["params"]["params.yaml"] != {
        "arguments": [], "count.size": 4,
    }:  # fmt: skip
        assert time.monotonic() < deadline, "count was never recorded"
        time.sleep(0.2)
    return process


def test_what_a_killed_snakemake_had_finished_dvc_runs_no_more(study: Project, recorded: subprocess.Popen[str]) -> None:
    os.killpg(recorded.pid, signal.SIGKILL)
    recorded.wait()
    assert study.ran() == ["count", "pretrain"]
    study.dvc("repro")
    assert set(study.ran()) == FROM_PRETRAIN
    assert study.nothing_to_do()


def test_what_was_recorded_before_an_edit_stays_recorded(study: Project, recorded: subprocess.Popen[str]) -> None:
    study.edit("toy/count.py", "write(", "write( ")
    (study.path / "go").touch()
    said, _ = recorded.communicate(timeout=240)
    assert recorded.returncode == 0 and said.count("committing count") == 1 and "while it ran" not in said, said
    assert "count" in study.dvc("status") and "count" in study.snakemake("-n")
    study.edit("toy/count.py", "write( ", "write(")
    study.ran()
    assert study.nothing_to_do()
    assert study.ran() == []


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
    said, _ = process.communicate(timeout=240)
    # what had been recorded before the edit is recorded
    assert ("count changed while it ran, not committed" in said) != ("committing count" in said)
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


@pytest.mark.parametrize("engine", ["snakemake", "dvc"])
def test_a_table_of_files_in_use_cut_off_by_a_kill_is_removed(study: Project, root: Path, engine: str) -> None:
    study.edit("params.yaml", "mask_prob: 0.15", "mask_prob: 0.4")
    (study.path / ".dvc/tmp/rwlock").write_text("")
    if engine == "dvc":
        assert "Unable to read RWLock-file" in study.dvc("repro", check=False)
        assert "was damaged by a kill" in study.run("python", str(root / "workflow/lock_file.py")).stdout
        study.dvc("repro")
    else:
        assert "files in use was damaged by a kill" in study.snakemake()
    assert set(study.ran()) == FROM_PRETRAIN
    assert study.nothing_to_do()


@pytest.mark.parametrize("engine", ["snakemake", "dvc"])
def test_a_lock_file_cut_off_by_a_kill_loses_nothing(study: Project, root: Path, engine: str) -> None:
    study.edit("params.yaml", "mask_prob: 0.15", "mask_prob: 0.2")
    study.dvc("repro")
    assert set(study.ran()) == FROM_PRETRAIN
    lock = study.path / "dvc.lock"
    lock.write_text("" if engine == "dvc" else lock.read_text()[:2000])
    if engine == "dvc":
        assert "'./dvc.lock' validation failed" in study.dvc("repro", check=False)
        assert "was damaged by a kill" in study.run("python", str(root / "workflow/lock_file.py")).stdout
        study.dvc("repro")
    else:
        said = study.snakemake()
        assert "dvc.lock was damaged by a kill" in said
    assert study.ran() == []
    assert study.nothing_to_do()


def test_output_edited_by_hand_is_put_right(study: Project) -> None:
    path = study.path / "models/pretrained/model.txt"
    good = path.read_text()
    path.write_text("tampered\n")
    study.snakemake()
    assert study.ran() == []  # it lay in the cache
    assert path.read_text() == good
    assert study.nothing_to_do()


def made(study: Project) -> dict[str, str]:
    """What every output holds."""
    files = {name: content for name, (_, content) in study.files().items() if name.startswith(OUTPUTS)}
    return {name: content for name, content in files.items() if not name.endswith(".snakemake_timestamp")}


def cached_model(study: Project) -> Path:
    """The file of DVC's cache that holds the trained model."""
    digest = hashlib.md5((study.path / "models/pretrained/model.txt").read_bytes()).hexdigest()
    return study.path / f".dvc/cache/files/md5/{digest[:2]}/{digest[2:]}"


def flip_a_bit(file: Path) -> None:
    """Damage a file as a bad disk does, under its old name and mode."""
    data, mode = bytearray(file.read_bytes()), file.stat().st_mode
    data[0] ^= 1
    file.chmod(0o644)
    file.write_bytes(data)
    file.chmod(mode)


def test_a_lost_cache_costs_no_output(study: Project) -> None:
    before = made(study)
    (study.path / ".dvc/cache").rename(study.path / "elsewhere")
    assert "Nothing to be done" in study.snakemake("-n")
    for _ in range(2):
        study.snakemake()
        assert made(study) == before
        assert study.ran() == []
    assert study.nothing_to_do()
    study.dvc("repro")
    assert study.ran() == []
    shutil.rmtree(study.path / "models")
    study.snakemake()  # the cache holds all of it again
    assert made(study) == before and study.ran() == []


def test_links_into_a_lost_cache_are_made_anew(study: Project) -> None:
    study.dvc("config", "cache.type", "symlink")
    study.dvc("checkout", "--relink")
    before = made(study)
    (study.path / ".dvc/cache").rename(study.path / "elsewhere")
    said = study.snakemake()
    assert "must run anew" in said and set(study.ran()) == EVERYTHING
    assert made(study) == before


def test_a_lock_file_newer_than_the_workspace_costs_no_output(study: Project, tmp_path: Path) -> None:
    other = study.copy(tmp_path / "other")
    other.edit("params.yaml", "mask_prob: 0.15", "mask_prob: 0.2")
    other.snakemake()
    for file in ("dvc.lock", "params.yaml"):  # git pull, and no dvc pull
        shutil.copy(other.path / file, study.path / file)
    before, lock = made(study), (study.path / "dvc.lock").read_text()
    study.ran()
    for _ in range(2):
        said = study.snakemake(check=False)
        assert re.search("records another version of models/pretrained than lies here.*`dvc pull`, or move", said)
        assert "Traceback" not in said
        assert made(study) == before and (study.path / "dvc.lock").read_text() == lock
    assert study.ran() == []

    pulled = study.copy(tmp_path / "pulled")
    shutil.copytree(other.path / ".dvc/cache", pulled.path / ".dvc/cache", dirs_exist_ok=True)
    pulled.snakemake()
    assert pulled.ran() == [] and made(pulled) == made(other)

    (study.path / "models/pretrained").rename(study.path / "models/mine")
    said = study.snakemake()
    assert "pretrain must run anew" in said and set(study.ran()) == FROM_PRETRAIN
    assert (study.path / "models/mine/model.txt").read_text().startswith("0.15 ")
    assert study.nothing_to_do()


def test_a_damaged_file_of_the_cache_is_not_called_fresh(study: Project) -> None:
    good = (study.path / "models/pretrained/model.txt").read_text()
    flip_a_bit(cached_model(study))
    shutil.rmtree(study.path / "models")
    said = study.snakemake()
    assert "the cache held a damaged file of models/pretrained" in said and "pretrain must run anew" in said
    assert study.ran()[0] == "pretrain"
    assert (study.path / "models/pretrained/model.txt").read_text() == good
    assert study.nothing_to_do()


def test_a_damaged_file_of_the_cache_does_not_replace_ones_own(study: Project) -> None:
    flip_a_bit(cached_model(study))
    (study.path / "models/pretrained/model.txt").write_text("mine\n")
    said = study.snakemake(check=False)
    assert "records another version of models/pretrained than lies here" in said and "Traceback" not in said
    assert (study.path / "models/pretrained/model.txt").read_text() == "mine\n" and study.ran() == []


def test_a_damaged_file_is_not_taken_from_the_run_cache(study: Project) -> None:
    cached = cached_model(study)
    good = made(study)
    study.edit("params.yaml", "mask_prob: 0.15", "mask_prob: 0.2")
    study.snakemake()
    study.ran()
    flip_a_bit(cached)
    study.edit("params.yaml", "mask_prob: 0.2", "mask_prob: 0.15")
    assert "the cache held a damaged file of models/pretrained" in study.snakemake()
    assert study.ran()[0] == "pretrain" and made(study) == good
    assert study.nothing_to_do()


def test_both_sides_of_a_merge_in_dvc_lock_are_left_to_the_user(study: Project, root: Path) -> None:
    lock = study.path / "dvc.lock"
    both = f"<<<<<<< HEAD\n{lock.read_text()}=======\n{lock.read_text()}>>>>>>> theirs\n"
    lock.write_text(both)
    script = ["python", str(root / "workflow/lock_file.py")]
    for command in (["snakemake", "-n", "all"], ["snakemake", "--cores", "1", "all"], script):
        done = study.run(*command, check=False)
        assert done.returncode == 1 and "dvc.lock holds both sides of a merge" in done.stdout
        assert "Traceback" not in done.stdout and lock.read_text() == both
    assert study.ran() == []


def test_inputs_dated_in_the_future_cost_no_output(study: Project) -> None:
    study.edit("params.yaml", "mask_prob: 0.15", "mask_prob: 0.2")
    ahead = time.time() + 3 * 3600
    for path in [*study.path.glob("data/**/*"), *study.path.glob("toy/*")]:
        os.utime(path, (ahead, ahead))
    study.snakemake()
    assert set(study.ran()) == FROM_PRETRAIN
    assert study.nothing_to_do()


def test_a_failure_keeps_what_was_finished(study: Project) -> None:
    study.edit("params.yaml", "mask_prob: 0.15", "mask_prob: 0.3")
    said = study.snakemake("--keep-going", check=False, TOY_FAIL="finetune@cola-1")
    assert "committing finetune@squad2-2" in said
    study.ran()
    study.snakemake()
    assert set(study.ran()) == {"finetune@cola-1", "report"}
    assert study.nothing_to_do()


@pytest.mark.parametrize("first", BESIDE)
def test_the_second_of_two_engines_stops_and_names_the_first(study: Project, background: Register, first: str) -> None:
    study.edit("params.yaml", "mask_prob: 0.15", "mask_prob: 0.3")
    process = background(study.start(*COMMANDS[first], TOY_SLOW="pretrain"))
    study.wait_for("pretrain")
    before = study.files()
    for second in BESIDE[first]:
        done = study.run(*COMMANDS[second], check=False)
        named = f"Process {process.pid} (" if second == "snakemake" else f"(PID {process.pid}): "
        assert done.returncode and named in done.stdout
        assert "Traceback" not in done.stdout
        assert study.files() == before
    if first == "snakemake":
        assert "rule report" in study.snakemake("-n")  # looking is always allowed
    (study.path / "go").touch()
    said, _ = process.communicate(timeout=240)
    assert process.returncode == 0, said
    assert sorted(study.ran()) == sorted(FROM_PRETRAIN)  # nothing twice
    assert study.nothing_to_do()


def test_every_way_to_write_a_stage(
    project_class: type[Project], write_project: WriteProject, tmp_path: Path, root: Path
) -> None:
    project = project_class(tmp_path / "study", tmp_path / "home")
    write_project(project.path, root / "workflow", FORMS, FORMS_PARAMS)
    said = project.snakemake(check=False, PIPELINE_PROGRESS_SECONDS="soon")
    assert "is no number of seconds from 0.01 up: 'soon'" in said and "Traceback" not in said
    said = project.snakemake(PIPELINE_PROGRESS_SECONDS="0.01")
    assert "dvc: committing large (" in said and "100 MB)" in said  # and while it hashes, how far it is:
    assert re.search(r"committing large .*: .* read in \d+ s", said)
    assert project.nothing_to_do()
    assert (project.path / "out/de-2/words.txt").read_text() == "zwei\n"
    shutil.rmtree(project.path / ".snakemake")
    shutil.rmtree(project.path / "out")
    (project.path / "dvc.lock").unlink()
    project.dvc("repro", "--no-run-cache")
    assert project.nothing_to_do()
    project.edit("params.yaml", "word: zwei", "word: ZWEI")
    ran = re.findall(r"^rule (\w+):|^    wildcards: (.*)$", project.snakemake("-n"), re.MULTILINE)
    assert [name or values for name, values in ran] == ["mapping", "lang=de, n=2", "join", "all"]


def test_a_folder_with_braces_is_refused_in_one_sentence(study: Project, tmp_path: Path) -> None:
    said = study.copy(tmp_path / "a{b}").snakemake("-n", check=False)
    assert "does not work in a folder with braces in its name" in said and "Traceback" not in said


def test_a_stage_without_a_rule_and_a_rule_without_a_stage(study: Project) -> None:
    study.edit("workflow/Snakefile", 'dag["report"].input', 'dag["raport"].input')
    assert "'raport', which dvc.yaml does not declare" in study.snakemake("-n", check=False)
    study.edit("workflow/Snakefile", 'dag["raport"].input', 'dag["report"].input')
    study.edit("dvc.yaml", "  report:", "  extra:\n    cmd: echo\n    outs: [extra.txt]\n  report:")
    said = study.snakemake("-n", check=False)
    assert "declares extra, which no rule" in said
    assert "Traceback" not in said
