"""The three download stages, with wheels and web replaced by folders."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.yaml_files import TASK_SOURCES
from pipeline_src.config.data import BooksParams, CorpusParams, WikipediaParams
from pipeline_src.config.interpretation import InterpretationParams
from pipeline_src.download import download, download_tasks, fetch, layouts
from pipeline_src.download.catalogue import load_source
from pipeline_src.download.synthetic import write_task
from pipeline_src.tasks.kinds import KINDS, make_task
from pipeline_src.tasks.spec import load_spec
from tests.sources import corpus_of

HEADER = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String"
ROWS = [f"{n % 2}\t{n}\t{n + 100}\tSaid {n}.\tIt \u2028said {n}." for n in range(6)]


run_tasks = partial(
    download_tasks.run,
    corpus=corpus_of(),
    interpretation=InterpretationParams(),
)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_dump_of_ones_own(project: Path) -> None:
    mine = WikipediaParams(entry="own-wikipedia", parts=("one", "two"))
    corpus = CorpusParams(sources={"mine": mine})
    (project / "data/own/wikipedia").mkdir(parents=True)
    (project / "data/own/wikipedia/one.xml.bz2").write_bytes(b"dump")
    with pytest.raises(PipelineError, match=r"your own file is not there: data/own/wikipedia/two\.xml\.bz2"):
        download.run(corpus=corpus, source="mine")
    assert not (project / "data/raw/mine").exists()
    (project / "data/own/wikipedia/two.xml.bz2").write_bytes(b"dump")
    download.run(corpus=corpus, source="mine")
    for part in ("one", "two"):
        assert names(project / "data/raw/mine/fetched-files" / part) == sorted([f"{part}.xml.bz2", "source.json"])


def test_books_of_ones_own(project: Path) -> None:
    (project / "data/own/books").mkdir(parents=True)
    (project / "data/own/books/a.txt").write_text("Once.")
    download.run(corpus=CorpusParams(sources={"shelf": BooksParams(entry="own-books")}), source="shelf")
    assert names(project / "data/raw/shelf/fetched-files") == ["a.txt", "source.json"]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            BooksParams(entry="own-books", parts=("one",)),
            r"(?s)has no parts: one.*corpus.sources.mine.parts",
        ),
        (WikipediaParams(entry="own-wikipedia"), r"own-wikipedia needs its parts named"),
        (WikipediaParams(entry="enwiki", parts=("1-p1p41242",)), r"(?s)enwiki needs a date.*corpus.sources.mine.date"),
    ],
)
def test_a_source_without_its_part_or_date(project: Path, source: object, message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        download.run(corpus=CorpusParams(sources={"mine": source}), source="mine")
    with pytest.raises(PipelineError, match="no such source: yours"):
        download.run(corpus=CorpusParams(sources={"mine": source}), source="yours")


def test_synthetic_tasks_are_called_so(project: Path) -> None:
    run_tasks(seed=7, task_source="synthetic", tasks=["cola", "squad1"])
    assert names(project / "data/tasks") == ["cola", "squad1"]
    about = json.loads((project / "data/tasks/cola/source.json").read_text())
    assert about["name"] == "synthetic-cola"
    assert [file["path"] for file in about["files"]] == ["dev.tsv", "test.tsv", "train.tsv"]


OWN = """
description: Sentences of my own
licence: mine
citation: mine
files:
  - {path: train.jsonl, url: "file:data/own/mine/train.jsonl"}
  - {path: dev.jsonl, url: "file:data/own/mine/dev.jsonl"}
"""
THEIRS = """
description: Sentences of theirs
licence: theirs
citation: theirs
files:
  - {path: train.jsonl, url: "https://example.org/train.jsonl"}
"""


DECLARED = """
kind: classification
columns: {texts: [text], label: label}
labels: ["0", "1"]
train: train.jsonl
scores: {mine: {title: Mine, file: dev.jsonl, metrics: [accuracy]}}
"""
ROW = '{"text": "a", "label": 1}\n'


@pytest.fixture
def own_task(project: Path, catalogue: Path) -> Path:
    """The folder for the files of the task ``mine``, which the catalogue declares."""
    (catalogue / "tasks/mine.yaml").write_text(DECLARED)
    (catalogue / "task_sources/mine.yaml").write_text(OWN)
    folder = project / "data/own/mine"
    folder.mkdir(parents=True)
    return folder


@pytest.mark.parametrize("task_source", ["synthetic", "official"])
def test_a_task_of_ones_own_comes_from_its_files(own_task: Path, project: Path, task_source: str) -> None:
    tasks = ["cola", "mine"] if task_source == "synthetic" else ["mine"]
    with pytest.raises(PipelineError, match=r"your own file is not there: data/own/mine/train\.jsonl"):
        run_tasks(seed=1, task_source=task_source, tasks=tasks)
    assert not (project / "data/tasks").exists()
    for name in ("train", "dev"):
        (own_task / f"{name}.jsonl").write_text(ROW)
    run_tasks(seed=1, task_source=task_source, tasks=tasks)
    assert names(project / "data/tasks") == tasks
    assert names(project / "data/tasks/mine") == ["dev.jsonl", "source.json", "train.jsonl"]
    assert json.loads((project / "data/tasks/mine/source.json").read_text())["name"] == "mine"


@pytest.mark.parametrize(
    ("file", "bad", "said"),
    [
        ("train", '{"text": "a", "label": 2}', r"(?s)unknown label.*data/own/mine/train\.jsonl:2"),
        ("dev", '{"label": 1}', r"(?s)no value for a column: text.*data/own/mine/dev\.jsonl:2"),
        ("dev", "{", r"(?s)not JSON.*data/own/mine/dev\.jsonl:2"),
        ("train", "\udcff", r"(?s)not UTF-8.*data/own/mine/train\.jsonl:2"),
    ],
)
def test_a_mistake_in_a_task_of_ones_own_is_found_before_any_training(
    own_task: Path, project: Path, file: str, bad: str, said: str
) -> None:
    for name in ("train", "dev"):
        rows = f"{ROW}{bad}\n" if name == file else ROW
        (own_task / f"{name}.jsonl").write_bytes(rows.encode(errors="surrogateescape"))
    with pytest.raises(PipelineError, match=said):
        run_tasks(seed=1, task_source="official", tasks=["mine"])
    assert not (project / "data/tasks").exists()


def test_a_file_that_the_task_declares_and_its_source_lacks(own_task: Path, catalogue: Path) -> None:
    for name in ("train", "dev"):
        (own_task / f"{name}.jsonl").write_text(ROW)
    (catalogue / "tasks/mine.yaml").write_text(DECLARED.replace("file: dev", "file: test"))
    with pytest.raises(PipelineError, match=r"(?s)a file of the task is not fetched: test\.jsonl.*task mine"):
        run_tasks(seed=1, task_source="official", tasks=["mine"])


def test_a_task_without_synthetic_form_is_fetched(catalogue: Path) -> None:
    (catalogue / "task_sources/theirs.yaml").write_text(THEIRS)
    for task_source in ("synthetic", "official"):
        found = download_tasks.fetched_sources(task_source, ["cola", "word_swap", "theirs"], [])
        assert ("cola" in found) == (task_source == "official") and "word_swap" not in found
        assert found["theirs"] == load_source(TASK_SOURCES, "theirs")


def test_a_task_that_is_in_no_catalogue_is_refused(project: Path, catalogue: Path) -> None:
    with pytest.raises(PipelineError, match=r"(?s)no such entry in the catalogue: nobodys.*add nobodys.yaml"):
        run_tasks(seed=1, task_source="synthetic", tasks=["nobodys"])


def test_a_set_of_minimal_pairs_is_fetched_where_the_study_names_it(project: Path, catalogue: Path) -> None:
    (catalogue / "task_sources/mine.yaml").write_text(OWN)
    (project / "data/own/mine").mkdir(parents=True)
    for name in ("train", "dev"):
        (project / f"data/own/mine/{name}.jsonl").write_text("{}\n")
    named = InterpretationParams(minimal_pairs=("templates", "mine"))
    run_tasks(seed=1, task_source="synthetic", tasks=["cola"], interpretation=named)
    assert names(project / "data/tasks") == ["cola", "mine"]
    assert names(project / "data/tasks/mine") == ["dev.jsonl", "source.json", "train.jsonl"]


def test_official_tasks_and_mrpc_cut_as_glue_does(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = {
        layouts.TRAIN: "\r\n".join([HEADER, *ROWS]) + "\r\n",
        layouts.TEST: "\n".join([HEADER, *ROWS[:2]]) + "\n",
        layouts.DEV_IDS: "4\t104\n1\t101\n",
    }

    def obtain(name: str, source: object) -> list[fetch.Obtained]:
        for path, text in content.items():
            Path(path).write_text(text, encoding="utf-8", newline="")
        return [fetch.Obtained(file, Path(file.path), shared=True) for file in source.files]

    monkeypatch.setattr(download_tasks, "obtain", obtain)
    run_tasks(seed=1, task_source="official", tasks=["mrpc"])
    folder = project / "data/tasks/mrpc"
    assert names(folder) == ["dev.tsv", "source.json", "test.tsv", "train.tsv"]
    assert (folder / "train.tsv").read_text().split("\n") == [HEADER, ROWS[0], ROWS[2], ROWS[3], ROWS[5], ""]
    assert (folder / "dev.tsv").read_text().split("\n") == [HEADER, ROWS[1], ROWS[4], ""]
    assert (folder / "test.tsv").read_text().split("\n")[1] == "0\t0\t100\tSaid 0.\tIt \u2028said 0."
    before = names(folder)
    content[layouts.DEV_IDS] = "4\t104\n77\t177\n"
    with pytest.raises(PipelineError, match="dev pairs are missing: 1"):
        run_tasks(seed=1, task_source="official", tasks=["mrpc"])
    assert names(folder) == before and names(project / "data") == ["evaluation_texts", "tasks"]


@pytest.mark.parametrize(
    ("task", "parts"),
    [
        ("rte", lambda example: list(example.texts)),
        ("swag", lambda example: [f"{example.context} {ending}" for ending in example.endings]),
        ("squad1", lambda example: [example.context, example.question]),
        ("pos", lambda example: [" ".join(example.words)]),
    ],
)
def test_the_texts_of_an_evaluation_set_are_those_of_its_examples(tmp_path: Path, task: str, parts) -> None:
    write_task(task, tmp_path, seed=1)
    spec = load_spec(task)
    expected = []
    for name, row in spec.scores.items():
        expected += make_task(spec).read(tmp_path / row.file, name)
        if row.test is not None:
            expected += make_task(spec).read(tmp_path / row.test.file, name, True)
    found = list(download_tasks.evaluation_texts(task, tmp_path))
    assert found == list(dict.fromkeys(text for example in expected for text in parts(example)))
    assert len(found) > 20


def test_every_kind_of_task_has_texts() -> None:
    assert download_tasks.TEXTS_OF.keys() == KINDS.keys()
