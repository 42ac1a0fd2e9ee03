"""machine.yaml: how the study runs on this machine. No stage depends on it, and no checkpoint is known by it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from pipeline_src.params.base import Block
from pipeline_src.params.reading import check_block, read_yaml

MACHINE = Path("machine.yaml")
Compile = bool | Literal["auto"]
Precision = Literal["auto", "float32", "bfloat16"]
Device = Literal["auto", "cpu", "mps"]


class TrainingMachine(Block):
    """How one kind of training runs.

    Attributes:
        threads: CPU threads of one process.
        max_tokens: most tokens that go through the model at once on one process; a batch is cut into as many pieces as
            it takes, and its losses are divided by the counts of the whole batch.
        recompute: compute activations again in the backward pass instead of keeping them: a third more work, far less
            memory.
    """

    threads: int = Field(default=1, ge=1, le=1024)
    max_tokens: int = Field(default=16_384, ge=1, le=1_000_000_000)
    recompute: bool = False


class PretrainingMachine(TrainingMachine):
    """How pretraining runs.

    Attributes:
        sharding: what is spread over the processes that train together: ``none``, the ``optimiser``'s moments and
            gradients, or weights too (``full``), for models that do not fit one device.
    """

    threads: int = Field(default=2, ge=1, le=1024)
    sharding: Literal["none", "optimiser", "full"] = "none"


class Machine(Block):
    """What fits this machine.

    Attributes:
        device: what trains: ``auto`` is a GPU that torch knows as CUDA's (NVIDIA, AMD) if there is one, else the CPU;
            ``mps`` is Apple's GPU.
        attention: how attention is computed: ``padded`` anywhere; ``runs`` of sequences of equal length on a CPU;
            ``flash`` without padding on a GPU of the Ampere generation or later. ``auto`` takes the fastest that can
            run.
        compile: let torch.compile fuse the model's parts in pretraining on a GPU; ``auto`` where enough training is
            left to earn back the time it takes.
        precision: what the model's products are computed in; weights, sums, losses and moments are float32 anyway.
            ``auto`` is bfloat16 on a GPU and float32 on a CPU, of which only some multiply bfloat16 faster, and on
            ``mps``.
        pretrain, finetune: of the two kinds of training.
    """

    device: Device = "auto"
    attention: Literal["auto", "padded", "runs", "flash"] = "auto"
    compile: Compile = "auto"
    precision: Precision = "auto"
    pretrain: PretrainingMachine = PretrainingMachine()
    finetune: TrainingMachine = TrainingMachine()

    def settings(self, training: str) -> dict[str, object]:
        """What applies to ``pretrain`` or ``finetune``, by key; checkpoints and the report name the device."""
        shared = {"attention": self.attention, "compile": self.compile, "precision": self.precision}
        return {**shared, **getattr(self, training).model_dump()}


USUAL = Machine()


def load_machine(path: str | Path = MACHINE) -> Machine:
    """Read and check machine.yaml; without the file, or without a key, the defaults hold.

    Raises:
        PipelineError: the file is not YAML, or holds an unknown key, a wrong type or a value out of range; key, value
            and what is allowed are named.
    """
    return check_block(Machine, read_yaml(path), path) if Path(path).exists() else USUAL
