"""dvc.lock as text: entries that a kill has cut off come back from an earlier copy."""

from __future__ import annotations

import fcntl
import random
import threading
import time
from pathlib import Path

import pytest

from pipeline_src.engine.dvc_lock import (
    complete_lock,
    hashes,
    parse_entry,
    read_entry_text,
    split_entries,
    take_dvc_lock,
)

HEADER = "schema: '2.0'\nstages:\n"


def entry(name: str, md5: str = "1", outputs: int = 2) -> str:
    listed = "".join(f"    - path: out/{name}/{number}\n      md5: {md5}\n" for number in range(outputs))
    return f"  {name}:\n    cmd: run {name}\n    outs:\n{listed}"


def lock_of(*entries: str) -> str:
    return HEADER + "".join(entries)


@pytest.fixture(scope="module")
def recorded(root: Path) -> str:
    return (root / "dvc.lock").read_text()


def fresh(lock: str, whole: str) -> set[str]:
    """Names of the stages that DVC would call fresh: their entries have the same hashes."""
    wanted = split_entries(whole)
    return {
        name
        for name, text in split_entries(lock).items()
        if text == wanted[name] or _hashes(parse_entry(text)) == _hashes(parse_entry(wanted[name]))
    }


def _hashes(content: dict) -> tuple[object, ...]:
    return content.get("cmd"), hashes(content, "deps"), hashes(content, "outs")


def test_join_entries_inverts_split_entries(recorded: str) -> None:
    entries = split_entries(recorded)
    assert HEADER + "".join(entries.values()) == recorded
    assert {"clean@wikipedia", "finetune@ner-1", "report"} <= entries.keys()
    assert parse_entry(entries["tokenize"])["cmd"] == "python -m pipeline_src tokenize"


def test_complete_lock_restores_lock_truncated_anywhere(recorded: str) -> None:
    """At 300 random places and after each line of the last entries."""
    places = random.Random(1).sample(range(len(recorded)), 300)
    places += [place for place in range(len(recorded) - 3000, len(recorded)) if recorded[place - 1] == "\n"]
    names = split_entries(recorded).keys()
    for place in places:
        cut = recorded[:place]
        completed, returned = complete_lock(cut, recorded, names, fresh(cut, recorded))
        assert completed == recorded and returned, place


def test_complete_lock_keeps_entries_newer_than_copy() -> None:
    earlier = lock_of(entry("a"), entry("b"), entry("c"))
    newer = lock_of(entry("a", "2"), entry("b", "2"), entry("c"))
    cut = newer[: newer.index("  c:") - 20]
    completed, returned = complete_lock(cut, earlier, ["a", "b", "c"], ["a"])
    assert completed == lock_of(entry("a", "2"), entry("b"), entry("c"))
    assert returned == ["b", "c"]


def test_complete_lock_replaces_incomplete_last_entry_unless_fresh() -> None:
    earlier, cut = lock_of(entry("a"), entry("b")), lock_of(entry("a"), entry("b", outputs=1))
    assert complete_lock(cut, earlier, ["a", "b"], ["a"]) == (earlier, ["b"])
    assert complete_lock(cut, earlier, ["a", "b"], ["a", "b"]) == (cut, [])


def test_complete_lock_omits_entries_of_undeclared_stages() -> None:
    earlier, lock = lock_of(entry("a"), entry("gone"), entry("c")), lock_of(entry("a"))
    assert complete_lock(lock, earlier, ["a", "c"], ["a"]) == (lock_of(entry("a"), entry("c")), ["c"])
    assert complete_lock(lock, earlier, ["a"], ["a"]) == (lock, [])


@pytest.mark.parametrize("text", ["", "schema", HEADER[:-3], HEADER])
def test_complete_lock_empty_lock_becomes_copy(text: str) -> None:
    earlier = lock_of(entry("a"), entry("b"))
    assert complete_lock(text, earlier) == (earlier, ["a", "b"])
    assert complete_lock(earlier, "") == (earlier, [])


def test_read_entry_text_of_missing_file_or_stage_is_empty(tmp_path: Path) -> None:
    path = tmp_path / "dvc.lock"
    assert read_entry_text("a", path) == ""
    path.write_text(lock_of(entry("a"), entry("b@x-1")))
    assert read_entry_text("b@x-1", path) == entry("b@x-1") and read_entry_text("b", path) == ""


def test_take_dvc_lock_waits_for_holder(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert take_dvc_lock(path) is None and not path.exists()
    path.touch()
    holder = open(path, "r+")  # noqa: SIM115
    fcntl.flock(holder, fcntl.LOCK_EX)
    with pytest.raises(TimeoutError):
        take_dvc_lock(path, patience=0.05)
    threading.Timer(0.3, holder.close).start()
    begun = time.monotonic()
    taken = take_dvc_lock(path)
    assert taken is not None and time.monotonic() - begun > 0.2
    taken.close()
