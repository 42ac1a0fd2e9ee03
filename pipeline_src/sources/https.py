"""Scheme ``https``: downloads that resume, retry, and fall back on mirrors.

Proxies are set by the environment variables ``HTTPS_PROXY`` and ``NO_PROXY``, certificates by ``REQUESTS_CA_BUNDLE``.
The default is the system's certificates.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import ssl
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import requests
from requests.exceptions import ChunkedEncodingError, ContentDecodingError
from urllib3.exceptions import HTTPError

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.names import shown_text
from pipeline_src.base.progress import Progress, log

# After this many consecutive failures without progress, the next mirror is tried.
ATTEMPTS = 4
# Seconds to wait after the n-th consecutive failure: BACKOFF * 2 ** n, or longer if the server asks for it, but never
# more than MAX_WAIT.
BACKOFF, MAX_WAIT = 0.5, 60.0
# A connection is closed after TIMEOUT seconds without a byte, or after SLOW_SECONDS with fewer than MIN_PROGRESS bytes.
TIMEOUT, SLOW_SECONDS, MIN_PROGRESS = 60.0, 300.0, 1 << 16
# Maximum size of a file whose size the catalogue does not give.
MAX_BYTES = 1 << 40
BLOCK_BYTES = 1 << 18
CONTENT_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18})")
RETRIED_STATUSES = {408, 425, 429, 500, 502, 503, 504}
HEADERS = {"User-Agent": "pipeline_src (reproducible BERT pipeline; python-requests)", "Accept-Encoding": "identity"}


class _Temporary(Exception):
    def __init__(self, reason: object, wait_seconds: float = 0.0) -> None:
        super().__init__(str(reason))
        self.wait_seconds = wait_seconds


class _Permanent(Exception):
    pass


@dataclass
class _Partial:
    # An incomplete download. If no checksum is known (``checked`` is False), it is resumed only with the server's ETag
    # or Last-Modified date, which shows that the file has not changed.
    path: Path
    size: int | None
    max_bytes: int
    checked: bool
    etag: str = ""

    @property
    def num_bytes(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0


def download(
    urls: Sequence[str],
    target: Path,
    size: int | None = None,
    checked: bool = True,
    max_bytes: int = MAX_BYTES,
    headers: Mapping[str, str] | None = None,
) -> None:
    """Download a file from the first of several URLs that works.

    ``target`` appears only when the file is complete. Until then the bytes are in ``<target>.partial``, and the next
    call requests only the missing bytes (HTTP Range).

    Args:
        urls: the address and its mirrors, in the order in which they are tried.
        size: number of bytes, if known. A longer reply is rejected.
        checked: whether the caller verifies a checksum afterwards. If False, the reply must look complete (status
            200, a length or chunked encoding, not empty, no HTML page), and a later call starts from the beginning.
        max_bytes: maximum number of bytes if ``size`` is None.
        headers: extra headers, such as the token for Hugging Face's hub. After a redirect to another host, `requests`
            removes ``Authorization``.

    Raises:
        PipelineError: no URL works, or the disk is full.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = _Partial(target.with_name(f"{target.name}.partial"), size, max_bytes, checked)
    failures = []
    try:
        for url in urls:
            try:
                _fetch(url, partial, headers or {})
            except _Permanent as error:
                failures.append(f"{url}: {error}")
                log.warning("%s: %s", url, error)
            else:
                os.replace(partial.path, target)
                return
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise PipelineError(
            "no space left on the disk",
            partial.path,
            where=url,
            hint="free some space and run the same command again; a download with a checksum resumes",
        ) from None
    finally:
        if not checked:
            partial.path.unlink(missing_ok=True)
    is_refused = headers is not None and any(re.search(": HTTP 40[13] ", failure) for failure in failures)
    login = "accept its terms on the hub, then `hf auth login` or set HF_TOKEN; or " if is_refused else ""
    raise PipelineError(
        "download failed",
        urls[0],
        where="\n          ".join(failures),
        hint=f"{login}check the network, proxy and addresses, then run the same command again; or download the file by "
        "hand and write file:PATH as its url in the catalogue",
    )


def _fetch(url: str, partial: _Partial, headers: Mapping[str, str]) -> None:
    failures = 0
    with open_session(url) as session:
        session.headers.update(headers)
        if headers:
            # Setting `auth` keeps `requests` from replacing the Authorization header by a login from ~/.netrc.
            session.auth = lambda request: request
        while True:
            before = partial.num_bytes
            try:
                return _fetch_once(session, url, partial)
            except _Temporary as error:
                failures = 0 if partial.num_bytes >= before + MIN_PROGRESS else failures + 1
                if failures == ATTEMPTS:
                    raise _Permanent(f"{error} ({ATTEMPTS} attempts)") from None
                pause = min(max(BACKOFF * 2**failures, error.wait_seconds), MAX_WAIT)
                log.warning("%s: %s; trying again in %.0f s", url, error, pause)
                time.sleep(pause)


def open_session(url: str) -> requests.Session:
    # For an https URL, the session cannot follow redirects to http.
    session = requests.Session()
    session.headers.update(HEADERS)
    paths = ssl.get_default_verify_paths()
    # Prefer the system's certificates, to which an institution may have added its own. True means certifi's.
    session.verify = paths.cafile or paths.capath or True
    if url.startswith("https:"):
        del session.adapters["http://"]
    return session


def _fetch_once(session: requests.Session, url: str, partial: _Partial) -> None:
    start = partial.num_bytes if partial.checked or partial.etag else 0
    response = _open(session, url, start, partial.etag)
    # Status 416: the server's file is shorter than the partial file, so download it from the beginning.
    if response.status_code == 416:
        response.close()
        start, response = 0, _open(session, url, 0, "")
    with response:
        if start and response.status_code == 206:
            content_range = response.headers.get("Content-Range", "")
            match = CONTENT_RANGE.fullmatch(content_range)
            if match is None or int(match[1]) != start:
                partial.path.unlink()
                raise _Permanent(f"the server sent another byte range than requested: {shown_text(content_range)}")
            is_complete = int(match[2]) + 1 == int(match[3])
        else:
            start, is_complete = 0, True
            _check_reply(response, url, partial)
            partial.etag = response.headers.get("ETag") or response.headers.get("Last-Modified", "")
        _save(response, partial, start)
    # A server may send less than was requested.
    if not is_complete:
        raise _Temporary(f"the server sent only a part of the requested bytes: {shown_text(content_range)}")


def _open(session: requests.Session, url: str, start: int, etag: str) -> requests.Response:
    headers = {"Range": f"bytes={start}-"} if start else {}
    if start and etag:
        headers["If-Range"] = etag
    try:
        response = session.get(url, headers=headers, stream=True, timeout=TIMEOUT)
        if response.status_code in RETRIED_STATUSES:
            response.close()
            wait = response.headers.get("Retry-After", "")
            raise _Temporary(f"HTTP {response.status_code}", float(wait) if re.fullmatch("[0-9]{1,6}", wait) else 0.0)
        return response
    except (requests.ConnectionError, requests.Timeout, ChunkedEncodingError, ContentDecodingError, HTTPError) as error:
        raise _Temporary(_reason(error)) from None
    except (requests.RequestException, ValueError, OverflowError) as error:
        raise _Permanent(_reason(error)) from None


def _reason(error: Exception) -> str:
    # requests and urllib3 wrap the cause in up to two exceptions of their own. Show the cause.
    inner = error.args[0] if error.args else error
    return shown_text(getattr(inner, "reason", None) or inner) or type(error).__name__


def _check_reply(response: requests.Response, url: str, partial: _Partial) -> None:
    if response.status_code != 200:
        raise _Permanent(f"HTTP {response.status_code} {shown_text(response.reason)}")
    encoding = response.headers.get("Content-Encoding", "").strip().lower()
    if encoding not in ("identity", ""):
        raise _Permanent(f"the server sent a compressed reply ({shown_text(encoding)}), which was not requested")
    if partial.checked:
        return
    if "text/html" in response.headers.get("Content-Type", "").lower() and not url.endswith((".html", ".htm")):
        raise _Permanent("the server sent an HTML page instead of the file")
    if response.raw.length_remaining is None and partial.size is None and not response.raw.chunked:
        raise _Permanent("cannot tell whether the file is complete: no length from the server, no checksum known")


def _save(response: requests.Response, partial: _Partial, start: int) -> None:
    length = response.raw.length_remaining
    total = partial.size if length is None else start + length
    limit = partial.max_bytes if partial.size is None else partial.size
    if total is not None and total > limit:
        raise _Permanent(f"the file has {total:,} bytes, more than the limit of {limit:,}")
    usage = shutil.disk_usage(partial.path.parent)
    # Some file systems report a total size of 0. Skip the check there.
    if total is not None and usage.total and total - partial.num_bytes > usage.free:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with open(partial.path, "ab" if start else "wb") as file, Progress(partial.path.stem, total, "B") as progress:
        progress.advance(start)
        for block in _blocks(response):
            file.write(block)
            progress.advance(len(block))
            if file.tell() > limit:
                partial.path.unlink()
                raise _Permanent(f"the file has more than the limit of {limit:,} bytes")
    if not partial.checked and not partial.num_bytes and partial.size != 0:
        raise _Permanent("the file is empty")


def _blocks(response: requests.Response) -> Iterator[bytes]:
    # Network errors become _Temporary here, so any OSError that the caller sees is a disk error.
    since, received = time.monotonic(), 0
    while True:
        try:
            block = response.raw.read1(BLOCK_BYTES, decode_content=False)
        except (HTTPError, OSError, ValueError) as error:
            raise _Temporary(f"{type(error).__name__} {shown_text(error)}") from None
        if not block:
            return
        yield block
        received += len(block)
        if received >= MIN_PROGRESS:
            since, received = time.monotonic(), 0
        # Needed besides TIMEOUT, which starts again with each byte received.
        elif time.monotonic() > since + SLOW_SECONDS:
            raise _Temporary(f"{received:,} bytes in {SLOW_SECONDS:g} s")
