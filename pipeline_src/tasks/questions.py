"""Questions about a context, in SQuAD's JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import read_json, schema_error
from pipeline_src.base.names import shown
from pipeline_src.base.progress import log
from pipeline_src.study.task_spec import TaskSpec
from pipeline_src.tasks.tables import FETCH_AGAIN, reject_surrogates


@dataclass(frozen=True)
class Answer:
    # An accepted answer; `start` is the index of its first character in the context.

    text: str
    start: int


@dataclass(frozen=True)
class Question:
    # An unanswerable question has no answers.

    id: str
    question: str
    context: str
    answers: tuple[Answer, ...]


# An answer is searched for up to this many characters away from its `answer_start`. Typical errors: `answer_start` was
# counted from 1, or a space before the answer was removed later.
NEAR = 3
LEFT_OUT = "questions left out of training (no answer is in the context near where the file says)"
MOVED = "answers moved to where their text is, near where the file says"


def is_at_start(answer: Answer, context: str) -> bool:
    return bool(answer.text) and answer.start >= 0 and context.startswith(answer.text, answer.start)


def find_answer(answer: Answer, context: str) -> Answer | None:
    # Returns the answer with a corrected start, or None if its text is not within NEAR characters of `answer.start`.
    start = max(0, answer.start)
    # Java, JavaScript and C# count a character beyond U+FFFF, such as an emoji, as two units of UTF-16.
    units = context.encode("utf-16-le")[: 2 * start]
    in_characters = len(units.decode("utf-16-le", errors="ignore"))
    near = sorted(range(start - NEAR, start + NEAR + 1), key=lambda index: abs(index - start))
    for index in (start, in_characters, *near):
        moved = Answer(answer.text, index)
        if answer.text.strip() and is_at_start(moved, context):
            return moved
    return None


def learnable(spec: TaskSpec, questions: Iterable[Question], counts: Counter[str]) -> list[Question]:
    # As in run_squad.py, a question is left out if none of its answers is found in the context. The model would
    # otherwise learn that the question has no answer.
    examples = []
    reasons: Counter[str] = Counter()
    for question in questions:
        located = [find_answer(answer, question.context) for answer in question.answers]
        answers = tuple(answer for answer in located if answer is not None)
        if question.answers and not answers:
            reasons[LEFT_OUT] += 1
            continue
        reasons[MOVED] += len(set(answers) - set(question.answers))
        examples.append(replace(question, answers=answers))
    counts += reasons
    for reason, count in (+reasons).items():
        log.warning("%s: %d %s", spec.name, count, reason)
    return examples


def read_questions(
    spec: TaskSpec,
    path: str | Path,
    test: bool = False,
    counts: Counter[str] | None = None,
    training: bool = False,
) -> list[Question]:
    """Read questions from a file in SQuAD's JSON layout: data > paragraphs > qas.

    Questions need ``is_impossible`` if the task has unanswerable questions. No question of an evaluation file is
    dropped, even if its answer is not in the context.

    Args:
        test: whether it is a test file, which has no answers.
        training: whether to drop questions whose answers are not in the context. Unanswerable questions are kept.
        counts: filled with the number of questions without words or with an empty context, and the number of answers
            whose text is not at ``answer_start``.
    """
    shape: dict[str, Any] = {"id": object, "question": str}
    if not test:
        shape["answers"] = [{"text": str, "answer_start": object}]
        if spec.unanswerable:
            shape["is_impossible"] = bool
    content = read_json(path, hint=FETCH_AGAIN)
    problem = schema_error(content, {"data": [{"paragraphs": [{"context": str, "qas": [shape]}]}]})
    if problem:
        raise PipelineError("not in SQuAD's layout", problem, where=path, hint=FETCH_AGAIN)
    questions: dict[str, Question] = {}
    for i, article in enumerate(content["data"]):
        for j, paragraph in enumerate(article["paragraphs"]):
            for k, entry in enumerate(paragraph["qas"]):
                where = f"{path}, data[{i}].paragraphs[{j}].qas[{k}]"
                question = _question(entry, paragraph["context"], test)
                answers = [answer.text for answer in question.answers]
                for text in (question.id, question.context, question.question, *answers):
                    reject_surrogates(text, where)
                problem = _problem(entry, question, spec.unanswerable, test)
                if question.id in questions:
                    problem = f"a second question has the id {question.id!r}"
                if problem:
                    raise PipelineError("not in SQuAD's layout", problem, where=where, hint=FETCH_AGAIN)
                questions[question.id] = question
    counts = Counter() if counts is None else counts
    counts += _doubtful(questions.values())
    examples = learnable(spec, questions.values(), counts) if training else list(questions.values())
    if not examples:
        problem = "no answer is found at its answer_start" if questions else "no questions in the file"
        raise PipelineError(problem, path, where=f"task {spec.name}", hint=FETCH_AGAIN)
    return examples


def _question(entry: dict[str, Any], context: str, test: bool) -> Question:
    answers = () if test else tuple(Answer(answer["text"], answer["answer_start"]) for answer in entry["answers"])
    return Question(str(entry["id"]), entry["question"], context, answers)


def _problem(entry: dict[str, Any], question: Question, unanswerable: bool, test: bool) -> str | None:
    if type(entry["id"]) not in (str, int):
        return f"the id {shown(entry['id'])} is not a text or number"
    if any(type(answer.start) is not int for answer in question.answers):
        return f"question {question.id} has an answer_start that is not a whole number"
    if test:
        return None
    is_impossible = unanswerable and entry["is_impossible"]
    if is_impossible == bool(question.answers):
        problem = "answers, although is_impossible is true" if is_impossible else "no answer"
        return f"question {question.id} has {problem}"
    return None


def _doubtful(questions: Iterable[Question]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for question in questions:
        counts["questions without words"] += not question.question.strip()
        counts["questions about an empty context"] += not question.context.strip()
        for answer in question.answers:
            counts["answers that are not in the context where the file says"] += not is_at_start(
                answer, question.context
            )
    return counts
