"""Checksums that files must have: from the catalogue or the publisher, or else from the first download."""

from __future__ import annotations

import fcntl
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import read_json, schema_error, write_json
from pipeline_src.base.progress import log

LOCK = Path("sources.lock")
_SHA256 = re.compile(r"[0-9a-f]{64}")
# Hex digits of each algorithm that the catalogue may name.
DIGITS = {"sha256": 64, "sha1": 40, "md5": 32}


@dataclass(frozen=True)
class Checksum:
    algorithm: str
    digest: str

    @classmethod
    def parse(cls, text: str) -> Checksum:
        # "sha256:<64 hex digits>"
        algorithm, _, digest = text.partition(":")
        digest = digest.strip().lower()
        if len(digest) != DIGITS.get(algorithm) or set(digest) - set("0123456789abcdef"):
            raise ValueError(f"a checksum is {', '.join(f'{name}:<{n} hex digits>' for name, n in DIGITS.items())}")
        return cls(algorithm, digest)

    def __str__(self) -> str:
        return f"{self.algorithm}:{self.digest}"


def find_in_list(text: str, file_name: str) -> Checksum | None:
    # A publisher's list has lines of "<digest>  <name>" or "<digest> *<name>".
    by_length = {length: name for name, length in DIGITS.items()}
    for line in text.splitlines():
        digest, _, name = line.strip().partition(" ")
        if name.strip().lstrip("*") == file_name and len(digest) in by_length:
            return Checksum(by_length[len(digest)], digest.lower())
    return None


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    # No other process on this machine holds the lock of the path.
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path.with_name(f".{path.name}.lock"), "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def recorded(name: str, path: str) -> Checksum | None:
    digest = _read_lock().get(name, {}).get(path)
    return Checksum("sha256", digest) if digest else None


def _read_lock() -> dict[str, dict[str, str]]:
    checksums: dict[str, dict[str, str]] = read_json(LOCK) if LOCK.exists() else {}
    wrong = schema_error(checksums, {str: {str: str}})
    if wrong or not all(_SHA256.fullmatch(digest) for entry in checksums.values() for digest in entry.values()):
        hint = f"bring it back by `git checkout {LOCK}`, or delete it to trust the next downloads"
        raise PipelineError("not a list of checksums by entry and file", wrong or "a digest", where=LOCK, hint=hint)
    return checksums


def record(name: str, path: str, sha256: str, guard: Path) -> None:
    """Record the checksum of a first download in ``sources.lock``, with a warning."""
    # The lock file is next to `guard`, so that it is not in the project's root.
    log.warning(
        "%s: sha256 %s of the first download of %s is kept in %s, and later downloads are held to it",
        name,
        sha256,
        path,
        LOCK,
    )
    with exclusive(guard):
        checksums = _read_lock()
        checksums.setdefault(name, {})[path] = sha256
        write_json(LOCK, checksums)


def mismatch(path: str, expected: object, actual: object, where: str, hint: str) -> PipelineError:
    value = f"{path}\n  expected: {expected}\n  found:    {actual}"
    return PipelineError("wrong checksum", value, where=where, hint=hint)
