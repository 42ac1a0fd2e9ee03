"""DVC's table of files in use, on each host."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.users import FIRST


@pytest.fixture(scope="module")
def files_in_use(workflow_module: Callable[[str], ModuleType]) -> ModuleType:
    return workflow_module("files_in_use")


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


def test_rwlock_table_is_link_to_random_file_on_this_host(files_in_use: ModuleType, table: Path) -> None:
    table.write_text("{}")
    files_in_use.keep_by_host(table)
    target = table.readlink()
    assert target.parent == Path("/tmp") and table.read_text() == "{}", "a DVC of this host may be at work"
    files_in_use.keep_by_host(table)
    assert table.readlink() == target
    target.unlink()  # another host, or /tmp was emptied
    files_in_use.keep_by_host(table)
    assert table.readlink() == target and not table.exists()
    table.unlink()
    files_in_use.keep_by_host(table)
    assert table.readlink() != target


def test_rwlock_table_of_copied_checkout_is_separate(
    files_in_use: ModuleType, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files_in_use.keep_by_host(table)
    first = table.readlink()
    (tmp_path / "copy/.dvc/tmp").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "copy")
    table.symlink_to(first)
    files_in_use.keep_by_host(table)
    assert table.readlink() != first


@pytest.mark.parametrize("planted", ["a file of another user", "a link"])
def test_rwlock_table_of_another_user_is_rejected(
    files_in_use: ModuleType, table: Path, tmp_path: Path, planted: str
) -> None:
    files_in_use.keep_by_host(table)
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
        files_in_use.keep_by_host(table)
    assert mine.read_text() == "mine"


def test_stale_rwlock_table_behind_foreign_link_removes_only_link(
    files_in_use: ModuleType, table: Path, tmp_path: Path
) -> None:
    (tmp_path / "mine").write_text("no table")
    table.symlink_to(tmp_path / "mine")
    assert files_in_use.clear_stale(table) is False
    assert (tmp_path / "mine").read_text() == "no table" and not table.is_symlink()
