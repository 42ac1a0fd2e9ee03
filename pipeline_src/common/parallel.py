"""Work over several processes: spread in the order of its items, or shared with those a launcher started beside us."""

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

from pipeline_src.common.errors import PipelineError

Item = TypeVar("Item")
Result = TypeVar("Result")
WORKERS = "PIPELINE_WORKERS"
PORT = 29_400  # and 1,000 above it, where srun starts the processes: chosen by the job's number


def usable_cores() -> int:
    """CPU cores that this process may use; all of the machine's on macOS, which cannot say."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def peak_memory() -> int:
    """The most memory that this process has used so far, in bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def count_workers() -> int:
    """Worker processes of this stage: ``$PIPELINE_WORKERS`` (Snakemake sets it), else every core it may use."""
    wanted = os.environ.get(WORKERS) or str(usable_cores())
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
    # not by fork, which is unsafe where threads run (torch, tokenizers) and on macOS; what `function` needs is
    # imported once, by the server that forks the workers
    context = get_context("forkserver")
    context.set_forkserver_preload([getattr(function, "func", function).__module__])
    others = set(active_children())
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
        for worker in set(active_children()) - others:  # one that was just starting is not ended by the pool itself,
            worker.kill()  # which would wait for it forever
        raise PipelineError(
            "a worker process was killed", f"{workers} workers", where="most often for want of memory",
            remedy=f"give the stage more memory, or fewer workers: {WORKERS}=1",
        ) from None  # fmt: skip
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def place() -> tuple[int, int, int]:
    """Rank, size and rank on this machine, from torchrun's variables or else those of a task of ``srun``.

    ``SLURM_STEP_NUM_TASKS`` is set by srun alone, not in a batch script that runs one process of a larger allocation.

    Raises:
        PipelineError: a variable is missing, is no number, or does not go with the others.
    """
    environment = os.environ
    if "RANK" in environment:
        rank, size, local_rank = "RANK", _launched("WORLD_SIZE", least=1), _launched("LOCAL_RANK")
        if size > 1 and "MASTER_ADDR" not in environment:
            raise _not_launched("a variable that the launcher sets is missing", None, "MASTER_ADDR")
    else:
        size = _launched("SLURM_STEP_NUM_TASKS", "1", least=1)
        if size == 1 or "SLURM_PROCID" not in environment:
            return 0, 1, 0
        rank, local_rank = "SLURM_PROCID", _launched("SLURM_LOCALID", "0")
        environment.setdefault("MASTER_ADDR", _first_host(environment))
        environment.setdefault("MASTER_PORT", str(PORT + _launched("SLURM_JOB_ID", "0") % 1000))
    if size > 1:
        _launched("MASTER_PORT", most=65_535)
    return _launched(rank, most=size - 1), size, local_rank


def _launched(name: str, usual: str | None = None, least: int = 0, most: int = 10**9) -> int:
    """A whole number that a launcher sets in the environment."""
    value = os.environ.get(name, usual)
    if value is None:
        raise _not_launched("a variable that the launcher sets is missing", None, name)
    if not re.fullmatch("[0-9]{1,10}", value) or not least <= int(value) <= most:
        up_to = f" up to {most}" if most < 10**9 else " or more"
        raise _not_launched(f"not a whole number of {least}{up_to}", value, name)
    return int(value)


def _not_launched(what: str, value: str | None, name: str) -> PipelineError:
    return PipelineError(
        what, value, where=f"${name}",
        remedy="start processes that train together with torchrun or srun, which set it; for one process alone, "
        "`unset RANK SLURM_STEP_NUM_TASKS`",
    )  # fmt: skip


def _first_host(environment: Mapping[str, str]) -> str:
    """The first machine of a step: ``rack[0-1]node[03-05,9],x`` begins with ``rack0node03``."""
    listed = environment.get("SLURM_STEP_NODELIST") or environment.get("SLURM_JOB_NODELIST", "localhost")
    first = re.match(r"(?:[^,\[]|\[[^\]]*\])+", listed)
    return re.sub(r"\[(\d+)[^\]]*\]", r"\1", first[0] if first else listed)
