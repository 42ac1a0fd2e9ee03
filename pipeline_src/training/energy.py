"""Energy, where the machine lets it be read: NVML for a GPU, RAPL for a CPU. Never an error, at worst None."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

POWERCAP = Path("/sys/class/powercap")


@dataclass(frozen=True)
class Counter:
    """A running total of joules that starts again from 0 at ``wraps_at``; 0 where it never does."""

    read: Callable[[], float]
    wraps_at: float


class EnergyCounter:
    """Joules since it was made.

    A GPU's are its own alone, by NVML (optional package ``nvidia-ml-py``; Volta and later), the CPU beside it not
    counted. A CPU's are of all its packages and their memory, whoever uses them, by RAPL, which most systems let the
    administrator alone read. RAPL's totals start again every half an hour or so under load: ask more often than that.

    Args:
        device: what trains.
        powercap: where the kernel shows RAPL.
    """

    def __init__(self, device: torch.device, powercap: Path = POWERCAP) -> None:
        self._joules = 0.0
        try:
            self._counters = _nvml(device) if device.type == "cuda" else _rapl(powercap)
            self._last = [counter.read() for counter in self._counters]
        except Exception:  # no package, no driver, no permission: energy is a courtesy
            self._counters, self._last = [], []

    def joules(self) -> float | None:
        """Joules so far; None where they cannot be read."""
        try:
            now = [counter.read() for counter in self._counters]
        except Exception:
            self._counters = []
        if not self._counters:
            return None
        for counter, before, after in zip(self._counters, self._last, now, strict=True):
            self._joules += max(0.0, after - before if after >= before else after - before + counter.wraps_at)
        self._last = now
        return self._joules


def _rapl(powercap: Path) -> list[Counter]:
    """Packages and their memory; `core` and `uncore` lie within a package, `psys` around all of them."""

    def reader(path: Path) -> Callable[[], float]:
        return lambda: int(path.read_text()) / 1e6

    zones = [
        zone
        for zone in sorted(powercap.glob("intel-rapl:*"))  # so called on AMD too
        if (name := (zone / "name").read_text().strip()).startswith("package") or name == "dram"
    ]
    return [
        Counter(reader(zone / "energy_uj"), int((zone / "max_energy_range_uj").read_text()) / 1e6) for zone in zones
    ]


def _nvml(device: torch.device) -> list[Counter]:
    import pynvml  # type: ignore[import-not-found]

    pynvml.nvmlInit()
    # By UUID: NVML knows nothing of CUDA_VISIBLE_DEVICES, which renumbers.
    handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{torch.cuda.get_device_properties(device).uuid}")
    return [Counter(lambda: pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1e3, 0.0)]
