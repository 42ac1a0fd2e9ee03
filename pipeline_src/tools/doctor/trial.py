"""All that ``doctor --gpu`` tries, in the order in which one thing rests on another."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from pipeline_src.tools.doctor import accelerator as what_is_here
from pipeline_src.tools.doctor import kernels, processes, rates
from pipeline_src.tools.doctor.accelerator import Accelerator
from pipeline_src.tools.doctor.finding import PROBLEM, Finding


def run(accelerator: Accelerator) -> list[Finding]:
    """Every check; where a kernel does not run, nothing is timed."""
    findings = [check(accelerator) for check in (what_is_here.versions, what_is_here.devices)]
    tried = (kernels.product, kernels.attention_kernel, kernels.optimiser, kernels.compiler)
    findings += [check(accelerator) for check in tried]
    if not any(finding.state == PROBLEM for finding in findings):
        torch.set_num_threads(accelerator.machine.pretrain.threads)
        findings += _rates(accelerator)
    return findings


def _rates(accelerator: Accelerator) -> Iterator[Finding]:
    gpus = max(1, torch.cuda.device_count())
    yield from rates.products(accelerator)
    yield rates.memory_rate(accelerator)
    yield from rates.attention_rates(accelerator)
    yield processes.over_processes(accelerator)
    yield rates.loader(accelerator, gpus)
    yield rates.disk_rate(accelerator)
    yield rates.gpu_memory(accelerator)
    yield rates.step(accelerator, gpus)
