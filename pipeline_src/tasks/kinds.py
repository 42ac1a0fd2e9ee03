"""The kinds of task. To add a kind, write a subclass of ``Task`` and add it to ``KINDS``."""

from __future__ import annotations

from pipeline_src.study.task_spec import TaskSpec
from pipeline_src.tasks.classification import Classification, MultipleChoice
from pipeline_src.tasks.multilabel import MultiLabel
from pipeline_src.tasks.retrieval import Retrieval
from pipeline_src.tasks.squad import QuestionAnswering
from pipeline_src.tasks.tagging import Tagging
from pipeline_src.tasks.task import Task

KINDS: dict[str, type[Task]] = {
    "classification": Classification,
    "multilabel": MultiLabel,
    "choice": MultipleChoice,
    "span": QuestionAnswering,
    "tagging": Tagging,
    "retrieval": Retrieval,
}


def make_task(spec: TaskSpec) -> Task:
    return KINDS[spec.kind](spec)
