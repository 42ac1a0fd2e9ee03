"""Whether a model learns in bfloat16, residual stream and all, as it does in float32: curves of the masked-word loss.

BERT-Tiny takes 2,000 steps on the same real text from the same weights, several times with other dropout: in float32,
and as a GPU trains it, in bfloat16 under autocast with what flows between the blocks in bfloat16 too. A GPU's branches
run on the CPU here. Two trainings of one precision differ by their dropout alone: how far such pairs lie apart is the
noise that pairs of both precisions are read against. Were the precision nothing, any half of the trainings could as
well be called bfloat16; the test counts the ways to do so by which the two halves lie as far apart. ``--wide`` keeps
the residual stream in float32 under autocast, as torch's own LayerNorm leaves it.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as the stages do; read when torch is imported

import numpy as np
import torch
from scipy.stats import ttest_ind
from torch import Tensor, nn

from benchmarks._pretrain_sides import WEIGHT_DECAY, config_of, ours_objective
from benchmarks._study import training_examples
from pipeline_src.models import heads
from pipeline_src.models.layer_norm import LayerNorm
from pipeline_src.models.linear_cross_entropy import aligned_scores, summed_cross_entropy
from pipeline_src.pretraining.loading.batches import Cut
from pipeline_src.pretraining.tensor_batch import TensorBatch, tensor_batches
from pipeline_src.training.distributed import Distributed
from pipeline_src.training.loop import Loop
from pipeline_src.training.optimiser import linear_schedule, make_optimiser

LENGTH, SEQUENCES, ROW = 128, 4, 100
LEARNING_RATE = 1e-3
LEVEL = 0.05  # below it chance does not explain how far both precisions lie apart
CPU = torch.device("cpu")
EXACT, NARROW, WIDE = "float32", "bfloat16", "bfloat16, float32 residual"


def main(arguments: Sequence[str] | None = None) -> None:
    """Train; print the curves, how far they lie apart, and one line of JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bfloat16", description=__doc__)
    parser.add_argument("--steps", type=int, default=2_000)
    parser.add_argument("--trainings", type=int, default=5, help="of each precision")
    parser.add_argument("--wide", action="store_true", help="beside bfloat16, with a residual stream in float32")
    parser.add_argument("--curves", type=Path, help="a JSON file: trainings that it has are not taken again")
    asked = parser.parse_args(arguments)
    kept = json.loads(asked.curves.read_text()) if asked.curves and asked.curves.exists() else {}
    precisions = (EXACT, NARROW, WIDE) if asked.wide else (EXACT, NARROW)
    curves: dict[str, list[list[float]]] = {precision: [] for precision in precisions}
    for stream in range(1, asked.trainings + 1):
        for precision, rows in curves.items():
            name = f"{precision}, dropout {stream}, {asked.steps} steps"
            if name not in kept:
                kept[name] = train(precision, stream, asked.steps)
                if asked.curves:
                    asked.curves.write_text(json.dumps(kept))
            rows.append(kept[name])
            print(f"{name:<46} " + "  ".join(f"{loss:.3f}" for loss in kept[name][4::5]), flush=True)
    found = {precision: compare(curves[EXACT], curves[precision]) for precision in precisions[1:]}
    for precision, figures in found.items():
        print(precision, json.dumps(figures, indent=2))
    met = found[NARROW]["chance"] >= LEVEL and found[NARROW]["last_quarter"]["interval"][0] <= 0
    print(json.dumps({"name": "bfloat16", "steps": asked.steps, "curves": curves, "apart": found, "met": met}))


def train(precision: str, stream: int, steps: int) -> list[float]:
    """The masked-word loss over every ``ROW`` steps of one training, whose dropout ``stream`` decides."""
    heads.linear_cross_entropy = gpu_cross_entropy  # type: ignore[attr-defined]
    config = replace(config_of("tiny"), attention="padded")  # in the precision asked for, as the flash kernel is
    objective = ours_objective(config)
    if precision == WIDE:
        for part in objective.modules():
            if isinstance(part, LayerNorm):
                part.__class__ = nn.LayerNorm
    if precision != EXACT:
        objective.forward = torch.autocast("cpu", torch.bfloat16)(objective.forward)  # type: ignore[method-assign]
    batches = training_examples(LENGTH).batches(SEQUENCES, 1, 0, steps, Cut())
    loop: Loop[TensorBatch] = Loop(
        objective,
        make_optimiser(objective, LEARNING_RATE, WEIGHT_DECAY),
        linear_schedule(LEARNING_RATE, steps // 10, steps),
        last=steps,
        row_ends=lambda step: step % ROW == 0,
        what=precision,
        stream=stream,
        distributed=Distributed(0, 1, CPU),
    )
    for _ in loop.run(tensor_batches(batches)):
        pass
    return [round(row["mlm_loss"], 5) for row in loop.rows]


def gpu_cross_entropy(hidden: Tensor, weight: Tensor, bias: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """As ``linear_cross_entropy`` goes on a GPU."""
    return summed_cross_entropy(aligned_scores(hidden, weight, bias), labels)


def compare(exact: Sequence[Sequence[float]], other: Sequence[Sequence[float]]) -> dict[str, Any]:
    """How far trainings of two precisions lie apart; number n of each has the same dropout.

    Returns:
        ``noise``, ``apart``, ``same_dropout``: distances of pairs, each the mean of absolute differences over the rows
            of both curves: pairs of one precision, float32; pairs of both precisions, with other and with the same
            dropout. ``chance``: share of all ways to halve the trainings by which the halves lie at least as far apart
            as the precisions do, by the energy distance (Szekely and Rizzo 2004). ``run``, ``last_quarter``: mean loss
            of the other precision minus that of float32, over so much of the curve, with Welch's 95 % interval.
    """
    both, half = np.array([*exact, *other]), len(exact)
    distance = np.abs(both[:, None] - both[None]).mean(2)  # [trainings, trainings]

    def energy(first: tuple[int, ...]) -> float:
        """Of these trainings from all others."""
        second = [number for number in range(len(both)) if number not in first]
        within = distance[np.ix_(first, first)].mean() + distance[np.ix_(second, second)].mean()
        return float(2 * distance[np.ix_(first, second)].mean() - within)

    across, quarter = distance[:half, half:], max(1, both.shape[1] // 4)
    halves = [energy(chosen) for chosen in combinations(range(len(both)), half)]
    return {
        "noise": _spread(distance[:half, :half][np.triu_indices(half, 1)]),
        "apart": _spread(across[np.eye(*across.shape) == 0]),
        "same_dropout": _spread(across.diagonal()),
        "chance": float(np.mean(np.array(halves) >= energy(tuple(range(half))) - 1e-12)),
        "run": _difference(both[half:].mean(1), both[:half].mean(1)),
        "last_quarter": _difference(both[half:, -quarter:].mean(1), both[:half, -quarter:].mean(1)),
    }


def _spread(distances: np.ndarray) -> dict[str, float]:
    figures = {"least": distances.min(), "mean": distances.mean(), "largest": distances.max()}
    return {name: round(float(figure), 4) for name, figure in figures.items()} | {"pairs": len(distances)}


def _difference(other: np.ndarray, exact: np.ndarray) -> dict[str, Any]:
    interval = ttest_ind(other, exact, equal_var=False).confidence_interval()
    return {
        "mean": round(float(other.mean() - exact.mean()), 4),
        "interval": [round(float(interval.low), 4), round(float(interval.high), 4)],
    }


if __name__ == "__main__":
    main()
