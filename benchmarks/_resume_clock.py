"""``python -m pipeline_src pretrain --phase short`` with a clock in it, for benchmark ``resume``.

It runs in the study's folder, imports torch before anything else, lets the stage go on from its checkpoint, and ends
where the first new step would start: then it prints, as a line of JSON, the step and the seconds since torch was there.
"""

from __future__ import annotations

import json
import os
import sys
import time

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as the stage does
import torch  # noqa: F401

START = time.perf_counter()


def main() -> int:
    """Run the stage up to its first step."""
    from pipeline_src import __main__ as program
    from pipeline_src.training.loop import Loop

    def stop(loop: Loop, batch: object) -> None:
        print(json.dumps({"step": loop.step, "seconds": time.perf_counter() - START}), flush=True)
        os._exit(0)

    Loop._take = stop  # type: ignore[method-assign, assignment]
    return program.main(["pretrain", "--phase", "short"])


if __name__ == "__main__":
    sys.exit(main())
