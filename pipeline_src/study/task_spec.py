"""Task specifications from ``catalogue/tasks/<task>.yaml``: files, columns, labels and metrics."""

from __future__ import annotations

import operator
import re
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
Metric = Literal[
    "accuracy",
    "f1",
    "micro_f1",
    "macro_f1",
    "subset_accuracy",
    "matthews",
    "pearson",
    "spearman",
    "em",
    "entity_f1",
    RankMetric,
]
# Display names of metrics. A metric that is not listed is displayed by its own name.
METRIC_TITLES: dict[str, str] = {
    "f1": "F1",
    "micro_f1": "micro F1",
    "macro_f1": "macro F1",
    "subset_accuracy": "subset accuracy",
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
        raise ValueError(f"a column is a name in the header, or a number from 1; not {shown(column)}")
    return column


# A column's name in the header, or its number (from 1) in a file without a header.
Column = Annotated[int | str, BeforeValidator(_check_column)]


class Columns(Section):
    """Columns of a table, given by names in its header, or by numbers from 1 if there is no header.

    Attributes:
        texts: columns of the input: one text, or two texts (in retrieval, the query and its passage).
        label: column of the label. None in a test file.
        choices: columns of the possible endings, one of which is correct (kind ``choice`` only).
        negatives: columns of passages that do not answer the query (kind ``retrieval`` only).
        labels: kind ``multilabel`` only, in place of ``label``: one column with a JSON list of labels, or a column of 0
            and 1 (or false and true) for each label, in the order of the task's labels. Empty in a file to predict.
        group: column that groups rows, such as a document id. Confidence intervals resample whole groups.
    """

    texts: tuple[Column, ...] = Field(min_length=1, max_length=2)
    label: Column | None = None
    choices: tuple[Column, ...] = ()
    negatives: tuple[Column, ...] = ()
    # Left out of a dump if empty, so that the models and caches of other kinds of task stay the same.
    labels: tuple[Column, ...] = Field(default=(), exclude_if=operator.not_)
    group: Column | None = None

    @property
    def required(self) -> tuple[Column, ...]:
        # dict.fromkeys removes duplicates, since `group` may be one of the text columns.
        columns = (*self.texts, *self.choices, *self.negatives, self.label, *self.labels, self.group)
        return tuple(dict.fromkeys(column for column in columns if column is not None))

    @property
    def are_numbers(self) -> bool:
        return all(type(column) is int for column in self.required)

    def without_labels(self) -> Columns:
        return self.model_copy(update={"label": None, "labels": (), "group": None})


class TestSpec(Section):
    """A file without labels, whose predictions are submitted to a leaderboard.

    Attributes:
        file: path of the file.
        submit: file name of the predictions in a submission.
        columns: columns of the file, without a label. None: the same as in the task's training file.
        header: whether the first line is a header. None: the same as in the task's other tables.
    """

    # pytest would otherwise collect this class, since its name begins with "Test".
    __test__ = False

    file: FilePath
    submit: FileName
    columns: Columns | None = None
    header: bool | None = None


class EvalSetSpec(Section):
    """An evaluation set, which gives one row of the results table per metric.

    Attributes:
        title: display name.
        file: path of the file.
        metrics: names of metrics in ``metrics.py``. The first is the main metric.
        columns: columns of the file. None: the same as in the task's training file.
        labels: spellings of the labels in this file, in the order of the task's labels. None: the task's spellings.
        test: the file without labels for a leaderboard, if there is one.
        corpus, queries: tables with the columns ``_id`` and ``text`` (kind ``retrieval`` only). Then the text columns
            of ``file`` contain ids of these tables, and the whole corpus is searched.
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
    """How to read a table.

    Attributes:
        columns: columns of the table. A test file has no label column.
        header: whether the first line is a header. Ignored for JSON Lines and Parquet, whose rows have the names.
        labels: spellings of the classes. Empty for a regression.
        drop_short: whether a line with too few columns is dropped and counted. If False, it is an error.
    """

    columns: Columns
    header: bool
    labels: tuple[str, ...]
    drop_short: bool

    def without_labels(self) -> Layout:
        return replace(self, columns=self.columns.without_labels())


# Maximum absolute value of a regression's range.
MAX_VALUE = 1e9
# Tags whose entities `tagging.entities` finds: those of IOB and IOBES.
ENTITY_TAG = re.compile(r"O|[BIES]-.+")
# Formats of files that have no header, since their records name the columns or have none.
WITHOUT_HEADER = (".jsonl", ".parquet", ".json")


class TaskSpec(Section):
    """A task of ``catalogue/tasks``.

    Attributes:
        name: name of its file in catalogue/tasks (without .yaml) and of its folder in data/tasks.
        kind: key of the task's class in ``kinds.KINDS``.
        train: path of the training file.
        scores: name -> evaluation set. The first set selects hyperparameters.
        columns: columns of the task's tables. None for span tasks, which are read from SQuAD's JSON.
        labels: spellings of the classes, in the order of the model's outputs. For retrieval: labels of the rows whose
            passage answers the query; all other rows are skipped.
        range: (lowest, highest) value of a regression. A regression has no labels.
        header: whether the first line of the tables is a header.
        short_rows: what to do with a line that has too few columns: ``refuse`` raises an error, ``drop`` skips and
            counts it.
        unanswerable: whether a question may have no answer (span tasks, and retrieval from SQuAD's JSON, only).
        format: file format of tagged words, a key of ``conll.FORMATS`` (tagging tasks only).
    """

    name: Name
    kind: Literal["classification", "multilabel", "choice", "span", "tagging", "retrieval"]
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

    @property
    def _all_columns(self) -> list[Columns]:
        of_tests = [test.columns for test in self._tests if test.columns is not None]
        return [*self._declared_columns, *of_tests]

    @property
    def _files(self) -> list[str]:
        files = [self.train]
        for eval_set in self.scores.values():
            files += eval_set.files
        return [*files, *(test.file for test in self._tests)]

    @model_validator(mode="after")
    def _keys_fit_the_kind(self) -> TaskSpec:
        if self.kind == "retrieval":
            return self._check_retrieval()
        has_corpus = any(eval_set.corpus or eval_set.queries for eval_set in self.scores.values())
        if has_corpus or any(columns.negatives for columns in self._all_columns):
            raise ValueError("only kind `retrieval` has negatives, corpus and queries; leave them out")
        if self.unanswerable and self.kind != "span":
            raise ValueError(f"kind {self.kind} has no questions without an answer; leave out `unanswerable`")
        if self.kind == "span" and self._all_columns:
            raise ValueError("spans are read from SQuAD's JSON, which has no columns: leave out `columns`")
        if self.kind != "span" and self.columns is None:
            raise ValueError(f"`columns` is missing: kind {self.kind} needs it, to find text and label in the file")
        if self.kind in ("span", "tagging") and any(file.endswith(".parquet") for file in self._files):
            format = "SQuAD's JSON" if self.kind == "span" else "CoNLL or CoNLL-U"
            raise ValueError(f"kind {self.kind} does not read Parquet; convert its files to {format}")
        self._check_labels()
        for columns in self._declared_columns:
            if self.kind == "tagging" and (len(columns.required) != 2 or not columns.are_numbers):
                raise ValueError("tagging needs the numbers (from 1) of one text column and of the label column")
        for columns in self._all_columns:
            if self.kind == "choice" and not columns.choices:
                raise ValueError("`choices` is missing in `columns`: kind choice needs the columns of the endings")
            if columns.choices and self.kind != "choice":
                raise ValueError(f"only kind choice has `choices`; leave it out of the columns of kind {self.kind}")
        if self.is_classification and len({len(columns.texts) for columns in self._all_columns}) > 1:
            raise ValueError("some `texts` have one column and others two; name as many in all `columns` of a task")
        if self.range is not None and not (-MAX_VALUE <= self.range[0] < self.range[1] <= MAX_VALUE):
            raise ValueError(f"a range is [lowest, highest], both between -{MAX_VALUE:g} and {MAX_VALUE:g}")
        names = [test.submit for test in self._tests]
        if len(set(names)) != len(names):
            raise ValueError("two evaluation sets have the same `submit` file name; rename one")
        return self

    def _check_labels(self) -> None:
        if self.kind in ("choice", "span") and (self.labels or self.range):
            raise ValueError(f"kind {self.kind} has no `labels` and no `range`; leave them out")
        if self.kind in ("tagging", "multilabel") and (self.range or not self.labels):
            raise ValueError(f"kind {self.kind} needs the list of `labels`, and has no `range`")
        if self.kind == "classification" and bool(self.labels) == bool(self.range):
            state = "both are given" if self.labels else "`labels` is missing"
            raise ValueError(
                f"{state}: a classification needs either a list of `labels` or, for a regression, a `range`"
            )
        for labels in (self.labels, *(eval_set.labels or () for eval_set in self.scores.values())):
            is_repeated = len(set(labels)) != len(labels)
            if is_repeated or len(self.labels) == 1 or not all(labels):
                raise ValueError("`labels` needs two or more names, each listed once and none empty")
        if self.kind == "tagging":
            self._check_tags()

    def _check_tags(self) -> None:
        for name, eval_set in self.scores.items():
            if eval_set.labels is not None:
                raise ValueError(f"{name}: tags are spelled alike in all files of a task; leave out its `labels`")
        needs_entities = any("entity_f1" in eval_set.metrics for eval_set in self.scores.values())
        for label in self.labels:
            # The tags of a sentence are joined by spaces where its errors are listed.
            if label.split() != [label]:
                raise ValueError(
                    f"the label {label!r} has white space, which a tag cannot have; replace it here and in the files"
                )
            if needs_entities and not ENTITY_TAG.fullmatch(label):
                raise ValueError(
                    f"entity_f1 reads O and tags such as B-PER, I-PER, E-PER and S-PER, not {label}; write the L- and "
                    "U- of BILOU as E- and S-, and the M- of BMES as I-, or use the metric accuracy"
                )

    def _check_retrieval(self) -> TaskSpec:
        files = [(self.train, self.columns, self.labels)]
        for name, declared in self.scores.items():
            files.append((declared.file, declared.columns or self.columns, declared.labels or self.labels))
            if (declared.corpus is None) != (declared.queries is None):
                raise ValueError(f"{name}: `corpus` and `queries` need each other; give both or none of them")
        for file, columns, labels in files:
            # SQuAD's JSON has no columns.
            if file.endswith(".json"):
                continue
            if columns is None or len(columns.texts) != 2 or columns.choices or self.range:
                raise ValueError(f"{file}: retrieval needs two text columns (query, passage), no choices and no range")
            if columns.label is not None and not labels:
                raise ValueError(
                    f"{file}: a label column needs `labels`: the labels of rows whose passage is an answer"
                )
        return self

    @model_validator(mode="after")
    def _columns_have_labels(self) -> TaskSpec:
        allowed = (1, len(self.labels)) if self.kind == "multilabel" else (0,)
        for columns in self._declared_columns:
            if len(columns.labels) not in allowed or (columns.labels and columns.label is not None):
                raise ValueError(
                    "kind multilabel, and no other, has `labels` in `columns` in place of `label`: one column with a "
                    "list of labels, or one column for each label"
                )
        needs_label = self.kind not in ("multilabel", "retrieval")
        if needs_label and any(columns.label is None for columns in self._declared_columns):
            raise ValueError("`columns` needs a label column; only a test file has none")
        if any(test.columns and (test.columns.label is not None or test.columns.labels) for test in self._tests):
            raise ValueError("a test file has no label column")
        if self.kind in ("multilabel", "tagging", "retrieval") and self._tests:
            raise ValueError(f"kind {self.kind} does not support a `test` file; remove it")
        tables = [(self.train, self.columns, self.header)]
        for eval_set in self.scores.values():
            tables.append((eval_set.file, eval_set.columns or self.columns, self.header))
        for test in self._tests:
            tables.append(
                (test.file, test.columns or self.columns, self.header if test.header is None else test.header)
            )
        for file, named, header in tables:
            has_names = header or file.endswith(WITHOUT_HEADER)
            if named is not None and not has_names and not named.are_numbers:
                raise ValueError(f"{file}: without a header, columns must be numbers from 1")
        return self

    @model_validator(mode="after")
    def _metrics_fit_the_answers(self) -> TaskSpec:
        allowed = {
            "classification": {"pearson", "spearman"} if self.range else {"accuracy", "macro_f1", "matthews"},
            "multilabel": {"micro_f1", "macro_f1", "subset_accuracy"},
            "choice": {"accuracy"},
            "tagging": {"accuracy", "entity_f1"},
            "span": {"em", "f1"},
            "retrieval": set(get_args(RankMetric)),
        }
        if len(self.labels) == 2:
            allowed["classification"].add("f1")
        for name, eval_set in self.scores.items():
            if self.kind != "retrieval" and eval_set.labels is not None and len(eval_set.labels) != len(self.labels):
                raise ValueError(f"{name}: has {len(eval_set.labels)} labels, but the task has {len(self.labels)}")
            wrong = set(eval_set.metrics) - allowed[self.kind]
            if wrong:
                fitting = ", ".join(sorted(allowed[self.kind]))
                raise ValueError(f"{name}: metric {min(wrong)} does not fit this task; use one of {fitting}")
        return self

    @property
    def is_classification(self) -> bool:
        """True for tasks whose examples are one text or two, labelled as a whole."""
        return self.kind in ("classification", "multilabel")

    @property
    def is_pair(self) -> bool:
        """True for tasks on pairs of texts (MNLI, STS-B)."""
        return self.is_classification and self.columns is not None and len(self.columns.texts) == 2

    def eval_set(self, name: str | None) -> EvalSetSpec:
        if name is None:
            return next(iter(self.scores.values()))
        if name not in self.scores:
            raise PipelineError(
                "no such evaluation set", name, where=self.name, hint=f"use one of {', '.join(self.scores)}"
            )
        return self.scores[name]

    def layout(self, eval_set: str | None = None, test: bool = False) -> Layout:
        """Return the layout of one of the task's tables.

        Args:
            eval_set: name of an evaluation set. None: the training file, or the first evaluation set if ``test``.
            test: whether to return the layout of the evaluation set's test file, which has no labels.
        """
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
            value = eval_set or "the first evaluation set"
            hint = f"add the key `test` to this evaluation set in {TASK_SPECS}/{self.name}.yaml"
            raise PipelineError("evaluation set has no test file", value, where=self.name, hint=hint)
        assert self.columns is not None
        columns = test_file.columns or self.columns.without_labels()
        header = self.header if test_file.header is None else test_file.header
        # A submission needs a prediction for each line, so no line is dropped.
        return Layout(columns, header, self.labels, drop_short=False)


def task_names() -> list[str]:
    return entry_names(TASK_SPECS)


@cache
def load_spec(name: str) -> TaskSpec:
    return check_block(TaskSpec, {"name": name, **read_entry(TASK_SPECS, name)}, f"{TASK_SPECS}/{name}.yaml")
