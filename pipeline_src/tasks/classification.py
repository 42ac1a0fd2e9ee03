"""Tasks with one label per example: classification and regression (GLUE), and multiple choice (SWAG)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from itertools import chain
from typing import Any, ClassVar

import numpy as np
from tokenizers import Tokenizer

from pipeline_src.tasks.examples import ChoiceExample, TextExample
from pipeline_src.tasks.features import Features, WindowFeatures, encode, pair_features
from pipeline_src.tasks.metrics import METRICS, BootstrapStatistics, majority_score
from pipeline_src.tasks.task import ExampleResult, Prediction, Rows, Task
from pipeline_src.tokenizer.special_tokens import read_templates

# Label of a test example. Test examples are never trained on.
UNLABELLED = -1

# Range of the labels and outputs of every regression's model, that of STS-B. Usual learning rates would take too many
# steps to reach values such as 1900 to 2020, and bfloat16 has none between 1960 and 1968.
MODEL_RANGE = (0.0, 5.0)


def value_scale(limits: tuple[float, float]) -> tuple[float, float]:
    # Returns (lowest value, factor) for the range of a regression: a value is lowest + factor * the model's output.
    low, high = limits
    return low, (high - low) / MODEL_RANGE[1]


def gold_labels(examples: Sequence[Any]) -> list[Any]:
    labels = [example.label for example in examples if example.label is not None]
    # Predictions for a test file are submitted, never scored.
    assert len(labels) == len(examples)
    return labels


class LabelledTask(Task):
    # Base class of tasks whose labels and predictions are compared as numbers (class indices or regression values).

    # Header line of a submission: the row number's column, the separator, the prediction's column.
    submission_header: ClassVar[str]

    @abstractmethod
    def label_numbers(self, examples: Sequence[Any], predictions: Rows) -> Sequence[float]:
        # Returns class indices, or the values of a regression, in the order of the examples.
        ...

    def label_text(self, number: float) -> str:
        # Returns the label as a submission spells it.
        return str(number)

    def answers(
        self, examples: Sequence[Any], features: Features, outputs: np.ndarray, threshold: float | None = None
    ) -> list[Prediction]:
        # Replaces the logits ("outputs") of each prediction with probabilities ("probabilities").
        # Imported here because the import takes a quarter of a second, and only this method needs it.
        from scipy.special import softmax

        rows = self.predict(examples, features, outputs)
        for row in rows:
            logits = row.pop("outputs", None)
            # The prediction of a regression has no logits.
            if logits is not None:
                classes = self.spec.labels or range(len(logits))
                probabilities = softmax(logits).tolist()
                row["probabilities"] = dict(zip(map(str, classes), probabilities, strict=True))
        return rows

    def statistics(
        self, eval_set: str, examples: Sequence[Any], systems: Sequence[Rows]
    ) -> dict[str, BootstrapStatistics]:
        gold = gold_labels(examples)
        predicted = [self.label_numbers(examples, rows) for rows in systems]
        return {metric: METRICS[metric](gold, predicted) for metric in self.spec.eval_set(eval_set).metrics}

    def majority_baseline(self, eval_set: str, examples: Sequence[Any]) -> dict[str, float]:
        gold = gold_labels(examples)
        return {metric: majority_score(metric, gold) for metric in self.spec.eval_set(eval_set).metrics}

    def group(self, example: Any) -> str | None:
        return example.group

    def submission(
        self, eval_set: str, examples: Sequence[Any], predictions: Rows, threshold: float | None = None
    ) -> dict[str, str]:
        # Each line has a row number, counted from 0, and the prediction for that row.
        test = self.spec.eval_set(eval_set).test
        if test is None:
            return {}
        separator = "\t" if "\t" in self.submission_header else ","
        numbers = enumerate(self.label_numbers(examples, predictions))
        lines = [f"{index}{separator}{self.label_text(number)}" for index, number in numbers]
        return {test.submit: "\n".join([self.submission_header, *lines, ""])}


class Classification(LabelledTask):
    """Classification or regression of one text or a pair of texts (GLUE)."""

    head = "sequence"
    # As in nyu-mll/GLUE-baselines, src/main.py.
    submission_header = "index\tprediction"

    @property
    def num_outputs(self) -> int:
        return len(self.spec.labels) or 1

    def features(self, examples: Sequence[TextExample], tokenizer: Tokenizer, max_length: int) -> Features:
        segments = self._segments(examples, tokenizer)
        pairs = zip(segments[0], segments[1] if len(segments) == 2 else [None] * len(examples), strict=True)
        return pair_features(self.spec.name, pairs, self._labels(examples), read_templates(tokenizer), max_length)

    def features_apart(self, examples: Sequence[TextExample], tokenizer: Tokenizer, max_length: int) -> Features:
        # Like `features`, but a pair of texts makes two sequences, one for each text.
        apart = zip(*self._segments(examples, tokenizer), strict=True)
        texts = ((text, None) for text in chain.from_iterable(apart))
        return pair_features(self.spec.name, texts, self._labels(examples), read_templates(tokenizer), max_length, 2)

    def features_in_windows(
        self, examples: Sequence[TextExample], tokenizer: Tokenizer, max_length: int, stride: int
    ) -> WindowFeatures:
        """Make a sequence of each window of a text. Windows begin ``stride`` tokens apart, and the last ends the text.

        Only for tasks on one text.
        """
        templates = read_templates(tokenizer)
        room = max_length - templates.single.size
        stride = min(stride, room)
        (texts,) = self._segments(examples, tokenizer)
        windows: list[list[int]] = []
        firsts = [0]
        for text in texts:
            # A text that fits has one window.
            beyond = max(0, len(text) - room)
            for start in range(0, beyond + stride, stride):
                windows.append(text[start : start + room])
            firsts.append(len(windows))
        labels = self._labels(examples)
        alone = ((window, None) for window in windows)
        plain = pair_features(self.spec.name, alone, labels, templates, max_length)
        return WindowFeatures(**vars(plain), windows=np.array(firsts, np.int64))

    def _segments(self, examples: Sequence[TextExample], tokenizer: Tokenizer) -> list[list[list[int]]]:
        texts = zip(*(example.texts for example in examples), strict=True)
        return [encode(tokenizer, segment) for segment in texts]

    def _labels(self, examples: Sequence[TextExample]) -> np.ndarray:
        if self.spec.range is not None:
            low, factor = value_scale(self.spec.range)
            return ((_label_array(examples, np.float64) - low) / factor).astype(np.float32)
        return _label_array(examples, np.float32 if self.spec.kind == "multilabel" else np.int64)

    def predict(self, examples: Sequence[TextExample], features: Features, outputs: np.ndarray) -> list[Prediction]:
        """Make predictions from a model's outputs.

        Args:
            outputs: logits, float [items, classes], or the values of a regression, scaled to ``MODEL_RANGE``, float
                [items, 1].

        Returns:
            For each example, ``id`` and ``prediction``: a label as the task spells it, or a number within the task's
            range. In a classification, also ``outputs``, the logits.
        """
        self.check_outputs(outputs, (features.items, self.num_outputs))
        if self.spec.range is None:
            return _most_probable(examples, outputs, self.spec.labels)
        low, factor = value_scale(self.spec.range)
        values = np.clip(low + factor * outputs[:, 0].astype(float), *self.spec.range)
        return [{"id": example.id, "prediction": float(value)} for example, value in zip(examples, values, strict=True)]

    def label_numbers(self, examples: Sequence[TextExample], predictions: Rows) -> list[Any]:
        return [self._number(row["prediction"]) for row in self.align(examples, predictions)]

    def label_text(self, number: Any) -> str:
        return f"{number:.3f}" if self.spec.range else self.spec.labels[int(number)]

    def _number(self, value: Any) -> Any:
        if self.spec.range is None:
            if value in self.spec.labels:
                return self.spec.labels.index(value)
            allowed = ", ".join(self.spec.labels)
        else:
            low, high = self.spec.range
            if isinstance(value, int | float) and low <= value <= high:
                return value
            allowed = f"numbers from {low:g} to {high:g}"
        raise self.not_a_prediction(value, f"allowed: {allowed}")

    def example_results(self, eval_set: str, examples: Sequence[TextExample], predictions: Rows) -> list[ExampleResult]:
        results = []
        rows = self.align(examples, predictions)
        for example, gold, row in zip(examples, gold_labels(examples), rows, strict=True):
            predicted = self._number(row["prediction"])
            right = float(predicted == gold)
            if self.spec.range is not None:
                low, high = self.spec.range
                right = 1 - abs(predicted - gold) / (high - low)
            text = "\n".join(example.texts)
            result = ExampleResult(
                id=example.id,
                text=text,
                words=len(text.split()),
                gold=self.label_text(gold),
                predicted=self.label_text(predicted),
                right=right,
                confidence=_confidence(row),
            )
            results.append(result)
        return results


class MultipleChoice(LabelledTask):
    """Multiple choice: which ending follows the context (SWAG; BERT paper, section 4.4)."""

    head = "choice"
    # As rowanz/swagaf writes its own predictions (csv_predict.py).
    submission_header = ",pred"

    @property
    def num_outputs(self) -> int:
        return 1

    def features(self, examples: Sequence[ChoiceExample], tokenizer: Tokenizer, max_length: int) -> Features:
        # Each choice is one sequence: [CLS] context [SEP] ending [SEP].
        choices = len(examples[0].endings)
        contexts = encode(tokenizer, [example.context for example in examples])
        endings = encode(tokenizer, list(chain.from_iterable(example.endings for example in examples)))
        pairs = ((contexts[index // choices], ending) for index, ending in enumerate(endings))
        return pair_features(
            self.spec.name,
            pairs,
            labels=_label_array(examples),
            templates=read_templates(tokenizer),
            max_length=max_length,
            per_item=choices,
        )

    def predict(self, examples: Sequence[ChoiceExample], features: Features, outputs: np.ndarray) -> list[Prediction]:
        # `outputs`: logits [items, choices]. A prediction is the index of a choice, counted from 0.
        self.check_outputs(outputs, (features.items, features.per_item))
        return _most_probable(examples, outputs, range(features.per_item))

    def label_numbers(self, examples: Sequence[ChoiceExample], predictions: Rows) -> list[int]:
        return [row["prediction"] for row in self.align(examples, predictions)]

    def example_results(
        self, eval_set: str, examples: Sequence[ChoiceExample], predictions: Rows
    ) -> list[ExampleResult]:
        choices = self.label_numbers(examples, predictions)
        rows = self.align(examples, predictions)
        results = []
        for example, gold, choice, row in zip(examples, gold_labels(examples), choices, rows, strict=True):
            ending = example.endings[int(gold)]
            result = ExampleResult(
                id=example.id,
                text=example.context,
                words=len(example.context.split()) + len(ending.split()),
                gold=ending,
                predicted=example.endings[choice],
                right=float(choice == gold),
                confidence=_confidence(row),
            )
            results.append(result)
        return results


def _label_array(examples: Sequence[Any], dtype: type[np.generic] = np.int64) -> np.ndarray:
    return np.array([UNLABELLED if example.label is None else example.label for example in examples], dtype)


def _most_probable(examples: Sequence[Any], outputs: np.ndarray, classes: Sequence[Any]) -> list[Prediction]:
    predictions = []
    for example, logits in zip(examples, outputs, strict=True):
        best = classes[int(np.argmax(logits))]
        predictions.append({"id": example.id, "prediction": best, "outputs": logits.astype(float).tolist()})
    return predictions


def _confidence(row: Prediction) -> float | None:
    if not row.get("outputs"):
        return None
    logits = np.asarray(row["outputs"], float)
    return float(1 / np.exp(logits - logits.max()).sum())
