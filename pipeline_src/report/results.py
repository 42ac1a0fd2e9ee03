"""What a study found, read from results/*.json alone, and the figures computed from it by named formulas."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import pandas as pd

from pipeline_src.errors import PipelineError
from pipeline_src.files import read_json

RESULTS = Path("results")
PHASES = ("short", "long")
# Rows of the GLUE average as the paper's table 1 counts it: MNLI-m and -mm apart, without WNLI (section 4.1).
GLUE_AVERAGE = ("mnli", "mnli_mm", "qqp", "qnli", "sst2", "cola", "stsb", "mrpc", "rte")


@dataclass(frozen=True)
class Results:
    """Everything a report is made of.

    Attributes:
        scores: ``results/scores.json``: one row per score row and metric.
        corpus: ``results/corpus.json``.
        pretrain: ``results/pretrain/<phase>.json`` by phase.
        curves: ``results/pretrain/<phase>.tsv`` by phase.
    """

    scores: dict[str, Any]
    corpus: dict[str, Any]
    pretrain: dict[str, dict[str, Any]]
    curves: dict[str, pd.DataFrame]

    @property
    def lengths(self) -> dict[str, int]:
        """Tokens of the longest example by phase."""
        return {phase: self.corpus["examples"][phase]["length"] for phase in PHASES}

    @property
    def synthetic(self) -> bool:
        """Whether the task scores come from synthetic tasks."""
        return bool(self.scores["synthetic"])


def read_results(folder: Path = RESULTS) -> Results:
    """Read a study's results.

    Raises:
        PipelineError: a file is missing or malformed.
    """
    curves = {}
    for phase in PHASES:
        path = folder / "pretrain" / f"{phase}.tsv"
        if not path.exists():
            raise PipelineError("no loss curve", path, remedy="run the study, or `dvc pull` its results")
        curves[phase] = pd.read_csv(path, sep="\t")
    return Results(
        scores=read_json(folder / "scores.json"),
        corpus=read_json(folder / "corpus.json"),
        pretrain={phase: read_json(folder / "pretrain" / f"{phase}.json") for phase in PHASES},
        curves=curves,
    )


def main_scores(scores: dict[str, Any]) -> dict[str, float]:
    """One number per score row: the mean of its metrics (accuracy and F1 of QQP and MRPC, as GLUE averages them)."""
    by_row: dict[str, list[float]] = {}
    for row in scores["rows"]:
        by_row.setdefault(row["row"], []).append(row["mean"])
    return {name: fmean(values) for name, values in by_row.items()}


def glue_average(scores: dict[str, Any]) -> float | None:
    """Mean of :func:`main_scores` over the rows of ``GLUE_AVERAGE`` that the study holds; None without any."""
    found = main_scores(scores)
    values = [found[row] for row in GLUE_AVERAGE if row in found]
    return fmean(values) if values else None


def summarise(results: Results) -> dict[str, float]:
    """The few figures by which experiments are compared (``dvc exp show``, ``dvc metrics diff``).

    Losses are of the held-out documents after the last phase; task scores in percent, named synthetic where they are.
    """
    heldout = results.pretrain["long"]["heldout"]
    summary = {
        "mlm_loss": round(heldout["mlm_loss"], 4),
        "mlm_gap": round(heldout["gap"], 4),
    }
    if "nsp_accuracy" in heldout:
        summary["nsp_accuracy"] = round(heldout["nsp_accuracy"], 4)
    prefix = "synthetic_" if results.synthetic else ""
    average = glue_average(results.scores)
    if average is not None:
        summary[f"{prefix}glue"] = round(average, 2)
    wanted = {("squad1", "f1"), ("squad2", "f1"), ("swag", "accuracy")}
    for row in results.scores["rows"]:
        if (row["row"], row["metric"]) in wanted:
            summary[f"{prefix}{row['row']}"] = round(row["mean"], 2)
    return summary
