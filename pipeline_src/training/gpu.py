"""Decisions that make training fast on a GPU."""

from __future__ import annotations

import os
import shutil

from pipeline_src.common.progress import log
from pipeline_src.config.machine import Compile

COMPILE_BREAK_EVEN = 300  # seconds of training, of which compiling saves a fifth or more; it takes about 60
UTILISATION = 0.25  # upper bound of the share of its peak that a GPU reaches without the compiler


def choose_compile(setting: Compile, flops_left: float, peak: float) -> bool:
    """Decide whether to compile the model, and log why.

    With ``auto`` it is compiled if the rest of the phase would take the GPUs over five minutes at a quarter of their
    peak, and Triton, which makes the kernels, finds the C compiler that it needs.

    Args:
        setting: ``compile`` of machine.yaml.
        flops_left: of the phase, by formula.
        peak: FLOP/s of all GPUs together.
    """
    if setting != "auto":
        return setting
    seconds = flops_left / (UTILISATION * peak)
    if seconds < COMPILE_BREAK_EVEN:
        log.info("not compiled: some %.0f seconds of training are left, too few to earn the compiler's back", seconds)
        return False
    if not (os.environ.get("CC") or shutil.which("clang") or shutil.which("gcc")):
        log.info("not compiled: there is no C compiler here; with gcc or clang training would be faster")
        return False
    log.info("compiled: the first step of each kind takes up to a minute")
    return True
