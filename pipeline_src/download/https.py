"""Scheme ``https``: a download that resumes, retries, and falls back on mirrors."""

from __future__ import annotations

import errno
import http.client
import os
import re
import shutil
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.names import number_of, shown_text
from pipeline_src.common.progress import Progress, log

ATTEMPTS = 4  # in a row without progress, per address
WAIT = 1.0  # seconds before the second attempt, doubled before each further one
LONGEST_WAIT = 60.0  # seconds, also if a server asks for more
SILENCE = 60.0  # seconds without a byte until a connection is given up
WINDOW, LEAST = 300.0, 1 << 16  # at least so many bytes in so many seconds; an attempt that gains them is progress
HOURS = "PIPELINE_DOWNLOAD_HOURS"  # environment variable: for one file with all attempts and mirrors
USUAL_HOURS = 24.0  # 20 GB, the largest dump of one file, at 250 kB/s
LARGEST = 1 << 40  # bytes of a file of unknown size
BLOCK = 1 << 18
PASSING = {408, 425, 429, 500, 502, 503, 504}  # HTTP statuses worth another attempt
USER_AGENT = "pipeline_src (reproducible BERT pipeline; python urllib)"


class Partial:
    """The part of a download that has arrived, with a note of the file's edition: its ETag or date.

    Attributes:
        endless: the server did not tell the length.
    """

    def __init__(self, path: Path, checked: bool) -> None:
        self.path, self.checked, self.endless = path, checked, False
        self._note = path.with_name(f"{path.name}.edition")
        self.remove_unless_resumable()

    def remove_unless_resumable(self) -> None:
        """Remove it if nothing would show that the rest belongs to it."""
        if not self.checked and self.edition is None:
            self.remove()

    @property
    def size(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0

    @property
    def edition(self) -> str | None:
        return self._note.read_text(encoding="ascii", errors="replace") if self._note.exists() else None

    def has_space(self, more: int) -> bool:
        """Return whether ``more`` bytes fit on the disk, or it does not tell its size."""
        usage = shutil.disk_usage(self.path.parent)
        return more <= usage.free or not usage.total

    def begin(self, headers: http.client.HTTPMessage) -> None:
        """Start again from the first byte."""
        self.remove()
        tag = headers.get("ETag", "")
        edition = tag if re.fullmatch(r'"[\x21\x23-\x7e]{1,200}"', tag) else headers.get("Last-Modified", "")
        if edition and edition.isascii() and edition.isprintable():
            self._note.write_text(edition, encoding="ascii")

    def remove(self) -> None:
        for path in (self.path, self._note):
            path.unlink(missing_ok=True)


class Watch:
    """Shuts one connection down that is too slow or too late, even in the middle of a read.

    A socket's timeout counts from byte to byte: a server that sends one at a time can stretch a header, or the length
    of a chunk, without end. A thread looks at the connection while the watch is entered.

    Attributes:
        bytes: number of bytes read so far.
        too_slow: reason, if the connection was shut down; the last read may then be cut short.
    """

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.bytes = 0
        self.too_slow = ""
        self._socket: socket.socket | None = None
        self._lock, self._done = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    @property
    def late(self) -> bool:
        return time.monotonic() >= self.deadline

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def handlers(self) -> list[urllib.request.BaseHandler]:
        """Handlers for ``urllib.request.build_opener`` whose connections are watched."""
        follow = self._follow

        def watched(kind: Any) -> type[http.client.HTTPConnection]:
            class Connection(kind):  # type: ignore[misc]
                def connect(self) -> None:
                    super().connect()
                    follow(self.sock)

            return Connection

        def handler(kind: Any) -> urllib.request.BaseHandler:
            class Handler(kind):  # type: ignore[misc]
                def do_open(self, connection: Any, request: Any, **options: Any) -> Any:
                    return super().do_open(watched(connection), request, **options)

            made: urllib.request.BaseHandler = Handler()
            return made

        return [handler(urllib.request.HTTPHandler), handler(urllib.request.HTTPSHandler)]

    def _follow(self, connected: socket.socket) -> None:
        with self._lock:
            self._socket = connected
            if self.too_slow:
                self._shut_down()

    def _look(self) -> None:
        window, least, seen = WINDOW, LEAST, 0
        while not self._done.wait(max(0.0, min(window, self.deadline - time.monotonic()))):
            if not self.late and self.bytes >= seen + least:
                seen = self.bytes
                continue
            with self._lock:
                self.too_slow = f"{self.bytes - seen:,} bytes in {window:g} s"
                self._shut_down()
            return

    def _shut_down(self) -> None:
        if self._socket is not None:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)


class _Passing(Exception):
    """A failure worth another attempt; the server asked for ``wait`` seconds before it."""

    def __init__(self, reason: object, wait: float = 0.0) -> None:
        super().__init__(str(reason))
        self.wait = wait


class _Final(Exception):
    """A failure of every attempt at this address."""


class _Late(Exception):
    """The deadline has passed."""


class _StayOnHttps(urllib.request.HTTPRedirectHandler):
    """Follows redirects, but never from https to an unprotected address."""

    def redirect_request(self, request: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        if request.full_url.startswith("https:") and not newurl.startswith("https:"):
            raise _Final(f"redirected from https to {shown_text(newurl)}")
        return super().redirect_request(request, fp, code, msg, headers, newurl)


def download(
    urls: Sequence[str], target: Path, size: int | None = None, checked: bool = True, most: int = LARGEST
) -> None:
    """Fetch the first of ``urls`` that answers into ``target``, which appears only when it is complete.

    An incomplete file is kept as ``<target>.partial``; the next call asks only for the rest (HTTP Range), if the server
    still has the same file (If-Range).

    Args:
        urls: addresses of the same bytes, in order of preference.
        target: path of the file.
        size: bytes, if known; more are refused.
        checked: the caller verifies a checksum. Without one, the reply itself must show that the file is complete and
            the right one: status 200, a length or chunks, some bytes, no page of HTML.
        most: largest size, if ``size`` is unknown.
    """
    hours = number_of("hours", HOURS, USUAL_HOURS)
    deadline = time.monotonic() + 3600 * hours
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = Partial(target.with_name(f"{target.name}.partial"), checked)
    failures = []
    for url in urls:
        try:
            _fetch(url, partial, size, most, deadline)
        except _Final as error:
            failures.append(f"{url}: {error}")
            log.warning("%s: %s", url, error)
            continue
        except _Late:
            partial.remove_unless_resumable()
            raise PipelineError(
                "a download takes too long", f"incomplete after {hours:g} hours", where=url,
                hint=f"run the same command again, which resumes if it can; for a slow line set ${HOURS} "
                "higher; or fetch the file by other means and name it as file:… in the catalogue",
            ) from None  # fmt: skip
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            if partial.endless:
                partial.remove()
            raise PipelineError(
                "no space left on the disk", partial.path, where=url,
                hint="free some and run the same command again; a download of known length resumes where it "
                "stopped, another one was deleted",
            ) from None  # fmt: skip
        os.replace(partial.path, target)
        partial.remove()
        return
    partial.remove_unless_resumable()
    raise PipelineError(
        "download failed", urls[0], where="\n          ".join(failures),
        hint="check the network, proxy and addresses, then run the same command again; or fetch the file by other "
        "means and name it as file:… in the catalogue",
    )  # fmt: skip


def _fetch(url: str, partial: Partial, size: int | None, most: int, deadline: float) -> None:
    attempt, wait = 1, WAIT
    while True:
        before = partial.size
        watch = Watch(deadline)
        try:
            with watch:
                return _once(url, partial, size, most, watch)
        except (_Passing, _Final) as error:
            if watch.late:
                raise _Late from None
            if not isinstance(error, _Passing):
                raise
            if partial.size >= before + LEAST:
                attempt, wait = 0, WAIT
            if attempt >= ATTEMPTS:
                raise _Final(f"{watch.too_slow or error} ({ATTEMPTS} attempts)") from None
            pause = min(max(wait, error.wait), LONGEST_WAIT)
            log.warning("%s: %s; trying again in %.0f s", url, watch.too_slow or error, pause)
            time.sleep(pause)
            attempt, wait = attempt + 1, wait * 2


def _once(url: str, partial: Partial, size: int | None, most: int, watch: Watch) -> None:
    have = partial.size
    try:
        response = _open(url, have, partial.edition, watch)
    except _Final:
        if not have:
            raise
        # it may refuse this range, because its file is another or shorter; the partial file stays if it has none
        have, response = 0, _open(url, 0, None, watch)
    with response:
        length = _length(response)
        if have and response.status == 206 and _starts_at(response, have, length):
            pass
        elif response.status == 206:
            partial.remove()
            raise _Final(f"a part that was not asked for: {shown_text(response.headers.get('Content-Range'))}")
        else:
            have = 0
            _refuse_other(response, url, length, size, partial.checked)
            partial.begin(response.headers)
        total = size if length is None else have + length
        limit = most if size is None else size
        partial.endless = length is None
        if total is not None and total > limit:
            partial.remove()
            raise _Final(f"{total:,} bytes, more than the {limit:,} it may have")
        if length is not None and not partial.has_space(length):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        with open(partial.path, "ab" if have else "wb") as file, Progress(partial.path.stem, total, "B") as progress:
            progress.advance(have)
            for block in _blocks(response, watch):
                file.write(block)
                progress.advance(len(block))
                if file.tell() > limit:
                    break
    if partial.size > limit:
        partial.remove()
        raise _Final(f"more than the {limit:,} bytes it may have")
    if length is not None and partial.size < have + length:
        raise _Passing(f"the connection ended at byte {partial.size:,} of {have + length:,}")
    if not partial.checked and not partial.size:
        partial.remove()
        raise _Final("an empty file")


def _refuse_other(
    response: http.client.HTTPResponse, url: str, length: int | None, size: int | None, checked: bool
) -> None:
    """Refuse a reply that is not the file, as far as it tells itself."""
    if response.status != 200:
        raise _Final(f"HTTP {response.status} {shown_text(response.reason)}")
    encoding = response.headers.get("Content-Encoding", "identity").strip().lower()
    if encoding not in ("identity", ""):
        raise _Final(f"compressed ({shown_text(encoding)}), which was not asked for")
    if checked:
        return
    if response.headers.get_content_type() == "text/html" and not url.endswith((".html", ".htm")):
        raise _Final("a page of HTML, and no checksum is known")
    if length is None and size is None and not response.chunked:
        raise _Final("neither length nor checksum is known, so that nothing shows whether it is complete")


def _open(url: str, have: int, edition: str | None, watch: Watch) -> http.client.HTTPResponse:
    headers = {"User-Agent": USER_AGENT, "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
        if edition:
            headers["If-Range"] = edition
    try:
        opener = urllib.request.build_opener(_StayOnHttps(), *watch.handlers())
        response: http.client.HTTPResponse = opener.open(urllib.request.Request(url, headers=headers), timeout=SILENCE)
    except urllib.error.HTTPError as error:
        if error.code in PASSING:
            asked = error.headers.get("Retry-After", "")
            wait = float(asked) if re.fullmatch("[0-9]{1,6}", asked) else 0.0
            raise _Passing(f"HTTP {error.code}", wait) from None
        raise _Final(f"HTTP {error.code} {shown_text(error.reason)}") from None
    except urllib.error.URLError as error:
        raise _Passing(shown_text(error.reason)) from None
    except (http.client.InvalidURL, ValueError) as error:
        raise _Final(f"not an address: {shown_text(error)}") from None
    except OverflowError:
        raise _Final("a redirection says that its page has more bytes than there can be") from None
    except (OSError, http.client.HTTPException) as error:
        raise _Passing(shown_text(error) or type(error).__name__) from None
    if watch.too_slow:  # a header that was cut short looks complete
        response.close()
        raise _Passing(watch.too_slow)
    return response


def _blocks(response: http.client.HTTPResponse, watch: Watch) -> Iterator[bytes]:
    """Yield blocks. An OSError while reading is the network's, one while writing the disk's."""
    while True:
        try:
            block = response.read1(BLOCK)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise _Passing(f"{type(error).__name__} {shown_text(error)}") from None
        if watch.too_slow:  # what looks like the end of a file is none
            raise _Passing(watch.too_slow)
        if not block:
            return
        watch.bytes += len(block)
        yield block


def _length(response: http.client.HTTPResponse) -> int | None:
    said = response.headers.get_all("Content-Length") or []
    if response.chunked or not said:
        return None
    if len(set(said)) > 1 or not re.fullmatch("[0-9]{1,15}", said[0]):
        raise _Final(f"not a length: {shown_text(', '.join(said))}")
    return int(said[0])


def _starts_at(response: http.client.HTTPResponse, position: int, length: int | None) -> bool:
    """Return whether the reply is the rest of the file from ``position``."""
    found = re.fullmatch(r"bytes ([0-9]{1,15})-([0-9]{1,15})/([0-9]{1,15})", response.headers.get("Content-Range", ""))
    if found is None:
        return False
    start, end, total = map(int, found.groups())
    return start == position and end + 1 == total and (length is None or length == total - position)
