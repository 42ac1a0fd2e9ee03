"""The overview that ``python -m pipeline_src --help`` prints, and users' mistakes that Python reports as its own."""

from __future__ import annotations

import errno
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path

from pipeline_src.common.errors import PipelineError

WIDTH = 80
PROJECT = __name__.partition(".")[0]
STATUSES = {
    0: "done",
    1: "a bug in this project: the traceback says where",
    2: "a mistake that you can mend: what, where and the remedy are printed",
    75: "stopped by a signal, its state saved: run the same command again to go on",
    130: "interrupted (Ctrl-C) before there was a state to save",
}
# What the operating system says -> what to say, and what to do. All else that it says is taken for a bug.
MISTAKES = {
    errno.ENOSPC: (
        "no space left on the disk",
        "free some and run the same command again; nothing half-written is left",
    ),
    errno.EDQUOT: (
        "no space left on the disk",
        "free some and run the same command again; nothing half-written is left",
    ),
    errno.EACCES: ("no permission", "change the permissions of the file or folder, or name another"),
    errno.EPERM: ("no permission", "change the permissions of the file or folder, or name another"),
    errno.EROFS: ("no permission", "name a folder on a file system that can be written"),
    errno.EISDIR: ("a folder where a file belongs", "name a file, or move the folder away"),
    errno.ENOTDIR: ("a file where a folder belongs", "name a folder, or move the file away"),
    errno.ENAMETOOLONG: ("a name is too long", "give a shorter one"),
}


NO_WHEEL = {  # package -> why the lock leaves it out for this Python
    "gensim": "it has no wheel for Python 3.14: `pip install gensim` builds it where a C compiler is, or take an older "
    "Python: make study PYTHON=/path/to/python3.13",
}


def mistake(error: OSError) -> PipelineError | None:
    """An error of the operating system as the user's mistake; None where it is none."""
    if error.errno not in MISTAKES:
        return None
    what, remedy = MISTAKES[error.errno]
    return PipelineError(what, error.filename or Path.cwd(), remedy=remedy)


def not_installed(error: ModuleNotFoundError, python: tuple[int, ...] = sys.version_info[:2]) -> PipelineError | None:
    """A library that is missing as the user's mistake; None for a module of this project, which is a bug."""
    package = (error.name or "").partition(".")[0]
    if package in ("", PROJECT):
        return None
    remedy = "run `make study` once, then `source .venv/bin/activate`; `python -m pipeline_src doctor` checks the rest"
    if python >= (3, 14):
        remedy = NO_WHEEL.get(package, remedy)
    return PipelineError("a package is not installed", package, remedy=remedy)


def overview(stages: Mapping[str, str], tools: Mapping[str, str]) -> str:
    """Commands and exit statuses, grouped, for the end of the help text."""
    return "\n".join(
        [
            *_group("stages, in the order of the study (`snakemake all` and `dvc repro` run them):", stages),
            *_group("tools:", tools),
            *_group("exit status:", {str(status): text for status, text in STATUSES.items()}),
            "COMMAND --help shows a command's own options.",
        ]
    )


def _group(title: str, lines: Mapping[str, str]) -> list[str]:
    column = 4 + max(map(len, lines))
    shown = [title]
    for name, text in lines.items():
        shown += textwrap.wrap(text, WIDTH, initial_indent=f"  {name}".ljust(column), subsequent_indent=" " * column)
    return [*shown, ""]
