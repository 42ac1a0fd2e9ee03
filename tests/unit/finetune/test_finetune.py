"""Fine-tuning as a stage: every prediction file, the best of the grid, and the same bytes again."""

import json
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from pipeline_src.base.errors import Interrupted, PipelineError
from pipeline_src.base.files import hash_file, read_json, write_json
from pipeline_src.base.registry import member_module
from pipeline_src.finetune import finetune
from pipeline_src.finetune.distillation import load_task_teacher
from pipeline_src.finetune.finetune import (
    TaskTrainer,
    label_names,
    load_task_config,
    open_checkpointer,
    run,
    task_settings,
)
from pipeline_src.finetune.heads import BertForTask
from pipeline_src.finetune.hyperparameter_grid import GridPoint
from pipeline_src.finetune.task_data import TaskData
from pipeline_src.model import attention
from pipeline_src.model.bert import (
    BertConfig,
    BertForMaskedLM,
    architecture_name,
    initialise,
    load_architecture,
    sinusoids,
)
from pipeline_src.model.hub import load_config, save_model
from pipeline_src.study.finetune import FinetuneParams, TaskHyperparameters
from pipeline_src.study.machine import Machine
from pipeline_src.study.model import ModelParams
from pipeline_src.study.task_spec import load_spec
from pipeline_src.tokenizer.load import load_tokenizer
from pipeline_src.training.stop import catch_stop_requests
from pipeline_src.training.trainer import Trainer, make_trainer
from tests.unit.old_gpu import show_an_old_gpu

MODEL = ModelParams(num_hidden_layers=1, hidden_size=64)  # only its architecture and initial weights count here


def params(**recipe) -> FinetuneParams:
    short = {"learning_rates": (1e-3,), "epochs": 1, "batch_sizes": 64, "max_length": 64}
    return FinetuneParams(defaults=TaskHyperparameters(**short | recipe))


def fine_tune(task: str = "sst2", seed: str = "1", wanted: FinetuneParams | None = None, **options: Any) -> None:
    run(**{"seed": 1, "model": MODEL, "finetune": wanted or params(), "task": task, "finetune_seed": seed} | options)


def predicted(file: str, task: str = "sst2", seed: str = "1") -> list[dict[str, Any]]:
    """Rows of a file of predictions with the pretrained weights."""
    path = Path(f"results/predictions/{task}/{seed}/predicted/pretrained/{file}.jsonl")
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def inputs(make_study) -> Path:
    """A random encoder with a vocabulary of the task's own words, and small task sets."""
    return make_study(("sst2", "squad2", "swag", "stsb", "rte"), layers=1)


def test_finetune_grid_saves_best_run_and_predicts_test_file(study):
    fine_tune(wanted=params(learning_rates=(1e-6, 2e-3), epochs=(1, 2), batch_sizes=(32, 64), random_baseline=True))
    runs = read_json("results/predictions/sst2/1/predicted/run.json")["runs"]
    points = [(epochs, batch, rate) for epochs in (1, 2) for batch in (32, 64) for rate in (1e-6, 2e-3)]
    assert [(run["weights"], run["epochs"], run["batch"], run["learning_rate"]) for run in runs] == [
        (weights, *point) for weights in ("pretrained", "random") for point in points
    ]
    best = max(run["dev"]["accuracy"] for run in runs[:8])
    gold = [line.split("\t")[-1] for line in Path("data/tasks/sst2/dev.tsv").read_text().splitlines()[1:]]
    correct = [row["prediction"] == label for row, label in zip(predicted("sst2"), gold, strict=True)]
    assert 100 * np.mean(correct) == pytest.approx(best)
    test = Path("data/tasks/sst2/test.tsv").read_text(encoding="utf-8").splitlines()
    rows = predicted("sst2.test")
    assert len(rows) == len(test) - 1 and {row["prediction"] for row in rows} <= {"0", "1"}


def test_finetune_random_baseline_uses_position_init_of_study(study, monkeypatch):
    drawn, model_of = [], TaskTrainer.model

    def draw(trainer: TaskTrainer) -> BertForTask:
        model = model_of(trainer)
        drawn.append(model.bert.embeddings.position_embeddings.weight.detach().clone())
        return model

    monkeypatch.setattr(TaskTrainer, "model", draw)
    started = MODEL.model_copy(update={"position_init": "neighbor_heads"})
    fine_tune("swag", wanted=params(random_baseline=True), model=started)
    assert torch.equal(drawn[0], sinusoids(*drawn[0].shape))
    assert "position_init" not in read_json("models/finetuned/swag/1/kept-model/config.json")


@pytest.mark.parametrize(
    ("task", "name"),
    [("squad2", "QuestionAnswering"), ("swag", "MultipleChoice"), ("sst2", "SequenceClassification")],
)
def test_finetune_saved_model_is_loaded_by_transformers_with_equal_outputs(study, task, name):
    transformers = pytest.importorskip("transformers")
    fine_tune(task, wanted=params(learning_rates=(2e-3, 1e-6)))
    folder = f"models/finetuned/{task}/1/kept-model"
    model, info = getattr(transformers, f"BertFor{name}").from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    assert read_json(f"{folder}/tokenizer_config.json")["model_max_length"] == model.config.max_position_embeddings
    if task == "sst2":
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        texts = [line.split("\t")[0] for line in Path("data/tasks/sst2/dev.tsv").read_text().splitlines()[1:40]]
        with torch.no_grad():
            logits = model.eval()(**tokenizer(texts, padding=True, return_tensors="pt")).logits
        np.testing.assert_allclose([row["outputs"] for row in predicted("sst2")[:39]], logits, atol=1e-5)


@pytest.mark.parametrize("task", ["stsb", "rte", "sst2"])
def test_finetune_two_towers_changes_pair_tasks_only(study, task):
    result = []
    for pair_head in ("cross_encoder", "bi_encoder"):
        fine_tune(task, wanted=params().model_copy(update={"pair_head": pair_head}))
        result.append(
            (predicted(task, task), read_json(f"models/finetuned/{task}/1/kept-model/config.json")["architectures"])
        )
    (cross_encoder, _), (bi_encoder, classes) = result
    assert (cross_encoder == bi_encoder) is (task == "sst2")
    assert classes == (["BertForSequenceClassification"] if task == "sst2" else ["BertModel"])
    assert len(predicted(f"{task}.test", task)) > 1


def test_finetune_causal_encoder_stays_causal_with_bilstm(study):
    config = Path("models/pretrained/phase2/config.json")
    write_json(config, {**read_json(config), "is_decoder": True})
    fine_tune(wanted=params().model_copy(update={"bilstm": True}))
    assert read_json("models/finetuned/sst2/1/kept-model/config.json")["is_decoder"]
    names = load_file("models/finetuned/sst2/1/kept-model/model.safetensors").keys()
    assert sum(name.startswith("bilstm.") for name in names) == 8


def test_finetune_dropout_overrides_dropout_of_encoder(study):
    losses = []
    for dropout in (0.0, 0.3):
        fine_tune(wanted=params(dropout=dropout))
        kept = read_json("models/finetuned/sst2/1/kept-model/config.json", dict)
        assert {kept[f"{part}_dropout_prob"] for part in ("hidden", "attention_probs")} == {dropout}
        losses.append(read_json("results/predictions/sst2/1/predicted/run.json")["runs"][0]["train_loss"])
    assert losses[0] != losses[1]


def test_finetune_class_weights_change_classifications_alone(study):
    train = Path("data/tasks/sst2/train.tsv")
    header, *lines = train.read_text(encoding="utf-8").splitlines(keepends=True)
    few = [line for line in lines if line.endswith("1\n")][:40]
    train.write_text("".join([header, *few, *(line for line in lines if line.endswith("0\n"))]), encoding="utf-8")
    losses = {}
    for task in ("sst2", "stsb"):
        for weights in (None, "balanced"):
            fine_tune(task, wanted=params(class_weights=weights))
            (run,) = read_json(f"results/predictions/{task}/1/predicted/run.json")["runs"]
            losses[task, weights] = run["train_loss"]
    assert losses["sst2", "balanced"] > losses["sst2", None] + 0.1, "the few count as much as the many"
    assert losses["stsb", "balanced"] == losses["stsb", None]


def test_load_task_teacher_first_last_pooling_is_restored(study):
    fine_tune(wanted=params(pooling="first_last"))
    folder = Path("models/finetuned/sst2/1/kept-model")
    kept = read_json(folder / "config.json", dict)
    assert (kept["finetune"]["pooling"], kept["architectures"]) == ("first_last", ["BertModel"])
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert "`classifier.weight`" in card and "averaged over all tokens of a text but the first and the last" in card
    teacher = load_task_teacher(
        folder, "sequence", 2, load_config(folder), load_tokenizer(folder), torch.device("cpu"), layers=False
    )
    trainer, data = task_trainer(folder), TaskData(load_spec("sst2"), folder, 64)
    result = [row["prediction"] for row in trainer.predict(teacher, data.eval_set("sst2"))]
    assert result == [row["prediction"] for row in predicted("sst2")]


def test_finetune_repeats_bytes_and_other_seed_differs(study):
    hashes = []
    for seed in ("1", "1", "2"):
        fine_tune(seed=seed)
        hashes.append(hash_file(f"models/finetuned/sst2/{seed}/kept-model/model.safetensors"))
    assert hashes[0] == hashes[1] != hashes[2]


def test_finetune_bad_label_is_rejected_and_leaves_no_output(study):
    dev = study / "data/tasks/sst2/dev.tsv"
    dev.write_text(dev.read_text(encoding="utf-8") + "a film\tmaybe\n", encoding="utf-8")
    with pytest.raises(PipelineError, match=r"maybe[\s\S]*dev.tsv:"):
        fine_tune()
    assert not Path("models/finetuned").exists() and not Path("results/predictions").exists()


def test_finetune_unsupported_machine_setting_is_rejected_before_training(study, monkeypatch):
    """A step that a GPU could take, and predictions that it could not make, once cost a whole training."""
    monkeypatch.setattr(finetune, "make_trainer", None)  # not come to
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
def test_finetune_stopped_anywhere_resumes_to_same_bytes(study, monkeypatch, after, recipe):
    wanted = params(learning_rates=(1e-3, 2e-3), random_baseline=True, **recipe)
    fine_tune(wanted=wanted)
    uninterrupted = hashes_of_outputs()
    for folder in ("models/finetuned", "results", "data/baselines"):
        shutil.rmtree(folder)
    with monkeypatch.context() as patch:
        patch.setattr(finetune, "make_trainer", stopping_after(after))
        with pytest.raises(Interrupted, match="checkpoint is saved"):
            fine_tune(wanted=wanted)
    assert not hashes_of_outputs()
    steps = []
    monkeypatch.setattr(finetune, "make_trainer", counting(steps))
    fine_tune(wanted=wanted)
    assert hashes_of_outputs() == uninterrupted
    batches = -(-len(Path("data/tasks/sst2/train.tsv").read_text().splitlines()[1:]) // 64)
    assert len(steps) == 4 * wanted.defaults.epochs[0] * batches - after, "steps before the stop were repeated"
    assert not list(Path("checkpoints/finetune/sst2/1").iterdir())


@pytest.mark.parametrize(
    ("rate", "effect"),
    [(0.0, "last bits may differ by rounding"), (0.1, "dropout may draw other masks from here on")],
)
def test_finetune_resumed_with_other_microbatches_says_what_changes(study, monkeypatch, caplog, rate, effect):
    wanted = params(dropout=rate)
    with monkeypatch.context() as patch:
        patch.setattr(finetune, "make_trainer", stopping_after(3))
        with pytest.raises(Interrupted):
            fine_tune(wanted=wanted)
    fine_tune(wanted=wanted, machine=Machine.model_validate({"finetune": {"microbatch_tokens": 500}}))
    assert f"so {effect}" in caplog.text and "microbatch_tokens 16384 there, 500 here" in caplog.text


@pytest.mark.parametrize("rate", [0.0, 0.1])
def test_finetune_microbatch_tokens_change_loss_only_by_rounding_without_dropout(study, rate):
    losses = []
    for tokens in (16384, 500):
        machine = Machine.model_validate({"finetune": {"microbatch_tokens": tokens}})
        fine_tune(wanted=params(dropout=rate), machine=machine)
        (done,) = read_json("results/predictions/sst2/1/predicted/run.json")["runs"]
        losses.append(done["train_loss"])
    assert (abs(losses[0] - losses[1]) <= 2e-5) == (rate == 0)


def test_finetune_random_baseline_is_reused_for_encoder_of_same_config(study, monkeypatch):
    """What `dvc exp run -S mask_prob=0.2` changes is pretraining, on which random weights do not depend."""
    steps, baseline = [], Path("results/predictions/sst2/1/predicted/random/sst2.jsonl")
    monkeypatch.setattr(finetune, "make_trainer", counting(steps))
    folder, wanted = Path("models/pretrained/phase2"), params(random_baseline=True)
    fine_tune(wanted=wanted)
    num_steps, expected = len(steps), hash_file(baseline)
    tensors = load_file(folder / "model.safetensors")
    save_file({name: tensor * 1.1 for name, tensor in tensors.items()}, folder / "model.safetensors")
    fine_tune(wanted=wanted)
    assert len(steps) == num_steps + num_steps // 2
    assert hash_file(baseline) == expected
    for change in ("recipe", "tokenizer"):
        del steps[:]
        if change == "tokenizer":
            file = folder / "tokenizer.json"
            file.write_text(file.read_text(encoding="utf-8") + "\n", encoding="utf-8")
        fine_tune(wanted=params(random_baseline=True, dropout=0.2) if change == "recipe" else wanted)
        assert len(steps) == num_steps, f"another {change}, another baseline"


def test_finetune_random_weights_have_a_grid_of_their_own(study):
    own = {"random_learning_rates": (1e-4, 2e-3), "random_epochs": 2, "random_baseline": True, "label_counts": (40,)}
    fine_tune(wanted=params(**own))
    runs = read_json("results/predictions/sst2/1/predicted/run.json")["runs"]
    points = [("pretrained", 1, 1e-3), ("random", 2, 1e-4), ("random", 2, 2e-3)]
    assert [(run["weights"], run["epochs"], run["learning_rate"]) for run in runs] == points
    best = max(runs[1:], key=lambda run: run["main"])
    (part,) = Path("data/baselines/sst2/1-40-labels").glob("*/runs.json")
    (part_run,) = read_json(part)["runs"]
    assert part_run["learning_rate"] == best["learning_rate"], "parts are learnt at the best point of their weights"
    (baseline,) = Path("data/baselines/sst2/1").iterdir()
    fine_tune(wanted=params(**own | {"learning_rates": 5e-4, "epochs": 2, "label_counts": ()}))
    assert list(Path("data/baselines/sst2/1").iterdir()) == [baseline], "a baseline depends on its own grid alone"


def task_trainer(folder: Path, optimizer: str = "adamw", **recipe) -> TaskTrainer:
    """A trainer of SST-2 from an encoder."""
    wanted = params(**recipe).model_copy(update={"optimizer": optimizer})
    model = MODEL.model_copy(update={"architecture": architecture_name(load_config(folder).names.model_type)})
    data, config = TaskData(load_spec("sst2"), folder, 64), load_task_config(folder, model, wanted.defaults)
    settings = task_settings(data.spec, wanted.defaults, wanted, config)
    return TaskTrainer(settings, wanted.defaults, wanted, config, folder, data.training(), 1, Machine())


def test_task_trainer_select_best_restores_best_epoch(study):
    trainer, seen = task_trainer(Path("models/pretrained/phase2"), epochs=4, select="best"), []
    point = GridPoint(1e-3, 4, 64)

    def score_model(model: BertForTask) -> float:
        seen.append({name: tensor.clone() for name, tensor in model.state_dict().items()})
        return [60.0, 80.0, 80.0, 70.0][len(seen) - 1]  # of equal ones the first is kept

    with catch_stop_requests() as stop_request:
        checkpointer = open_checkpointer(trainer, {"task": {"name": "sst2"}, "finetune_seed": "1"}, stop_request, point)
        model, loss, epoch = trainer.train("pretrained", point, checkpointer, score_model=score_model)
        checkpointer.finish()
    assert epoch == 2 and len(seen) == 4
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, seen[1][name]), name
    assert not torch.equal(seen[1]["classifier.weight"], seen[3]["classifier.weight"])
    assert not [path for path in Path("checkpoints").rglob("*.safetensors")]


def test_task_trainer_select_best_damaged_checkpoint_is_rejected(study):
    trainer, point = task_trainer(Path("models/pretrained/phase2"), epochs=3, select="best"), GridPoint(1e-3, 3, 64)
    scores: list[float] = []

    def score_model(model: BertForTask) -> float:
        scores.append(80.0 - len(scores))
        if len(scores) == 3:
            first = min(Path("checkpoints").rglob("step-*"))
            (first / "tensors.safetensors").write_bytes(b"damaged")
        return scores[-1]

    with catch_stop_requests() as stop_request:
        checkpointer = open_checkpointer(trainer, {"task": {"name": "sst2"}, "finetune_seed": "2"}, stop_request, point)
        with pytest.raises(PipelineError, match="the best checkpoint cannot be read"):
            trainer.train("pretrained", point, checkpointer, score_model=score_model)


@pytest.mark.parametrize("architecture", ["bert", "deberta", "deberta_v2", "modernbert", "bilstm", "albert"])
def test_task_trainer_trains_after_predicting_same_lengths(study, architecture):
    size = ModelParams(architecture=architecture, num_hidden_layers=2, hidden_size=64)
    config = load_architecture(architecture).config.from_params(size, 600)
    save_masked_lm(Path("models/other"), config, config.names.classes["masked_lm"])
    few = Path("data/tasks/sst2/train.tsv").read_text(encoding="utf-8").splitlines(keepends=True)[:5]
    for name in ("train.tsv", "dev.tsv"):  # one batch, of one length in both
        Path("data/tasks/sst2", name).write_text("".join(few), encoding="utf-8")
    for module in {sys.modules[member_module("models", architecture)], attention}:
        for function in vars(module).values():
            if hasattr(function, "cache_clear"):  # what other tests have filled
                function.cache_clear()
    trainer, data = task_trainer(Path("models/other")), TaskData(load_spec("sst2"), Path("models/other"), 64)
    trainer.predict(trainer.pretrained(), data.eval_set("sst2"))
    _, loss, _ = trainer.train("pretrained", GridPoint(1e-3, 1, 4))
    assert np.isfinite(loss)


def test_finetune_run_json_records_kept_epoch(study):
    for select in ("last", "best"):
        fine_tune(wanted=params(epochs=3, select=select))
        result = read_json("results/predictions/sst2/1/predicted/run.json")
        assert result["recipe"]["select"] == select
        assert all(run["kept_epoch"] in ((3,) if select == "last" else (1, 2, 3)) for run in result["runs"])


def test_task_trainer_reinit_layers_resets_top_blocks_and_pooler(make_study, monkeypatch):
    monkeypatch.chdir(make_study(("sst2",), layers=2))
    folder = Path("models/pretrained/phase2")
    stored, model = load_file(folder / "model.safetensors"), task_trainer(folder, reinit_layers=1).pretrained()
    shared = [(name, tensor) for name, tensor in model.named_parameters() if name in stored]
    drawn = {name for name, tensor in shared if not torch.equal(tensor, stored[name])}
    assert {".".join(name.split(".")[:4]) for name in drawn if ".layer." in name} == {"bert.encoder.layer.1"}
    assert {name for name in drawn if ".layer." not in name} == {"bert.pooler.dense.weight"}
    assert all(float(tensor.detach().std()) < 0.03 for name, tensor in shared if name in drawn)


def test_finetune_reinit_layers_beyond_encoder_is_rejected(study):
    with pytest.raises(PipelineError, match="than there are: 2"):
        fine_tune(wanted=params(reinit_layers=2))


def test_task_trainer_untrained_pooler_is_reset_with_message(study, caplog):
    file, name = Path("models/pretrained/phase2/model.safetensors"), "bert.pooler.dense.weight"
    for factor, is_kept in ((1.0, True), (0.45, False)):
        tensors = load_file(file)
        tensors[name] *= factor
        save_file(tensors, file)
        caplog.clear()
        with caplog.at_level("INFO"):
            result = task_trainer(file.parent).pretrained().bert.pooler.dense.weight
        assert torch.equal(result, tensors[name]) is is_kept
        assert ("has a pooler that was not trained" in caplog.text) is not is_kept


def test_task_trainer_modernbert_uses_mlm_transform_as_task_head(study):
    config = pytest.importorskip("pipeline_src.family.modernbert.encoder").ModernBertConfig(600, 64, 1, 1, 96)
    pretrained = save_masked_lm(Path("models/modern"), config, "ModernBertForMaskedLM")
    head = task_trainer(Path("models/modern")).pretrained().bert.pooler
    assert torch.equal(head.dense.weight, pretrained.cls["predictions"].transform.dense.weight)
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained("models/modern")
    assert torch.equal(head.dense.weight, theirs.head.dense.weight)
    assert torch.equal(head.LayerNorm.weight, theirs.head.norm.weight)


def test_finetune_encoder_without_pooler_is_accepted(study):
    bare = Path("models/bare")
    shutil.copytree("models/pretrained/phase2", bare)
    tensors = load_file(bare / "model.safetensors")
    save_file({name: t for name, t in tensors.items() if ".pooler." not in name}, bare / "model.safetensors")
    fine_tune(wanted=params().model_copy(update={"model": "models/bare"}))
    assert "bert.pooler.dense.weight" in load_file("models/finetuned/sst2/1/kept-model/model.safetensors")


def save_masked_lm(folder: Path, config: BertConfig, huggingface_class: str) -> BertForMaskedLM:
    """Save a model of random weights with the study's vocabulary."""
    model = BertForMaskedLM(config)
    initialise(model, torch.Generator().manual_seed(3))
    folder.mkdir()
    save_model(folder, model, config, huggingface_class, Path("models/pretrained/phase2"))
    return model


def hashes_of_outputs() -> dict[str, str]:
    folders = (Path("models/finetuned/sst2/1/kept-model"), Path("results/predictions/sst2/1/predicted"))
    return {str(path): hash_file(path) for folder in folders for path in folder.rglob("*") if path.is_file()}


def stopping_after(steps: int) -> Callable[..., Trainer[Any]]:
    """Make trainers that are asked to stop after so many steps of all runs together."""
    taken: list[int] = []
    return watching(lambda step: (taken.append(step), len(taken) == steps and signal.raise_signal(signal.SIGTERM)))


def counting(taken: list[int]) -> Callable[..., Trainer[Any]]:
    """Make trainers that record their steps."""
    return watching(taken.append)


def watching(call: Callable[[int], object]) -> Callable[..., Trainer[Any]]:
    """Make trainers that call a function with the number of each step."""

    def make(*arguments: Any, **options: Any) -> Trainer[Any]:
        trainer = make_trainer(*arguments, **options)
        train_step = trainer.train_step
        trainer.train_step = lambda batch: (call(trainer.state.step + 1), train_step(batch))
        return trainer

    return make
