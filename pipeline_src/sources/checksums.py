"""Expected checksums of downloads, from the catalogue, the publisher's list, or the first download."""

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
# Algorithms that the catalogue may use -> number of hex digits of a digest.
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
            raise ValueError(f"a checksum is {' or '.join(f'{name}:<{n} hex digits>' for name, n in DIGITS.items())}")
        return cls(algorithm, digest)

    def __str__(self) -> str:
        return f"{self.algorithm}:{self.digest}"


def find_in_list(text: str, file_name: str) -> Checksum | None:
    # A publisher's list has lines such as "<digest>  <name>" or "<digest> *<name>". None: the file is not listed.
    by_length = {length: name for name, length in DIGITS.items()}
    for line in text.splitlines():
        digest, _, name = line.strip().partition(" ")
        if name.strip().lstrip("*") == file_name and len(digest) in by_length:
            return Checksum(by_length[len(digest)], digest.lower())
    return None


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    # Context manager: only one process on this machine at a time works on ``path``. Others wait.
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
        hint = f"correct it, compare `git diff {LOCK}`; or delete the file, and the next downloads are trusted"
        raise PipelineError("invalid list of checksums", wrong or "a digest is no SHA-256", where=LOCK, hint=hint)
    return checksums


def record(name: str, path: str, sha256: str, guard: Path) -> None:
    """Write the SHA-256 of a first download to ``sources.lock``, and log a warning.

    Args:
        name: entry of the catalogue.
        path: path of the file within the entry.
        guard: path whose lock is held meanwhile (see ``exclusive``), outside the project's root.
    """
    log.warning(
        "%s: sha256 %s of the first download of %s is saved in %s; later downloads must match it",
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
