"""The comment on a pull request: what changed in the sample study, and nothing else."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / ".github/compare_studies.py"
LOCK = """\
schema: '2.0'
stages:
  tokenize:
    cmd: python
    outs:
    - path: data/tokens
      md5: {md5}.dir
      size: {size}
"""


def write(folder: Path, accuracy: float = 71.25, loss: float = 4.5, size: int = 1234, seconds: float = 10.0) -> Path:
    for name in ("results/pretrain", "logs/tokenize", "logs/finetune"):
        (folder / name).mkdir(parents=True)
    header = "score\tsplit\tmetric\tvalue\tmajority_baseline\n"
    (folder / "results/scores.tsv").write_text(f"{header}CoLA, Matthews\tdev.tsv\tMatthews\t{accuracy:.4f}\t0.0\n")
    (folder / "results/pretrain/phase1.json").write_text(json.dumps({"validation": {"mlm_loss": loss}}))
    (folder / "dvc.lock").write_text(LOCK.format(md5=f"{size:032x}", size=size))
    for stage, item, spent in (("tokenize", "all", seconds), ("finetune", "cola-1", 3.0)):
        run = {"stage": stage, "item": item, "cpu_seconds": spent}
        (folder / f"logs/{stage}/{item}.run.json").write_text(json.dumps(run))
    return folder


def compare(before: Path, after: Path) -> str:
    command = [sys.executable, str(SCRIPT), str(before), str(after)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_compare_studies_equal_results_list_nothing(tmp_path: Path) -> None:
    before = write(tmp_path / "before")
    text = compare(before, Path(shutil.copytree(before, tmp_path / "after")))
    assert "Unchanged: scores, outputs, CPU times." in text and "|" not in text


@pytest.mark.parametrize(
    ("change", "row", "unchanged"),
    [
        ({"accuracy": 70.0}, "| CoLA, Matthews (dev.tsv) | 71.2500 | 70.0000 |", "outputs, CPU times"),
        ({"loss": 4.25}, "| phase1, validation text: mlm_loss | 4.5000 | 4.2500 |", "outputs, CPU times"),
        (
            {"size": 2345},
            "| data/tokens | 1,234 bytes, 00000000 | 2,345 bytes, 00000000 |",
            "scores, CPU times",
        ),
        ({"seconds": 12.1}, "| tokenize all | 10.0 s | 12.1 s |", "scores, outputs"),
    ],
    ids=["score", "loss", "bytes", "time"],
)
def test_compare_studies_lists_only_what_changed(tmp_path: Path, change: dict, row: str, unchanged: str) -> None:
    text = compare(write(tmp_path / "before"), write(tmp_path / "after", **change))
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len(rows) == 3 and rows[-1] == row
    assert f"Unchanged: {unchanged}." in text


def test_compare_studies_small_change_of_time_is_noise(tmp_path: Path) -> None:
    text = compare(write(tmp_path / "before"), write(tmp_path / "after", seconds=11.9))
    assert "Unchanged: scores, outputs, CPU times." in text


def test_compare_studies_lists_added_and_removed_outputs(tmp_path: Path) -> None:
    before, after = write(tmp_path / "before"), write(tmp_path / "after")
    lock = (after / "dvc.lock").read_text()
    (after / "dvc.lock").write_text(lock.replace("data/tokens", "data/ids"))
    rows = [line.split(" | ")[0] for line in compare(before, after).splitlines() if line.startswith("| data/")]
    assert rows == ["| data/tokens", "| data/ids"]
