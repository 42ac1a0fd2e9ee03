"""Members of a zip or tar archive, put where the catalogue says."""

from __future__ import annotations

import shutil
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO

from pipeline_src.common.errors import PipelineError


def unpack(archive: Path, members: Mapping[str, str], folder: Path, name: str) -> None:
    """Copy members out of ``archive``; nothing else in it is touched.

    Args:
        archive: a zip file or a tar file of any compression.
        members: path below ``folder`` -> member of the archive.
        folder: an existing folder.
        name: what the archive is called in an error.

    Raises:
        PipelineError: it is neither, it is damaged, or it lacks a member.
    """
    remedy = "mend `unpack` of this file in the catalogue"
    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as zipped:
                _copy(zipped.open, members, folder)
        else:
            with tarfile.open(archive) as tar:
                _copy(tar.extractfile, members, folder)
    except KeyError as error:
        raise PipelineError("not in the archive", error.args[0], where=name, remedy=remedy) from None
    except (zipfile.BadZipFile, tarfile.TarError, EOFError) as error:
        raise PipelineError("not a whole zip or tar archive", name, where=error, remedy="fetch it again") from None


def _copy(open_member: Callable[[str], IO[bytes] | None], members: Mapping[str, str], folder: Path) -> None:
    for path, member in members.items():
        source = open_member(member)
        if source is None:
            raise KeyError(f"{member} (a folder, not a file)")
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        with source, open(target, "wb") as file:
            shutil.copyfileobj(source, file)
