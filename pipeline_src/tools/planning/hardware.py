"""Machines a study may run on, as a plan knows them."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline_src.common.errors import PipelineError
from pipeline_src.training.datasheet import DATASHEET, PCIE_4, Chip

CPU = "cpu"
KNOWN = ("B200", "H200", "H100", "A100", "MI300X", "L40S", "A10", "L4", "RTX 4090", "RTX 3090")
CHIPS = {  # by what the command line calls them
    name.replace(" ", "").lower(): DATASHEET[name] for name in KNOWN
}
CHOICES = (CPU, *CHIPS)
BALANCE = 300  # FLOP a byte of memory: of chips whose memory is not known; H100's is 295
CORES_OF_A_JOB = 4  # as the table in workflow/Snakefile asks for


@dataclass(frozen=True)
class Allocation:
    """What one job has to itself.

    Attributes:
        cores: of the CPU.
        gpus: together on one training; 0 trains on the CPU.
        peak: FLOP/s of one GPU.
        memory, link: of it, bytes a second; as :class:`pipeline_src.training.datasheet.Chip` has them, 0 where they
            are not known.
        sharding: what is spread over the GPUs, as machine.yaml has it.
    """

    cores: int
    gpus: int = 0
    peak: float = 0.0
    memory: float = 0.0
    link: float = 0.0
    sharding: str = "none"

    @classmethod
    def on(cls, chip: Chip, cores: int, gpus: int, sharding: str = "none") -> Allocation:
        """So many of one kind of GPU."""
        return cls(cores, gpus, chip.teraflops * 1e12, chip.memory * 1e9, chip.link * 1e9, sharding)

    @property
    def chip(self) -> Chip:
        """The kind of GPU."""
        memory = self.memory or self.peak / BALANCE
        return Chip(self.peak / 1e12, memory / 1e9, self.link / 1e9 or PCIE_4)


@dataclass(frozen=True)
class Hardware:
    """All that a study has.

    Attributes:
        name: ``cpu`` or a key of :data:`CHIPS`.
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
            raise PipelineError("a CPU has no GPUs", gpus, where="--gpus", remedy=f"--hardware {', '.join(CHIPS)}")
        if cores < 1 or (name != CPU and gpus < 1):
            raise PipelineError("nothing to run on", min(cores, gpus), where="--cores, --gpus", remedy="1 or more")
        return cls(name, cores, gpus)

    def on_cores(self, wanted: int = CORES_OF_A_JOB) -> tuple[Allocation, int]:
        """Allocation of one job on the CPU that can use ``wanted`` cores, and how many such jobs run at once."""
        cores = min(wanted, self.cores)
        return Allocation(cores), max(1, self.cores // cores)

    def training(self, threads: int, together: bool, sharding: str = "none") -> tuple[Allocation, int]:
        """Allocation of one training, and how many run at once: one ``together`` on every GPU, else one a GPU."""
        if not self.gpus:
            return self.on_cores(threads) if not together else (self.on_cores(threads)[0], 1)
        chip = CHIPS[self.name]
        return (
            (Allocation.on(chip, self.cores, self.gpus, sharding), 1)
            if together
            else (Allocation.on(chip, threads, 1), self.gpus)
        )
