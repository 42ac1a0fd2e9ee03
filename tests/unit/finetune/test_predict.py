"""Predicting with a fine-tuned folder alone gives what the stage wrote, and what transformers gives."""

from __future__ import annotations

import ast
import json
import re
import shutil
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import softmax

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import read_json, write_json
from pipeline_src.finetune.predict import TaskPredictor, load
from pipeline_src.model.bert import initialise, load_architecture
from pipeline_src.model.hub import save_model
from pipeline_src.study.model import ModelParams
from pipeline_src.study.task_spec import load_spec
from pipeline_src.tasks.examples import TextExample
from pipeline_src.tasks.made.synthetic import write_task
from tests.unit.finetune import conftest
from tests.unit.finetune.conftest import predictions, recorded_runs

TASKS = ("sst2", "rte", "stsb", "swag", "squad1", "squad2", "pos")
PLAIN = (*TASKS, "qnli_retrieval")
HEADS = {
    "first_last": {"pooling": "first_last"},
    "bi_encoder": {"pair_head": "bi_encoder"},
    "bilstm": {"bilstm": True},
    "frozen": {"feature_layers": "weighted_all"},
    "frozen and concatenated": {"feature_layers": "concat_last_four"},
}
CASES = [
    *((task, {}) for task in PLAIN),
    *((task, HEADS["first_last"]) for task in ("sst2", "swag")),
    *((task, HEADS["bi_encoder"]) for task in ("rte", "stsb")),
    *((task, HEADS["bilstm"]) for task in ("sst2", "squad1", "pos")),
    *((task, HEADS["frozen"]) for task in ("sst2", "squad2", "pos")),
    ("swag", HEADS["frozen and concatenated"]),
]


def cut(root: Path) -> None:
    """Leave ten examples, or a few more, of each file."""
    write_task("qnli", root / "data/tasks/qnli_retrieval", seed=1)
    for file in (root / "data/tasks").rglob("*.*"):
        text = file.read_text(encoding="utf-8")
        if file.suffix == ".json":
            content = json.loads(text)
            content["data"] = content["data"][:1]
            content["data"][0]["paragraphs"] = content["data"][0]["paragraphs"][:4]
            write_json(file, content)
        elif file.suffix == ".conllu":
            file.write_text("\n\n".join(text.split("\n\n")[:10]) + "\n\n", encoding="utf-8")
        else:
            # A third of QNLI's pairs are to be ranked.
            count = 31 if "retrieval" in file.parent.name else 11
            file.write_text("".join(text.splitlines(keepends=True)[:count]), encoding="utf-8")


@pytest.fixture(scope="module")
def inputs(make_study: Callable[..., Path]) -> Path:
    """A random encoder of four layers and ten examples of each kind of task."""
    return make_study(TASKS, layers=4, change=cut)


def fine_tune(task: str, architecture: str = "bert", **changes: Any) -> Path:
    recipe = {"learning_rates": 1e-2, "epochs": 2, "batch_sizes": 4, "max_length": 48, **changes}
    size = ModelParams(architecture=architecture, num_hidden_layers=4, hidden_size=64)
    return conftest.fine_tune(task, size=size, **recipe)


def elsewhere(folder: Path, task: str, monkeypatch: pytest.MonkeyPatch) -> tuple[TaskPredictor, Path]:
    """Copy a model and its evaluation file away from the study, and load it there."""
    file = Path("data/tasks", task, load_spec(task).eval_set(None).file).absolute()
    alone = folder.absolute().parents[4].with_name("alone")
    shutil.copytree(folder, alone / "model")
    copied = shutil.copy(file, alone)
    monkeypatch.chdir(alone)
    return load("model"), Path(copied)


def assert_equal(rows: list[dict[str, Any]], expected: list[dict[str, Any]], predictor: TaskPredictor) -> None:
    """Compare the tool's rows with the stage's."""
    settings = predictor.settings
    assert [row["id"] for row in rows] == [row["id"] for row in expected]
    for row, stage in zip(rows, expected, strict=True):
        is_unanswered = settings.task.unanswerable and stage["null_score_difference"] > settings.threshold
        assert row["prediction"] == ("" if is_unanswered else stage["prediction"])
        if "outputs" in stage:
            classes = settings.task.labels or map(str, range(4))
            assert row["probabilities"] == dict(zip(classes, softmax(stage["outputs"]).tolist(), strict=True))
        elif settings.task.kind == "tagging":
            assert np.mean(row["probabilities"]) == stage["confidence"]
        elif settings.task.kind == "span":
            (best,) = (span for span in stage["nbest"] if span["text"] == row["prediction"])
            assert (row["start"], row["end"], row["confidence"]) == (best["start"], best["end"], best["probability"])


@pytest.mark.parametrize(("task", "changes"), CASES, ids=[f"{task} {' '.join(map(str, c))}" for task, c in CASES])
def test_load_copied_folder_repeats_predictions_of_the_stage(study, monkeypatch, task, changes):
    folder = fine_tune(task, **changes)
    expected = predictions(task)
    predictor, file = elsewhere(folder, task, monkeypatch)
    assert_equal(predictor(predictor.read(file)), expected, predictor)
    assert len(expected) >= 4


@pytest.mark.parametrize(
    ("architecture", "task", "options"),
    [
        ("word_vectors", "rte", {}),
        ("word_vectors", "sst2", {}),
        ("bilstm", "rte", {"feature_layers": "weighted_with_embeddings"}),
        ("modernbert", "sst2", {}),
        ("deberta_v2", "rte", {}),
        ("distilbert", "squad1", {}),
    ],
)
def test_load_every_architecture_repeats_predictions_of_the_stage(study, monkeypatch, architecture, task, options):
    folder = Path("models/pretrained/phase2")
    shutil.copytree(folder, "vocabulary")
    shutil.rmtree(folder)
    folder.mkdir()
    kind = load_architecture(architecture)
    entries = read_json("vocabulary/config.json")["vocab_size"]
    size = ModelParams(architecture=architecture, num_hidden_layers=4, hidden_size=64)
    config = kind.config.from_params(size, entries)
    encoder = kind.encoder(config)
    initialise(encoder, torch.Generator().manual_seed(0))
    tensors = {f"bert.{name}": tensor for name, tensor in encoder.state_dict().items()}
    save_model(folder, tensors, config, config.names.classes["masked_lm"], Path("vocabulary"))
    saved = fine_tune(task, architecture, **options)
    expected = predictions(task)
    predictor, file = elsewhere(saved, task, monkeypatch)
    assert_equal(predictor(predictor.read(file)), expected, predictor)


def texts_of(examples: list[Any]) -> list[list[str]]:
    return [list(texts) for texts in zip(*(example.texts for example in examples), strict=True)]


@pytest.mark.parametrize("task", ["sst2", "rte", "stsb"])
def test_predictor_texts_equal_transformers(study, monkeypatch, task):
    transformers = pytest.importorskip("transformers")
    predictor, file = elsewhere(fine_tune(task), task, monkeypatch)
    examples = predictor.read(file)
    peer = transformers.AutoModelForSequenceClassification.from_pretrained("model").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained("model")
    with torch.no_grad():
        logits = peer(**tokenizer(*texts_of(examples), padding=True, return_tensors="pt")).logits
    rows = predictor(examples)
    if task == "stsb":
        assert [row["prediction"] for row in rows] == pytest.approx(logits[:, 0].clip(0, 5).tolist(), abs=1e-5)
        return
    for row, expected in zip(rows, logits.softmax(1).tolist(), strict=True):
        named = {peer.config.id2label[index]: probability for index, probability in enumerate(expected)}
        assert row["probabilities"] == pytest.approx(named, abs=1e-5)
        assert row["prediction"] == max(named, key=named.__getitem__)


def test_predictor_choices_equal_transformers(study, monkeypatch):
    transformers = pytest.importorskip("transformers")
    predictor, file = elsewhere(fine_tune("swag"), "swag", monkeypatch)
    examples = predictor.read(file)
    peer = transformers.AutoModelForMultipleChoice.from_pretrained("model").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained("model")
    for example, row in zip(examples, predictor(examples), strict=True):
        inputs = tokenizer([example.context] * 4, list(example.endings), padding=True, return_tensors="pt")
        with torch.no_grad():
            logits = peer(**{name: tensor[None] for name, tensor in inputs.items()}).logits[0]
        assert row["prediction"] == int(logits.argmax())
        assert list(row["probabilities"].values()) == pytest.approx(logits.softmax(0).tolist(), abs=1e-5)


def test_predictor_spans_equal_transformers(study, monkeypatch):
    transformers = pytest.importorskip("transformers")
    predictor, file = elsewhere(fine_tune("squad1", max_length=64), "squad1", monkeypatch)
    examples = predictor.read(file)
    peer = transformers.AutoModelForQuestionAnswering.from_pretrained("model").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained("model")
    compared = 0
    for example, row in zip(examples, predictor(examples), strict=True):
        inputs = tokenizer(example.question, example.context, return_tensors="pt", return_offsets_mapping=True)
        offsets = inputs.pop("offset_mapping")[0].tolist()
        if len(offsets) > 64:
            continue
        with torch.no_grad():
            outputs = peer(**inputs)
        scores = outputs.start_logits[0][:, None] + outputs.end_logits[0][None, :]
        in_context = torch.tensor([sequence == 1 for sequence in inputs.sequence_ids(0)])
        allowed = (in_context[:, None] & in_context[None, :]).triu() & ~torch.ones_like(scores, dtype=bool).triu(30)
        first, last = divmod(int(scores.masked_fill(~allowed, -torch.inf).argmax()), len(offsets))
        assert row["prediction"] == example.context[offsets[first][0] : offsets[last][1]]
        assert (row["start"], row["end"]) == (offsets[first][0], offsets[last][1])
        compared += 1
    assert compared


def test_predictor_tags_equal_transformers(study, monkeypatch):
    transformers = pytest.importorskip("transformers")
    predictor, file = elsewhere(fine_tune("pos"), "pos", monkeypatch)
    examples = predictor.read(file)
    assert not any(example.tags for example in examples)
    rows = predictor(examples)
    peer = transformers.AutoModelForTokenClassification.from_pretrained("model").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained("model")
    compared = 0
    for _, group in groupby(zip(examples, rows, strict=True), lambda pair: pair[0].document):
        document = list(group)
        words = [word for example, _ in document for word in example.words]
        inputs = tokenizer(words, is_split_into_words=True, return_tensors="pt")
        if inputs["input_ids"].shape[1] > 48:
            continue
        with torch.no_grad():
            probabilities = peer(**inputs).logits[0].softmax(1)
        first = [inputs.word_ids().index(number) for number in range(len(words))]
        best = probabilities[first].max(1)
        assert [tag for _, row in document for tag in row["prediction"]] == [
            peer.config.id2label[index] for index in best.indices.tolist()
        ]
        predicted = [probability for _, row in document for probability in row["probabilities"]]
        assert predicted == pytest.approx(best.values.tolist(), abs=1e-5)
        compared += len(document)
    assert compared > 3


def test_predictor_text_longer_than_max_length_is_truncated(study):
    predictor = load(fine_tune("sst2", max_length=16))
    texts = ["a fine film", "a film " * 40]
    rows = predictor([TextExample(str(index), (text,)) for index, text in enumerate(texts)])
    assert len(rows) == 2 and all(sum(row["probabilities"].values()) == pytest.approx(1) for row in rows)
    (shorter,) = predictor([TextExample("1", ("a film " * 7,))])
    assert shorter["probabilities"] == pytest.approx(rows[1]["probabilities"]), "cut to 16 tokens as in the training"


@pytest.mark.parametrize("task", ["sst2", "squad1", "pos", "swag"])
def test_predictor_of_no_examples_returns_no_predictions(study, task):
    assert load(fine_tune(task))([]) == []


def write_years(catalogue: Path) -> None:
    """Write the task years: that of stsb, with years from 1900 to 2020 in place of numbers from 0 to 5."""
    entry = (catalogue / "tasks/stsb.yaml").read_text()
    entry = entry.replace("[0, 5]", "[1900, 2020]").replace("stsb:", "years:").replace("STS-B.tsv", "Years.tsv")
    (catalogue / "tasks/years.yaml").write_text(entry)
    shutil.copytree("data/tasks/stsb", "data/tasks/years")
    for name in ("train.tsv", "dev.tsv"):
        file = Path("data/tasks/years", name)
        header, *lines = file.read_text().splitlines()
        rows = [line.rpartition("\t") for line in lines]
        years = [f"{texts}\t{1900 + 24 * float(number)}" for texts, _, number in rows]
        file.write_text("\n".join([header, *years, ""]))


@pytest.mark.parametrize("changes", [{}, {"pair_head": "bi_encoder"}], ids=["cross_encoder", "bi_encoder"])
def test_finetune_regression_reaches_values_far_from_0(study, catalogue, changes):
    write_years(catalogue)
    predictor = load(fine_tune("years", **changes))
    stage = [row["prediction"] for row in predictions("years")]
    assert 1900 < min(stage) < max(stage) < 2020
    assert len(predictions("years", "years.test")) == 10
    alone = predictor(predictor.read("data/tasks/years/dev.tsv"))
    assert [row["prediction"] for row in alone] == pytest.approx(stage, abs=1e-3)


def test_predictor_years_equal_transformers(study, catalogue):
    transformers = pytest.importorskip("transformers")
    write_years(catalogue)
    folder = fine_tune("years")
    predictor = load(folder)
    examples = predictor.read("data/tasks/years/dev.tsv")
    peer = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        years = peer(**tokenizer(*texts_of(examples), padding=True, return_tensors="pt")).logits[:, 0]
    assert [row["prediction"] for row in predictor(examples)] == pytest.approx(
        years.clip(1900, 2020).tolist(), abs=1e-3
    )


def test_load_works_without_catalogue_entry(study, catalogue):
    folder = fine_tune("squad2", max_length=40)
    spec = load_spec("squad2")
    shutil.rmtree(catalogue)
    load_spec.cache_clear()
    settings = load(folder).settings
    assert settings.max_length == 40 and settings.task == spec
    assert settings.threshold == recorded_runs("squad2")[0]["dev"]["threshold"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda config: config.pop("finetune"), "not a fine-tuned model: no finetune in config.json"),
        (lambda config: config["finetune"].pop("max_length"), "a key is missing: max_length"),
        (lambda config: config["finetune"]["task"].update(kind="song"), "value not allowed: task.kind"),
        (lambda config: config["finetune"]["task"].update(labels=["a", "b", "c"]), "weights do not fit the config"),
        (lambda config: config["finetune"].update(bilstm=True), "weights do not fit the config"),
        (lambda config: config["finetune"].update(feature_layers="last"), "weights do not fit the config"),
    ],
)
def test_load_invalid_settings_are_rejected(study, change, message):
    folder = fine_tune("sst2")
    config = read_json(folder / "config.json")
    change(config)
    write_json(folder / "config.json", config)
    with pytest.raises(PipelineError, match=message):
        load(folder)


def test_documented_python_example_prints_predictions(study, root, capsys):
    fine_tune("rte")
    text = (root / "docs/tasks.md").read_text(encoding="utf-8")
    (program,) = (
        block for block in re.findall(r"^```python\n(.*?)^```", text, re.M | re.S) if "predict import" in block
    )
    exec(program, {})
    rows, mine = map(ast.literal_eval, capsys.readouterr().out.splitlines())
    assert [row["prediction"] for row in rows] == [row["prediction"] for row in predictions("rte", "rte.test")[:2]]
    assert mine[0]["id"] == "mine" and set(mine[0]["probabilities"]) == {"entailment", "not_entailment"}


@pytest.mark.parametrize(("changes", "name"), [({}, "BertForSequenceClassification"), ({"bilstm": True}, "BertModel")])
def test_model_card_of_model_with_lstm_names_encoder_class(study, changes, name):
    text = (fine_tune("sst2", **changes) / "README.md").read_text(encoding="utf-8")
    assert f"{name}.from_pretrained" in text and "pipeline_src predict sst2 FILE --model FOLDER" in text
