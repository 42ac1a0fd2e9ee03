"""Task specifications, from ``catalogue/tasks/<task>.yaml``: files, columns, labels and metrics. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Annotated, Literal, get_args

from pydantic import BeforeValidator, Field, model_validator

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.names import shown
from pipeline_src.base.yaml_files import TASK_SPECS, entry_names, read_entry
from pipeline_src.study.reading import check_block
from pipeline_src.study.schema import FileName, FilePath, Name, Section

RankMetric = Literal["ndcg_at_10", "recall_at_100", "mrr_at_10"]
Metric = Literal["accuracy", "f1", "macro_f1", "matthews", "pearson", "spearman", "em", "entity_f1", RankMetric]
# Other metrics are called by their names.
METRIC_TITLES: dict[str, str] = {
    "f1": "F1",
    "macro_f1": "macro F1",
    "matthews": "Matthews",
    "pearson": "Pearson",
    "spearman": "Spearman",
    "em": "EM",
    "entity_f1": "entity F1",
    "ndcg_at_10": "nDCG@10",
    "recall_at_100": "recall@100",
    "mrr_at_10": "MRR@10",
}


def _check_column(column: object) -> object:
    if isinstance(column, bool) or not (isinstance(column, int) and column >= 1 or isinstance(column, str)):
        raise ValueError(f"a column is a name of the header, or a number counted from 1, unlike {shown(column)}")
    return column


# The name of a column in the header, or its number, counted from 1, where the file has no header.
Column = Annotated[int | str, BeforeValidator(_check_column)]


class Columns(Section):
    """Columns of a table, by their names in its header, or without a header by their numbers, counted from 1.

    Attributes:
        texts: the column of the first segment, and of the second if there is one; a query and its passage.
        label: the column of the label; None in a test file.
        choices: the columns of the endings, of which one is correct (kind ``choice`` only).
        negatives: columns of passages that do not answer the query (kind ``retrieval`` only).
        group: a column such as a row's document; confidence intervals resample rows with the same value together.
    """

    texts: tuple[Column, ...] = Field(min_length=1, max_length=2)
    label: Column | None = None
    choices: tuple[Column, ...] = ()
    negatives: tuple[Column, ...] = ()
    group: Column | None = None

    @property
    def required(self) -> tuple[Column, ...]:
        # Each once; a group may be one of the texts.
        columns = (*self.texts, *self.choices, *self.negatives, self.label, self.group)
        return tuple(dict.fromkeys(column for column in columns if column is not None))

    @property
    def are_numbers(self) -> bool:
        return all(type(column) is int for column in self.required)

    def without_labels(self) -> Columns:
        return self.model_copy(update={"label": None, "group": None})


class TestSpec(Section):
    """A file without labels, whose predictions are submitted to a leaderboard.

    Attributes:
        submit: name of the file of predictions in a submission.
        columns: columns of the file, without a label, if they differ from the task's.
        header: whether the first line names the columns; by default as in the task's other tables.
    """

    # This is not a test case of pytest.
    __test__ = False

    file: FilePath
    submit: FileName
    columns: Columns | None = None
    header: bool | None = None


class EvalSetSpec(Section):
    """An evaluation set: a file that a task's model is scored on, with one row of the results table per metric.

    Attributes:
        title: display name.
        metrics: names in ``metrics.py``, the main metric first.
        columns: columns of the file if they differ from the task's.
        labels: spellings of the labels in the file, in the task's order, if they differ from the task's.
        test: the corresponding file without labels, if there is one.
        corpus, queries: tables with the columns ``_id`` and ``text``. The texts of ``file`` are then such ids, and all
            of the corpus is searched (kind ``retrieval`` only).
    """

    title: str = Field(min_length=1)
    file: FilePath
    metrics: tuple[Metric, ...] = Field(min_length=1)
    columns: Columns | None = None
    labels: tuple[str, ...] | None = None
    test: TestSpec | None = None
    corpus: FilePath | None = None
    queries: FilePath | None = None

    @property
    def files(self) -> list[str]:
        return [file for file in (self.file, self.corpus, self.queries) if file is not None]


@dataclass(frozen=True)
class Layout:
    """Layout of a table.

    Attributes:
        columns: columns of the table; a test file has no label.
        header: whether the first line names the columns (in JSON, every line does).
        labels: spellings of the classes; empty for a regression.
        drop_short: whether a line that lacks a column is dropped and counted; otherwise it is an error.
    """

    columns: Columns
    header: bool
    labels: tuple[str, ...]
    drop_short: bool

    def without_labels(self) -> Layout:
        return replace(self, columns=self.columns.without_labels())


# Bound of a regression's values.
MAX_VALUE = 1e9


class TaskSpec(Section):
    """A task of ``catalogue/tasks``.

    Attributes:
        name: name of the file there, and of the folder in data/tasks.
        kind: key of the task's class in ``kinds.KINDS``.
        scores: name -> evaluation set; the first set selects hyperparameters.
        columns: columns of the task's tables (not for SQuAD's JSON, of which all spans are).
        labels: spellings of the classes, in the order of the model's outputs. Retrieval: those of the rows to read, of
            which the passage answers the query.
        range: lowest and highest value of a regression, which has no labels.
        header: whether the first line of the tables names the columns.
        short_rows: treatment of a line that lacks a column: ``refuse`` it, or ``drop`` and count it.
        unanswerable: whether a question may have no answer (spans only).
        format: format of a file of tagged words, a name in ``conll.FORMATS`` (tagging only).
    """

    name: Name
    kind: Literal["classification", "choice", "span", "tagging", "retrieval"]
    train: FilePath = "train.tsv"
    scores: dict[Name, EvalSetSpec] = Field(min_length=1)
    columns: Columns | None = None
    labels: tuple[str, ...] = ()
    range: tuple[float, float] | None = None
    header: bool = True
    short_rows: Literal["refuse", "drop"] = "refuse"
    unanswerable: bool = False
    format: Literal["conll", "conllu"] = "conll"

    @property
    def _declared_columns(self) -> list[Columns]:
        declared = [self.columns, *(eval_set.columns for eval_set in self.scores.values())]
        return [columns for columns in declared if columns is not None]

    @property
    def _tests(self) -> list[TestSpec]:
        return [eval_set.test for eval_set in self.scores.values() if eval_set.test is not None]

    @model_validator(mode="after")
    def _keys_fit_the_kind(self) -> TaskSpec:
        if self.kind == "retrieval":
            return self._check_retrieval()
        has_corpus = any(eval_set.corpus or eval_set.queries for eval_set in self.scores.values())
        if has_corpus or any(columns.negatives for columns in self._declared_columns):
            raise ValueError("negatives, corpus and queries belong to the kind `retrieval`")
        if self.kind == "span" and self.columns is not None:
            raise ValueError("spans are read from SQuAD's JSON, which has no columns: leave out `columns`")
        if self.kind != "span" and self.columns is None:
            raise ValueError(f"`columns` is missing: kind {self.kind} needs it, to find text and label in the file")
        self._check_labels()
        if self.kind == "tagging" and self.columns is not None:
            if len(self.columns.required) != 2 or not self.columns.are_numbers:
                raise ValueError("tagging needs the numbers of one text column and of the label's, counted from 1")
        has_choices = bool(self.columns and self.columns.choices)
        if self.kind == "choice" and not has_choices:
            raise ValueError("`choices` is missing in `columns`: kind choice needs the columns of the endings")
        if has_choices and self.kind != "choice":
            raise ValueError(f"only kind choice has `choices`; leave it out of the columns of kind {self.kind}")
        if self.range is not None and not (-MAX_VALUE <= self.range[0] < self.range[1] <= MAX_VALUE):
            raise ValueError(f"a range is two numbers, the lower one first, of at most {MAX_VALUE:g}")
        names = [test.submit for test in self._tests]
        if len(set(names)) != len(names):
            raise ValueError("two evaluation sets submit under one name")
        return self

    def _check_labels(self) -> None:
        if self.kind in ("choice", "span") and (self.labels or self.range):
            raise ValueError(f"kind {self.kind} has no `labels` and no `range`; leave them out")
        if self.kind == "tagging" and self.range:
            raise ValueError("kind tagging has no `range`; leave it out, and list the tags in `labels`")
        if self.kind == "tagging" and not self.labels:
            raise ValueError("`labels` is missing: tagging needs the list of tags")
        if self.kind == "classification" and bool(self.labels) == bool(self.range):
            state = "both are given" if self.labels else "`labels` is missing"
            raise ValueError(f"{state}: a classification needs a list of `labels`, or for numbers a `range`")
        is_repeated = len(set(self.labels)) != len(self.labels)
        if is_repeated or len(self.labels) == 1 or not all(self.labels):
            raise ValueError("labels are two or more, each listed once and none empty")

    def _check_retrieval(self) -> TaskSpec:
        files = [(self.train, self.columns, self.labels)]
        for name, declared in self.scores.items():
            files.append((declared.file, declared.columns or self.columns, declared.labels or self.labels))
            if (declared.corpus is None) != (declared.queries is None):
                raise ValueError(f"{name}: corpus and queries are declared together")
        for file, columns, labels in files:
            # SQuAD's JSON has no columns.
            if file.endswith(".json"):
                continue
            if columns is None or len(columns.texts) != 2 or columns.choices or self.range:
                raise ValueError(f"{file}: retrieval reads two text columns, query and passage, and perhaps negatives")
            if columns.label is not None and not labels:
                raise ValueError(f"{file}: a label column needs labels, those of the rows that are pairs")
        return self

    @model_validator(mode="after")
    def _columns_have_labels(self) -> TaskSpec:
        if self.kind != "retrieval" and any(columns.label is None for columns in self._declared_columns):
            raise ValueError("columns need a label; only those of a test file have none")
        if any(test.columns is not None and test.columns.label is not None for test in self._tests):
            raise ValueError("a test file has no label column")
        if self.kind in ("tagging", "retrieval") and self._tests:
            raise ValueError("texts without answers are not read: a set of this kind takes no test file")
        if self.columns is not None and not self.header and not self.columns.are_numbers:
            raise ValueError("without a header, columns are numbers counted from 1")
        return self

    @model_validator(mode="after")
    def _metrics_fit_the_answers(self) -> TaskSpec:
        allowed = {
            "classification": {"pearson", "spearman"} if self.range else {"accuracy", "macro_f1", "matthews"},
            "choice": {"accuracy"},
            "tagging": {"accuracy", "entity_f1"},
            "span": {"em", "f1"},
            "retrieval": set(get_args(RankMetric)),
        }
        if len(self.labels) == 2:
            allowed["classification"].add("f1")
        for name, eval_set in self.scores.items():
            if self.kind != "retrieval" and eval_set.labels is not None and len(eval_set.labels) != len(self.labels):
                raise ValueError(f"{name}: {len(eval_set.labels)} labels, where the task has {len(self.labels)}")
            wrong = set(eval_set.metrics) - allowed[self.kind]
            if wrong:
                fitting = ", ".join(sorted(allowed[self.kind]))
                raise ValueError(f"{name}: {min(wrong)} does not fit the answers; metrics that do: {fitting}")
        return self

    @property
    def is_pair(self) -> bool:
        """True for tasks on pairs of texts (MNLI, STS-B)."""
        return self.kind == "classification" and self.columns is not None and len(self.columns.texts) == 2

    def eval_set(self, name: str | None) -> EvalSetSpec:
        if name is None:
            return next(iter(self.scores.values()))
        if name not in self.scores:
            raise PipelineError(
                "no such evaluation set", name, where=self.name, hint=f"there are {', '.join(self.scores)}"
            )
        return self.scores[name]

    def layout(self, eval_set: str | None = None, test: bool = False) -> Layout:
        """Return the layout of the training file, or of the file or ``test`` file of an evaluation set."""
        if not test:
            columns = self.columns
            labels = self.labels
            if eval_set is not None:
                declared = self.eval_set(eval_set)
                columns = declared.columns or columns
                labels = declared.labels or labels
            # Only tables have a layout.
            assert columns is not None
            return Layout(columns, self.header, labels, self.short_rows == "drop")
        test_file = self.eval_set(eval_set).test
        if test_file is None:
            value = eval_set or "the first set"
            hint = "give the evaluation set a `test` where the task is declared, in catalogue/tasks"
            raise PipelineError("no test file is declared", value, where=self.name, hint=hint)
        assert self.columns is not None
        columns = test_file.columns or self.columns.without_labels()
        header = self.header if test_file.header is None else test_file.header
        # A submission has every line.
        return Layout(columns, header, self.labels, drop_short=False)


def task_names() -> list[str]:
    return entry_names(TASK_SPECS)


@cache
def load_spec(name: str) -> TaskSpec:
    return check_block(TaskSpec, {"name": name, **read_entry(TASK_SPECS, name)}, f"{TASK_SPECS}/{name}.yaml")
