"""Compare the speed and memory of a training step with those of transformers' class, by size of the model.

Same initial weights, same batches of real text with the lengths it has, same optimizer, clipping and dropout on every
side (``_pretrain_sides``). The sides take turns, batch by batch, in one process. On a CPU, tokens count per second of
CPU time over all threads, as in every benchmark here; wall-clock rates stand beside them, with the load of the
machine. Memory is the most that a process of each side's own holds in two steps, beyond what it held before it made
its model. transformers with its masked-word head on the predicted places alone stands beside without a bar.

``--bfloat16`` takes every side's products in bfloat16, which some CPUs multiply twice as fast.

``--device cuda`` runs in bfloat16 under autocast, beside transformers as it is and compiled. A step in which torch
compiles is counted apart. Of this project's side, the five kernels that take most of the time are named. ``--random``
takes random text, which needs no corpus. ``--alone`` does too and leaves out the peers, which are packages of their
own: what is printed is one paste into an issue.
"""

from __future__ import annotations

import argparse
import functools
import gc
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

# Set before torch is imported, as in the stages.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch

from benchmarks._pretrain_sides import (
    COMPILED,
    EAGER,
    MAKERS,
    PREDICTED,
    SDPA,
    SIDES,
    SIZES,
    Batch,
    Side,
    config_of,
    held,
    most_held,
    process_on,
)
from benchmarks.measure import cpu_seconds, report
from pipeline_src.base.parallel import usable_cores
from pipeline_src.base.registry import member_names
from pipeline_src.model.bert import BertConfig
from pipeline_src.model.flops import Workload
from pipeline_src.study.machine import Precision
from pipeline_src.training.throughput import compilations, peak_flops

# Number of steps before the timed ones, and number of timed steps.
WARM_UP, PROFILED = 2, 2
# Number of kernels that are printed, and of characters of their names.
KERNELS, NAME = 5, 60
SAME_LOSS = 1e-5
# Sides without a bar: they take every fourth batch, to save time.
ASIDE, OCCASIONALLY = (PREDICTED,), 4


@dataclass(frozen=True)
class Setup:
    """Sizes, peers and bars of a kind of device.

    Attributes:
        peers: sides beside ours; the first is the main one.
        sequences: of a batch, at length 128 and by size; a quarter as many at 512.
        default: sizes of ``--size all``.
        times: the ratio to reach, by size and peer.
        tokens: real tokens per second to reach, by size and length.
    """

    peers: tuple[str, ...]
    sequences: Mapping[str, int]
    default: tuple[str, ...]
    times: Mapping[str, Mapping[str, float]]
    tokens: Mapping[tuple[str, int], float]


SETUPS = {
    "cpu": Setup(
        (SDPA, PREDICTED),
        {"tiny": 32, "mini": 32, "base": 8, "large": 4},
        ("tiny", "mini", "base"),
        {"tiny": {SDPA: 5.0}, "mini": {SDPA: 2.5}, "base": {SDPA: 1.3}},
        {},
    ),
    "cuda": Setup(
        (EAGER, COMPILED),
        {"tiny": 256, "mini": 256, "base": 256, "large": 128},
        ("base", "large"),
        {"base": {EAGER: 2.5, COMPILED: 1.6}},
        # On an H200.
        {("base", 128): 0.8e6, ("large", 512): 240e3},
    ),
}
# Ratios to transformers on a CPU, by member and size.
BARS = {
    "roberta": {"tiny": 5.0, "mini": 2.5, "base": 1.3},
    "albert": {"tiny": 5.0, "mini": 2.5, "base": 1.3},
    "electra": {"tiny": 5.0, "mini": 2.5, "base": 1.3},
    "distilbert": {"tiny": 5.0, "mini": 2.5, "base": 1.3},
    "deberta": {"tiny": 4.0, "mini": 2.0, "base": 1.4},
    "deberta_v2": {"tiny": 4.0, "mini": 2.0, "base": 1.4},
    "modernbert": {"tiny": 1.5, "mini": 1.5, "base": 1.5},
}
# transformers has one implementation of attention for them.
WITHOUT_SDPA = ("deberta", "deberta_v2")
# Where --length is not given; else 128.
LENGTHS = {"cuda": {"large": 512}}


def main(arguments: Sequence[str] | None = None) -> None:
    options = _parser().parse_args(arguments)
    if options.device == "cuda" and not torch.cuda.is_available():
        lacks = "no GPU answers" if torch.version.cuda else f"torch {torch.__version__} is built without CUDA"
        sys.exit(f"error: --device cuda: {lacks}; `python -m pipeline_src doctor` says what to do")
    setup = SETUPS[options.device]
    sizes = setup.default if options.size == "all" else (options.size,)
    if options.architecture != "bert":
        peer = EAGER if options.architecture in WITHOUT_SDPA else SDPA
        bars = BARS.get(options.architecture, {}) if options.device == "cpu" else {}
        setup = replace(setup, peers=(peer,), times={size: {peer: bar} for size, bar in bars.items()}, tokens={})
    precision: Precision = "bfloat16" if options.bfloat16 else "auto"
    if options.bfloat16:
        setup = replace(setup, times={})
    if options.alone:
        setup = replace(setup, peers=(), times={})
    elif importlib.util.find_spec("transformers") is None:
        sys.exit("error: transformers, the peer, is not installed: `make bench` installs it, --alone goes without")
    elif not options.random:
        # Made before anything is timed.
        from benchmarks._study import study_folder

        study_folder()
    print(f"torch {torch.__version__}, {_device_name(options.device)}, {torch.get_num_threads()} threads", flush=True)
    measured = {
        size: measure(
            size,
            _length(options, size),
            options.device,
            options.steps,
            setup,
            options.architecture,
            precision,
            "random" if options.random or options.alone else "real",
        )
        for size in sizes
    }
    if options.alone:
        print(json.dumps({"name": "pretrain_step", "sizes": measured, "device": _device_name(options.device)}))
        return
    first = measured[sizes[0]]
    rates = {side: row["tokens_per_s"] for side, row in first["sides"].items()}
    report(
        "pretrain_step",
        f"real tokens per {'CPU-' * (options.device == 'cpu')}second, {options.architecture} {sizes[0]}",
        rates.pop("ours"),
        rates,
        setup.times.get(sizes[0], {}),
        sizes=measured,
        device=_device_name(options.device),
        threads=torch.get_num_threads(),
        torch=torch.__version__,
        met_more=all(row["met"] for row in measured.values()),
    )


def measure(
    size: str,
    length: int,
    device_name: str,
    steps: int,
    setup: Setup,
    architecture: str = "bert",
    precision: Precision = "auto",
    text: str = "real",
) -> dict[str, Any]:
    process = process_on(device_name, precision)
    device = process.device
    config, sequences = config_of(size, architecture), max(1, setup.sequences[size] * 128 // length)
    alone = not setup.peers
    batches = MAKERS[text](length, sequences, WARM_UP + steps + PROFILED, device)
    before = held(device)
    names = ("ours", *setup.peers)
    sides = {name: SIDES[name](config, batches, process) for name in names}
    losses = {name: side.loss(batches[0]) for name, side in sides.items()}
    apart = max(losses.values()) - min(losses.values())
    if process.precision == torch.float32 and apart > SAME_LOSS * min(losses.values()):
        sys.exit(f"error: {size}: the sides' losses differ without dropout: {losses}")
    load = [os.getloadavg()[0]]
    seconds: dict[str, list[Seconds]] = {name: [] for name in names}
    compiling = dict.fromkeys(names, 0.0)
    for turn, batch in enumerate(batches[: WARM_UP + steps]):
        for name in names if turn % 2 else names[::-1]:
            if name in ASIDE and turn >= WARM_UP and turn % OCCASIONALLY:
                continue
            graphs = compilations()
            took = time_step(sides[name].step, device)
            if compilations() != graphs:
                compiling[name] += took.wall
            elif turn >= WARM_UP:
                seconds[name].append(took.per(batch.tokens))
    load.append(os.getloadavg()[0])
    kernels = dearest_kernels(sides["ours"], device)
    del sides
    gc.collect()
    rows: dict[str, dict[str, float]] = {name: rates(seconds[name], device) for name in names}
    for name in names:
        if name not in ASIDE:
            memory = (
                most_held(device, before)
                if alone
                else run_apart(name, size, length, sequences, device_name, architecture, precision, text)
            )
            rows[name].update({key: round(value) for key, value in memory.items()})
        rows[name]["compile_seconds"] = round(compiling[name], 1)
    result: dict[str, Any] = {
        "length": length,
        "sequences": sequences,
        "steps": steps,
        "fill": round(sum(batch.tokens for batch in batches) / (len(batches) * sequences * length), 3),
        "loss_without_dropout": losses,
        "kernels": kernels,
        "load": load,
        "sides": rows,
    }
    for kind in ("tokens_per_s", *(("wall_tokens_per_s",) if device.type == "cpu" else ())):
        of_peers = {peer: round(rows["ours"][kind] / rows[peer][kind], 3) for peer in setup.peers}
        result["ratios" if kind == "tokens_per_s" else "wall_ratios"] = of_peers
    flops, peak = mean_flops(config, batches), peak_flops(device, process.precision)
    for row in rows.values():
        by_the_clock = row.get("wall_tokens_per_s", row["tokens_per_s"])
        row["mfu"] = round(by_the_clock * flops / peak.flops, 4)
    result |= {"peak_flops": peak.flops, "peak_source": peak.source}
    result["met"] = verdict(result, setup, size)
    print(summary(size, result), flush=True)
    return result


@dataclass(frozen=True)
class Seconds:
    # On a CPU, those of all threads are busy.
    busy: float
    wall: float

    def per(self, tokens: int) -> Seconds:
        return Seconds(self.busy / tokens, self.wall / tokens)


def time_step(step: Any, device: torch.device) -> Seconds:
    # A GPU is waited for before and after, and is busy all the time.
    if device.type == "cuda":
        torch.cuda.synchronize()
    busy, wall = cpu_seconds(), time.perf_counter()
    step()
    if device.type == "cuda":
        torch.cuda.synchronize()
    busy, wall = cpu_seconds() - busy, time.perf_counter() - wall
    return Seconds(wall if device.type == "cuda" else busy, wall)


def rates(seconds: list[Seconds], device: torch.device) -> dict[str, float]:
    medians_and_bests = {}
    for kind, prefix in (("busy", ""), ("wall", "wall_")) if device.type == "cpu" else (("wall", ""),):
        times = [getattr(taken, kind) for taken in seconds]
        medians_and_bests[f"{prefix}tokens_per_s"] = round(1 / statistics.median(times), 1)
        medians_and_bests[f"{prefix}best_tokens_per_s"] = round(1 / min(times), 1)
    return medians_and_bests


def dearest_kernels(side: Side, device: torch.device) -> dict[str, float]:
    activities = [torch.profiler.ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=activities) as profile:
        for _ in range(PROFILED):
            side.step()
        if device.type == "cuda":
            torch.cuda.synchronize()
    return shares(profile.key_averages(), device.type)


def shares(rows: Iterable[Any], device: str) -> dict[str, float]:
    """Return the slowest rows of a profile on ``device``, with their share of the time.

    On a GPU the operators that launched kernels are listed too, with the kernels' time: they are not counted.
    """
    clock = "self_device_time_total" if device == "cuda" else "self_cpu_time_total"
    times = {row.key: getattr(row, clock) for row in rows if row.device_type.name.lower() == device}
    dearest = sorted(times, key=times.__getitem__, reverse=True)[:KERNELS]
    return {name[:NAME]: round(times[name] / sum(times.values()), 3) for name in dearest}


def run_apart(
    side: str,
    size: str,
    length: int,
    sequences: int,
    device: str,
    architecture: str = "bert",
    precision: Precision = "auto",
    text: str = "real",
) -> dict[str, float]:
    program = [sys.executable, "-m", "benchmarks._pretrain_sides", side, size, str(length), str(sequences), device]
    program += [architecture, precision, text]
    done = subprocess.run(program, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def mean_flops(config: BertConfig, batches: list[Batch]) -> float:
    work = functools.reduce(Workload.__add__, (batch.flat.workload for batch in batches))
    return config.training_flops(work) / work.tokens


def verdict(result: dict[str, Any], setup: Setup, size: str) -> bool:
    # The bars are ratios, tokens per second, and less memory than each peer.
    ours = result["sides"]["ours"]
    return (
        all(result["ratios"][peer] >= bar for peer, bar in setup.times.get(size, {}).items())
        and ours["tokens_per_s"] >= setup.tokens.get((size, result["length"]), 0)
        and all(
            ours["of_training_mb"] < result["sides"][peer]["of_training_mb"]
            for peer in setup.peers
            if peer not in ASIDE
        )
    )


def summary(size: str, result: dict[str, Any]) -> str:
    lines = [f"{size}: {result['sequences']} sequences of up to {result['length']}, {result['fill']:.0%} of them real"]
    for name, row in result["sides"].items():
        on_cpu = "wall_tokens_per_s" in row
        wall = f" of CPU, {row['wall_tokens_per_s']:,.0f} by the clock" if on_cpu else ""
        memory = f", {row['of_training_mb']:,} MB" if "of_training_mb" in row else ""
        compiling = f", {row['compile_seconds']:.0f} s of compiling not in it" if row["compile_seconds"] else ""
        rate = f"{row['tokens_per_s']:>10,.0f} tokens a second{wall}"
        lines.append(f"  {name:<44} {rate}{memory}, MFU {row['mfu']:.1%}{compiling}")
    ours = result["sides"]["ours"]
    lines.append(f"  MFU is the share of {result['peak_flops'] / 1e12:,.4g} TFLOP/s ({result['peak_source']})")
    if ours["mfu"] > 1:
        lines.append("  above 100 %: something else ran while the peak was measured; measure again")
    lines.append(f"  of {PROFILED} steps of ours, by kernel (on a CPU by operator), the dearest {KERNELS}:")
    lines += [f"  {share:>6.1%}  {kernel}" for kernel, share in result["kernels"].items()]
    return "\n".join(lines)


def _length(options: argparse.Namespace, size: str) -> int:
    return options.length or LENGTHS.get(options.device, {}).get(size, 128)


def _device_name(device: str) -> str:
    return torch.cuda.get_device_name() if device == "cuda" else f"{usable_cores()} CPU cores"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pretrain_step", description=__doc__)
    parser.add_argument("--size", choices=(*SIZES, "all"), default="all")
    parser.add_argument("--device", choices=tuple(SETUPS), default="cpu")
    parser.add_argument("--architecture", choices=member_names("models"), default="bert")
    parser.add_argument("--alone", action="store_true", help="this project's side alone, on random text")
    parser.add_argument("--random", action="store_true", help="random text, beside the peers too")
    parser.add_argument("--bfloat16", action="store_true", help="both sides under autocast on a CPU too, without bars")
    parser.add_argument("--length", type=int, choices=(128, 512), help="128, but 512 for large on a GPU")
    parser.add_argument("--steps", type=int, default=20, help=f"timed steps, after {WARM_UP} of warm-up")
    return parser


if __name__ == "__main__":
    main()
