"""Extract members of a zip or tar archive and excerpts of a text file, as the catalogue declares them."""

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
# Guard against zip bombs: a member may have at most MAX_RATIO * (size of the archive) + FREE_BYTES bytes.
MAX_RATIO, FREE_BYTES = 1000, 64 << 20


def unpack(archive: Path, members: Mapping[str, str], folder: Path, name: str) -> None:
    """Extract ``members`` from a zip file or a tar file of any compression.

    The target paths come from the catalogue, not from the archive, so an archive cannot write outside ``folder``.

    Args:
        members: path below ``folder`` -> name of the member in the archive.
        name: name of the archive in error messages.
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
                # Read to the end, so that gzip's checksum there is verified.
                while tar.fileobj.read(BLOCK_BYTES):
                    pass
    except PipelineError:
        raise
    except KeyError as error:
        raise PipelineError(
            "no such file in the archive",
            shown_text(error.args[0]),
            where=name,
            hint="fix the key `unpack` of this file in the catalogue",
        ) from None
    except Exception as error:
        # For damaged archives the standard library raises a dozen exception types. An OSError with an errno is a disk
        # error and is raised as it is.
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise
        reason = shown_text(error) or type(error).__name__
        raise PipelineError("damaged zip or tar archive", name, where=reason, hint="fetch it again") from None


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
                        "archive member is too large when unpacked (zip bomb?)",
                        shown_text(member),
                        where=name,
                        hint=f"inspect the archive; a member may have {max_bytes:,} bytes, so name a smaller one in "
                        "the catalogue",
                    )


def extract(text_file: Path, excerpts: Mapping[str, Excerpt], folder: Path, name: str) -> None:
    """Write excerpts of a text file, without decoding its bytes.

    If an excerpt has ``chapters``, its path ``book.txt`` becomes ``book-001.txt``, ``book-002.txt``, ...

    Args:
        excerpts: path below ``folder`` -> excerpt.
        name: name of the text file in error messages.
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
        # Raises an error if there is no chapter.
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
    hint = "fix the key `excerpts` of this file in the catalogue"
    raise PipelineError("regular expression matches nothing in the file", expression, where=name, hint=hint)
