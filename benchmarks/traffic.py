"""Count the bytes that a training step on a GPU reads and writes, without a GPU, and derive its shortest time.

Steps of ModernBERT-Mini, ModernBERT 8 x 512 and BERT-base as in benchmark ``gpu``, run operator by operator and as
Inductor compiles them.
"""

from __future__ import annotations

import argparse
import json
import platform
from collections import Counter
from collections.abc import Sequence

import torch

from benchmarks._gpu_steps import SHAPES, Shape
from benchmarks._traffic_count import OPTIMIZER, Traffic, compiled, eager
from pipeline_src.pretrain.data import TensorBatch

COUNTS = {"eager": eager, "compiled": compiled}
# Bytes and dense bfloat16 FLOPs per second, from the datasheets of the SXM variants.
GPUS = {"H100": (3.35e12, 989e12), "H200": (4.8e12, 989e12)}
# Gigabytes that an eager step of BERT-base moved before its LayerNorms read bfloat16.
BASE_BEFORE = 100.0
# Shape and way -> gigabytes to reach.
TARGETS = {
    ("8x512", "eager"): 45.0,
    ("8x512", "compiled"): 22.0,
    ("base", "eager"): 0.60 * BASE_BEFORE,
    ("base", "compiled"): 0.35 * BASE_BEFORE,
}


def by_kind(traffic: Traffic) -> Counter[str]:
    kinds: Counter[str] = Counter()
    for (phase, kind), number in traffic.bytes.items():
        kinds[OPTIMIZER if phase == OPTIMIZER else kind] += number
    return kinds


def least_milliseconds(shape: Shape, moved: float, gpu: str) -> tuple[float, float]:
    """Return how long the GPU's memory and its matrix units need for a step, each at its peak."""
    bandwidth, flops = GPUS[gpu]
    (batch,) = shape.examples(1)
    work = TensorBatch.of(batch).workload
    return 1e3 * moved / bandwidth, 1e3 * shape.config().training_flops(work) / flops


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--shape", choices=("mini", "8x512", "base"), action="append", help="default: all three")
    options = parser.parse_args(arguments)
    for name in options.shape or ("mini", "8x512", "base"):
        shape = SHAPES[name]
        for way, count in COUNTS.items():
            kinds = by_kind(count(shape))
            total = kinds.total()
            print(
                f"traffic of a step of {name}, {way} (torch {torch.__version__}, Python {platform.python_version()}):"
            )
            for kind, number in kinds.most_common():
                print(f"  {kind:<28} {number / 1e9:>10.2f} GB")
            print(f"  {'all':<28} {total / 1e9:>10.2f} GB")
            figures: dict[str, object] = {"name": f"traffic {name}, {way}", "gigabytes": round(total / 1e9, 2)}
            for gpu in GPUS:
                memory, products = least_milliseconds(shape, total, gpu)
                print(f"  {gpu}: {memory:.1f} ms of memory traffic, {products:.1f} ms of matrix products, at least")
                figures[f"{gpu}_memory_ms"] = round(memory, 2)
                figures[f"{gpu}_products_ms"] = round(products, 2)
            target = TARGETS.get((name, way))
            if target is not None:
                figures |= {"target": target, "met": total <= 1e9 * target}
            print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
