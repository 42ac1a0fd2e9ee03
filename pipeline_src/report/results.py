"""What a study found, read from results/ alone, and the figures computed from it by named formulas."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.paths import RESULTS
from pipeline_src.report.result_files import read_result
from pipeline_src.report.traced import JsonRef, TracedValue, computed

PHASES = ("short", "long")
# The numbers whose mean the paper's table 1 calls the average: MNLI-m and -mm apart, without WNLI; F1 for QQP and
# MRPC, Spearman for STS-B (section 4.1).
GLUE_AVERAGE = {
    "mnli": "accuracy",
    "mnli_mm": "accuracy",
    "qqp": "f1",
    "qnli": "accuracy",
    "sst2": "accuracy",
    "cola": "matthews",
    "stsb": "spearman",
    "mrpc": "f1",
    "rte": "accuracy",
}
IN_SUMMARY = {("squad1", "f1"), ("squad2", "f1"), ("swag", "accuracy"), ("ner", "entity_f1")}
Curve = dict[str, list[float | None]]


@dataclass(frozen=True)
class Results:
    """Everything a report is made of.

    Attributes:
        documents: JSON documents by their path, such as ``results/scores.json``.
        curves: columns of ``results/pretrain/<phase>.tsv`` by phase; None where a cell is empty.
    """

    documents: dict[str, Any]
    curves: dict[str, Curve]

    def ref(self, name: str) -> JsonRef:
        """A document of ``results/`` as a :class:`JsonRef`, by its name there, such as ``scores.json``."""
        return JsonRef(self.documents[f"results/{name}"], f"results/{name}")

    @property
    def scores(self) -> dict[str, Any]:
        """``results/scores.json``: one row per evaluation set and metric."""
        return self.documents["results/scores.json"]

    @property
    def corpus(self) -> dict[str, Any]:
        """``results/corpus.json``."""
        return self.documents["results/corpus.json"]

    @property
    def pretrain(self) -> dict[str, dict[str, Any]]:
        """``results/pretrain/<phase>.json`` by phase.

        ``fill_mask`` in it is what :meth:`pipeline_src.pretraining.mask_probes.MaskProbes.ask` found, time after time.
        """
        return {phase: self.documents[f"results/pretrain/{phase}.json"] for phase in PHASES}

    @property
    def tasks(self) -> dict[str, JsonRef]:
        """``results/tasks/<task>.json`` by task, in the order of the scores; without those that are not there."""
        names = dict.fromkeys(row["task"] for row in self.scores["rows"])
        return {
            name: self.ref(f"tasks/{name}.json") for name in names if f"results/tasks/{name}.json" in self.documents
        }

    @property
    def lengths(self) -> dict[str, int]:
        """Tokens of the longest example by phase."""
        return {phase: self.corpus["examples"][phase]["length"] for phase in PHASES}

    @property
    def synthetic(self) -> bool:
        """Whether any of the task scores come from synthetic tasks."""
        return bool(self.scores["synthetic"])


def read_results(folder: Path = RESULTS) -> Results:
    """Read a study's results.

    Raises:
        PipelineError: a file is missing or malformed.
    """
    names = ["scores.json", "corpus.json", *(f"pretrain/{phase}.json" for phase in PHASES)]
    for part in ("tasks", "interpretation"):
        names += [f"{part}/{path.name}" for path in sorted((folder / part).glob("*.json"))]
    return Results(
        documents={f"results/{name}": read_result(folder, name) for name in names},
        curves={phase: read_curve(folder / "pretrain" / f"{phase}.tsv") for phase in PHASES},
    )


def read_curve(path: Path) -> Curve:
    """Columns of numbers of a TSV file; an empty cell is None.

    Raises:
        PipelineError: there is no such file, or a cell is no number.
    """
    if not path.exists():
        raise PipelineError("no loss curve", path, remedy="run the study, or `dvc pull` its results")
    with open(path, encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file, delimiter="\t"))
    try:
        return {
            name: [float(row[place]) if row[place] else None for row in rows[1:]] for place, name in enumerate(rows[0])
        }
    except (ValueError, IndexError) as error:
        raise PipelineError("not a table of numbers", error, where=path, remedy="run its stage again") from None


def is_synthetic(scores: dict[str, Any], task: str) -> bool:
    """Whether a rule of this project made the task; in a study of synthetic tasks some may be one's own."""
    return task in scores["rules"]


def is_from_corpus(scores: dict[str, Any], task: str) -> bool:
    """Whether the task was made from the study's own held-out text."""
    return task in scores.get("from_corpus", {})  # older studies have none


def from_corpus(scores: JsonRef) -> list[JsonRef]:
    """The main row of each task made from the corpus."""
    return [row for row in scores["rows"] if row.value["main"] and is_from_corpus(scores.value, row.value["task"])]


def against(row: dict[str, Any], baseline: str) -> dict[str, Any] | None:
    """How a row's score differs from a baseline's on the same examples; None where there is no such baseline."""
    known = row.get("baselines", {}).get(baseline)
    return known["against"] if known else None


def told_better(row: dict[str, Any], baseline: str) -> bool:
    """Whether a score is above a baseline's by more than noise."""
    found = against(row, baseline)
    return found is not None and found["told"] and found["difference"] > 0


def in_average(scores: JsonRef) -> list[JsonRef]:
    """The rows of ``scores.json`` that the GLUE average is made of, as far as the study holds them."""
    return [row for row in scores["rows"] if GLUE_AVERAGE.get(row.value["eval_set"]) == row.value["metric"]]


def glue_average(scores: JsonRef, formula: str = "mean over restarts") -> TracedValue | None:
    """Mean, deviation or best of the restarts' averages over :func:`in_average`; None without any such score."""
    rows = in_average(scores)
    return computed(formula, *(row["values"] for row in rows)) if rows else None


MOST = 8  # figures of the summary: as many columns as a terminal holds


def summarise(results: Results) -> dict[str, float]:
    """The few figures by which experiments are compared (``dvc exp show``, ``dvc metrics diff``): the first eight.

    Losses are of the validation documents after the last phase, task scores in percent, named synthetic where they are.
    ``from_corpus`` is the average over the tasks made from this corpus; an ``_error`` is half of a 95 % interval.
    Digits are those that the tables of the report have: rounded twice, a figure would stand there as another one.
    """
    validation, scores = results.pretrain["long"]["validation"], results.scores
    shown = {"mlm_loss": "mlm_loss", "mlm_gap": "gap", "nsp_accuracy": "nsp_accuracy", "rtd_auc": "rtd_auc"}
    summary = {name: round(validation[figure], 3) for name, figure in shown.items() if figure in validation}
    ref = results.ref("scores.json")
    if own := from_corpus(ref):
        summary |= _with_error("from_corpus", computed("average", *(row["mean"] for row in own)), own)
    average = glue_average(ref)
    if average is not None:
        made = any(is_synthetic(scores, row.value["task"]) for row in in_average(ref))
        summary |= _with_error("synthetic_glue" if made else "glue", average, in_average(ref))
    for row in scores["rows"]:
        if (row["eval_set"], row["metric"]) in IN_SUMMARY:
            prefix = "synthetic_" if is_synthetic(scores, row["task"]) else ""
            summary[f"{prefix}{row['eval_set']}"] = round(row["mean"], 1)
    return dict(list(summary.items())[:MOST])


def error_of(rows: Sequence[JsonRef]) -> TracedValue | None:
    """Half the 95 % interval of the average of some rows' scores; None where one has no interval."""
    if not all(row.value.get("interval") for row in rows):
        return None
    return computed("error of the average", *(row["interval"] for row in rows))


def _with_error(name: str, average: TracedValue, rows: Sequence[JsonRef]) -> dict[str, float]:
    error = error_of(rows)
    found = {name: round(average.value, 1)}
    return found if error is None else found | {f"{name}_error": round(error.value, 1)}
