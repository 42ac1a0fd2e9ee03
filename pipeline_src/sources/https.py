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
from email.message import Message
from pathlib import Path

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.progress import Progress, log

ATTEMPTS = 4  # in a row without a byte gained, per address
WAIT = 1.0  # seconds before the second attempt, doubled before each further one
LONGEST_WAIT = 60.0  # seconds, also where a server asks for more
SILENCE = 60.0  # seconds without a byte after which a connection is given up
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


def download(urls: Sequence[str], target: Path, size: int | None = None) -> None:
    """Fetch the first of ``urls`` that answers into ``target``, which appears only when it is whole.

    What has arrived stays beside it as ``<target>.partial`` and the next call asks for the rest alone (HTTP Range).

    Args:
        urls: addresses of the same bytes, the first one first.
        target: where the file goes.
        size: bytes, where known; for the progress shown.

    Raises:
        PipelineError: no address gave the file (each is listed with its reason), or the disk is full.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f"{target.name}.partial")
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
                "no space left on the disk", partial, where=url,
                remedy="free some and run the same command again; the download goes on where it stopped",
            ) from None  # fmt: skip
        os.replace(partial, target)
        return
    raise PipelineError(
        "download failed", urls[0], where="\n          ".join(failures),
        remedy="check the network, proxy and addresses, then run the same command again; or fetch the file by other "
        "means and name it as file:… in the catalogue",
    )  # fmt: skip


def _fetch(url: str, partial: Path, size: int | None) -> None:
    attempt, wait = 1, WAIT
    while True:
        before = _size(partial)
        try:
            return _once(url, partial, size)
        except _Passing as error:
            if _size(partial) > before:
                attempt, wait = 0, WAIT
            if attempt >= ATTEMPTS:
                raise _Final(f"{error} ({ATTEMPTS} attempts)") from None
            pause = min(max(wait, error.wait), LONGEST_WAIT)
            log.warning("%s: %s; trying again in %.0f s", url, error, pause)
            time.sleep(pause)
            attempt, wait = attempt + 1, wait * 2


def _once(url: str, partial: Path, size: int | None) -> None:
    have = _size(partial)
    try:
        response = _open(url, have)
    except _Final:
        if not have:
            raise
        partial.unlink()  # the server refuses this range: the file there is another one, or shorter
        have, response = 0, _open(url, 0)
    with response:
        if response.status != 206 or not _starts_at(response.headers, have):
            have = 0
        length = response.headers.get("Content-Length")
        total = have + int(length) if length else size
        with open(partial, "ab" if have else "wb") as file, Progress(partial.stem, total, "B") as progress:
            progress.advance(have)
            for block in _blocks(response):
                file.write(block)
                progress.advance(len(block))
    if length and _size(partial) < have + int(length):
        raise _Passing(f"the connection ended at byte {_size(partial):,} of {have + int(length):,}")


def _open(url: str, have: int) -> http.client.HTTPResponse:
    headers = {"User-Agent": USER_AGENT, "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    try:
        response: http.client.HTTPResponse = urllib.request.urlopen(
            urllib.request.Request(url, headers=headers), timeout=SILENCE
        )
        return response
    except urllib.error.HTTPError as error:
        if error.code in PASSING:
            asked = error.headers.get("Retry-After", "")
            raise _Passing(f"HTTP {error.code}", float(asked) if asked.isdigit() else 0.0) from None
        raise _Final(f"HTTP {error.code} {error.reason}") from None
    except urllib.error.URLError as error:
        raise _Passing(error.reason) from None
    except (OSError, http.client.HTTPException) as error:
        raise _Passing(error or type(error).__name__) from None


def _blocks(response: http.client.HTTPResponse) -> Iterator[bytes]:
    """Read alone is guarded here: an OSError while writing is the disk's, not the network's."""
    while True:
        try:
            block = response.read(BLOCK)
        except (OSError, http.client.HTTPException) as error:
            raise _Passing(f"{type(error).__name__} {error}") from None
        if not block:
            return
        yield block


def _starts_at(headers: Message, position: int) -> bool:
    found = re.match(r"bytes (\d+)-", headers.get("Content-Range", ""))
    return found is not None and int(found[1]) == position


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
