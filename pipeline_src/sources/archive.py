"""Copy members of a zip or tar archive, and excerpts of a text file, to the paths that the catalogue names."""

from __future__ import annotations

import errno
import re
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import IO

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.names import shown_text
from pipeline_src.sources.catalogue import Excerpt

BLOCK_BYTES = 1 << 20
# A member of more than MAX_RATIO x archive + FREE_BYTES is refused.
MAX_RATIO, FREE_BYTES = 1000, 64 << 20


def unpack(archive: Path, members: Mapping[str, str], folder: Path, name: str) -> None:
    """Copy ``members`` (path below ``folder`` -> member) out of a zip file, or a tar file of any compression.

    The archive does not decide where they go, so it cannot write elsewhere. Errors call the archive ``name``.
    """
    max_bytes = MAX_RATIO * archive.stat().st_size + FREE_BYTES
    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as zipped:
                _copy(zipped.open, members, folder, max_bytes, name)
        else:
            with tarfile.open(archive) as tar:
                for member in members.values():
                    if tar.getmember(member).size < 0:
                        raise tarfile.ReadError(f"{shown_text(member)} has a negative size")
                _copy(tar.extractfile, members, folder, max_bytes, name)
                assert tar.fileobj is not None
                # gzip's checksum is at the end.
                while tar.fileobj.read(BLOCK_BYTES):
                    pass
    except PipelineError:
        raise
    except KeyError as error:
        raise PipelineError(
            "not in the archive",
            shown_text(error.args[0]),
            where=name,
            hint="fix `unpack` of this file in the catalogue",
        ) from None
    except Exception as error:
        # The standard library raises a dozen kinds for damaged archives; others are errors of the disk.
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise
        reason = shown_text(error) or type(error).__name__
        raise PipelineError("not a complete zip or tar archive", name, where=reason, hint="fetch it again") from None


def _copy(
    open_member: Callable[[str], IO[bytes] | None], members: Mapping[str, str], folder: Path, max_bytes: int, name: str
) -> None:
    for path, member in members.items():
        source = None if member.endswith("/") else open_member(member)
        if source is None:
            raise KeyError(f"{member} (a folder, not a file)")
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        with source, open(target, "wb") as file:
            while block := source.read(BLOCK_BYTES):
                file.write(block)
                if file.tell() > max_bytes:
                    raise PipelineError(
                        "a member is far larger than its archive",
                        shown_text(member),
                        where=name,
                        hint=f"at most {max_bytes:,} bytes are unpacked of it: look into the archive, then name a "
                        "smaller one in the catalogue",
                    )


def extract(text_file: Path, excerpts: Mapping[str, Excerpt], folder: Path, name: str) -> None:
    """Write ``excerpts`` (path below ``folder`` -> excerpt) of a text file, without decoding its bytes.

    If it has ``chapters``, ``book.txt`` becomes ``book-001.txt``, ``book-002.txt``, ... Errors call the file ``name``.
    """
    content = text_file.read_bytes()
    for path, excerpt in excerpts.items():
        begins = _find(excerpt.begins, content, 0, name)
        ends = _find(excerpt.ends, content, begins.end(), name)
        text = content[begins.start() : ends.start()]
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if excerpt.chapters is None:
            target.write_bytes(text)
            continue
        # There must be at least one chapter.
        _find(excerpt.chapters, text, 0, name)
        starts = [match.start() for match in re.finditer(excerpt.chapters.encode(), text, re.M)]
        bounds = pairwise([*starts, len(text)])
        for number, (start, end) in enumerate(bounds, start=1):
            chapter = target.with_stem(f"{target.stem}-{number:03d}")
            chapter.write_bytes(text[start:end])


def _find(expression: str, text: bytes, position: int, name: str) -> re.Match[bytes]:
    match = re.compile(expression.encode(), re.M).search(text, position)
    if match:
        return match
    raise PipelineError("not in the file", expression, where=name, hint="fix `excerpts` of this file in the catalogue")
