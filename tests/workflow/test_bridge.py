"""Stamps of stages, and errors of the file system before anything runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from tests.users import FIRST, SECOND, as_user, needs_root, share


@pytest.fixture(scope="module")
def bridge(workflow_module: Callable[[str], ModuleType]) -> ModuleType:
    return workflow_module("bridge")


@needs_root
def test_stages_stamps_of_another_user_are_replaced(
    bridge: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(bridge, "dvc", lambda *arguments: arguments)
    answers = {("dag", "--dot"): '"count";\n', ("status", "--json"): "{}"}
    monkeypatch.setattr(bridge, "answer", lambda arguments, show_log=False: answers[arguments])
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

    monkeypatch.setattr(bridge, "clear_stale", fail)
    with pytest.raises(bridge.FatalError, match=f"^error: {tmp_path}: Operation not permitted. Nothing was run: "):
        bridge.Stages(True, ["count"])
