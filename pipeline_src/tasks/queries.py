"""Queries and the passages that answer them, read from tables of pairs, SQuAD's JSON, or BEIR's layout."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.names import shown
from pipeline_src.study.task_spec import Columns, Layout, TaskSpec
from pipeline_src.tasks.questions import read_questions
from pipeline_src.tasks.tables import FETCH_AGAIN, read_columns


@dataclass(frozen=True)
class Query:
    """A query, its relevant passages, and the corpus that is searched.

    Attributes:
        id: the query's index.
        corpus: all distinct passages of the file, or of the set's ``corpus`` file. All queries share this tuple.
        pairs: for each row with this query, the index in ``corpus`` of the relevant passage, then those of the hard
            negatives.
        group: key of the queries that are resampled together; None if the query is resampled alone.
    """

    id: str
    query: str
    corpus: tuple[str, ...] = field(repr=False)
    pairs: tuple[tuple[int, ...], ...]
    group: str | None = None

    @property
    def relevant(self) -> set[int]:
        return {pair[0] for pair in self.pairs}


def read_queries(
    spec: TaskSpec,
    path: str | Path,
    eval_set: str | None = None,
    counts: Counter[str] | None = None,
    labelled: bool = True,
) -> list[Query]:
    """Read queries from a table of (query, passage) pairs, or from SQuAD's JSON, with paragraphs as passages.

    Rows with equal queries become one query with several passages. ``eval_set`` and ``counts`` are as in
    ``read_examples``. If ``labelled`` is False, every row counts as a pair, whatever its label.
    """
    path = Path(path)
    declared = None if eval_set is None else spec.eval_set(eval_set)
    # Rows usually contain the texts. In BEIR's layout they contain ids of the set's `corpus` and `queries` files.
    texts: dict[str, str] | None = None
    corpus: dict[str, str] = {}
    if declared is not None and declared.corpus and declared.queries:
        folder = _folder_of(path, declared.file)
        for file in (declared.corpus, declared.queries):
            if not (folder / file).exists():
                hint = "put it there, since the rows name its texts by id, or run the stage download_tasks"
                raise PipelineError("task file not found", folder / file, where=path, hint=hint)
        corpus = _texts_by_id(spec.name, folder / declared.corpus)
        texts = _texts_by_id(spec.name, folder / declared.queries)

    by_query: defaultdict[str, list[tuple[str, ...]]] = defaultdict(list)
    groups: dict[str, str | None] = {}
    for where, query, passages, group in _pairs(spec, path, eval_set, counts, labelled):
        for number, key in enumerate((query, *passages)):
            known = {key: key}
            if texts is not None:
                known = corpus if number else texts
            if known.get(key, "").strip():
                continue
            problem = "a query's passage is empty" if number == 1 else "a pair has an empty text"
            if key not in known:
                problem = "unknown passage id" if number else "unknown query id"
            hint = f"use the ids of the `corpus` and `queries` files; {FETCH_AGAIN}" if texts else FETCH_AGAIN
            raise PipelineError(problem, shown(key), where=where, hint=hint)
        for passage in passages:
            corpus.setdefault(passage, passage)
        by_query[query].append(passages)
        groups.setdefault(query, group)
    if len(corpus) < 2 or not by_query:
        value = f"{len(corpus)} passages of {len(by_query)} queries"
        hint = "give at least one query and two passages, and check the task's `labels`, which select rows"
        raise PipelineError("too few passages or queries", value, where=path, hint=hint)

    index = {key: number for number, key in enumerate(corpus)}
    all_passages = tuple(corpus.values())
    queries: list[Query] = []
    for query, rows in by_query.items():
        text = texts[query] if texts else query
        pairs = tuple(tuple(map(index.__getitem__, passages)) for passages in rows)
        queries.append(Query(str(len(queries)), text, all_passages, pairs, groups[query]))
    return queries


def _folder_of(path: Path, file: str) -> Path:
    # Returns the task's folder, if `path` is that of its file `file`: above the folder qrels for qrels/test.tsv.
    depth = len(Path(file).parts)
    # A short path such as test.tsv does not name the folders above it.
    if len(path.parts) <= depth:
        path = Path(os.path.abspath(path))
    folders = path.parents
    return folders[min(depth, len(folders)) - 1]


def _texts_by_id(task: str, path: Path) -> dict[str, str]:
    layout = Layout(Columns(texts=("_id", "text")), header=True, labels=(), drop_short=False)
    texts: dict[str, str] = {}
    for number, fields in read_columns(task, path, layout):
        key = fields["_id"]
        if key in texts:
            where = f"{path}:{number}"
            hint = f"give each text a unique _id; {FETCH_AGAIN}"
            raise PipelineError("duplicate _id", shown(key), where=where, hint=hint)
        texts[key] = fields["text"]
    return texts


def _pairs(
    spec: TaskSpec, path: Path, eval_set: str | None, counts: Counter[str] | None, labelled: bool
) -> Iterator[tuple[str, str, tuple[str, ...], str | None]]:
    # Yields (position in the file, query, passage and hard negatives, group) for each pair.
    if path.suffix == ".json":
        for question in read_questions(spec, path, not labelled, counts):
            if question.answers or not labelled:
                yield f"{path}, question {question.id}", question.question, (question.context,), question.context
        return
    layout = spec.layout(eval_set)
    if not labelled:
        layout = layout.without_labels()
    columns = layout.columns
    for line, fields in read_columns(spec.name, path, layout, counts):
        if columns.label is not None and fields[columns.label] not in layout.labels:
            continue
        query, *passages = (fields[column] for column in (*columns.texts, *columns.negatives))
        group = None
        if columns.group:
            group = fields[columns.group] or None
        yield f"{path}:{line}", query, tuple(passages), group
