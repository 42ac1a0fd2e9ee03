"""What a stage read beside what DVC recorded, on a study of one stage whose dvc.lock is written as DVC writes it."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline_src.base.errors import PipelineError
from pipeline_src.engine import records
from pipeline_src.engine.dvc_lock import HEADER, LOCK_COPY, split_entries
from pipeline_src.engine.records import (
    NOTES,
    StageRecord,
    cached_runs,
    keep_copy_of_lock,
    run_of_same_inputs,
    settle_records,
)

INPUTS, OUTPUTS = ["data/tokens", "catalogue/rte.yaml", "code/train", "params.yaml"], ["models/phase1", "results.json"]
FOLDER = Path("checkpoints/phase1/abc")


def md5(path: Path) -> str:
    return hashlib.md5(path.read_bytes()).hexdigest()


def files_of(path: str) -> list[Path]:
    return sorted(file for file in (Path(path), *Path(path).rglob("*")) if file.is_file())


def listing(folder: str) -> str:
    """What DVC's cache holds for a folder."""
    return json.dumps([{"md5": md5(file), "relpath": str(file.relative_to(folder))} for file in files_of(folder)])


def dvc_hash(path: str) -> str:
    """The hash of a file or a folder, worked out beside the module under test."""
    if Path(path).is_file():
        return md5(Path(path))
    return hashlib.md5(listing(path).encode()).hexdigest() + ".dir"


def items(kind: str, paths: list[str]) -> str:
    text = f"    {kind}:\n"
    for path in paths:
        size = sum(file.stat().st_size for file in files_of(path))
        text += f"    - path: {path}\n      md5: {dvc_hash(path)}\n      size: {size}\n"
    return text


def cache(path: str, content: str = "") -> None:
    digest = dvc_hash(path)
    file = Path(".dvc/cache/files/md5", digest[:2], digest[2:])
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content)


def write_record(params: str = "mask_prob: 0.15") -> None:
    """Record the stage as DVC does when its command has ended: in the run-cache and in dvc.lock."""
    values = f"    params:\n      params.yaml:\n        {params}\n"
    content = f"    cmd: train\n{items('deps', INPUTS)}{values}{items('outs', OUTPUTS)}"
    run = Path(".dvc/cache/runs/aa/bb", hashlib.sha256(content.encode()).hexdigest())
    run.parent.mkdir(parents=True, exist_ok=True)
    run.write_text("".join(line[4:] for line in content.splitlines(keepends=True)))
    Path("dvc.lock").write_text(f"{HEADER}  code:\n    cmd: code\n  train:\n{content}")


@pytest.fixture(autouse=True)
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(records, "cache_folder", lambda: Path(".dvc/cache"))
    for path in ("data/tokens/a", "data/tokens/sub/b", "catalogue/rte.yaml", "code/train", "results.json"):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(f"{path}\n")
    Path("params.yaml").write_text("mask_prob: 0.15\nmodel: {layers: 2}\n")
    for folder in (Path("models/phase1"), FOLDER, Path(".dvc/tmp")):
        folder.mkdir(parents=True)
    Path("models/phase1/weights").write_text("1\n")
    (FOLDER / "state").write_text("1\n")
    Path(".dvc/tmp/lock").touch()


def run_stage() -> None:
    """The stage from its start to its last act."""
    record = StageRecord("train", INPUTS, OUTPUTS)
    record.folders.append(FOLDER)
    record.wait_for_dvc()
    record.check()
    record.leave_note()
    if record._held:
        record._held.close()


def entry() -> str:
    return split_entries(Path("dvc.lock").read_text()).get("train", "")


def test_checkpoints_of_recorded_training_are_deleted() -> None:
    run_stage()
    write_record()
    assert settle_records() == []
    assert not FOLDER.exists() and not any(NOTES.iterdir()) and entry()


def test_checkpoints_stay_until_the_training_is_recorded() -> None:
    write_record()
    Path("models/phase1/weights").write_text("2\n")
    Path("results.json").write_text("2\n")
    run_stage()  # dvc.lock has the run before
    assert settle_records() == []
    assert FOLDER.exists()
    write_record()
    assert settle_records() == [] and not FOLDER.exists()


EDITS: dict[str, Callable[[], object]] = {
    "other bytes": lambda: Path("catalogue/rte.yaml").write_text("other\n"),
    "a file in a folder": lambda: Path("data/tokens/sub/b").write_text("other\n"),
    "a file more": lambda: Path("data/tokens/c").write_text("other\n"),
    "a fingerprint": lambda: Path("code/train").write_text("other\n"),
}  # fmt: skip


@pytest.mark.parametrize("edit", EDITS)
def test_record_of_inputs_edited_after_last_check_is_removed(edit: str) -> None:
    run_stage()
    EDITS[edit]()
    write_record()
    (sentence,) = settle_records()
    assert "train: " in sentence and "edited after the stage had read it" in sentence
    assert not entry() and "  code:" in Path("dvc.lock").read_text()
    assert list(cached_runs(Path(".dvc/cache"))) == []
    assert FOLDER.exists(), "the next start continues from the checkpoints"
    assert settle_records() == []


def test_wrong_record_is_replaced_by_earlier_record() -> None:
    write_record()
    keep_copy_of_lock()
    before = entry()
    Path("results.json").write_text("2\n")
    run_stage()
    EDITS["other bytes"]()
    write_record()
    keep_copy_of_lock()
    assert entry() != before and len(settle_records()) == 1
    assert entry() == before == split_entries(LOCK_COPY.read_text())["train"]


def test_wrong_record_is_removed_for_good_if_a_kill_interrupts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The run-cache has the evidence that the record is wrong, so it is the last to be changed."""
    run_stage()
    EDITS["other bytes"]()
    write_record()
    unlink = Path.unlink

    def unlink_and_die(path: Path, missing_ok: bool = False) -> None:
        unlink(path, missing_ok)
        if "runs" in path.parts:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Path, "unlink", unlink_and_die)
        settle_records()
    settle_records()
    assert not entry()


def test_record_of_another_run_is_kept() -> None:
    """`dvc exp apply` and `git checkout` change dvc.lock and its inputs together."""
    run_stage()
    EDITS["other bytes"]()
    Path("results.json").write_text("of another run\n")
    write_record("mask_prob: 0.3")
    assert settle_records() == [] and "0.3" in entry() and FOLDER.exists()


def test_record_of_another_branch_with_same_outputs_is_kept() -> None:
    EDITS["a fingerprint"]()
    write_record()
    other = Path("dvc.lock").read_text()
    for run, _ in cached_runs(Path(".dvc/cache")):
        os.utime(run, (1, 1))
    Path("code/train").write_text("code/train\n")
    run_stage()
    write_record()
    Path("dvc.lock").write_text(other)  # `git checkout`
    assert settle_records() == [] and Path("dvc.lock").read_text() == other


def test_record_of_parameters_edited_after_last_check_is_removed() -> None:
    run_stage()
    write_record("mask_prob: 0.2")
    (sentence,) = settle_records()
    assert sentence.startswith("train: mask_prob in params.yaml was edited after the stage had read it")
    assert not entry()


def test_inputs_edited_after_recording_keep_record() -> None:
    run_stage()
    write_record()
    EDITS["other bytes"]()
    # As DVC does before it makes the tokens anew.
    shutil.rmtree("data/tokens")
    assert settle_records() == [] and entry() and not FOLDER.exists()


def test_large_input_with_other_recorded_hash_is_edit_only_if_file_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline_src.engine.dependencies.MAX_HASHED_BYTES", 40)
    tokens = dvc_hash("data/tokens")
    upstream = f"  tokenize:\n    cmd: tokenize\n    outs:\n    - path: data/tokens\n      md5: {tokens}\n"
    Path("dvc.lock").write_text(HEADER + upstream)
    run_stage()
    write_record()
    assert settle_records() == [] and entry()
    Path("dvc.lock").write_text(HEADER + upstream)
    run_stage()
    Path("data/tokens/a").write_text("other\n")
    write_record()
    assert "data/tokens was edited" in settle_records()[0] and not entry()


def test_notes_are_not_deleted_while_dvc_lock_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    run_stage()
    write_record()

    def time_out(path: Path, patience: float) -> None:
        raise TimeoutError

    monkeypatch.setattr(records, "take_dvc_lock", time_out)
    assert settle_records() == [] and FOLDER.exists() and any(NOTES.iterdir())


@pytest.mark.parametrize("lock", ["is missing", "is on a disk without locks"])
def test_notes_are_compared_if_dvc_uses_another_lock_type(monkeypatch: pytest.MonkeyPatch, lock: str) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    if lock == "is missing":
        Path(".dvc/tmp/lock").unlink()
    else:
        monkeypatch.setattr("fcntl.flock", fail)
    run_stage()
    write_record()
    assert settle_records() == [] and not FOLDER.exists()


def test_dvc_lock_backup_gains_entries_and_loses_none() -> None:
    write_record()
    keep_copy_of_lock()
    whole = Path("dvc.lock").read_text()
    assert LOCK_COPY.read_text() == whole
    Path("dvc.lock").write_text(whole[: whole.rindex("    - path")])
    keep_copy_of_lock()
    assert LOCK_COPY.read_text() == whole
    Path("dvc.lock").write_text(f"{HEADER}  other:\n    cmd: other\n")
    keep_copy_of_lock()
    assert split_entries(LOCK_COPY.read_text()).keys() == {"code", "train", "other"}


def test_dvc_lock_backup_leaves_unfinished_backup_of_another_stage_alone() -> None:
    """Stages that start at the same time write it at the same time."""
    write_record()
    LOCK_COPY.parent.mkdir(parents=True, exist_ok=True)
    other = LOCK_COPY.with_name(f".{LOCK_COPY.name}.partial")
    other.write_text("unfinished")
    keep_copy_of_lock()
    assert other.read_text() == "unfinished" and LOCK_COPY.read_text() == Path("dvc.lock").read_text()
    assert set(LOCK_COPY.parent.iterdir()) >= {other, LOCK_COPY}
    assert len([path for path in LOCK_COPY.parent.iterdir() if LOCK_COPY.name in path.name]) == 2


@pytest.mark.parametrize("ending", ["    - path", "  train:"])
def test_truncated_dvc_lock_is_not_used_as_first_backup(ending: str) -> None:
    write_record()
    commit = "git init -q && git add dvc.lock && git -c user.name=x -c user.email=x commit -qm x"
    subprocess.run(commit, shell=True, check=True)
    whole = Path("dvc.lock").read_text()
    for lock in (whole[: whole.rindex(ending)], whole[:-5]):
        Path("dvc.lock").write_text(lock)
        keep_copy_of_lock()
        assert not LOCK_COPY.exists()


def test_damaged_note_is_dropped() -> None:
    NOTES.mkdir(parents=True)
    (NOTES / "train.json").write_text('{"entry": 1')
    assert settle_records() == [] and not any(NOTES.iterdir())


def reverse(path: Path) -> None:
    """Put other content of equal size in a file, with the old time."""
    state = path.stat()
    path.write_text(path.read_text()[::-1])
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))


def replace_by_copy(path: str) -> None:
    shutil.copy2(path, "copy")
    Path("copy").replace(path)


def replace_by_link(path: str) -> None:
    other = Path(f"../{Path(path).name}").resolve()
    shutil.copy2(path, other)
    reverse(other)
    Path(path).unlink()
    Path(path).symlink_to(other)


def replace_folder(path: str) -> None:
    folder = Path(path).parent
    shutil.copytree(folder, "copy", copy_function=shutil.copy2)
    reverse(Path("copy", Path(path).name))
    shutil.rmtree(folder)
    Path("copy").replace(folder)


def put_back(path: str) -> None:
    Path(path).rename("aside")
    Path(path).write_text("other\n")
    Path("aside").rename(path)


def reverse_twice(path: str) -> None:
    reverse(Path(path))
    reverse(Path(path))


# An exchange while the stage runs -> what makes it, and whether it is noticed.
EXCHANGES: dict[str, tuple[Callable[[str], object], bool]] = {
    "content, then its time set back": (lambda path: reverse(Path(path)), True),
    "a link to another file of equal size and time": (replace_by_link, True),
    "its folder, by one of equal sizes and times": (replace_folder, True),
    "a copy of the same content and time": (replace_by_copy, True),
    "another file, and put back": (put_back, True),
    "other content with the old time, and put back": (reverse_twice, True),
    "permissions": (lambda path: Path(path).chmod(0o640), False),
    "another hard link": (lambda path: os.link(path, "link"), False),
}


@pytest.mark.parametrize("size", ["small", "large"])
@pytest.mark.parametrize("exchange", EXCHANGES)
def test_file_replaced_while_stage_runs_is_detected_by_content(
    exchange: str, size: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large file is not hashed at the start; what dvc.lock and the cache know of it decides."""
    if size == "large":
        monkeypatch.setattr("pipeline_src.engine.dependencies.MAX_HASHED_BYTES", 0)
    cache("data/tokens", listing("data/tokens"))
    tokens = dvc_hash("data/tokens")
    Path("dvc.lock").write_text(f"{HEADER}  tokenize:\n    outs:\n    - path: data/tokens\n      md5: {tokens}\n")
    record = StageRecord("train", INPUTS, OUTPUTS)
    make, is_noticed = EXCHANGES[exchange]
    make("data/tokens/a")
    if is_noticed:
        with pytest.raises(PipelineError, match="a dependency changed while the stage ran.*data/tokens/a"):
            record.check()
    else:
        record.check()
        record.check()


def test_run_of_same_inputs_replaces_entry_with_uncached_outputs() -> None:
    write_record()
    here, folder = entry(), Path(".dvc/cache")
    elsewhere = here.replace(dvc_hash("results.json"), "0" * 32)
    # The cache has no outputs yet.
    assert run_of_same_inputs(elsewhere, folder) is None
    for output in OUTPUTS:
        cache(output)
    assert run_of_same_inputs(elsewhere, folder) == here
    assert run_of_same_inputs(here, folder) is None  # it needs none
    other_inputs = elsewhere.replace(dvc_hash("code/train"), "1" * 32)
    assert run_of_same_inputs(other_inputs, folder) is None
    assert run_of_same_inputs(elsewhere.replace("0.15", "0.2"), folder) is None
