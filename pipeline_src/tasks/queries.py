"""Queries with the passages that answer them: tables of pairs, SQuAD's JSON, or BEIR's layout."""

from __future__ import annotations

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
    """A query and the passages that are searched.

    Attributes:
        id: the query's index.
        corpus: the distinct passages of the file, or all of the set's ``corpus``; one tuple for all queries.
        pairs: for each row of the query, the indices in ``corpus`` of its passage and of its hard negatives.
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
    """Read the queries of a table of pairs, or of SQuAD's JSON, whose passages are paragraphs.

    Rows with the same query are one query with several passages. Arguments as in ``read_examples``. If the file is not
    ``labelled``, every row is read as a pair.
    """
    path = Path(path)
    declared = None if eval_set is None else spec.eval_set(eval_set)
    # The file has the texts themselves as its keys, unless they are ids of the set's own corpus and queries.
    texts: dict[str, str] | None = None
    corpus: dict[str, str] = {}
    if declared is not None and declared.corpus and declared.queries:
        folder = path.parents[len(Path(declared.file).parts) - 1]
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
            problem = "a query without a passage" if number == 1 else "a pair with an empty text"
            if key not in known:
                problem = "no such passage" if number else "no such query"
            hint = f"ids are those of corpus and queries; {FETCH_AGAIN}" if texts else FETCH_AGAIN
            raise PipelineError(problem, shown(key), where=where, hint=hint)
        for passage in passages:
            corpus.setdefault(passage, passage)
        by_query[query].append(passages)
        groups.setdefault(query, group)
    if len(corpus) < 2 or not by_query:
        value = f"{len(corpus)} passages of {len(by_query)} queries"
        hint = "retrieval needs a query and two passages; labels are those of the rows that are pairs"
        raise PipelineError("nothing to rank", value, where=path, hint=hint)

    index = {key: number for number, key in enumerate(corpus)}
    all_passages = tuple(corpus.values())
    queries: list[Query] = []
    for query, rows in by_query.items():
        text = texts[query] if texts else query
        pairs = tuple(tuple(map(index.__getitem__, passages)) for passages in rows)
        queries.append(Query(str(len(queries)), text, all_passages, pairs, groups[query]))
    return queries


def _texts_by_id(task: str, path: Path) -> dict[str, str]:
    layout = Layout(Columns(texts=("_id", "text")), header=True, labels=(), drop_short=False)
    texts: dict[str, str] = {}
    for number, fields in read_columns(task, path, layout):
        key = fields["_id"]
        if key in texts:
            where = f"{path}:{number}"
            hint = f"each text has its own _id; {FETCH_AGAIN}"
            raise PipelineError("an _id that an earlier row has", shown(key), where=where, hint=hint)
        texts[key] = fields["text"]
    return texts


def _pairs(
    spec: TaskSpec, path: Path, eval_set: str | None, counts: Counter[str] | None, labelled: bool
) -> Iterator[tuple[str, str, tuple[str, ...], str | None]]:
    # Yields (place in the file, query, its passage and hard negatives, group) of each pair.
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
