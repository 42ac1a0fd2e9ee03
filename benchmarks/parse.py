"""How long ``snakemake -n all`` takes where everything is fresh: the sample study, with stand-ins for its outputs.

Each output is a folder or file of a few bytes, taken into dvc.lock by ``dvc commit``. What is timed is Python's
imports, DVC's reading of dvc.yaml and comparison with dvc.lock, and Snakemake's plan. Hashing is not: DVC keeps what
it hashed.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import yaml

from benchmarks._checkout import Checkout, check_out

BAR = 3.3  # seconds of wall clock
ROUNDS = 5


def stand_in(study: Checkout) -> int:
    """Make every output, and what lies in one, and commit it to DVC; returns the number of stages."""
    (study.path / "dvc.lock").unlink(missing_ok=True)
    listed = yaml.safe_load(study.run("dvc", "status", "--json").said or "{}")
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


def main() -> None:
    """Time it; the fastest round counts, since other work on the machine only adds."""
    with tempfile.TemporaryDirectory(prefix="parse-") as folder:
        study = check_out(Path(folder) / "study", "sample")
        stages = stand_in(study)
        rounds = [study.run("snakemake", "-n", "all") for _ in range(ROUNDS)]
    assert all("Nothing to be done" in timed.said for timed in rounds), rounds[0].said
    wall, cpu = min(timed.wall for timed in rounds), min(timed.cpu for timed in rounds)
    print(f"snakemake -n all, {stages} stages, all fresh: {wall:.1f} s ({cpu:.1f} s of CPU time), at most {BAR:g} s")
    figures = {"name": "parse", "seconds": round(wall, 2), "cpu_seconds": round(cpu, 2), "target": BAR}
    print(json.dumps({**figures, "met": wall <= BAR}))


if __name__ == "__main__":
    main()
