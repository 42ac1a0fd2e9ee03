"""Every border where data enters, given damaged and hostile input: ``python -m benchmarks.fuzz --minutes N --seed S``.

Each case must be taken or refused in one PipelineError, within ten seconds, and leave no file outside its folder. What
is not is printed with its seed: ``--only BORDER --case SEED`` runs that case alone.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path
from types import FrameType

from benchmarks._fuzz_cases import BORDERS, Border, listing
from pipeline_src.common.errors import PipelineError
from pipeline_src.common.progress import PLAIN, log
from pipeline_src.sources import https

LONGEST = 10  # seconds of one case
SHOWN = 20  # defects that are printed whole


class Hang(BaseException):
    """A case took longer than :data:`LONGEST`."""


def run_case(border: Border, seed: str) -> tuple[str, str]:
    """What became of one case: ``taken``, ``refused``, ``traceback``, ``hang`` or ``outside``; and a few words."""
    with tempfile.TemporaryDirectory() as around:
        folder = Path(around, "deep/er/folder")
        folder.mkdir(parents=True)
        signal.alarm(LONGEST)
        try:
            border(random.Random(seed), folder)
            outcome = "taken", ""
        except PipelineError as error:
            said = str(error)
            clean = said.replace("\n", "").isprintable()
            outcome = ("refused", "") if clean else ("traceback", f"control codes in {said!r}")
        except Hang:
            outcome = "hang", "".join(traceback.format_exc().splitlines(keepends=True)[-7:])
        except Exception:
            outcome = "traceback", "".join(traceback.format_exc().splitlines(keepends=True)[-7:])
        finally:
            signal.alarm(0)
        if any(not path.startswith("deep/er/folder/") for path in listing(Path(around))):
            return "outside", str(list(listing(Path(around))))
        return outcome


def _alarm(number: int, frame: FrameType | None) -> None:
    raise Hang


def main(argv: list[str] | None = None) -> int:
    """Run cases until the time is up; prints a figure for each border, then the result as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=BORDERS, help="one border")
    parser.add_argument("--case", help="one case, by the seed that was printed")
    arguments = parser.parse_args(argv)
    signal.signal(signal.SIGALRM, _alarm)
    https.WAIT = https.LONGEST_WAIT = 0.0
    os.environ[PLAIN] = "1"
    log.setLevel(logging.CRITICAL)
    borders = {arguments.only: BORDERS[arguments.only]} if arguments.only else BORDERS
    counts: dict[str, Counter[str]] = {name: Counter() for name in borders}
    ends, number, shown = time.monotonic() + 60 * arguments.minutes, 0, 0
    before = set(os.listdir("."))
    while time.monotonic() < ends and not (arguments.case and number):
        for name, border in borders.items():
            seed = arguments.case or f"{arguments.seed} {name} {number}"
            outcome, said = run_case(border, seed)
            counts[name][outcome] += 1
            if said and shown < SHOWN:
                shown += 1
                print(f"{name}: {outcome}: --only {name!r} --case {seed!r}\n{said}", file=sys.stderr)
        number += 1
    new = set(os.listdir(".")) - before
    for name, count in counts.items():
        print(f"  {name:<14} {', '.join(f'{number:,} {outcome}' for outcome, number in sorted(count.items()))}")
    total = sum(counts.values(), Counter())
    bad = {outcome: total[outcome] for outcome in ("traceback", "hang", "outside")}
    figures = {
        "seed": arguments.seed,
        "cases": total.total(),
        "errors": total["refused"],
        **bad,
        "new_here": sorted(new),
    }
    print(json.dumps({"name": "fuzz", **figures}))
    return 1 if any(bad.values()) or new else 0


if __name__ == "__main__":
    sys.exit(main())
