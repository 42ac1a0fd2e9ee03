"""Writing files so that they exist whole or not at all, and reading them back."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.shapes import misfit


@contextmanager
def atomic_file(path: str | Path, mode: str = "w") -> Iterator[IO[Any]]:
    """Open a temporary neighbour of ``path``; it takes the name only when the block ends without error.

    Text is UTF-8 with ``\\n`` line ends on every platform.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    binary = "b" in mode
    try:
        with open(partial, mode, encoding=None if binary else "utf-8", newline=None if binary else "\n") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def atomic_directory(path: str | Path) -> Iterator[Path]:
    """Yield an empty temporary neighbour of ``path``; it replaces ``path`` only when the block ends without error.

    Its files may then be read and written by whom the umask allows; safetensors' are their owner's alone.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    try:
        yield partial
        allowed = partial.stat().st_mode & 0o666
        for file in partial.rglob("*"):
            if file.is_file() and not file.is_symlink():
                file.chmod(allowed)
        if path.exists():
            shutil.rmtree(path)
        os.replace(partial, path)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def write_json(path: str | Path, value: Any) -> None:
    """Write JSON with sorted keys, so that equal values are equal bytes. NaN and infinity are refused (ValueError)."""
    with atomic_file(path) as file:
        json.dump(value, file, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
        file.write("\n")


def read_json(path: str | Path, shape: Any = object) -> Any:
    """Read a JSON file; ``shape`` says what it must look like (:mod:`pipeline_src.common.shapes`).

    Raises:
        PipelineError: the file is missing, is not JSON, or is of another shape.
    """
    try:
        with open(path, encoding="utf-8") as file:
            value = json.load(file)
    except FileNotFoundError:
        raise PipelineError(
            "file not found", path, remedy="run the stage that makes it, or `dvc pull` to fetch it"
        ) from None
    except (ValueError, RecursionError) as error:
        raise PipelineError(
            "not a JSON file", path, where=error, remedy="delete it and run its stage again, or fetch it again"
        ) from None
    if wrong := misfit(value, shape):
        raise PipelineError(
            "not what its stage writes", wrong, where=path, remedy="delete it and run its stage again, or `dvc pull` it"
        )
    return value


def list_folder(folder: str | Path) -> list[str]:
    """The names in a folder, sorted.

    Raises:
        PipelineError: it cannot be read; ``glob`` and ``rglob`` would pass over it without a word.
    """
    try:
        return sorted(os.listdir(folder))
    except OSError as error:
        raise PipelineError(
            "a folder cannot be read", folder, where=error.strerror,
            remedy="give yourself the right to read it (`chmod u+rx`), or take it away",
        ) from None  # fmt: skip


def digests(path: str | Path, algorithms: Iterable[str]) -> dict[str, str]:
    """Hex digest of a file by each algorithm, reading it once in blocks of 1 MiB."""
    running = {name: hashlib.new(name) for name in set(algorithms)}
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            for digest in running.values():
                digest.update(block)
    return {name: digest.hexdigest() for name, digest in running.items()}


def hash_file(path: str | Path) -> str:
    """The sha256 of a file, in hex."""
    return digests(path, ["sha256"])["sha256"]


@contextmanager
def system_errors(path: Path) -> Iterator[None]:
    """What a library in Rust, such as safetensors, says of the operating system while it writes ``path``, as OSError.

    Their errors are of classes of their own, which would hide a full disk.
    """
    try:
        yield
    except Exception as error:
        number = re.search(r"\(os error (\d+)\)", str(error))
        if number is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from None
