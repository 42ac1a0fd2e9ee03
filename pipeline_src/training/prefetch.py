"""Batches made off the main thread, so that training never waits for its data."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from queue import Empty, Full, Queue
from typing import TypeVar

T = TypeVar("T")
POLL = 0.1  # seconds after which a thread that waits looks whether the other side is gone


def prefetch(items: Iterable[T], depth: int = 4) -> Iterator[T]:
    """Yield ``items`` in order; a thread makes up to ``depth`` of them before they are asked for.

    What ``items`` raises is raised here. The thread ends when the generator is closed, at the latest one item later.
    """
    waiting: Queue[tuple[T | None, BaseException | None]] = Queue(depth)
    done = threading.Event()

    def put(item: T | None, error: BaseException | None) -> None:
        while not done.is_set():
            try:
                return waiting.put((item, error), timeout=POLL)
            except Full:
                continue

    def make() -> None:
        try:
            for item in items:
                put(item, None)
                if done.is_set():
                    return
            put(None, StopIteration())
        except BaseException as error:  # the main thread decides what it means
            put(None, error)

    thread = threading.Thread(target=make, name="prefetch", daemon=True)
    thread.start()
    try:
        while True:
            try:
                item, error = waiting.get(timeout=POLL)
            except Empty:
                continue
            if isinstance(error, StopIteration):
                return
            if error is not None:
                raise error
            yield item  # type: ignore[misc]  # None stands beside an error alone
    finally:
        done.set()
        thread.join()
