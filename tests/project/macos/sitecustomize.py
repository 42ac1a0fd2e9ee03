"""With this folder on PYTHONPATH, Python on Linux lacks what it lacks on macOS and this project could ask for."""

import multiprocessing
import os
from multiprocessing.context import BaseContext
from typing import Any

for name in ("sched_getaffinity", "sched_setaffinity", "posix_fadvise", "POSIX_FADV_DONTNEED", "pidfd_open"):
    if hasattr(os, name):
        delattr(os, name)


def _get_context(method: str | None = None) -> BaseContext:
    if method == "fork":
        raise ValueError("cannot find context for 'fork': it is unsafe on macOS")
    return _real(method)


_real: Any = multiprocessing.get_context
multiprocessing.get_context = _get_context  # type: ignore[assignment]
multiprocessing.set_start_method("spawn")  # macOS's own
