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


def parquet_of(column: str) -> bytes:
    sink = pyarrow.BufferOutputStream()
    parquet.write_table(pyarrow.table({column: ["A mill."]}), sink)
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


WRONG_TEXTS: list[tuple[str, bytes, dict[str, Any], str, str]] = [
    # file, content, changes of the source, state, what the finding says
    ("a.docx", b"PK\x03\x04 words", {}, PROBLEM, "no reader for this kind of file: data/own/text/a.docx"),
    ("a.pdf", PDF, {}, PROBLEM, "no reader for this kind of file"),
    ("a.csv", b"text\nA mill.\n", {}, PROBLEM, "no reader for this kind of file"),
    ("a", b"A mill.", {}, PROBLEM, "no reader for this kind of file"),
    ("a.txt", b"", {}, WARNING, "no text in a file: data/own/text/a.txt"),
    ("a.txt", b" \n\n\t\n", {}, WARNING, "no text in a file"),
    ("a.txt", PDF, {}, WARNING, "a file is binary: data/own/text/a.txt (byte 9 is NUL)"),
    ("a.md", PDF, {"undecodable": "error"}, PROBLEM, "a file is binary"),
    ("a.txt", GREEK, {}, WARNING, "a file is binary"),
    ("a.txt", bytes(range(128, 256)), {"undecodable": "error"}, PROBLEM, "encoding of a file cannot be detected"),
    ("a.txt", b"A m\xf6ll.", {"encoding": "utf-8"}, WARNING, "a file is not utf-8: data/own/text/a.txt (byte 3 (0xf6)"),
    ("a.txt", b"A mill.", {"encoding": "utf-99"}, PROBLEM, "no such encoding: utf-99"),
    ("a.jsonl", b'{"content": "A mill."}\n', {}, PROBLEM, "no such column: text (data/own/text/a.jsonl:1, which has"),
    ("a.jsonl", b'{"text": "A mill."}\n', {"text_column": "body"}, PROBLEM, "no such column: body"),
    ("a.jsonl", b'{"text": null}\n', {}, PROBLEM, "a row without text: text is null (data/own/text/a.jsonl:1)"),
    ("a.jsonl", b'{"text": ["A mill."]}\n', {}, PROBLEM, "a row without text"),
    ("a.jsonl", b"A mill.\n", {}, PROBLEM, "not JSON"),
    ("a.jsonl", b'["A mill."]\n', {}, PROBLEM, "not a JSON object: list"),
    ("a.jsonl", '{"text": "A möll."}\n'.encode("latin-1"), {}, PROBLEM, "not JSON"),
    ("a.jsonl", b'{"text": "\\ud800"}\n', {}, PROBLEM, "half a character"),
    ("a.jsonl", b"", {}, WARNING, "no text in a file"),
    ("a.ndjson.gz", b"A mill.", {}, PROBLEM, "a damaged gzip file"),
    ("a.jsonl.gz", gzip.compress(b'{"content": "A mill."}\n', mtime=0), {}, PROBLEM, "no such column: text"),
    (
        "a.parquet",
        parquet_of("content"),
        {},
        PROBLEM,
        "no such column: text (data/own/text/a.parquet, which has",
    ),
    ("a.parquet", b"PAR1 none", {}, PROBLEM, "not a Parquet file, or a damaged one"),
]


@pytest.mark.parametrize(("name", "content", "changes", "state", "message"), WRONG_TEXTS, ids=size_of_bytes)
def test_check_sources_wrong_text_is_named(
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
        ("a.txt", b"A mill.", {}),
        ("shelf/a.md", "# Möll\n\nA mill.".encode(), {}),
        ("a.txt", "A möll.".encode("cp1252"), {"encoding": "cp1252"}),
        ("a.txt", "A möll.".encode("utf-16"), {}),
        # the first block ends within a character
        ("a.txt", ("a" + "ä" * (1 << 20)).encode(), {}),
        ("a.txt", b"A sentence of a list.\n" * 200, {}),
        ("a.jsonl", b'\n{"body": "A mill.", "text": 3}\n', {"text_column": "body"}),
        ("a.ndjson.gz", gzip.compress(b'{"text": "A mill."}\n', mtime=0), {}),
        ("a.parquet", parquet_of("text"), {}),
    ],
    ids=size_of_bytes,
)
def test_check_sources_right_text_passes(
    study: Callable[..., Study], name: str, content: bytes, changes: dict[str, Any]
) -> None:
    (TEXT / name).parent.mkdir(exist_ok=True)
    (TEXT / name).write_bytes(content)
    assert doctor.check_sources(study(**changes)).state == OK


CLASSES = {
    "kind": "classification",
    "columns": {"texts": ["text"], "label": "verdict"},
    "labels": ["bad", "good"],
    "train": "train.jsonl",
    "scores": {"mine": {"title": "Mine", "file": "dev.jsonl", "metrics": ["accuracy"]}},
}
GOOD_ROW = '{"text": "a fine film", "verdict": "good"}\n'


def as_table(suffix: str) -> dict[str, Any]:
    return CLASSES | {"train": f"train{suffix}"}


RATED = CLASSES | {
    "labels": [],
    "range": [0, 5],
    "scores": {"mine": {"title": "Mine", "file": "dev.jsonl", "metrics": ["pearson"]}},
}
TAGS = {
    "kind": "tagging",
    "columns": {"texts": [1], "label": 4},
    "labels": ["O", "B-PER"],
    "train": "train.txt",
    "scores": {"mine": {"title": "Mine", "file": "dev.txt", "metrics": ["accuracy"]}},
}
SPANS = {
    "kind": "span",
    "train": "train.json",
    "scores": {"mine": {"title": "Mine", "file": "dev.json", "metrics": ["f1"]}},
}
CHOICES = {
    "kind": "choice",
    "columns": {"texts": ["text"], "choices": ["one", "two"], "label": "right"},
    "train": "train.jsonl",
    "scores": {"mine": {"title": "Mine", "file": "dev.jsonl", "metrics": ["accuracy"]}},
}
QUERIES = {
    "kind": "retrieval",
    "columns": {"texts": ["query", "passage"]},
    "train": "train.jsonl",
    "scores": {"mine": {"title": "Mine", "file": "dev.jsonl", "metrics": ["mrr_at_10"]}},
}
QUESTION = {"id": "1", "question": "Who?", "answers": [{"text": "A", "answer_start": 0}]}


def squad(*questions: dict[str, Any]) -> str:
    return json.dumps({"data": [{"paragraphs": [{"context": "A miller.", "qas": list(questions)}]}]})


GOOD_TASKS = {
    "classification": (CLASSES, GOOD_ROW),
    "tagging": (TAGS, "Ann x x B-PER\ncame x x O\n"),
    "span": (SPANS, squad(QUESTION)),
    "choice": (CHOICES, '{"text": "a", "one": "b", "two": "c", "right": 1}\n'),
    "retrieval": (QUERIES, '{"query": "q", "passage": "p"}\n{"query": "r", "passage": "s"}\n'),
}


def find(study: Callable[..., Study], task: dict[str, Any], train: bytes, dev: str) -> Finding:
    (TEXT / "a.txt").write_text("A mill.")
    (TASK / task["train"]).write_bytes(train)
    (TASK / task["scores"]["mine"]["file"]).write_text(dev)
    return doctor.check_sources(study(task))


@pytest.mark.parametrize("kind", GOOD_TASKS)
def test_check_sources_right_files_pass(study: Callable[..., Study], kind: str) -> None:
    task, content = GOOD_TASKS[kind]
    assert find(study, task, content.encode(), content) == Finding(
        "sources", OK, "files of your own, if there are any, can be read"
    )


@pytest.mark.parametrize(
    ("task", "train", "message"),
    [
        (CLASSES, b'{"txt": "a fine film", "verdict": "good"}\n', "a row has no value for a column: text"),
        (CLASSES, b'{"text": "a film", "label": "good"}\n', "a row has no value for a column: verdict"),
        (CLASSES, b'{"text": "a film", "verdict": "fair"}\n', "unknown label: 'fair' (data/own/mine/train.jsonl:1)"),
        (CLASSES, GOOD_ROW.encode() + b'{"text": "a film", "verdict": "fair"}\n', "train.jsonl:2"),
        (CLASSES, b"", "empty file"),
        (CLASSES, PDF, "not UTF-8"),
        (CLASSES, "{\"text\": \"möll\"}".encode("latin-1"), "not UTF-8"),
        (CLASSES, b"a film, good\n", "a line is not JSON"),
        (as_table(".csv"), b"text,verdict\n\"a film,good\n", "a quote is not closed, or misplaced"),
        (as_table(".tsv"), b"text\tlabel\na film\tgood\n", "a column is missing: verdict"),
        (as_table(".tsv"), b"text\tverdict\na film\n", "a row has no value for a column: verdict"),
        (as_table(".tsv"), b"text\tverdict\n", "no rows in the file"),
        (as_table(".docx"), b"PK\x03\x04", "no reader for this kind of file: .docx (data/own/mine/train.docx)"),
        (RATED, b'{"text": "a film", "verdict": 7}\n', "unknown label: '7'"),
        (TAGS, b"Ann B-PER\n", "a row is too short: 2 columns, at least 4 are needed (data/own/mine/train.txt:1)"),
        (TAGS, b"Ann x x B-LOC\n", "unknown label: 'B-LOC'"),
        (TAGS, b"\n\n", "no words in the file"),
        (SPANS, b'{"data": []}', "no questions in the file"),
        (SPANS, b'{"rows": []}', "not in SQuAD's layout"),
        (SPANS, squad({**QUESTION, "answers": []}).encode(), "question 1 has no answer"),
        (CHOICES, b'{"text": "a", "one": "b", "two": "c", "right": 3}\n', "unknown label: '3'"),
        (QUERIES, b'{"query": "q", "passage": "p"}\n', "nothing to rank"),
    ],
)  # fmt: skip
def test_check_sources_wrong_task_file_is_named(
    study: Callable[..., Study], task: dict[str, Any], train: bytes, message: str
) -> None:
    dev = next(content for good, content in GOOD_TASKS.values() if good["kind"] == task["kind"])
    finding = find(study, task, train, dev.replace('"good"', "3") if task.get("range") else dev)
    assert finding.state == PROBLEM and message in finding.message and f"{TASK}/train." in finding.message
    assert finding.hint and not list(Path("data").glob("[!o]*"))


def test_check_sources_missing_task_file_is_named(study: Callable[..., Study]) -> None:
    (TEXT / "a.txt").write_text("A mill.")
    (TASK / "train.jsonl").write_text(GOOD_ROW)
    finding = doctor.check_sources(study(CLASSES))
    assert (finding.state, finding.message) == (PROBLEM, "a file of the task is not fetched: dev.jsonl (task mine)")


def test_check_sources_wrong_minimal_pair_is_named(study: Callable[..., Study], catalogue: Path) -> None:
    (TEXT / "a.txt").write_text("A mill.")
    (TASK / "a.jsonl").write_text('{"sentence_good": "It is.", "sentence_bad": "It are."}\n')
    files = [{"path": ".", "url": f"file:{TASK}/*"}]
    (catalogue / "task_sources/pairs.yaml").write_text(json.dumps(ENTRY | {"files": files}))
    made = study()
    interpretation = made.interpretation.model_copy(update={"minimal_pairs": ("pairs",)})
    finding = doctor.check_sources(made.model_copy(update={"interpretation": interpretation}))
    message = "a pair lacks a value: linguistics_term (data/own/mine/a.jsonl:1)"
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
    assert finding.state == WARNING and finding.message.count("no reader") == 5 and "and 2 more" in finding.message


def test_check_sources_two_files_of_one_name_are_a_problem(study: Callable[..., Study]) -> None:
    for name in ("a.txt", "a.md"):
        (TEXT / name).write_text("A mill.")
    finding = doctor.check_sources(study())
    assert finding.state == PROBLEM and finding.message.startswith("two files have the same name: data/own/text/a.txt")


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "the dump is empty"), (b"PK\x03\x04", "not a MediaWiki dump"), (b"BZh9 none", "cut off or corrupt")],
)
def test_check_sources_wrong_dump_is_named(
    study: Callable[..., Study], root: Path, content: bytes, message: str
) -> None:
    sources = yaml.safe_load(preset_text("test", root / "workflow/presets"))["corpus"]["sources"]
    path = Path("data/own/wikipedia/1.xml.bz2")
    path.parent.mkdir()
    path.write_bytes(content)
    dump = {"from": "own-wikipedia", "parts": ["1"], "date": None}
    finding = doctor.check_sources(study(block=sources["wikipedia"], **dump))
    assert finding.state == PROBLEM and message in finding.message and str(path) in finding.message
