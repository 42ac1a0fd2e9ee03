"""A dump file as decompressed blocks, whatever its packing; of a bz2 file stream by stream.

Wikimedia's multistream dumps are bz2 streams laid end to end, so a reader can start at any of them, and one that is
corrupt costs itself alone: libbz2 hands out data before it knows that its checksum is wrong, so a stream is decoded
whole before any of it is passed on.
"""

from __future__ import annotations

import bz2
import gzip
import os
import re
import zlib
from collections import deque
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import zstandard

from pipeline_src.common.errors import PipelineError

STREAM = re.compile(rb"BZh[1-9]1AY&SY")  # header of a stream and of its first block (the first digits of pi)
RANGE_BYTES = 8 << 20  # compressed; some 35 MB of XML, 3 s of work
LONGEST_HELD = 64 << 20  # decompressed bytes of a stream that are held back until its end is reached
READ = 1 << 16
MOST = 1 << 20  # decompressed bytes handed on at once
FETCH_AGAIN = "delete it and run the download stage again"


@dataclass(frozen=True)
class DumpBlock:
    """A piece of a dump.

    Attributes:
        stream: where in the file its bz2 stream begins, in bytes; 0 in a file of another packing.
        data: decompressed bytes; an empty block announces a stream before any of it is decoded.
        problem: in place of data: why the whole stream is lost.
    """

    stream: int
    data: bytes = b""
    problem: str | None = None


def split_ranges(path: Path, size: int = RANGE_BYTES) -> list[tuple[int, int]]:
    """Ranges of bytes [start, end) of the file that can be read apart; one range where it is not multistream.

    Args:
        path: the dump; its streams are found in itself, no index is needed.
        size: least bytes of a range.
    """
    total = path.stat().st_size
    starts = [0]
    with open(path, "rb") as file:
        if file.read(3) == b"BZh":
            while (start := _find_stream(file, starts[-1] + size)) is not None:
                starts.append(start)
    return list(zip(starts, [*starts[1:], total], strict=True))


def _find_stream(file: IO[bytes], position: int) -> int | None:
    """Where the first stream at or after ``position`` begins. Ten bytes are never alike by chance: 2^-80 a place."""
    file.seek(position)
    tail = b""
    while data := file.read(1 << 20):
        window = tail + data
        if found := STREAM.search(window):
            return position - len(tail) + found.start()
        position += len(data)
        tail = window[-9:]
    return None


def read_blocks(path: Path, start: int = 0) -> Iterator[DumpBlock]:
    """Yield the file's blocks from byte ``start`` on, where a stream must begin.

    The packing is told by the file's first bytes, not by its name. A bz2 stream of up to :data:`LONGEST_HELD` bytes
    that is corrupt, with another after it, is one block that names its problem.

    Raises:
        PipelineError: the file is cut off, or corrupt in its first stream, its last, a longer one, or outside bz2.
    """
    with open(path, "rb") as file:
        magic = file.read(4)
        file.seek(start)
        if magic[:3] == b"BZh":
            following: int | None = start
            while following is not None:
                following = yield from _read_stream(file, path, following)
            return
        reader: Any = file
        if magic[:2] == b"\x1f\x8b":
            reader = gzip.open(file)
        elif magic == b"\x28\xb5\x2f\xfd":
            reader = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
        while data := _checked_read(reader, path):
            yield DumpBlock(0, data)


class _Corrupt(Exception):
    pass


def _read_stream(file: IO[bytes], path: Path, stream: int) -> Generator[DumpBlock, None, int | None]:
    """Yield one stream's blocks; returns where the next one begins, None at the end of the file."""
    yield DumpBlock(stream)
    file.seek(stream)
    held: deque[bytes] = deque()
    size = 0
    try:
        for data in _decode(file):
            held.append(data)
            size += len(data)
            while held and size > LONGEST_HELD:
                yield DumpBlock(stream, held.popleft())
    except _Corrupt as error:
        following = _find_stream(file, stream + 1)
        if stream == 0 or following is None or size > LONGEST_HELD:
            raise broken(path, f"the bz2 stream at byte {stream:,}", error) from None
        yield DumpBlock(stream, problem=str(error))
        return following
    following = file.tell()
    while held:
        yield DumpBlock(stream, held.popleft())
    return following if following < os.fstat(file.fileno()).st_size else None


def _decode(file: IO[bytes]) -> Iterator[bytes]:
    """Decompress the stream at the file's position, which is left where the stream ends."""
    decoder = bz2.BZ2Decompressor()
    while not decoder.eof:
        packed = file.read(READ) if decoder.needs_input else b""
        if decoder.needs_input and not packed:
            raise _Corrupt("the file ends within it")
        try:
            data = decoder.decompress(packed, MOST)
        except OSError as error:
            raise _Corrupt(error) from None
        if data:
            yield data
    file.seek(-len(decoder.unused_data), os.SEEK_CUR)


def _checked_read(reader: Any, path: Path) -> bytes:
    try:
        return bytes(reader.read(READ))
    except (EOFError, gzip.BadGzipFile, zlib.error, zstandard.ZstdError) as error:
        raise broken(path, "the compressed data", error) from None


def broken(path: Path, place: str, problem: object) -> PipelineError:
    """The error for a dump that cannot be read to its end."""
    return PipelineError("the dump is cut off or corrupt", problem, where=f"{path}, {place}", remedy=FETCH_AGAIN)
