"""Reading pages out of a MediaWiki dump: whole, or from any range of the bz2 streams it is made of.

Wikimedia's multistream dumps are bz2 streams laid end to end, so a reader can start at any of them. A page belongs to
the range in which its ``<page>`` tag begins, whichever stream it ends in.
"""

from __future__ import annotations

import bz2
import gzip
import mmap
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from pipeline_src.errors import PipelineError

STREAM_MAGIC = b"1AY&SY"  # the first block of a stream, after BZh and a digit (the first digits of pi)
RANGE_BYTES = 8 << 20  # compressed; some 35 MB of XML, 3 s of work
BLOCK = 1 << 16
HEAD_BYTES = 1 << 20  # <siteinfo> ends long before
FETCH_AGAIN = "delete it and run the download stage again"


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
    for _, block in read_blocks(path):
        head += block
        if b"</siteinfo>" in head or len(head) > HEAD_BYTES:
            break
    if b"<mediawiki" not in head:
        raise PipelineError(
            "not a MediaWiki dump", repr(head[:40].decode("utf-8", "replace")), where=f"{path}, at its start",
            remedy="use a pages-articles dump in XML (plain, .bz2, .gz or .zst)",
        )  # fmt: skip
    return head.decode("utf-8", "replace")


def split_ranges(path: Path, size: int = RANGE_BYTES) -> list[tuple[int, int]]:
    """Ranges of bytes [start, end) of the file that can be read apart; one range where it is not multistream."""
    total = path.stat().st_size
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        starts = [0]
        if data[:3] == b"BZh":
            while (start := _next_stream(data, starts[-1] + size)) is not None:
                starts.append(start)
    return list(zip(starts, [*starts[1:], total], strict=True))


def _next_stream(data: mmap.mmap, position: int) -> int | None:
    """Where the first stream at or after ``position`` starts; verified by decoding (and so checking) a block of it."""
    while (found := data.find(STREAM_MAGIC, position + len("BZh9"))) >= 0:
        start = found - len("BZh9")
        position = start + 1
        if data[start : start + 3] == b"BZh" and data[start + 3 : start + 4] in b"123456789":
            try:
                bz2.BZ2Decompressor().decompress(data[start : start + (1 << 20)])
            except OSError:
                continue
            return start
    return None


def read_blocks(path: Path, start: int = 0) -> Iterator[tuple[int, bytes]]:
    """Yield decompressed blocks from byte ``start`` on, each with the offset of the bz2 stream it comes from.

    Plain, .gz and .zst files count as one stream at 0. The kind is told by the file's first bytes, not its name.

    Raises:
        PipelineError: the file is cut off or corrupt.
    """
    with open(path, "rb") as file:
        magic = file.read(4)
        file.seek(start)
        if magic[:3] == b"BZh":
            yield from _read_bz2(file, path, start)
            return
        reader: Any = file
        if magic[:2] == b"\x1f\x8b":
            reader = gzip.open(file)
        elif magic == b"\x28\xb5\x2f\xfd":
            reader = _open_zstandard(file, path)
        while block := _checked_read(reader, path):
            yield 0, block


def _read_bz2(file: IO[bytes], path: Path, start: int) -> Iterator[tuple[int, bytes]]:
    decoder, stream, position, data = bz2.BZ2Decompressor(), start, start, b""
    while True:
        if not data:
            data = file.read(BLOCK)
            position += len(data)
        if not data:
            break
        if decoder.eof:
            decoder, stream = bz2.BZ2Decompressor(), position - len(data)
        try:
            block = decoder.decompress(data)
        except OSError as error:
            raise _broken(path, f"the bz2 stream at byte {stream:,}", error) from None
        data = decoder.unused_data if decoder.eof else b""
        if block:
            yield stream, block
    if not decoder.eof:
        raise _broken(path, f"the bz2 stream at byte {stream:,}", "the file ends within it")


def _checked_read(reader: Any, path: Path) -> bytes:
    try:
        return bytes(reader.read(BLOCK))
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise _broken(path, "the compressed data", error) from None


def _open_zstandard(file: IO[bytes], path: Path) -> Any:
    try:
        import zstandard
    except ImportError:
        raise PipelineError(
            "reading .zst needs the package zstandard", path, remedy="`pip install zstandard`, or use the .bz2 dump"
        ) from None
    return zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)


def _broken(path: Path, place: str, problem: object) -> PipelineError:
    return PipelineError("the dump is cut off or corrupt", problem, where=f"{path}, {place}", remedy=FETCH_AGAIN)


def read_pages(path: Path, start: int = 0, end: int | None = None) -> Iterator[Page]:
    """Yield the pages that begin in bytes [start, end) of the file.

    Raises:
        PipelineError: the file is cut off or corrupt, or a page lacks its title, id or text.
    """
    own: int | None = None  # how many of the pending bytes are in the range; None while all are
    pending = b""
    for offset, block in read_blocks(path, start):
        if end is not None and offset >= end and own is None:
            own = len(pending)
        pending += block
        used = 0
        while True:
            begin = pending.find(b"<page>", used)
            if own is not None and not 0 <= begin < own:
                return
            close = pending.find(b"</page>", begin) if begin >= 0 else -1
            if close < 0:
                break
            used = close + len(b"</page>")
            yield parse_page(pending[begin:used], path)
        keep = begin if begin >= 0 else max(used, len(pending) - len(b"</mediawiki>") - 20)
        pending = pending[keep:]
        own = None if own is None else own - keep
    if b"<page>" in pending or b"</mediawiki>" not in pending:
        raise _broken(path, "at its end", "the XML stops before </mediawiki>")


def parse_page(xml: bytes, path: Path) -> Page:
    """One ``<page>…</page>`` as a :class:`Page`; of several revisions the last."""
    head, _, revision = xml.rpartition(b"<revision>")
    title, identifier = _field(head, b"title"), _field(head, b"id")
    opening = revision.find(b"<text")
    inside = revision.find(b">", opening) + 1
    if title is None or not (identifier or "").isdigit() or opening < 0 or not inside:
        raise PipelineError(
            "a page without title, id or text", title or identifier, where=f"{path}, {xml[:80]!r}",
            remedy="use an unchanged pages-articles dump",
        )  # fmt: skip
    close = revision.find(b"</text>", inside)
    text = revision[inside:close] if close >= 0 else b""
    return Page(
        id=int(identifier or 0),
        title=_unescape(title),
        namespace=int(_field(head, b"ns") or 0),
        redirect=b"<redirect" in head,
        revision=int(_field(revision, b"id") or 0),
        text=_unescape(text.decode("utf-8", "replace")),
    )


def _field(xml: bytes, name: bytes) -> str | None:
    begin = xml.find(b"<" + name + b">")
    end = xml.find(b"</" + name + b">", begin)
    return xml[begin + len(name) + 2 : end].decode("utf-8", "replace").strip() if 0 <= begin < end else None


def _unescape(text: str) -> str:
    """Undo XML's escapes and no others: &nbsp; and the like belong to the wikitext."""
    if "&" not in text:
        return text
    text = text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", '"').replace("&#039;", "'")
    return text.replace("&amp;", "&")
