"""Bag-of-words baseline: a linear model of the words of each text, without their order.

Such models are strong baselines (Wang and Manning 2012, "Baselines and Bigrams"). Each candidate answer (a class, an
ending, a word of the paragraph) is a bag of named features, and a logistic regression fitted to the task's training
file gives its log odds. A word's tag is the one that it has most often; that of a new word is the most frequent among
words seen once. The similarity of two texts is the cosine of the tf-idf weights of the character n-grams in their
words, which a word that the training file lacks has too.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import numpy as np

from pipeline_src.tasks.classification import gold_labels
from pipeline_src.tasks.spec import TaskSpec

MOST = 20_000  # training examples, more than the linear model needs
_WORD = re.compile(r"\w+")
Bag = dict[str, float]
Rows = list[dict[str, Any]]


def predict(spec: TaskSpec, training: Sequence[Any], examples: Sequence[Any]) -> Rows:
    """Return prediction rows for the examples, in the format of a model's."""
    return PREDICT[spec.kind](spec, training[:MOST], examples)


def applies(spec: TaskSpec) -> bool:
    """Return whether the baseline exists: for every task except questions that may have no answer."""
    return not spec.unanswerable


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


def _fitted(bags: Sequence[Bag], labels: list[Any]) -> Callable[[Sequence[Bag]], np.ndarray]:
    """Fit a classifier; returns a function from bags to log odds, [bags, classes], also for two classes."""
    from sklearn.feature_extraction import DictVectorizer
    from sklearn.linear_model import LogisticRegression

    if len(set(labels)) < 2 or not any(bags):  # always predict the most frequent label
        classes = sorted(set(labels))
        constant = np.array([[float(labels.count(each)) for each in classes]])
        return lambda bags: np.repeat(constant, len(bags), axis=0)
    columns = DictVectorizer()  # words that are not in the training file have no weight
    model = LogisticRegression(C=1.0, max_iter=200).fit(columns.fit_transform(bags), labels)

    def odds(bags: Sequence[Bag]) -> np.ndarray:
        values = model.decision_function(columns.transform(bags))
        return np.column_stack([-values, values]) if values.ndim == 1 else values

    return odds


def _bag(*texts: str) -> Bag:
    """Features of one or two texts: the words of each, and the words they share."""
    bags = [set(_words(text)) for text in texts]
    bag = {f"{place} {word}": 1.0 for place, words in enumerate(bags) for word in words}
    if len(bags) == 2:
        shared = bags[0] & bags[1]
        bag |= {f"both {word}": 1.0 for word in shared}
        bag["share of words in both"] = len(shared) / (1 + min(map(len, bags)))
    return bag


def _classes(spec: TaskSpec, training: Sequence[Any], examples: Sequence[Any]) -> Rows:
    if spec.range is not None:
        return (_similarities if spec.is_pair else _numbers)(spec.range, training, examples)
    odds = _fitted([_bag(*example.texts) for example in training], gold_labels(training))
    best = odds([_bag(*example.texts) for example in examples]).argmax(1)
    present = sorted(set(gold_labels(training)))
    return [_row(example, spec.labels[int(present[place])]) for example, place in zip(examples, best, strict=True)]


def _numbers(ends: tuple[float, float], training: Sequence[Any], examples: Sequence[Any]) -> Rows:
    from sklearn.feature_extraction import DictVectorizer
    from sklearn.linear_model import Ridge

    columns = DictVectorizer()
    bags = columns.fit_transform([_bag(*example.texts) | {"constant": 1.0} for example in training])
    model = Ridge(alpha=1.0).fit(bags, gold_labels(training))
    values = model.predict(columns.transform([_bag(*example.texts) for example in examples])).clip(*ends)
    return [_row(example, float(value)) for example, value in zip(examples, values, strict=True)]


def _similarities(ends: tuple[float, float], training: Sequence[Any], examples: Sequence[Any]) -> Rows:
    """Scale the tf-idf cosine of the two texts to the range; the training file gives the frequencies alone."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    known = [text for example in training for text in example.texts]
    if not any(map(str.strip, known)):
        return [_row(example, float(ends[0])) for example in examples]
    weights = TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 4), sublinear_tf=True).fit(known)
    one, other = (weights.transform(texts) for texts in zip(*(example.texts for example in examples), strict=True))
    cosines = np.asarray(one.multiply(other).sum(1)).ravel()  # rows have length 1
    values = (ends[0] + (ends[1] - ends[0]) * cosines).clip(*ends)
    return [_row(example, float(value)) for example, value in zip(examples, values, strict=True)]


def _choices(spec: TaskSpec, training: Sequence[Any], examples: Sequence[Any]) -> Rows:
    def bags(some: Sequence[Any]) -> list[Bag]:
        return [_bag(example.context, ending) for example in some for ending in example.endings]

    right = [place == example.label for example in training for place in range(len(example.endings))]
    odds = _fitted(bags(training), right)(bags(examples))[:, -1]
    rows = odds.reshape(len(examples), -1).argmax(1)
    return [_row(example, int(place)) for example, place in zip(examples, rows, strict=True)]


def _tags(spec: TaskSpec, training: Sequence[Any], examples: Sequence[Any]) -> Rows:
    tags: dict[str, Counter[str]] = {}
    for example in training:
        for word, tag in zip(example.words, example.tags, strict=True):
            tags.setdefault(word.lower(), Counter())[tag] += 1
    once = Counter(tag for counted in tags.values() if counted.total() == 1 for tag in counted)
    new = _most_frequent(once or Counter(chain(*(example.tags for example in training))))
    usual = {word: _most_frequent(counted) for word, counted in tags.items()}
    return [_row(example, [usual.get(word.lower(), new) for word in example.words]) for example in examples]


def _most_frequent(counted: Counter[str]) -> str:
    return min(counted, key=lambda tag: (-counted[tag], tag))


def _answers(spec: TaskSpec, training: Sequence[Any], examples: Sequence[Any]) -> Rows:
    def candidates(example: Any) -> list[str]:
        return list(dict.fromkeys(_WORD.findall(example.context)))

    def bags(example: Any) -> list[Bag]:
        asked, in_text = Counter(_words(example.question)), Counter(_words(example.context))
        found = []
        for word in map(str.lower, candidates(example)):
            times = f"{min(in_text[word], 3)} in the text, {min(asked[word], 2)} in the question"
            found.append({times: 1.0, f"word {word}": 1.0, f"letters {min(len(word), 10)}": 1.0})
        return found

    right = [
        any(word == answer.text for answer in example.answers) for example in training for word in candidates(example)
    ]
    odds = _fitted([bag for example in training for bag in bags(example)], right)
    rows = []
    for example in examples:
        words = candidates(example)
        rows.append(_row(example, words[int(odds(bags(example))[:, -1].argmax())] if words else ""))
    return rows


def _row(example: Any, prediction: Any) -> dict[str, Any]:
    return {"id": example.id, "prediction": prediction}


PREDICT: dict[str, Callable[[TaskSpec, Sequence[Any], Sequence[Any]], Rows]] = {
    "classification": _classes,
    "choice": _choices,
    "tagging": _tags,
    "span": _answers,
}
