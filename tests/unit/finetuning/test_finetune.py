"""Fine-tuning as a stage: every prediction file, the best of the grid, and the same bytes again."""

import json
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from pipeline_src.common.errors import Interrupted, PipelineError
from pipeline_src.common.files import hash_file, read_json, write_json
from pipeline_src.config.finetune import FinetuneParams, TaskHyperparameters
from pipeline_src.config.machine import Machine
from pipeline_src.config.model import ModelParams
from pipeline_src.finetuning import finetune
from pipeline_src.finetuning.distillation import load_task_teacher
from pipeline_src.finetuning.finetune import TaskTrainer, label_names, load_task_config, open_checkpointer, run
from pipeline_src.finetuning.heads import BertForTask
from pipeline_src.finetuning.hyperparameter_grid import GridPoint
from pipeline_src.finetuning.task_data import TaskData
from pipeline_src.models import attention, deberta
from pipeline_src.models.bert import (
    BertConfig,
    BertForMaskedLM,
    architecture_name,
    initialise,
    load_architecture,
    sinusoids,
)
from pipeline_src.models.hub import load_config, save_model
from pipeline_src.models.modernbert import ModernBertConfig
from pipeline_src.tasks.spec import load_spec
from pipeline_src.tokenizer.load import load_tokenizer
from pipeline_src.training.optimizers import OPTIMIZERS
from pipeline_src.training.stop import catch_stop_requests
from pipeline_src.training.trainer import Trainer, make_trainer
from tests.unit.old_gpu import show_an_old_gpu

MODEL = ModelParams(num_hidden_layers=1, hidden_size=64)  # only its architecture and initial weights count here


def params(**recipe) -> FinetuneParams:
    short = {"learning_rates": (1e-3,), "epochs": 1, "batch_sizes": 64, "max_length": 64, "random_baseline": True}
    return FinetuneParams(defaults=TaskHyperparameters(**short | recipe))


def fine_tune(task: str = "sst2", seed: str = "1", wanted: FinetuneParams | None = None, **options: Any) -> None:
    run(**{"seed": 1, "model": MODEL, "finetune": wanted or params(), "task": task, "finetune_seed": seed} | options)


def predicted(file: str, task: str = "sst2", seed: str = "1") -> list[dict[str, Any]]:
    """Rows of a file of predictions with the pretrained weights."""
    path = Path(f"results/predictions/{task}/{seed}/predicted/pretrained/{file}.jsonl")
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def study(make_study) -> Path:
    """A random encoder with a vocabulary of the task's own words, and small task sets."""
    return make_study(("sst2", "squad2", "swag", "stsb", "rte"), layers=1)


def test_finetune_grid_saves_best_run_and_every_score(study, monkeypatch):
    monkeypatch.chdir(study)
    fine_tune(wanted=params(learning_rates=(1e-6, 2e-3), epochs=2))
    found = read_json("results/predictions/sst2/1/predicted/run.json")
    assert [(r["weights"], r["learning_rate"]) for r in found["runs"]] == [
        (weights, rate) for weights in ("pretrained", "random") for rate in (1e-6, 2e-3)
    ]
    best = max(r["dev"]["accuracy"] for r in found["runs"][:2])
    gold = [line.split("\t")[-1] for line in Path("data/tasks/sst2/dev.tsv").read_text().splitlines()[1:]]
    correct = [row["prediction"] == label for row, label in zip(predicted("sst2"), gold, strict=True)]
    assert 100 * np.mean(correct) == pytest.approx(best)


def test_finetune_random_baseline_uses_position_init_of_study(study, monkeypatch):
    monkeypatch.chdir(study)
    drawn = []

    def draw(task: finetune.TaskTrainer):
        model = task.model()
        drawn.append(model.bert.embeddings.position_embeddings.weight.detach().clone())
        return model

    monkeypatch.setitem(finetune.WEIGHTS, "random", draw)
    started = MODEL.model_copy(update={"position_init": "neighbor_heads"})
    fine_tune("swag", seed="2", model=started)
    assert torch.equal(drawn[0], sinusoids(*drawn[0].shape))
    assert "position_init" not in read_json("models/finetuned/swag/2/kept-model/config.json")


@pytest.mark.parametrize(("task", "name"), [("squad2", "BertForQuestionAnswering"), ("swag", "BertForMultipleChoice")])
def test_finetune_span_and_choice_tasks_are_loaded_by_transformers(study, monkeypatch, task, name):
    monkeypatch.chdir(study)
    fine_tune(task)
    names = {path.name for path in Path(f"results/predictions/{task}/1/predicted").iterdir()}
    assert names == {"pretrained", "random", "run.json"}
    transformers = pytest.importorskip("transformers")
    _, info = getattr(transformers, name).from_pretrained(
        f"models/finetuned/{task}/1/kept-model", output_loading_info=True
    )
    assert not info["missing_keys"]


@pytest.mark.parametrize("task", ["stsb", "rte", "sst2"])
def test_finetune_two_towers_changes_pair_tasks_only(study, tmp_path, monkeypatch, task):
    monkeypatch.chdir(copy_of(study, tmp_path))
    found = []
    for pair_head in ("cross_encoder", "bi_encoder"):
        fine_tune(task, wanted=params().model_copy(update={"pair_head": pair_head}))
        found.append(
            (predicted(task, task), read_json(f"models/finetuned/{task}/1/kept-model/config.json")["architectures"])
        )
    (cross_encoder, _), (bi_encoder, classes) = found
    assert (cross_encoder == bi_encoder) is (task == "sst2")
    assert classes == (["BertForSequenceClassification"] if task == "sst2" else ["BertModel"])
    assert len(predicted(f"{task}.test", task)) > 1


def test_finetune_causal_encoder_stays_causal_with_bilstm(study, tmp_path, monkeypatch):
    monkeypatch.chdir(copy_of(study, tmp_path))
    config = Path("models/pretrained/phase2/config.json")
    write_json(config, {**read_json(config), "is_decoder": True})
    fine_tune(wanted=params().model_copy(update={"bilstm": True}))
    assert read_json("models/finetuned/sst2/1/kept-model/config.json")["is_decoder"]
    names = load_file("models/finetuned/sst2/1/kept-model/model.safetensors").keys()
    assert sum(name.startswith("bilstm.") for name in names) == 8


def test_finetune_dropout_overrides_dropout_of_encoder(study, monkeypatch):
    monkeypatch.chdir(study)
    losses = []
    for dropout in (0.0, 0.3):
        fine_tune(seed="2", wanted=params(dropout=dropout))
        kept = read_json("models/finetuned/sst2/2/kept-model/config.json", dict)
        assert {kept[f"{part}_dropout_prob"] for part in ("hidden", "attention_probs")} == {dropout}
        losses.append(read_json("results/predictions/sst2/2/predicted/run.json")["runs"][0]["train_loss"])
    assert losses[0] != losses[1]


def test_load_task_teacher_first_last_pooling_is_restored(study, monkeypatch):
    monkeypatch.chdir(study)
    fine_tune(seed="4", wanted=params(pooling="first_last"))
    folder = Path("models/finetuned/sst2/4/kept-model")
    kept = read_json(folder / "config.json", dict)
    assert (kept["pooling"], kept["architectures"]) == ("first_last", ["BertModel"])
    teacher = load_task_teacher(
        folder, "sequence", 2, load_config(folder), load_tokenizer(folder), torch.device("cpu"), layers=False
    )
    trainer, data = task_trainer(folder), TaskData(load_spec("sst2"), folder, 64)
    found = [row["prediction"] for row in trainer.predict(teacher, data.eval_set("sst2"))]
    assert found == [row["prediction"] for row in predicted("sst2", seed="4")]


def test_finetune_bilstm_ignores_pooling(study, monkeypatch):
    monkeypatch.chdir(study)
    hashes = []
    for pooling in ("cls", "first_last"):
        recipe = params(pooling=pooling, random_baseline=False).model_copy(update={"bilstm": True})
        fine_tune(seed="5", wanted=recipe)
        hashes.append(hash_file("models/finetuned/sst2/5/kept-model/model.safetensors"))
    assert hashes[0] == hashes[1]


def test_finetune_repeats_bytes_and_other_seed_differs(study, monkeypatch):
    monkeypatch.chdir(study)
    hashes = []
    for seed in ("1", "1", "2"):
        fine_tune(seed=seed)
        hashes.append(hash_file(f"models/finetuned/sst2/{seed}/kept-model/model.safetensors"))
    assert hashes[0] == hashes[1] != hashes[2]


def test_finetune_bad_label_is_rejected_and_leaves_no_output(study, monkeypatch, tmp_path):
    monkeypatch.chdir(copy_of(study, tmp_path))
    dev = tmp_path / "data/tasks/sst2/dev.tsv"
    lines = dev.read_text(encoding="utf-8").splitlines()
    lines[7] = lines[7].rsplit("\t", 1)[0] + "\tmaybe"
    dev.write_text("\n".join(lines) + "\n", encoding="utf-8")
    with pytest.raises(PipelineError, match=r"maybe[\s\S]*dev.tsv:8"):
        fine_tune()
    assert not Path("models/finetuned").exists() and not Path("results/predictions").exists()


def test_finetune_unsupported_machine_setting_is_rejected_before_training(study, monkeypatch):
    """A step that a GPU could take, and predictions that it could not make, once cost a whole training."""
    monkeypatch.chdir(study)
    monkeypatch.setattr(finetune, "make_trainer", None)  # not come to
    with pytest.raises(PipelineError, match="this attention needs a GPU: flash_varlen, on cpu"):
        fine_tune(machine=Machine(attention="flash_varlen"))
    show_an_old_gpu(monkeypatch)
    with pytest.raises(PipelineError, match="this GPU has no bfloat16: Tesla T4"):
        fine_tune(machine=Machine(precision="bfloat16"))


def test_finetune_bfloat16_on_cpu_changes_weights_slightly(study, tmp_path, monkeypatch):
    monkeypatch.chdir(copy_of(study, tmp_path))
    losses, weights = [], []
    for precision in ("float32", "bfloat16"):
        fine_tune(machine=Machine(precision=precision))
        losses.append(read_json("results/predictions/sst2/1/predicted/run.json")["runs"][0]["train_loss"])
        weights.append(Path("models/finetuned/sst2/1/kept-model/model.safetensors").read_bytes())
    assert weights[0] != weights[1] and losses[1] == pytest.approx(losses[0], rel=0.02)  # losses are rounded


def test_finetune_grid_covers_epochs_and_batch_sizes_and_predicts_test_file(study, tmp_path, monkeypatch):
    monkeypatch.chdir(copy_of(study, tmp_path))
    fine_tune(wanted=params(epochs=(1, 2), batch_sizes=(32, 64)))
    found = read_json("results/predictions/sst2/1/predicted/run.json")
    assert [(r["epochs"], r["batch"]) for r in found["runs"][:4]] == [(1, 32), (1, 64), (2, 32), (2, 64)]
    test = Path("data/tasks/sst2/test.tsv").read_text(encoding="utf-8").splitlines()
    rows = predicted("sst2.test")
    assert len(rows) == len(test) - 1 and {row["prediction"] for row in rows} <= {"0", "1"}


def test_finetune_predictions_equal_transformers_with_saved_model(study, tmp_path, monkeypatch):
    transformers = pytest.importorskip("transformers")
    monkeypatch.chdir(copy_of(study, tmp_path))
    fine_tune(wanted=params(learning_rates=(2e-3, 1e-6)))
    model = transformers.AutoModelForSequenceClassification.from_pretrained("models/finetuned/sst2/1/kept-model").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained("models/finetuned/sst2/1/kept-model")
    rows = [line.split("\t") for line in Path("data/tasks/sst2/dev.tsv").read_text().splitlines()[1:40]]
    with torch.no_grad():
        theirs = model(**tokenizer([row[0] for row in rows], padding=True, return_tensors="pt")).logits
    ours = [row["outputs"] for row in predicted("sst2")[:39]]
    np.testing.assert_allclose(ours, theirs, atol=1e-5)


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
def test_finetune_stopped_anywhere_resumes_to_same_bytes(study, tmp_path, monkeypatch, after, recipe):
    wanted = params(learning_rates=(1e-3, 2e-3), **recipe)
    monkeypatch.chdir(study)
    fine_tune(seed="7", wanted=wanted)
    undisturbed = outputs_of(study)
    monkeypatch.chdir(copy_of(study, tmp_path))
    monkeypatch.setattr(finetune, "make_trainer", stopping_after(after))
    with pytest.raises(Interrupted, match="checkpoint is saved"):
        fine_tune(seed="7", wanted=wanted)
    assert not outputs_of(tmp_path)
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    steps = []
    monkeypatch.setattr(finetune, "make_trainer", counting(steps))
    fine_tune(seed="7", wanted=wanted)
    assert outputs_of(tmp_path) == undisturbed
    batches = -(-len(Path("data/tasks/sst2/train.tsv").read_text().splitlines()[1:]) // 64)
    assert len(steps) == 4 * wanted.defaults.epochs[0] * batches - after, "steps before the stop were repeated"
    assert not list(Path("checkpoints/finetune/sst2/7").iterdir())


def test_finetune_random_baseline_is_reused_for_encoder_of_same_config(study, tmp_path, monkeypatch):
    """What `dvc exp run -S mask_prob=0.2` changes is pretraining, on which random weights do not depend."""
    monkeypatch.chdir(copy_of(study, tmp_path))
    steps, results = [], Path("results/predictions/sst2/1/predicted")
    monkeypatch.setattr(finetune, "make_trainer", counting(steps))
    fine_tune()
    both, baseline = len(steps), hash_file(results / "random/sst2.jsonl")
    file = Path("models/pretrained/phase2/model.safetensors")
    save_file({name: tensor * 1.1 for name, tensor in load_file(file).items()}, file)
    fine_tune()
    assert len(steps) == both + both // 2
    assert hash_file(results / "random/sst2.jsonl") == baseline
    assert [r["weights"] for r in read_json(results / "run.json")["runs"]] == ["pretrained", "random"]

    shutil.rmtree("data/baselines")
    fine_tune()
    assert hash_file(results / "random/sst2.jsonl") == baseline, "the same bytes, kept or trained again"
    del steps[:]
    fine_tune(wanted=params(dropout=0.2))
    assert len(steps) == both, "another recipe, another baseline"
    tokenizer = Path("models/pretrained/phase2/tokenizer.json")
    tokenizer.write_text(tokenizer.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    del steps[:]
    fine_tune()
    assert len(steps) == both, "another form, another baseline"


def task_trainer(folder: Path, optimizer: str = "adamw", **recipe) -> TaskTrainer:
    """A trainer of SST-2 from an encoder."""
    wanted = params(**recipe).model_copy(update={"optimizer": optimizer})
    model = MODEL.model_copy(update={"architecture": architecture_name(load_config(folder).names.model_type)})
    data, config = TaskData(load_spec("sst2"), folder, 64), load_task_config(folder, model, wanted.defaults)
    return TaskTrainer(data.spec, wanted.defaults, wanted, config, folder, data.training(), 1, Machine())


def test_task_trainer_select_best_restores_best_epoch(study, tmp_path, monkeypatch):
    monkeypatch.chdir(copy_of(study, tmp_path))
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


def test_task_trainer_select_best_damaged_checkpoint_is_rejected(study, tmp_path, monkeypatch):
    monkeypatch.chdir(copy_of(study, tmp_path))
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
def test_task_trainer_trains_after_predicting_same_lengths(study, tmp_path, monkeypatch, architecture):
    monkeypatch.chdir(copy_of(study, tmp_path))
    size = ModelParams(architecture=architecture, num_hidden_layers=2, hidden_size=64)
    config = load_architecture(architecture).config.from_params(size, 600)
    save_masked_lm(Path("models/other"), config, config.names.classes["masked_lm"])
    few = Path("data/tasks/sst2/train.tsv").read_text(encoding="utf-8").splitlines(keepends=True)[:5]
    for name in ("train.tsv", "dev.tsv"):  # one batch, of one length in both
        Path("data/tasks/sst2", name).write_text("".join(few), encoding="utf-8")
    for module in (deberta, attention):
        for function in vars(module).values():
            if hasattr(function, "cache_clear"):  # what other tests have filled
                function.cache_clear()
    trainer, data = task_trainer(Path("models/other")), TaskData(load_spec("sst2"), Path("models/other"), 64)
    trainer.predict(trainer.pretrained(), data.eval_set("sst2"))
    _, loss, _ = trainer.train("pretrained", GridPoint(1e-3, 1, 4))
    assert np.isfinite(loss)


def test_finetune_run_json_records_kept_epoch(study, monkeypatch):
    monkeypatch.chdir(study)
    for select in ("last", "best"):
        fine_tune(seed="8", wanted=params(epochs=3, select=select))
        found = read_json("results/predictions/sst2/8/predicted/run.json")
        assert found["recipe"]["select"] == select
        assert all(run["kept_epoch"] in ((3,) if select == "last" else (1, 2, 3)) for run in found["runs"])


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_task_trainer_every_optimizer_updates_weights(study, monkeypatch, optimizer):
    monkeypatch.chdir(study)
    trainer = task_trainer(Path("models/pretrained/phase2"), optimizer)
    before, (after, loss, _) = trainer.pretrained(), trainer.train("pretrained", GridPoint(1e-3, 1, 64))
    assert np.isfinite(loss)
    moved = {name for name, tensor in after.state_dict().items() if not torch.equal(tensor, before.state_dict()[name])}
    assert "bert.encoder.layer.0.output.dense.weight" in moved and "classifier.weight" in moved


def test_task_trainer_reinit_layers_resets_top_blocks_and_pooler(make_study, monkeypatch):
    monkeypatch.chdir(make_study(("sst2",), layers=2))
    folder = Path("models/pretrained/phase2")
    stored, model = load_file(folder / "model.safetensors"), task_trainer(folder, reinit_layers=1).pretrained()
    shared = [(name, tensor) for name, tensor in model.named_parameters() if name in stored]
    drawn = {name for name, tensor in shared if not torch.equal(tensor, stored[name])}
    assert {".".join(name.split(".")[:4]) for name in drawn if ".layer." in name} == {"bert.encoder.layer.1"}
    assert {name for name in drawn if ".layer." not in name} == {"bert.pooler.dense.weight"}
    assert all(float(tensor.detach().std()) < 0.03 for name, tensor in shared if name in drawn)


def test_finetune_reinit_layers_beyond_encoder_is_rejected(study, monkeypatch):
    monkeypatch.chdir(study)
    with pytest.raises(PipelineError, match="than there are: 2"):
        fine_tune(wanted=params(reinit_layers=2))


def test_task_trainer_untrained_pooler_is_reset_with_message(study, tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(copy_of(study, tmp_path))
    file, name = Path("models/pretrained/phase2/model.safetensors"), "bert.pooler.dense.weight"
    for factor, is_kept in ((1.0, True), (0.45, False)):
        tensors = load_file(file)
        tensors[name] *= factor
        save_file(tensors, file)
        caplog.clear()
        with caplog.at_level("INFO"):
            found = task_trainer(file.parent).pretrained().bert.pooler.dense.weight
        assert torch.equal(found, tensors[name]) is is_kept
        assert ("has a pooler that was not trained" in caplog.text) is not is_kept


def test_task_trainer_modernbert_uses_mlm_transform_as_task_head(study, tmp_path, monkeypatch):
    monkeypatch.chdir(copy_of(study, tmp_path))
    pretrained = save_masked_lm(Path("models/modern"), ModernBertConfig(600, 64, 1, 1, 96), "ModernBertForMaskedLM")
    head = task_trainer(Path("models/modern")).pretrained().bert.pooler
    assert torch.equal(head.dense.weight, pretrained.cls["predictions"].transform.dense.weight)
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained("models/modern")
    assert torch.equal(head.dense.weight, theirs.head.dense.weight)
    assert torch.equal(head.LayerNorm.weight, theirs.head.norm.weight)


def test_finetune_encoder_without_pooler_is_accepted(study, tmp_path, monkeypatch):
    monkeypatch.chdir(copy_of(study, tmp_path))
    bare = Path("models/bare")
    shutil.copytree("models/pretrained/phase2", bare)
    tensors = load_file(bare / "model.safetensors")
    save_file({name: t for name, t in tensors.items() if ".pooler." not in name}, bare / "model.safetensors")
    fine_tune(wanted=params().model_copy(update={"model": "models/bare"}))
    assert "bert.pooler.dense.weight" in load_file("models/finetuned/sst2/1/kept-model/model.safetensors")


def copy_of(study: Path, tmp_path: Path) -> Path:
    """The study's inputs in a folder of their own."""
    shutil.copytree(study / "data/tasks", tmp_path / "data/tasks")
    shutil.copytree(study / "models/pretrained", tmp_path / "models/pretrained")
    return tmp_path


def save_masked_lm(folder: Path, config: BertConfig, huggingface_class: str) -> BertForMaskedLM:
    """Save a model of random weights with the study's vocabulary."""
    model = BertForMaskedLM(config)
    initialise(model, torch.Generator().manual_seed(3))
    folder.mkdir()
    save_model(folder, model, config, huggingface_class, Path("models/pretrained/phase2"))
    return model


def outputs_of(root: Path) -> dict[str, str]:
    """Sums of every output of seed 7."""
    folders = (root / "models/finetuned/sst2/7/kept-model", root / "results/predictions/sst2/7/predicted")
    return {str(p.relative_to(root)): hash_file(p) for f in folders for p in sorted(f.rglob("*")) if p.is_file()}


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
