"""The results table: its rows, and its columns in report.html, report.md, the terminal and scores.tsv."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Flag, auto
from statistics import fmean, stdev
from typing import Any

from pipeline_src.base.names import as_text
from pipeline_src.report.published import TEST_SERVER, Published, PublishedScores, split_of
from pipeline_src.report.rendering import show
from pipeline_src.study.task_spec import METRIC_TITLES

# Evaluation set -> metric that counts in the GLUE average of the BERT paper's table 1. MNLI-m and MNLI-mm count
# separately, and WNLI is left out. QQP and MRPC count with F1, STS-B with Spearman's correlation (section 4.1).
GLUE_AVERAGE = dict.fromkeys(("mnli", "mnli_mm", "qnli", "sst2", "rte"), "accuracy")
GLUE_AVERAGE |= {"qqp": "f1", "cola": "matthews", "stsb": "spearman", "mrpc": "f1"}
SYNTHETIC = "synthetic"
FROM_CORPUS = "from this corpus"
# Key of scores.json with a list of tasks -> what was chosen on the development sets of these tasks.
CHOICES = {"best_epoch": "best epoch", "best_of_grid": "best of a grid"}
# See Comparison in evaluate/significance.py.
Difference = dict[str, Any]


@dataclass(frozen=True)
class ScoreRow:
    """A row of the results table: a row of ``results/scores.json`` with published scores, or the GLUE average.

    Attributes:
        kind: SYNTHETIC, FROM_CORPUS, or "" for real labelled data.
        extra: whether the task is a user's own: not synthetic, not from the corpus, and not from the paper.
        chosen: what was chosen on the development set: "best epoch", "best of a grid", both, or "".
        values: score of each seed, in percent. ``mean``, ``deviation`` and ``best`` are computed from them.
        vs_random, vs_words: significance test against random weights, and against the bag of words.
        published, test_server: published score on the same split, and on the test server; None for synthetic data.
        averaged: the rows over which the GLUE average is taken; empty for other rows.
    """

    task: str
    eval_set: str
    title: str
    file: str | None
    metric_key: str
    values: Sequence[float]
    mean: float
    deviation: float | None
    best: float
    main: bool = False
    kind: str = ""
    extra: bool = False
    chosen: str = ""
    examples: int | None = None
    interval: Sequence[float] | None = None
    majority: float | None = None
    bag_of_words: float | None = None
    random_weights: float | None = None
    vs_random: Difference | None = None
    vs_words: Difference | None = None
    published: Published | None = None
    test_server: Published | None = None
    averaged: Sequence[ScoreRow] = field(default=(), repr=False)

    @property
    def synthetic(self) -> bool:
        return self.kind == SYNTHETIC

    @property
    def metric(self) -> str:
        return METRIC_TITLES.get(self.metric_key, self.metric_key)

    @property
    def split(self) -> str:
        return split_of(self.file or "dev")

    @property
    def marks(self) -> str:
        return _in_parentheses(self.kind, self.chosen)

    @property
    def metric_and_split(self) -> str:
        split = "" if self.split == "dev" else self.split
        return self.metric + _in_parentheses(split, self.chosen)

    @property
    def mean_and_deviation(self) -> str:
        mean = show(self.mean, "one")
        return mean if self.deviation is None else f"{mean} {show(self.deviation, 'spread')}"

    @property
    def best_of_seeds(self) -> float | None:
        return self.best if len(self.values) > 1 else None

    @property
    def difference(self) -> float | None:
        # Difference from the published score on the same evaluation set, metric and split.
        return None if self.published is None else self.mean - self.published.value


def _in_parentheses(*notes: str) -> str:
    return f" ({', '.join(filter(None, notes))})" if any(notes) else ""


def score_rows(scores: Mapping[str, Any], published: PublishedScores | None = None) -> list[ScoreRow]:
    rows = [_row(row, scores, published or {}) for row in scores["rows"]]
    return sorted(rows, key=lambda row: row.synthetic)


def table_rows(scores: Mapping[str, Any], published: PublishedScores | None = None) -> list[ScoreRow]:
    """Return the rows of ``score_rows``, with those of training on parts of the labels before that on all of them."""
    few_labels = [_row(row, scores, {}) for row in scores.get("few_labels", ())]
    rows = []
    for row in score_rows(scores, published):
        rows += [part for part in few_labels if (part.eval_set, part.metric_key) == (row.eval_set, row.metric_key)]
        rows.append(row)
    return rows


def _row(row: Mapping[str, Any], scores: Mapping[str, Any], published: PublishedScores) -> ScoreRow:
    task = row["task"]
    eval_set = row["eval_set"]
    metric = row["metric"]
    kind = FROM_CORPUS if task in scores.get("from_corpus", ()) else ""
    if task in scores["rules"]:
        kind = SYNTHETIC
        published = {}
    baselines = row.get("baselines", {})
    words = baselines.get("bag_of_words", {})
    random = baselines.get("random_weights", {})
    choices = [name for key, name in CHOICES.items() if task in scores.get(key, ())]
    fields = ("title", "file", "values", "mean", "deviation", "best", "main", "examples", "random_weights")
    return ScoreRow(
        **{name: row[name] for name in fields},
        task=task,
        eval_set=eval_set,
        metric_key=metric,
        kind=kind,
        extra=task in scores.get("further", ()),
        chosen=", ".join(choices),
        interval=row.get("interval"),
        majority=row["majority_baseline"],
        bag_of_words=words.get("score"),
        vs_random=random.get("vs_baseline"),
        vs_words=words.get("vs_baseline"),
        published=published.get((eval_set, metric, split_of(row["file"]))),
        test_server=published.get((eval_set, metric, TEST_SERVER)),
    )


def averaged_rows(rows: Sequence[ScoreRow]) -> list[ScoreRow]:
    return [row for row in rows if GLUE_AVERAGE.get(row.eval_set) == row.metric_key]


def glue_average(rows: Sequence[ScoreRow], published: PublishedScores | None = None) -> ScoreRow | None:
    """Return the GLUE average as in the BERT paper, for each seed; None if one of its scores is missing.

    The row is marked as synthetic if any score is synthetic. It is marked as chosen if any score was chosen on a
    development set.
    """
    averaged = averaged_rows(rows)
    # The mean over a part of the tasks is not comparable with a GLUE average.
    if len(averaged) < len(GLUE_AVERAGE):
        return None
    # Average over all scores of the first seed, then of the second seed, and so on.
    by_seed = zip(*[row.values for row in averaged], strict=True)
    values = [fmean(of_seed) for of_seed in by_seed]
    synthetic = any(row.synthetic for row in averaged)
    return ScoreRow(
        task="glue",
        eval_set="glue",
        title="GLUE average",
        file=None,
        metric_key="mean",
        values=values,
        mean=fmean(values),
        deviation=stdev(values) if len(values) > 1 else None,
        best=max(values),
        kind=SYNTHETIC if synthetic else "",
        chosen="some chosen on their development sets" if any(row.chosen for row in averaged) else "",
        test_server=(published or {}).get(("glue", "average", TEST_SERVER)) if not synthetic else None,
        averaged=averaged,
    )


def error_of_average(rows: Sequence[ScoreRow]) -> float | None:
    """Return half of the 95 % interval of an average of independent scores; None if a score has no interval."""
    intervals = [row.interval for row in rows if row.interval]
    if len(intervals) < len(rows):
        return None
    return math.hypot(*((high - low) / 2 for low, high in intervals)) / len(intervals)


def verdict(difference: Difference | None, seeds: int, better: str = "yes") -> str | None:
    """Describe a difference: ``better``, "worse", "same", or "not significant (… examples needed)".

    "(one seed)" is added to a significant difference of a single seed. The test only resamples examples, so another
    seed might give another result.
    """
    if difference is None:
        return None
    if difference["significant"]:
        word = better if difference["difference"] > 0 else "worse"
        return f"{word} (one seed)".lstrip() if seeds == 1 else word
    needed = difference["examples_needed"]
    return "same" if needed is None else f"not significant ({needed:,} examples needed)"


class Table(Flag):
    PAGE = auto()
    MARKDOWN = auto()
    TERMINAL = auto()
    TSV = auto()


PAGE, MARKDOWN, TERMINAL, TSV = Table
TEXT = MARKDOWN | TERMINAL


@dataclass(frozen=True)
class Column:
    """A column of the results table.

    Attributes:
        value: function from a row to the value.
        format: name of the value's format in ``rendering.FORMATS``.
        where: the tables that have the column.
        style: style in report.html. ``text`` and ``number`` begin a new cell; ``soft``, ``doubt`` and ``tag`` continue
            the previous cell.
    """

    header: str
    value: Callable[[ScoreRow], Any]
    format: str
    where: Table
    style: str = "number"

    def text(self, row: ScoreRow) -> str:
        return show(self.value(row), self.format)


COLUMNS = (
    Column("score", lambda row: f"{row.title}, {row.metric}{row.marks}", "text", TSV),
    Column("split", lambda row: row.file, "text", TSV),
    Column("task", lambda row: row.title, "text", PAGE, "text"),
    Column("task", lambda row: row.title + row.marks, "text", TEXT),
    Column("metric", lambda row: row.metric_and_split, "text", PAGE, "soft"),
    Column("", lambda row: row.kind or None, "text", PAGE, "tag"),
    Column("metric", lambda row: row.metric, "text", TEXT | TSV),
    Column("split", lambda row: row.split, "text", MARKDOWN),
    Column("score", lambda row: row.mean, "one", PAGE | TEXT, "number main"),
    Column("± deviation", lambda row: row.deviation, "spread", PAGE | TEXT, "soft"),
    Column("value", lambda row: row.mean, "four", TSV),
    Column("95 % interval", lambda row: row.interval, "interval", PAGE | TEXT, "soft"),
    Column("best seed", lambda row: row.best_of_seeds, "one", PAGE | MARKDOWN, "soft"),
    Column("majority", lambda row: row.majority, "one", PAGE | TEXT),
    Column("majority_baseline", lambda row: row.majority, "four", TSV),
    Column("bag of words", lambda row: row.bag_of_words, "one", PAGE | TEXT),
    Column("random weights", lambda row: row.random_weights, "one", PAGE | TEXT),
    Column("difference from random weights", lambda row: row.vs_random, "difference", PAGE, "text"),
    Column("", lambda row: verdict(row.vs_random, len(row.values), better="") or None, "text", PAGE, "doubt"),
    Column("better than random?", lambda row: verdict(row.vs_random, len(row.values)), "text", TEXT),
    Column("published, same split", lambda row: row.published, "text", PAGE | MARKDOWN),
    Column("difference", lambda row: row.difference, "signed", PAGE | MARKDOWN, "soft"),
    Column("published, test server", lambda row: row.test_server, "text", PAGE | MARKDOWN),
    Column("examples", lambda row: row.examples, "integer", PAGE),
    Column("file", lambda row: row.file and f"{row.task}/{row.file}", "text", PAGE, "soft"),
)


def columns_of(table: Table, rows: Sequence[ScoreRow]) -> list[Column]:
    columns = []
    for column in COLUMNS:
        if table in column.where and any(column.value(row) is not None for row in rows):
            columns.append(column)
    return columns


def cells_of_page(rows: Sequence[ScoreRow]) -> list[list[Column]]:
    # Returns a list of columns for each cell of a row.
    cells: list[list[Column]] = []
    for column in columns_of(PAGE, rows):
        if column.style in ("soft", "doubt", "tag"):
            cells[-1].append(column)
        else:
            cells.append([column])
    return cells


def text_table(table: Table, rows: Sequence[ScoreRow]) -> str:
    # Returns a Markdown table whose columns are padded, so that they also line up in a terminal.

    # The cells of each column: header, rule, and the value of each row.
    padded = []
    for column in columns_of(table, rows):
        cells = [as_text(column.text(row)) for row in rows]
        width = max(map(len, [column.header, *cells]))
        # Columns of numbers are aligned right, for which Markdown's rule is "---:".
        is_numeric = all(cell[:1] in "0123456789+-–" for cell in cells)
        if is_numeric:
            rule = "-" * (width - 1) + ":"
            padded.append([text.rjust(width) for text in (column.header, rule, *cells)])
        else:
            rule = "-" * width
            padded.append([text.ljust(width) for text in (column.header, rule, *cells)])
    lines = zip(*padded, strict=True)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
