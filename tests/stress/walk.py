"""Project functions that one pretraining step runs, from the sample index to the loss and to its checkpoint.

``python -m tests.stress.walk [--list]`` trains the tests' tiny model. Bars: 50 functions in 14 files to the loss,
75 in 20 files to the checkpoint.
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
from tests.unit.pretraining.small import EXAMPLES, make_study, train_phase

ROOT = Path(__file__).parents[2] / "pipeline_src"
STEP = 3  # the one that is watched


class Walk:
    """Collect functions: of the thread that makes batches, and of one step before and after its first backward pass."""

    def __init__(self) -> None:
        self.found: dict[str, set[CodeType]] = {"data": set(), "loss": set(), "checkpoint": set()}
        self.part = "loss"

    def in_thread(self, frame: FrameType, event: str, argument: Any) -> None:
        self._add("data", frame, event)

    def in_step(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_name == "backward":
            self.part = "checkpoint"
        self._add(self.part, frame, event)

    def after_step(self, step: int) -> None:
        if step in (STEP - 1, STEP):
            sys.setprofile(self.in_step if step < STEP else None)

    def _add(self, part: str, frame: FrameType, event: str) -> None:
        code = frame.f_code
        if event == "call" and ROOT in Path(code.co_filename).parents and not code.co_name.endswith(("comp>", "expr>")):
            self.found[part].add(code)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="print the functions too")
    listed, walk = parser.parse_args().list, Walk()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        os.environ["PIPELINE_CHECKPOINT_MINUTES"] = "0"
        make_study(Path(folder))
        build_examples(seed=1, examples=EXAMPLES)
        threading.setprofile(walk.in_thread)
        train_phase("phase1", phase1=STEP + 1, log_points=2, after_step=walk.after_step)
    passed: set[CodeType] = set()
    for part, codes in walk.found.items():
        for code in sorted(codes - passed, key=lambda code: (code.co_filename, code.co_firstlineno)) if listed else ():
            print(f"{part:10} {Path(code.co_filename).relative_to(ROOT)} {code.co_qualname}")
        passed |= codes
        print(f"to {part}: {len(passed)} functions in {len({code.co_filename for code in passed})} files")


if __name__ == "__main__":
    main()
