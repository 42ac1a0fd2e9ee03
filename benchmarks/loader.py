"""The loader beside what training consumes: real tokens per CPU-second of one worker, assembled, masked, as tensors.

There is no peer: ``peer`` is the rate of a tiny model's training step on all cores of this machine, measured here
(``pretrain_step`` compares that step with transformers'). Batches are of the paper's 256 sequences of up to 128 tokens
of real text; those of the tiny step's own 32, and what an H200 is to consume with a base model, stand beside.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as the stages do; read when torch is imported

import torch

from benchmarks._pretrain_sides import SIDES, config_of, real_batches
from benchmarks._study import training_examples
from benchmarks.measure import race, report, time_once
from pipeline_src.common.parallel import usable_cores
from pipeline_src.pretraining.loading.batches import Cut
from pipeline_src.pretraining.tensor_batch import tensor_batches

LENGTH, PAPER, TINY = 128, 256, 32  # sequences of a batch: the paper's, and the tiny step's in `pretrain_step`
SEQUENCES = 256 * 64  # that one turn loads
ROUNDS = 5
WARM_UP, STEPS = 2, 20
H200 = 0.8e6  # real tokens per second that a base model is to consume there, at length 128
TARGET, TARGET_H200 = 20, 2


def main() -> None:
    """Time the loader, then the step, and report."""
    examples = training_examples(LENGTH)
    loaded: dict[int, int] = {}

    def load(size: int) -> Callable[[], None]:
        def work() -> None:
            batches = examples.batches(size, 1, 0, SEQUENCES // size, Cut())
            loaded[size] = sum(part.counts["tokens"] for batch in tensor_batches(batches) for part in batch)

        return work

    torch.set_num_threads(1)  # one worker
    seconds = race({str(size): load(size) for size in (PAPER, TINY)}, ROUNDS)
    rates = {size: loaded[size] / seconds[str(size)] for size in loaded}
    cores = usable_cores()
    torch.set_num_threads(cores)
    step = cores * step_rate()
    report(
        "loader",
        "real tokens per CPU-second of one worker",
        rates[PAPER],
        {"tiny training step, on all cores": step},
        {"tiny training step, on all cores": TARGET},
        batches_of_32=round(rates[TINY]),
        times_h200_base=round(rates[PAPER] / H200, 2),
        target_h200_base=TARGET_H200,
        cores=cores,
        met_more=rates[PAPER] >= TARGET_H200 * H200,
    )


def step_rate() -> float:
    """Real tokens per CPU-second of the tiny model's training step."""
    cpu = torch.device("cpu")
    batches = real_batches(LENGTH, TINY, WARM_UP + STEPS, cpu)
    side = SIDES["ours"](config_of("tiny"), batches, cpu)
    return statistics.median([batch.tokens / time_once(side.step) for batch in batches][WARM_UP:])


if __name__ == "__main__":
    main()
