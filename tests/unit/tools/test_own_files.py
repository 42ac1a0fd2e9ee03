"""Wrong files of text and of tasks: each is named by the doctor before any work."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pytest
import yaml
from pyarrow import parquet

from pipeline_src.study.preset import preset_text
from pipeline_src.study.study import Study, check_study
from pipeline_src.tools import doctor
from pipeline_src.tools.doctor import OK, PROBLEM, WARNING, Finding

TEXT, TASK = Path("data/own/text"), Path("data/own/mine")
ENTRY = {"description": "d", "licence": "l", "citation": "c"}
GREEK = "Ένα παλιό μύλο είδαμε στο δρόμο.\n".encode("utf-16-le")
PDF = b"%PDF-1.7\n\x00\x01\x02\xff\xfe binary \x00"


def parquet_of(column: str, **columns: Any) -> bytes:
    sink = pyarrow.BufferOutputStream()
    parquet.write_table(pyarrow.table({column: ["A mill."], **columns}), sink)
    return sink.getvalue().to_pybytes()


def size_of_bytes(value: object) -> str | None:
    """The name of a file's content in the name of its test, which may be a megabyte."""
    return f"{len(value)} bytes" if isinstance(value, bytes) else None


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, root: Path, catalogue: Path) -> Callable[..., Study]:
    """Makes the preset `test` with a source of one's own text, and with a task of one's own if it is given."""
    monkeypatch.chdir(tmp_path)
    presets = root / "workflow/presets"
    reviews = yaml.safe_load(preset_text("sample", presets))["corpus"]["sources"]["reviews"]
    for folder in (TEXT, TASK):
        folder.mkdir(parents=True)

    def make(task: dict[str, Any] | None = None, block: dict[str, Any] = reviews, **changes: Any) -> Study:
        raw = yaml.safe_load(preset_text("test", presets))
        raw["corpus"]["sources"] = {"mine": block | {"from": "own-text"} | changes}
        if task:
            files = [{"path": ".", "url": f"file:{TASK}/*"}]
            (catalogue / "task_sources/mine.yaml").write_text(json.dumps(ENTRY | {"files": files}))
            (catalogue / "tasks/mine.yaml").write_text(json.dumps(task))
            raw["tasks"] = ["mine"]
            raw["finetune"]["per_task"]["mine"] = {}
        return check_study(raw)

    return make


# File, content, changes of the source, state, and what the finding says. text/books/test_clean_books.py has the others.
WRONG_TEXTS: list[tuple[str, bytes, dict[str, Any], str, str]] = [
    ("a.docx", b"PK\x03\x04 words", {}, PROBLEM, "unsupported file type: data/own/text/a.docx"),
    ("a", b"A mill.", {}, PROBLEM, "unsupported file type"),
    ("a.txt", b" \n\n\t\n", {}, WARNING, "the file contains no text"),
    ("a.txt", PDF, {}, WARNING, "the file is binary, not text: data/own/text/a.txt (byte 9 is NUL)"),
    ("a.md", PDF, {"undecodable": "error"}, PROBLEM, "the file is binary, not text"),
    ("a.txt", GREEK, {}, WARNING, "the file is binary, not text"),
    ("a.txt", bytes(range(128, 256)), {"undecodable": "error"}, PROBLEM, "encoding of a file cannot be detected"),
    (
        "a.txt",
        b"A m\xf6ll.",
        {"encoding": "utf-8"},
        WARNING,
        "the file cannot be decoded as utf-8: data/own/text/a.txt (byte 3 (0xf6)",
    ),
    ("a.txt", b"A mill.", {"encoding": "utf-99"}, PROBLEM, "unknown text encoding: utf-99"),
    (
        "a.jsonl",
        b'{"text": null}\n',
        {},
        PROBLEM,
        "the text column of a row holds no text: text is null (data/own/text/a.jsonl:1)",
    ),
    ("a.jsonl", b"", {}, WARNING, "the file contains no text"),
    ("a.ndjson.gz", b"A mill.", {}, PROBLEM, "the gzip file is damaged"),
    (
        "a.jsonl.gz",
        gzip.compress(b'{"content": "A mill."}\n', mtime=0),
        {},
        PROBLEM,
        "the text column is missing: text",
    ),
    (
        "a.parquet",
        parquet_of("content"),
        {},
        PROBLEM,
        "the text column is missing: text (data/own/text/a.parquet, whose columns are",
    ),
]


@pytest.mark.parametrize(("name", "content", "changes", "state", "message"), WRONG_TEXTS, ids=size_of_bytes)
def test_check_sources_invalid_text_is_named(
    study: Callable[..., Study], name: str, content: bytes, changes: dict[str, Any], state: str, message: str
) -> None:
    (TEXT / name).write_bytes(content)
    finding = doctor.check_sources(study(**changes))
    assert (finding.state, finding.hint is not None) == (state, True)
    assert message in finding.message and not list(Path("data").glob("[!o]*"))
    assert f"{TEXT}/{name}" in finding.message or "encoding" in changes


@pytest.mark.parametrize(
    ("name", "content", "changes"),
    [
        ("shelf/a.md", "# Möll\n\nA mill.".encode(), {}),
        # the first block ends within a character
        ("a.txt", ("a" + "ä" * (1 << 20)).encode(), {}),
        ("a.jsonl", b'\n{"body": "A mill.", "text": 3}\n', {"text_column": "body"}),
        ("a.parquet", parquet_of("text"), {}),
    ],
    ids=size_of_bytes,
)
def test_check_sources_valid_text_is_accepted(
    study: Callable[..., Study], name: str, content: bytes, changes: dict[str, Any]
) -> None:
    (TEXT / name).parent.mkdir(exist_ok=True)
    (TEXT / name).write_bytes(content)
    assert doctor.check_sources(study(**changes)).state == OK


def task_of(kind: str, metric: str, suffix: str = ".jsonl", **keys: Any) -> dict[str, Any]:
    scores = {"mine": {"title": "Mine", "file": f"dev{suffix}", "metrics": [metric]}}
    return {"kind": kind, "train": f"train{suffix}", "scores": scores, **keys}


CLASSES = task_of("classification", "accuracy", columns={"texts": ["text"], "label": "verdict"}, labels=["bad", "good"])
IN_PARQUET = CLASSES | {"train": "train.parquet"}
GOOD_ROW = '{"text": "a fine film", "verdict": "good"}\n'
TOPICS = task_of("multilabel", "micro_f1", columns={"texts": ["text"], "labels": ["t"]}, labels=["sport", "money"])
TAGS = task_of("tagging", "accuracy", ".txt", columns={"texts": [1], "label": 4}, labels=["O", "B-PER"])
SPANS = task_of("span", "f1", ".json")
CHOICES = task_of("choice", "accuracy", columns={"texts": ["text"], "choices": ["one", "two"], "label": "right"})
QUERIES = task_of("retrieval", "mrr_at_10", columns={"texts": ["query", "passage"]})
QUESTION = {"id": "1", "question": "Who?", "answers": [{"text": "A", "answer_start": 0}]}


def squad(*questions: dict[str, Any]) -> str:
    return json.dumps({"data": [{"paragraphs": [{"context": "A miller.", "qas": list(questions)}]}]})


LABELLED_QUERIES = task_of(
    "retrieval",
    "mrr_at_10",
    columns={"texts": ["query", "passage"], "label": "answers"},
    labels=["no", "yes"],
)
GOOD_TASKS = {
    "classification": (CLASSES, GOOD_ROW + GOOD_ROW.replace("good", "bad")),
    "multilabel": (TOPICS, '{"text": "a club was sold", "t": ["sport", "money"]}\n{"text": "a town", "t": []}\n'),
    "tagging": (TAGS, "Ann x x B-PER\ncame x x O\n"),
    "span": (SPANS, squad(QUESTION)),
    "choice": (CHOICES, '{"text": "a", "one": "b", "two": "c", "right": 1}\n'),
    "retrieval with labels": (
        LABELLED_QUERIES,
        """{"query": "q", "passage": "p", "answers": "yes"}\n{"query": "r", "passage": "s", "answers": "yes"}\n""",
    ),
    "retrieval": (QUERIES, '{"query": "q", "passage": "p"}\n{"query": "r", "passage": "s"}\n'),
}


def find(study: Callable[..., Study], task: dict[str, Any], train: bytes, dev: str) -> Finding:
    (TEXT / "a.txt").write_text("A mill.")
    (TASK / task["train"]).write_bytes(train)
    (TASK / task["scores"]["mine"]["file"]).write_text(dev)
    return doctor.check_sources(study(task))


@pytest.mark.parametrize("kind", GOOD_TASKS)
def test_check_sources_valid_files_are_accepted(study: Callable[..., Study], kind: str) -> None:
    task, content = GOOD_TASKS[kind]
    assert find(study, task, content.encode(), content) == Finding(
        "sources", OK, "files of your own, if there are any, can be read"
    )


@pytest.mark.parametrize(
    ("task", "train", "message"),
    [
        (CLASSES, b'{"text": "a film", "verdict": "fair"}\n', "unknown label: 'fair' (data/own/mine/train.jsonl:1)"),
        (CLASSES, GOOD_ROW.encode() + b'{"text": "a film", "verdict": "fair"}\n', "train.jsonl:2"),
        (CLASSES, b"", "empty file"),
        (CLASSES | {"train": "train.tsv"}, b"text\tlabel\na film\tgood\n", "a column is missing: verdict"),
        (
            IN_PARQUET,
            parquet_of("film"),
            "a column is missing: text (data/own/mine/train.parquet, columns found: film)",
        ),
        (
            IN_PARQUET,
            parquet_of("text", verdict=[["good"]]),
            'a value is not a text or a number: verdict = ["good"] (data/own/mine/train.parquet:1)',
        ),
        (IN_PARQUET, GOOD_ROW.encode(), "the file is damaged or not Parquet"),
        (CLASSES | {"train": "train.docx"}, b"PK", "unsupported file format: .docx (data/own/mine/train.docx)"),
        (TOPICS, b'{"text": "a song", "t": ["music"]}\n', "unknown label: 'music' (data/own/mine/train.jsonl:1)"),
        (TAGS, b"Ann B-PER\n", "too few columns: 2 columns, at least 4 are needed (data/own/mine/train.txt:1)"),
        (SPANS, b'{"data": []}', "no questions in the file"),
        (CHOICES, b'{"text": "a", "one": "b", "two": "c", "right": 3}\n', "unknown label: '3'"),
        (QUERIES, b'{"query": "q", "passage": "p"}\n', "too few passages or queries"),
    ],
)
def test_check_sources_wrong_task_file_is_named(
    study: Callable[..., Study], task: dict[str, Any], train: bytes, message: str
) -> None:
    finding = find(study, task, train, GOOD_TASKS[task["kind"]][1])
    assert finding.state == PROBLEM and message in finding.message and f"{TASK}/train." in finding.message
    assert finding.hint and not list(Path("data").glob("[!o]*"))


@pytest.mark.parametrize(
    ("task", "train", "missing"),
    [
        (CLASSES, GOOD_ROW, "bad"),
        (TOPICS, '{"text": "a town", "t": []}\n', "sport, money"),
        (TAGS, "came x x O\n", "B-PER"),
    ],
)
def test_check_sources_label_without_training_example_is_named(
    study: Callable[..., Study], task: dict[str, Any], train: str, missing: str
) -> None:
    finding = find(study, task, train.encode(), GOOD_TASKS[task["kind"]][1])
    message = f"a label has no training example: {missing} ({TASK / task['train']})"
    assert (finding.state, finding.message) == (WARNING, message)


def test_check_sources_missing_file_is_named(study: Callable[..., Study]) -> None:
    finding = doctor.check_sources(study())
    assert finding.state == PROBLEM and finding.message.startswith("your own file is not there: data/own/text")
    (TEXT / "a.txt").write_text("A mill.")
    (TASK / "train.jsonl").write_text(GOOD_ROW)
    finding = doctor.check_sources(study(CLASSES))
    assert (finding.state, finding.message) == (PROBLEM, "a file of the task is missing: dev.jsonl (task mine)")


def test_check_sources_two_files_with_one_path_are_named(study: Callable[..., Study], catalogue: Path) -> None:
    for name in ("one/a.txt", "two/a.txt"):
        (TEXT / name).parent.mkdir()
        (TEXT / name).write_text("A mill.")
    files = [{"path": ".", "url": f"file:{TEXT}/{folder}/*"} for folder in ("one", "two")]
    (catalogue / "sources/two-shelves.yaml").write_text(json.dumps(ENTRY | {"files": files}))
    finding = doctor.check_sources(study(**{"from": "two-shelves"}))
    assert finding.state == PROBLEM and "two files of a catalogue entry have the same path: a.txt" in finding.message
    assert f"{TEXT}/one/a.txt and {TEXT}/two/a.txt" in finding.message


def test_check_sources_wrong_minimal_pair_is_named(study: Callable[..., Study], catalogue: Path) -> None:
    (TEXT / "a.txt").write_text("A mill.")
    (TASK / "a.jsonl").write_text('{"sentence_good": "It is.", "sentence_bad": "It are."}\n')
    files = [{"path": ".", "url": f"file:{TASK}/*"}]
    (catalogue / "task_sources/pairs.yaml").write_text(json.dumps(ENTRY | {"files": files}))
    made = study()
    interpretation = made.interpretation.model_copy(update={"minimal_pairs": ("pairs",)})
    finding = doctor.check_sources(made.model_copy(update={"interpretation": interpretation}))
    message = "a minimal pair lacks a key: linguistics_term (data/own/mine/a.jsonl:1)"
    assert (finding.state, finding.message) == (PROBLEM, message)


def test_check_sources_unreadable_file_is_named(study: Callable[..., Study], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a.txt", "b.txt"):
        (TEXT / name).write_text("A mill.")
    # root may read everything
    monkeypatch.setattr(os, "access", lambda path, mode: path.name != "b.txt")
    finding = doctor.check_sources(study())
    assert (finding.state, finding.message) == (PROBLEM, "no permission to read a file: data/own/text/b.txt")


def test_check_sources_several_wrong_files_are_all_named(study: Callable[..., Study]) -> None:
    (TEXT / "good.txt").write_text("A mill.")
    for number in range(7):
        (TEXT / f"{number}.docx").write_bytes(b"PK")
    finding = doctor.check_sources(study())
    message = finding.message
    assert finding.state == WARNING and message.count("unsupported file type") == 5 and "and 2 more" in message


def test_check_sources_wrong_dump_is_named(study: Callable[..., Study], root: Path) -> None:
    sources = yaml.safe_load(preset_text("test", root / "workflow/presets"))["corpus"]["sources"]
    path = Path("data/own/wikipedia/1.xml.bz2")
    path.parent.mkdir()
    path.write_bytes(b"PK\x03\x04")
    dump = {"from": "own-wikipedia", "parts": ["1"], "date": None}
    finding = doctor.check_sources(study(block=sources["wikipedia"], **dump))
    assert finding.state == PROBLEM and "not a MediaWiki dump" in finding.message and str(path) in finding.message
