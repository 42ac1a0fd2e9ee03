"""Outputs that the stage ``code`` puts aside: those of sources, tasks and seeds that params.yaml no longer has."""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path

import pytest

from pipeline_src.code import put_aside_undeclared_outputs

KEPT = [
    "data/text/wikipedia/clean-text",
    "data/text/mine/other-text",
    "data/raw/gone/fetched-files",
    "results/predictions/rte/1/predicted",
    "results/predictions/rte/notes",
    "models/finetuned/gone/1/kept-model",
]
MOVED = [
    "data/text/gone/clean-text",
    "results/predictions/gone/1/predicted",
    "results/predictions/gone/2/predicted",
    "results/predictions/rte/2/predicted",
]


@pytest.fixture(autouse=True)
def outputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in [*KEPT, *MOVED]:
        Path(folder).mkdir(parents=True)
        Path(folder, "file").write_text("made\n")


def aside(path: str) -> str:
    return str(Path(path).with_name(f".{Path(path).name}.removed.partial"))


def put_aside() -> list[str]:
    return put_aside_undeclared_outputs(["wikipedia"], ["rte"], [1])


def test_put_aside_undeclared_outputs_renames_leaf_folders_alone() -> None:
    assert put_aside() == [aside(path) for path in MOVED]
    assert {str(path.parent) for path in Path().rglob("file")} == {*KEPT, *map(aside, MOVED)}
    assert put_aside() == []


def test_put_aside_undeclared_outputs_replaces_an_earlier_copy() -> None:
    put_aside()
    Path(MOVED[0]).mkdir()
    Path(MOVED[0], "newer").touch()
    assert put_aside() == [aside(MOVED[0])]
    assert [path.name for path in Path(aside(MOVED[0])).iterdir()] == ["newer"]


def test_put_aside_undeclared_outputs_follows_no_link(tmp_path: Path) -> None:
    for name in ("elsewhere", "mine/clean-text"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("linked", "plain"):
        Path("data/text", name).mkdir()
    Path("data/text/linked/clean-text").symlink_to(tmp_path / "elsewhere")
    Path("data/text/parent-linked").symlink_to(tmp_path / "mine")
    Path("data/text/plain/clean-text").write_text("a file\n")
    assert put_aside() == [aside(path) for path in MOVED]
    assert (tmp_path / "mine/clean-text").is_dir() and Path("data/text/plain/clean-text").is_file()
    assert Path("data/text/linked/clean-text").is_symlink()


def test_dvc_and_git_ignore_what_is_put_aside(root: Path) -> None:
    for file in (".dvcignore", ".gitignore"):
        patterns = (root / file).read_text().split()
        assert any(fnmatch(Path(aside(MOVED[0])).name, pattern) for pattern in patterns), file
