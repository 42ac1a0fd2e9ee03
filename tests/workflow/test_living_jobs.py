"""Which of the Slurm jobs that ``squeue`` lists are this project's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

NAMES = {"pretrain_phase1", "finetune", "train_tokenizer", "tokenize", "build_examples", "evaluate", "corpus", "part"}
GROUPS = [  # of rules, as the executor names them
    "part_finetune",
    "corpus_build_examples_tokenize_train_tokenizer",
    "corpus_build_examples_evaluate_finetune_pretrain_phase1_tokenize_...",
]
Listing = Callable[..., None]


@pytest.fixture(scope="module")
def module(workflow_module: Callable[[str], ModuleType]) -> ModuleType:
    return workflow_module("slurm_jobs")


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
def test_living_jobs_are_recognised_by_comment(module: ModuleType, listed: Listing, comment: str, name: str) -> None:
    listed(f"rule_{comment}")
    assert module.living_jobs(NAMES) == {"7": name}


def test_living_jobs_other_jobs_are_ignored(module: ModuleType, listed: Listing, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    listed(
        "rule_other", "rule_finetuned", "rule_other_finetune", "finetune", "(null)", "", "a|b", "rule_finetune_other",
        ("rule_finetune", elsewhere),
    )  # fmt: skip
    assert module.living_jobs(NAMES) == {}


def test_living_jobs_with_prefixed_names_are_recognised(module: ModuleType, listed: Listing, tmp_path: Path) -> None:
    """``--slurm-jobname-prefix`` changes the names of jobs; the stand-in prints a job unless its name is asked for."""
    listed()
    line = f"7|rule_evaluate|{tmp_path}"
    Path("bin/squeue").write_text(f"#!/bin/sh\ncase \"$*\" in *--name*|*%j*) ;; *) echo '{line}' ;; esac\n")
    assert module.living_jobs(NAMES) == {"7": "evaluate"}


def test_living_jobs_folder_by_symlink_is_recognised(module: ModuleType, listed: Listing, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    listed(("rule_evaluate", tmp_path / "link"))
    assert module.living_jobs(NAMES) == {"7": "evaluate"}


def test_living_jobs_own_job_is_ignored(module: ModuleType, listed: Listing, monkeypatch: pytest.MonkeyPatch) -> None:
    listed("rule_evaluate", "rule_evaluate")
    monkeypatch.setenv("SLURM_JOB_ID", "8")
    assert module.living_jobs(NAMES) == {"7": "evaluate"}


def test_living_jobs_with_unreachable_controller_are_empty(module: ModuleType, listed: Listing) -> None:
    assert module.living_jobs(NAMES) == {}
    listed("rule_evaluate")
    script = Path("bin/squeue")
    script.write_text("#!/bin/sh\necho 'slurm_load_jobs error: Unable to contact slurm controller' >&2\nexit 1\n")
    assert module.living_jobs(NAMES) == {}
