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

from pipeline_src.common.environment import number_of
from pipeline_src.common.errors import PipelineError
from pipeline_src.common.names import shown_text
from pipeline_src.common.progress import Progress, log
from pipeline_src.sources.partial import Partial
from pipeline_src.sources.watched import Watch

ATTEMPTS = 4  # in a row without a byte gained, per address
WAIT = 1.0  # seconds before the second attempt, doubled before each further one
LONGEST_WAIT = 60.0  # seconds, also where a server asks for more
SILENCE = 60.0  # seconds without a byte after which a connection is given up
WINDOW, LEAST = 300.0, 1 << 16  # seconds in which so many bytes must come, and what an attempt must gain to count
HOURS = "PIPELINE_DOWNLOAD_HOURS"  # of one file with all its attempts and mirrors; decides nothing of the result
USUAL_HOURS = 24.0  # 20 GB, the largest dump of one file, at 250 kB/s
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


class _Late(Exception):
    """The time for the file is up."""


class _StayOnHttps(urllib.request.HTTPRedirectHandler):
    """Follows redirects, but never from https to an address that anybody on the way can change."""

    def redirect_request(self, request: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        if request.full_url.startswith("https:") and not newurl.startswith("https:"):
            raise _Final(f"redirected from https to {shown_text(newurl)}")
        return super().redirect_request(request, fp, code, msg, headers, newurl)


def download(
    urls: Sequence[str], target: Path, size: int | None = None, checked: bool = True, most: int = LARGEST
) -> None:
    """Fetch the first of ``urls`` that answers into ``target``, which appears only when it is whole.

    What has arrived stays beside it as ``<target>.partial`` and the next call asks for the rest alone (HTTP Range), if
    the server still has the same file (If-Range).

    Args:
        urls: addresses of the same bytes, the first one first.
        target: where the file goes.
        size: bytes, where known; more are refused.
        checked: whether the caller holds the file to a checksum. Without one, the reply itself must show that the file
            is whole and what was asked for: status 200, a length, bytes of it, no page of HTML.
        most: bytes of a file whose size is not known.

    Raises:
        PipelineError: no address gave the file (each is listed with its reason), it took longer than
            ``$PIPELINE_DOWNLOAD_HOURS``, or the disk is full.
    """
    hours = number_of("hours", HOURS, USUAL_HOURS)
    ends = time.monotonic() + 3600 * hours
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = Partial(target.with_name(f"{target.name}.partial"), checked)
    failures = []
    for url in urls:
        try:
            _fetch(url, partial, size, most, ends)
        except _Final as error:
            failures.append(f"{url}: {error}")
            log.warning("%s: %s", url, error)
            continue
        except _Late:
            partial.keep_if_it_can_go_on()
            raise PipelineError(
                "a download takes too long", f"not whole after {hours:g} hours", where=url,
                remedy=f"run the same command again, which goes on where it can; for a slow line set ${HOURS} "
                "higher; or fetch the file by other means and name it as file:… in the catalogue",
            ) from None  # fmt: skip
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            if partial.endless:
                partial.remove()
            raise PipelineError(
                "no space left on the disk", partial.path, where=url,
                remedy="free some and run the same command again; a download whose length is known goes on where it "
                "stopped, another one was deleted",
            ) from None  # fmt: skip
        os.replace(partial.path, target)
        partial.remove()
        return
    partial.keep_if_it_can_go_on()
    raise PipelineError(
        "download failed", urls[0], where="\n          ".join(failures),
        remedy="check the network, proxy and addresses, then run the same command again; or fetch the file by other "
        "means and name it as file:… in the catalogue",
    )  # fmt: skip


def _fetch(url: str, partial: Partial, size: int | None, most: int, ends: float) -> None:
    attempt, wait = 1, WAIT
    while True:
        before = partial.size
        watch = Watch(WINDOW, LEAST, ends)
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
        # it may refuse this range, the file there being another one or shorter; what has come stays where it has none
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
    if watch.ended:  # a header that was cut short looks like a whole one
        response.close()
        raise _Passing(watch.too_slow)
    return response


def _blocks(response: http.client.HTTPResponse, watch: Watch) -> Iterator[bytes]:
    """Read alone is guarded here: an OSError while writing is the disk's, not the network's."""
    while True:
        try:
            block = response.read1(BLOCK)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise _Passing(f"{type(error).__name__} {shown_text(error)}") from None
        if watch.ended:  # what looks like the end of a file without length is none
            raise _Passing(watch.too_slow)
        if not block:
            return
        watch.come += len(block)
        yield block


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
