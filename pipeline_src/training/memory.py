"""The memory of a long training on a CPU, kept from growing."""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from pathlib import Path

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # names and numbers of glibc's malloc.h
LARGE = 6 << 20  # bytes
GROWN = 96 << 20  # bytes that the process may hold beyond what is usual
OFTEN = 10  # steps; giving back takes as long as half a step of BERT-Tiny, and so does taking it again


def give_large_blocks_back() -> None:
    """Let glibc take each block of more than 6 MiB from the system, and give it back when it is freed.

    By itself it raises that limit to 32 MiB as a program goes on. Activations of batches that all differ a little in
    length then leave gaps in the heap that nothing fits into: BERT-Tiny at 512 tokens took 2.5 GB after 250 steps where
    0.9 GB are in use. Smaller blocks stay in the heap, since the system clears each that it gives: :class:`Heap` looks
    after them. Another C library does as it likes.
    """
    with suppress(AttributeError, OSError):
        set_option = ctypes.CDLL(None).mallopt
        set_option(M_MMAP_THRESHOLD, LARGE)
        set_option(M_TRIM_THRESHOLD, 64 << 20)


class Heap:
    """Gives the gaps in glibc's heap back to the system when a training has grown by them.

    Eight sequences of up to 512 tokens leave most blocks of BERT-Tiny below 6 MiB: what the process holds after ten
    steps, 0.9 GB of which 0.4 are in use, grows by 1 to 3 MB with every further one. Where all batches are alike the
    heap serves each with the blocks of the last, and nothing is given back.
    """

    def __init__(self) -> None:
        self._usual: int | None = None  # bytes held OFTEN steps after the start, or after the last trim
        self._steps = 0

    def after_step(self) -> None:
        """Look whether the process has grown; once in :data:`OFTEN` steps."""
        self._steps += 1
        if self._steps < OFTEN:
            return
        self._steps = 0
        if self._usual is None:
            self._usual = _resident()
        elif _resident() > self._usual + GROWN:
            with suppress(AttributeError, OSError):
                ctypes.CDLL(None).malloc_trim(0)
            self._usual = None


def _resident() -> int:
    """Bytes of memory that this process holds; 0 where the system does not tell."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
