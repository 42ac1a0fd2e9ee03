"""Machines a study may run on, as a plan knows them."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline_src.common.errors import PipelineError
from pipeline_src.training.peak_flops import DATASHEET

CPU = "cpu"
KNOWN = ("B200", "H200", "H100", "A100", "MI300X", "L40S", "A10", "L4", "RTX 4090", "RTX 3090")
PEAKS = {  # FLOP/s, dense bfloat16, by what the command line calls it
    name.replace(" ", "").lower(): DATASHEET[name] * 1e12 for name in KNOWN
}
CHOICES = (CPU, *PEAKS)
CORES_OF_A_JOB = 4  # as the rules of workflow/rules/corpus.smk ask for


@dataclass(frozen=True)
class Allocation:
    """What one job has to itself.

    Attributes:
        cores: of the CPU.
        gpus: together on one training; 0 trains on the CPU.
        peak: FLOP/s of one GPU.
    """

    cores: int
    gpus: int = 0
    peak: float = 0.0


@dataclass(frozen=True)
class Hardware:
    """All that a study has.

    Attributes:
        name: ``cpu`` or a key of :data:`PEAKS`.
        cores: of the CPU, on all machines together.
        gpus: of that kind; 0 for ``cpu``.
    """

    name: str
    cores: int
    gpus: int

    @classmethod
    def of(cls, name: str, cores: int, gpus: int | None) -> Hardware:
        """From the command line; one GPU where none is counted.

        Raises:
            PipelineError: a CPU with GPUs, or nothing to run on.
        """
        gpus = (0 if name == CPU else 1) if gpus is None else gpus
        if name == CPU and gpus:
            raise PipelineError("a CPU has no GPUs", gpus, where="--gpus", remedy=f"--hardware {', '.join(PEAKS)}")
        if cores < 1 or (name != CPU and gpus < 1):
            raise PipelineError("nothing to run on", min(cores, gpus), where="--cores, --gpus", remedy="1 or more")
        return cls(name, cores, gpus)

    @property
    def peak(self) -> float:
        """FLOP/s of one GPU; 0 for a CPU, whose speed is not counted from a peak."""
        return 0.0 if self.name == CPU else PEAKS[self.name]

    def on_cores(self, wanted: int = CORES_OF_A_JOB) -> tuple[Allocation, int]:
        """Allocation of one job on the CPU that can use ``wanted`` cores, and how many such jobs run at once."""
        cores = min(wanted, self.cores)
        return Allocation(cores), max(1, self.cores // cores)

    def training(self, threads: int, together: bool) -> tuple[Allocation, int]:
        """Allocation of one training, and how many run at once: one ``together`` on every GPU, else one a GPU."""
        if not self.gpus:
            return self.on_cores(threads) if not together else (self.on_cores(threads)[0], 1)
        return (
            (Allocation(self.cores, self.gpus, self.peak), 1)
            if together
            else (Allocation(threads, 1, self.peak), self.gpus)
        )
