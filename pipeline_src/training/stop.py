"""Stop a training on a signal, after the current step and with a checkpoint."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from pipeline_src.base.errors import Interrupted

# SIGURG is Slurm's warning before the time limit (`--signal=URG@120`), which wrapper scripts ignore by default. SIGTERM
# comes from `scancel` or the end of a container, SIGINT from Ctrl-C, and SIGHUP from a terminal that is closed.
SIGNALS = (signal.SIGURG, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
# A second signal within this time is a duplicate and is ignored: Slurm signals every process, and torchrun forwards the
# same signal to its workers.
REPEAT_SECONDS = 1.0


class StopRequest:
    """Request, made by a signal on one process, that all processes stop after the same step.

    Attributes:
        signal: the signal that this process received, if any.
        is_agreed: whether all processes stop after the current step; set by the trainer.
    """

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        self.is_agreed = False
        self._received_at = 0.0

    def __bool__(self) -> bool:
        return self.signal is not None

    def receive(self, number: int, frame: FrameType | None) -> None:
        # The first signal requests a stop. A second one more than a second later ends the process, except SIGURG.
        if self.signal is None:
            self._received_at = time.monotonic()
        elif number != signal.SIGURG and time.monotonic() - self._received_at > REPEAT_SECONDS:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        self.signal = signal.Signals(number)

    def interrupted(self, name: str, step: int) -> Interrupted:
        cause = self.signal.name if self.signal else "a signal to another process"
        return Interrupted(f"{name} stopped by {cause} after step {step:,}; its checkpoint is saved")


@contextmanager
def catch_stop_requests() -> Iterator[StopRequest]:
    """Context manager: turn signals into stop requests. Outside the main thread, it does nothing.

    An ignored signal stays ignored. For example, `nohup` makes a program ignore SIGHUP, and a shell makes background
    jobs ignore SIGINT.
    """
    stop_request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield stop_request
        return
    handled = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    previous = {number: signal.signal(number, stop_request.receive) for number in handled}
    try:
        yield stop_request
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
