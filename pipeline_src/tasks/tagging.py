"""Handler of tagging: a label for every word (CoNLL-2003, paper, section 5.3; Universal Dependencies)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from pipeline_src.tasks.document_windows import window_features
from pipeline_src.tasks.example_result import ExampleResult
from pipeline_src.tasks.features import Features, TokenFeatures
from pipeline_src.tasks.files.conll import Example, read_sentences
from pipeline_src.tasks.files.spec import TaskSpec
from pipeline_src.tasks.metrics import accuracy, entity_f1, majority_score
from pipeline_src.tasks.predictions import align, check_outputs, not_a_prediction
from pipeline_src.tasks.sums import Sums, overlaps, shares

head = "token"

Tags = Sequence[Sequence[str]]  # of each sentence


def _word_accuracy(gold: Tags, predicted: Tags) -> float:
    return accuracy(list(chain(*gold)), list(chain(*predicted)))  # type: ignore[arg-type]


METRICS: dict[str, Callable[[Tags, Tags], float]] = {"entity_f1": entity_f1, "accuracy": _word_accuracy}


def outputs(spec: TaskSpec) -> int:
    """Width of the head: one score per tag."""
    return len(spec.labels)


def read(
    spec: TaskSpec,
    path: str | Path,
    eval_set: str | None = None,
    test: bool = False,
    counts: Counter[str] | None = None,
) -> list[Example]:
    """Read the sentences of a file; errors as in :func:`conll.read_sentences`. No set of this kind has a test file."""
    return read_sentences(spec, path, eval_set, counts)


def features(spec: TaskSpec, examples: Sequence[Example], tokenizer: Tokenizer, max_length: int) -> Features:
    """One item per window of a document; see :func:`document_windows.window_features`."""
    return window_features(spec.name, spec.labels, examples, tokenizer, max_length)


def predict(
    spec: TaskSpec, examples: Sequence[Example], features: Features, outputs: np.ndarray
) -> list[dict[str, Any]]:
    """Prediction rows from outputs, float [tokens, tags].

    A row holds ``id``, ``prediction`` (a tag for every word) and ``confidence`` (the mean probability of those tags).

    Raises:
        PipelineError: an output is NaN or infinite.
    """
    assert isinstance(features, TokenFeatures)  # what features() above returns
    check_outputs(spec.name, outputs, (len(features.ids), len(spec.labels)))
    tagged = features.word >= 0
    scores = outputs[tagged][np.argsort(features.word[tagged])].astype(float)  # a row for every word, in their order
    best = scores.argmax(axis=1)
    probability = 1 / np.exp(scores - scores.max(axis=1, keepdims=True)).sum(axis=1)
    ends = np.cumsum([len(example.words) for example in examples])[:-1]
    return [
        {"id": example.id, "prediction": [spec.labels[tag] for tag in tags], "confidence": float(sure.mean())}
        for example, tags, sure in zip(examples, np.split(best, ends), np.split(probability, ends), strict=True)
    ]


def score(
    spec: TaskSpec, eval_set: str, examples: Sequence[Example], predictions: Sequence[dict[str, Any]]
) -> dict[str, float]:
    """Each metric of an evaluation set, in percent.

    Raises:
        PipelineError: predictions and examples do not belong together, or a prediction is not a tag for every word.
    """
    predicted = _tags(spec, examples, predictions)
    gold = [example.tags for example in examples]
    return {metric: METRICS[metric](gold, predicted) for metric in spec.eval_set(eval_set).metrics}


def _tags(spec: TaskSpec, examples: Sequence[Example], predictions: Sequence[dict[str, Any]]) -> list[list[str]]:
    values = align(spec.name, examples, predictions)
    for example, value in zip(examples, values, strict=True):
        if (
            not isinstance(value, list)
            or len(value) != len(example.words)
            or not all(tag in spec.labels for tag in value)
        ):
            raise not_a_prediction(spec.name, value, f"a tag for each of the {len(example.words)} words")
    return values


def sums(
    spec: TaskSpec, eval_set: str, examples: Sequence[Example], systems: Sequence[Sequence[dict[str, Any]]]
) -> dict[str, Sums]:
    """What each sentence adds to each metric; errors as :func:`score`."""
    gold, given = [example.tags for example in examples], [_tags(spec, examples, rows) for rows in systems]
    return {metric: SUMS[metric](gold, given) for metric in spec.eval_set(eval_set).metrics}


def _right_words(gold: Tags, systems: Sequence[Tags]) -> Sums:
    right = [np.array([sum(map(str.__eq__, *pair)) for pair in zip(gold, tags, strict=True)]) for tags in systems]
    return shares(right, np.array([float(len(tags)) for tags in gold]))


def _entities(gold: Tags, systems: Sequence[Tags]) -> Sums:
    from seqeval.metrics.sequence_labeling import get_entities

    true = [set(get_entities(list(tags))) for tags in gold]
    found = [[set(get_entities(list(tags))) for tags in given] for given in systems]
    return overlaps(
        [np.array([(len(a & b), len(b), len(a)) for a, b in zip(true, given, strict=True)], float) for given in found]
    )


SUMS: dict[str, Callable[[Tags, Sequence[Tags]], Sums]] = {"entity_f1": _entities, "accuracy": _right_words}


def group(example: Example) -> int:
    """Its document."""
    return example.document


def majority_baseline(spec: TaskSpec, eval_set: str, examples: Sequence[Example]) -> dict[str, float]:
    """What the most frequent tag at every word gets, per metric, in percent: no entity where it is O."""
    words = list(chain(*(example.tags for example in examples)))
    return {metric: majority_score(metric, words) for metric in spec.eval_set(eval_set).metrics}  # type: ignore[arg-type]


def example_results(
    spec: TaskSpec, eval_set: str, examples: Sequence[Example], predictions: Sequence[dict[str, Any]]
) -> list[ExampleResult]:
    """What to say of each sentence; ``right`` is the share of its words whose tag is right. Errors as :func:`score`."""
    confidence = {line["id"]: line.get("confidence") for line in predictions}
    return [
        ExampleResult(
            id=example.id,
            text=" ".join(example.words),
            words=len(example.words),
            gold=" ".join(example.tags),
            predicted=" ".join(tags),
            right=sum(map(str.__eq__, example.tags, tags)) / len(tags),
            confidence=confidence[example.id],
        )
        for example, tags in zip(examples, _tags(spec, examples, predictions), strict=True)
    ]
