"""What DVC's knowledge costs: the same 40 trivial jobs under plain Snakemake and under Snakemake with the bridge.

Both run from nothing, one job at a time, and take turns; the fastest round of each counts.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

from benchmarks._checkout import ROOT, Checkout, snakefile

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


def main() -> None:
    """Time both and print what the bridge adds beside what it may add."""
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
            assert "up to date" in study.run("dvc", "status").said
    plain, bridged = min(walls["plain"]), min(walls["bridged"])
    added, allowed = bridged - plain, START + EACH * JOBS
    cpu = min(cpus["bridged"]) - min(cpus["plain"])
    print(f"{JOBS} trivial jobs: plain Snakemake {plain:.1f} s, with the bridge {bridged:.1f} s")
    print(f"the bridge adds {added:.1f} s ({cpu:.1f} s of CPU time), at most {allowed:.1f} s")
    figures = {"name": "bridge", "ours": round(bridged, 2), "peer": round(plain, 2)}
    figures |= {"added": round(added, 2), "added_cpu": round(cpu, 2), "target": round(allowed, 2)}
    print(json.dumps({**figures, "met": added <= allowed}))


if __name__ == "__main__":
    main()
