"""Requests to stop: signals that let a step finish and be saved, instead of ending the process in the middle of it."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from pipeline_src.common.errors import Interrupted

# Slurm's end of time (`--signal=URG@120`: ignored by default, so that wrappers live on), `scancel` or a container's
# end, and Ctrl-C.
SIGNALS = (signal.SIGURG, signal.SIGTERM, signal.SIGINT)
AGAIN = 1.0  # seconds after a signal in which another is the same one: torchrun hands on what Slurm has told all


class StopRequest:
    """Whether a signal requested a stop, and which."""

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        self._since = 0.0

    def __bool__(self) -> bool:
        return self.signal is not None

    def receive(self, number: int, frame: FrameType | None) -> None:
        """Take a signal; SIGTERM or SIGINT for a second time end the process as they would without us."""
        if self.signal is None:
            self._since = time.monotonic()
        elif number != signal.SIGURG and time.monotonic() - self._since > AGAIN:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        self.signal = signal.Signals(number)

    def interrupted(self, what: str, step: int) -> Interrupted:
        """What to raise once the checkpoint of ``step`` is written."""
        name = self.signal.name if self.signal else "a signal to another process"
        return Interrupted(f"{what} stopped by {name} after step {step:,}; its checkpoint is saved")


@contextmanager
def catch_stop_requests() -> Iterator[StopRequest]:
    """Within it the signals request a stop instead of ending the process. Outside the main thread none is caught."""
    stop_request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield stop_request
        return
    before = {number: signal.signal(number, stop_request.receive) for number in SIGNALS}
    try:
        yield stop_request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
