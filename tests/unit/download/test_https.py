"""Downloads that resume, try again, fall back on mirrors, and leave nothing half-written."""

from __future__ import annotations

import errno
import shutil
import socket
import tempfile
import urllib.request
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline_src.common.errors import PipelineError
from pipeline_src.download import fetch, https
from tests.replies import reply, replying

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


CHUNKED = {"Transfer_Encoding": "chunked"}


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (reply(body=b"<html>", Content_Length="6", Content_Type="text/html; charset=utf-8"), "HTML"),
        (reply(Content_Length="0"), "empty"),
        (reply("204 No Content"), "HTTP 204"),
        (reply("201 Created", b"ab", Content_Length="2"), "HTTP 201"),
        (reply("206 Partial Content", b"b", Content_Length="1", Content_Range="bytes 1-1/2"), "not asked for"),
        (reply(body=b"ab", Content_Length="2", Content_Encoding="gzip"), "compressed"),
        (reply(body=b"cut off"), "neither length"),
        (reply(body=b"ab", Content_Length="abc"), "not a length"),
        (reply(body=b"ab", Content_Length="9" * 5000), "not a length|line"),
        (reply(body=b"ab", Content_Length="2, 2"), "not a length"),
        (reply(body=b"ab", Content_Length="9"), "ended at byte 2 of 9"),
        (reply(body=b"-5\r\nabcde\r\n0\r\n\r\n", **CHUNKED), "."),
        (reply(body=b"5\r\nab", **CHUNKED), "IncompleteRead"),
        (reply("404 \x1b[31mred"), r"HTTP 404 +\[31mred"),
        (reply("503 Busy", Retry_After="²"), "HTTP 503"),
        (b"\x00" * 100, "."),
        (b"", "."),
    ],
)
def test_what_is_not_the_file_leaves_nothing(tmp_path: Path, sent: bytes, said: str) -> None:
    with replying([sent]) as address, pytest.raises(PipelineError, match=said) as caught:
        https.download([address], tmp_path / "a", checked=False)
    assert "\x1b" not in str(caught.value) and not (tmp_path / "a").exists()


def test_a_file_that_changes_between_attempts_is_not_spliced(tmp_path: Path) -> None:
    old = reply(body=b"old" * 30000, Content_Length="100000", ETag='"1"')
    rest = reply("206 Partial Content", b"new" * 3000, Content_Length="10000", Content_Range="bytes 0-9/10")
    new = reply(body=b"new", Content_Length="3", ETag='"2"')
    with replying([old, new]) as address:
        https.download([address], tmp_path / "a", checked=False)
    assert (tmp_path / "a").read_bytes() == b"new" and len(list(tmp_path.iterdir())) == 1
    with replying([old, rest]) as address, pytest.raises(PipelineError, match="not asked for"):
        https.download([address], tmp_path / "b", checked=False)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_the_edition_is_asked_for_and_without_one_nothing_goes_on(web, tmp_path: Path) -> None:
    (tmp_path / "a.partial").write_bytes(b"x" * 10)
    web.files["/a"] = b"whole"
    https.download([web.url("/a")], tmp_path / "a", checked=False)
    assert (tmp_path / "a").read_bytes() == b"whole" and web.asked == [("/a", None)]


def test_a_body_longer_than_the_catalogue_says_is_stopped(tmp_path: Path) -> None:
    for sent in (reply(body=b"x" * 300_000), reply(body=b"x" * 300_000, Content_Length="300000")):
        with replying([sent]) as address, pytest.raises(PipelineError, match="more than the 1,000"):
            https.download([address], tmp_path / "a", size=1000)
        assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("sent", [b"HTTP/1.1 200 OK\r\nX: " + b"x" * 400, reply(body=b"x" * 400, Content_Length="400")])
def test_what_trickles_is_given_up_wherever_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    monkeypatch.setattr(https, "WINDOW", 0.25)
    monkeypatch.setattr(https, "ATTEMPTS", 2)
    with replying([sent], pause=0.002) as address:
        with pytest.raises(PipelineError, match=r"[0-9]+ bytes in 0.25 s \(2 attempts\)"):
            https.download([address], tmp_path / "a")


@pytest.mark.parametrize("length", [{"Content_Length": "100000"}, CHUNKED])
def test_what_goes_on_and_on_ends_with_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, length: dict[str, str]
) -> None:
    monkeypatch.setattr(https, "USUAL_HOURS", 0.3 / 3600)
    monkeypatch.setattr(https, "WINDOW", 0.1)
    monkeypatch.setattr(https, "LEAST", 0)
    with replying([reply(body=b"f" * 9 + b"1\r\nx\r\n" * 10000, **length)], pause=0.002) as address:
        with pytest.raises(PipelineError, match="a download takes too long") as caught:
            https.download([address, address], tmp_path / "a", checked=False)
    assert "PIPELINE_DOWNLOAD_HOURS" in str(caught.value) and not list(tmp_path.iterdir())


def test_hours_of_a_download_are_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong in ("phase2", "-1", "inf", "nan", ""):
        monkeypatch.setenv("PIPELINE_DOWNLOAD_HOURS", wrong)
        with pytest.raises(PipelineError, match="not a number of hours"):
            https.download(["http://127.0.0.1:9/"], tmp_path / "a")


def test_a_list_of_checksums_without_end_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(fetch, "LONGEST_LIST", 1000)
    with replying([reply(body=b"800\r\n" + b"x" * 2048, **CHUNKED)]) as address:
        with pytest.raises(PipelineError, match="more than the 1,000"):
            fetch.published_list(address, again=True)


def test_what_fills_the_disk_goes_unless_it_can_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=10))
    with replying([reply(body=b"x" * 100, Content_Length="100")]) as address:
        with pytest.raises(PipelineError, match="no space left"):  # nothing is written that has no room
            https.download([address], tmp_path / "a")
    assert not list(tmp_path.iterdir())

    class Full:
        def __init__(self, path: Path, _: str) -> None:
            path.write_bytes(b"all the room there was")

        def __enter__(self) -> Full:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def write(self, _: bytes) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(https, "open", Full, raising=False)
    with replying([reply(body=b"x" * 100)]) as address:
        with pytest.raises(PipelineError, match="another one was deleted"):
            https.download([address], tmp_path / "a")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("url", ["https://[::1", "https://exämple.org/a", "https://a b/", f"https://{'a' * 300}.org/"])
def test_what_is_no_address(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")
    with pytest.raises(PipelineError, match="download failed"):
        https.download([url], tmp_path / "a")


def test_https_does_not_lead_to_http() -> None:
    request = urllib.request.Request("https://a.example/")
    for elsewhere in ("http://a.example/", "ftp://a.example/", "file:///etc/hostname"):
        with pytest.raises(https._Final, match="redirected"):
            https._StayOnHttps().redirect_request(request, None, 302, "Found", {}, elsewhere)
    assert https._StayOnHttps().redirect_request(request, None, 302, "Found", {}, "https://b.example/")


def test_a_redirection_of_impossible_length_is_one_error(tmp_path: Path) -> None:
    sent = reply("302 Found", b"", Content_Length=str(10**20), Location="/elsewhere")
    with replying([sent]) as address, pytest.raises(PipelineError, match="more bytes than there can be"):
        https.download([address], tmp_path / "a", checked=False)


HEADERS = st.dictionaries(
    st.sampled_from(
        "Content_Length Content_Range Content_Type Content_Encoding Transfer_Encoding ETag Retry_After Location".split()
    ),
    st.one_of(
        st.sampled_from(
            ["0", "3", "-1", "chunked", "gzip", "text/html", "bytes 0-2/3", '"x"', "ftp://x/", "1, 2", "²"]
        ),
        st.text(st.characters(max_codepoint=255, exclude_characters="\r\n"), max_size=8),
    ),
    max_size=4,
)


@given(st.sampled_from([200, 201, 204, 206, 301, 302, 304, 404, 416, 503, 99, 1000]), HEADERS, st.binary(max_size=12))
@settings(max_examples=40, deadline=None)
def test_any_reply_is_the_file_or_one_error(status: int, headers: dict[str, str], body: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder, replying([reply(f"{status} X", body, **headers)]) as address:
        try:
            https.download([address], Path(folder, "a"), checked=False)
        except PipelineError:
            assert not Path(folder, "a").exists()
        else:
            assert Path(folder, "a").read_bytes() and status == 200
