"""Which GPU a process takes that trains alone: trainings side by side on one machine take different ones."""

from __future__ import annotations

import fcntl
import os
import tempfile
from itertools import count
from pathlib import Path
from typing import IO

VISIBLE = "CUDA_VISIBLE_DEVICES"  # CUDA's own variable
_HELD: list[IO[str]] = []  # locks, until the process ends


def take_free_gpu(gpus: int) -> int:
    """The number of the GPU that the fewest of this user's trainings on this machine have taken; it is theirs till
    they end, however they end.

    Args:
        gpus: how many this process sees.
    """
    if gpus <= 1:
        return 0
    visible = os.environ.get(VISIBLE, "").split(",")
    names = visible if len(visible) == gpus else [str(number) for number in range(gpus)]
    folder = Path(tempfile.gettempdir(), f"pipeline-gpus-{os.getuid()}")
    folder.mkdir(exist_ok=True)
    for place in count():  # a second training on a GPU takes its second place
        for number, name in enumerate(names):
            lock = open(folder / f"{name.replace('/', '-')}.{place}", "w")  # noqa: SIM115, held until the process ends
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                lock.close()
                continue
            _HELD.append(lock)
            return number
    raise AssertionError  # count() has no end
