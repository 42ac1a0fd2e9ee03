"""Trains once in peace and once killed again and again: ``python -m tests.unit.pretrain.killer PEACE WAR KILLS``.

Every training is a fork of this process, which has imported what it takes, so that a start costs milliseconds.
"""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import torch._dynamo  # noqa: F401, what an optimizer imports at its first step: a second and a half

from pipeline_src.examples.build_examples import run as plan_examples
from tests.unit.pretrain.small import EXAMPLES, train_phase

CHANGES = {"phase1": 250, "eval_steps": 50, "keep_checkpoint_steps": (90,)}


def start(folder: Path, minutes: str) -> int:
    """Fork a process that trains in ``folder``, and return its process id."""
    child = os.fork()
    if child:
        return child
    os.chdir(folder)
    os.environ["PIPELINE_CHECKPOINT_MINUTES"] = minutes
    try:
        train_phase("phase1", **CHANGES)
    except BaseException as error:
        print(repr(error), file=sys.stderr)
        os._exit(1)
    os._exit(0)


def newest(folder: Path) -> str:
    """Return the name of the newest checkpoint, or an empty string."""
    return max((path.name for path in folder.glob("checkpoints/phase1/*/step-*")), default="")


def main(peace: Path, war: Path, kills: int) -> None:
    """Train in both folders, and print how often the second training was killed and resumed."""
    for folder in (peace, war):
        os.chdir(folder)
        plan_examples(seed=1, examples=EXAMPLES)
    assert os.waitstatus_to_exitcode(os.waitpid(start(peace, "10"), 0)[1]) == 0
    moment, killed, resumed = random.Random(7), 0, 0
    while killed < kills:
        began = newest(war)
        child = start(war, "0")
        if moment.random() < 0.7:  # others die while they set up, or soon after
            while newest(war) == began and not os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                time.sleep(0.001)
        time.sleep(moment.uniform(0, 0.2))
        os.kill(child, signal.SIGKILL)
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0:
            break  # it was done before
        killed, resumed = killed + 1, resumed + bool(began)
    assert os.waitstatus_to_exitcode(os.waitpid(start(war, "0"), 0)[1]) == 0
    print(json.dumps({"kills": killed, "resumed": resumed}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
