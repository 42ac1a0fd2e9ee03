"""Measure how far a reader walks: functions and files of one pretraining step.

``python -m tests.stress.walk [--list]`` trains the tests' tiny model. Limits, from a masked batch: 50 functions in 11
files to the loss, 81 in 18 files to its checkpoint.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from pipeline_src.examples.build_examples import run as build_examples
from tests.unit.pretrain.small import EXAMPLES, make_study, train_phase

ROOT = Path(__file__).parents[2] / "pipeline_src"
# The step that is watched.
STEP = 3
LIMITS = {"loss": (50, 11), "checkpoint": (81, 18)}  # functions and files


class Walk:
    """Functions of the thread that makes batches, and of one step before and after its first backward pass."""

    def __init__(self) -> None:
        self.functions: dict[str, set[CodeType]] = {"data": set(), "loss": set(), "checkpoint": set()}
        self.part, self.is_next = "", False

    def in_thread(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and is_ours(frame.f_code):
            self.functions["data"].add(frame.f_code)

    def in_phase(self, frame: FrameType, event: str, argument: Any) -> None:
        if event != "call":
            return
        if self.is_next and frame.f_code.co_name == "transfer":
            self.is_next, self.part = False, "loss"
        if self.part and frame.f_code.co_name == "backward" and not is_ours(frame.f_code):  # torch's
            self.part = "checkpoint"
        if self.part and is_ours(frame.f_code):
            self.functions[self.part].add(frame.f_code)

    def after_step(self, step: int) -> None:
        self.part, self.is_next = "", step == STEP - 1


def is_ours(code: CodeType) -> bool:
    """Return whether it is a function of the project; comprehensions and lambdas belong to the function around them."""
    is_function = not code.co_name.endswith(("comp>", "expr>", "lambda>"))
    return is_function and ROOT in Path(code.co_filename).parents


def walk_phase() -> Walk:
    """Train a phase of a few steps in a temporary folder and return the walk."""
    walk, before = Walk(), Path.cwd()
    os.environ["PIPELINE_CHECKPOINT_MINUTES"] = "0"
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        make_study(Path(folder))
        build_examples(seed=1, examples=EXAMPLES)
        threading.setprofile(walk.in_thread)
        sys.setprofile(walk.in_phase)
        try:
            train_phase("phase1", phase1=STEP + 1, log_points=2, eval_steps=2, after_step=walk.after_step)
        finally:
            sys.setprofile(None)
            threading.setprofile(None)  # type: ignore[arg-type]
            os.chdir(before)
    return walk


def count(walk: Walk) -> dict[str, tuple[int, int]]:
    """Return functions and files up to the end of each part; ``loss`` starts at the batch that the thread has made."""
    functions, totals = walk.functions, {}
    for part, codes in {
        "data": functions["data"],
        "loss": functions["loss"],
        "checkpoint": functions["loss"] | functions["checkpoint"],
    }.items():
        totals[part] = len(codes), len({code.co_filename for code in codes})
    return totals


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="print the functions too")
    listed, walk = parser.parse_args().list, walk_phase()
    for part, codes in walk.functions.items() if listed else ():
        for code in sorted(codes, key=lambda code: (code.co_filename, code.co_firstlineno)):
            print(f"{part:10} {Path(code.co_filename).relative_to(ROOT)} {code.co_qualname}")
    totals = count(walk)
    for part, (functions, files) in totals.items():
        print(f"to {part}: {functions} functions in {files} files")
    is_short = all(total <= limit for part in LIMITS for total, limit in zip(totals[part], LIMITS[part], strict=True))
    return 0 if is_short else 1


if __name__ == "__main__":
    sys.exit(main())
