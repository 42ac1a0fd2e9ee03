"""Submissions: GLUE's archive of eleven files, SWAG's table, and missing predictions."""

from __future__ import annotations

import json
import shutil
import zipfile
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import hash_file, read_json, write_json
from pipeline_src.evaluate.evaluate import run
from pipeline_src.evaluate.predictions import EvalSetFiles, TaskFiles
from pipeline_src.evaluate.scores import EvalResult
from pipeline_src.evaluate.submissions import GLUE, majority, submissions
from pipeline_src.finetune.hyperparameter_grid import write_lines
from pipeline_src.study.finetune import FinetuneParams
from pipeline_src.study.task_spec import TaskSpec, load_spec
from pipeline_src.tasks.kinds import make_task
from pipeline_src.tasks.made.synthetic import write_task
from pipeline_src.tasks.squad import QuestionAnswering
from pipeline_src.tasks.task import Task
from tests.unit.evaluate.conftest import write_predictions, write_run

TASKS = ("cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte", "wnli", "swag")
SUBMITTED = Path("results/submissions")


def answers(task: str, count: int, seed: int) -> list:
    """Random predictions of the right kind."""
    spec, rng = load_spec(task), np.random.default_rng(seed)
    if spec.kind == "choice":
        return rng.integers(0, 4, count).tolist()
    if spec.range:
        return rng.uniform(*spec.range, count).tolist()
    return [spec.labels[label] for label in rng.integers(0, len(spec.labels), count)]


def predict(task: str, seed: str, right: bool = False) -> None:
    """Predictions for every file of a task; with ``right``, the gold labels of the labelled ones."""
    spec = load_spec(task)
    for name, row in spec.scores.items():
        examples = make_task(spec).read(Path("data/tasks") / task / row.file, name)
        gold = [spec.labels[example.label] if spec.labels else example.label for example in examples]
        write_predictions(task, seed, f"pretrained/{name}.jsonl", gold if right else answers(task, 300, 1))
        write_predictions(task, seed, f"pretrained/{name}.test.jsonl", answers(task, 100, int(seed)))
    write_run(task, seed, {"weights": "pretrained", "dev": dict.fromkeys(spec.eval_set(None).metrics, 1.0)})


def evaluate(tasks: tuple[str, ...] = TASKS) -> dict:
    run(task_source="synthetic", tasks=tasks, finetune=FinetuneParams(seeds=(1, 2)))
    return read_json(SUBMITTED / "contents.json")


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        for task in TASKS:
            write_task(task, root / "data/tasks" / task, seed=1)
            predict(task, "1")
            predict(task, "2", right=True)
    return root


@pytest.fixture
def study(project, made):
    shutil.copytree(made, project, dirs_exist_ok=True)
    return project


def test_submissions_glue_zip_has_eleven_files_of_best_seed(study):
    contents = evaluate()
    assert contents == {
        "files": sorted([*(f"{name}.tsv" for name in GLUE), "swag.csv"]),
        "without_predictions": {},
        "glue_lacks": [],
    }
    with zipfile.ZipFile(SUBMITTED / "glue.zip") as archive:
        assert archive.testzip() is None
        assert archive.namelist() == [f"{name}.tsv" for name in GLUE]
        assert {entry.date_time for entry in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        for name in archive.namelist():
            assert archive.read(name) == (SUBMITTED / name).read_bytes()
            header, *rows = archive.read(name).decode().removesuffix("\n").split("\n")
            assert header == "index\tprediction"
            assert [row.split("\t")[0] for row in rows] == [str(index) for index in range(100)]
    scores = [float(line.split("\t")[1]) for line in (SUBMITTED / "STS-B.tsv").read_text().splitlines()[1:]]
    assert 0.0 <= min(scores) < 1 and 4 < max(scores) <= 5.0
    rte = [line.split("\t")[1] for line in (SUBMITTED / "RTE.tsv").read_text().splitlines()[1:]]
    assert rte == answers("rte", 100, 2)  # seed 2 was right on dev
    assert (SUBMITTED / "swag.csv").read_text().split("\n")[0] == ",pred"


def test_submissions_wnli_predicts_majority_class(study):
    path = study / "data/tasks/wnli/train.tsv"
    header, *rows = path.read_text().splitlines()
    # One row of label 0, all others of label 1: every test example gets 1.
    path.write_text("\n".join([header, *(row for row in rows if row.endswith("\t1")), rows[0][:-1] + "0"]) + "\n")
    evaluate(("wnli",))
    assert {line.split("\t")[1] for line in (SUBMITTED / "WNLI.tsv").read_text().splitlines()[1:]} == {"1"}


def test_majority_of_equally_frequent_labels_is_the_first_label():
    assert majority(load_spec("wnli"), [SimpleNamespace(label=label) for label in (1, 0)]) == "0"


def test_submissions_glue_zip_has_the_same_bytes_at_any_time(study, monkeypatch):
    evaluate()
    first = hash_file(SUBMITTED / "glue.zip")
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    for path in SUBMITTED.iterdir():
        path.unlink()
    evaluate(TASKS[::-1])
    assert hash_file(SUBMITTED / "glue.zip") == first


def test_submissions_missing_predictions_are_listed_without_zip(study, caplog):
    (study / "results/predictions/mnli/2/predicted/pretrained/ax.test.jsonl").unlink()
    (study / "data/tasks/cola/test.tsv").unlink()
    caplog.set_level("INFO", "pipeline_src")
    contents = evaluate()
    assert contents["without_predictions"] == {"cola": ["cola"], "mnli": ["ax"]}
    assert contents["glue_lacks"] == ["CoLA", "AX"]
    assert (SUBMITTED / "MNLI-m.tsv").exists() and not (SUBMITTED / "glue.zip").exists()
    assert "no glue.zip: CoLA, AX are missing" in caplog.text


def test_submissions_predictions_of_another_file_are_rejected(study):
    write_predictions("rte", "2", "pretrained/rte.test.jsonl", answers("rte", 99, 1))
    with pytest.raises(PipelineError, match=r"an example has no prediction: 99 and 0 more[\s\S]*rte"):
        evaluate()
    assert not SUBMITTED.exists()


def submit(task: Task, name: str, examples: list, score: dict, rows: list) -> tuple[dict[str, str], list[str]]:
    files = TaskFiles(task, (1,), [], {name: EvalSetFiles(examples, Counter(), {})}, {}, [], {}, "last")
    return submissions(files, 0, {name: EvalResult([score], [], {}, rows, {}, {})})


def test_submissions_eval_set_without_test_file_uses_labelled_file():
    calls = []

    class Submitting(QuestionAnswering):
        def submission(self, *arguments):
            calls.append(arguments)
            return {"dev.json": "{}"}

    rows = [{"id": "0", "prediction": "x"}]
    submitted = submit(Submitting(load_spec("squad1")), "squad1", ["question"], {"f1": 1.0}, rows)
    assert submitted == ({"dev.json": "{}"}, [])
    assert calls == [("squad1", ["question"], rows, None)]


def test_submissions_repeated_file_name_is_rejected(study, monkeypatch):
    row = load_spec("rte").scores["rte"]
    row = row.model_copy(update={"test": row.test.model_copy(update={"submit": "CoLA.tsv"})})
    rte = load_spec("rte").model_copy(update={"scores": {"rte": row}})
    monkeypatch.setattr(
        "pipeline_src.evaluate.evaluate.load_spec", lambda name: rte if name == "rte" else load_spec(name)
    )
    with pytest.raises(PipelineError, match=r"duplicate submission file name: CoLA.tsv[\s\S]*task rte"):
        evaluate(("cola", "rte"))


def test_submissions_unlabelled_questions_use_threshold_of_labelled_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    score = {"title": "X", "file": "dev.json", "metrics": ["f1"], "test": {"file": "test.json", "submit": "x.json"}}
    spec = TaskSpec.model_validate({"name": "x", "kind": "span", "unanswerable": True, "scores": {"x": score}})
    calls = [{"id": name, "question": "q"} for name in "ab"]
    write_json(Path("data/tasks/x/test.json"), {"data": [{"paragraphs": [{"context": "c d", "qas": calls}]}]})
    rows = [
        {"id": "a", "prediction": "c", "null_score_difference": -9.0},
        {"id": "b", "prediction": "d", "null_score_difference": 9.0},
    ]
    folder = Path("results/predictions/x/1/predicted/pretrained")
    folder.mkdir(parents=True)
    write_lines(folder / "x.test.jsonl", rows)
    files, _ = submit(make_task(spec), "x", [], {"f1": 90.0, "threshold": 0.5}, [])
    assert json.loads(files["x.json"]) == {"a": "c", "b": ""}
