"""Joining the store that processes share, where an earlier start of the same job may have left its keys.

torchrun keeps one store over all restarts (torch 2.13, ``dynamic_rendezvous``), so that gloo would read the addresses
of processes that have ended.
"""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any
from uuid import uuid4

from torch.distributed import PrefixStore

from pipeline_src.common.errors import PipelineError

PAUSE = 0.05  # seconds between two looks


def join(store: Any, rank: int, world_size: int, patience: timedelta) -> PrefixStore:
    """A part of ``store`` for this start alone: the first process names it, to each that says that it is there now.

    Raises:
        PipelineError: not all processes come within ``patience``.
    """
    nonce = uuid4().hex
    store.set(f"here/{rank}", nonce)
    deadline = time.monotonic() + patience.total_seconds()
    missing = list(range(1, world_size)) if rank == 0 else [0]
    while missing:
        if time.monotonic() > deadline:
            raise PipelineError(
                "not all processes that are to train together have started", f"process {missing[0]} of {world_size}",
                where=f"after {patience}", remedy="see its log, and whether the machines reach each other",
            )  # fmt: skip
        if rank == 0:
            missing = [other for other in missing if not _has_joined(store, other, nonce)]
        else:
            told, _, part = _read(store, f"told/{rank}").partition(" ")
            if told == nonce:
                store.set(f"joined/{rank}", part)
                return PrefixStore(part, store)
        time.sleep(PAUSE)
    return PrefixStore(nonce, store)


def _has_joined(store: Any, other: int, part: str) -> bool:
    here = _read(store, f"here/{other}")
    if here:
        store.set(f"told/{other}", f"{here} {part}")
    return _read(store, f"joined/{other}") == part


def _read(store: Any, key: str) -> str:
    """What stands under a key; empty where nothing does."""
    return store.get(key).decode() if store.check([key]) else ""
