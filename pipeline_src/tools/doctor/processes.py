"""Whether processes can sum over GPUs, and how fast: each is one of its own, so that a hang is noticed."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import torch

from pipeline_src.tools.doctor.accelerator import Accelerator
from pipeline_src.tools.doctor.finding import OK, PROBLEM, Finding
from pipeline_src.tools.doctor.rates import beside
from pipeline_src.tools.planning.roofline import all_reduce_time

WITHIN = 60  # seconds, the processes' start included
PROCESSES = 2  # of a machine without a GPU
REMEDY = (
    "`nvidia-smi topo -m` shows how the GPUs are joined, NCCL_DEBUG=INFO which way NCCL takes; NCCL_P2P_DISABLE=1 and "
    "NCCL_IB_DISABLE=1 rule one out"
)


def over_processes(accelerator: Accelerator) -> Finding:
    """NCCL between the GPUs of this machine, gloo between two processes without one; each a process of its own."""
    count = torch.cuda.device_count() if accelerator.on_gpu else PROCESSES
    if count == 1:
        return Finding("all-reduce", OK, "one GPU: nothing to sum over")
    processes = _start(count)
    end = time.monotonic() + WITHIN
    try:
        said = [process.communicate(timeout=max(0.1, end - time.monotonic())) for process in processes]
    except subprocess.TimeoutExpired:
        return Finding("all-reduce", PROBLEM, f"{count} processes: no answer in {WITHIN} s", REMEDY)
    finally:
        for process in processes:
            process.kill()
            process.wait()
    failed = [error for process, (_, error) in zip(processes, said, strict=True) if process.returncode]
    if failed:
        last = failed[0].strip().splitlines()[-1:] or ["no message"]
        return Finding("all-reduce", PROBLEM, f"{count} processes: {last[0][:200]}", REMEDY)
    took = json.loads(said[0][0].splitlines()[-1])
    what = f"{took['backend']}, {count} processes, {took['bytes'] / 1e6:.0f} MB, bus bandwidth"
    expected = None
    if accelerator.chip is not None:
        size = took["bytes"]
        expected = 2 * (count - 1) / count * size / all_reduce_time(accelerator.chip, count, size)
    return beside("all-reduce", what, took["bus"], "B/s", expected, REMEDY)


def _start(count: int) -> list[subprocess.Popen[str]]:
    with socket.socket() as asked:
        asked.bind(("127.0.0.1", 0))
        port = asked.getsockname()[1]
    root = Path(__file__).resolve().parents[3]
    common = {**os.environ, "PYTHONPATH": str(root), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    return [
        subprocess.Popen(
            [sys.executable, "-m", "pipeline_src.tools.doctor.all_reduce"], text=True,
            env={**common, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count)},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for rank in range(count)
    ]  # fmt: skip
