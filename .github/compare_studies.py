"""Print what changed between two runs of a study, as Markdown: ``compare_studies.py BEFORE AFTER``.

Each folder has a study's dvc.lock, results and logs. Of scores, outputs and times, only changes are listed.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import yaml

# A stage's CPU time is listed if it changed by more than both.
MIN_SECONDS, MIN_SHARE = 1.0, 0.2
MISSING = "–"
# Row of a table: name, value before, value after.
Row = tuple[str, str, str]


def scores(folder: Path) -> dict[str, str]:
    values = {}
    with open(folder / "results/scores.tsv", encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            values[f"{row['score']} ({row['split']})"] = row["value"]
    for path in sorted(folder.glob("results/pretrain/*.json")):
        for name, value in json.loads(path.read_text(encoding="utf-8"))["validation"].items():
            values[f"{path.stem}, validation text: {name}"] = f"{value:.4f}"
    return values


def outputs(folder: Path) -> dict[str, str]:
    lock = yaml.safe_load((folder / "dvc.lock").read_text(encoding="utf-8"))
    values = {}
    for stage in lock["stages"].values():
        for out in stage.get("outs", ()):
            values[out["path"]] = f"{out['size']:,} bytes, {out['md5'][:8]}"
    return values


def times(folder: Path) -> dict[str, float]:
    values = {}
    for path in sorted(folder.glob("logs/*/*.run.json")):
        run = json.loads(path.read_text(encoding="utf-8"))
        values[f"{run['stage']} {run['item']}"] = run["cpu_seconds"]
    return values


def changes(before: dict[str, str], after: dict[str, str]) -> Iterator[Row]:
    for name in dict.fromkeys([*before, *after]):
        row = name, before.get(name, MISSING), after.get(name, MISSING)
        if row[1] != row[2]:
            yield row


def slower_or_faster(before: dict[str, float], after: dict[str, float]) -> Iterator[Row]:
    for name in before.keys() & after.keys():
        old, new = before[name], after[name]
        if abs(new - old) > max(MIN_SECONDS, MIN_SHARE * old):
            yield name, f"{old:.1f} s", f"{new:.1f} s"


def compare(before: Path, after: Path) -> str:
    tables = {
        "scores": list(changes(scores(before), scores(after))),
        "outputs": list(changes(outputs(before), outputs(after))),
        "CPU times": sorted(slower_or_faster(times(before), times(after))),
    }
    parts = ["## The sample study, before and after"]
    unchanged = [title for title, rows in tables.items() if not rows]
    if unchanged:
        parts.append(f"Unchanged: {', '.join(unchanged)}.")
    for title, rows in tables.items():
        if rows:
            lines = [f"| {title} | before | after |", "| --- | ---: | ---: |"]
            lines += [f"| {name.replace('|', '/')} | {old} | {new} |" for name, old, new in rows]
            parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    print(compare(*map(Path, sys.argv[1:])), end="")
