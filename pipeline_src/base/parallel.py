"""Run a function in several processes, and read the rank that a launcher gave this process."""

from __future__ import annotations

import os
import re
import resource
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import active_children, get_context
from typing import TypeVar

from pipeline_src.base.errors import PipelineError

Item = TypeVar("Item")
Result = TypeVar("Result")
WORKERS = "PIPELINE_WORKERS"
# Default MASTER_PORT. Under srun, the job id modulo 1,000 is added, so that two jobs rarely share a port.
PORT = 29_400


def usable_cores() -> int:
    # macOS has no CPU affinity, so there all cores of the machine count.
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def peak_memory() -> int:
    # ru_maxrss is in bytes on macOS and in KiB on Linux.
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def count_workers() -> int:
    value = os.environ.get(WORKERS) or str(usable_cores())
    if not value.isdecimal() or int(value) < 1:
        raise PipelineError("invalid number of workers", value, where=f"${WORKERS}", hint="set it to 1 or more")
    return int(value)


def map_in_order(
    function: Callable[[Item], Result], items: Iterable[Item], workers: int | None = None
) -> Iterator[Result]:
    """Yield ``function(item)`` for each item, in the order of the items, computed in several processes.

    Items are read as workers become free. At most two items per worker are pending at any time.

    Args:
        function: a top-level function of a module, or a ``functools.partial`` of one, so that it can be pickled.
        workers: number of processes; None means ``count_workers()``. With 1, no process is started.
    """
    workers = workers or count_workers()
    if workers == 1:
        yield from map(function, items)
        return
    # Forking this process would be unsafe, since torch and tokenizers have threads. A fork server has none. It imports
    # the module of `function` once, before it forks the workers.
    context = get_context("forkserver")
    context.set_forkserver_preload([getattr(function, "func", function).__module__])
    earlier = set(active_children())
    pool = ProcessPoolExecutor(workers, mp_context=context)
    waiting: deque[Future[Result]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) >= 2 * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool:
        # A broken pool does not kill a worker that was just starting, and its shutdown would wait for it forever.
        for worker in set(active_children()) - earlier:
            worker.kill()
        raise PipelineError(
            "a worker process was killed",
            f"one of {workers} workers",
            where="the operating system kills a process when memory runs out",
            hint=f"give the stage more memory, or use fewer workers: {WORKERS}=1",
        ) from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def process_rank() -> tuple[int, int, int]:
    """Return (rank, world size, local rank), read from torchrun's variables or else srun's.

    srun sets ``SLURM_STEP_NUM_TASKS``; a batch script that starts a single process in a larger allocation does not
    have it. Without a launcher the result is (0, 1, 0).
    """
    environment = os.environ
    if "RANK" in environment:
        rank, size, local_rank = "RANK", _launched("WORLD_SIZE", minimum=1), _launched("LOCAL_RANK")
        if size > 1 and "MASTER_ADDR" not in environment:
            raise _not_launched("launcher's variable is not set", None, "MASTER_ADDR")
    else:
        size = _launched("SLURM_STEP_NUM_TASKS", "1", minimum=1)
        if size == 1 or "SLURM_PROCID" not in environment:
            return 0, 1, 0
        rank, local_rank = "SLURM_PROCID", _launched("SLURM_LOCALID", "0")
        environment.setdefault("MASTER_ADDR", _first_host(environment))
        environment.setdefault("MASTER_PORT", str(PORT + _launched("SLURM_JOB_ID", "0") % 1000))
    if size > 1:
        _launched("MASTER_PORT", maximum=65_535)
    return _launched(rank, maximum=size - 1), size, local_rank


def _launched(name: str, default: str | None = None, minimum: int = 0, maximum: int = 10**9) -> int:
    value = os.environ.get(name, default)
    if value is None:
        raise _not_launched("launcher's variable is not set", None, name)
    if not re.fullmatch("[0-9]{1,10}", value) or not minimum <= int(value) <= maximum:
        raise _not_launched(f"launcher's variable is no whole number from {minimum} to {maximum:,}", value, name)
    return int(value)


def _not_launched(what: str, value: str | None, name: str) -> PipelineError:
    return PipelineError(
        what,
        value,
        where=f"${name}",
        hint="start distributed training with torchrun or srun, which set this variable; for a single process, "
        "run `unset RANK SLURM_STEP_NUM_TASKS`",
    )


def _first_host(environment: Mapping[str, str]) -> str:
    # "rack[0-1]node[03-05,9],x" -> "rack0node03"
    listed = environment.get("SLURM_STEP_NODELIST") or environment.get("SLURM_JOB_NODELIST", "localhost")
    first = re.match(r"(?:[^,\[]|\[[^\]]*\])+", listed)
    return re.sub(r"\[(\d+)[^\]]*\]", r"\1", first[0] if first else listed)
