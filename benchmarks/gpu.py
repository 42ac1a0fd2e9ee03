"""The most out of a GPU that is at hand for a quarter of an hour: measured, pretrained, fine-tuned, by one command.

    python -m benchmarks.gpu --list
    python -m benchmarks.gpu --pack data/gpu --study STUDY            # before: what has to travel, in one folder
    python -m benchmarks.gpu --minutes 13 --study data/gpu/study.tar.xz --out data/gpu/out
    python -m benchmarks.gpu --rehearse --out /tmp/rehearsal          # all of it on a CPU, in a minute or two

Every piece runs in a separate process with its share of the minutes, and is ended when that is over (it gets ten
seconds to save a checkpoint); time that it does not use goes to later pieces. It writes ``DIR/pieces/PIECE.json`` after
each measurement. The same command with the same DIR continues: it repeats nothing that DIR has, and resumes a stopped
pretraining. A piece that fails writes its error to its file, and the next one starts.

``DIR/back`` (or ``--back``) is what to take home, at most eight files of at most 16 MiB for a model of up to 50 M
parameters: ``results.json``, which is all pieces' files in one, and the pretrained model's folder in bfloat16, cut into
pieces of 15 MiB, which ``cat model.tar.* | tar x`` puts together.
"""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks._gpu_session import ROOT, RUNNING, STOPPED, Session, in_one_line, read_piece, write_piece
from pipeline_src.base.files import write_json

GRACE = 10.0  # seconds from SIGTERM to SIGKILL
MINUTES = 13.0
ENOUGH = 5.0  # seconds that make it worth starting a process
POLL = 0.1
LAST_LINES = 1500  # characters of a piece's log that its file repeats
DONE, CUT, FAILED = "done", "cut", "error"


class Piece(NamedTuple):
    """A part of the quarter of an hour.

    Attributes:
        minutes: of 13; its share.
        about: one line for people.
        function: ``module:function``, called with a ``Session`` in a separate process.
    """

    minutes: float
    about: str
    function: str


PIECES: dict[str, Piece] = {
    "rates": Piece(1.6, "steps of four sizes, by variant", "benchmarks._gpu_steps:rates"),
    "transformers": Piece(1.4, "steps of transformers and ours in turn", "benchmarks._gpu_steps:transformers"),
    "pretraining": Piece(6.2, "the study that travels, in the time there is", "benchmarks._gpu_study:pretraining"),
    "finetuning": Piece(3.8, "its tasks with three seeds, and BLiMP", "benchmarks._gpu_study:finetuning"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the pieces asked for; 0 if all are done, 1 if one failed or was cut."""
    options = _parser().parse_args(arguments)
    if options.list:
        total = sum(piece.minutes for piece in PIECES.values())
        for name, piece in PIECES.items():
            print(f"{name:<14}{piece.minutes:>5.1f} of {total:g} minutes   {piece.about}")
        return 0
    if options.pack:
        from benchmarks._gpu_study import pack

        pack(options.pack, options.study or Path("."))
        return 0
    if options.out is None:
        sys.exit("error: --out names the folder of the results")
    unknown = [name for name in options.pieces or () if name not in PIECES]
    if unknown:
        sys.exit(f"error: no piece is called {unknown[0]!r}; there are {', '.join(PIECES)}")
    options.back = options.back or options.out / "back"
    if options.child:
        return run_child(options)
    return run_pieces(options)


def run_pieces(options: argparse.Namespace) -> int:
    """Run one piece after another, each until its share of the time that is left is over."""
    deadline = time.monotonic() + 60 * options.minutes
    wanted = [name for name in PIECES if not options.pieces or name in options.pieces]
    for name in wanted:
        known = read_piece(options.out, name)
        if known and known.get("rehearsal") != options.rehearse:
            sys.exit(f"error: {options.out} is {'no' if options.rehearse else 'of a'} rehearsal: name another folder")
    todo = [name for name in wanted if read_piece(options.out, name).get("status") != DONE]
    before = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        for number, name in enumerate(todo):
            remaining = max(0.0, deadline - time.monotonic())
            share = PIECES[name].minutes / sum(PIECES[later].minutes for later in todo[number:])
            status = run_piece(name, share * remaining, options)
            write_results(options.out, options.back)
            kind = " (rehearsal)" if options.rehearse else ""
            print(f"{name}: {status} after {read_piece(options.out, name)['seconds']:.0f} s{kind}", flush=True)
    finally:
        write_results(options.out, options.back)
        signal.signal(signal.SIGTERM, before)
    statuses = [read_piece(options.out, name).get("status") for name in wanted]
    return int(any(status != DONE for status in statuses))


def run_piece(name: str, seconds: float, options: argparse.Namespace) -> str:
    """Run a piece for at most so many seconds, again if its process dies in a measurement; return how it ended."""
    began = time.monotonic()
    status, log_end = CUT, ""
    while (remaining := seconds - (time.monotonic() - began)) > 0:
        before = len(read_piece(options.out, name).get("cells", {}))
        code, log_end = _run_process(name, remaining, options)
        status = DONE if code == 0 else CUT if code in (None, STOPPED) else FAILED
        after = _settle(name, status, code, options)
        if status != FAILED or after == before or seconds - (time.monotonic() - began) < ENOUGH:
            break
    content = read_piece(options.out, name) or {"rehearsal": options.rehearse, "cells": {}}
    content.pop("error", None)
    content |= {"piece": name, "status": status, "seconds": round(time.monotonic() - began, 1)}
    if status == FAILED:
        content["error"] = log_end
    write_piece(options.out, name, content)
    return status


def write_results(out: Path, back: Path) -> None:
    """Write all pieces' files into one."""
    back.mkdir(parents=True, exist_ok=True)
    pieces = {name: content for name in PIECES if (content := read_piece(out, name))}
    write_json(back / "results.json", {"rehearsal": any(content["rehearsal"] for content in pieces.values())} | pieces)


def run_child(options: argparse.Namespace) -> int:
    """Run one piece in this process."""
    session = Session(
        options.child, options.out, options.study, options.back, options.rehearse,
        time.monotonic() + options.seconds,
    )  # fmt: skip
    session.write()
    module, _, function = options.function.partition(":")
    getattr(importlib.import_module(module), function)(session)
    return 0


def _run_process(name: str, seconds: float, options: argparse.Namespace) -> tuple[int | None, str]:
    """Run a piece's process; its exit status, None if it was ended, and the end of its log."""
    program = [sys.executable, "-m", "benchmarks.gpu", "--child", name, "--function", PIECES[name].function]
    program += ["--seconds", f"{seconds:.1f}", "--out", str(options.out.absolute())]
    program += ["--back", str(options.back.absolute())]
    program += ["--rehearse"] if options.rehearse else []
    program += ["--study", str(options.study.absolute())] if options.study else []
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    environment.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as the stages do
    environment |= {"CUDA_VISIBLE_DEVICES": ""} if options.rehearse else {}
    log = options.out / "pieces" / f"{name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w") as errors:
        process = subprocess.Popen(program, cwd=ROOT, env=environment, stderr=errors, start_new_session=True)
        try:
            code: int | None = process.wait(seconds)
        except subprocess.TimeoutExpired:
            code = None
            _end(process)
        except BaseException:  # such as SIGTERM's SystemExit
            _end(process)
            raise
        finally:
            _kill_group(process.pid)  # what it started
    return code, log.read_text(errors="replace")[-LAST_LINES:]


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ask a piece and what it started to stop; what does not within ten seconds is killed."""
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(GRACE)
    except subprocess.TimeoutExpired:
        _kill_group(process.pid)
        process.wait()


def _kill_group(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        pass


def _settle(name: str, status: str, code: int | None, options: argparse.Namespace) -> int:
    """Turn the mark of a cell in which the process ended into its result; return the number of cells.

    A cell for which there was no time is measured again.
    """
    content: dict[str, Any] = read_piece(options.out, name)
    cells = content.get("cells", {})
    for cell in [cell for cell, result in cells.items() if result.get(RUNNING)]:
        labels = {key: value for key, value in cells.pop(cell).items() if key != RUNNING}
        if status == FAILED:
            failure = {"error": f"the process ended with status {code}", "rehearsal": options.rehearse}
            cells[cell] = labels | failure
            print(f"{name}: {cell}: {in_one_line(cells[cell])}", flush=True)
    if content:
        write_piece(options.out, name, content)
    return len(cells)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__.split("\n\n")[0])
    parser.add_argument("--minutes", type=float, default=MINUTES, help=f"for all pieces together (default {MINUTES:g})")
    parser.add_argument("--out", type=Path, help="folder of the results, and of the study")
    parser.add_argument("--back", type=Path, help="folder of what to take home (default DIR/back)")
    parser.add_argument("--pieces", type=lambda text: text.split(","), help="these alone, such as rates,transformers")
    parser.add_argument("--study", type=Path, help="folder or archive of the study to pretrain; with --pack its folder")
    parser.add_argument("--pack", type=Path, metavar="FOLDER", help="fill FOLDER with what has to travel")
    parser.add_argument("--list", action="store_true", help="list the pieces and their shares")
    parser.add_argument("--rehearse", action="store_true", help="on a CPU, with tiny shapes; no figure means anything")
    for hidden in ("--child", "--function"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    sys.exit(main())
