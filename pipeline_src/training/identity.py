"""By what checkpoints are known: the values that decide a result, and how two sets of them differ."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from pipeline_src.training.distributed import Distributed


def fingerprint(identity: Mapping[str, Any]) -> str:
    """Twelve characters that stand for the values."""
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:12]


def difference(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """What differs between two identities: ``pretrain.batch 32 there, 64 here``."""
    before, now = dict(_flat(there)), dict(_flat(here))
    return "; ".join(
        f"{name} {before.get(name, 'not set')} there, {now.get(name, 'not set')} here"
        for name in sorted({*before, *now})
        if before.get(name, "not set") != now.get(name, "not set")
    )


def environment(distributed: Distributed, settings: Mapping[str, Any]) -> dict[str, Any]:
    """What decides how sums are rounded, but no more: under another one the same training goes on.

    Args:
        distributed: on which processes.
        settings: of machine.yaml.
    """
    device = distributed.device
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type.upper()
    return {"torch": torch.__version__, "processes": distributed.world_size, "device": name, **settings}


def _flat(values: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value
