"""The examples of each kind of task, read from its files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pipeline_src.base.counter_rng import derive_seed
from pipeline_src.base.errors import PipelineError
from pipeline_src.base.names import shown
from pipeline_src.study.task_spec import Column, Columns, Layout, TaskSpec
from pipeline_src.tasks.conll import read_sentences
from pipeline_src.tasks.queries import Query, read_queries
from pipeline_src.tasks.questions import read_questions
from pipeline_src.tasks.tables import FETCH_AGAIN, NAMED_FORMATS, READERS, first_row, read_columns, read_lines


@dataclass(frozen=True)
class TextExample:
    """A row of a classification or regression file.

    Attributes:
        id: the row's index.
        texts: one text or a pair of texts.
        label: index of the class, value of the regression, or for kind ``multilabel`` whether the text has each label;
            None in a test file.
        group: key of the examples that are resampled together; None if the example is resampled alone.
    """

    id: str
    texts: tuple[str, ...]
    label: float | tuple[bool, ...] | None = None
    group: str | None = None


@dataclass(frozen=True)
class ChoiceExample:
    """A row of a multiple-choice file.

    Attributes:
        endings: for each choice, the text that follows the context.
        label: index of the correct choice; None in a test file.
        group: as in ``TextExample``.
    """

    id: str
    context: str
    endings: tuple[str, ...]
    label: float | None
    group: str | None = None


def read_examples(
    spec: TaskSpec,
    path: str | Path,
    eval_set: str | None = None,
    test: bool = False,
    counts: Counter[str] | None = None,
) -> list[Any]:
    """Read the examples of a data file, in the file's order.

    Args:
        eval_set: the evaluation set that the file belongs to, which may have its own layout; None for the training
            file.
        test: whether the file is the set's test file, which has no labels.
        counts: filled with the number of dropped or doubtful rows, by reason.

    Returns:
        ``TextExample``, ``ChoiceExample``, ``Question``, ``TaggedSentence`` or ``Query``, by the task's kind.
    """
    path = Path(path)
    if spec.kind == "span":
        return read_questions(spec, path, test, counts, training=eval_set is None and not test)
    if spec.kind == "tagging":
        return read_sentences(spec, path, eval_set, counts)
    if spec.kind == "retrieval":
        return read_queries(spec, path, eval_set, counts)
    return _read_table(spec, path, spec.layout(eval_set, test), counts)


def _read_table(
    spec: TaskSpec, path: Path, layout: Layout, counts: Counter[str] | None = None
) -> list[TextExample | ChoiceExample]:
    columns = layout.columns
    labels = layout.labels
    if spec.kind == "choice":
        labels = tuple(str(index) for index in range(len(columns.choices)))
    examples: list[TextExample | ChoiceExample] = []
    for index, (line, fields) in enumerate(read_columns(spec.name, path, layout, counts)):
        label: Any = None
        where = f"{path}:{line}"
        if columns.label is not None:
            label = _label(spec, labels, fields[columns.label], where)
        elif columns.labels:
            label = _label_set(spec, layout, fields, where)
        texts = tuple(fields[column] for column in columns.texts)
        group = None
        if columns.group:
            group = fields[columns.group] or None
        if spec.is_classification:
            examples.append(TextExample(str(index), texts, label, group))
            continue
        # The second text column is the start of a sentence. Each choice completes this sentence.
        beginning = " ".join(texts[1:])
        endings = tuple(f"{beginning} {fields[column]}".strip() for column in columns.choices)
        examples.append(ChoiceExample(str(index), texts[0], endings, label, group))
    return examples


def _label(spec: TaskSpec, labels: tuple[str, ...], text: str, where: str) -> float:
    if spec.range is None:
        if text in labels:
            return labels.index(text)
        allowed = f"labels are {', '.join(labels)}"
    else:
        low, high = spec.range
        with suppress(ValueError):
            if low <= float(text) <= high:
                return float(text)
        allowed = f"scores lie between {low:g} and {high:g}"
    raise PipelineError("unknown label", repr(text), where=where, hint=f"{allowed}; {FETCH_AGAIN}")


# Spellings of no and yes in the column of a label.
STATES = ("0", "1", "false", "true")


def _label_set(spec: TaskSpec, layout: Layout, fields: dict[Column, Any], where: str) -> tuple[bool, ...]:
    # Returns whether the row has each of the task's labels.
    columns = layout.columns.labels
    if len(columns) > 1:
        has_label = []
        for column in columns:
            state = str(fields[column]).lower()
            has_label.append(_label(spec, STATES, state, f"{where}, column {column}") % 2 == 1)
        return tuple(has_label)
    names = fields[columns[0]]
    if not isinstance(names, list):
        raise PipelineError(
            "a value is not a list of labels",
            shown(names),
            where=where,
            hint='write [] or a list such as ["good"] in .jsonl or Parquet, or give a column of 0 and 1 for each label',
        )
    indices = {_label(spec, layout.labels, name, where) for name in names}
    return tuple(index in indices for index in range(len(layout.labels)))


def read_unlabelled(spec: TaskSpec, path: Path) -> list[Any]:
    """Read examples for prediction from a file without labels, or ignore the labels that it has.

    The file has the layout of one of the task's own files. For classification, it may also be ``.txt`` with one text
    per line (or two texts separated by a tab), or ``.jsonl`` or ``.parquet`` with the column ``text`` (or ``text1``
    and ``text2``).
    """
    lines: list[tuple[int, str]] = []
    if path.suffix != ".parquet":
        # All lines are read here, so that an error names the line that is not UTF-8. A JSON parser would not name it.
        lines = list(read_lines(path))
        if not any(line.strip() for _, line in lines):
            raise PipelineError("empty file", path, hint="give a file with at least one example")
    if spec.kind == "tagging":
        return read_sentences(spec, path, next(iter(spec.scores)), labelled=False)
    formats = _formats(spec)
    if path.suffix not in formats:
        hint = f"the task {spec.name} reads {', '.join(formats)}"
        raise PipelineError("unsupported file format", path.suffix or "no suffix", where=path, hint=hint)
    if spec.kind == "span":
        return read_questions(spec, path, test=True)
    if spec.kind == "retrieval":
        return _read_unlabelled_queries(spec, path)
    if path.suffix == ".txt":
        return _text_examples(spec, path, lines)
    layouts = _layouts(spec, path.suffix)
    fitting = [layout for layout in layouts if _is_laid_out(path, layout)]
    layout = fitting[0] if fitting else layouts[0]
    return _read_table(spec, path, layout.without_labels())


def _formats(spec: TaskSpec) -> list[str]:
    if spec.kind == "span":
        return [".json"]
    if spec.kind == "retrieval":
        return [".json", *(READERS if _table_sets(spec) else ())]
    return [*READERS, *([".txt"] if spec.is_classification else [])]


def _table_sets(spec: TaskSpec) -> list[str]:
    return [name for name, declared in spec.scores.items() if declared.columns or spec.columns]


def _read_unlabelled_queries(spec: TaskSpec, path: Path) -> list[Query]:
    if path.suffix == ".json":
        return read_queries(spec, path, labelled=False)
    names = _table_sets(spec)
    fitting = [name for name in names if _is_laid_out(path, spec.layout(name))]
    name = fitting[0] if fitting else names[0]
    layout = spec.layout(name)
    label = layout.columns.label
    # The label tells which rows are pairs. If the file has no label column, every row is a pair.
    labelled = label is not None and bool(first_row(path, (label,), layout.header))
    return read_queries(spec, path, name, labelled=labelled)


def _is_laid_out(path: Path, layout: Layout) -> bool:
    # Returns whether the first row of the file has the text columns of `layout`.
    texts = layout.without_labels().columns.required
    if len(first_row(path, texts, layout.header)) < len(texts):
        return False
    # If columns are numbers, any table with enough fields has them. A row whose label field is not one of the task's
    # labels then has another layout.
    label = layout.columns.label
    if layout.header or label is None or not layout.labels:
        return True
    return first_row(path, (label,), header=False).get(label, layout.labels[0]) in layout.labels


def _text_examples(spec: TaskSpec, path: Path, lines: Sequence[tuple[int, str]]) -> list[TextExample]:
    # The id of an example is its line number, counted from 0. Empty lines are skipped.
    examples = []
    for number, line in lines:
        if not line.strip():
            continue
        texts = tuple(line.split("\t")) if spec.is_pair else (line,)
        if spec.is_pair and len(texts) != 2:
            hint = "write two texts with a tab between them"
            raise PipelineError("a line does not have two texts", shown(line), where=f"{path}:{number}", hint=hint)
        examples.append(TextExample(str(number - 1), texts))
    return examples


def _layouts(spec: TaskSpec, suffix: str) -> list[Layout]:
    # Returns the possible layouts of a table to predict: test files first, then labelled files.
    layouts = []
    for name, declared in spec.scores.items():
        if declared.test:
            layouts.append(spec.layout(name, test=True))
    for eval_set in (*spec.scores, None):
        layouts.append(spec.layout(eval_set))
    if suffix not in NAMED_FORMATS or not spec.is_classification:
        return layouts
    # Columns of these formats have names, so layouts whose columns are numbers (tables without a header) do not apply.
    named = [layout for layout in layouts if isinstance(layout.columns.texts[0], str)]
    texts = ("text1", "text2") if spec.is_pair else ("text",)
    at_hand = Layout(Columns(texts=texts), header=True, labels=(), drop_short=False)
    return [*named, at_hand]


def labelled_part(task: str, seed: object, training: Sequence[Any], count: int) -> list[Any]:
    """Sample ``count`` training examples and return them in file order.

    With equal ``task`` and ``seed``, a smaller sample is a subset of a larger sample.
    """
    rng = np.random.Generator(np.random.Philox(key=derive_seed("labels", task, str(seed))))
    return [training[index] for index in np.sort(rng.permutation(len(training))[:count])]
