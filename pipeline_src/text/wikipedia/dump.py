"""Read the pages of a MediaWiki dump: all pages, or only those in a range of its bz2 streams.

Wikimedia's multistream dumps are concatenated bz2 streams. A reader can start at any stream, and a corrupt stream costs
only its own pages. libbz2 returns data before it has verified the checksum, so a stream is decoded to its end before
any of its data is used. A page belongs to the range in which its ``<page>`` tag begins.
"""

from __future__ import annotations

import bz2
import gzip
import os
import re
import zlib
from collections import deque
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from html import unescape
from itertools import pairwise
from pathlib import Path
from typing import IO

import zstandard

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.progress import log

# A bz2 stream begins with its own header and the header of its first block, which has the first digits of pi.
STREAM = re.compile(rb"BZh[1-9]1AY&SY")
# Compressed size of a range: about 35 MB of XML, which take 3 s to clean.
RANGE_BYTES = 8 << 20
# Hold back at most this many decompressed bytes of a stream until its checksum is verified.
MAX_HELD_BYTES = 64 << 20
READ_BYTES = 1 << 16
# Maximum number of decompressed bytes in a block.
BLOCK_BYTES = 1 << 20
# Stop looking for </siteinfo>, which comes much earlier, after this many bytes.
HEAD_BYTES = 1 << 20
PAGE, PAGE_END, END = b"<page>", b"</page>", b"</mediawiki>"
# Maximum size of the XML of a page. MediaWiki limits its text to 2 MB.
MAX_PAGE_BYTES = 128 << 20
_NUMBER = re.compile(r"-?[0-9]{1,18}")
ESCAPED = {"&lt;": "<", "&gt;": ">", "&quot;": '"', "&amp;": "&"}
ESCAPE = re.compile(r"&(?:lt|gt|quot|apos|amp|#[0-9]{1,7}|#x[0-9a-fA-F]{1,6});")
# "enwiki-20260901-pages-articles-multistream-index1.txt-p1p41242.bz2"
INDEX = re.compile(r"-index[0-9]*\.txt")
# Messages of gzip and zstandard if something other than a stream follows the last stream.
NO_STREAM = re.compile("Not a gzipped file|Unknown frame descriptor")
PADDING = b"\0 \t\r\n"
FETCH_AGAIN = "delete it and run the download stage again"


@dataclass(frozen=True)
class DumpBlock:
    """Decompressed bytes of a dump. A block without data marks the start of a bz2 stream.

    Attributes:
        stream: byte offset of the bz2 stream in the file; 0 if the file has another compression.
        problem: why the stream is corrupt, in a block without data; else None.
    """

    stream: int
    data: bytes = b""
    problem: str | None = None


def split_ranges(path: Path, size: int = RANGE_BYTES) -> list[tuple[int, int]]:
    # Each range but the last has at least `size` bytes. A file that is not multistream is a single range.
    starts = [0]
    with open(path, "rb") as file:
        if file.read(3) == b"BZh":
            while (start := _find_stream(file, starts[-1] + size)) is not None:
                starts.append(start)
    return list(pairwise([*starts, path.stat().st_size]))


def _find_stream(file: IO[bytes], position: int) -> int | None:
    # Return the offset of the first stream at or after `position`, or None. The pattern has 10 bytes, so a match by
    # chance has probability 2^-80 at each position.
    file.seek(position)
    tail = b""
    while data := file.read(1 << 20):
        window = tail + data
        match = STREAM.search(window)
        if match:
            return position - len(tail) + match.start()
        position += len(data)
        tail = window[-9:]
    return None


def read_blocks(path: Path, start: int = 0) -> Iterator[DumpBlock]:
    """Yield the decompressed blocks of a file from byte ``start`` on, where a stream must begin.

    The first bytes of the file tell its compression. A corrupt bz2 stream becomes one block with its ``problem``. An
    error is raised instead if it is the first or last stream, or if more than ``MAX_HELD_BYTES`` of it were decoded.
    """
    with open(path, "rb") as file:
        magic = file.read(4)
        file.seek(start)
        if magic[:3] == b"BZh":
            following: int | None = start
            while following is not None:
                following = yield from _read_stream(file, path, following)
            return
        # Unlike read, read1 returns the data that precedes a corrupt place before it raises an error.
        read: Callable[[int], bytes] = file.read
        if magic[:2] == b"\x1f\x8b":
            read = gzip.open(file).read1
        elif magic == b"\x28\xb5\x2f\xfd":
            read = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True).read1
        while data := _checked_read(read, path):
            yield DumpBlock(0, data)


class _Corrupt(Exception):
    pass


def _read_stream(file: IO[bytes], path: Path, stream: int) -> Generator[DumpBlock, None, int | None]:
    yield DumpBlock(stream)
    file.seek(stream)
    held: deque[bytes] = deque()
    size = 0
    try:
        for data in _decode(file):
            held.append(data)
            size += len(data)
            while held and size > MAX_HELD_BYTES:
                yield DumpBlock(stream, held.popleft())
    except _Corrupt as error:
        following = _find_stream(file, stream + 1)
        if stream == 0 or following is None or size > MAX_HELD_BYTES:
            raise broken(path, f"the bz2 stream at byte {stream:,}", error) from None
        yield DumpBlock(stream, problem=str(error))
        return following
    following = file.tell()
    magic = file.read(3)
    while held:
        yield DumpBlock(stream, held.popleft())
    if magic and magic != b"BZh" and _find_stream(file, following) is None:
        _warn_of_rest(path)
        return None
    return following if magic else None


def _decode(file: IO[bytes]) -> Iterator[bytes]:
    decoder = bz2.BZ2Decompressor()
    while not decoder.eof:
        packed = file.read(READ_BYTES) if decoder.needs_input else b""
        if decoder.needs_input and not packed:
            raise _Corrupt("the file ends within it")
        try:
            data = decoder.decompress(packed, BLOCK_BYTES)
        except OSError as error:
            raise _Corrupt(error) from None
        if data:
            yield data
    file.seek(-len(decoder.unused_data), os.SEEK_CUR)


def _checked_read(read: Callable[[int], bytes], path: Path) -> bytes:
    try:
        return bytes(read(READ_BYTES))
    except (EOFError, gzip.BadGzipFile, zlib.error, zstandard.ZstdError) as error:
        if NO_STREAM.search(str(error)):
            _warn_of_rest(path)
            return b""
        raise broken(path, "the compressed data", error) from None


def _warn_of_rest(path: Path) -> None:
    # Like bzip2 -d, this only warns. A dump that is cut off is detected by its missing </mediawiki>.
    log.warning("%s: ignoring the data after the last compressed stream", path)


def broken(path: Path, part: str, problem: object) -> PipelineError:
    return PipelineError("the dump is cut off or corrupt", problem, where=f"{path}, {part}", hint=FETCH_AGAIN)


@dataclass(frozen=True)
class Page:
    id: int
    title: str
    namespace: int
    redirect: bool
    revision: int
    text: str


def find_dump(folder: str | Path) -> Path:
    folder = Path(folder)
    files = sorted(
        path
        for path in (folder.iterdir() if folder.is_dir() else ())
        if path.is_file() and path.name != "source.json" and not INDEX.search(path.name) and path.name[0] != "."
    )
    if len(files) != 1:
        raise PipelineError(
            "expected exactly one dump file in the folder",
            ", ".join(path.name for path in files) or "none found",
            where=folder,
            hint="run the download stage, or put one .xml, .xml.bz2, .xml.gz or .xml.zst file there",
        )
    if files[0].stat().st_size == 0:
        raise PipelineError("the dump is empty", files[0], hint=FETCH_AGAIN)
    return files[0]


def read_head(path: Path) -> str:
    # Return the start of the XML, up to the end of the block that contains </siteinfo>.
    head = b""
    for block in read_blocks(path):
        head += block.data
        if b"</siteinfo>" in head or len(head) > HEAD_BYTES:
            break
    if b"<mediawiki" not in head:
        raise PipelineError(
            "the file is not a MediaWiki dump",
            repr(head[:40].decode("utf-8", "replace")),
            where=f"{path}, at its start",
            hint="use a pages-articles dump in XML (plain, .bz2, .gz or .zst)",
        )
    return head.decode("utf-8", "replace")


@dataclass
class Damage:
    # Corrupt streams as (byte offset, problem). A cut page begins in an intact stream and ends in a corrupt one.
    streams: list[tuple[int, str]] = field(default_factory=list)
    cut_pages: int = 0


def read_pages(path: Path, start: int = 0, end: int | None = None, damage: Damage | None = None) -> Iterator[Page]:
    """Yield the pages that begin in bytes [start, end) of the file.

    Args:
        start: offset at which a bz2 stream begins, or 0.
        end: offset at which another stream begins; None for the end of the file.
        damage: the corrupt streams of the range, whose pages are skipped, are added to it. If None, a corrupt stream
            raises an error.
    """
    # Number of pending bytes that belong to the range. None as long as all of them do.
    num_in_range: int | None = None
    pending = bytearray()
    # Number of pending bytes that were searched for the end of a page.
    searched = 0
    ended = False
    for block in read_blocks(path, start):
        if end is not None and block.stream >= end and num_in_range is None:
            num_in_range = len(pending)
        if block.problem is not None:
            if damage is None:
                raise broken(path, f"the bz2 stream at byte {block.stream:,}", block.problem)
            damage.cut_pages += PAGE in pending
            if num_in_range is not None:
                return
            damage.streams.append((block.stream, block.problem))
            # Drop the page that the corrupt stream cuts.
            pending.clear()
            searched = 0
            continue
        pending += block.data
        used = 0
        while True:
            begin = _find_page(pending, used)
            if num_in_range is not None and begin >= num_in_range:
                return
            ended = ended or END in pending[used:begin]
            if ended:
                break
            close = pending.find(PAGE_END, max(begin, searched))
            if close < 0:
                break
            used = close + len(PAGE_END)
            yield parse_page(bytes(pending[begin:used]), path)
        if begin < len(pending) and len(pending) - begin > MAX_PAGE_BYTES:
            raise PipelineError(
                f"a page is larger than {MAX_PAGE_BYTES:,} bytes",
                f"{bytes(pending[begin : begin + 80])!r}",
                where=path,
                hint="use a pages-articles dump, which holds one revision of each page",
            )
        keep = min(begin, max(used, len(pending) - len(END) - 20))
        if ended:
            more = bytes(pending[used:]).split(END, 1)[-1].strip(PADDING)
            if more:
                raise broken(path, "after </mediawiki>", f"unexpected data: {more[:40]!r}")
            keep = len(pending)
        del pending[:keep]
        searched = max(0, len(pending) - len(PAGE_END))
        num_in_range = None if num_in_range is None else num_in_range - keep
    if PAGE in pending or not ended:
        raise broken(path, "at its end", "the XML stops before </mediawiki>")


def _find_page(xml: bytearray, position: int) -> int:
    # Return where the next page begins at or after `position`. Part of a <page> tag at the end counts. If no page
    # begins, return the length of `xml`.
    begin = xml.find(PAGE, position)
    if begin >= 0:
        return begin
    half = next((size for size in range(len(PAGE) - 1, 0, -1) if xml.endswith(PAGE[:size])), 0)
    return len(xml) - half


def parse_page(xml: bytes, path: Path) -> Page:
    head, _, revision = xml.rpartition(b"<revision>")
    title, identifier = _field(head, b"title"), _field(head, b"id")
    numbers = (identifier or "", _field(head, b"ns") or "0", _field(revision, b"id") or "0")
    opening = revision.find(b"<text")
    inside = revision.find(b">", opening) + 1
    if title is None or not all(_NUMBER.fullmatch(number) for number in numbers) or opening < 0 or not inside:
        raise PipelineError(
            "a page has no valid title, id or text",
            title or identifier,
            where=f"{path}, {xml[:80]!r}",
            hint=f"use an unchanged pages-articles dump; if this is one, {FETCH_AGAIN}",
        )
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
    match = re.search(b"<%b>(.*?)</%b>" % (name, name), xml, re.DOTALL)
    return match[1].decode("utf-8", "replace").strip() if match else None


def _unescape(text: str) -> str:
    # Decode only the escapes of XML itself. Entities such as &nbsp; belong to the wikitext.
    return ESCAPE.sub(lambda escape: ESCAPED.get(escape[0]) or unescape(escape[0]), text)
