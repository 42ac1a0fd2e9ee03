"""Leaderboard submissions: predictions of the best seed for test files, in each leaderboard's format."""

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

# gluebenchmark.com accepts a zip file with exactly these files at its top level (FAQ 1, and
# jiant/scripts/benchmarks/benchmarks.py in nyu-mll/jiant).
GLUE = ("CoLA", "SST-2", "MRPC", "STS-B", "QQP", "MNLI-m", "MNLI-mm", "QNLI", "RTE", "WNLI", "AX")
ARCHIVE = "glue.zip"

# For these tasks, the majority class of the training file is submitted, as in the BERT paper (appendix B.1). Until then
# every system submitted to GLUE had a lower score on WNLI than the majority class.
MAJORITY = ("wnli",)


def submissions(read: TaskFiles, best: int, results: Mapping[str, EvalResult]) -> tuple[dict[str, str], list[str]]:
    """Make the submission files of one task.

    Returns:
        File name -> content, and the evaluation sets without a submission because the test file, or the predictions
        for it, are missing.
    """
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
                # No threshold can be found on a file without labels, so the threshold of the labelled set is used.
                threshold = result.scores[best]["threshold"]
        files |= task.submission(name, examples, predictions, threshold)
    return files, missing


def majority(spec: TaskSpec, training: Sequence[Any]) -> str:
    # Returns the most frequent label. If several are equally frequent, it is the first of them in the task's `labels`.
    counts = Counter(example.label for example in training)
    return spec.labels[max(range(len(spec.labels)), key=counts.__getitem__)]


def write_submissions(folder: Path, files: Mapping[str, str], missing: Mapping[str, list[str]]) -> Json:
    # Returns the content of the folder's contents.json. GLUE's archive is made only if none of its files is missing.
    for name, content in files.items():
        (folder / name).write_text(content, encoding="utf-8", newline="\n")
    for task, eval_sets in missing.items():
        log.info("%s: no submission for %s: no test file, or no predictions for it", task, ", ".join(eval_sets))
    lacking = [name for name in GLUE if f"{name}.tsv" not in files]
    if lacking:
        log.info("no %s: %s are missing", ARCHIVE, ", ".join(lacking))
    else:
        # Fixed dates and permissions make the archive's bytes depend only on names and contents.
        with zipfile.ZipFile(folder / ARCHIVE, "w", zipfile.ZIP_STORED) as archive:
            for name in GLUE:
                entry = zipfile.ZipInfo(f"{name}.tsv", date_time=(1980, 1, 1, 0, 0, 0))
                entry.create_system = 3
                entry.external_attr = 0o644 << 16
                archive.writestr(entry, files[f"{name}.tsv"].encode())
    return {"files": sorted(files), "without_predictions": dict(missing), "glue_lacks": lacking}
