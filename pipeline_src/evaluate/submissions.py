"""Submissions to leaderboards: predictions of the best seed for test files, in each leaderboard's format."""

from __future__ import annotations

import zipfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline_src.base.paths import TASKS
from pipeline_src.base.progress import log
from pipeline_src.evaluate.predictions import Json, TaskFiles, predictions_path, read_predictions
from pipeline_src.evaluate.scores import EvalResult
from pipeline_src.study.task_spec import TaskSpec

# gluebenchmark.com takes a zip with exactly these files at its top level (FAQ 1; the same names in nyu-mll/jiant's
# jiant/scripts/benchmarks/benchmarks.py).
GLUE = ("CoLA", "SST-2", "MRPC", "STS-B", "QQP", "MNLI-m", "MNLI-mm", "QNLI", "RTE", "WNLI", "AX")
ARCHIVE = "glue.zip"

# For these tasks the training file's majority class is submitted, as in the paper (appendix B.1): every system
# submitted to GLUE had scored lower on WNLI.
MAJORITY = ("wnli",)


def submissions(read: TaskFiles, best: int, results: Mapping[str, EvalResult]) -> tuple[dict[str, str], list[str]]:
    """Return name -> file of one task, and the evaluation sets whose test file, or predictions for it, are missing."""
    task = read.task
    spec = task.spec
    files: dict[str, str] = {}
    missing: list[str] = []
    for name, result in results.items():
        test = spec.scores[name].test
        examples = read.eval_sets[name].examples
        predictions = result.best
        threshold = None
        if test is not None:
            predicted = predictions_path(spec.name, read.seeds[best], "pretrained", f"{name}.test")
            path = TASKS / spec.name / test.file
            if not (path.exists() and predicted.exists()):
                missing.append(name)
                continue
            examples = task.read(path, name, test=True)
            predictions = read_predictions(predicted)
            if spec.name in MAJORITY:
                label = majority(spec, read.training)
                predictions = [{**row, "prediction": label} for row in predictions]
            if spec.unanswerable:
                # In a file without labels no threshold can be searched: it is that of the labelled set.
                threshold = result.scores[best]["threshold"]
        files |= task.submission(name, examples, predictions, threshold)
    return files, missing


def majority(spec: TaskSpec, training: Sequence[Any]) -> str:
    # If several labels are equally frequent, the first that the task declares.
    counts = Counter(example.label for example in training)
    return spec.labels[max(range(len(spec.labels)), key=counts.__getitem__)]


def write_submissions(folder: Path, files: Mapping[str, str], missing: Mapping[str, list[str]]) -> Json:
    # Returns the folder's index. GLUE's archive is made if no file of it is missing.
    for name, content in files.items():
        (folder / name).write_text(content, encoding="utf-8", newline="\n")
    for task, eval_sets in missing.items():
        log.info("%s: no submission for %s: no test file, or no predictions for it", task, ", ".join(eval_sets))
    lacking = [name for name in GLUE if f"{name}.tsv" not in files]
    if lacking:
        log.info("no %s: %s are missing", ARCHIVE, ", ".join(lacking))
    else:
        # The bytes depend on names and contents only.
        with zipfile.ZipFile(folder / ARCHIVE, "w", zipfile.ZIP_STORED) as archive:
            for name in GLUE:
                entry = zipfile.ZipInfo(f"{name}.tsv", date_time=(1980, 1, 1, 0, 0, 0))
                entry.create_system = 3
                entry.external_attr = 0o644 << 16
                archive.writestr(entry, files[f"{name}.tsv"].encode())
    return {"files": sorted(files), "without_predictions": dict(missing), "glue_lacks": lacking}
