"""Timing both sides of a claim side by side, and saying what came out in one line of JSON.

CPU time, not wall time: these are comparisons of work, and a shared machine's wall clock is noise. The sides take
turns within each round, so that a slow minute of the machine meets all of them.
"""

from __future__ import annotations

import gc
import json
import platform
import resource
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any


def cpu_seconds() -> float:
    """Return the CPU seconds that this process, its threads and its finished child processes have used."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def time_once(work: Callable[[], object]) -> float:
    """Return the CPU seconds of one call."""
    gc.collect()
    start = cpu_seconds()
    work()
    return cpu_seconds() - start


def race(sides: Mapping[str, Callable[[], object]], rounds: int = 5) -> dict[str, float]:
    """Return the median CPU seconds of each side over ``rounds`` rounds.

    In each round all sides run once, in changing order.
    """
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(rounds):
        names = list(sides) if turn % 2 == 0 else list(sides)[::-1]
        for name in names:
            seconds[name].append(time_once(sides[name]))
    return {name: statistics.median(times) for name, times in seconds.items()}


def report(
    name: str, unit: str, ours: float, peers: Mapping[str, float], targets: Mapping[str, float], **more: Any
) -> None:
    """Print the result: a line a peer for people, then one JSON object.

    Args:
        name: the benchmark's name.
        unit: of the rates, such as "articles per CPU-second"; more is better.
        ours: our rate.
        peers: rate of each peer; ``ratio`` is ours over the first one's.
        targets: the ratio to reach, for each peer that has one.
        more: further figures for the JSON object; ``met_more`` (bool) joins the verdict.
    """
    ratios = {peer: ours / rate for peer, rate in peers.items()}
    first = next(iter(peers))
    print(f"{name}, {unit} ({platform.python_implementation()} {platform.python_version()}):")
    print(f"  {'ours':<28} {ours:>14,.1f}")
    for peer, rate in peers.items():
        target_text = f", target {targets[peer]:g}x" if peer in targets else ""
        print(f"  {peer:<28} {rate:>14,.1f}   {ratios[peer]:.2f}x{target_text}")
    met = all(ratios[peer] >= target for peer, target in targets.items()) and more.pop("met_more", True)
    figures = {
        "name": name,
        "ours": round(ours, 3),
        "peer": round(peers[first], 3),
        "ratio": round(ratios[first], 3),
        "target": targets.get(first),
        "ratios": {peer: round(ratio, 3) for peer, ratio in ratios.items() if peer != first},
        "targets": {peer: target for peer, target in targets.items() if peer != first},
        "unit": unit,
        "met": bool(met),
    }
    print(json.dumps(figures | more), flush=True)
