"""A line now and then while DVC hashes and copies large outputs, where it would be silent for minutes."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from engine_api import WorkflowError, logger

SECONDS, LEAST = 10.0, 0.01  # between two lines
EVERY = "PIPELINE_PROGRESS_SECONDS"


@contextmanager
def heartbeat(what: str) -> Iterator[None]:
    """Say every ``$PIPELINE_PROGRESS_SECONDS`` (10) that ``what`` is still going on, and how much it has read so far.

    What takes less says nothing.

    Raises:
        WorkflowError: that is no number of seconds.
    """
    pause = _seconds()
    done = threading.Event()
    started, read = time.monotonic(), _bytes_read()

    def speak() -> None:
        while not done.wait(pause):
            seconds = time.monotonic() - started
            logger.info(f"dvc: {what}: {in_words(_bytes_read() - read)} read in {seconds:.0f} s")

    speaker = threading.Thread(target=speak, daemon=True)
    speaker.start()
    try:
        yield
    finally:
        done.set()
        speaker.join()


def _seconds() -> float:
    said = os.environ.get(EVERY, str(SECONDS))
    try:
        seconds = float(said)
    except ValueError:
        seconds = 0.0
    if not LEAST <= seconds <= threading.TIMEOUT_MAX:  # nor NaN
        raise WorkflowError(f"${EVERY} is no number of seconds from {LEAST} up: {said!r}; set it to one, or unset it.")
    return seconds


def in_words(size: float) -> str:
    """Bytes as people write them."""
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files in a folder."""
    files = [path] if path.is_file() else path.rglob("*")
    return sum(file.stat().st_size for file in files if file.is_file())


def _bytes_read() -> int:
    """What this process has read from files; 0 where the system does not count it."""
    counters = getattr(psutil.Process(), "io_counters", None)
    return getattr(counters(), "read_chars", 0) if counters else 0
