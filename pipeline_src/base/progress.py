"""Progress of a stage: a bar on a terminal, periodic lines elsewhere, and always a log file."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from tqdm import tqdm

from pipeline_src.base.messages import CleanFormatter
from pipeline_src.base.paths import LOGS

log = logging.getLogger("pipeline_src")
T = TypeVar("T")
PLAIN = "PIPELINE_PLAIN_PROGRESS"  # set by the Snakefile: bars of parallel jobs would overwrite each other
DONE = "done in"  # prefix of the message at a stage's end
SEPARATOR = "---- the run above did not get to its end; the next one:"  # in a log
LINE_EVERY = 20.0  # seconds between progress lines without a terminal
NOTES: dict[str, Callable[[float], str]] = {  # numbers that are not printed as "name value"
    "tokens_per_second": lambda value: f"tok/s {tqdm.format_sizeof(value)}",
    "mfu": lambda value: f"MFU {100 * value:.0f} %",
}


def open_log(stage: str, item: str, to_stderr: bool = True) -> Path:
    """Send the stage's messages to ``logs/<stage>/<item>.log``, and to stderr.

    The log of a run that did not finish is continued after a separator; others are overwritten.
    """
    path = LOGS / stage / f"{item}.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    last = path.read_text(encoding="utf-8", errors="replace").rpartition(f"{SEPARATOR}\n")[2] if path.exists() else ""
    continues = path.exists() and f" INFO {DONE} " not in last
    if continues:
        with open(path, "a", encoding="utf-8") as file:
            file.write(f"{SEPARATOR}\n")
    log.setLevel(logging.INFO)
    log.propagate = False
    for old in list(log.handlers):
        log.removeHandler(old)
        old.close()
    to_file = _LogFile(path, mode="a" if continues else "w", encoding="utf-8")
    to_file.setFormatter(CleanFormatter("%(asctime)s %(levelname)s %(message)s", "%Y-%m-%d %H:%M:%S"))
    to_terminal = _TqdmHandler()
    to_terminal.addFilter(lambda record: record.levelno < logging.ERROR)  # __main__ prints the error that ends a stage
    to_terminal.setFormatter(CleanFormatter(f"[{stage} {item}] %(message)s"))
    log.addHandler(to_file)
    if to_stderr:
        log.addHandler(to_terminal)
    return path


class _LogFile(logging.FileHandler):
    def handleError(self, record: logging.LogRecord) -> None:
        """Leave out what a full disk has no room for, without Python's traceback; stderr has the message."""
        if not isinstance(sys.exception(), OSError):
            super().handleError(record)


class _TqdmHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(OSError):  # the terminal was closed; the log file has it
            tqdm.write(self.format(record), file=sys.stderr)  # above a running bar


class Progress:
    """A count of work done, shown as a bar with ETA on a terminal and as a line every 20 s elsewhere.

    Args:
        total: units of work; None if unknown.
        unit: name of one unit ("article", "step", "B" for bytes).
        initial: units done by an earlier run, which do not count for rate and ETA.
    """

    def __init__(self, what: str, total: float | None, unit: str, initial: float = 0) -> None:
        self.what = what
        self.total = total
        self.unit = unit
        self.initial = initial
        self.done = initial
        self.note = ""
        self._start = time.monotonic()
        self._last = self._start
        self._bar = None
        if sys.stderr.isatty() and PLAIN not in os.environ:
            in_bytes = unit == "B"
            options = {"unit": unit, "unit_scale": in_bytes, "initial": initial, "dynamic_ncols": True}
            self._bar = tqdm(desc=what, total=total, file=sys.stderr, **options)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def advance(self, amount: float = 1, **numbers: float) -> None:
        """Count ``amount`` more units as done; show ``numbers`` (loss=…, …) at the end of the bar or line."""
        self.done += amount
        if numbers:
            self.note = ", ".join(
                NOTES[name](value) if name in NOTES else f"{name} {value:.4g}" for name, value in numbers.items()
            )
        if self._bar is not None:
            if numbers:
                self._bar.set_postfix_str(self.note, refresh=False)
            self._bar.update(amount)
            return
        now = time.monotonic()
        if now - self._last >= LINE_EVERY:
            self._last = now
            log.info(self._line(now - self._start))

    def _line(self, seconds: float) -> str:
        rate = (self.done - self.initial) / seconds if seconds else 0.0
        speed = f"{self.unit}, {rate:,.1f}/s"
        text = f"{self.what}: {self.done:,.0f} {speed}"
        if self.total:
            remaining = duration((self.total - self.done) / rate) if rate else "unknown time"
            text = f"{self.what}: {self.done:,.0f}/{self.total:,.0f} {speed}, {remaining} left"
        return f"{text}, {self.note}" if self.note else text


def duration(seconds: float) -> str:
    """Format seconds: ``59 s``, and from two minutes ``0:02:30``, ``1:02:33``."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"


def track(items: Iterable[T], what: str, unit: str, total: float | None = None) -> Iterator[T]:
    """Yield ``items``, and show how many were taken."""
    with Progress(what, total, unit) as progress:
        for item in items:
            yield item
            progress.advance()
