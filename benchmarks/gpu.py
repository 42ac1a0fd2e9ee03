"""Measure, pretrain and fine-tune on a GPU that is free for a quarter of an hour.

    python -m benchmarks.gpu --minutes 13 --study STUDY --out data/gpu

The pieces run one after another. Each may take its share of the minutes that are left. The same command with the same
OUT continues: it repeats no measurement in ``OUT/results.json``, and resumes a stopped pretraining in ``OUT/study``.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks._gpu_session import ROOT, Session, TimeOver, read_results, write_results
from benchmarks._gpu_study import copy_study, finetuning, pretraining

COMPLETE = "complete"
# Piece -> minutes, from which its share of the remaining time follows.
MINUTES = {"rates": 2.5, "pretraining": 6.5, "finetuning": 4.0}
# Pieces that need a study.
STUDY_PIECES: dict[str, Callable[[Session], None]] = {"pretraining": pretraining, "finetuning": finetuning}


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parse(arguments)
    write_results(options.out, facts(options.rehearse))
    pieces = [name for name in options.pieces or MINUTES if options.study or name not in STUDY_PIECES]
    if options.study:
        copy_study(options.study, options.out / "study")
    deadline = time.monotonic() + 60 * options.minutes
    statuses = []
    for index, name in enumerate(pieces):
        began = time.monotonic()
        share = MINUTES[name] / sum(MINUTES[later] for later in pieces[index:])
        session = Session(name, options.out, options.rehearse, began + share * max(0.0, deadline - began))
        statuses.append(run_piece(session))
        print(f"{name}: {statuses[-1]} after {time.monotonic() - began:.0f} s", flush=True)
    return int(any(status != COMPLETE for status in statuses))


def run_piece(session: Session) -> str:
    try:
        if session.piece in STUDY_PIECES:
            STUDY_PIECES[session.piece](session)
        else:
            # Use another process, so that a GPU error does not end the benchmark and all memory is freed.
            session.run("benchmarks._gpu_steps", str(session.out), *(["--rehearse"] if session.rehearsal else []))
    except TimeOver:
        return "time over, the same command continues"
    except RuntimeError as error:
        return f"failed: {error}"
    failed = [name for name, result in session.cells().items() if "error" in result]
    return f"failed: {', '.join(failed)}" if failed else COMPLETE


def facts(rehearsal: bool) -> dict[str, Any]:
    import torch

    if not rehearsal and not torch.cuda.is_available():
        sys.exit("error: no GPU answers; --rehearse runs everything on a CPU, with tiny shapes")
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    return {
        "rehearsal": rehearsal,
        "gpu": None if rehearsal else torch.cuda.get_device_name(0),
        "torch": torch.__version__,
        "commit": described.stdout.strip() or None,
    }


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__.split("\n\n")[0])
    parser.add_argument("--minutes", type=float, default=sum(MINUTES.values()), help="for all pieces (default 13)")
    parser.add_argument("--out", type=Path, required=True, help="folder of the results and of a copy of the study")
    parser.add_argument("--pieces", nargs="+", choices=MINUTES, help="these alone")
    parser.add_argument("--study", type=Path, help="folder of the study to pretrain; without it, piece rates alone")
    parser.add_argument("--rehearse", action="store_true", help="on a CPU, with tiny shapes; no figure means anything")
    options = parser.parse_args(arguments)
    options.out = options.out.absolute()
    known = read_results(options.out)
    if known and known["rehearsal"] != options.rehearse:
        kind = "of a rehearsal" if known["rehearsal"] else "of a GPU"
        parser.error(f"{options.out} has results {kind}: name another folder")
    return options


if __name__ == "__main__":
    sys.exit(main())
