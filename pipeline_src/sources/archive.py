"""Members of a zip or tar archive, put where the catalogue says."""

from __future__ import annotations

import lzma
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.names import shown_text

BLOCK = 1 << 20
RATIO, FREE = 1000, 64 << 20  # times its archive's size, and bytes, that a member may have: more is a bomb
# What the standard library raises over archives that are damaged, encrypted or of an unknown method.
_DAMAGED = (
    *(zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, OSError, struct.error),
    *(RuntimeError, NotImplementedError, ValueError, OverflowError, MemoryError, RecursionError, TypeError),
)


def unpack(archive: Path, members: Mapping[str, str], folder: Path, name: str) -> None:
    """Copy members out of ``archive``; nothing else in it is touched.

    Args:
        archive: a zip file or a tar file of any compression.
        members: path below ``folder`` -> member of the archive.
        folder: an existing folder.
        name: what the archive is called in an error.

    Raises:
        PipelineError: it is neither, it is damaged or encrypted, a member is too large, or it lacks one.
    """
    most = RATIO * archive.stat().st_size + FREE
    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as zipped:
                _copy(zipped.open, members, folder, most, name)
        else:
            with tarfile.open(archive) as tar:
                _copy(lambda member: _open_in_tar(tar, member), members, folder, most, name)
                assert tar.fileobj is not None
                while tar.fileobj.read(BLOCK):  # gzip's checksum stands at the end
                    pass
    except PipelineError:
        raise
    except KeyError as error:
        raise PipelineError(
            "not in the archive", shown_text(error.args[0]), where=name,
            remedy="mend `unpack` of this file in the catalogue",
        ) from None  # fmt: skip
    except _Disk as error:
        raise error.cause from None
    except _DAMAGED as error:
        reason = shown_text(error) or type(error).__name__
        raise PipelineError("not a whole zip or tar archive", name, where=reason, remedy="fetch it again") from None


class _Disk(Exception):
    """What went wrong while a member was written: it is no damage of the archive."""

    def __init__(self, cause: OSError) -> None:
        super().__init__(str(cause))
        self.cause = cause


def _open_in_tar(tar: tarfile.TarFile, member: str) -> IO[bytes] | None:
    about = tar.getmember(member)
    if about.size < 0:
        raise ValueError(f"{member} has {about.size} bytes")
    return tar.extractfile(about)


def _copy(
    open_member: Callable[[str], IO[bytes] | None], members: Mapping[str, str], folder: Path, most: int, name: str
) -> None:
    for path, member in members.items():
        source = None if member.endswith("/") else open_member(member)
        if source is None:
            raise KeyError(f"{member} (a folder, not a file)")
        target = folder / path
        with source:
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
                file = open(target, "wb")
            except OSError as error:
                raise _Disk(error) from None
            with file:
                size = 0
                while block := source.read(BLOCK):
                    size += len(block)
                    if size > most:
                        raise PipelineError(
                            "a member is far larger than its archive", shown_text(member), where=name,
                            remedy=f"at most {most:,} bytes are unpacked of it: look into the archive, then name a "
                            "smaller one in the catalogue",
                        )  # fmt: skip
                    try:
                        file.write(block)
                    except OSError as error:
                        raise _Disk(error) from None
