"""What a task is, as ``tasks.yaml`` declares it: files, columns, labels and metrics. No torch here."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Literal

import yaml
from pydantic import Field, ValidationError, model_validator

from pipeline_src.errors import PipelineError
from pipeline_src.params.base import Block

DECLARATIONS = Path(__file__).with_name("tasks.yaml")
Column = int | str  # a header's name, or a number counted from 1 where the file has no header


class Columns(Block):
    """Which columns of a table hold what.

    Attributes:
        texts: the first segment, then the second where there is one.
        label: the answer.
        choices: endings of the second segment, one of which is right (kind ``choice`` alone).
    """

    texts: tuple[Column, ...] = Field(min_length=1, max_length=2)
    label: Column
    choices: tuple[Column, ...] = ()


class ScoreSpec(Block):
    """One row of the results table: one file judged by the model of one task.

    Attributes:
        title: the row's name for people.
        file: which file of the task's folder is judged.
        metrics: names in ``metrics.py``, the main one first.
        columns: where they differ from the task's.
        labels: spellings in this file, in the order of the task's labels, where they differ.
    """

    title: str
    file: str
    metrics: tuple[Literal["accuracy", "f1", "matthews", "pearson", "spearman", "em"], ...] = Field(min_length=1)
    columns: Columns | None = None
    labels: tuple[str, ...] | None = None


class TaskSpec(Block):
    """A task of ``tasks.yaml``.

    Attributes:
        name: its key there and its folder below data/tasks.
        kind: which handler reads and judges it.
        train: the training file.
        scores: rows of the results table that its model fills, by name; the first is the one a recipe is chosen by.
        columns: the columns of its tables (not for spans, whose files are JSON).
        labels: spellings of the classes; their order is the order of the model's outputs.
        range: lowest and highest value of a regression, which has no labels.
        header: whether the first line of its tables names the columns.
        short_rows: what to do with a line that has too few fields: ``refuse`` it, or ``drop`` and count it.
        unanswerable: whether a question may have no answer (spans alone).
    """

    name: str
    kind: Literal["classification", "choice", "span"]
    train: str
    scores: dict[str, ScoreSpec] = Field(min_length=1)
    columns: Columns | None = None
    labels: tuple[str, ...] = ()
    range: tuple[float, float] | None = None
    header: bool = True
    short_rows: Literal["refuse", "drop"] = "refuse"
    unanswerable: bool = False

    @model_validator(mode="after")
    def _keys_fit_the_kind(self) -> TaskSpec:
        if (self.columns is None) != (self.kind == "span"):
            raise ValueError("tables need columns; spans are read from JSON and take none")
        if bool(self.labels) + (self.range is not None) != (self.kind == "classification"):
            raise ValueError("a classification needs either labels or a range; the other kinds take neither")
        if (self.kind == "choice") != bool(self.columns and self.columns.choices):
            raise ValueError("choices belong to the kind `choice`, which needs them")
        return self

    def row(self, name: str | None) -> ScoreSpec:
        """The score row called ``name``; None gives the first.

        Raises:
            PipelineError: the task has no such row.
        """
        if name is None:
            return next(iter(self.scores.values()))
        if name not in self.scores:
            raise PipelineError("no such score row", name, where=self.name, remedy=f"rows: {', '.join(self.scores)}")
        return self.scores[name]


@cache
def load_specs(path: Path = DECLARATIONS) -> dict[str, TaskSpec]:
    """Every declared task by name, in the file's order.

    Raises:
        PipelineError: a declaration has a wrong key or value; the task and the key are named.
    """
    specs = {}
    for name, entry in yaml.safe_load(path.read_text(encoding="utf-8")).items():
        try:
            specs[name] = TaskSpec.model_validate({"name": name, **entry})
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            key = ".".join(str(step) for step in (name, *first["loc"]))
            remedy = first["msg"].removeprefix("Value error, ")
            raise PipelineError("task not declared well", key, where=path.name, remedy=remedy) from None
    return specs


def task_names() -> tuple[str, ...]:
    """Names of all declared tasks."""
    return tuple(load_specs())


def load_spec(name: str) -> TaskSpec:
    """One task's declaration.

    Raises:
        PipelineError: there is no such task.
    """
    specs = load_specs()
    if name not in specs:
        raise PipelineError("unknown task", name, remedy=f"choose one of {', '.join(specs)}")
    return specs[name]
