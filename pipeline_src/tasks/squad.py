"""SQuAD's JSON layout: articles, their paragraphs, and questions with the answers that readers marked."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline_src.errors import PipelineError
from pipeline_src.files import read_json
from pipeline_src.tasks.reading import FETCH_AGAIN
from pipeline_src.tasks.spec import TaskSpec


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


def read_questions(spec: TaskSpec, path: str | Path) -> list[Example]:
    """Read a file in SQuAD's layout: data > paragraphs > qas, with ``is_impossible`` where questions may be void.

    Raises:
        PipelineError: not JSON, a key is missing or of the wrong type, no questions, or a question without an
            answer where each must have one; file and place are named.
    """
    content = read_json(path)
    examples: list[Example] = []
    place = "data"
    try:
        for i, article in enumerate(content["data"]):
            for j, paragraph in enumerate(article["paragraphs"]):
                place = f"data[{i}].paragraphs[{j}]"
                context = _text(paragraph["context"])
                for k, question in enumerate(paragraph["qas"]):
                    place = f"data[{i}].paragraphs[{j}].qas[{k}]"
                    examples.append(_example(spec, question, context))
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        reason = f"key {error} is missing" if isinstance(error, KeyError) else str(error)
        raise PipelineError("not in SQuAD's layout", reason, where=f"{path}, {place}", remedy=FETCH_AGAIN) from None
    if not examples:
        raise PipelineError("no questions in the file", path, where=f"task {spec.name}", remedy=FETCH_AGAIN)
    return examples


def _example(spec: TaskSpec, question: dict[str, Any], context: str) -> Example:
    answers = tuple(Answer(_text(answer["text"]), int(answer["answer_start"])) for answer in question["answers"])
    if spec.unanswerable and question["is_impossible"]:
        answers = ()
    elif not answers:
        raise ValueError(f"question {question['id']} has no answer")
    return Example(str(question["id"]), _text(question["question"]), context, answers)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a text")
    return value
