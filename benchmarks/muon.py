"""Muon against AdamW at the sample's size: CPU-seconds to the same loss on held-out text.

``python -m benchmarks.muon`` wants the sample study's corpus (``make study`` makes it) in ``--study FOLDER``. Muon
takes ``--steps`` steps by the sample's recipe, with a schedule of its own. AdamW gets as much CPU time and as much
again, at each of several learning rates, each with its own schedule too; all else is the same. Where no rate reaches
Muon's loss, Muon takes less than half of the time.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as the stages do; read when torch is imported

import torch
import yaml

from benchmarks.measure import cpu_seconds
from pipeline_src.params.pretrain import PretrainParams, Steps
from pipeline_src.params.study import Study
from pipeline_src.pretraining.phase import Phase
from pipeline_src.pretraining.prepare import prepare
from pipeline_src.training import checkpoint
from pipeline_src.training.distributed import Distributed
from pipeline_src.training.stop_request import StopRequest

SAMPLE = Path("workflow/presets/sample.yaml").absolute()
RATES = (0.001, 0.002, 0.004)  # of AdamW
TARGET = 0.5  # of AdamW's CPU time
EVERY = 100  # steps between measurements


class Measured(NamedTuple):
    """What a training had taken and reached when held-out text was measured."""

    step: int
    seconds: float
    loss: float


def main(arguments: Sequence[str] | None = None) -> None:
    """Train on every side; print its curve, then one line of JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.muon", description=__doc__)
    parser.add_argument("--study", type=Path, default=Path(), help="where data/examples of the sample study is")
    parser.add_argument("--steps", type=int, default=1_500, help="of Muon")
    asked = parser.parse_args(arguments)
    torch.set_num_threads(1)
    study = Study(**yaml.safe_load(SAMPLE.read_text(encoding="utf-8")))
    with contextlib.chdir(asked.study):
        ours = curve(study, study.pretrain, asked.steps)
        _show("muon", ours)
        aim = min(row.loss for row in ours)
        spent = next(row.seconds for row in ours if row.loss == aim)
        reached = {}
        for rate in RATES:
            adamw = study.pretrain.model_copy(update={"optimiser": "adamw", "learning_rate": rate})
            pace = ours[-1].seconds / ours[-1].step
            rows = curve(study, adamw, round(spent / TARGET / pace))
            _show(f"adamw {rate:g}", rows)
            reached[rate] = next((row.seconds for row in rows if row.loss <= aim), None)
    found = [seconds for seconds in reached.values() if seconds is not None]
    print(
        json.dumps(
            {
                "name": "muon",
                "loss": round(aim, 4),
                "seconds": round(spent, 1),
                "adamw_seconds": {str(rate): seconds for rate, seconds in reached.items()},
                "ratio": round(spent / min(found), 3) if found else f"below {TARGET}",
                "target": TARGET,
                "met": not found or spent / min(found) <= TARGET,
            }
        )
    )


def curve(study: Study, pretrain: PretrainParams, steps: int) -> list[Measured]:
    """Held-out loss at [MASK] by CPU-seconds of the steps alone, of ``steps`` steps of the short phase."""
    pretrain = pretrain.model_copy(update={"steps": Steps(short=steps, long=0), "keep_steps": ()})
    with tempfile.TemporaryDirectory() as folder:
        checkpoint.ROOT = Path(folder)  # nothing is gone on with
        return list(_measured(Phase("short", study.seed, study.mask_prob, study.model, pretrain)))


def _measured(phase: Phase) -> Iterator[Measured]:
    training = prepare(phase, Distributed(0, 1, torch.device("cpu")), StopRequest())
    spent, began = 0.0, cpu_seconds()
    for step in training.loop.run(training.batches()):
        if step % EVERY == 0 or step == phase.last:
            spent += cpu_seconds() - began
            yield Measured(step, spent, training.validation.measure(training.objective)["mask_loss"])
            began = cpu_seconds()


def _show(name: str, rows: Sequence[Measured]) -> None:
    print(f"{name}: " + ", ".join(f"{row.step} steps {row.seconds:.0f} s {row.loss:.3f}" for row in rows), flush=True)


if __name__ == "__main__":
    main()
