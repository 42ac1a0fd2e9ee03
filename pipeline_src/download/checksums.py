"""Checksums of the catalogue or the publisher, or else of the first download."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import read_json, write_json
from pipeline_src.common.progress import log

LOCK = Path("sources.lock")
DIGITS = {"sha256": 64, "sha1": 40, "md5": 32}  # hex digits of each algorithm the catalogue may name


@dataclass(frozen=True)
class Checksum:
    """An algorithm of :data:`DIGITS` and its digest in lower-case hex."""

    algorithm: str
    digest: str

    @classmethod
    def parse(cls, text: str) -> Checksum:
        """Read ``sha256:<64 hex digits>`` and the like; ValueError for anything else."""
        algorithm, _, digest = text.partition(":")
        digest = digest.strip().lower()
        if len(digest) != DIGITS.get(algorithm) or set(digest) - set("0123456789abcdef"):
            raise ValueError(f"a checksum is {', '.join(f'{name}:<{n} hex digits>' for name, n in DIGITS.items())}")
        return cls(algorithm, digest)

    def __str__(self) -> str:
        """The catalogue's spelling."""
        return f"{self.algorithm}:{self.digest}"


def find_in_list(text: str, file_name: str) -> Checksum | None:
    """Return the checksum of ``file_name`` in a publisher's list of ``<digest>  <name>`` lines, or None."""
    by_length = {length: name for name, length in DIGITS.items()}
    for line in text.splitlines():
        digest, _, name = line.strip().partition(" ")
        if name.strip().lstrip("*") == file_name and len(digest) in by_length:
            return Checksum(by_length[len(digest)], digest.lower())
    return None


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Lock ``path`` against other processes on this machine."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path.with_name(f".{path.name}.lock"), "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def recorded(name: str, path: str) -> Checksum | None:
    """Return the checksum in ``sources.lock`` of one file of an entry, or None."""
    digest = _read_lock().get(name, {}).get(path)
    return Checksum("sha256", digest) if digest else None


def _read_lock() -> dict[str, dict[str, str]]:
    held = read_json(LOCK) if LOCK.exists() else {}
    entries = held.values() if isinstance(held, dict) else [None]
    if not all(isinstance(entry, dict) and all(map(_is_sha256, entry.values())) for entry in entries):
        raise PipelineError(
            "not a list of checksums by entry and file", LOCK,
            hint=f"bring it back by `git checkout {LOCK}`, or delete it to trust the next downloads",
        )  # fmt: skip
    return dict(held)


def _is_sha256(text: object) -> bool:
    return isinstance(text, str) and len(text) == DIGITS["sha256"] and not set(text) - set("0123456789abcdef")


def record(name: str, path: str, sha256: str, guard: Path) -> None:
    """Record the checksum of a first download in ``sources.lock``, with a warning.

    :func:`exclusive` locks ``guard`` meanwhile, which keeps the project's root free of lock files.
    """
    log.warning(
        "%s: no checksum is published for %s; sha256 %s is kept in %s, and later downloads are held to it",
        name, path, sha256, LOCK,
    )  # fmt: skip
    with exclusive(guard):
        held = _read_lock()
        held.setdefault(name, {})[path] = sha256
        write_json(LOCK, held)


def mismatch(path: str, wanted: object, found: object, where: str, hint: str) -> PipelineError:
    """Return the error for a wrong file, with both checksums."""
    return PipelineError("wrong checksum", f"{path}\n  expected: {wanted}\n  found:    {found}", where=where, hint=hint)
