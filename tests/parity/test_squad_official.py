"""SQuAD scores equal those of the published evaluation scripts, which are restated here."""

from __future__ import annotations

import json
import re
import string
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline_src.study.task_spec import load_spec
from pipeline_src.tasks.kinds import make_task
from pipeline_src.tasks.questions import Answer, Question
from pipeline_src.tasks.squad_metrics import normalise_answer

ONE, TWO = make_task(load_spec("squad1")), make_task(load_spec("squad2"))
RELAXED = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
Values = Mapping[str, float]  # of each question


def words(text: str) -> list[str]:
    """Return lower-case words without punctuation and articles."""
    bare = text.lower().translate(dict.fromkeys(map(ord, string.punctuation)))
    return " ".join(re.split(r"\b(?:a|an|the)\b", bare)).split()


def exact_match(gold: str, text: str) -> float:
    return float(words(gold) == words(text))


def overlap(gold: str, text: str, of_nothing: bool) -> float:
    """Return the F1 of the words of two answers. Two empty answers score ``of_nothing``."""
    golds, given = words(gold), words(text)
    if of_nothing and not (golds and given):
        return float(golds == given)
    same = (Counter(golds) & Counter(given)).total()
    if not same:
        return 0.0
    precision, recall = same / len(given), same / len(golds)
    return 2 * precision * recall / (precision + recall)


def best_match(metric: Callable[[str, str], float], example: Question, text: str, version: int) -> float:
    """Return the best score over the gold answers.

    In SQuAD 2.0, the gold answer of an unanswerable question is "".
    """
    golds = [answer.text for answer in example.answers if version == 1 or words(answer.text)] or [""]
    return max(metric(gold, text) for gold in golds)


def published_values(examples: Sequence[Question], texts: Sequence[str], version: int) -> dict[str, dict[str, float]]:
    """Return exact match and F1 of each question."""
    metrics = {"em": exact_match, "f1": lambda gold, text: overlap(gold, text, version == 2)}
    return {
        name: {one.id: best_match(metric, one, text, version) for one, text in zip(examples, texts, strict=True)}
        for name, metric in metrics.items()
    }


def with_threshold(values: Values, examples: Sequence[Question], differences: Values, threshold: float) -> list[float]:
    """Return the scores if questions with a larger score difference are left unanswered."""
    return [values[one.id] if differences[one.id] <= threshold else float(not one.answers) for one in examples]


def best_threshold(
    values: Values, examples: Sequence[Question], texts: Values, differences: Values
) -> tuple[float, float]:
    """Return the best mean score over all thresholds, and the first threshold that gives it."""
    answerable = {one.id: bool(one.answers) for one in examples}
    total = best = len(examples) - sum(answerable.values())
    threshold = 0.0
    for name in sorted(differences, key=differences.__getitem__):
        total += values[name] if answerable[name] else -bool(texts[name])
        if total > best:
            best, threshold = total, differences[name]
    return best / len(examples), threshold


def compare_1_1(examples: Sequence[Question], texts: Sequence[str]) -> None:
    rows = [{"id": example.id, "prediction": text} for example, text in zip(examples, texts, strict=True)]
    ours, reference = ONE.score_answers(examples, rows).raw, published_values(examples, texts, 1)
    scores = ONE.score("squad1", examples, rows)
    for name, values in reference.items():
        assert ours[name].tolist() == list(values.values())
        assert scores[name] / 100 == pytest.approx(sum(values.values()) / len(values), abs=1e-12, rel=0)


def compare_2_0(examples: Sequence[Question], texts: Sequence[str], differences: Sequence[float]) -> dict[str, float]:
    ids = [example.id for example in examples]
    rows = [
        {"id": name, "prediction": text, "null_score_difference": difference}
        for name, text, difference in zip(ids, texts, differences, strict=True)
    ]
    given, odds = dict(zip(ids, texts, strict=True)), dict(zip(ids, differences, strict=True))
    ours, reference = TWO.score_answers(examples, rows).raw, published_values(examples, texts, 2)
    scores = TWO.score("squad2", examples, rows)
    for name, values in reference.items():
        assert ours[name].tolist() == list(values.values())
        best, threshold = best_threshold(values, examples, given, odds)
        key, threshold_key = {"f1": ("f1", "threshold"), "em": ("best_em", "best_em_threshold")}[name]
        assert scores[threshold_key] == threshold
        assert scores[key] / 100 == pytest.approx(best, abs=1e-12, rel=0)
        at_zero = sum(with_threshold(values, examples, odds, 0.0)) / len(ids)
        assert scores[f"{name}_at_zero"] / 100 == pytest.approx(at_zero, abs=1e-12, rel=0)
    return scores


WORDS = "the a an The AN cat cat's Cat. naïve NAÏVE Straße İstanbul 10,000 U.S. – « 北京 e\u0301 \u00a0 ! ... ’".split(
    " "
)
TEXTS = st.one_of(
    st.just(""),
    st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join),
    st.text(max_size=12),
    st.text(alphabet="ab the.,!?-'\" \n\t", max_size=12),
)
DIFFERENCES = st.one_of(st.integers(-3, 3).map(float), st.floats(-20, 20))


@given(st.lists(st.tuples(TEXTS, st.lists(TEXTS, min_size=1, max_size=4)), min_size=1, max_size=30))
@RELAXED
def test_squad1_score_random_texts_equal_published_script(questions):
    examples = [
        Question(str(i), "?", "", tuple(Answer(text, 0) for text in golds)) for i, (_, golds) in enumerate(questions)
    ]
    compare_1_1(examples, [text for text, _ in questions])


@given(st.lists(st.tuples(TEXTS, st.lists(TEXTS, max_size=4), DIFFERENCES), min_size=1, max_size=40))
@RELAXED
def test_squad2_score_random_texts_equal_published_script(questions):
    """The texts include equal score differences, and files where leaving all questions unanswered is best."""
    examples = [
        Question(str(i), "?", "", tuple(Answer(text, 0) for text in golds)) for i, (_, golds, _) in enumerate(questions)
    ]
    compare_2_0(examples, [text for text, _, _ in questions], [value for *_, value in questions])


def made_questions(rng: np.random.Generator, count: int) -> list[Question]:
    """Return questions about paragraphs of random words. Half of them have an answer of one to four words."""
    vocabulary = np.array([*WORDS[:10], "Normans,", "(Rollo", "in", "10th", "centuries.", "France"])
    examples = []
    for number in range(count):
        words = rng.choice(vocabulary, 40).tolist()
        first = int(rng.integers(1, 36))
        text = " ".join(words[first : first + int(rng.integers(1, 5))])
        start = len(" ".join(words[:first])) + 1
        is_answerable = rng.random() < 0.5 and normalise_answer(text)
        answers = (Answer(text, start),) if is_answerable else ()
        examples.append(Question(str(number), "?", " ".join(words), answers))
    return examples


def near(example: Question, rng: np.random.Generator) -> str:
    """Return the answer with one word more or less, or other words, like a model's prediction."""
    if not example.answers or rng.random() < 0.2:
        return "in France"
    words = [*example.answers[0].text.split(" "), "in"]
    return " ".join(words[: len(words) - int(rng.integers(0, 2))])


def layout(examples: Sequence[Question]) -> list[dict[str, Any]]:
    """Return examples in the layout of SQuAD's files."""
    questions = [
        {
            "id": example.id,
            "question": example.question,
            "answers": [{"text": answer.text, "answer_start": answer.start} for answer in example.answers],
            "is_impossible": not example.answers,
        }
        for example in examples
    ]
    contexts = [example.context for example in examples]
    return [{"paragraphs": [{"context": c, "qas": [q]} for c, q in zip(contexts, questions, strict=True)]}]


def test_squad2_score_file_equals_published_script(tmp_path):
    rng = np.random.default_rng(1)
    made = made_questions(rng, 600)
    (tmp_path / "dev.json").write_text(json.dumps({"data": layout(made)}), encoding="utf-8")
    examples = TWO.read(tmp_path / "dev.json")
    assert examples == made
    texts = [near(example, rng) for example in examples]
    differences = [float(rng.normal(-2 if example.answers else 1, 3)) for example in examples]
    scores = compare_2_0(examples, texts, differences)
    assert -4 < scores["threshold"] < 4  # neither none nor all

    rows = [
        {"id": example.id, "prediction": text, "null_score_difference": difference}
        for example, text, difference in zip(examples, texts, differences, strict=True)
    ]
    files = TWO.submission("squad2", examples, rows)
    given = json.loads(files["squad2_predictions.json"])
    assert json.loads(files["squad2_null_odds.json"]) == {row["id"]: row["null_score_difference"] for row in rows}
    values = published_values(examples, [given[example.id] for example in examples], 2)  # the threshold is in the texts
    for name, of_each in values.items():
        for part, selected in {"": (True, False), "HasAns_": (True,), "NoAns_": (False,)}.items():
            mean = np.mean([of_each[one.id] for one in examples if bool(one.answers) in selected])
            assert scores[f"{part}{name}"] / 100 == pytest.approx(mean, abs=1e-12, rel=0)
