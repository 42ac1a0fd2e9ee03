"""SQuAD's JSON layout: articles, their paragraphs, and questions with the answers that readers marked."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import read_json
from pipeline_src.common.names import shown
from pipeline_src.tasks.files.reading import FETCH_AGAIN
from pipeline_src.tasks.files.spec import TaskSpec

KINDS: dict[Any, str] = {str: "a text", int: "a whole number", bool: "true or false", str | int: "a text or number"}


@dataclass(frozen=True)
class Answer:
    """An accepted answer: its text and where it starts in the context, in characters."""

    text: str
    start: int


@dataclass(frozen=True)
class Example:
    """A question about a context; no answers means that it has none there."""

    id: str
    question: str
    context: str
    answers: tuple[Answer, ...]


def stands(answer: Answer, context: str) -> bool:
    """Whether the answer is in the context where it is said to be."""
    return bool(answer.text) and answer.start >= 0 and context.startswith(answer.text, answer.start)


def read_questions(
    spec: TaskSpec, path: str | Path, test: bool = False, counts: Counter[str] | None = None
) -> list[Example]:
    """Read a file in SQuAD's layout: data > paragraphs > qas, with ``is_impossible`` where questions may be void.

    Nothing is dropped. What cannot be learnt from is still scored, and counted.

    Args:
        spec: the task.
        path: of the file.
        test: the file tells no answers; any that it holds are left out.
        counts: takes the number of questions with an empty question or context, and of answers that are not in their
            context where the file says.

    Raises:
        PipelineError: not JSON, a key is missing or of the wrong type, no questions, two of one id, a question
            without an answer where each must have one, or one with answers that is marked to have none; file and
            place are named.
    """
    content = read_json(path)
    examples: list[Example] = []
    seen: set[str] = set()
    place = "data"
    try:
        for i, article in enumerate(content["data"]):
            for j, paragraph in enumerate(article["paragraphs"]):
                place = f"data[{i}].paragraphs[{j}]"
                context = _typed(paragraph["context"], str)
                for k, question in enumerate(paragraph["qas"]):
                    place = f"data[{i}].paragraphs[{j}].qas[{k}]"
                    examples.append(_example(spec, question, context, test))
                    if examples[-1].id in seen:
                        raise ValueError(f"a second question has the id {examples[-1].id!r}")
                    seen.add(examples[-1].id)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        reason = f"key {error} is missing" if isinstance(error, KeyError) else str(error)
        raise PipelineError("not in SQuAD's layout", reason, where=f"{path}, {place}", remedy=FETCH_AGAIN) from None
    if not examples:
        raise PipelineError("no questions in the file", path, where=f"task {spec.name}", remedy=FETCH_AGAIN)
    if counts is not None:
        counts += _doubtful(examples)
    return examples


def _example(spec: TaskSpec, question: dict[str, Any], context: str, test: bool) -> Example:
    name, text = str(_typed(question["id"], str | int)), _typed(question["question"], str)
    if test:
        return Example(name, text, context, ())
    answers = tuple(
        Answer(_typed(answer["text"], str), _typed(answer["answer_start"], int)) for answer in question["answers"]
    )
    void = spec.unanswerable and _typed(question["is_impossible"], bool)
    if void == bool(answers):
        raise ValueError(f"question {name} has {'answers, but is_impossible' if void else 'no answer'}")
    return Example(name, text, context, answers)


def _typed(value: Any, kind: Any) -> Any:
    """The value, if it is of that type; true and false are no numbers."""
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise TypeError(f"{shown(value)} is not {KINDS[kind]}")
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ValueError(f"half a character in {shown(value)}") from None
    return value


def _doubtful(examples: list[Example]) -> Counter[str]:
    return Counter(
        {
            "questions without words": sum(not example.question.strip() for example in examples),
            "questions about an empty context": sum(not example.context.strip() for example in examples),
            "answers that are not in the context where the file says": sum(
                not stands(answer, example.context) for example in examples for answer in example.answers
            ),
        }
    )
