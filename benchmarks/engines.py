"""Overhead of the engines: their plans of studies of 41 to 305 stages, a job's own start, and DVC's knowledge.

The studies are the sample with more seeds of its tasks. Every output is a stand-in, a folder or file of a few bytes,
taken into dvc.lock by ``dvc commit``; nothing is stale. What is timed is Python's imports, DVC's reading of dvc.yaml
and comparison with dvc.lock, and Snakemake's plan. Hashing is not: DVC keeps what it hashed. A job's start is DVC's
command for a stage that runs ``echo``; most of it is dvc.lock, which DVC writes again for each stage.

DVC's knowledge is the same 40 trivial jobs under plain Snakemake and under Snakemake with the bridge. Both run from
nothing, one job at a time, and take turns; the fastest round of each counts.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import yaml

from benchmarks._checkout import ROOT, Checkout, check_out, snakefile

# Wall-clock seconds that the sample's plan may take, and rounds of each command.
PLAN_BAR, PLAN_ROUNDS = 3.3, 4
# Seeds of each of the sample's 22 tasks, which make 41, 107 and 305 stages.
SEEDS = (1, 4, 13)
# What is timed -> command, CPU-seconds it may take at the largest size.
COMMANDS = {
    "status": ("dvc status", 6.0),
    "plan": ("snakemake -n all", 8.0),
    "job": ("dvc --wait-for-lock repro --force --single-item trivial", 2.5),
}
TRIVIAL = """
  trivial:
    cmd: echo 1 > results/trivial.txt
    outs: [results/trivial.txt]

metrics:
"""
JOBS, ROUNDS = 40, 3
# Seconds that the bridge may add, in all and for each finished job.
START, EACH = 3.0, 0.4
STUDY = """
stages:
  echo:
    foreach: ${numbers}
    do:
      cmd: echo ${item} > out/${item}.txt
      deps: [given.txt]
      outs: ["out/${item}.txt"]
"""
PLAIN = """
rule all:
    default_target: True
    input: expand("out/{item}.txt", item=range(JOBS))
rule echo:
    input: "given.txt"
    output: "out/{item}.txt"
    shell: "echo {wildcards.item} > {output}"
""".replace("JOBS", str(JOBS))


def stand_in(study: Checkout) -> int:
    """Make every output, and what lies in one, and commit it to DVC; returns the number of stages."""
    (study.path / "dvc.lock").unlink(missing_ok=True)
    listed = yaml.safe_load(study.run("dvc", "status", "--json").output or "{}")
    changes = [change for stage in listed.values() for change in stage if isinstance(change, dict)]
    missing = {name for kind in ("changed outs", "changed deps") for change in changes for name in change.get(kind, {})}
    for path in sorted(study.path / name for name in missing if not (study.path / name).exists()):
        if path.suffix:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("{}\n" if path.suffix == ".json" else "\n")
        else:
            path.mkdir(parents=True, exist_ok=True)
            (path / "file").write_text(f"{path.name}\n")
    study.run("dvc", "commit", "-f", "-q")
    return len(listed)


def time_study(seeds: int) -> tuple[int, dict[str, tuple[float, float]]]:
    """Time each command of a fresh study with so many seeds; other work only adds, so the fastest round counts.

    Returns:
        The number of stages; what is timed -> seconds of wall clock and of CPU time.
    """
    with tempfile.TemporaryDirectory(prefix="plan-") as folder:
        study = check_out(Path(folder) / "study", "sample")
        params = study.path / "params.yaml"
        listed = "".join(f"  - {seed}\n" for seed in range(1, seeds + 1))
        params.write_text(params.read_text().replace("  seeds:\n  - 1\n", f"  seeds:\n{listed}"))
        stages = stand_in(study)
        times = {}
        for name, (command, _) in COMMANDS.items():
            if name == "job":
                declared = study.path / "dvc.yaml"
                declared.write_text(declared.read_text().replace("\nmetrics:\n", TRIVIAL, 1))
            rounds = [study.run(*command.split()) for _ in range(PLAN_ROUNDS)]
            expected = {"status": "up to date", "plan": "Nothing to be done", "job": "Running stage 'trivial'"}[name]
            assert all(expected in timed.output for timed in rounds), rounds[0].output
            times[name] = min(timed.wall for timed in rounds), min(timed.cpu for timed in rounds)
    return stages, times


def time_studies() -> dict[str, Any]:
    figures: dict[str, Any] = {}
    for seeds in SEEDS:
        stages, times = time_study(seeds)
        texts = [f"{command.split(' --single')[0]}: {times[name][1]:.1f}" for name, (command, _) in COMMANDS.items()]
        print(f"{stages} stages, all fresh; CPU-seconds of {'; '.join(texts)}", flush=True)
        figures |= {f"{name}_cpu_{stages}": round(cpu, 2) for name, (_, cpu) in times.items()}
        if seeds == 1:
            wall = times["plan"][0]
            print(f"snakemake -n all of the sample: {wall:.1f} s, at most {PLAN_BAR:g} s")
            figures |= {"plan": round(wall, 2), "plan_target": PLAN_BAR, "plan_met": wall <= PLAN_BAR}
    bars = {name: bar for name, (_, bar) in COMMANDS.items()}
    print(f"at most, with {stages} stages: {', '.join(f'{name} {bar:g}' for name, bar in bars.items())}")
    return figures | {"bars": bars, "bars_met": all(times[name][1] <= bar for name, bar in bars.items())}


def write(path: Path, rules: str) -> Checkout:
    for folder in ("workflow/profiles/default", "out", ".dvc"):
        (path / folder).mkdir(parents=True)
    (path / "dvc.yaml").write_text(STUDY)
    (path / "params.yaml").write_text(f"numbers: {list(range(JOBS))}\n")
    (path / "given.txt").write_text("given\n")
    (path / ".dvc/config").write_text("[core]\n    no_scm = true\n    analytics = false\n")
    (path / "workflow/Snakefile").write_text(rules)
    shutil.copy(ROOT / "workflow/profiles/default/config.yaml", path / "workflow/profiles/default/config.yaml")
    return Checkout(path)


def time_bridge() -> dict[str, Any]:
    walls: dict[str, list[float]] = {"plain": [], "bridged": []}
    cpus: dict[str, list[float]] = {"plain": [], "bridged": []}
    with tempfile.TemporaryDirectory(prefix="bridge-") as folder:
        for number in range(ROUNDS):
            for side, rules in {"plain": PLAIN, "bridged": snakefile({"echo": {"foreach": []}})}.items():
                study = write(Path(folder) / f"{number}" / side, rules)
                timed = study.run("snakemake", "--cores", "1", "all")
                walls[side].append(timed.wall)
                cpus[side].append(timed.cpu)
                assert len(list((study.path / "out").glob("*.txt"))) == JOBS
            assert "up to date" in study.run("dvc", "status").output
    plain, bridged = min(walls["plain"]), min(walls["bridged"])
    added, allowed = bridged - plain, START + EACH * JOBS
    cpu = min(cpus["bridged"]) - min(cpus["plain"])
    print(f"{JOBS} trivial jobs: plain Snakemake {plain:.1f} s, with the bridge {bridged:.1f} s")
    print(f"the bridge adds {added:.1f} s ({cpu:.1f} s of CPU time), at most {allowed:.1f} s")
    figures: dict[str, Any] = {"ours": round(bridged, 2), "peer": round(plain, 2), "added": round(added, 2)}
    return figures | {"added_cpu": round(cpu, 2), "target": round(allowed, 2), "met": added <= allowed}


def main() -> None:
    figures = time_studies() | time_bridge()
    figures["met"] = figures["met"] and figures.pop("plan_met") and figures.pop("bars_met")
    print(json.dumps({"name": "engines", **figures}))


if __name__ == "__main__":
    main()
