"""Tool ``ablations``: the paper's ablations, or one table of them, as queued DVC experiments."""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import psutil
import yaml

from pipeline_src.common.errors import PipelineError
from pipeline_src.params.study import load_study
from pipeline_src.tools.ablations.tables import Experiment, Table, read_table, table_names
from pipeline_src.tools.preset import preset_text, use_preset

PARAMS = Path("params.yaml")
WAITING = ("Queued", "Running")  # DVC's words
POLL_SECONDS = 2.0, 30.0  # between questions to DVC's queue: the first pause, the longest
STARTS = 3  # of DVC's workers for one wave of experiments


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the tool's own arguments."""
    parser.add_argument(
        "table", nargs="?", help="a file of workflow/ablations/, without .yaml; all where none is named"
    )
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these experiments alone")
    parser.add_argument("--preset", help="first put this study in place of params.yaml (with --print: only suppose it)")
    parser.add_argument("--jobs", "-j", type=int, default=2, help="experiments at once (default: 2)")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--print", action="store_true", help="say the commands, and change nothing")
    what.add_argument("--queue", action="store_true", help="queue the experiments, and start none")


def main(arguments: argparse.Namespace) -> None:
    """Print, queue, or run to their end the experiments of one table or of all.

    Raises:
        PipelineError: no such table or experiment, a study that an experiment makes invalid, DVC refuses, or an
            experiment failed.
    """
    params = _params(arguments)
    names = [arguments.table] if arguments.table else table_names()
    tables = [read_table(name, params) for name in names]
    experiments = _chosen([experiment for table in tables for experiment in table.experiments], arguments.only)
    if arguments.print:
        for table in tables:
            print("\n".join(describe(table, experiments, params)))
        return
    experiments = _with_teachers(experiments, named=bool(arguments.table or arguments.only))
    if arguments.queue:
        queue(experiments, params)
        twice = "; -j 1, for some share a pretraining" if len(waves(experiments)) > 1 else ""
        print(f"next: dvc queue start -j {arguments.jobs}{twice}")
        return
    for wave in waves(experiments):
        if queue(wave, params):
            wait(wave, params, arguments.jobs)
        done = finished()
        if failed := [experiment.name for experiment in wave if experiment.name not in done]:
            raise PipelineError(
                "experiments failed", ", ".join(failed),
                remedy=f"`dvc queue logs {failed[0]}` shows why; the same command goes on with what is not done",
            )  # fmt: skip
    print("next: `dvc exp show --only-changed` compares them, `dvc exp apply NAME` puts one in place")


def _with_teachers(experiments: Iterable[Experiment], named: bool) -> list[Experiment]:
    """Those whose folder to learn from is there; DVC would say that it is not after others had taken hours.

    Raises:
        PipelineError: one is missing, of an experiment that was asked for by its table or its ``named`` self.
    """
    kept = []
    for experiment in experiments:
        teacher = Path(experiment.changes.get("pretrain.teacher", "."))
        if teacher.exists():
            kept.append(experiment)
        elif named:
            raise PipelineError(
                "no teacher here", teacher, where=experiment.name,
                remedy="put a pretrained model there as docs/family.md says, or leave out its experiments with --only",
            )  # fmt: skip
        else:
            print(f"{experiment.name}: left out, there is no teacher in {teacher}")
    return kept


def describe(table: Table, chosen: Iterable[Experiment], params: dict[str, Any]) -> list[str]:
    """Lines for people: each command, and the paper's figures that its scores stand beside."""
    wanted = {experiment.name for experiment in chosen}
    lines = [f"# {table.title}: " + (f"{table.source}, {table.split}" if table.source else "not in the paper")]
    if table.study:
        lines.append(f"# the study as it stands: {_figures(table.study)}")
    for experiment in table.experiments:
        if experiment.name in wanted:
            lines.append(
                shlex.join(["dvc", *command(experiment, params)])
                + (f"  # {_figures(experiment.paper)}" * bool(experiment.paper))
            )
    return lines


def command(experiment: Experiment, params: dict[str, Any]) -> list[str]:
    """Arguments of ``dvc`` that queue an experiment."""
    words = ["exp", "run", "--queue", "-n", experiment.name]
    for key, value in experiment.changes.items():
        words += ["-S", f"{'' if _present(key, params) else '+'}{key}={_hydra(value)}"]
    return words


def waves(experiments: Iterable[Experiment]) -> list[list[Experiment]]:
    """Those that pretrain, then those that take over a model of the first: side by side they would train it twice."""
    first: dict[str, Experiment] = {}
    experiments = list(experiments)
    for experiment in experiments:
        first.setdefault(experiment.pretraining, experiment)
    leading = list(first.values())
    return [wave for wave in (leading, [experiment for experiment in experiments if experiment not in leading]) if wave]


def queue(experiments: Iterable[Experiment], params: dict[str, Any]) -> bool:
    """Queue those that neither wait nor were done on this commit; whether any is waiting now."""
    known, done, waiting = states(), finished(), False
    for experiment in experiments:
        if experiment.name in done:
            print(f"{experiment.name}: was done on this commit; `dvc exp remove {experiment.name}` forgets it")
            continue
        waiting = True
        if known.get(experiment.name) not in WAITING:
            _dvc(*command(experiment, params))
    return waiting


def finished() -> set[str]:
    """Names of the experiments that were done on this commit."""
    return set(_dvc("exp", "list", "--name-only", quiet=True).split())


def wait(experiments: Iterable[Experiment], params: dict[str, Any], jobs: int) -> None:
    """Start DVC's workers and return when none of the experiments waits or runs; says each that ends.

    Workers that end while experiments are open are started again, ``STARTS`` times in all. What they leave behind as
    running is queued anew: one that was killed, or that found nothing to do on a busy machine and stopped with an
    experiment that it had just taken.

    Raises:
        PipelineError: the workers ended before the experiments did.
    """
    named, starts = {experiment.name: experiment for experiment in experiments}, 0
    open_ones = set(named)
    try:
        while open_ones:
            _dvc("queue", "start", "-j", str(jobs))
            starts += 1
            open_ones = _watch(open_ones)
            if open_ones and starts == STARTS:
                raise PipelineError(
                    "DVC's workers ended before the experiments did", ", ".join(sorted(open_ones)),
                    remedy="`dvc queue remove --queued` or `dvc queue kill`, then the same command again",
                )  # fmt: skip
            now = states()
            for name in sorted(name for name in open_ones if now.get(name) == "Running"):
                print(f"{name}: left by its worker; queued again", flush=True)
                _dvc("queue", "kill", name, quiet=True)  # marks it as failed, and ends what may still run
                _dvc(*command(named[name], params))
    except KeyboardInterrupt:
        print("the experiments go on; `dvc queue status` shows them, the same command waits again", file=sys.stderr)
        raise


def _watch(names: set[str]) -> set[str]:
    """Wait until none of the experiments is open, or none of DVC's workers is left; those still open then."""
    open_ones, (pause, longest) = set(names), POLL_SECONDS
    while open_ones:
        time.sleep(pause)
        pause = min(longest, 1.5 * pause)
        working = pause < longest or workers()  # asked before the states: a worker may end its last one in between
        now = states()
        for name in sorted(name for name in open_ones if now.get(name) not in WAITING):
            print(f"{name}: {now.get(name, 'gone from the queue').lower()}", flush=True)
            open_ones.remove(name)
        if not working:
            break
    return open_ones


def states() -> dict[str, str]:
    """Name of every experiment in DVC's queue -> its state; of several of one name, the newest.

    DVC reads what runs before what waits, so an experiment that a worker takes in between is in neither list. It is in
    one of two readings.
    """
    from dvc.repo import Repo

    with Repo(".") as repo:
        queue = repo.experiments.celery_queue
        entries = queue.status() + queue.status()
    return {entry["name"]: entry["status"] for entry in sorted(entries, key=lambda entry: entry["timestamp"])}


def workers() -> bool:
    """Whether any of DVC's workers lives: a process of this folder, or one elsewhere that answers.

    An answer alone does not tell. A worker has a second for it, which a busy machine does not give; and one that was
    told to stop, as DVC's idle workers tell themselves, ends what it runs without answering any more.
    """
    here = Path.cwd()
    for process in psutil.process_iter():
        try:
            if "queue-worker" in process.cmdline() and Path(process.cwd()) == here:
                return True
        except psutil.Error:  # ended since, or another user's
            continue
    from dvc.repo import Repo

    with Repo(".") as repo:
        return bool(repo.experiments.celery_queue.worker_status())


def _params(arguments: argparse.Namespace) -> dict[str, Any]:
    """The study that the experiments change."""
    if arguments.preset and arguments.print:
        return yaml.safe_load(preset_text(arguments.preset))
    if arguments.preset:
        use_preset(arguments.preset)
    load_study(PARAMS)
    return yaml.safe_load(PARAMS.read_text(encoding="utf-8"))


def _chosen(experiments: list[Experiment], only: list[str] | None) -> list[Experiment]:
    unknown = set(only or ()) - {experiment.name for experiment in experiments}
    if unknown:
        known = ", ".join(experiment.name for experiment in experiments)
        raise PipelineError("no such experiment", min(unknown), where="--only", remedy=f"there are {known}")
    return [experiment for experiment in experiments if not only or experiment.name in only]


def _present(key: str, params: Any) -> bool:
    for step in key.split("."):
        if not isinstance(params, dict) or step not in params:
            return False
        params = params[step]
    return True


def _hydra(value: Any) -> str:
    """A value as ``-S`` reads it."""
    if isinstance(value, list):
        return f"[{','.join(map(_hydra, value))}]"
    words = {True: "true", False: "false", None: "null"}
    return words[value] if value is None or isinstance(value, bool) else str(value)


def _figures(figures: dict[str, float]) -> str:
    return "paper: " + ", ".join(f"{name} {value}" for name, value in figures.items())


def _dvc(*words: str, quiet: bool = False) -> str:
    """Run DVC; what it said, which is shown too unless ``quiet``.

    Raises:
        PipelineError: it refused.
    """
    with tempfile.TemporaryFile("w+") as said:  # not a pipe: the workers that it starts would hold it open
        status = subprocess.run(["dvc", *words], stdout=said, stderr=subprocess.STDOUT).returncode
        said.seek(0)
        text = said.read()
    if status:
        raise PipelineError("DVC refused", shlex.join(["dvc", *words]), where=text.strip(), remedy="see above")
    if not quiet:
        print(text.strip(), flush=True)
    return text
