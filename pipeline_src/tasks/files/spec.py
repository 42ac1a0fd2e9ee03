"""What a task is, as ``catalogue/tasks/<task>.yaml`` declares it: files, columns, labels and metrics. No torch here."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Annotated, Literal

from pydantic import Field, ValidationError, model_validator

from pipeline_src.common.catalogue import TASK_SPECS, entry_names, read_entry
from pipeline_src.common.errors import PipelineError
from pipeline_src.params.base import Block
from pipeline_src.params.names import FileName, FilePath, Name

TEST_REMEDY = "give the evaluation set a `test` where the task is declared, in pipeline_src/catalogue/tasks"
Metric = Literal["accuracy", "f1", "matthews", "pearson", "spearman", "em", "entity_f1"]
Column = Annotated[int, Field(ge=1)] | str  # a header's name, or a number counted from 1 where the file has no header


class Columns(Block):
    """Which columns of a table hold what.

    Attributes:
        texts: the first segment, then the second where there is one.
        label: the answer; a test file has none.
        choices: endings of the second segment, one of which is right (kind ``choice`` alone).
        group: what rows that were taken together share, a document perhaps: intervals resample them together.
    """

    texts: tuple[Column, ...] = Field(min_length=1, max_length=2)
    label: Column | None = None
    choices: tuple[Column, ...] = ()
    group: Column | None = None

    @property
    def wanted(self) -> tuple[Column, ...]:
        """Every column that is read."""
        others = (column for column in (self.label, self.group) if column is not None)
        return (*self.texts, *self.choices, *others)


class TestSpec(Block):
    """A file without labels, whose predictions are handed in.

    Attributes:
        file: which file of the task's folder.
        submit: the name its predictions have in a submission.
        columns: where they differ from the task's, without a label.
        header: whether its first line names the columns; as in the task's other tables unless said.
    """

    __test__ = False  # pytest: no test case

    file: FilePath
    submit: FileName
    columns: Columns | None = None
    header: bool | None = None


class EvalSetSpec(Block):
    """An evaluation set: one file that a task's model is scored on, one row of the results table for each metric.

    Attributes:
        title: its name for people.
        file: which file of the task's folder.
        metrics: names in ``metrics.py``, the main one first.
        columns: where they differ from the task's.
        labels: spellings in this file, in the order of the task's labels, where they differ.
        test: the file of the same kind that has no labels, where there is one.
    """

    title: str = Field(min_length=1)
    file: FilePath
    metrics: tuple[Metric, ...] = Field(min_length=1)
    columns: Columns | None = None
    labels: tuple[str, ...] | None = None
    test: TestSpec | None = None


@dataclass(frozen=True)
class Layout:
    """How one table is laid out.

    Attributes:
        columns: what stands where; no label in a test file.
        header: whether the first line names the columns (tables alone; lines of JSON name their own).
        labels: spellings of the classes, none for a regression.
        drop_short: whether a line that lacks a column is dropped and counted; else it is refused.
    """

    columns: Columns
    header: bool
    labels: tuple[str, ...]
    drop_short: bool


LARGEST = 1e9  # of a regression's values

# What can be computed for a classification; metrics.py has the functions.
OF_CLASSES, OF_NUMBERS = {"accuracy", "matthews"}, {"pearson", "spearman"}


class TaskSpec(Block):
    """A task of ``catalogue/tasks``.

    Attributes:
        name: its key there and its folder below data/tasks.
        kind: which handler reads and scores it.
        train: the training file, by default as GLUE calls it.
        scores: evaluation sets of its model, by name; a recipe is chosen by the first.
        columns: the columns of its tables (not for spans, whose files are JSON).
        labels: spellings of the classes; their order is the order of the model's outputs.
        range: lowest and highest value of a regression, which has no labels.
        header: whether the first line of its tables names the columns.
        short_rows: what to do with a line that lacks a column: ``refuse`` it, or ``drop`` and count it.
        unanswerable: whether a question may have no answer (spans alone).
        format: how a file of tagged words is written, a name in ``conll.FORMATS`` (tagging alone).
    """

    name: Name
    kind: Literal["classification", "choice", "span", "tagging"]
    train: FilePath = "train.tsv"
    scores: dict[Name, EvalSetSpec] = Field(min_length=1)
    columns: Columns | None = None
    labels: tuple[str, ...] = ()
    range: tuple[float, float] | None = None
    header: bool = True
    short_rows: Literal["refuse", "drop"] = "refuse"
    unanswerable: bool = False
    format: Literal["conll", "conllu"] = "conll"

    @model_validator(mode="after")
    def _keys_fit_the_kind(self) -> TaskSpec:
        if (self.columns is None) != (self.kind == "span"):
            raise ValueError("tables need columns; spans are read from JSON and take none")
        if bool(self.labels) + (self.range is not None) != (self.kind in ("classification", "tagging")):
            raise ValueError("a classification needs either labels or a range; choices and spans take neither")
        if self.kind == "tagging" and self.columns is not None:
            wanted = self.columns.wanted
            if self.range or len(wanted) != 2 or not all(type(name) is int for name in wanted):
                raise ValueError("tagging needs labels, and one text column and a label, counted from 1")
        if (self.kind == "choice") != bool(self.columns and self.columns.choices):
            raise ValueError("choices belong to the kind `choice`, which needs them")
        if len(set(self.labels)) != len(self.labels) or len(self.labels) == 1 or not all(self.labels):
            raise ValueError("labels are two or more, each listed once and none empty")
        if self.range is not None and not (-LARGEST <= self.range[0] < self.range[1] <= LARGEST):
            raise ValueError(f"a range is two numbers, the lower one first, of at most {LARGEST:g}")
        names = [eval_set.test.submit for eval_set in self.scores.values() if eval_set.test is not None]
        if len(set(names)) != len(names):
            raise ValueError("two evaluation sets submit under one name")
        return self

    @model_validator(mode="after")
    def _columns_are_whole(self) -> TaskSpec:
        tests = [eval_set.test for eval_set in self.scores.values() if eval_set.test is not None]
        for columns in (self.columns, *(eval_set.columns for eval_set in self.scores.values())):
            if columns is not None and columns.label is None:
                raise ValueError("columns need a label; only those of a test file have none")
        if any(test.columns is not None and test.columns.label is not None for test in tests):
            raise ValueError("a test file has no label column")
        if self.kind == "tagging" and tests:
            raise ValueError("words without tags are not read: a set of this kind takes no test file")
        if self.columns is not None and not self.header and not all(type(name) is int for name in self.columns.wanted):
            raise ValueError("without a header, columns are numbers counted from 1")
        return self

    @model_validator(mode="after")
    def _metrics_fit_the_answers(self) -> TaskSpec:
        allowed = {
            "classification": OF_NUMBERS if self.range else OF_CLASSES | ({"f1"} if len(self.labels) == 2 else set()),
            "choice": {"accuracy"},
            "tagging": {"accuracy", "entity_f1"},
            "span": {"em", "f1"},
        }
        for name, eval_set in self.scores.items():
            if eval_set.labels is not None and len(eval_set.labels) != len(self.labels):
                raise ValueError(f"{name}: {len(eval_set.labels)} labels, where the task has {len(self.labels)}")
            wrong = set(eval_set.metrics) - allowed[self.kind]
            if wrong:
                fitting = ", ".join(sorted(allowed[self.kind]))
                raise ValueError(f"{name}: {min(wrong)} does not fit the answers; metrics that do: {fitting}")
        return self

    def eval_set(self, name: str | None) -> EvalSetSpec:
        """The evaluation set called ``name``; None gives the first.

        Raises:
            PipelineError: the task has no such set.
        """
        if name is None:
            return next(iter(self.scores.values()))
        if name not in self.scores:
            raise PipelineError(
                "no such evaluation set", name, where=self.name, remedy=f"there are {', '.join(self.scores)}"
            )
        return self.scores[name]

    def layout(self, eval_set: str | None = None, test: bool = False) -> Layout:
        """How a table is laid out: the training file (no ``eval_set``), an evaluation set's file, or its test file.

        Raises:
            PipelineError: there is no such set, or it has no test file.
        """
        assert self.columns is not None  # only tables have a layout
        if not test:
            declared_set = self.eval_set(eval_set) if eval_set is not None else None
            columns, labels = (declared_set.columns, declared_set.labels) if declared_set else (None, None)
            return Layout(columns or self.columns, self.header, labels or self.labels, self.short_rows == "drop")
        declared = self.eval_set(eval_set).test
        if declared is None:
            raise PipelineError(
                "no test file is declared", eval_set or "the first set", where=self.name, remedy=TEST_REMEDY
            )
        columns = declared.columns or self.columns.model_copy(update={"label": None, "group": None})
        header = self.header if declared.header is None else declared.header
        return Layout(columns, header, self.labels, drop_short=False)  # a submission lacks no line


def task_names() -> list[str]:
    """Names of all declared tasks."""
    return entry_names(TASK_SPECS)


@cache
def load_spec(name: str) -> TaskSpec:
    """One task's declaration.

    Raises:
        PipelineError: there is no such task, or its declaration has a wrong key or value, which is named.
    """
    try:
        return TaskSpec.model_validate({"name": name, **read_entry(TASK_SPECS, name)})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(str(step) for step in (name, *first["loc"]))
        remedy = first["msg"].removeprefix("Value error, ")
        raise PipelineError("task not declared well", key, where=f"pipeline_src/{TASK_SPECS}", remedy=remedy) from None
