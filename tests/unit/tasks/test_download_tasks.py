from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pyarrow
import pytest
import yaml
from pyarrow import parquet

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.yaml_files import TASK_SOURCES
from pipeline_src.sources.catalogue import load_source
from pipeline_src.study.interpretation import InterpretationParams
from pipeline_src.study.task_spec import load_spec
from pipeline_src.tasks import download_tasks
from pipeline_src.tasks.kinds import KINDS, make_task
from pipeline_src.tasks.made.synthetic import write_task
from tests.servers import Hub, serving_hub
from tests.studies import corpus_of

run_tasks = partial(download_tasks.run, corpus=corpus_of(), interpretation=InterpretationParams())


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_download_tasks_synthetic_tasks_have_synthetic_source(project: Path) -> None:
    run_tasks(seed=7, task_source="synthetic", tasks=["cola", "squad1"])
    assert names(project / "data/tasks") == ["cola", "squad1"]
    about = json.loads((project / "data/tasks/cola/source.json").read_text())
    assert about["name"] == "synthetic-cola"
    assert [file["path"] for file in about["files"]] == ["dev.tsv", "test.tsv", "train.tsv"]


MINE = """
description: Sentences of my own
licence: mine
citation: mine
files:
  - {path: train.jsonl, url: "file:data/own/mine/train.jsonl"}
  - {path: dev.jsonl, url: "file:data/own/mine/dev.jsonl"}
"""
SPEC = """
kind: classification
columns: {texts: [text], label: label}
labels: ["0", "1"]
train: train.jsonl
scores: {mine: {title: Mine, file: dev.jsonl, metrics: [accuracy]}}
"""
ROW = '{"text": "a", "label": 1}\n'


@pytest.fixture
def custom_task(project: Path, catalogue: Path) -> Path:
    """The folder for the files of the task ``mine``, which the catalogue declares."""
    (catalogue / "tasks/mine.yaml").write_text(SPEC)
    (catalogue / "task_sources/mine.yaml").write_text(MINE)
    folder = project / "data/own/mine"
    folder.mkdir(parents=True)
    return folder


@pytest.mark.parametrize("task_source", ["synthetic", "official"])
def test_download_tasks_custom_task_gets_its_local_files(custom_task: Path, project: Path, task_source: str) -> None:
    tasks = ["cola", "mine"] if task_source == "synthetic" else ["mine"]
    with pytest.raises(PipelineError, match=r"your own file is not there: data/own/mine/train\.jsonl"):
        run_tasks(seed=1, task_source=task_source, tasks=tasks)
    assert not (project / "data/tasks").exists()
    for name in ("train", "dev"):
        (custom_task / f"{name}.jsonl").write_text(ROW)
    run_tasks(seed=1, task_source=task_source, tasks=tasks)
    assert names(project / "data/tasks") == tasks
    assert names(project / "data/tasks/mine") == ["dev.jsonl", "source.json", "train.jsonl"]
    assert json.loads((project / "data/tasks/mine/source.json").read_text())["name"] == "mine"


@pytest.mark.parametrize(
    ("file", "bad", "message"),
    [
        ("train", '{"text": "a", "label": 2}', r"(?s)unknown label.*data/own/mine/train\.jsonl:2"),
        ("dev", '{"label": 1}', r"(?s)no value for a column: text.*data/own/mine/dev\.jsonl:2"),
        ("dev", "{", r"(?s)not JSON.*data/own/mine/dev\.jsonl:2"),
        ("train", "\udcff", r"(?s)not UTF-8.*data/own/mine/train\.jsonl:2"),
    ],
)
def test_download_tasks_invalid_line_of_custom_task_is_rejected(
    custom_task: Path, project: Path, file: str, bad: str, message: str
) -> None:
    for name in ("train", "dev"):
        text = f"{ROW}{bad}\n" if name == file else ROW
        (custom_task / f"{name}.jsonl").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(PipelineError, match=message):
        run_tasks(seed=1, task_source="official", tasks=["mine"])
    assert not (project / "data/tasks").exists()


MULTILABEL = """
kind: multilabel
columns: {texts: [text], labels: [topics]}
labels: [sport, money]
train: train.jsonl
scores: {mine: {title: Mine, file: dev.jsonl, metrics: [micro_f1]}}
"""


@pytest.mark.parametrize(
    ("spec", "train", "messages"),
    [
        (None, [ROW], ["a label has no training example: 0"]),
        (
            MULTILABEL,
            ['{"text": "a", "topics": []}\n', '{"text": "b", "topics": ["money"]}\n'],
            ["1 of 2 texts have no label", "a label has no training example: sport"],
        ),
    ],
)
def test_download_tasks_labels_that_do_not_occur_are_logged(
    custom_task: Path, catalogue: Path, caplog, spec: str | None, train: list[str], messages: list[str]
) -> None:
    if spec is not None:
        (catalogue / "tasks/mine.yaml").write_text(spec)
    for name in ("train", "dev"):
        (custom_task / f"{name}.jsonl").write_text("".join(train))
    with caplog.at_level("INFO"):
        run_tasks(seed=1, task_source="official", tasks=["mine"])
    for message in messages:
        assert message in caplog.text


REPO = "datasets/cardiffnlp/tweet_eval"
REVISION = "b3a375baf0f409c77e6bc7aa35102b7b3534f8be"
TRAIN, DEV = (f"sentiment/{split}-00000-of-00001.parquet" for split in ("train", "validation"))


def parquet_of(labels: list[int]) -> bytes:
    sink = pyarrow.BufferOutputStream()
    texts = [f"tweet {number}" for number in range(len(labels))]
    parquet.write_table(pyarrow.table({"text": texts, "label": labels}), sink)
    return sink.getvalue().to_pybytes()


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub with the files of the task in docs/tasks.md."""
    content = {TRAIN: parquet_of([0, 1, 2, 1]), DEV: parquet_of([2, 0])}
    with serving_hub({(REPO, REVISION): content}) as hub:
        hub.use(monkeypatch)
        yield hub


@pytest.fixture
def hub_task(catalogue: Path, root: Path, project: Path) -> tuple[str, str]:
    """The two entries of the task ``tweets`` in docs/tasks.md, which the catalogue declares."""
    page = (root / "docs/tasks.md").read_text(encoding="utf-8")
    section = page.partition("## A task from Hugging Face's hub")[2]
    source, spec = re.findall(r"^```yaml\n(.*?)^```", section, re.M | re.S)[:2]
    (catalogue / "task_sources/tweets.yaml").write_text(source)
    (catalogue / "tasks/tweets.yaml").write_text(spec)
    return source, spec


@pytest.mark.parametrize("task_source", ["synthetic", "official"])
def test_download_tasks_documented_hub_task_is_fetched_and_read(hub, hub_task, project: Path, task_source: str) -> None:
    run_tasks(seed=1, task_source=task_source, tasks=["tweets"])
    folder = project / "data/tasks/tweets"
    assert names(folder) == ["dev.parquet", "source.json", "train.parquet"]
    task = make_task(load_spec("tweets"))
    assert [example.label for example in task.read(folder / "train.parquet")] == [0, 1, 2, 1]
    examples = task.read(folder / "dev.parquet", "tweets")
    assert [(example.texts, example.label) for example in examples] == [(("tweet 0",), 2), (("tweet 1",), 0)]
    locked = json.loads((project / "sources.lock").read_text())["tweets"]
    assert locked.keys() == {"train.parquet", "dev.parquet"}


def test_download_tasks_interrupted_download_of_hub_task_continues(hub, hub_task, project: Path) -> None:
    hub.ends_after[TRAIN] = [100]
    run_tasks(seed=1, task_source="official", tasks=["tweets"])
    assert [start for path, start, _ in hub.served if path == TRAIN] == [0, 100]


def test_download_tasks_changed_file_of_hub_task_is_rejected(hub, hub_task, project: Path) -> None:
    run_tasks(seed=1, task_source="official", tasks=["tweets"])
    hub.files[REPO, REVISION][TRAIN] = parquet_of([0, 0])
    with pytest.raises(PipelineError, match=r"(?s)wrong checksum: train\.parquet.*the publisher changed the file"):
        run_tasks(seed=1, task_source="official", tasks=["tweets"])


@pytest.mark.parametrize(
    ("content", "change", "message"),
    [
        (parquet_of([0, 3]), {}, r"(?s)unknown label: '3'.*train\.parquet:2.*labels are 0, 1, 2"),
        (
            parquet_of([0, 1]),
            {"columns": {"texts": ["tweet"], "label": "label"}},
            r"(?s)a column is missing: tweet.*columns found: text, label",
        ),
        (b"version https://git-lfs.github.com/spec/v1", {}, r"(?s)damaged or not Parquet.*train\.parquet"),
        (parquet_of([0, 1]), {"train": "train.jsonl"}, r"a file of the task is missing: train\.jsonl"),
    ],
)
def test_download_tasks_hub_task_that_does_not_fit_its_entry_is_rejected(
    hub, hub_task, catalogue: Path, project: Path, content: bytes, change: dict, message: str
) -> None:
    hub.files[REPO, REVISION][TRAIN] = content
    (catalogue / "tasks/tweets.yaml").write_text(json.dumps(yaml.safe_load(hub_task[1]) | change))
    with pytest.raises(PipelineError, match=message):
        run_tasks(seed=1, task_source="official", tasks=["tweets"])
    assert not (project / "data/tasks").exists()


def test_download_tasks_hub_address_without_revision_is_rejected(hub, hub_task, catalogue: Path) -> None:
    (catalogue / "task_sources/tweets.yaml").write_text(hub_task[0].replace(f"@{REVISION}", ""))
    message = r"(?s)a hub address is hub:OWNER/DATASET@REVISION/path/of/files"
    with pytest.raises(PipelineError, match=message) as caught:
        run_tasks(seed=1, task_source="official", tasks=["tweets"])
    assert "task_sources/tweets.yaml" in str(caught.value) and not hub.served


def test_download_tasks_missing_file_of_custom_task_is_rejected(custom_task: Path, catalogue: Path) -> None:
    for name in ("train", "dev"):
        (custom_task / f"{name}.jsonl").write_text(ROW)
    (catalogue / "tasks/mine.yaml").write_text(SPEC.replace("file: dev", "file: test"))
    with pytest.raises(PipelineError, match=r"(?s)a file of the task is missing: test\.jsonl.*task mine"):
        run_tasks(seed=1, task_source="official", tasks=["mine"])


@pytest.mark.parametrize(("task_source", "expected"), [("synthetic", {"mine"}), ("official", {"cola", "mine"})])
def test_fetched_sources_depend_on_task_source(custom_task: Path, task_source: str, expected: set[str]) -> None:
    sources = download_tasks.fetched_sources(task_source, ["cola", "word_swap"], ["mine"])
    assert sources.keys() == expected and sources["mine"] == load_source(TASK_SOURCES, "mine")


def test_download_tasks_fetches_minimal_pair_set(custom_task: Path, project: Path) -> None:
    for name in ("train", "dev"):
        (custom_task / f"{name}.jsonl").write_text("{}\n")
    interpretation = InterpretationParams(minimal_pairs=("templates", "mine"))
    run_tasks(seed=1, task_source="synthetic", tasks=["cola"], interpretation=interpretation)
    assert names(project / "data/tasks") == ["cola", "mine"]


@pytest.mark.parametrize(
    ("task", "parts"),
    [
        ("rte", lambda example: list(example.texts)),
        ("swag", lambda example: [f"{example.context} {ending}" for ending in example.endings]),
        ("squad1", lambda example: [example.context, example.question]),
        ("pos", lambda example: [" ".join(example.words)]),
    ],
)
def test_evaluation_texts_come_from_dev_and_test_files(tmp_path: Path, task: str, parts) -> None:
    write_task(task, tmp_path, seed=1)
    spec = load_spec(task)
    examples = []
    for name, eval_set in spec.scores.items():
        examples += make_task(spec).read(tmp_path / eval_set.file, name)
        if eval_set.test is not None:
            examples += make_task(spec).read(tmp_path / eval_set.test.file, name, True)
    texts = list(download_tasks.evaluation_texts(task, tmp_path))
    assert texts == list(dict.fromkeys(text for example in examples for text in parts(example)))
    assert len(texts) > 20


def test_texts_of_covers_every_kind_of_task() -> None:
    assert download_tasks.TEXTS_OF.keys() == KINDS.keys()
