"""How work grows with its input: no test asserts seconds, which are a property of the machine."""

from __future__ import annotations

import gc
import math
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

TIMES = 16  # linear work takes 16 times as long on the larger input, quadratic work 256 times
LIMIT = 64
RUNS = 5


def assert_linear(run: Callable[[Any], object], small: Any, large: Any) -> None:
    """Fail if ``run`` needs more than 64 times as much CPU time for ``large`` as for ``small``, a sixteenth of it.

    The fastest of several runs counts, since a busy machine slows some; one run of ``large`` within the limit will do.
    """
    base = min(cpu_seconds(run, small) for _ in range(RUNS))
    ratios: list[float] = []
    while len(ratios) < RUNS and min(ratios, default=math.inf) > LIMIT:
        ratios.append(cpu_seconds(run, large) / base)
    assert min(ratios) <= LIMIT, f"{min(ratios):.0f} times the CPU time for {TIMES} times the input"


def cpu_seconds(run: Callable[[Any], object], given: Any) -> float:
    """Return the CPU time of one call, without that of garbage collection, which grows with all that tests left."""
    gc.disable()
    try:
        start = time.process_time()
        run(given)
        return time.process_time() - start
    finally:
        gc.enable()


def count_python_lines(run: Callable[[], object]) -> int:
    """Return how many lines of Python a call executes: the same on every machine, whatever else it does."""
    lines = 0

    def trace(_frame: FrameType, event: str, _value: object) -> Callable[..., Any]:
        nonlocal lines
        lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        run()
    finally:
        sys.settrace(before)
    return lines
