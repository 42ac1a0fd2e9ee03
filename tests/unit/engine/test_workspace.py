"""What is checked and tidied in a checkout before any work."""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path

import pytest

from pipeline_src.base.errors import PipelineError
from pipeline_src.engine.workspace import check_outputs, put_aside_undeclared

STAGES = {
    "clean@wikipedia": {"deps": ["data/raw/wikipedia"], "outs": {"data/text/wikipedia/clean-text": {}}},
    "tokenize": {"deps": ["data/text"], "outs": {"data/tokens": {}}},
    "pretrain_phase1": {"deps": ["data/tokens"], "outs": {"models/phase1": {}, "results/pretrain/phase1.json": {}}},
    "finetune@rte-1": {"deps": ["models/phase1"], "outs": {"results/predictions/rte/1/predicted": {}}},
    "evaluate": {"deps": ["results/predictions"], "outs": {"results/scores.json": {}}},
    "report": {"deps": ["results/pretrain", "results/scores.json"], "outs": {"results/report.md": {}}},
}
KEPT = [
    "data/text/wikipedia/clean-text/a",
    "data/text/.gitignore",
    "data/raw/gone/fetched-files/a",
    "data/tokens/other",
    "models/finetuned/gone/1/a",
    "results/pretrain/phase1.json",
    "results/predictions/rte/1/predicted/a",
    "results/notes.txt",
]
MOVED = {  # file -> what is renamed
    "data/text/gone/clean-text/a": "data/text/gone",
    "data/text/notes.txt": "data/text/notes.txt",
    "data/text/wikipedia/other/a": "data/text/wikipedia/other",
    "results/predictions/gone/1/predicted/a": "results/predictions/gone",
    "results/predictions/rte/2/predicted/a": "results/predictions/rte/2",
    "results/pretrain/phase3.json": "results/pretrain/phase3.json",
}


@pytest.fixture(autouse=True)
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "checkout"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def make(*files: str) -> None:
    for file in files:
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        Path(file).write_text("made\n")


def aside(path: str, number: int = 1) -> Path:
    return Path(path).with_name(f".{Path(path).name}.removed-{number}.partial")


def test_undeclared_outputs_in_shared_folders_are_renamed() -> None:
    make(*KEPT, *MOVED)
    assert put_aside_undeclared(STAGES) == sorted(aside(path) for path in MOVED.values())
    assert all(Path(file).exists() for file in KEPT) and not any(Path(file).exists() for file in MOVED)
    assert put_aside_undeclared(STAGES) == []


def test_undeclared_outputs_renamed_twice_are_both_kept() -> None:
    make("data/text/notes.txt")
    put_aside_undeclared(STAGES)
    Path("data/text/notes.txt").write_text("newer\n")
    assert put_aside_undeclared(STAGES) == [aside("data/text/notes.txt", 2)]
    assert aside("data/text/notes.txt").read_text() == "made\n"


def test_undeclared_outputs_links_to_folders_and_empty_folders_are_kept(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/a").write_text("mine\n")
    Path("data/text/empty/within").mkdir(parents=True)
    Path("data/text/linked").symlink_to(tmp_path / "elsewhere")
    assert put_aside_undeclared(STAGES) == []
    assert Path("data/text/linked/a").read_text() == "mine\n"


def test_renamed_outputs_are_ignored_by_dvc_and_git(root: Path) -> None:
    for file in (".dvcignore", ".gitignore"):
        patterns = (root / file).read_text().split()
        assert any(fnmatch(aside("data/text/gone").name, pattern) for pattern in patterns), file


@pytest.mark.parametrize("link", ["models", "data", "data/text", "results/predictions/rte"])
def test_check_outputs_below_link_out_of_checkout_is_rejected(tmp_path: Path, link: str) -> None:
    outputs = [output for stage in STAGES.values() for output in stage["outs"]]
    check_outputs(outputs)
    (tmp_path / "disk").mkdir()
    Path(link).parent.mkdir(parents=True, exist_ok=True)
    Path(link).symlink_to(tmp_path / "disk")
    with pytest.raises(PipelineError, match=f"(?s)link out of the checkout.*{link}.*dvc cache dir.*cache.type symlink"):
        check_outputs(outputs)
    assert list((tmp_path / "disk").iterdir()) == []


def test_check_outputs_below_link_within_checkout_is_accepted(
    tmp_path: Path, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("store/models").mkdir(parents=True)
    Path("models").symlink_to("store/models")
    check_outputs(["models/phase1"])
    (tmp_path / "link").symlink_to(checkout)
    monkeypatch.chdir(tmp_path / "link")
    check_outputs(["models/phase1", "data/tokens"])


def test_check_outputs_in_read_only_folder_is_rejected(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("models").mkdir()
    # Root may write everywhere.
    monkeypatch.setattr("os.access", lambda path, mode: Path(path).name != "models")
    with pytest.raises(PipelineError, match=f"no permission to write outputs: .*{checkout}/models"):
        check_outputs(["results/scores.json", "models/phase1"])
