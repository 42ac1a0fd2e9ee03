"""What leaderboards want: predictions for the test files, in each one's own layout, from the best restart."""

from __future__ import annotations

import zipfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline_src.common.progress import log
from pipeline_src.evaluation.prediction_files import predictions_path, read_predictions
from pipeline_src.evaluation.task_scores import TASKS, TaskScores
from pipeline_src.tasks.files.spec import TaskSpec
from pipeline_src.tasks.handlers import HANDLERS

# What gluebenchmark.com takes: a zip with exactly these at its top (its FAQ 1; the same names in nyu-mll/jiant's
# jiant/scripts/benchmarks/benchmarks.py).
GLUE = ("CoLA", "SST-2", "MRPC", "STS-B", "QQP", "MNLI-m", "MNLI-mm", "QNLI", "RTE", "WNLI", "AX")
ARCHIVE = "glue.zip"

# Handed in as the training file's majority class, whatever the model says. The paper does so (appendix B.1), since
# every trained system that GLUE had seen did worse on WNLI than that.
MAJORITY = ("wnli",)


def submissions(scores: TaskScores) -> tuple[dict[str, str], list[str]]:
    """Files of one task by name, and the evaluation sets whose test file has no predictions or is not there.

    Raises:
        PipelineError: predictions are malformed or belong to another file.
    """
    spec, handler = scores.spec, HANDLERS[scores.spec.kind]
    submit = getattr(handler, "submission", None)
    files: dict[str, str] = {}
    missing: list[str] = []
    if submit is None:
        return files, missing
    for name, result in scores.results.items():
        test = spec.scores[name].test
        examples, predictions = result.examples, result.best
        if test is not None:
            given = predictions_path(spec.name, scores.best, "pretrained", name, test=True)
            path = TASKS / spec.name / test.file
            if not (path.exists() and given.exists()):
                missing.append(name)
                continue
            examples, predictions = handler.read(spec, path, name, test=True), read_predictions(given)
            if spec.name in MAJORITY:
                label = majority(spec)
                predictions = [{**row, "prediction": label} for row in predictions]
        told = {}
        if test is not None and spec.unanswerable:  # in a file without labels no threshold can be searched
            told["threshold"] = result.scores[scores.restarts.index(scores.best)]["threshold"]
        files |= submit(spec, name, examples, predictions, **told)
    return files, missing


def majority(spec: TaskSpec) -> str:
    """The most frequent label of the training file; of equally frequent ones the first declared."""
    counts = Counter(example.label for example in HANDLERS[spec.kind].read(spec, TASKS / spec.name / spec.train))
    return spec.labels[max(range(len(spec.labels)), key=lambda label: counts[label])]


def write_submissions(folder: Path, files: Mapping[str, str], missing: Mapping[str, list[str]]) -> dict[str, Any]:
    """Write every file into ``folder``, and GLUE's archive once all eleven files of it are there.

    Returns:
        What was written and what is missing, for people.
    """
    for name, content in files.items():
        (folder / name).write_text(content, encoding="utf-8", newline="\n")
    lacking = [name for name in GLUE if f"{name}.tsv" not in files]
    for task, rows in missing.items():
        log.info("%s: no submission for %s: no test file, or no predictions for it", task, ", ".join(rows))
    if lacking:
        log.info("no %s: %s are missing", ARCHIVE, ", ".join(lacking))
    else:
        write_archive(folder / ARCHIVE, {f"{name}.tsv": files[f"{name}.tsv"] for name in GLUE})
    return {"files": sorted(files), "without_predictions": dict(missing), "glue_lacks": lacking}


def write_archive(path: Path, files: Mapping[str, str]) -> None:
    """A zip whose bytes depend on names and contents alone: no times, and stored, as compressors differ."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            entry.create_system, entry.external_attr = 3, 0o644 << 16
            archive.writestr(entry, content.encode())
