"""machine.yaml: how the study runs on this machine. No stage or checkpoint depends on it."""

from __future__ import annotations

import os
import platform
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.progress import log
from pipeline_src.study.reading import check_block, read_yaml
from pipeline_src.study.schema import ListedOnce, Section

MACHINE = Path("machine.yaml")
Switch = bool | Literal["auto"]
Precision = Literal["auto", "float32", "bfloat16"]
Device = Literal["auto", "cpu", "mps"]
TrackerName = Literal["dvclive", "tensorboard", "wandb"]
# Code paths that every x86-64 CPU since 2015 has. By default these libraries choose by CPU, and so sum in another
# order: ATen and oneDNN (torch), OpenBLAS (NumPy, SciPy, gensim; also by number of cores), NumPy.
PORTABLE = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "OPENBLAS_CORETYPE": "Haswell",
    "OPENBLAS_NUM_THREADS": "1",
    "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR",
}
# The code path of MKL, which multiplies torch's matrices. An MKL_CBWR that is already set is kept: COMPATIBLE gives
# the CPUs of Intel and AMD the same bits, at half the speed.
MKL = "AVX2,STRICT"
CPUINFO = Path("/proc/cpuinfo")
# Maximum tokens of a microbatch of pretraining.
CPU_TOKENS, GPU_TOKENS = 16_384, 65_536


class TrainingMachine(Section):
    """Settings of one kind of training.

    Attributes:
        threads: CPU threads of one process.
        microbatch_tokens: maximum tokens of a microbatch, a part of a batch; losses are divided by the batch's counts.
            With dropout, another number draws other masks, as another seed would.
        activation_checkpointing: whether to recompute activations in the backward pass: a third more work, less memory.
    """

    threads: int = Field(default=1, ge=1, le=1024)
    microbatch_tokens: int = Field(default=CPU_TOKENS, ge=1, le=1_000_000_000)
    activation_checkpointing: bool = False


class PretrainingMachine(TrainingMachine):
    """Settings of pretraining.

    Attributes:
        microbatch_tokens: see ``TrainingMachine``; ``auto`` is 65,536 on a CUDA GPU, else 16,384.
        fixed_capacity: whether to fill microbatches up to a fixed number of tokens, so that all have the same shapes;
            ``auto``: on a GPU with ``flash_varlen``, for objectives and architectures that support it.
        capture: whether to replay steps of fixed capacity as CUDA graphs; ``auto``: on a single GPU, for models so
            small that launching their kernels takes longer than running them.
        sharding: what is divided among the processes that train together: ``none``; ``shard_grad_op``: the optimizer's
            moments and gradients; ``full_shard``: weights too, for models that do not fit one device.
    """

    threads: int = Field(default=2, ge=1, le=1024)
    microbatch_tokens: Annotated[int, Field(ge=1, le=1_000_000_000)] | Literal["auto"] = "auto"  # type: ignore[assignment]
    fixed_capacity: Switch = "auto"
    capture: Switch = "auto"
    sharding: Literal["none", "shard_grad_op", "full_shard"] = "none"

    def max_tokens(self, device_type: str) -> int:
        if self.microbatch_tokens == "auto":
            return GPU_TOKENS if device_type == "cuda" else CPU_TOKENS
        return self.microbatch_tokens


class Machine(Section):
    """Settings for this machine.

    Attributes:
        portable: whether to compute the same bits on all AMD CPUs with AVX2, and the same bits on all Intel CPUs with
            AVX2 (docs/limits.md). No effect if ``precision`` is bfloat16, for which a CPU takes later instructions.
        device: ``auto`` is torch's CUDA device (NVIDIA, AMD) if there is one, else the CPU; ``mps`` is Apple's GPU.
        attention: implementation of attention: ``padded`` runs anywhere; ``length_grouped`` takes sequences of equal
            length together, on a CPU; ``flash_varlen`` has no padding, on a GPU of the Ampere generation or later;
            ``auto`` is the fastest of the three here.
        compile: whether to use torch.compile in pretraining on a GPU; ``auto``: if it saves more time than it takes.
        precision: dtype of matrix multiplications; weights, sums, losses and moments are always float32. ``auto`` is
            bfloat16 on an NVIDIA GPU from the Ampere generation on, else float32.
        tracking: where pretraining sends its curve; each but ``dvclive`` is a package to install.
        beam_args: arguments of Beam's ``PipelineOptions``, for the cleaning of a Wikipedia and for ``tokenize``, such
            as ``--runner=...``; without a runner, processes of this machine work. Workers must see the study's folder.
        pretrain, finetune: settings of the two kinds of training.
    """

    portable: bool = True
    device: Device = "auto"
    attention: Literal["auto", "padded", "length_grouped", "flash_varlen"] = "auto"
    compile: Switch = "auto"
    precision: Precision = "auto"
    tracking: Annotated[tuple[TrackerName, ...], ListedOnce] = ("dvclive",)
    beam_args: tuple[str, ...] = ()
    pretrain: PretrainingMachine = PretrainingMachine()
    finetune: TrainingMachine = TrainingMachine()

    def settings(self, training: str) -> dict[str, object]:
        """Return the settings that may change rounding and dropout, by key, of ``pretrain`` or ``finetune``."""
        settings = self.model_dump(exclude={"device", "tracking", "beam_args"})
        sections = {name: settings.pop(name) for name in ("pretrain", "finetune")}
        return settings | sections[training]

    def choose_code_paths(self) -> None:
        """Set the variables of ``PORTABLE``, if ``portable``; to be called before NumPy and torch are imported."""
        # An Arm CPU computes other bits.
        is_x86 = platform.machine() in ("x86_64", "AMD64")
        if not (self.portable and is_x86) or self.precision == "bfloat16":
            return
        if CPUINFO.exists() and "avx2" not in CPUINFO.read_text(encoding="utf-8").split():
            log.warning("this CPU has no AVX2: the last bits of results differ from other CPUs'")
            return
        os.environ.setdefault("MKL_CBWR", MKL)
        os.environ.update(PORTABLE)


DEFAULT_MACHINE = Machine()


def load_machine(path: str | Path = MACHINE) -> Machine:
    machine = check_block(Machine, read_yaml(path), path) if Path(path).exists() else DEFAULT_MACHINE
    for name in machine.tracking:
        # The spec of a folder of that name has no origin.
        if name != "dvclive" and getattr(find_spec(name), "origin", None) is None:
            hint = f"`pip install {name}`, or take it out of the list"
            raise PipelineError("a tracker is not installed", name, where=f"{path}, tracking", hint=hint)
    return machine
