"""Stage ``evaluate``: scores computed from prediction files and the tasks' own files, without a model.

Also what the corpus was that all of it was learnt from (statistics.py).

``results/scores.json`` is a list of rows, one per task, score row and metric: the score of every restart, their mean
and deviation, the chance level and the same training from random weights.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from pipeline_src.errors import PipelineError
from pipeline_src.evaluation.statistics import corpus_statistics
from pipeline_src.files import write_json
from pipeline_src.params.finetune import FinetuneParams
from pipeline_src.params.wikipedia import WikipediaParams
from pipeline_src.progress import log
from pipeline_src.sources.synthetic import RULES
from pipeline_src.tasks.handlers import HANDLERS
from pipeline_src.tasks.spec import load_spec

PREDICTIONS, TASKS = Path("results/predictions"), Path("data/tasks")
SCORES, CORPUS = Path("results/scores.json"), Path("results/corpus.json")
REMEDY = "run the stage `finetune` for this task again"


def run(*, task_source: str, tasks: tuple[str, ...], finetune: FinetuneParams, wikipedia: WikipediaParams) -> None:
    """Read ``results/predictions``, ``data/``; write ``results/scores.json`` and ``results/corpus.json``.

    Raises:
        PipelineError: a prediction file is missing, malformed, or does not belong to the task's file; or what a
            corpus stage left is.
    """
    rows = [row for task in tasks for row in score_task(task, finetune.restarts)]
    synthetic = task_source == "synthetic"
    rules = {task: RULES[task] for task in tasks} if synthetic else {}
    write_json(CORPUS, corpus_statistics(wikipedia.parts, tasks))
    write_json(SCORES, {"synthetic": synthetic, "task_source": task_source, "rules": rules, "rows": rows})
    log.info("%d scores of %d tasks", len(rows), len(tasks))


def score_task(task: str, restarts: Sequence[int]) -> list[dict[str, Any]]:
    """Every score row and metric of one task, over the listed restarts alone: others may still lie there."""
    spec = load_spec(task)
    handler = HANDLERS[spec.kind]
    folders = [PREDICTIONS / task / str(restart) for restart in restarts]
    rows = []
    for name, row in spec.scores.items():
        examples = handler.read(spec, TASKS / task / row.file, name)
        chance = handler.chance(spec, name, examples)
        scores = {
            weights: [
                handler.score(spec, name, examples, read_predictions(folder / weights / f"{name}.jsonl"))
                for folder in folders
                if weights == "pretrained" or (folder / weights).exists()  # the baseline is optional
            ]
            for weights in ("pretrained", "random")
        }
        for metric in row.metrics:
            values = [score[metric] for score in scores["pretrained"]]
            baseline = [score[metric] for score in scores["random"]]
            rows.append(
                {
                    "task": task,
                    "row": name,
                    "title": row.title,
                    "file": row.file,
                    "metric": metric,
                    "main": metric == row.metrics[0],
                    "examples": len(examples),
                    "values": values,
                    "mean": fmean(values),
                    "deviation": stdev(values) if len(values) > 1 else None,
                    "chance": chance[metric],
                    "random_weights": fmean(baseline) if baseline else None,
                }
            )
    return rows


def read_predictions(path: Path) -> list[dict[str, Any]]:
    """The rows of a prediction file, JSON lines.

    Raises:
        PipelineError: the file is missing, or a line of it is not JSON.
    """
    try:
        with open(path, encoding="utf-8") as file:
            return [json.loads(line) for line in file]
    except (FileNotFoundError, json.JSONDecodeError, UnicodeDecodeError) as error:
        raise PipelineError("predictions cannot be read", path, where=error, remedy=REMEDY) from None
