"""Outputs that the stage ``code`` deletes: those of sources, tasks and seeds that params.yaml no longer has."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline_src.code import delete_undeclared_outputs

KEPT = [
    "data/text/wikipedia/clean-text",
    "data/text/mine/other-text",
    "data/raw/gone/fetched-files",
    "results/predictions/rte/1/predicted",
    "results/predictions/rte/notes",
    "models/finetuned/gone/1/kept-model",
]
DELETED = [
    "data/text/gone/clean-text",
    "results/predictions/gone/1/predicted",
    "results/predictions/gone/2/predicted",
    "results/predictions/rte/2/predicted",
]


@pytest.fixture(autouse=True)
def outputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in [*KEPT, *DELETED]:
        Path(folder).mkdir(parents=True)
        Path(folder, "file").write_text("made\n")


def test_delete_undeclared_outputs_removes_leaf_folders_and_empty_parents() -> None:
    assert delete_undeclared_outputs(["wikipedia"], ["rte"], [1]) == DELETED
    assert {str(path.parent) for path in Path().rglob("file")} == set(KEPT)
    assert not Path("data/text/gone").exists() and not Path("results/predictions/gone").exists()
    assert delete_undeclared_outputs(["wikipedia"], ["rte"], [1]) == []


def test_delete_undeclared_outputs_keeps_other_files_of_a_removed_source() -> None:
    Path("data/text/gone/notes").write_text("mine\n")
    delete_undeclared_outputs(["wikipedia"], ["rte"], [1])
    assert [path.name for path in Path("data/text/gone").iterdir()] == ["notes"]


def test_delete_undeclared_outputs_leaves_links_and_files_alone(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    for name in ("linked", "plain"):
        Path("data/text", name).mkdir()
    Path("data/text/linked/clean-text").symlink_to(tmp_path / "elsewhere")
    Path("data/text/plain/clean-text").write_text("a file\n")
    assert delete_undeclared_outputs(["wikipedia"], ["rte"], [1]) == DELETED
    assert (tmp_path / "elsewhere").exists() and Path("data/text/plain/clean-text").exists()
