"""Write files and folders atomically, read JSON of a known shape, and compute checksums."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.names import shown

BLOCK_BYTES = 1 << 24


def checksum(path: Path) -> int:
    # CRC-32C is fast (several GB/s) and detects damage, but not deliberate changes.
    # The import is here because `doctor` imports this module before any package is installed.
    import google_crc32c

    running = google_crc32c.Checksum()
    with open(path, "rb") as file:
        while content := file.read(BLOCK_BYTES):
            running.update(content)
    return int.from_bytes(running.digest(), "big")


TYPE_NAMES = {int: "a whole number", float: "a finite number", str: "a text", dict: "an object", list: "a list"}


def schema_error(value: Any, shape: Any, path: str = "") -> str | None:
    """Check a JSON value against a schema, and describe the first mismatch.

    Args:
        shape: the schema, in one of four forms:
            a type: ``int`` is a non-negative whole number, ``float`` any finite number, ``object`` any value;
            ``[shape]``: a list whose items match ``shape``;
            ``{"key": shape, ...}``: an object with at least these keys;
            ``{str: shape}``: an object with any keys.
        path: path of the value within the file, for the message.

    Returns:
        A sentence about the first mismatch, or None if the value matches.
    """
    kind = shape if isinstance(shape, type) else type(shape)
    if kind is int:
        matches = type(value) is int and value >= 0
    elif kind is float:
        # math.isfinite raises an error for 10**400.
        matches = type(value) in (int, float) and abs(value) <= sys.float_info.max
    else:
        matches = isinstance(value, kind)
    if not matches:
        return f"{path or 'the file'} is {shown(value)}, not {TYPE_NAMES.get(kind, kind.__name__)}"
    if isinstance(shape, dict):
        for key in shape:
            if key is not str and key not in value:
                return f"{path or 'the file'} lacks {key}"
        default = shape.get(str, object)
        for key, item in value.items():
            error = schema_error(item, shape.get(key, default), f"{path}.{key}" if path else key)
            if error:
                return error
    elif isinstance(shape, list):
        for number, item in enumerate(value):
            error = schema_error(item, shape[0], f"{path}[{number}]")
            if error:
                return error
    return None


@contextmanager
def atomic_file(path: str | Path, mode: str = "w", shared: bool = False) -> Iterator[IO[Any]]:
    """Write a temporary file, and rename it to ``path`` if the block succeeds.

    Text is written as UTF-8 with ``\\n`` line ends on every platform. If the disk is full, the OSError names ``path``.

    Args:
        shared: whether several processes may write ``path`` at the same time. The temporary file then has a unique
            name, and the last process to finish wins.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    unique = f".{uuid4().hex}" if shared else ""
    partial = path.with_name(f".{path.name}{unique}.partial")
    binary = "b" in mode
    try:
        # A killed process of another user may have left a partial file that this user cannot open.
        partial.unlink(missing_ok=True)
        with open(partial, mode, encoding=None if binary else "utf-8", newline=None if binary else "\n") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError as error:
        _name_path(error, path)
        raise
    finally:
        partial.unlink(missing_ok=True)


def _name_path(error: OSError, path: Path) -> None:
    # The operating system's error for a full disk has no file name.
    if error.filename is None and error.errno in (errno.ENOSPC, errno.EDQUOT):
        error.filename = str(path)


@contextmanager
def atomic_directory(path: str | Path) -> Iterator[Path]:
    """Yield an empty temporary folder, and move it to ``path`` if the block succeeds.

    An existing folder at ``path`` is replaced. All files are synced to disk before the folder is renamed. If the disk
    is full, the OSError names ``path``.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial, replaced = (path.with_name(f".{path.name}.{name}") for name in ("partial", "replaced.partial"))
    for left in (partial, replaced):
        shutil.rmtree(left, ignore_errors=True)
        if os.path.lexists(left):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(left))
    partial.mkdir()
    try:
        yield partial
        # safetensors writes files that only their owner can read, so set the permissions that the umask allows. The
        # folder may contain hard links to another user's download. Those files keep their permissions.
        allowed = partial.stat().st_mode & 0o666
        for file in partial.rglob("*"):
            if file.is_file() and not file.is_symlink():
                if file.stat().st_uid == os.getuid():
                    file.chmod(allowed)
                with open(file, "rb") as written:
                    os.fsync(written.fileno())
        if path.exists():
            os.replace(path, replaced)
        os.replace(partial, path)
    except OSError as error:
        _name_path(error, path)
        raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        shutil.rmtree(replaced, ignore_errors=True)


def own_folder(path: Path) -> Path:
    """Create a private folder in a shared place such as /tmp, and return its path.

    Raises:
        PipelineError: the folder belongs to another user, or other users can write to it.
    """
    # Another user may have created the path first, as a folder or a link, and could then replace files in it.
    with suppress(FileExistsError):
        path.mkdir(mode=0o700)
    state = path.lstat()
    is_own = stat.S_ISDIR(state.st_mode) and state.st_uid == os.getuid()
    if not is_own or state.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PipelineError(
            "the temporary folder belongs to another user, or others can write to it",
            path,
            hint="set TMPDIR to a folder of your own, or ask the owner to remove this one",
        )
    return path


def accessible_folder(folder: Path) -> Path:
    # If this user has no access to part of a shared cache folder, use a second folder with the user's id in its name.
    for path in (folder, *folder.rglob("*")):
        needed = os.R_OK | os.W_OK | os.X_OK if path.is_dir() else os.R_OK
        if os.path.lexists(path) and not os.access(path, needed):
            return folder.with_name(f"{folder.name}-{os.getuid()}")
    return folder


def write_json(path: str | Path, value: Any) -> None:
    """Write JSON with sorted keys, so that equal values give equal bytes.

    Raises:
        ValueError: a number is NaN or infinite.
    """
    with atomic_file(path) as file:
        json.dump(value, file, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
        file.write("\n")


def read_json(
    path: str | Path, shape: Any = object, hint: str = "delete it and run its stage again, or fetch it again"
) -> Any:
    """Read a JSON file and check its schema.

    Args:
        shape: the schema, in the form that ``schema_error`` takes.
        hint: hint of the error that is raised if the file is not JSON.
    """
    try:
        with open(path, encoding="utf-8") as file:
            value = json.load(file)
    except FileNotFoundError:
        raise PipelineError("file not found", path, hint="run the stage that makes it, or `dvc pull` it") from None
    except (ValueError, RecursionError) as error:
        raise PipelineError("invalid JSON file", path, where=error, hint=hint) from None
    mismatch = schema_error(value, shape)
    if mismatch:
        hint = "delete it and run its stage again, or `dvc pull` it"
        raise PipelineError("unexpected content in a JSON file", mismatch, where=path, hint=hint)
    return value


def write_json_lines(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    # UTF-8 cannot encode an unpaired surrogate, so it is written as an escape such as \ud800.
    with open(path, "w", encoding="utf-8", errors="backslashreplace", newline="\n") as file:
        file.writelines(json.dumps(record, ensure_ascii=False) + "\n" for record in records)


def read_json_lines(path: Path, shape: Any, what: str, hint: str) -> Iterator[Any]:
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            yield parse_json_line(line, shape, what, f"{path}:{number}", hint)


def parse_json_line(line: bytes, shape: Any, what: str, where: object, hint: str) -> Any:
    """Parse one line of JSON and check its shape. ``what``, ``where`` and ``hint`` go into the error."""
    try:
        value = json.loads(line)
        wrong = schema_error(value, shape)
    except (ValueError, RecursionError) as error:
        wrong = str(error)
    if wrong:
        raise PipelineError(what, wrong, where=where, hint=hint)
    return value


def list_folder(folder: str | Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError as error:
        raise PipelineError(
            "a folder cannot be read",
            folder,
            where=error.strerror,
            hint="give yourself the right to read it (`chmod u+rx`), or remove it",
        ) from None


def digests(path: str | Path, algorithms: Iterable[str]) -> dict[str, str]:
    running = {name: hashlib.new(name) for name in set(algorithms)}
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            for digest in running.values():
                digest.update(block)
    return {name: digest.hexdigest() for name, digest in running.items()}


def hash_file(path: str | Path) -> str:
    return digests(path, ["sha256"])["sha256"]


@contextmanager
def system_errors(path: Path) -> Iterator[None]:
    """Re-raise an operating system error from a Rust library as an OSError on ``path``.

    safetensors, for example, reports a full disk as an exception of its own with the text "(os error 28)".
    """
    try:
        yield
    except Exception as error:
        number = re.search(r"\(os error (\d+)\)", str(error))
        if number is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from None
