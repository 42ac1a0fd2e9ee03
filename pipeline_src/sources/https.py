"""Scheme ``https``: a download that goes on where it stopped, tries again, and falls back on mirrors."""

from __future__ import annotations

import errno
import http.client
import os
import re
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.names import shown_text
from pipeline_src.common.progress import Progress, log

ATTEMPTS = 4  # in a row without a byte gained, per address
WAIT = 1.0  # seconds before the second attempt, doubled before each further one
LONGEST_WAIT = 60.0  # seconds, also where a server asks for more
SILENCE = 60.0  # seconds without a byte after which a connection is given up
WINDOW, LEAST = 300.0, 1 << 16  # seconds in which so many bytes must come, and what an attempt must gain to count
LARGEST = 1 << 40  # bytes of a file whose size the catalogue does not say
BLOCK = 1 << 18
PASSING = {408, 425, 429, 500, 502, 503, 504}  # HTTP statuses that may be gone a moment later
USER_AGENT = "pipeline_src (reproducible BERT pipeline; python urllib)"


class _Passing(Exception):
    """A failure that another attempt may not meet; ``wait`` is what the server asked for, in seconds."""

    def __init__(self, reason: object, wait: float = 0.0) -> None:
        super().__init__(str(reason))
        self.wait = wait


class _Final(Exception):
    """A failure that every attempt at this address would meet."""


class _StayOnHttps(urllib.request.HTTPRedirectHandler):
    """Follows redirects, but never from https to an address that anybody on the way can change."""

    def redirect_request(self, request: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        if request.full_url.startswith("https:") and not newurl.startswith("https:"):
            raise _Final(f"redirected from https to {shown_text(newurl)}")
        return super().redirect_request(request, fp, code, msg, headers, newurl)


def download(urls: Sequence[str], target: Path, size: int | None = None, checked: bool = True) -> None:
    """Fetch the first of ``urls`` that answers into ``target``, which appears only when it is whole.

    What has arrived stays beside it as ``<target>.partial`` and the next call asks for the rest alone (HTTP Range), if
    the server still has the same file (If-Range).

    Args:
        urls: addresses of the same bytes, the first one first.
        target: where the file goes.
        size: bytes, where known; more are refused.
        checked: whether the caller holds the file to a checksum. Without one, the reply itself must show that the file
            is whole and what was asked for: status 200, a length, bytes of it, no page of HTML.

    Raises:
        PipelineError: no address gave the file (each is listed with its reason), or the disk is full.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = _Partial(target.with_name(f"{target.name}.partial"), checked)
    failures = []
    for url in urls:
        try:
            _fetch(url, partial, size)
        except _Final as error:
            failures.append(f"{url}: {error}")
            log.warning("%s: %s", url, error)
            continue
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise PipelineError(
                "no space left on the disk", partial.path, where=url,
                remedy="free some and run the same command again; the download goes on where it stopped",
            ) from None  # fmt: skip
        os.replace(partial.path, target)
        partial.remove()
        return
    if not checked and partial.edition is None:
        partial.remove()
    raise PipelineError(
        "download failed", urls[0], where="\n          ".join(failures),
        remedy="check the network, proxy and addresses, then run the same command again; or fetch the file by other "
        "means and name it as file:… in the catalogue",
    )  # fmt: skip


class _Partial:
    """What has arrived, and of which edition of the file: its ETag or date stands in a note beside it."""

    def __init__(self, path: Path, checked: bool) -> None:
        self.path, self.checked = path, checked
        self._note = path.with_name(f"{path.name}.edition")
        if not checked and self.edition is None:
            self.remove()  # nothing would show that the rest belongs to it

    @property
    def size(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0

    @property
    def edition(self) -> str | None:
        return self._note.read_text(encoding="ascii", errors="replace") if self._note.exists() else None

    def begin(self, headers: http.client.HTTPMessage) -> None:
        """Start a file anew."""
        self.remove()
        tag = headers.get("ETag", "")
        edition = tag if re.fullmatch(r'"[\x21\x23-\x7e]{1,200}"', tag) else headers.get("Last-Modified", "")
        if edition and edition.isascii() and edition.isprintable():
            self._note.write_text(edition, encoding="ascii")

    def remove(self) -> None:
        for path in (self.path, self._note):
            path.unlink(missing_ok=True)


def _fetch(url: str, partial: _Partial, size: int | None) -> None:
    attempt, wait = 1, WAIT
    while True:
        before = partial.size
        try:
            return _once(url, partial, size)
        except _Passing as error:
            if partial.size >= before + LEAST:
                attempt, wait = 0, WAIT
            if attempt >= ATTEMPTS:
                raise _Final(f"{error} ({ATTEMPTS} attempts)") from None
            pause = min(max(wait, error.wait), LONGEST_WAIT)
            log.warning("%s: %s; trying again in %.0f s", url, error, pause)
            time.sleep(pause)
            attempt, wait = attempt + 1, wait * 2


def _once(url: str, partial: _Partial, size: int | None) -> None:
    have = partial.size
    try:
        response = _open(url, have, partial.edition)
    except _Final:
        if not have:
            raise
        partial.remove()  # the server refuses this range: the file there is another one, or shorter
        have, response = 0, _open(url, 0, None)
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
        limit = LARGEST if size is None else size
        if total is not None and total > limit:
            partial.remove()
            raise _Final(f"{total:,} bytes, more than the {limit:,} it may have")
        with open(partial.path, "ab" if have else "wb") as file, Progress(partial.path.stem, total, "B") as progress:
            progress.advance(have)
            for block in _blocks(response):
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
    """Refuse a reply that is not the file, as far as the reply itself tells."""
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
        raise _Final("neither length nor checksum is known, so that nothing shows whether it is whole")


def _open(url: str, have: int, edition: str | None) -> http.client.HTTPResponse:
    headers = {"User-Agent": USER_AGENT, "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
        if edition:
            headers["If-Range"] = edition
    try:
        opener = urllib.request.build_opener(_StayOnHttps())
        response: http.client.HTTPResponse = opener.open(urllib.request.Request(url, headers=headers), timeout=SILENCE)
        return response
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
    except (OSError, http.client.HTTPException) as error:
        raise _Passing(shown_text(error) or type(error).__name__) from None


def _blocks(response: http.client.HTTPResponse) -> Iterator[bytes]:
    """Read alone is guarded here: an OSError while writing is the disk's, not the network's."""
    since, come = time.monotonic(), 0
    while True:
        try:
            block = response.read1(BLOCK)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise _Passing(f"{type(error).__name__} {shown_text(error)}") from None
        if not block:
            return
        come += len(block)
        yield block
        if time.monotonic() >= since + WINDOW:
            if come < LEAST:
                raise _Passing(f"{come:,} bytes in {WINDOW:.0f} s")
            since, come = time.monotonic(), 0


def _length(response: http.client.HTTPResponse) -> int | None:
    said = response.headers.get_all("Content-Length") or []
    if response.chunked or not said:
        return None
    if len(set(said)) > 1 or not re.fullmatch("[0-9]{1,15}", said[0]):
        raise _Final(f"not a length: {shown_text(', '.join(said))}")
    return int(said[0])


def _starts_at(response: http.client.HTTPResponse, position: int, length: int | None) -> bool:
    """Whether a part is the rest of a file from ``position`` on, by all that the server says of it."""
    found = re.fullmatch(r"bytes ([0-9]{1,15})-([0-9]{1,15})/([0-9]{1,15})", response.headers.get("Content-Range", ""))
    if found is None:
        return False
    start, end, total = map(int, found.groups())
    return start == position and end + 1 == total and (length is None or length == total - position)
