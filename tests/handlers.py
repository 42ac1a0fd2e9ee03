"""Signal handlers that a test may change."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def kept_handlers() -> Iterator[None]:
    """Put the handlers back that the block changes."""
    before = {number: signal.getsignal(number) for number in signal.valid_signals()}
    try:
        yield
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) is not handler:
                signal.signal(number, handler)
