"""Questions in SQuAD's JSON, and answers that are not where the file says."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pipeline_src.base.errors import PipelineError
from pipeline_src.study.task_spec import load_spec
from pipeline_src.tasks.kinds import make_task
from pipeline_src.tasks.questions import LEFT_OUT, MOVED, Answer, find_answer
from pipeline_src.tasks.task import Task
from tests.unit.tasks.conftest import write

ONE, TWO = make_task(load_spec("squad1")), make_task(load_spec("squad2"))


def entry(**changes: Any) -> dict[str, Any]:
    answers = [{"text": "Paris", "answer_start": 12}]
    return {"id": "q0", "question": "Where?", "answers": answers, "is_impossible": False} | changes


def write_questions(tmp_path: Path, *questions: Any, context: Any = "Ada lives in Paris.") -> Path:
    path = tmp_path / "dev.json"
    path.write_text(json.dumps({"data": [{"paragraphs": [{"context": context, "qas": list(questions)}]}]}))
    return path


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ({"id": "q0", "question": "Where?", "answers": []}, "qas[0] lacks is_impossible"),
        (entry(question=7), "qas[0].question is 7, not a text"),
        (entry(id=None), "the id None is not a text or number"),
        (entry(answers=[{"text": "Paris"}]), "answers[0] lacks answer_start"),
        (entry(answers=[{"text": "Paris", "answer_start": 1.5}]), "not a whole number"),
        (entry(answers=[{"text": "Paris", "answer_start": True}]), "not a whole number"),
        (entry(is_impossible="false"), "qas[0].is_impossible is 'false'"),
        (entry(answers=[]), "question q0 has no answer"),
        (entry(is_impossible=True), "question q0 has answers, although is_impossible is true"),
        (entry(question="\ud800"), "unpaired surrogate"),
        (entry(id="\ud800"), "unpaired surrogate"),
        ("Where?", "qas[0] is 'Where?', not an object"),
    ],
)
def test_read_squad_bad_question_is_rejected_with_position(tmp_path: Path, broken: Any, message: str):
    with pytest.raises(PipelineError, match=re.escape(message)) as error:
        TWO.read(write_questions(tmp_path, broken))
    assert "data[0].paragraphs[0].qas[0]" in str(error.value)


def test_read_squad_duplicate_id_is_rejected(tmp_path: Path):
    with pytest.raises(PipelineError, match=r"a second question has the id 'q0'\n.*qas\[1\]"):
        ONE.read(write_questions(tmp_path, entry(), entry()))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "invalid JSON file"),
        ('{"version": "1.1"}', "lacks data"),
        ('{"data": []}', "no questions in the file"),
    ],
)
def test_read_squad_bad_file_is_rejected(tmp_path: Path, content: str, message: str):
    with pytest.raises(PipelineError, match=message):
        ONE.read(write(tmp_path / "dev.json", content))


@pytest.mark.parametrize("start", [-1, 3, 10_000])
def test_read_squad_misplaced_answer_is_counted(tmp_path: Path, start: int):
    counts: Counter[str] = Counter()
    answers = [{"text": "Paris", "answer_start": start}, {"text": "Paris", "answer_start": 13}]
    (example,) = ONE.read(write_questions(tmp_path, entry(answers=answers)), "squad1", counts=counts)
    assert counts == {"answers that are not in the context where the file says": 1}
    assert [answer.text for answer in example.answers] == ["Paris", "Paris"]


def test_read_squad_empty_texts_are_counted(tmp_path: Path):
    counts: Counter[str] = Counter({"before": 1})
    path = write_questions(tmp_path, entry(question=" ", answers=[], is_impossible=True), entry(id=7), context="")
    examples = TWO.read(path, "squad2", counts=counts)
    assert [example.id for example in examples] == ["q0", "7"]
    assert counts == {
        "before": 1,
        "questions without words": 1,
        "questions about an empty context": 2,
        "answers that are not in the context where the file says": 1,
    }


EMOJI = "\U0001f642\U0001f642 Ada lives in Paris, not in London, not in London."
PARIS = EMOJI.index("Paris")


@pytest.mark.parametrize(
    ("text", "start", "found"),
    [
        ("Paris", PARIS, PARIS),
        ("Paris", PARIS + 2, PARIS),  # two emojis are four units of UTF-16
        ("Paris", PARIS + 1, PARIS),
        ("Paris", PARIS - 3, PARIS),
        ("Paris", PARIS - 4, None),
        ("\U0001f642 Ada", 2, 1),
        ("\U0001f642 Ada", 3, 1),
        ("Ada", -1, 3),
        ("in", EMOJI.index("in London") + 1, EMOJI.index("in London")),
        ("London", EMOJI.rindex("London") + 1, EMOJI.rindex("London")),
        ("Berlin", PARIS, None),
        ("", 3, None),
        (" ", 2, None),
        ("Ada", 10**9, None),
    ],
)
def test_find_answer_accepts_character_utf16_and_nearby_offsets(text: str, start: int, found: int | None):
    assert find_answer(Answer(text, start), EMOJI) == (None if found is None else Answer(text, found))


@pytest.mark.parametrize("task", [ONE, TWO])
def test_read_squad_training_question_with_missing_answer_is_dropped(tmp_path: Path, task: Task, caplog):
    starts = {"right": 15, "utf-16": 16, "off by one": 14, "nowhere": 40}
    questions = [entry(id=name, answers=[{"text": "Paris", "answer_start": start}]) for name, start in starts.items()]
    path = write_questions(tmp_path, *questions, context="\U0001f642 Ada lives in Paris.")
    counts: Counter[str] = Counter()
    examples = task.read(path, counts=counts)
    assert [(example.id, example.answers[0].start) for example in examples] == [
        ("right", 15),
        ("utf-16", 15),
        ("off by one", 15),
    ]
    assert counts[LEFT_OUT] == 1 and counts[MOVED] == 2
    assert f"1 {LEFT_OUT}" in caplog.text and f"2 {MOVED}" in caplog.text
    evaluated = task.read(path, task.spec.name)
    assert [example.answers[0].start for example in evaluated] == list(starts.values())


def test_read_squad_training_file_with_only_missing_answers_is_rejected(tmp_path: Path):
    with pytest.raises(PipelineError, match="no answer is found at its answer_start"):
        ONE.read(write_questions(tmp_path, entry(answers=[{"text": "London", "answer_start": 0}])))


def test_read_squad_test_file_needs_no_answers(tmp_path: Path):
    path = write_questions(tmp_path, {"id": "q0", "question": "Where?"}, entry(id="q1"))
    assert [example.answers for example in ONE.read(path, test=True)] == [(), ()]
