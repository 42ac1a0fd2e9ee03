"""What training takes: arithmetic by formula, counted from the batches themselves."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

from pipeline_src.models.flops import Workload


class Sizes(Protocol):
    """Whatever counts its own arithmetic; :class:`pipeline_src.models.bert.BertConfig` does."""

    def training_flops(self, work: Workload) -> int: ...  # noqa: D102


def normalised_computation(parameters: float, steps: int, tokens_per_batch: int) -> float:
    """Parameters x steps x tokens per batch: a measure of training that no hardware enters.

    Published for BERT are 1.408e19 (base: 110 M parameters) and 4.352e19 (large: 340 M), from 1 M steps and the
    "128,000 tokens/batch" of appendix A.2: every step counts at length 512, the 900,000 at length 128 too.

    Args:
        parameters: of the model.
        steps: of the optimiser.
        tokens_per_batch: token slots of a batch, sequences x longest length.
    """
    return parameters * steps * tokens_per_batch


@dataclass(frozen=True)
class Compute:
    """What a phase has taken so far. Steps and work depend on parameters and data alone, the others on the machine.

    Attributes:
        steps: optimiser steps.
        work: of all of them.
        seconds: wall time in the loop, over all sessions of a run that was stopped and went on.
        training_seconds: of these, without measuring validation text, saving, and the steps in which torch compiled.
        capacity: what the hardware at its peak would have computed in ``training_seconds``, in FLOPs.
        joules: energy, where it could be read in every session, else None.
        peak_memory: bytes.
        compile_steps, compile_seconds: steps in which torch compiled, and how long they took.
        compile_work: of their batches.
    """

    steps: int = 0
    work: Workload = Workload()
    seconds: float = 0.0
    training_seconds: float = 0.0
    capacity: float = 0.0
    joules: float | None = 0.0
    peak_memory: int = 0
    compile_steps: int = 0
    compile_seconds: float = 0.0
    compile_work: Workload = Workload()

    def plus_step(self, work: Workload) -> Compute:
        """With one more step."""
        return replace(self, steps=self.steps + 1, work=self.work + work)

    def flops(self, sizes: Sizes) -> int:
        """Floating-point operations of the matrix products so far, as ``sizes`` counts them."""
        return sizes.training_flops(self.work)

    def steady_flops(self, sizes: Sizes) -> int:
        """Of :meth:`flops` those of steps in which nothing was compiled, which ``training_seconds`` are of."""
        return sizes.training_flops(self.work - self.compile_work)

    @property
    def steady_tokens(self) -> int:
        """Real tokens of these steps."""
        return self.work.tokens - self.compile_work.tokens

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for a checkpoint."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Compute:
        """What :meth:`as_dict` wrote."""
        work, compiled = Workload(*values["work"]), Workload(*values["compile_work"])
        return cls(**{**values, "work": work, "compile_work": compiled})
