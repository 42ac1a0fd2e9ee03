"""Reading pages out of a MediaWiki dump: whole, or from any range of the bz2 streams it is made of.

A page belongs to the range in which its ``<page>`` tag begins, whichever stream it ends in.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pipeline_src.common.errors import PipelineError
from pipeline_src.wikipedia.streams import FETCH_AGAIN, broken, read_blocks

HEAD_BYTES = 1 << 20  # <siteinfo> ends long before
PAGE, PAGE_END, END = b"<page>", b"</page>", b"</mediawiki>"
LONGEST_PAGE = 128 << 20  # bytes of XML; MediaWiki allows 2 MB of text to a page
_NUMBER = re.compile(r"-?[0-9]{1,18}")
ESCAPED = {"&lt;": "<", "&gt;": ">", "&quot;": '"', "&#039;": "'", "&amp;": "&"}
ESCAPE = re.compile("|".join(ESCAPED))


@dataclass(frozen=True)
class Page:
    """One page with its latest revision; ``text`` is wikitext."""

    id: int
    title: str
    namespace: int
    redirect: bool
    revision: int
    text: str


def find_dump(folder: str | Path) -> Path:
    """The one dump file in ``folder``, beside its record (``source.json``) and index.

    Raises:
        PipelineError: there is none, more than one, or it is empty.
    """
    folder = Path(folder)
    files = sorted(
        path
        for path in (folder.iterdir() if folder.is_dir() else ())
        if path.is_file() and path.name != "source.json" and "index" not in path.name and path.name[0] != "."
    )
    if len(files) != 1:
        raise PipelineError(
            "there must be exactly one dump file",
            ", ".join(path.name for path in files) or "none found",
            where=folder,
            remedy="run the download stage, or put one .xml, .xml.bz2, .xml.gz or .xml.zst file there",
        )
    if files[0].stat().st_size == 0:
        raise PipelineError("the dump is empty", files[0], remedy=FETCH_AGAIN)
    return files[0]


def read_head(path: Path) -> str:
    """The dump's opening, up to ``</siteinfo>``.

    Raises:
        PipelineError: the file is not a MediaWiki dump.
    """
    head = b""
    for block in read_blocks(path):
        head += block.data
        if b"</siteinfo>" in head or len(head) > HEAD_BYTES:
            break
    if b"<mediawiki" not in head:
        raise PipelineError(
            "not a MediaWiki dump", repr(head[:40].decode("utf-8", "replace")), where=f"{path}, at its start",
            remedy="use a pages-articles dump in XML (plain, .bz2, .gz or .zst)",
        )  # fmt: skip
    return head.decode("utf-8", "replace")


@dataclass
class Damage:
    """What corrupt streams cost.

    Attributes:
        streams: byte offset in the file and problem of each.
        cut_pages: pages that begin in a good stream and run into a corrupt one.
    """

    streams: list[tuple[int, str]] = field(default_factory=list)
    cut_pages: int = 0


def read_pages(path: Path, start: int = 0, end: int | None = None, damage: Damage | None = None) -> Iterator[Page]:
    """Yield the pages that begin in bytes [start, end) of the file.

    Args:
        path: the dump.
        start: where a stream begins.
        end: where another one does; None for the end of the file.
        damage: takes down the corrupt streams of the range, whose pages are left out; None makes one an error.

    Raises:
        PipelineError: the file is cut off or corrupt, or a page lacks its title, id or text.
    """
    own: int | None = None  # how many of the pending bytes are in the range; None while all are
    pending = bytearray()
    searched = 0  # bytes of pending that hold no end of a page
    ended = False
    for block in read_blocks(path, start):
        if end is not None and block.stream >= end and own is None:
            own = len(pending)
        if block.problem is not None:
            if damage is None:
                raise broken(path, f"the bz2 stream at byte {block.stream:,}", block.problem)
            damage.cut_pages += PAGE in pending
            if own is not None:
                return
            damage.streams.append((block.stream, block.problem))
            pending.clear()  # nothing is joined across the hole
            searched = 0
            continue
        pending += block.data
        used = 0
        while True:
            begin = _find_page(pending, used)
            if own is not None and begin >= own:
                return
            ended = ended or END in pending[used:begin]
            if ended:
                break
            close = pending.find(PAGE_END, max(begin, searched))
            if close < 0:
                break
            used = close + len(PAGE_END)
            yield parse_page(bytes(pending[begin:used]), path)
        if begin < len(pending) and len(pending) - begin > LONGEST_PAGE:
            raise PipelineError(
                f"a page of more than {LONGEST_PAGE:,} bytes", f"{bytes(pending[begin : begin + 80])!r}", where=path,
                remedy="use a pages-articles dump, which holds one revision of each page",
            )  # fmt: skip
        keep = min(begin, max(used, len(pending) - len(END) - 20))
        if ended:
            if more := bytes(pending[used:]).split(END, 1)[-1].strip():
                raise broken(path, "after </mediawiki>", f"there is more: {more[:40]!r}")
            keep = len(pending)
        del pending[:keep]
        searched = max(0, len(pending) - len(PAGE_END))
        own = None if own is None else own - keep
    if PAGE in pending or not ended:
        raise broken(path, "at its end", "the XML stops before </mediawiki>")


def _find_page(xml: bytearray, position: int) -> int:
    """Where a page begins at or after ``position``, were it with half a tag at the very end; else the length."""
    begin = xml.find(PAGE, position)
    if begin >= 0:
        return begin
    half = next((size for size in range(len(PAGE) - 1, 0, -1) if xml.endswith(PAGE[:size])), 0)
    return len(xml) - half


def parse_page(xml: bytes, path: Path) -> Page:
    """One ``<page>…</page>`` as a :class:`Page`; of several revisions the last."""
    head, _, revision = xml.rpartition(b"<revision>")
    title, identifier = _field(head, b"title"), _field(head, b"id")
    numbers = (identifier or "", _field(head, b"ns") or "0", _field(revision, b"id") or "0")
    opening = revision.find(b"<text")
    inside = revision.find(b">", opening) + 1
    if title is None or not all(_NUMBER.fullmatch(number) for number in numbers) or opening < 0 or not inside:
        raise PipelineError(
            "a page without title, id or text", title or identifier, where=f"{path}, {xml[:80]!r}",
            remedy=f"use an unchanged pages-articles dump; if this is one, {FETCH_AGAIN}",
        )  # fmt: skip
    close = revision.find(b"</text>", inside)
    text = revision[inside:close] if close >= 0 else b""
    return Page(
        id=int(numbers[0]),
        title=_unescape(title),
        namespace=int(numbers[1]),
        redirect=b"<redirect" in head,
        revision=int(numbers[2]),
        text=_unescape(text.decode("utf-8", "replace")),
    )


def _field(xml: bytes, name: bytes) -> str | None:
    begin = xml.find(b"<" + name + b">")
    end = xml.find(b"</" + name + b">", begin)
    return xml[begin + len(name) + 2 : end].decode("utf-8", "replace").strip() if 0 <= begin < end else None


def _unescape(text: str) -> str:
    """Undo XML's escapes and no others: &nbsp; and the like belong to the wikitext."""
    return ESCAPE.sub(lambda escape: ESCAPED[escape[0]], text)
