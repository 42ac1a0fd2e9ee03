"""Which of the Slurm jobs that ``squeue`` lists are those of an earlier run of this project; stamps; DVC's errors."""

from __future__ import annotations

from collections.abc import Callable
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


def test_living_jobs_folder_by_symlink_is_recognised(bridge: ModuleType, listed: Listing, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    listed(("rule_evaluate", tmp_path / "link"))
    assert bridge.living_jobs(NAMES) == {"7": "evaluate"}


def test_living_jobs_own_job_is_ignored(bridge: ModuleType, listed: Listing, monkeypatch: pytest.MonkeyPatch) -> None:
    listed("rule_evaluate", "rule_evaluate")
    monkeypatch.setenv("SLURM_JOB_ID", "8")
    assert bridge.living_jobs(NAMES) == {"7": "evaluate"}


def test_living_jobs_without_answer_of_slurm_are_empty(bridge: ModuleType, listed: Listing) -> None:
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


def test_stages_error_names_a_file_or_the_folder(
    bridge: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def fail(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(bridge, "_clear_stale_rwlock", fail)
    with pytest.raises(bridge.FatalError, match=f"^error: {tmp_path}: Operation not permitted. Nothing was run: "):
        bridge.Stages(True, ["count"])
