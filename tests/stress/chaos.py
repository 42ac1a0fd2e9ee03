"""Disturb random small studies again and again: ``python -m tests.stress.chaos --minutes 30 [--seed 1]``.

A study of about the `test` preset's size is drawn and run undisturbed. Then, four times, it starts in an empty folder
with a random engine, faults strike it at random moments (``KINDS``), and a random engine starts it again, until one
ends by itself. Nothing may be lost: no engine may run a stage again that DVC had recorded, nor fail for another reason
than a fault or one that docs/two-engines.md lists. Nothing may be false: every output must be as without faults, in
dvc.lock and on the disk, and after a kill of everything no half output may have its final name.

Each run adds a line to docs/lab/kills.tsv. ``--summary`` prints its sums, ``--only 7`` repeats run 7 of a seed, and
``--slurm`` runs the studies on a test cluster, whose daemons die.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import datetime
import os
import platform
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from itertools import count
from pathlib import Path
from typing import Any

import yaml

from benchmarks._checkout import ROOT, Checkout, check_out
from tests import disturb
from tests.disturb import ENGINES, MISSES, Clock, Record, Run, format_counts, read_lock
from tests.workflow.cluster import Cluster, unpack
from tests.workflow.on_slurm import QUICK, on

ON_SLURM = {"snakemake": ["snakemake", *QUICK, "--slurm-keep-successful-logs", "all"]}
LEDGER = ROOT / "docs/lab/kills.tsv"
# The longest pause from the start of a stage to a fault is this share of the time that the undisturbed study took.
MAX_PAUSE = 0.04
FAULTS_OF_A_RUN, RUNS_OF_A_STUDY = 60, 4
# A study takes 300 MB.
DISK = "1G"
# architecture, objective, kind of vocabulary, what the pairs are
MEMBERS = (
    ("bert", "mlm", "wordpiece", "nsp"),
    ("bert", "clm", "wordpiece", "none"),
    ("albert", "mlm", "unigram", "sop"),
    ("roberta", "mlm", "byte_bpe", "none"),
    ("electra", "electra", "wordpiece", "none"),
    ("modernbert", "mlm", "byte_bpe", "none"),
    ("deberta", "mlm", "byte_bpe", "none"),
)
TASKS = ("rte", "squad2", "swag", "cola", "stsb", "squad1", "pos", "word_swap", "cloze")


def draw_study(draw: random.Random, params: dict[str, Any]) -> str:
    """Change the parameters of the `test` preset to those of another small study; return it in a few words."""
    architecture, objective, vocabulary, pairs = draw.choice(MEMBERS)
    tasks, seeds = draw.sample(TASKS, draw.choice([1, 1, 2])), [1, 2][: draw.choice([1, 1, 2])]
    sources = draw.choice([["books"], ["books"], ["wikipedia"], ["books", "wikipedia"], ["books", "plays"]])
    phases = ["phase1", "phase2", *(["phase3"] if draw.random() < 0.3 else [])]
    of_kind = {**params["corpus"]["sources"], "plays": {**params["corpus"]["sources"]["books"], "min_words": 3000}}
    params["corpus"]["sources"] = {name: of_kind[name] for name in sources}
    params["seed"] = draw.randrange(1000)
    params["vocabulary"] |= {"kind": vocabulary, "vocab_size": draw.randrange(1000, 2500)}
    lengths = dict(zip(phases, sorted(draw.choices([32, 64, 128], k=len(phases))), strict=True))
    params["examples"] |= {"pair_objective": pairs, "max_seq_length": lengths}
    params["model"] |= {"architecture": architecture, "embedding_size": None}
    params["pretrain"] |= {
        "objective": objective,
        "optimizer": draw.choice(["adamw", "bert_adam", "lamb", "muon"]),
        "steps": {phase: draw.randint(5, 20) for phase in phases},
        "later_phases": {"phase3": {"after": "phase2"}} if "phase3" in phases else {},
    }
    params["tasks"] = tasks
    params["finetune"]["seeds"] = seeds
    params["finetune"]["per_task"] = {task: {} for task in tasks}
    params["finetune"]["model"] = f"models/pretrained/{phases[-1]}"
    return f"{architecture} {objective}, {'+'.join(sources)}, {' '.join(tasks)} x{len(seeds)}, {len(phases)} phases"


def summary(ledger: Path) -> str:
    """Return the sums of the ledger as a table of Markdown."""
    with ledger.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    sums: Counter[str] = Counter()
    for column in ("faults", "repaired"):
        for row in rows:
            for name, number in re.findall(r"([a-z. -]+) (\d+)", row[column]):
                sums[f"{column}: {name.strip()}"] += int(number)
    seeds = [row["seed"].rpartition("-") for row in rows]
    lines = {
        "studies": len({(seed, int(number) // RUNS_OF_A_STUDY) for seed, _, number in seeds}),
        "runs": len(rows),
        "of them good": sum(row["good"] == "yes" for row in rows),
        "faults": sum(number for name, number in sums.items() if name.startswith("faults")),
        "restarts": sum(int(row["restarts"]) for row in rows),
        **dict(sorted(sums.items())),
        **{f"runs with anything {miss}": sum(row[miss] != "0" for row in rows) for miss in MISSES},
    }
    return "\n".join(["| | |", "| --- | ---: |", *(f"| {name} | {value} |" for name, value in lines.items())])


def add_to_ledger(ledger: Path, seed: str, study: str, run: Run) -> None:
    """Append one run to the ledger."""
    row = [datetime.date.today().isoformat(), f"{os.cpu_count()} x {platform.processor() or platform.machine()}"]
    row += [seed, study, format_counts(run.faults), str(len(run.attempts) - 1)]
    row += [str(len(getattr(run, miss))) for miss in MISSES]
    row += [format_counts(Counter(run.repaired)), "yes" if run.good else "no"]
    with ledger.open("a", encoding="utf-8") as file:
        file.write("\t".join(row) + "\n")


def prepare(folder: Path, seed: str) -> tuple[Path, Record, float, str]:
    """Draw a study and run it undisturbed; return a copy from before, its record, its seconds, and what it is."""
    for made in ("undisturbed", "start"):
        shutil.rmtree(folder / made, ignore_errors=True)
    study = check_out(folder / "undisturbed", "test")
    params = yaml.safe_load((study.path / "params.yaml").read_text(encoding="utf-8"))
    words = draw_study(random.Random(seed), params)
    (study.path / "params.yaml").write_text(yaml.safe_dump(params, sort_keys=False), encoding="utf-8")
    # The committed one is of another study.
    (study.path / "dvc.lock").write_text("schema: '2.0'\n", encoding="utf-8")
    study.run("git", "rm", "-rqf", "--ignore-unmatch", "results")
    study.run("git", "commit", "-qam", "no study has run")
    start = shutil.copytree(study.path, folder / "start", symlinks=True)
    took = study.run(*ENGINES["snakemake"])
    print(f"study {seed}: {words}: {took.wall:.0f} s, {took.cpu:.0f} s of CPU time", flush=True)
    return start, Record.read(study.path, read_lock(study.path) or {}), took.wall, words


def main() -> None:
    """Run it, and print a line a run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30, help="begin no run after so long")
    parser.add_argument("--seed", default=f"{datetime.datetime.now():%m%d%H%M}", help="decides studies and faults")
    parser.add_argument("--only", type=int, help="the number of the one run to make")
    parser.add_argument("--slurm", action="store_true", help="on a test cluster, whose daemons die")
    parser.add_argument("--ledger", type=Path, default=LEDGER)
    parser.add_argument("--summary", action="store_true", help="print the ledger's sums and do nothing")
    arguments = parser.parse_args()
    if not arguments.summary:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
        with tempfile.TemporaryDirectory(prefix="chaos-") as folder, contextlib.ExitStack() as stack:
            cluster = None
            if arguments.slurm:
                unpack(Path(folder))
                cluster = Cluster(Path(folder))
                stack.callback(cluster.down)
                cluster.up()
            disturb_studies(arguments, Path(folder), cluster)
    print(summary(arguments.ledger))


def disturb_studies(arguments: argparse.Namespace, folder: Path, cluster: Cluster | None) -> None:
    # Else each run would download its texts.
    os.environ.setdefault("PIP_CACHE_DIR", str(folder / "pip"))
    clock = Clock(folder) if shutil.which("cc") else None
    deadline = time.monotonic() + 60 * arguments.minutes
    for number in count() if arguments.only is None else [arguments.only]:
        if time.monotonic() > deadline:
            break
        if number % RUNS_OF_A_STUDY == 0 or arguments.only is not None:
            start, record, seconds, words = prepare(folder, f"{arguments.seed}-study{number // RUNS_OF_A_STUDY}")
        seed = f"{arguments.seed}-{number}"
        with disturb.small_disk(folder / "disk", DISK) as mounted:
            path = shutil.copytree(start, folder / "disk/study", symlinks=True)
            run = Run(path, Checkout(path).environment, record, random.Random(seed), MAX_PAUSE * seconds)
            if mounted:
                run.kinds = {**run.kinds, "full disk": disturb.fill_disk}
            if clock and not cluster and run.draw.random() < 0.5:
                clock.set(0)
                run.kinds = {**run.kinds, "clock": clock.jump}
                run.environment = {**run.environment, **clock.variables}
            if cluster:
                run.kinds = {**run.kinds, "engine": disturb.kill_group, "daemon": disturb.crash_daemon(cluster)}
                run.engines, run.environment = ON_SLURM, {**run.environment, **on(cluster)}
            run.to_end(FAULTS_OF_A_RUN)
        print(f"{seed}: {run}", flush=True)
        add_to_ledger(arguments.ledger, seed, words + (", on Slurm" if cluster else ""), run)
        if not run.good:
            logs = [f"=== {attempt.engine}: {attempt.faults}\n{attempt.text}" for attempt in run.attempts]
            Path(tempfile.gettempdir(), f"chaos-{seed}.log").write_text("\n".join(logs), encoding="utf-8")


if __name__ == "__main__":
    main()
