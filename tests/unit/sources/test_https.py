"""Downloads that resume, try again, fall back on mirrors, and leave nothing half-written."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
import requests

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.progress import open_log
from pipeline_src.sources import fetch, https
from tests.servers import reply, replying

BYTES = bytes(range(256)) * 4096  # 1 MiB


# Bytes of an earlier call, whether the server knows ranges, where it cuts the connection -> ranges that are asked for.
RESUMED = {
    "nothing here": (b"", True, [], [None]),
    "cut connections": (b"", True, [300_000, 300_000], [None, "bytes=300000-", "bytes=600000-"]),
    "a partial of an earlier call": (BYTES[:1000], True, [], ["bytes=1000-"]),
    "a server without ranges": (b"x" * 1000, False, [], ["bytes=1000-"]),
    "a partial longer than the file": (BYTES + b"x", True, [], ["bytes=1048577-", None]),
}


@pytest.mark.parametrize("case", RESUMED)
def test_download_resumes_partial_file(web, tmp_path: Path, case: str) -> None:
    partial, web.ranges, web.ends_after["/a"], ranges = RESUMED[case]
    web.files["/a"] = BYTES
    if partial:
        (tmp_path / "deep").mkdir()
        (tmp_path / "deep/a.partial").write_bytes(partial)
    https.download([web.url("/a")], tmp_path / "deep/a")
    assert (tmp_path / "deep/a").read_bytes() == BYTES
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["a"]
    assert [header for _, header in web.requests] == ranges


def test_download_retries_busy_server(web, tmp_path: Path) -> None:
    web.files["/a"], web.statuses["/a"] = BYTES, [503, 429]
    https.download([web.url("/a")], tmp_path / "a")
    assert len(web.requests) == 3


def test_download_not_found_uses_mirror_without_retry(web, tmp_path: Path) -> None:
    web.files["/mirror/a"] = BYTES
    https.download([web.url("/a"), web.url("/mirror/a")], tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == BYTES
    assert [path for path, _ in web.requests] == ["/a", "/mirror/a"]


def test_download_failure_of_all_urls_names_each_url(web, tmp_path: Path) -> None:
    with socket.socket() as unused:  # bound but not listening: connections are refused
        unused.bind(("127.0.0.1", 0))
        refused = f"http://127.0.0.1:{unused.getsockname()[1]}/a"
        with pytest.raises(PipelineError) as caught:
            https.download([web.url("/a"), refused], tmp_path / "a")
    text = str(caught.value)
    assert "HTTP 404" in text and refused in text and "refused" in text and f"{https.ATTEMPTS} attempts" in text
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(("mirrors", "message"), [([], r"IncompleteRead.*attempts"), (["/mirror/a"], "404")])
def test_download_connection_always_cut_keeps_the_partial(
    web, tmp_path: Path, mirrors: list[str], message: str
) -> None:
    web.files["/a"] = BYTES
    web.ends_after["/a"] = [1000] + [0] * https.ATTEMPTS
    with pytest.raises(PipelineError, match=message):
        https.download([web.url("/a"), *map(web.url, mirrors)], tmp_path / "a")
    assert not (tmp_path / "a").exists()
    assert (tmp_path / "a.partial").read_bytes() == BYTES[:1000]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize("checked", [True, False])
def test_download_disk_full_while_writing_is_one_error(web, tmp_path: Path, checked: bool) -> None:
    web.files["/a"] = web.files["/mirror"] = BYTES
    (tmp_path / "a.partial").symlink_to("/dev/full")
    with pytest.raises(PipelineError, match="no space left on the disk"):
        https.download([web.url("/a"), web.url("/mirror")], tmp_path / "a", checked=checked)
    assert [path for path, _ in web.requests] == ["/a"]
    assert not (tmp_path / "a").exists() and os.path.lexists(tmp_path / "a.partial") == checked


def test_download_larger_than_the_free_space_writes_nothing(tmp_path: Path) -> None:
    with replying([reply(body=b"x" * 100, Content_Length=str(https.MAX_BYTES))]) as address:
        with pytest.raises(PipelineError, match="no space left on the disk"):
            https.download([address], tmp_path / "a")
    assert not list(tmp_path.iterdir())


CHUNKED = {"Transfer_Encoding": "chunked"}


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        (reply(body=b"<html>", Content_Length="6", Content_Type="text/html; charset=utf-8"), "HTML"),
        (reply(Content_Length="0"), "empty"),
        (reply("204 No Content"), "HTTP 204"),
        (reply("201 Created", b"ab", Content_Length="2"), "HTTP 201"),
        (reply("206 Partial Content", b"b", Content_Length="1", Content_Range="bytes 1-1/2"), "HTTP 206"),
        (reply(body=b"ab", Content_Length="2", Content_Encoding="gzip"), "compressed"),
        (reply(body=b"cut off"), "no length from the server"),
        (reply(body=b"ab", Content_Length="abc"), "no length from the server"),
        (reply(body=b"ab", Content_Length="9" * 5000), "no length from the server"),
        (reply(body=b"ab", Content_Length="2, 3"), "."),
        (reply(body=b"ab", Content_Length="9"), "IncompleteRead"),
        (reply(body=b"-5\r\nabcde\r\n0\r\n\r\n", **CHUNKED), "."),
        (reply(body=b"5\r\nab", **CHUNKED), "IncompleteRead"),
        (reply("404 \x1b[31mred"), r"HTTP 404 +\[31mred"),
        (reply("503 Busy", Retry_After="²"), "HTTP 503"),
        (b"\x00" * 100, "."),
        (b"", "."),
    ],
)
def test_download_wrong_reply_is_rejected(tmp_path: Path, sent: bytes, message: str) -> None:
    with replying([sent]) as address, pytest.raises(PipelineError, match=message) as caught:
        https.download([address], tmp_path / "a", checked=False)
    assert "\x1b" not in str(caught.value) and not (tmp_path / "a").exists()


def test_download_file_changed_between_attempts_starts_over(tmp_path: Path) -> None:
    old = reply(body=b"old" * 30000, Content_Length="100000", ETag='"1"')
    remainder = reply("206 Partial Content", b"new" * 3000, Content_Length="10000", Content_Range="bytes 0-9/10")
    new = reply(body=b"new", Content_Length="3", ETag='"2"')
    with replying([old, new]) as address:
        https.download([address], tmp_path / "a", checked=False)
    assert (tmp_path / "a").read_bytes() == b"new" and len(list(tmp_path.iterdir())) == 1
    with replying([old, remainder]) as address, pytest.raises(PipelineError, match="another byte range than requested"):
        https.download([address], tmp_path / "b", checked=False)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_download_continues_after_capped_range(tmp_path: Path) -> None:
    body = b"x" * 300_000
    whole = reply(body=body[:100_000], Content_Length="300000", ETag='"1"')

    def part(start: int, end: int) -> bytes:
        content_range = f"bytes {start}-{end - 1}/300000"
        length = str(end - start)
        return reply("206 Partial Content", body[start:end], Content_Length=length, Content_Range=content_range)

    with replying([whole, part(100_000, 190_000), part(190_000, 300_000)]) as address:
        https.download([address], tmp_path / "a", checked=False)
    assert (tmp_path / "a").read_bytes() == body


def test_download_partial_without_checksum_starts_over(web, tmp_path: Path) -> None:
    (tmp_path / "a.partial").write_bytes(b"x" * 10)
    web.files["/a"] = b"whole"
    https.download([web.url("/a")], tmp_path / "a", checked=False)
    assert (tmp_path / "a").read_bytes() == b"whole" and web.requests == [("/a", None)]


def test_download_body_longer_than_its_size_is_stopped(tmp_path: Path) -> None:
    for sent in (reply(body=b"x" * 300_000), reply(body=b"x" * 300_000, Content_Length="300000")):
        with replying([sent]) as address, pytest.raises(PipelineError, match="more than the limit of 1,000"):
            https.download([address], tmp_path / "a", size=1000)
        assert not list(tmp_path.iterdir())


def test_download_too_slow_body_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(https, "SLOW_SECONDS", 0.25)
    monkeypatch.setattr(https, "ATTEMPTS", 2)
    with replying([reply(body=b"x" * 400, Content_Length="400")], pause=0.002) as address:
        with pytest.raises(PipelineError, match=r"[0-9]+ bytes in 0.25 s \(2 attempts\)"):
            https.download([address], tmp_path / "a")


def test_published_list_of_unlimited_size_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(fetch, "MAX_LIST_BYTES", 1000)
    with replying([reply(body=b"800\r\n" + b"x" * 2048, **CHUNKED)]) as address:
        with pytest.raises(PipelineError, match="more than the limit of 1,000"):
            fetch.published_list(address, refresh=True)


@pytest.mark.parametrize("url", ["https://[::1", "https://exämple.org/a", "https://a b/", f"https://{'a' * 300}.org/"])
def test_download_invalid_address_is_rejected(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")
    with pytest.raises(PipelineError, match="download failed"):
        https.download([url], tmp_path / "a")


def test_open_session_https_cannot_redirect_to_http() -> None:
    with https.open_session("https://a.example/") as session:
        assert session.get_adapter("https://b.example/")
        for elsewhere in ("http://a.example/", "ftp://a.example/", "file:///etc/hostname"):
            with pytest.raises(requests.exceptions.InvalidSchema):
                session.get_adapter(elsewhere)


def test_download_redirect_of_impossible_length_is_rejected(tmp_path: Path) -> None:
    sent = reply("302 Found", b"", Content_Length=str(10**20), Location="/elsewhere")
    with replying([sent]) as address, pytest.raises(PipelineError, match="redirects"):
        https.download([address], tmp_path / "a", checked=False)


def test_download_failure_shows_no_password_of_address_or_proxy(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(https, "BACKOFF", 0.0)
    path = open_log("download", "all")
    for proxy in ("", "http://you:proxyword@127.0.0.1:1", "odd://you:proxyword@127.0.0.1:1"):
        monkeypatch.setenv("HTTPS_PROXY", proxy)
        with pytest.raises(PipelineError) as caught:
            https.download(["https://me:word@127.0.0.1:1/a?token=hf_abc"], tmp_path / "a")
        for text in (str(caught.value), path.read_text(), capsys.readouterr().err):
            assert "127.0.0.1:1/a?token=…" in text
            assert not any(secret in text for secret in ("me:", "word", "hf_abc", "you:"))
