"""Downloads that resume, try again, fall back on mirrors, and leave nothing half-written."""

from __future__ import annotations

import errno
import socket
from pathlib import Path

import pytest

from pipeline_src.common.errors import PipelineError
from pipeline_src.sources import https

BYTES = bytes(range(256)) * 4096  # 1 MiB


def test_a_whole_file_arrives(web, tmp_path: Path) -> None:
    web.files["/a"] = BYTES
    https.download([web.url("/a")], tmp_path / "deep" / "a")
    assert (tmp_path / "deep" / "a").read_bytes() == BYTES
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["a"]


def test_a_cut_connection_goes_on_where_it_stopped(web, tmp_path: Path) -> None:
    web.files["/a"] = BYTES
    web.ends_after["/a"] = [300_000, 300_000]
    https.download([web.url("/a")], tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == BYTES
    assert [asked for _, asked in web.asked] == [None, "bytes=300000-", "bytes=600000-"]


def test_a_later_run_asks_for_the_rest_alone(web, tmp_path: Path) -> None:
    web.files["/a"] = BYTES
    (tmp_path / "a.partial").write_bytes(BYTES[:1000])
    https.download([web.url("/a")], tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == BYTES
    assert web.asked == [("/a", "bytes=1000-")]


def test_a_server_without_ranges_starts_over(web, tmp_path: Path) -> None:
    web.files["/a"], web.ranges = BYTES, False
    (tmp_path / "a.partial").write_bytes(b"x" * 1000)
    https.download([web.url("/a")], tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == BYTES


def test_a_partial_longer_than_the_file_starts_over(web, tmp_path: Path) -> None:
    web.files["/a"] = b"short"
    (tmp_path / "a.partial").write_bytes(b"x" * 1000)
    https.download([web.url("/a")], tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == b"short"


def test_a_busy_server_is_asked_again(web, tmp_path: Path) -> None:
    web.files["/a"], web.statuses["/a"] = BYTES, [503, 429]
    https.download([web.url("/a")], tmp_path / "a")
    assert len(web.asked) == 3


def test_not_found_goes_to_the_mirror_at_once(web, tmp_path: Path) -> None:
    web.files["/mirror/a"] = BYTES
    https.download([web.url("/a"), web.url("/mirror/a")], tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == BYTES
    assert [path for path, _ in web.asked] == ["/a", "/mirror/a"]


def test_nobody_has_it_is_one_error_naming_every_address(web, tmp_path: Path) -> None:
    with socket.socket() as unused:  # bound but not listening: connections are refused
        unused.bind(("127.0.0.1", 0))
        refused = f"http://127.0.0.1:{unused.getsockname()[1]}/a"
        with pytest.raises(PipelineError) as caught:
            https.download([web.url("/a"), refused], tmp_path / "a")
    text = str(caught.value)
    assert "HTTP 404" in text and refused in text and "refused" in text and f"{https.ATTEMPTS} attempts" in text
    assert not (tmp_path / "a").exists()


def test_a_connection_cut_every_time_gives_up_but_keeps_what_it_has(web, tmp_path: Path) -> None:
    web.files["/a"] = BYTES
    web.ends_after["/a"] = [1000] + [0] * https.ATTEMPTS
    with pytest.raises(PipelineError, match="ended at byte 1,000 of 1,048,576"):
        https.download([web.url("/a")], tmp_path / "a")
    assert not (tmp_path / "a").exists()
    assert (tmp_path / "a.partial").read_bytes() == BYTES[:1000]


def test_a_full_disk_is_one_error_and_is_not_tried_again(web, tmp_path: Path, monkeypatch) -> None:
    web.files["/a"] = web.files["/mirror"] = BYTES

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(https, "open", full, raising=False)
    with pytest.raises(PipelineError, match="no space left on the disk"):
        https.download([web.url("/a"), web.url("/mirror")], tmp_path / "a")
    assert [path for path, _ in web.asked] == ["/a"]
    assert not (tmp_path / "a").exists()


def test_a_mirror_without_the_file_costs_nothing_that_has_come(web, tmp_path: Path) -> None:
    web.files["/a"] = BYTES
    web.ends_after["/a"] = [1000] + [0] * https.ATTEMPTS
    with pytest.raises(PipelineError, match="404"):
        https.download([web.url("/a"), web.url("/mirror/a")], tmp_path / "a")
    assert (tmp_path / "a.partial").read_bytes() == BYTES[:1000]
