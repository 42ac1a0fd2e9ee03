"""Overhead of the engines: ``snakemake -n all`` of the sample study where everything is fresh, and DVC's knowledge.

The plan is made of stand-ins for the study's outputs: each is a folder or file of a few bytes, taken into dvc.lock by
``dvc commit``. What is timed is Python's imports, DVC's reading of dvc.yaml and comparison with dvc.lock, and
Snakemake's plan. Hashing is not: DVC keeps what it hashed.

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

PLAN_BAR, PLAN_ROUNDS = 3.3, 5  # seconds of wall clock
JOBS, ROUNDS = 40, 3
START, EACH = 3.0, 0.4  # seconds that the bridge may add, in all and for each finished job
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


def time_plan() -> dict[str, Any]:
    """Time the plan of a fresh study; the fastest round counts, since other work on the machine only adds."""
    with tempfile.TemporaryDirectory(prefix="plan-") as folder:
        study = check_out(Path(folder) / "study", "sample")
        stages = stand_in(study)
        rounds = [study.run("snakemake", "-n", "all") for _ in range(PLAN_ROUNDS)]
    assert all("Nothing to be done" in timed.output for timed in rounds), rounds[0].output
    wall, cpu = min(timed.wall for timed in rounds), min(timed.cpu for timed in rounds)
    print(
        f"snakemake -n all, {stages} stages, all fresh: {wall:.1f} s ({cpu:.1f} s of CPU time), at most {PLAN_BAR:g} s"
    )
    return {"plan": round(wall, 2), "plan_cpu": round(cpu, 2), "plan_target": PLAN_BAR, "plan_met": wall <= PLAN_BAR}


def write(path: Path, rules: str) -> Checkout:
    """The study of 40 jobs with one of the two Snakefiles."""
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
    """Time both sides, and print what the bridge adds and may add."""
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
    """Print both, then one JSON object."""
    figures = time_plan() | time_bridge()
    print(json.dumps({"name": "engines", **figures, "met": figures.pop("plan_met") and figures["met"]}))


if __name__ == "__main__":
    main()
