"""Where a model goes wrong: confusion matrix, scores by length and the worst errors, from example_results."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from statistics import fmean
from typing import Any

from pipeline_src.tasks.example_result import ExampleResult
from pipeline_src.tasks.files.spec import TaskSpec

LENGTH_CLASSES, WORST = 5, 20

# Kinds whose answers are labels, and how an answer is cut into them; the answers of other kinds are texts.
ANSWERS: dict[str, Callable[[str], list[str]]] = {"classification": lambda text: [text], "tagging": str.split}


def break_down(spec: TaskSpec, example_results: Sequence[ExampleResult]) -> dict[str, Any]:
    """All that ``results/tasks/<task>.json`` says of the errors on one evaluation set."""
    return {
        "confusion": confusion(spec, example_results),
        "lengths": by_length(example_results),
        "wrong": sum(result.right < 1 for result in example_results),
        "worst": worst(example_results),
    }


def confusion(spec: TaskSpec, example_results: Sequence[ExampleResult]) -> dict[str, Any] | None:
    """How often each label was taken for each: ``counts[gold][predicted]`` in the order of ``labels``.

    None for a regression and for kinds whose answers are no labels.
    """
    if spec.kind not in ANSWERS or spec.range is not None:
        return None
    cut = ANSWERS[spec.kind]
    pairs = Counter(
        pair for result in example_results for pair in zip(cut(result.gold), cut(result.predicted), strict=True)
    )
    labels = list(spec.labels) or sorted({label for pair in pairs for label in pair})
    return {"labels": labels, "counts": [[pairs[gold, predicted] for predicted in labels] for gold in labels]}


def by_length(example_results: Sequence[ExampleResult]) -> list[dict[str, float]]:
    """The mean of ``right`` in classes of about equally many examples by words; equal lengths stay together."""
    lengths = sorted(result.words for result in example_results)
    places = {-(-len(lengths) * step // LENGTH_CLASSES) - 1 for step in range(1, LENGTH_CLASSES + 1)}
    ends = sorted({lengths[place] for place in places})
    classes: list[list[ExampleResult]] = [[] for _ in ends]
    for result in example_results:
        classes[bisect_left(ends, result.words)].append(result)
    return [
        {
            "from": min(result.words for result in members),
            "to": end,
            "examples": len(members),
            "right": fmean(result.right for result in members),
        }
        for end, members in zip(ends, classes, strict=True)
    ]


def worst(example_results: Sequence[ExampleResult]) -> list[dict[str, Any]]:
    """The errors that are least right, of equally wrong ones the most confident, of these the first."""
    wrong = [result for result in example_results if result.right < 1]
    wrong.sort(key=lambda result: (result.right, -(result.confidence or 0.0)))
    return [asdict(result) for result in wrong[:WORST]]
