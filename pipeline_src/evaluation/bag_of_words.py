"""What words alone tell: a linear model of the words of each text, which knows nothing of their order.

Wang and Manning 2012 ("Baselines and Bigrams") found such models hard to beat. A task is cut into candidates: a text
is a candidate for itself, an ending or a word of a paragraph for the right one, a word for its tag. Each is a bag of
named features; a logistic regression, trained on the task's training file, gives the odds of each.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import numpy as np

from pipeline_src.tasks.files.spec import TaskSpec
from pipeline_src.tasks.labelled import gold_labels

MOST = 20_000  # training examples: more words than a linear model of a probe needs
_WORD = re.compile(r"\w+")
Bag = dict[str, float]
Rows = list[dict[str, Any]]


def predict(spec: TaskSpec, training: Sequence[Any], examples: Sequence[Any]) -> Rows:
    """Prediction rows for the examples, as a model's.

    Args:
        spec: the task; a classification, a choice, tags or questions that all have an answer.
        training: examples of the training file.
        examples: to predict.
    """
    return PREDICT[spec.kind](spec, training[:MOST], examples)


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


def _fitted(bags: Sequence[Bag], labels: Sequence[Any]) -> Callable[[Sequence[Bag]], np.ndarray]:
    """A function from bags to log odds, [bags, classes]; two classes give one column each as well."""
    from sklearn.feature_extraction import DictVectorizer
    from sklearn.linear_model import LogisticRegression

    columns = DictVectorizer()  # of what training knows; the rest would weigh nothing
    model = LogisticRegression(C=1.0, max_iter=200).fit(columns.fit_transform(bags), labels)

    def odds(bags: Sequence[Bag]) -> np.ndarray:
        values = model.decision_function(columns.transform(bags))
        return np.column_stack([-values, values]) if values.ndim == 1 else values

    return odds


def _bag(*texts: str) -> Bag:
    """The words of each text, and, of two texts, those that both have."""
    bags = [set(_words(text)) for text in texts]
    bag = {f"{place} {word}": 1.0 for place, words in enumerate(bags) for word in words}
    if len(bags) == 2:
        shared = bags[0] & bags[1]
        bag |= {f"both {word}": 1.0 for word in shared}
        bag["share of words in both"] = len(shared) / (1 + min(map(len, bags)))
    return bag


def _classes(spec: TaskSpec, training: Sequence[Any], examples: Sequence[Any]) -> Rows:
    odds = _fitted([_bag(*example.texts) for example in training], gold_labels(training))
    best = odds([_bag(*example.texts) for example in examples]).argmax(1)
    present = sorted(set(gold_labels(training)))
    return [_row(example, spec.labels[int(present[place])]) for example, place in zip(examples, best, strict=True)]


def _choices(spec: TaskSpec, training: Sequence[Any], examples: Sequence[Any]) -> Rows:
    def bags(some: Sequence[Any]) -> list[Bag]:
        return [_bag(example.context, ending) for example in some for ending in example.endings]

    right = [place == example.label for example in training for place in range(len(example.endings))]
    odds = _fitted(bags(training), right)(bags(examples))[:, 1]
    rows = odds.reshape(len(examples), -1).argmax(1)
    return [_row(example, int(place)) for example, place in zip(examples, rows, strict=True)]


def _tags(spec: TaskSpec, training: Sequence[Any], examples: Sequence[Any]) -> Rows:
    def bags(some: Sequence[Any]) -> list[Bag]:
        return [{f"word {word.lower()}": 1.0} for example in some for word in example.words]

    tags = list(chain(*(example.tags for example in training)))
    best = _fitted(bags(training), tags)(bags(examples)).argmax(1)
    given = iter(np.array(sorted(set(tags)))[best].tolist())
    return [_row(example, [next(given) for _ in example.words]) for example in examples]


def _answers(spec: TaskSpec, training: Sequence[Any], examples: Sequence[Any]) -> Rows:
    def candidates(example: Any) -> list[str]:
        return list(dict.fromkeys(_WORD.findall(example.context)))

    def bags(example: Any) -> list[Bag]:
        asked, told = Counter(_words(example.question)), Counter(_words(example.context))
        found = []
        for word in map(str.lower, candidates(example)):
            times = f"{min(told[word], 3)} in the text, {min(asked[word], 2)} in the question"
            found.append({times: 1.0, f"word {word}": 1.0, f"letters {min(len(word), 10)}": 1.0})
        return found

    right = [
        any(word == answer.text for answer in example.answers) for example in training for word in candidates(example)
    ]
    odds = _fitted([bag for example in training for bag in bags(example)], right)
    rows = []
    for example in examples:
        words = candidates(example)
        rows.append(_row(example, words[int(odds(bags(example))[:, 1].argmax())] if words else ""))
    return rows


def _row(example: Any, prediction: Any) -> dict[str, Any]:
    return {"id": example.id, "prediction": prediction}


PREDICT: dict[str, Callable[[TaskSpec, Sequence[Any], Sequence[Any]], Rows]] = {
    "classification": _classes,
    "choice": _choices,
    "tagging": _tags,
    "span": _answers,
}
