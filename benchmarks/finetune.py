"""Fine-tuning for one epoch beside transformers' Trainer: examples per second of CPU time, and the score after it.

MRPC as published (3,668 pairs) and 2,000 windows of SQuAD 1.1's development questions (its training file is not at
hand), from the same real encoder with the same head, optimizer, clipping and dropout, in batches of 32 of the same
items. Each side trains in a process of its own (``_finetune_sides``). What counts is batches in random order, as
Trainer's users have them; with ``--pool 16`` both sides get the batches of similar lengths that the stage makes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from benchmarks._finetune_sides import CASES, SIDES
from benchmarks.measure import report

BAR = 1.5


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.finetune", description=__doc__)
    parser.add_argument("--case", choices=(*CASES, "all"), default="all")
    parser.add_argument("--pool", type=int, default=1, help="batches whose items are sorted by length together")
    parser.add_argument("--items", type=int, default=0, help="train on so many items; 0: all")
    asked = parser.parse_args(arguments)
    found: dict[str, Any] = {}
    for case in CASES if asked.case == "all" else (asked.case,):
        sides = {side: train(side, case, asked) for side in SIDES}
        rates = {side: row["examples"] / row["cpu_seconds"] for side, row in sides.items()}
        found[case] = {"sides": sides, "ratio": round(rates["ours"] / rates["Trainer"], 3)}
        for side, row in sides.items():
            print(
                f"{case:<6}{side:<8} {rates[side]:7.1f} examples/CPU-s, {row['seconds']:.0f} s, {row['scores']}",
                flush=True,
            )
    ours, peer = (
        sum(case["sides"][side]["examples"] for case in found.values())
        / sum(case["sides"][side]["cpu_seconds"] for case in found.values())
        for side in ("ours", "Trainer")
    )
    met = all(case["ratio"] >= BAR for case in found.values())
    more = {"cases": found, "pool": asked.pool, "load": os.getloadavg(), "met_more": met}
    report(
        "finetune",
        "examples per CPU-second",
        ours,
        {"transformers Trainer": peer},
        {"transformers Trainer": BAR},
        **more,
    )


def train(side: str, case: str, asked: argparse.Namespace) -> dict[str, Any]:
    program = [sys.executable, "-m", "benchmarks._finetune_sides", side, case, str(asked.pool), str(asked.items)]
    done = subprocess.run(program, check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


if __name__ == "__main__":
    main()
