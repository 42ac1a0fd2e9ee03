"""What a label is worth: the score of a task by the number of labelled examples that it was learnt from."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from pipeline_src.common.paths import TASKS, predictions_folder
from pipeline_src.evaluation.bag_of_words import applies, predict
from pipeline_src.evaluation.scores import confidence_intervals, predictions_path, read_predictions
from pipeline_src.tasks.examples import labelled_part
from pipeline_src.tasks.kinds import make_task
from pipeline_src.tasks.spec import TaskSpec


def label_curve(spec: TaskSpec, seeds: Sequence[int], label_counts: Sequence[int]) -> list[dict[str, Any]]:
    """Return a point for each number of examples, ascending, the last of all of them; none without ``label_counts``.

    A point has ``examples``, and ``systems``: for ``pretrained``, ``random_weights`` and ``bag_of_words``, all learnt
    from the same examples (the bag of words from 20,000 at most), the main score on the first evaluation set with its
    interval.
    """
    if not label_counts:
        return []
    task, (name, eval_set) = make_task(spec), next(iter(spec.scores.items()))
    metric = eval_set.metrics[0]
    examples, training = task.read(TASKS / spec.name / eval_set.file, name), task.read(TASKS / spec.name / spec.train)
    points = []
    for count in [*sorted(each for each in label_counts if each < len(training)), None]:
        predicted = {}
        for weights in ("pretrained", "random"):
            folder = predictions_folder(weights, count)
            paths = [predictions_path(spec.name, each, folder, name) for each in seeds]
            predicted[weights] = [read_predictions(path) for path in paths if path.parent.exists()]
        baselines = {"random_weights": predicted["random"]} if predicted["random"] else {}
        if applies(spec):
            parts = [labelled_part(spec.name, each, training, count) for each in seeds] if count else [training]
            baselines["bag_of_words"] = [predict(spec, part, examples) for part in parts]
        found = confidence_intervals(spec, name, examples, predicted["pretrained"], baselines)[metric]
        score = fmean(task.score(name, examples, rows)[metric] for rows in predicted["pretrained"])
        systems = {
            key: {"score": each["score"], "interval": each["interval"]} for key, each in found["baselines"].items()
        }
        pretrained = {"score": score, "interval": found["interval"]}
        points.append({"examples": count or len(training), "systems": {"pretrained": pretrained, **systems}})
    return points
