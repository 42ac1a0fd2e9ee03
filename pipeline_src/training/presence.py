"""Which of the processes that train together have ended or hang: every one of them says each second that it lives."""

from __future__ import annotations

import platform
import threading
import time
from typing import Any

BEAT = 1.0  # seconds between two signs of life
GRACE = 2.0  # seconds in which a process that lives gives one
ANSWER = 10.0  # seconds that the store may take to answer; it lives in the first process, or in torchrun


class Presence:
    """This process among those that train together.

    A thread writes to the store that they share how often it has written, which tells a process that has ended or was
    halted, and how many exchanges this process has begun, which tells one that hangs while its threads go on.

    Args:
        store: a ``torch.distributed.Store``.
        rank, world_size: of this process.

    Attributes:
        exchanges: numbers were exchanged with the others so often, this time included.
    """

    def __init__(self, store: Any, rank: int, world_size: int) -> None:
        self.rank, self.world_size, self.exchanges = rank, world_size, 0
        self._left = threading.Event()
        self._reader = store.clone()  # a connection serves one thread at a time
        store.set(f"host/{rank}", platform.node())
        store.set(_key(rank), "0 0")
        threading.Thread(target=self._live, args=[store.clone()], name="presence", daemon=True).start()

    def leave(self) -> None:
        """Write no more."""
        self._left.set()

    def missing(self) -> list[str]:
        """The others that have ended or hang, such as ``process 1 on node2``; takes seconds."""
        time.sleep(GRACE)
        before = self._read()
        time.sleep(GRACE)
        now = self._read()
        if before is None or now is None:
            return ["process 0"] if self.rank else []
        return [
            f"process {rank} on {host}"
            for rank, (host, beats, exchanges) in enumerate(now)
            if rank != self.rank and (beats == before[rank][1] or exchanges < self.exchanges)
        ]

    def _live(self, store: Any) -> None:
        beats = 0
        while not self._left.wait(BEAT):
            beats += 1
            try:
                store.set(_key(self.rank), f"{beats} {self.exchanges}")
            except RuntimeError:
                return  # the store has ended, and with it the training

    def _read(self) -> list[tuple[str, int, int]] | None:
        """Host, signs of life and exchanges of every process; None where the store does not answer."""
        read: list[tuple[str, int, int]] = []

        def ask() -> None:
            try:
                for rank in range(self.world_size):
                    beats, exchanges = map(int, self._reader.get(_key(rank)).split())
                    read.append((self._reader.get(f"host/{rank}").decode(), beats, exchanges))
            except RuntimeError:
                return

        thread = threading.Thread(target=ask, name="presence-read", daemon=True)  # a halted store never answers
        thread.start()
        thread.join(ANSWER)
        return read if len(read) == self.world_size else None


def _key(rank: int) -> str:
    return f"alive/{rank}"
