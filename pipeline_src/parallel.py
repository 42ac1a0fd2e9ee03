"""Work spread over processes, with results in the order of the items: the same output for any number of workers."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import TypeVar

from pipeline_src.errors import PipelineError

Item = TypeVar("Item")
Result = TypeVar("Result")
WORKERS = "PIPELINE_WORKERS"


def count_workers() -> int:
    """Worker processes of this stage: ``$PIPELINE_WORKERS`` (Snakemake sets it), else every core it may use."""
    wanted = os.environ.get(WORKERS) or str(len(os.sched_getaffinity(0)))
    if not wanted.isdecimal() or int(wanted) < 1:
        raise PipelineError("not a number of workers", wanted, where=f"${WORKERS}", remedy="set it to 1 or more")
    return int(wanted)


def map_in_order(
    function: Callable[[Item], Result], items: Iterable[Item], workers: int | None = None
) -> Iterator[Result]:
    """Yield ``function(item)`` for every item, in order; at most two items a worker are under way.

    Args:
        function: one of a module's top level, or a ``functools.partial`` of one; runs in other processes.
        items: read as workers become free, so that they may be many.
        workers: processes; None for :func:`count_workers`. With one, all runs in this process.

    Raises:
        PipelineError: a worker was killed, most often for want of memory. What ``function`` raises comes as it is.
    """
    workers = workers or count_workers()
    if workers == 1:
        yield from map(function, items)
        return
    pool = ProcessPoolExecutor(workers, mp_context=get_context("fork"))
    waiting: deque[Future[Result]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) >= 2 * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool:
        raise PipelineError(
            "a worker process was killed", f"{workers} workers", where="most often for want of memory",
            remedy=f"give the stage more memory, or fewer workers: {WORKERS}=1",
        ) from None  # fmt: skip
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
