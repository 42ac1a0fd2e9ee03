"""The tab-separated files of GLUE, as its makers lay them out: which files a task has and which columns they hold."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from pipeline_src.task_sources import synthetic_sentences as sentences
from pipeline_src.task_sources.synthetic_sentences import Rule, Sentences

TRAIN, DEV, TEST = 1200, 300, 100  # examples of a file

BINARY = ("0", "1")
ENTAILMENT = ("entailment", "not_entailment")
INFERENCE = ("contradiction", "entailment", "neutral")
DISTANCES = ("0", "2", "0", "2", "1")  # the ends more often, which a small model learns from first

PAIR = ("index", "sentence1", "sentence2")
PARSES = ("sentence1_binary_parse", "sentence2_binary_parse", "sentence1_parse", "sentence2_parse")
MNLI = ("index", "promptID", "pairID", "genre", *PARSES, "sentence1", "sentence2")
MNLI_VOTES = ("label1", "label2", "label3", "label4", "label5", "gold_label")
MRPC = ("#1 ID", "#2 ID", "#1 String", "#2 String")
STSB = ("index", "genre", "filename", "year", "old_index", "source1", "source2", "sentence1", "sentence2")
ANNOTATIONS = ("Lexical Semantics", "Predicate-Argument Structure", "Logic", "Knowledge", "Domain")
NUMBERED = {"index": (1, 0), "id": (1, 0), "qid1": (2, 1), "qid2": (2, 2), "#1 ID": (2, 1), "#2 ID": (2, 2)}


@dataclass(frozen=True)
class Table:
    """One tab-separated file.

    Attributes:
        file: its name.
        rows: how many examples.
        rule: makes the sentences of an example from its label.
        labels: taken in turn, so that equally many rows have each of them.
        texts: the columns of the sentences.
        columns: all columns in order; those that no example fills stay empty.
        label: the columns of the label; none in a test file.
        header: whether the first line names the columns.
        mark: what stands before the first character (a byte order mark in MRPC).
        score: labels are distances on a scale, written as a similarity from 0 to 5.
    """

    file: str
    rows: int
    rule: Rule
    labels: tuple[str, ...]
    texts: tuple[str, ...]
    columns: tuple[str, ...]
    label: tuple[str, ...] = ()
    header: bool = True
    mark: str = ""
    score: bool = False


def _tables(
    rule: Rule,
    labels: tuple[str, ...],
    texts: tuple[str, ...],
    columns: tuple[str, ...],
    label: tuple[str, ...],
    test: tuple[str, ...],
    **more: bool | str,
) -> tuple[Table, ...]:
    """The three files of a task whose dev and train have the same columns; train last, as it may use up the rest."""
    return (
        Table("dev.tsv", DEV, rule, labels, texts, columns, label, **more),  # type: ignore[arg-type]
        Table("test.tsv", TEST, rule, labels, texts, test),
        Table("train.tsv", TRAIN, rule, labels, texts, columns, label, **more),  # type: ignore[arg-type]
    )


def _mnli(name: str, rows: int, frames: tuple[tuple[str, ...], tuple[str, ...]], votes: tuple[str, ...]) -> Table:
    columns = (*MNLI, *votes)
    return Table(name, rows, sentences.inference(frames), INFERENCE, ("sentence1", "sentence2"), columns, votes)


def _pair(
    rule: Rule, labels: tuple[str, ...], first: str = "sentence1", second: str = "sentence2"
) -> tuple[Table, ...]:
    columns = ("index", first, second)
    return _tables(rule, labels, (first, second), (*columns, "label"), ("label",), columns)


TABLES: dict[str, tuple[Table, ...]] = {
    "cola": _tables(
        sentences.cola,
        BINARY,
        ("sentence",),
        ("source", "label", "mark", "sentence"),
        ("label",),
        ("index", "sentence"),
        header=False,
    ),
    "sst2": _tables(sentences.sst2, BINARY, ("sentence",), ("sentence", "label"), ("label",), ("index", "sentence")),
    "mrpc": _tables(
        sentences.mrpc, BINARY, MRPC[2:], ("Quality", *MRPC), ("Quality",), ("index", *MRPC), mark="\ufeff"
    ),
    "stsb": _tables(sentences.stsb, DISTANCES, STSB[-2:], (*STSB, "score"), ("score",), STSB, score=True),
    "qqp": _tables(
        sentences.qqp,
        BINARY,
        ("question1", "question2"),
        ("id", "qid1", "qid2", "question1", "question2", "is_duplicate"),
        ("is_duplicate",),
        ("id", "question1", "question2"),
    ),
    "mnli": (
        _mnli("dev_matched.tsv", DEV, sentences.MNLI_FRAMES, MNLI_VOTES),
        _mnli("dev_mismatched.tsv", DEV, sentences.MNLI_OTHER_FRAMES, MNLI_VOTES),
        _mnli("test_matched.tsv", TEST, sentences.MNLI_FRAMES, ()),
        _mnli("test_mismatched.tsv", TEST, sentences.MNLI_OTHER_FRAMES, ()),
        _mnli("train.tsv", TRAIN, sentences.MNLI_FRAMES, ("label1", "gold_label")),
        Table(
            "diagnostic-full.tsv",
            DEV,
            sentences.inference(sentences.AX_FRAMES),
            INFERENCE,
            ("Premise", "Hypothesis"),
            (*ANNOTATIONS, "Premise", "Hypothesis", "Label"),
            ("Label",),
        ),
        Table("AX.tsv", TEST, sentences.inference(sentences.AX_FRAMES), INFERENCE, PAIR[1:], PAIR),
    ),
    "qnli": _pair(sentences.qnli, ENTAILMENT, "question", "sentence"),
    "rte": _pair(sentences.rte, ENTAILMENT),
    "wnli": _pair(sentences.wnli, BINARY),
}


def rows(table: Table, rng: Generator, taken: set[Sentences]) -> Iterator[tuple[Sentences, list[str]]]:
    """Sentences and fields of each line of a file, the header first.

    Args:
        table: the file.
        rng: draws everything.
        taken: sentences of the task's other files; none of them comes again.
    """
    if table.header:
        yield (), list(table.columns)
    for number, place in enumerate(rng.permutation(table.rows)):
        label = table.labels[place % len(table.labels)]
        texts = _new(table, rng, label, taken)
        shown = _similarity(rng, int(label)) if table.score else label
        values = {**dict(zip(table.texts, texts, strict=True)), **dict.fromkeys(table.label, shown)}
        for column, (step, start) in NUMBERED.items():
            values[column] = str(step * number + start)
        yield texts, [values.get(column, "") for column in table.columns]


def _new(table: Table, rng: Generator, label: str, taken: set[Sentences]) -> Sentences:
    for _ in range(10_000):
        texts = table.rule(rng, label)
        if texts not in taken:
            return texts
    raise ValueError(f"{table.file}: the rule {table.rule} knows too few sentences for {table.rows} rows")


def _similarity(rng: Generator, distance: int) -> str:
    """5 for no distance to 0 for the greatest, give or take what two readers differ."""
    greatest = max(map(int, DISTANCES))
    value = 5 * (1 - distance / greatest) + rng.uniform(-0.3, 0.3)
    return f"{np.clip(value, 0, 5):.3f}"
