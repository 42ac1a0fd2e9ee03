from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pipeline_src.common.errors import PipelineError
from pipeline_src.tasks import span
from pipeline_src.tasks.files.spec import load_spec

ONE, TWO = load_spec("squad1"), load_spec("squad2")


def question(**changes: Any) -> dict[str, Any]:
    answers = [{"text": "Paris", "answer_start": 12}]
    return {"id": "q0", "question": "Where?", "answers": answers, "is_impossible": False} | changes


def write(tmp_path: Path, *questions: Any, context: Any = "Ada lives in Paris.") -> Path:
    path = tmp_path / "dev.json"
    path.write_text(json.dumps({"data": [{"paragraphs": [{"context": context, "qas": list(questions)}]}]}))
    return path


def without(key: str) -> dict[str, Any]:
    return {name: value for name, value in question().items() if name != key}


PLACE = r"dev\.json, data\[0\]\.paragraphs\[0\]\.qas\[0\]"


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (without("question"), "key 'question' is missing"),
        (without("id"), "key 'id' is missing"),
        (without("answers"), "key 'answers' is missing"),
        (without("is_impossible"), "key 'is_impossible' is missing"),
        (question(question=7), "7 is not a text"),
        (question(question=None), "None is not a text"),
        (question(id=None), "None is not a text or number"),
        (question(answers=7), "not iterable"),
        (question(answers=["Paris"]), "indices"),
        (question(answers=[{"text": "Paris"}]), "key 'answer_start' is missing"),
        (question(answers=[{"text": None, "answer_start": 1}]), "None is not a text"),
        (question(answers=[{"text": "Paris", "answer_start": "12"}]), "'12' is not a whole number"),
        (question(answers=[{"text": "Paris", "answer_start": 1.5}]), "1.5 is not a whole number"),
        (question(answers=[{"text": "Paris", "answer_start": True}]), "True is not a whole number"),
        (question(answers=[{"text": "Paris", "answer_start": float("nan")}]), "nan is not a whole number"),
        (question(is_impossible="false"), "'false' is not true or false"),
        (question(answers=[]), "question q0 has no answer"),
        (question(is_impossible=True), "question q0 has answers, but is_impossible"),
        ("Where?", "indices"),
    ],
)
def test_a_broken_question_is_refused_with_its_place(tmp_path: Path, broken: Any, message: str):
    with pytest.raises(PipelineError, match=PLACE) as caught:
        span.read(TWO, write(tmp_path, broken))
    assert message in str(caught.value)


def test_a_question_without_an_answer_is_refused_in_1_1(tmp_path: Path):
    with pytest.raises(PipelineError, match="question q0 has no answer"):
        span.read(ONE, write(tmp_path, question(answers=[])))


def test_two_questions_of_one_id_are_refused(tmp_path: Path):
    with pytest.raises(PipelineError, match=r"a second question has the id 'q0'\n.*qas\[1\]"):
        span.read(ONE, write(tmp_path, question(), question()))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "not a JSON file"),
        ("{", "not a JSON file"),
        ("[]", "not in SQuAD's layout"),
        ("3", "not in SQuAD's layout"),
        ('{"data": 3}', "not in SQuAD's layout"),
        ('{"data": null}', "not in SQuAD's layout"),
        ('{"version": "1.1"}', "key 'data' is missing"),
        ('{"data": [{"title": "x"}]}', "key 'paragraphs' is missing"),
        ('{"data": [{"paragraphs": [{"qas": []}]}]}', "key 'context' is missing"),
        ('{"data": [{"paragraphs": [{"context": ["x"], "qas": []}]}]}', "is not a text"),
        ('{"data": [{"paragraphs": [{"context": "x"}]}]}', "key 'qas' is missing"),
        ('{"data": []}', "no questions in the file"),
        ('{"data": [{"paragraphs": [{"context": "x", "qas": []}]}]}', "no questions in the file"),
    ],
)
def test_a_broken_file_is_refused(tmp_path: Path, content: str, message: str):
    path = tmp_path / "dev.json"
    path.write_text(content)
    with pytest.raises(PipelineError, match=r"dev\.json") as caught:
        span.read(ONE, path)
    assert message in str(caught.value)


def test_a_file_that_is_not_text_or_not_there_is_refused(tmp_path: Path):
    path = tmp_path / "dev.json"
    with pytest.raises(PipelineError, match=r"dev\.json"):
        span.read(ONE, path)
    path.write_bytes(b"\xff\xfe{}")
    with pytest.raises(PipelineError, match="not a JSON file"):
        span.read(ONE, path)


@pytest.mark.parametrize("start", [-1, -8, 3, 10_000])
def test_an_answer_that_is_not_where_the_file_says_is_judged_but_counted(tmp_path: Path, start: int):
    counts: Counter[str] = Counter()
    answers = [{"text": "Paris", "answer_start": start}, {"text": "Paris", "answer_start": 13}]
    (example,) = span.read(ONE, write(tmp_path, question(answers=answers)), counts=counts)
    assert counts == {"answers that are not in the context where the file says": 1}
    assert [answer.text for answer in example.answers] == ["Paris", "Paris"]


def test_empty_texts_are_counted(tmp_path: Path):
    counts: Counter[str] = Counter({"before": 1})
    path = write(tmp_path, question(question=" ", answers=[], is_impossible=True), question(id=7), context="")
    examples = span.read(TWO, path, counts=counts)
    assert [example.id for example in examples] == ["q0", "7"]
    assert counts == {
        "before": 1,
        "questions without words": 1,
        "questions about an empty context": 2,
        "answers that are not in the context where the file says": 1,
    }


def test_a_file_of_a_test_needs_no_answers(tmp_path: Path):
    path = write(tmp_path, {"id": "q0", "question": "Where?"}, question(id="q1"))
    assert [example.answers for example in span.read(ONE, path, test=True)] == [(), ()]
