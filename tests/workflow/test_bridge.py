"""Which of the Slurm jobs that ``squeue`` lists are this project's; stamps; DVC's errors and table of files in use."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.users import FIRST, SECOND, as_user, needs_root, share

NAMES = {"pretrain_phase1", "finetune", "train_tokenizer", "tokenize", "build_examples", "evaluate", "corpus", "part"}
GROUPS = [  # of rules, as the executor names them
    "part_finetune",
    "corpus_build_examples_tokenize_train_tokenizer",
    "corpus_build_examples_evaluate_finetune_pretrain_phase1_tokenize_...",
]
Listing = Callable[..., None]


@pytest.fixture(scope="module")
def bridge(workflow_module: Callable[[str], ModuleType]) -> ModuleType:
    return workflow_module("bridge")


@pytest.fixture
def listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Listing:
    """Says what ``squeue`` lists: a comment, or a pair of comment and folder, for every job from 7 on."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.chdir(tmp_path)

    def write(*jobs: str | tuple[str, Path]) -> None:
        pairs = [(job, tmp_path) if isinstance(job, str) else job for job in jobs]
        lines = "".join(f"{7 + index}|{comment}|{path}\n" for index, (comment, path) in enumerate(pairs))
        (folder / "squeue").write_text(f"#!/bin/sh\nwhile read -r line; do echo \"$line\"; done <<'END'\n{lines}END\n")
        (folder / "squeue").chmod(0o755)

    return write


@pytest.mark.parametrize(
    ("comment", "name"),
    [
        ("pretrain_phase1", "pretrain_phase1"),
        ("finetune_wildcards_cola_1", "finetune"),
        *[(group, group) for group in GROUPS],
    ],
)
def test_living_jobs_are_recognised_by_comment(bridge: ModuleType, listed: Listing, comment: str, name: str) -> None:
    listed(f"rule_{comment}")
    assert bridge.living_jobs(NAMES) == {"7": name}


def test_living_jobs_other_jobs_are_ignored(bridge: ModuleType, listed: Listing, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    listed(
        "rule_other", "rule_finetuned", "rule_other_finetune", "finetune", "(null)", "", "a|b", "rule_finetune_other",
        ("rule_finetune", elsewhere),
    )  # fmt: skip
    assert bridge.living_jobs(NAMES) == {}


def test_living_jobs_with_prefixed_names_are_recognised(bridge: ModuleType, listed: Listing, tmp_path: Path) -> None:
    """``--slurm-jobname-prefix`` changes the names of jobs; the stand-in prints a job unless its name is asked for."""
    listed()
    line = f"7|rule_evaluate|{tmp_path}"
    Path("bin/squeue").write_text(f"#!/bin/sh\ncase \"$*\" in *--name*|*%j*) ;; *) echo '{line}' ;; esac\n")
    assert bridge.living_jobs(NAMES) == {"7": "evaluate"}


def test_living_jobs_folder_by_symlink_is_recognised(bridge: ModuleType, listed: Listing, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    listed(("rule_evaluate", tmp_path / "link"))
    assert bridge.living_jobs(NAMES) == {"7": "evaluate"}


def test_living_jobs_own_job_is_ignored(bridge: ModuleType, listed: Listing, monkeypatch: pytest.MonkeyPatch) -> None:
    listed("rule_evaluate", "rule_evaluate")
    monkeypatch.setenv("SLURM_JOB_ID", "8")
    assert bridge.living_jobs(NAMES) == {"7": "evaluate"}


def test_living_jobs_with_unreachable_controller_are_empty(bridge: ModuleType, listed: Listing) -> None:
    assert bridge.living_jobs(NAMES) == {}
    listed("rule_evaluate")
    script = Path("bin/squeue")
    script.write_text("#!/bin/sh\necho 'slurm_load_jobs error: Unable to contact slurm controller' >&2\nexit 1\n")
    assert bridge.living_jobs(NAMES) == {}


@needs_root
def test_stages_stamps_of_another_user_are_replaced(
    bridge: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(bridge, "_dvc", lambda *arguments: arguments)
    answers = {("dag", "--dot"): '"count";\n', ("status", "--json"): "{}"}
    monkeypatch.setattr(bridge, "_answer", lambda arguments, show_log=False: answers[arguments])
    share(tmp_path)

    def start() -> None:
        assert bridge.Stages(True, ["count"]).stamps() == [".snakemake/dvc/count"]

    as_user(FIRST, start)
    as_user(SECOND, start)
    stamp = (tmp_path / ".snakemake/dvc/count").stat()
    assert (stamp.st_uid, stamp.st_mtime) == (SECOND, 1)


def test_stages_system_error_names_file_or_folder(
    bridge: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def fail(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(bridge, "_clear_stale_rwlock", fail)
    with pytest.raises(bridge.FatalError, match=f"^error: {tmp_path}: Operation not permitted. Nothing was run: "):
        bridge.Stages(True, ["count"])


# ---------------------------------------------------------------- DVC's table of files in use, on each host


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The path of the table in a checkout; what is made in /tmp is removed."""
    monkeypatch.chdir(tmp_path)
    path = Path(".dvc/tmp/rwlock")
    path.parent.mkdir(parents=True)
    path.parent.chmod(0o755)
    yield path
    if path.is_symlink() and path.readlink().is_relative_to("/tmp"):
        path.readlink().unlink(missing_ok=True)


def test_rwlock_table_is_link_to_random_file_on_this_host(bridge: ModuleType, table: Path) -> None:
    table.write_text("{}")
    bridge.keep_by_host(table)
    target = table.readlink()
    assert target.parent == Path("/tmp") and table.read_text() == "{}", "a DVC of this host may be at work"
    bridge.keep_by_host(table)
    assert table.readlink() == target
    target.unlink()  # another host, or /tmp was emptied
    bridge.keep_by_host(table)
    assert table.readlink() == target and not table.exists()
    table.unlink()
    bridge.keep_by_host(table)
    assert table.readlink() != target


def test_rwlock_table_of_copied_checkout_is_separate(
    bridge: ModuleType, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bridge.keep_by_host(table)
    first = table.readlink()
    (tmp_path / "copy/.dvc/tmp").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "copy")
    table.symlink_to(first)
    bridge.keep_by_host(table)
    assert table.readlink() != first


@pytest.mark.parametrize("planted", ["a file of another user", "a link"])
def test_rwlock_table_of_another_user_is_rejected(
    bridge: ModuleType, table: Path, tmp_path: Path, planted: str
) -> None:
    bridge.keep_by_host(table)
    target, mine = table.readlink(), tmp_path / "mine"
    mine.write_text("mine")
    if planted == "a link":
        target.symlink_to(mine)
    elif os.getuid():
        pytest.skip("only root can be other users")
    else:
        target.touch()
        os.chown(target, FIRST, FIRST)
    with pytest.raises(SystemExit, match=f"{target} is a link or belongs to another user.*rm {table}"):
        bridge.keep_by_host(table)
    assert mine.read_text() == "mine"


def test_stale_rwlock_table_behind_foreign_link_removes_only_link(
    bridge: ModuleType, table: Path, tmp_path: Path
) -> None:
    (tmp_path / "mine").write_text("no table")
    table.symlink_to(tmp_path / "mine")
    assert bridge._clear_stale_rwlock(table) is False
    assert (tmp_path / "mine").read_text() == "no table" and not table.is_symlink()
