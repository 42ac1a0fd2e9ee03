"""Fine-tuning as a stage: every prediction file, the best of the grid, and the same bytes again."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from pipeline_src.errors import PipelineError
from pipeline_src.files import hash_file, read_json, write_json
from pipeline_src.models.bert import BertConfig, initialise
from pipeline_src.models.heads import BertForPretraining
from pipeline_src.models.hub import save_model
from pipeline_src.params.finetune import FinetuneParams, Recipe
from pipeline_src.sources.synthetic import write_task
from pipeline_src.tasks.features import Features
from pipeline_src.training.finetune import run
from pipeline_src.training.task_batches import evaluation_batches, make_batch, training_batches
from pipeline_src.vocabulary.counting import count_words
from pipeline_src.vocabulary.learn import learn_vocabulary
from pipeline_src.vocabulary.wordpiece import save_tokenizer

CPU = torch.device("cpu")


def params(**recipe) -> FinetuneParams:
    short = {"learning_rates": (1e-3,), "epochs": 1, "batch": 64, "max_length": 64, **recipe}
    return FinetuneParams(default=Recipe(**short), random_baseline=True)


@pytest.fixture(scope="module")
def study(tmp_path_factory) -> Path:
    """A random encoder with a vocabulary of the task's own words, and three small task sets."""
    root = tmp_path_factory.mktemp("study")
    for task in ("sst2", "squad2", "swag"):
        write_task(task, root / "data/tasks" / task, seed=1)
    text = [path.read_text(encoding="utf-8") for path in sorted((root / "data/tasks").rglob("*")) if path.is_file()]
    folder = root / "models/pretrained/long"
    (folder / "v").mkdir(parents=True)
    pieces = learn_vocabulary(count_words(text, lowercase=True), 600, 80, 2)
    save_tokenizer(folder / "v", pieces, lowercase=True)
    config = BertConfig(len(pieces), 64, 1, 1, 128, 64)
    model = BertForPretraining(config)
    initialise(model, torch.Generator().manual_seed(0))
    save_model(folder, model, config, "BertForPreTraining", folder / "v")
    return root


def test_a_grid_keeps_its_best_run_and_every_score(study, monkeypatch):
    monkeypatch.chdir(study)
    run(seed=1, finetune=params(learning_rates=(1e-6, 2e-3), epochs=2), task="sst2", restart="1")
    found = read_json("results/predictions/sst2/1/run.json")
    assert [(r["weights"], r["learning_rate"]) for r in found["runs"]] == [
        (weights, rate) for weights in ("pretrained", "random") for rate in (1e-6, 2e-3)
    ]
    best = max(r["dev"]["accuracy"] for r in found["runs"][:2])
    lines = Path("results/predictions/sst2/1/pretrained/sst2.jsonl").read_text(encoding="utf-8").splitlines()
    gold = [line.split("\t")[-1] for line in Path("data/tasks/sst2/dev.tsv").read_text().splitlines()[1:]]
    right = [json.loads(line)["prediction"] == label for line, label in zip(lines, gold, strict=True)]
    assert 100 * np.mean(right) == pytest.approx(best)


@pytest.mark.parametrize("task", ["squad2", "swag"])
def test_every_kind_of_task_goes_through(study, monkeypatch, task):
    monkeypatch.chdir(study)
    run(seed=1, finetune=params(), task=task, restart="1")
    assert sorted(path.name for path in Path(f"results/predictions/{task}/1").iterdir()) == [
        "pretrained",
        "random",
        "run.json",
    ]
    transformers = pytest.importorskip("transformers")
    name = {"squad2": "BertForQuestionAnswering", "swag": "BertForMultipleChoice"}[task]
    _, info = getattr(transformers, name).from_pretrained(f"models/finetuned/{task}/1", output_loading_info=True)
    assert not info["missing_keys"]


def test_a_left_to_right_model_stays_one_and_gets_an_lstm(study, tmp_path, monkeypatch):
    shutil.copytree(study / "data", tmp_path / "data")
    shutil.copytree(study / "models/pretrained", tmp_path / "models/pretrained")
    config = tmp_path / "models/pretrained/long/config.json"
    write_json(config, {**read_json(config), "is_decoder": True})
    monkeypatch.chdir(tmp_path)
    run(seed=1, finetune=params().model_copy(update={"bilstm": True}), task="sst2", restart="1")
    assert read_json("models/finetuned/sst2/1/config.json")["is_decoder"]
    names = load_file("models/finetuned/sst2/1/model.safetensors").keys()
    assert sum(name.startswith("bilstm.") for name in names) == 8


def test_same_bytes_again_and_another_restart_differs(study, monkeypatch):
    monkeypatch.chdir(study)
    hashes = []
    for restart in ("1", "1", "2"):
        run(seed=1, finetune=params(), task="sst2", restart=restart)
        hashes.append(hash_file(f"models/finetuned/sst2/{restart}/model.safetensors"))
    assert hashes[0] == hashes[1] != hashes[2]


def test_a_bad_label_stops_before_training_and_leaves_no_model(study, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models/pretrained").mkdir(parents=True)
    (tmp_path / "models/pretrained/long").symlink_to(study / "models/pretrained/long")
    write_task("sst2", tmp_path / "data/tasks/sst2", seed=1)
    dev = tmp_path / "data/tasks/sst2/dev.tsv"
    lines = dev.read_text(encoding="utf-8").splitlines()
    lines[7] = lines[7].rsplit("\t", 1)[0] + "\tmaybe"
    dev.write_text("\n".join(lines) + "\n", encoding="utf-8")
    with pytest.raises(PipelineError, match=r"maybe[\s\S]*dev.tsv:8"):
        run(seed=1, finetune=params(), task="sst2", restart="1")
    assert not Path("models/finetuned").exists() and not Path("results/predictions").exists()


def features(per_item: int = 1) -> Features:
    lengths = np.arange(1, 13)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    ids = np.repeat(np.arange(12), lengths)
    items = 12 // per_item
    return Features(
        ids.astype(np.int32), (ids % 2).astype(np.int8), starts, np.arange(items), np.arange(items), per_item
    )


def test_batches_hold_the_sequences_of_their_items():
    batch = make_batch(features(per_item=3), np.asarray([2, 0]), CPU)
    assert batch.ids.tolist() == [n for n in (6, 7, 8, 0, 1, 2) for _ in range(n + 1)]
    assert batch.starts.tolist() == [0, 7, 15, 24, 25, 27, 30] and batch.labels.tolist() == [2, 0]


def test_training_sees_every_item_once_an_epoch():
    batches = list(training_batches(features(), 5, 2, stream=3, device=CPU))
    assert [len(batch.labels) for batch in batches] == [5, 5, 2, 5, 5, 2]
    seen = [label for batch in batches for label in batch.labels.tolist()]
    assert sorted(seen[:12]) == sorted(seen[12:]) == list(range(12)) and seen[:12] != seen[12:]


@pytest.mark.parametrize("tokens", [1, 20, 1000])
@pytest.mark.parametrize("per_item", [1, 4])
def test_evaluation_keeps_the_order_and_the_budget(tokens, per_item):
    batches = list(evaluation_batches(features(per_item), tokens, CPU))
    assert [label for batch in batches for label in batch.labels.tolist()] == list(range(12 // per_item))
    assert all(len(batch.ids) <= tokens or len(batch.labels) == 1 for batch in batches)
