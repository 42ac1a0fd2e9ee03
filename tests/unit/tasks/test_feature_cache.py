"""Cache of features: made once, memory-mapped, keyed by everything that determines them, and never incomplete."""

import logging
import threading
from collections import Counter

import numpy as np
import pytest

from pipeline_src.tasks import feature_cache as cache
from pipeline_src.tasks.features import Features, SpanFeatures
from tests.users import FIRST, SECOND, as_user, needs_root, share


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def small(number: int = 7) -> Features:
    ids = np.arange(number, dtype=np.int32)
    cu_seqlens = np.asarray([0, 3, number])
    return Features(ids, (ids % 2).astype(np.int8), cu_seqlens, np.asarray([1, 0]), np.arange(2), 1, {"cut": 2})


def test_cached_features_are_made_once_and_memory_mapped():
    made = []

    def make(dropped: Counter[str]) -> Features:
        made.append(1)
        dropped["short rows"] += 3
        return small()

    first, again = (cache.cached("rte", {"file": "a"}, make) for _ in range(2))
    assert len(made) == 1 and first.counts == again.counts == {"cut": 2, "short rows": 3}
    for name in ("ids", "segments", "cu_seqlens", "labels", "example"):
        np.testing.assert_array_equal(getattr(again, name), getattr(small(), name))
        assert isinstance(getattr(again, name), np.memmap)


def test_cached_changed_file_or_code_makes_features_again(monkeypatch):
    cache.cached("rte", {"file": "a"}, lambda dropped: small())
    assert len(cache.cached("rte", {"file": "b"}, lambda dropped: small(9)).ids) == 9
    monkeypatch.setattr(cache, "fingerprint", lambda module: "edited")
    assert len(cache.cached("rte", {"file": "a"}, lambda dropped: small(8)).ids) == 8


def test_cached_span_features_keep_offsets():
    plain = small()
    spans = SpanFeatures(
        **{name: getattr(plain, name) for name in ("ids", "segments", "cu_seqlens", "labels", "example")},
        offsets=np.arange(14).reshape(7, 2),
        may_start=np.ones(7, bool),
    )
    result = cache.cached("squad1", {}, lambda dropped: spans)
    assert isinstance(result, SpanFeatures) and result.offsets[6].tolist() == [12, 13]


def test_cached_two_threads_share_one_entry(tmp_path):
    both = threading.Barrier(2)
    result = []

    def make(dropped: Counter[str]) -> Features:
        both.wait(10)
        return small()

    threads = [threading.Thread(target=lambda: result.append(cache.cached("rte", {}, make))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(result) == 2 and [path.name[0] != "." for path in (cache.FEATURES / "rte").iterdir()] == [True]


def test_cached_old_entries_are_removed(monkeypatch):
    monkeypatch.setattr(cache, "MAX_ENTRIES", 2)
    for number in range(6):
        cache.cached("rte", {"file": number}, lambda dropped: small())
    assert len(list((cache.FEATURES / "rte").iterdir())) == 3


@pytest.mark.parametrize("name", ["ids.npy", "about.json"])
@pytest.mark.parametrize("how", ["bit", "cut", "gone"])
def test_cached_damaged_entry_is_made_again(tmp_path, name, how):
    cache.cached("rte", {}, lambda dropped: small())
    (path,) = tmp_path.glob(f"data/features/rte/*/{name}")
    content = path.read_bytes()
    if how == "gone":
        path.unlink()
    else:
        path.write_bytes(content[:-9] if how == "cut" else content[:-9] + bytes([content[-9] ^ 1]) + content[-8:])
    again = cache.cached("rte", {}, lambda dropped: small())
    np.testing.assert_array_equal(again.ids, small().ids)


def test_cached_full_disk_leaves_no_file(tmp_path, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "save", full)
    with pytest.raises(OSError, match="No space"):
        cache.cached("rte", {}, lambda dropped: small())
    assert not list(tmp_path.glob("data/features/rte/*")) and not list(tmp_path.glob("data/features/rte/.*"))


def read_or_make() -> bool:
    """Return whether the features were made instead of read from the cache."""
    made = []

    def make(dropped: Counter[str]) -> Features:
        made.append(1)
        dropped["short rows"] += 3
        return small()

    features = cache.cached("rte", {}, make)
    np.testing.assert_array_equal(features.ids, small().ids)
    assert features.counts == {"cut": 2, "short rows": 3}
    return bool(made)


@needs_root
def test_cached_two_users_share_one_entry(tmp_path):
    share(tmp_path)
    as_user(FIRST, read_or_make)

    def second() -> None:
        assert not read_or_make()

    as_user(SECOND, second)


@needs_root
@pytest.mark.parametrize("closed", ["", "ids.npy", "about.json"])
def test_cached_inaccessible_entry_of_another_user_is_replaced_or_bypassed(tmp_path, closed):
    share(tmp_path)

    def first() -> None:
        read_or_make()
        (folder,) = (cache.FEATURES / "rte").iterdir()
        (folder / closed).chmod(0o600 if closed else 0o700)

    as_user(FIRST, first)

    def second() -> None:
        cache.log.addHandler(logging.StreamHandler(open("log", "a")))
        cache.log.setLevel(logging.INFO)
        assert read_or_make()
        # files of an open folder can be replaced
        assert read_or_make() is (not closed)

    as_user(SECOND, second)
    lines = (tmp_path / "log").read_text().splitlines()
    assert len(lines) == (0 if closed else 2)
    assert all("Permission denied; features of rte are made without the cache" in line for line in lines)
