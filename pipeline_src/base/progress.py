"""Progress of a stage: a bar on a terminal, periodic lines elsewhere, and always a log file."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from tqdm import tqdm

from pipeline_src.base.messages import CleanFormatter
from pipeline_src.base.paths import LOGS

log = logging.getLogger("pipeline_src")
T = TypeVar("T")
# The Snakefile sets this variable, since the bars of parallel jobs would overwrite each other.
PLAIN = "PIPELINE_PLAIN_PROGRESS"
# The last log message of a stage that succeeded begins with these words.
DONE = "done in"
SEPARATOR = "---- the run above did not get to its end; the next one:"
# Without a terminal, a progress line is logged this often.
LINE_SECONDS = 20.0


def open_log(stage: str, item: str, to_stderr: bool = True) -> Path:
    """Send the stage's messages to ``logs/<stage>/<item>.log`` and to stderr, and return the log's path.

    If the last run did not finish, its log is kept and continued after a separator. Otherwise the log is overwritten.
    """
    path = LOGS / stage / f"{item}.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    continues = False
    if path.exists():
        text = path.read_text(encoding="utf-8", errors="replace")
        continues = f" INFO {DONE} " not in text.rpartition(f"{SEPARATOR}\n")[2]
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
    # The error that ends a stage is printed by __main__ and not twice.
    to_terminal.addFilter(lambda record: record.levelno < logging.ERROR)
    to_terminal.setFormatter(CleanFormatter(f"[{stage} {item}] %(message)s"))
    log.addHandler(to_file)
    if to_stderr:
        log.addHandler(to_terminal)
    return path


class _LogFile(logging.FileHandler):
    def handleError(self, record: logging.LogRecord) -> None:
        # When the disk is full, `logging` would print a traceback. The message itself still goes to stderr.
        if not isinstance(sys.exception(), OSError):
            super().handleError(record)


class _TqdmHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        # tqdm.write prints above a running bar. If the terminal was closed, the message is still in the log file.
        with contextlib.suppress(OSError):
            tqdm.write(self.format(record), file=sys.stderr)


class Progress:
    """Progress counter: a bar with ETA on a terminal, a log line every 20 s without one.

    Args:
        what: label of the bar or line.
        total: number of units of work; None if unknown.
        unit: name of one unit ("article", "step", "B" for bytes).
        initial: units that an earlier run has done. They are not part of the rate and the ETA.
    """

    def __init__(self, what: str, total: float | None, unit: str, initial: float = 0) -> None:
        self.what = what
        self.total = total
        self.unit = unit
        self.initial = initial
        self.done = initial
        self.note = ""
        self._start = self._last = time.monotonic()
        self._bar = None
        if sys.stderr.isatty() and PLAIN not in os.environ:
            options = {"unit": unit, "unit_scale": unit == "B", "initial": initial, "dynamic_ncols": True}
            self._bar = tqdm(desc=what, total=total, **options)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def advance(self, amount: float = 1, **numbers: float) -> None:
        """Count ``amount`` more units as done, and show ``numbers`` (such as ``loss=2.5``) next to the bar."""
        self.done += amount
        if numbers:
            self.note = ", ".join(_format_number(name, value) for name, value in numbers.items())
        if self._bar is not None:
            self._bar.set_postfix_str(self.note, refresh=False)
            self._bar.update(amount)
            return
        now = time.monotonic()
        if now - self._last >= LINE_SECONDS:
            self._last = now
            log.info(self._line(now - self._start))

    def _line(self, seconds: float) -> str:
        rate = (self.done - self.initial) / seconds if seconds else 0.0
        count = f"{self.done:,.0f}"
        if self.total:
            count += f"/{self.total:,.0f}"
        parts = [f"{self.what}: {count} {self.unit}", f"{rate:,.1f}/s"]
        if self.total:
            remaining = duration((self.total - self.done) / rate) if rate else "unknown time"
            parts.append(f"{remaining} left")
        if self.note:
            parts.append(self.note)
        return ", ".join(parts)


def _format_number(name: str, value: float) -> str:
    if name == "tokens_per_second":
        return f"tok/s {tqdm.format_sizeof(value)}"
    if name == "mfu":
        return f"MFU {100 * value:.0f} %"
    return f"{name} {value:.4g}"


def duration(seconds: float) -> str:
    # 59 -> "59 s", 150 -> "0:02:30"
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"


def track(items: Iterable[T], what: str, unit: str, total: float | None = None) -> Iterator[T]:
    with Progress(what, total, unit) as progress:
        for item in items:
            yield item
            progress.advance()
