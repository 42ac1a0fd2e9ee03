"""Whether torch.compile pays for itself in what is left of a phase."""

from __future__ import annotations

import os
import shutil

from pipeline_src.common.progress import log
from pipeline_src.params.machine import Compile

COMPILING = 60.0  # seconds that compiling takes, about
EARNED_BACK = 300  # seconds of training, of which the compiler saves a fifth or more
UTILISATION = 0.25  # of its peak that a GPU reaches without the compiler, at most


def uncompiled_seconds(flops_left: float, peak: float) -> float:
    """At least what is left of training takes without the compiler, by its FLOPs and the peak of all GPUs together."""
    return flops_left / (UTILISATION * peak)


def choose_compile(wanted: Compile, flops_left: float, peak: float) -> bool:
    """Whether to compile: what machine.yaml says, or with ``auto`` whether it is earned back; a line of log says so.

    ``auto`` compiles where what is left would take the GPUs over five minutes without, if they reached a quarter of
    their peak, and where Triton, which makes the kernels, finds the C compiler that it needs.

    Args:
        wanted: the key ``compile`` of machine.yaml.
        flops_left: of this phase, by formula.
        peak: FLOP/s of all GPUs together.
    """
    if wanted != "auto":
        return wanted
    seconds = uncompiled_seconds(flops_left, peak)
    if seconds < EARNED_BACK:
        log.info("not compiled: some %.0f seconds of training are left, too few to earn the compiler's back", seconds)
        return False
    if not (os.environ.get("CC") or shutil.which("clang") or shutil.which("gcc")):
        log.info("not compiled: there is no C compiler here; with gcc or clang training would be faster")
        return False
    log.info("compiled: the first step of each kind takes up to a minute")
    return True
