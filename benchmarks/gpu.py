"""Pretrain, then measure rates, on a GPU that is free for a quarter of an hour.

    python -m benchmarks.gpu --study STUDY --pack PACKED          (before, on a CPU)
    python -m benchmarks.gpu --minutes 13 --study PACKED --out data/gpu

The pieces run one after another. Each may take its share of the minutes that are left. The same command with the same
OUT continues: it repeats no measurement in ``OUT/results.json``, and resumes a stopped pretraining in ``OUT/study``.
What the compiler has made is kept in ``OUT/compiled``; the next command uses it, also if only the file
``OUT/compiled/artifacts`` is there.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks._gpu_session import ROOT, Session, TimeOver, read_results, write_results
from benchmarks._gpu_steps import VARIANTS
from benchmarks._gpu_study import copy_study, pack, pretraining

COMPLETE = "complete"
# Piece -> minutes, from which its share of the remaining time follows.
MINUTES = {"pretraining": 10.0, "rates": 3.0}
# Decided before, since a comparison would take minutes of the pretraining. Graphs launched 8 x 512 as fast as single
# kernels did when its steps moved twice as many bytes.
VARIANT = "captured"


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parse(arguments)
    if options.pack:
        return pack_study(options.study, options.pack)
    write_results(options.out, facts(options.rehearse))
    pieces = [name for name in options.pieces or MINUTES if options.study or name != "pretraining"]
    if options.study:
        copy_study(options.study, options.out / "study")
    deadline = time.monotonic() + 60 * options.minutes
    statuses = []
    for index, name in enumerate(pieces):
        began = time.monotonic()
        share = MINUTES[name] / sum(MINUTES[later] for later in pieces[index:])
        session = Session(name, options.out, options.rehearse, began + share * max(0.0, deadline - began))
        statuses.append(run_piece(session, options.variant))
        print(f"{name}: {statuses[-1]} after {time.monotonic() - began:.0f} s", flush=True)
    return int(any(status != COMPLETE for status in statuses))


def pack_study(study: Path, folder: Path) -> int:
    try:
        pack(study, folder)
    except RuntimeError as error:
        print(f"error: the study does not train: {error}", file=sys.stderr)
        return 1
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    print(f"{folder}: {size / 1e6:.0f} MB, trained for a few steps; on the GPU: --study {folder}")
    return 0


def run_piece(session: Session, variant: str) -> str:
    try:
        if session.piece == "pretraining":
            pretraining(session, variant)
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
    parser.add_argument("--out", type=Path, help="folder of the results and of a copy of the study")
    parser.add_argument("--pieces", nargs="+", choices=MINUTES, help="these alone")
    parser.add_argument("--study", type=Path, help="folder of the study to pretrain; without it, piece rates alone")
    parser.add_argument("--variant", choices=VARIANTS, default=VARIANT, help=f"of pretraining (default {VARIANT})")
    parser.add_argument("--pack", type=Path, help="copy what the study needs to this folder and try it, on a CPU")
    parser.add_argument("--rehearse", action="store_true", help="on a CPU, with tiny shapes; no figure means anything")
    options = parser.parse_args(arguments)
    if options.pack:
        if not options.study or options.pack.exists():
            parser.error("--pack needs --study, and the name of a folder that does not exist")
        return options
    if not options.out:
        parser.error("name a folder for the results with --out")
    options.out = options.out.absolute()
    known = read_results(options.out)
    if known and known["rehearsal"] != options.rehearse:
        kind = "of a rehearsal" if known["rehearsal"] else "of a GPU"
        parser.error(f"{options.out} has results {kind}: name another folder")
    return options


if __name__ == "__main__":
    sys.exit(main())
