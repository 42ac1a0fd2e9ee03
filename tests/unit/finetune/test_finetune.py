"""Fine-tuning as a stage: every prediction file, the best of the grid, and the same bytes again."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from pipeline_src.base.errors import Interrupted, PipelineError
from pipeline_src.base.files import hash_file, read_json, write_json
from pipeline_src.finetune.distillation import load_task_teacher
from pipeline_src.finetune.heads import BertForTask
from pipeline_src.finetune.task_data import TaskData
from pipeline_src.finetune.task_model import label_names
from pipeline_src.finetune.task_trainer import TaskTrainer
from pipeline_src.model.bert import sinusoids
from pipeline_src.model.hub import load_config
from pipeline_src.study.machine import Machine
from pipeline_src.study.task_spec import load_spec
from pipeline_src.tokenizer.load import load_tokenizer
from tests.unit.finetune.conftest import MODEL, fine_tune, predictions, recorded_runs, stop_after, watch_steps
from tests.unit.finetune.test_task_trainer import task_trainer
from tests.unit.old_gpu import show_an_old_gpu


@pytest.fixture(scope="module")
def inputs(make_study) -> Path:
    """A random encoder with a vocabulary of the task's own words, and small task sets."""
    return make_study(("sst2", "squad2", "swag", "stsb", "rte"), layers=1)


def test_finetune_grid_saves_best_run_and_predicts_test_file(study):
    fine_tune(learning_rates=(1e-6, 2e-3), epochs=(1, 2), batch_sizes=(32, 64), random_baseline=True)
    runs = recorded_runs()
    points = [(epochs, batch, rate) for epochs in (1, 2) for batch in (32, 64) for rate in (1e-6, 2e-3)]
    assert [(run["weights"], run["epochs"], run["batch"], run["learning_rate"]) for run in runs] == [
        (weights, *point) for weights in ("pretrained", "random") for point in points
    ]
    best = max(run["dev"]["accuracy"] for run in runs[:8])
    gold = [line.split("\t")[-1] for line in Path("data/tasks/sst2/dev.tsv").read_text().splitlines()[1:]]
    correct = [row["prediction"] == label for row, label in zip(predictions(), gold, strict=True)]
    assert 100 * np.mean(correct) == pytest.approx(best)
    test = Path("data/tasks/sst2/test.tsv").read_text(encoding="utf-8").splitlines()
    rows = predictions(file="sst2.test")
    assert len(rows) == len(test) - 1 and {row["prediction"] for row in rows} <= {"0", "1"}


def test_finetune_random_baseline_uses_position_init_of_study(study, monkeypatch):
    drawn, model_of = [], TaskTrainer.model

    def draw(trainer: TaskTrainer) -> BertForTask:
        model = model_of(trainer)
        drawn.append(model.bert.embeddings.position_embeddings.weight.detach().clone())
        return model

    monkeypatch.setattr(TaskTrainer, "model", draw)
    started = MODEL.model_copy(update={"position_init": "neighbor_heads"})
    fine_tune("swag", size=started, random_baseline=True)
    assert torch.equal(drawn[0], sinusoids(*drawn[0].shape))
    assert "position_init" not in read_json("models/finetuned/swag/1/kept-model/config.json")


@pytest.mark.parametrize(
    ("task", "name"),
    [("squad2", "QuestionAnswering"), ("swag", "MultipleChoice"), ("sst2", "SequenceClassification")],
)
def test_finetune_saved_model_is_loaded_by_transformers_with_equal_outputs(study, task, name):
    transformers = pytest.importorskip("transformers")
    folder = fine_tune(task, learning_rates=(2e-3, 1e-6))
    model, info = getattr(transformers, f"BertFor{name}").from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    assert read_json(folder / "tokenizer_config.json")["model_max_length"] == model.config.max_position_embeddings
    if task == "sst2":
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        texts = [line.split("\t")[0] for line in Path("data/tasks/sst2/dev.tsv").read_text().splitlines()[1:40]]
        with torch.no_grad():
            logits = model.eval()(**tokenizer(texts, padding=True, return_tensors="pt")).logits
        np.testing.assert_allclose([row["outputs"] for row in predictions()[:39]], logits, atol=1e-5)


@pytest.mark.parametrize("task", ["stsb", "rte", "sst2"])
def test_finetune_bi_encoder_changes_only_pair_tasks(study, task):
    result = []
    for pair_head in ("cross_encoder", "bi_encoder"):
        folder = fine_tune(task, pair_head=pair_head)
        result.append((predictions(task), read_json(folder / "config.json")["architectures"]))
    (cross_encoder, _), (bi_encoder, classes) = result
    assert (cross_encoder == bi_encoder) is (task == "sst2")
    assert classes == (["BertForSequenceClassification"] if task == "sst2" else ["BertModel"])
    assert len(predictions(task, f"{task}.test")) > 1


def test_finetune_causal_encoder_stays_causal_with_bilstm(study):
    config = Path("models/pretrained/phase2/config.json")
    write_json(config, {**read_json(config), "is_decoder": True})
    folder = fine_tune(bilstm=True)
    assert read_json(folder / "config.json")["is_decoder"]
    # transformers has no class that reads the LSTM.
    assert read_json(folder / "config.json")["architectures"] == ["BertModel"]
    names = load_file(folder / "model.safetensors").keys()
    assert sum(name.startswith("bilstm.") for name in names) == 8


def test_finetune_dropout_overrides_dropout_of_encoder(study):
    losses = []
    for dropout in (0.0, 0.3):
        kept = read_json(fine_tune(dropout=dropout) / "config.json")
        assert {kept[f"{part}_dropout_prob"] for part in ("hidden", "attention_probs")} == {dropout}
        losses.append(recorded_runs()[0]["train_loss"])
    assert losses[0] != losses[1]


def test_finetune_class_weights_change_only_classification(study):
    train = Path("data/tasks/sst2/train.tsv")
    header, *lines = train.read_text(encoding="utf-8").splitlines(keepends=True)
    few = [line for line in lines if line.endswith("1\n")][:40]
    train.write_text("".join([header, *few, *(line for line in lines if line.endswith("0\n"))]), encoding="utf-8")
    losses = {}
    for task in ("sst2", "stsb"):
        for weights in (None, "balanced"):
            fine_tune(task, class_weights=weights)
            losses[task, weights] = recorded_runs(task)[0]["train_loss"]
    assert losses["sst2", "balanced"] > losses["sst2", None] + 0.1, "the few count as much as the many"
    assert losses["stsb", "balanced"] == losses["stsb", None]


def test_load_task_teacher_first_last_pooling_is_restored(study):
    folder = fine_tune(pooling="first_last")
    kept = read_json(folder / "config.json", dict)
    assert (kept["finetune"]["pooling"], kept["architectures"]) == ("first_last", ["BertModel"])
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert "`classifier.weight`" in card and "averaged over all tokens of a text but the first and the last" in card
    teacher = load_task_teacher(
        folder, "sequence", 2, load_config(folder), load_tokenizer(folder), torch.device("cpu"), layers=False
    )
    trainer, data = task_trainer(folder), TaskData(load_spec("sst2"), folder, 64)
    result = [row["prediction"] for row in trainer.predict(teacher, data.eval_set("sst2"))]
    assert result == [row["prediction"] for row in predictions()]


@pytest.mark.parametrize(("rate", "row"), [(None, None), (0.002, "| head_learning_rate | 0.002 |")])
def test_model_card_names_head_learning_rate_if_there_is_one(study, rate, row):
    card = (fine_tune(head_learning_rate=rate) / "README.md").read_text(encoding="utf-8")
    assert "| learning_rate | " in card and ("head_learning_rate" in card) == (rate is not None)
    assert row is None or row in card


def test_finetune_same_seed_writes_same_bytes(study):
    hashes = []
    for seed in ("1", "1", "2"):
        hashes.append(hash_file(fine_tune(seed=seed) / "model.safetensors"))
    assert hashes[0] == hashes[1] != hashes[2]


def test_finetune_bad_label_is_rejected_and_leaves_no_output(study):
    dev = study / "data/tasks/sst2/dev.tsv"
    dev.write_text(dev.read_text(encoding="utf-8") + "a film\tmaybe\n", encoding="utf-8")
    with pytest.raises(PipelineError, match=r"maybe[\s\S]*dev.tsv:"):
        fine_tune()
    assert not Path("models/finetuned").exists() and not Path("results/predictions").exists()


def test_finetune_unsupported_machine_setting_is_rejected_before_training(study, monkeypatch):
    """Regression test: training ran to its end before the prediction failed on the GPU."""
    # No trainer is made.
    monkeypatch.setattr("pipeline_src.finetune.task_trainer.make_trainer", None)
    with pytest.raises(PipelineError, match="this attention needs a GPU: flash_varlen, on cpu"):
        fine_tune(machine=Machine(attention="flash_varlen"))
    show_an_old_gpu(monkeypatch)
    with pytest.raises(PipelineError, match="this GPU has no bfloat16: Tesla T4"):
        fine_tune(machine=Machine(precision="bfloat16"))


@pytest.mark.parametrize(("task", "labels"), [("mnli", 3), ("stsb", 1), ("sst2", 2), ("squad1", None)])
def test_label_names_equal_transformers(task, labels):
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(**label_names(load_spec(task)))
    if labels is None:
        assert not label_names(load_spec(task))
    else:
        assert config.num_labels == labels and (config.problem_type == "regression") is (task == "stsb")
    if task == "mnli":
        assert config.id2label[1] == "entailment"


@pytest.mark.parametrize(
    ("after", "recipe"),
    [(3, {}), (17, {}), (40, {}), (25, {"epochs": 3, "select": "best"})],
)
def test_finetune_stopped_anywhere_resumes_with_same_bytes(study, monkeypatch, after, recipe):
    wanted = {"learning_rates": (1e-3, 2e-3), "random_baseline": True, **recipe}
    fine_tune(**wanted)
    uninterrupted = hashes_of_outputs()
    for folder in ("models/finetuned", "results", "data/baselines"):
        shutil.rmtree(folder)
    with monkeypatch.context() as patch:
        stop_after(after, patch)
        with pytest.raises(Interrupted, match="checkpoint is saved"):
            fine_tune(**wanted)
    assert not hashes_of_outputs()
    steps = []
    watch_steps(steps.append, monkeypatch)
    fine_tune(**wanted)
    assert hashes_of_outputs() == uninterrupted
    batches = -(-len(Path("data/tasks/sst2/train.tsv").read_text().splitlines()[1:]) // 64)
    assert len(steps) == 4 * recipe.get("epochs", 1) * batches - after, "steps before the stop were repeated"
    assert not list(Path("checkpoints/finetune/sst2/1").iterdir())


@pytest.mark.parametrize(
    ("rate", "effect"),
    [(0.0, "last bits may differ by rounding"), (0.1, "dropout may draw other masks from here on")],
)
def test_finetune_resumed_with_other_microbatches_logs_what_changes(study, monkeypatch, caplog, rate, effect):
    with monkeypatch.context() as patch:
        stop_after(3, patch)
        with pytest.raises(Interrupted):
            fine_tune(dropout=rate)
    fine_tune(dropout=rate, machine=Machine.model_validate({"finetune": {"microbatch_tokens": 500}}))
    assert f"so {effect}" in caplog.text and "microbatch_tokens 16384 there, 500 here" in caplog.text


@pytest.mark.parametrize("rate", [0.0, 0.1])
def test_finetune_microbatch_tokens_change_loss_only_by_rounding_without_dropout(study, rate):
    losses = []
    for tokens in (16384, 500):
        machine = Machine.model_validate({"finetune": {"microbatch_tokens": tokens}})
        fine_tune(dropout=rate, machine=machine)
        losses.append(recorded_runs()[0]["train_loss"])
    assert (abs(losses[0] - losses[1]) <= 2e-5) == (rate == 0)


def test_finetune_random_baseline_is_reused_for_encoder_of_same_config(study, monkeypatch):
    """What `dvc exp run -S mask_prob=0.2` changes is pretraining, on which random weights do not depend."""
    steps, baseline = [], Path("results/predictions/sst2/1/predicted/random/sst2.jsonl")
    watch_steps(steps.append, monkeypatch)
    folder = Path("models/pretrained/phase2")
    fine_tune(random_baseline=True)
    num_steps, expected = len(steps), hash_file(baseline)
    tensors = load_file(folder / "model.safetensors")
    save_file({name: tensor * 1.1 for name, tensor in tensors.items()}, folder / "model.safetensors")
    fine_tune(random_baseline=True)
    assert len(steps) == num_steps + num_steps // 2
    assert hash_file(baseline) == expected
    for change in ("recipe", "tokenizer"):
        del steps[:]
        if change == "tokenizer":
            file = folder / "tokenizer.json"
            file.write_text(file.read_text(encoding="utf-8") + "\n", encoding="utf-8")
        fine_tune(random_baseline=True, **({"dropout": 0.2} if change == "recipe" else {}))
        assert len(steps) == num_steps, f"another {change}, another baseline"


def test_finetune_random_weights_use_their_own_grid(study):
    own = {"random_learning_rates": (1e-4, 2e-3), "random_epochs": 2, "random_baseline": True, "label_counts": (40,)}
    fine_tune(**own)
    runs = recorded_runs()
    points = [("pretrained", 1, 1e-3), ("random", 2, 1e-4), ("random", 2, 2e-3)]
    assert [(run["weights"], run["epochs"], run["learning_rate"]) for run in runs] == points
    best = max(runs[1:], key=lambda run: run["main"])
    (part,) = Path("data/baselines/sst2/1-40-labels").glob("*/runs.json")
    (part_run,) = read_json(part)["runs"]
    assert part_run["learning_rate"] == best["learning_rate"], "parts are learnt at the best point of their weights"
    (baseline,) = Path("data/baselines/sst2/1").iterdir()
    fine_tune(**own | {"learning_rates": 5e-4, "epochs": 2, "label_counts": ()})
    assert list(Path("data/baselines/sst2/1").iterdir()) == [baseline], "a baseline depends on its own grid alone"


def test_finetune_run_json_records_selected_epoch(study):
    for select in ("last", "best"):
        fine_tune(epochs=3, select=select)
        result = read_json("results/predictions/sst2/1/predicted/run.json")
        assert result["recipe"]["select"] == select
        assert all(run["kept_epoch"] in ((3,) if select == "last" else (1, 2, 3)) for run in result["runs"])


def test_finetune_max_length_beyond_encoder_is_rejected(study):
    with pytest.raises(PipelineError, match=r"max_length is larger than the encoder's longest input: 4096"):
        fine_tune(max_length=4096)


def test_finetune_reinit_layers_beyond_encoder_is_rejected(study):
    with pytest.raises(PipelineError, match="larger than the encoder.s number of layers: 2"):
        fine_tune(reinit_layers=2)


def test_finetune_encoder_without_pooler_is_accepted(study):
    bare = Path("models/bare")
    shutil.copytree("models/pretrained/phase2", bare)
    tensors = load_file(bare / "model.safetensors")
    save_file({name: t for name, t in tensors.items() if ".pooler." not in name}, bare / "model.safetensors")
    folder = fine_tune(model="models/bare")
    assert "bert.pooler.dense.weight" in load_file(folder / "model.safetensors")


def hashes_of_outputs() -> dict[str, str]:
    folders = (Path("models/finetuned/sst2/1/kept-model"), Path("results/predictions/sst2/1/predicted"))
    return {str(path): hash_file(path) for folder in folders for path in folder.rglob("*") if path.is_file()}
