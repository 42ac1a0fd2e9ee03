"""machine.yaml: settings of this machine. Changing them makes no stage or checkpoint stale."""

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
# Environment variables that select AVX2 code, which every x86-64 CPU since about 2015 supports. By default, these
# libraries choose code for the CPU they run on, so sums are computed in another order and rounded differently. The
# variables are for ATen and oneDNN (torch), OpenBLAS (NumPy, SciPy, gensim), and NumPy itself. OpenBLAS also depends on
# the number of cores.
PORTABLE = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "OPENBLAS_CORETYPE": "Haswell",
    "OPENBLAS_NUM_THREADS": "1",
    "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR",
}
# The same for MKL, which multiplies torch's matrices. An MKL_CBWR that the user has set is kept. For example,
# MKL_CBWR=COMPATIBLE gives the same bits on Intel and AMD CPUs, at half the speed.
MKL = "AVX2,STRICT"
CPUINFO = Path("/proc/cpuinfo")
# Default of the maximum number of tokens in a pretraining microbatch.
CPU_TOKENS, GPU_TOKENS = 16_384, 65_536


class TrainingMachine(Section):
    """Settings of fine-tuning, and common settings of both kinds of training.

    Attributes:
        threads: number of CPU threads per process.
        microbatch_tokens: maximum number of tokens in a microbatch. A batch is split into microbatches; the loss is
            still averaged over the whole batch. With dropout, another value draws other dropout masks, like another
            seed.
        activation_checkpointing: whether to recompute activations in the backward pass. This takes a third more
            computation and less memory.
    """

    threads: int = Field(default=1, ge=1, le=1024)
    microbatch_tokens: int = Field(default=CPU_TOKENS, ge=1, le=1_000_000_000)
    activation_checkpointing: bool = False


class PretrainingMachine(TrainingMachine):
    """Settings of pretraining.

    Attributes:
        microbatch_tokens: see ``TrainingMachine``. ``auto``: 65,536 on a CUDA GPU, else 16,384.
        fixed_capacity: whether to pad microbatches to a fixed number of tokens, so that all have the same shapes.
            ``auto``: yes on a GPU with ``flash_varlen``, for objectives and architectures that support it.
        capture: whether to replay steps of fixed capacity as CUDA graphs. ``auto``: yes on a single GPU, for models so
            small that launching their kernels takes longer than running them.
        sharding: what is sharded across the processes of distributed training, with FSDP's names. ``none``: nothing.
            ``shard_grad_op``: optimizer state and gradients. ``full_shard``: weights too, for models that do not fit
            one device.
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
        portable: whether results have the same bits on all AMD CPUs with AVX2, and the same bits on all Intel CPUs with
            AVX2 (docs/limits.md). No effect if ``precision`` is bfloat16, which needs newer CPU instructions.
        device: ``auto``: torch's CUDA device (NVIDIA, AMD) if there is one, else the CPU. ``mps``: Apple's GPU.
        attention: implementation of attention. ``padded`` runs anywhere. ``length_grouped`` batches sequences of equal
            length, on a CPU. ``flash_varlen`` needs no padding, on an NVIDIA GPU of the Ampere generation or later.
            ``auto``: the fastest that this machine supports.
        compile: whether to use torch.compile in pretraining on a GPU. ``auto``: yes if compiling takes less time than
            it saves.
        precision: dtype of matrix multiplications. Weights, sums, losses and optimizer state are always float32.
            ``auto``: bfloat16 on an NVIDIA GPU of the Ampere generation or later, else float32.
        tracking: experiment trackers that get the loss curves. All except ``dvclive`` must be installed first.
        beam_args: arguments of Beam's ``PipelineOptions``, such as ``--runner=...``, for the stages ``clean``
            (Wikipedia) and ``tokenize``. Without a runner, Beam uses processes on this machine. Workers
            on other machines must see the study's folder.
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
        """Return the settings that may change rounding or dropout.

        Args:
            training: ``pretrain`` or ``finetune``.
        """
        settings = self.model_dump(exclude={"device", "tracking", "beam_args"})
        sections = {name: settings.pop(name) for name in ("pretrain", "finetune")}
        return settings | sections[training]

    def choose_code_paths(self) -> None:
        """Set the environment variables of ``PORTABLE`` if ``portable`` is true.

        Call this before NumPy or torch is imported, since they read the variables at import.
        """
        # The variables exist only for x86. Arm CPUs give other bits anyway.
        is_x86 = platform.machine() in ("x86_64", "AMD64")
        if not (self.portable and is_x86) or self.precision == "bfloat16":
            return
        if CPUINFO.exists() and "avx2" not in CPUINFO.read_text(encoding="utf-8").split():
            log.warning("this CPU has no AVX2, so results differ from those of other CPUs in the last bits")
            return
        os.environ.setdefault("MKL_CBWR", MKL)
        os.environ.update(PORTABLE)


DEFAULT_MACHINE = Machine()


def load_machine(path: str | Path = MACHINE) -> Machine:
    machine = check_block(Machine, read_yaml(path), path) if Path(path).exists() else DEFAULT_MACHINE
    for name in machine.tracking:
        # find_spec also finds a mere folder with this name (such as wandb/), but its spec has no origin.
        if name != "dvclive" and getattr(find_spec(name), "origin", None) is None:
            hint = f"run `pip install {name}`, or remove it from `tracking`"
            raise PipelineError("experiment tracker is not installed", name, where=f"{path}, tracking", hint=hint)
    return machine
