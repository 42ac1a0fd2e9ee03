"""How fast the parts of a training step are here, each beside what the roofline model expects of it."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import torch

from pipeline_src.models.attention import attention
from pipeline_src.models.packed_layout import PackedLayout
from pipeline_src.pretraining.loading.batches import Cut
from pipeline_src.pretraining.tensor_batch import tensor_batches
from pipeline_src.tools.doctor import needs
from pipeline_src.tools.doctor.accelerator import Accelerator
from pipeline_src.tools.doctor.finding import OK, WARNING, Finding
from pipeline_src.tools.doctor.loader import loader_examples
from pipeline_src.tools.planning.roofline import MEMORY, attention_rate, product_rate
from pipeline_src.tools.planning.table import amount
from pipeline_src.training.transfer import transfer

ENOUGH = 0.75  # of what is expected: less is a warning
WIDE = 8192  # rows and columns of a product as large as datasheets have in mind
COPIED = 1 << 30, 1 << 25  # bytes, on a GPU and on a CPU
LOADED = 64  # batches, or as many as take so many seconds
LOADING = 2.0
AHEAD = 1.5  # times what the GPU consumes that the loader is to give
WRITTEN = 1 << 28, 1 << 24  # bytes, where a GPU trains and where none does
LONGEST = 60  # seconds for a checkpoint, of which one is written every ten minutes
CLOCKS = "see `nvidia-smi -q -d CLOCK,POWER,PERFORMANCE`: a low power limit, heat, or another job on this GPU"


def products(accelerator: Accelerator) -> list[Finding]:
    """Of matrices as large as datasheets have in mind, and of the study's feed-forward layer."""
    width, inner = accelerator.config.hidden_size, accelerator.config.intermediate_size
    wide = WIDE if accelerator.on_gpu else 1024
    shapes = {"product rate": (wide, wide, wide), "feed-forward": (accelerator.rows, width, inner)}
    findings = []
    for check, (rows, inputs, outputs) in shapes.items():
        left = torch.randn(rows, inputs, device=accelerator.device, dtype=accelerator.dtype)
        right = torch.randn(inputs, outputs, device=accelerator.device, dtype=accelerator.dtype)
        seconds = accelerator.seconds_of(lambda left=left, right=right: left @ right)  # type: ignore[misc]
        expected = accelerator.chip and product_rate(accelerator.chip, inputs, outputs)
        what = f"{rows} x {inputs} x {outputs}, {str(accelerator.dtype).removeprefix('torch.')}"
        findings.append(beside(check, what, 2 * rows * inputs * outputs / seconds, "FLOP/s", expected, CLOCKS))
    return findings


def memory_rate(accelerator: Accelerator) -> Finding:
    """Of a copy within the device's memory."""
    size = COPIED[not accelerator.on_gpu]
    source = torch.empty(size, dtype=torch.uint8, device=accelerator.device)
    target = torch.empty_like(source)
    rate = 2 * size / accelerator.seconds_of(lambda: target.copy_(source))
    expected = accelerator.chip and MEMORY * accelerator.chip.memory * 1e9
    return beside("memory rate", "read and written", rate, "B/s", expected, CLOCKS)


def attention_rates(accelerator: Accelerator) -> list[Finding]:
    """Forward and back with the study's dropout, at the lengths of both phases."""
    config, dropout = accelerator.config, accelerator.config.attention_dropout
    heads, size = config.num_attention_heads, config.hidden_size // config.num_attention_heads
    findings = []
    for length in dict.fromkeys(accelerator.lengths):
        sequences = max(1, accelerator.rows // length)
        tokens = sequences * length
        places = torch.arange(sequences + 1, device=accelerator.device) * length
        layout = PackedLayout.of(places, tokens, length)
        shape = (3, tokens, heads, size)
        parts = torch.randn(shape, device=accelerator.device, dtype=accelerator.dtype, requires_grad=True)

        def both_ways(parts: torch.Tensor = parts, layout: PackedLayout = layout) -> None:
            q, k, v = parts.unbind()
            context = attention(q, k, v, layout, dropout, back_end=accelerator.machine.attention)
            context.backward(context.detach())

        rate = 12 * heads * size * tokens * length / accelerator.seconds_of(both_ways)
        expected = accelerator.chip and attention_rate(accelerator.chip, length)
        what = f"{accelerator.machine.attention}, {sequences} sequences of {length}, dropout {dropout:g}"
        remedy = "set attention: auto in machine.yaml; if it is, paste this into an issue"
        findings.append(beside("attention", what, rate, "FLOP/s", expected, remedy))
    return findings


def step(accelerator: Accelerator, gpus: int) -> Finding:
    """What the roofline model makes of a step of the first phase, all kernels together."""
    expected = accelerator.expected_step(gpus)
    if expected is None:
        lacks = "no GPU" if not accelerator.on_gpu else "no datasheet" if accelerator.chip is None else "no steps"
        found = f"{lacks}, so nothing is expected; `python -m pipeline_src plan` says what training takes on a CPU"
        return Finding("step", OK, found)
    work, took = expected
    tokens = work.tokens / took.seconds
    found = (
        f"{gpus} x {work.tokens:,.0f} tokens: expected are {tokens:,.0f} a second and GPU, MFU {took.mfu:.0%} "
        f"(GPU {1e3 * took.gpu:.1f} ms, host {1e3 * took.host:.1f} ms, gradients {1e3 * took.exposed:.1f} ms); "
        "`python -m benchmarks.pretrain_step --device cuda` measures it"
    )
    return Finding("step", OK, found)


def loader(accelerator: Accelerator, gpus: int) -> Finding:
    """Batches of the first phase, assembled, masked and on their way to the device, beside what a step consumes."""
    with tempfile.TemporaryDirectory(prefix="doctor-") as folder:
        examples, what = loader_examples(accelerator.study, Path(folder))
        size = max(1, accelerator.study.pretrain.batch // gpus)
        cut, device = Cut(accelerator.machine.pretrain.max_tokens), accelerator.device
        began, tokens = time.perf_counter(), 0
        for batch in transfer(tensor_batches(examples.batches(size, 1, 0, LOADED, cut)), device):
            tokens += sum(part.counts["tokens"] for part in batch)
            if time.perf_counter() - began > LOADING:
                break
        accelerator.wait()
        rate = tokens / (time.perf_counter() - began)
    expected = accelerator.expected_step(gpus)
    needed = expected and AHEAD * expected[0].tokens / expected[1].seconds
    found = f"{what}: {rate:,.0f} tokens/s in one thread"
    if needed is None:
        return Finding("loader", OK, found)
    found += f"; needed for each GPU {needed:,.0f}, {AHEAD:g} times what a step consumes"
    remedy = "leave a core to each process besides pretrain.threads, and keep data/ on a local disk"
    return Finding("loader", OK, found) if rate >= needed else Finding("loader", WARNING, found, remedy)


def disk_rate(accelerator: Accelerator) -> Finding:
    """Writing and reading here, beside the size of a checkpoint."""
    size = WRITTEN[not accelerator.on_gpu]
    block = os.urandom(1 << 20)
    with tempfile.TemporaryDirectory(prefix=".doctor-", dir=".") as folder:
        path = Path(folder, "file")
        began = time.perf_counter()
        with open(path, "wb") as file:
            for _ in range(size >> 20):
                file.write(block)
            file.flush()
            os.fsync(file.fileno())
        written = size / (time.perf_counter() - began)
        with open(path, "rb") as file:
            if hasattr(os, "posix_fadvise"):  # macOS has none: there the file may come from memory
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)  # else it would be read from memory
            began = time.perf_counter()
            while file.read(1 << 20):
                pass
        read = size / (time.perf_counter() - began)
    checkpoint = needs.checkpoint(accelerator.study)
    seconds = checkpoint / written
    found = (
        f"writes {written / 1e6:,.0f} MB/s, reads {read / 1e6:,.0f}; a checkpoint of {amount(checkpoint, 'B')} takes "
        f"{max(seconds, 0.1):.1f} s{' at most' * (seconds < 0.1)}"
    )
    remedy = "move the checkout to a faster disk, or set PIPELINE_CHECKPOINT_MINUTES higher"
    return Finding("disk rate", OK, found) if seconds <= LONGEST else Finding("disk rate", WARNING, found, remedy)


def gpu_memory(accelerator: Accelerator) -> Finding:
    """What is free on the GPU, beside what a step takes at most."""
    if not accelerator.on_gpu:
        return Finding("gpu memory", OK, "no GPU, so none to look at")
    free, whole = torch.cuda.mem_get_info(accelerator.device)
    wanted = needs.gpu_memory(accelerator.study, accelerator.machine, torch.cuda.device_count())
    tokens = accelerator.machine.pretrain.max_tokens
    found = (
        f"{free / 2**30:.1f} of {whole / 2**30:.1f} GiB free; pretraining takes about {wanted / 2**30:.1f} at "
        f"max_tokens {tokens}"
    )
    remedy = "lower pretrain.max_tokens in machine.yaml, set recompute: true, or end what else runs on this GPU"
    return Finding("gpu memory", OK, found) if free >= wanted else Finding("gpu memory", WARNING, found, remedy)


def beside(check: str, what: str, rate: float, unit: str, expected: float | None, remedy: str) -> Finding:
    """A rate, and where one is expected its share of it."""
    found = f"{what}: {amount(rate, unit)}"
    if expected is None:
        return Finding(check, OK, found)
    found += f"; expected {amount(expected, unit)}, this is {rate / expected:.0%}"
    return Finding(check, OK, found) if rate >= ENOUGH * expected else Finding(check, WARNING, found, remedy)
