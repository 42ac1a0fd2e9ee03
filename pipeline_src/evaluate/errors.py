"""Error analysis of a task: confusion matrix, scores by class and by text length, and the worst examples."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from statistics import fmean
from typing import Any

from pipeline_src.study.task_spec import TaskSpec
from pipeline_src.tasks.task import ExampleResult

Json = dict[str, Any]
NUM_LENGTH_CLASSES = 5
NUM_WORST = 20


def error_analysis(spec: TaskSpec, example_results: Sequence[ExampleResult]) -> Json:
    matrix = confusion(spec, example_results)
    classes = class_scores(matrix) if matrix and spec.kind == "classification" else None
    if spec.kind == "multilabel":
        classes = label_scores(spec.labels, example_results)
    return {
        "confusion": matrix,
        "classes": classes,
        "lengths": by_length(example_results),
        "wrong": sum(result.right < 1 for result in example_results),
        "worst": worst(example_results),
    }


def confusion(spec: TaskSpec, example_results: Sequence[ExampleResult]) -> Json | None:
    # Returns the labels, and counts[gold][predicted] in the order of the labels. Tags are counted word by word. None if
    # the task has no classes.
    is_tagging = spec.kind == "tagging"
    if not is_tagging and (spec.kind != "classification" or spec.range is not None):
        return None
    pairs: Counter[tuple[str, str]] = Counter()
    for result in example_results:
        if is_tagging:
            pairs.update(zip(result.gold.split(), result.predicted.split(), strict=True))
        else:
            pairs[result.gold, result.predicted] += 1
    counts = []
    for gold in spec.labels:
        counts.append([pairs[gold, predicted] for predicted in spec.labels])
    return {"labels": list(spec.labels), "counts": counts}


def class_scores(confusion: Json) -> list[Json]:
    counts = confusion["counts"]
    rows = []
    for index, label in enumerate(confusion["labels"]):
        correct = counts[index][index]
        support = sum(counts[index])
        predicted = sum(row[index] for row in counts)
        row = {
            "label": label,
            "support": support,
            "precision": _percent(correct, predicted),
            "recall": _percent(correct, support),
            "f1": _percent(2 * correct, support + predicted),
        }
        rows.append(row)
    return rows


def label_scores(labels: Sequence[str], example_results: Sequence[ExampleResult]) -> list[Json]:
    # Like `class_scores`, for sets of labels: each label has a confusion matrix of its own, without and with the label.
    sets = [(json.loads(result.gold), json.loads(result.predicted)) for result in example_results]
    rows = []
    for label in labels:
        counts = [[0, 0], [0, 0]]
        for gold, predicted in sets:
            counts[label in gold][label in predicted] += 1
        rows += class_scores({"labels": ["", label], "counts": counts})[1:]
    return rows


def _percent(part: int, whole: int) -> float | None:
    return 100.0 * part / whole if whole else None


def by_length(example_results: Sequence[ExampleResult]) -> list[dict[str, float]]:
    lengths = sorted(result.words for result in example_results)
    # Divide the examples, sorted by length, into five classes of about equal size. `ends` has the length of the longest
    # text in each class. With 12 examples, these are examples 3, 5, 8, 10 and 12.
    ends = set()
    for step in range(1, NUM_LENGTH_CLASSES + 1):
        last = -(-len(lengths) * step // NUM_LENGTH_CLASSES)
        ends.add(lengths[last - 1])
    longest = sorted(ends)
    classes: list[list[ExampleResult]] = [[] for _ in longest]
    for result in example_results:
        classes[bisect_left(longest, result.words)].append(result)
    rows = []
    for end, members in zip(longest, classes, strict=True):
        shortest = min(result.words for result in members)
        right = fmean(result.right for result in members)
        rows.append({"from": shortest, "to": end, "examples": len(members), "right": right})
    return rows


def worst(example_results: Sequence[ExampleResult]) -> list[Json]:
    # Sorts wrong predictions by correctness, the worst first, then by confidence, the highest first. Ties keep the
    # file's order.
    wrong = [result for result in example_results if result.right < 1]
    wrong.sort(key=lambda result: (result.right, -(result.confidence or 0.0)))
    return [asdict(result) for result in wrong[:NUM_WORST]]
