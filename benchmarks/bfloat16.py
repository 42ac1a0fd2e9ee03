"""Whether a narrow residual stream learns as a wide one: the masked-word loss of the same training in three precisions.

BERT-Tiny takes 2,000 steps on the same real text from the same weights: in float32; as a GPU trains it, in bfloat16
under autocast, with what flows between the blocks in bfloat16 too; and so with that in float32, as torch's own
LayerNorm leaves it. A GPU's branches run on the CPU here. The float32 training is taken again with other dropout: how
far the two lie apart is the noise that the others are read against.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from collections.abc import Sequence

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as the stages do; read when torch is imported

import torch
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
CPU = torch.device("cpu")
EXACT, NOISE, WIDE, NARROW = "float32", "float32, other dropout", "bfloat16, float32 residual", "bfloat16"


def main(arguments: Sequence[str] | None = None) -> None:
    """Train on every side; print the curves and how far they lie from the first."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bfloat16", description=__doc__)
    parser.add_argument("--steps", type=int, default=2_000)
    steps = parser.parse_args(arguments).steps
    curves = {side: train(side, steps) for side in (EXACT, NOISE, WIDE, NARROW)}
    for number, row in enumerate(zip(*curves.values(), strict=True), 1):
        print(f"{number * ROW:>6}  " + "  ".join(f"{loss:.4f}" for loss in row), flush=True)
    figures = {}
    for side in (NOISE, WIDE, NARROW):
        apart = [one - two for one, two in zip(curves[side], curves[EXACT], strict=True)]
        figures[side] = {
            "largest": round(max(map(abs, apart)), 4),
            "mean": round(statistics.mean(map(abs, apart)), 4),
            "last_quarter": round(statistics.mean(apart[-max(1, len(apart) // 4) :]), 4),
        }
        print(f"{side:<28} from float32: {figures[side]}")
    met = figures[NARROW]["mean"] <= figures[NOISE]["mean"]
    print(json.dumps({"name": "bfloat16", "steps": steps, "curves": curves, "apart": figures, "met": met}))


def train(side: str, steps: int) -> list[float]:
    """The masked-word loss over every ``ROW`` steps of one training."""
    heads.linear_cross_entropy = gpu_cross_entropy  # type: ignore[attr-defined]
    objective = ours_objective(config_of("tiny"))
    if side == WIDE:
        for part in objective.modules():
            if isinstance(part, LayerNorm):
                part.__class__ = nn.LayerNorm
    if side in (WIDE, NARROW):
        objective.forward = torch.autocast("cpu", torch.bfloat16)(objective.forward)  # type: ignore[method-assign]
    batches = training_examples(LENGTH).batches(SEQUENCES, 1, 0, steps, Cut())
    loop: Loop[TensorBatch] = Loop(
        objective,
        make_optimiser(objective, LEARNING_RATE, WEIGHT_DECAY),
        linear_schedule(LEARNING_RATE, steps // 10, steps),
        last=steps,
        row_ends=lambda step: step % ROW == 0,
        what=side,
        stream=2 if side == NOISE else 1,
        distributed=Distributed(0, 1, CPU),
    )
    for _ in loop.run(tensor_batches(batches)):
        pass
    return [round(row["mlm_loss"], 5) for row in loop.rows]


def gpu_cross_entropy(hidden: Tensor, weight: Tensor, bias: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """As ``linear_cross_entropy`` goes on a GPU."""
    return summed_cross_entropy(aligned_scores(hidden, weight, bias), labels)


if __name__ == "__main__":
    main()
