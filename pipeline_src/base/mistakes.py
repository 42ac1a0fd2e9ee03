"""Turn exceptions that a user can fix (full disk, missing package, Rust panic) into PipelineErrors."""

from __future__ import annotations

import errno
import os
import re
import shutil
import sys
from pathlib import Path

from pipeline_src.base.errors import PipelineError, is_panic

PROJECT = "pipeline_src"
DISK_FULL = ("no space left on the disk", "free some and run the same command again; nothing half-written is left")
NO_PERMISSION = ("no permission", "change the permissions of the file or folder, or name another")
# errno that a user can fix -> message and hint. An OSError with any other errno is treated as a bug.
MISTAKES = {
    errno.ENOSPC: DISK_FULL,
    errno.EDQUOT: DISK_FULL,
    errno.EACCES: NO_PERMISSION,
    errno.EPERM: NO_PERMISSION,
    errno.EROFS: ("no permission", "name a folder on a file system that can be written"),
    errno.EISDIR: ("expected a file, found a folder", "name a file, or move the folder away"),
    errno.ENOTDIR: ("expected a folder, found a file", "name a folder, or move the file away"),
    errno.ENAMETOOLONG: ("file name too long", "give a shorter name"),
}
# Optional package that the lock file omits for the newest Python -> hint on how to get it.
NO_WHEEL = {
    "gensim": "it has no wheel for Python 3.14: `pip install gensim` builds it where a C compiler is, or take an older "
    "Python: make study PYTHON=/path/to/python3.13",
}


def explain(error: BaseException) -> PipelineError | None:
    """Convert an exception that a user can fix into a PipelineError; return None for a bug."""
    if isinstance(error, PipelineError):
        return error
    if isinstance(error, shutil.Error):
        error = _first_copy_error(error)
    if isinstance(error, OSError) and error.errno in MISTAKES:
        what, hint = MISTAKES[error.errno]
        return PipelineError(what, error.filename or Path.cwd(), hint=hint)
    if is_panic(error):
        hint = "fetch the file that the library read again: it is damaged, or a regex in tokenizer.json fails on it"
        return PipelineError("a Rust library panicked", error, hint=hint)
    return not_installed(error) if isinstance(error, ModuleNotFoundError) else None


def not_installed(error: ModuleNotFoundError, python: tuple[int, ...] = sys.version_info[:2]) -> PipelineError | None:
    package = (error.name or "").partition(".")[0]
    # If a module of this project is missing, that is a bug.
    if package in ("", PROJECT):
        return None
    hint = "run `make study` once, then `source .venv/bin/activate`; `python -m pipeline_src doctor` checks the rest"
    if python >= (3, 14):
        hint = NO_WHEEL.get(package, hint)
    return PipelineError("a package is not installed", package, hint=hint)


def _first_copy_error(error: shutil.Error) -> OSError:
    # shutil.copytree raises an error with a list of (source, target, text). The text is such as
    # "[Errno 13] Permission denied: 'a/b'". For a full disk, it has no file name.
    failures = error.args[0] if error.args else None
    if not isinstance(failures, list) or not failures:
        return error
    _, target, reason = failures[0]
    match = re.match(r"""\[Errno (\d+)\] [^:]*(?:: (['"])(.*?)\2)?""", str(reason))
    if match is None:
        return error
    number = int(match[1])
    return OSError(number, os.strerror(number), match[3] or str(target))
