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
from pipeline_src.download.synthetic import write_task
from pipeline_src.finetuning import finetune
from pipeline_src.finetuning.distillation import load_task_teacher
from pipeline_src.finetuning.finetune import (
    TaskTrainer,
    label_names,
    load_task_config,
    open_checkpointer,
    run,
)
from pipeline_src.finetuning.heads import BertForTask
from pipeline_src.finetuning.hyperparameter_grid import GridPoint
from pipeline_src.finetuning.task_data import TaskData
from pipeline_src.models import attention, deberta
from pipeline_src.models.bert import BertForMaskedLM, architecture_name, initialise, load_architecture, sinusoids
from pipeline_src.models.hub import load_config, save_model
from pipeline_src.models.modernbert import ModernBertConfig
from pipeline_src.tasks.spec import load_spec
from pipeline_src.tokenizer.load import load_tokenizer
from pipeline_src.training.optimizers import OPTIMIZERS
from pipeline_src.training.stop import catch_stop_requests
from pipeline_src.training.trainer import Trainer, make_trainer
from tests.unit.old_gpu import show_an_old_gpu

MODEL = ModelParams(
    num_hidden_layers=1, hidden_size=64
)  # the study's own; of what is fine-tuned its architecture counts, and how random weights start


def params(**recipe) -> FinetuneParams:
    short = {
        "learning_rates": (1e-3,),
        "epochs": 1,
        "batch_sizes": 64,
        "max_length": 64,
        "random_baseline": True,
        **recipe,
    }
    return FinetuneParams(defaults=TaskHyperparameters(**short))


@pytest.fixture(scope="module")
def study(make_study) -> Path:
    """A random encoder with a vocabulary of the task's own words, and small task sets."""
    return make_study(("sst2", "squad2", "swag", "stsb", "rte"), layers=1)


def test_a_grid_keeps_its_best_run_and_every_score(study, monkeypatch):
    monkeypatch.chdir(study)
    run(seed=1, model=MODEL, finetune=params(learning_rates=(1e-6, 2e-3), epochs=2), task="sst2", restart="1")
    found = read_json("results/predictions/sst2/1/predicted/run.json")
    assert [(r["weights"], r["learning_rate"]) for r in found["runs"]] == [
        (weights, rate) for weights in ("pretrained", "random") for rate in (1e-6, 2e-3)
    ]
    best = max(r["dev"]["accuracy"] for r in found["runs"][:2])
    lines = Path("results/predictions/sst2/1/predicted/pretrained/sst2.jsonl").read_text(encoding="utf-8").splitlines()
    gold = [line.split("\t")[-1] for line in Path("data/tasks/sst2/dev.tsv").read_text().splitlines()[1:]]
    right = [json.loads(line)["prediction"] == label for line, label in zip(lines, gold, strict=True)]
    assert 100 * np.mean(right) == pytest.approx(best)


def test_random_weights_begin_as_the_studys_model_did(study, monkeypatch):
    monkeypatch.chdir(study)
    drawn = []

    def draw(task: finetune.TaskTrainer):
        model = task.model()
        drawn.append(model.bert.embeddings.position_embeddings.weight.detach().clone())
        return model

    monkeypatch.setitem(finetune.WEIGHTS, "random", draw)
    started = MODEL.model_copy(update={"position_init": "neighbor_heads"})
    run(seed=1, model=started, finetune=params(), task="swag", restart="2")
    assert torch.equal(drawn[0], sinusoids(*drawn[0].shape))
    assert "position_init" not in read_json("models/finetuned/swag/2/kept-model/config.json")


@pytest.mark.parametrize("task", ["squad2", "swag"])
def test_every_kind_of_task_goes_through(study, monkeypatch, task):
    monkeypatch.chdir(study)
    run(seed=1, model=MODEL, finetune=params(), task=task, restart="1")
    assert sorted(path.name for path in Path(f"results/predictions/{task}/1/predicted").iterdir()) == [
        "pretrained",
        "random",
        "run.json",
    ]
    transformers = pytest.importorskip("transformers")
    name = {"squad2": "BertForQuestionAnswering", "swag": "BertForMultipleChoice"}[task]
    _, info = getattr(transformers, name).from_pretrained(
        f"models/finetuned/{task}/1/kept-model", output_loading_info=True
    )
    assert not info["missing_keys"]


@pytest.mark.parametrize("task", ["stsb", "rte", "sst2"])
def test_two_texts_are_read_by_two_towers_where_it_is_asked(study, tmp_path, monkeypatch, task):
    """The kept model's predictions are those of the best run, and other tasks stay as they are."""
    monkeypatch.chdir(copy_of(study, tmp_path))
    found = []
    for pair_head in ("joint", "two_towers"):
        run(seed=1, model=MODEL, finetune=params().model_copy(update={"pair_head": pair_head}), task=task, restart="1")
        lines = Path(f"results/predictions/{task}/1/predicted/pretrained/{task}.jsonl").read_text(encoding="utf-8")
        found.append((lines, read_json(f"models/finetuned/{task}/1/kept-model/config.json")["architectures"]))
    (joint, _), (towers, classes) = found
    assert (joint == towers) is (task == "sst2")
    assert classes == (["BertForSequenceClassification"] if task == "sst2" else ["BertModel"])
    tests = Path(f"results/predictions/{task}/1/predicted/pretrained/{task}.test.jsonl")
    assert tests.read_text(encoding="utf-8").count("\n") > 1


def test_a_left_to_right_model_stays_one_and_gets_an_lstm(study, tmp_path, monkeypatch):
    shutil.copytree(study / "data", tmp_path / "data")
    shutil.copytree(study / "models/pretrained", tmp_path / "models/pretrained")
    config = tmp_path / "models/pretrained/phase2/config.json"
    write_json(config, {**read_json(config), "is_decoder": True})
    monkeypatch.chdir(tmp_path)
    run(seed=1, model=MODEL, finetune=params().model_copy(update={"bilstm": True}), task="sst2", restart="1")
    assert read_json("models/finetuned/sst2/1/kept-model/config.json")["is_decoder"]
    names = load_file("models/finetuned/sst2/1/kept-model/model.safetensors").keys()
    assert sum(name.startswith("bilstm.") for name in names) == 8


def test_a_recipe_has_a_dropout_of_its_own(study, monkeypatch):
    monkeypatch.chdir(study)
    losses = []
    for dropout in (0.0, 0.3):
        run(seed=1, model=MODEL, finetune=params(dropout=dropout), task="sst2", restart="2")
        kept = read_json("models/finetuned/sst2/2/kept-model/config.json", dict)
        assert {kept[f"{part}_dropout_prob"] for part in ("hidden", "attention_probs")} == {dropout}
        losses.append(read_json("results/predictions/sst2/2/predicted/run.json")["runs"][0]["train_loss"])
    assert losses[0] != losses[1]


def test_a_model_that_reads_the_first_last_average_says_so_to_its_students(study, monkeypatch):
    monkeypatch.chdir(study)
    run(seed=1, model=MODEL, finetune=params(pooling="first_last"), task="sst2", restart="4")
    folder = Path("models/finetuned/sst2/4/kept-model")
    kept = read_json(folder / "config.json", dict)
    assert (kept["pooling"], kept["architectures"]) == ("first_last", ["BertModel"])
    teacher = load_task_teacher(
        folder, "sequence", 2, load_config(folder), load_tokenizer(folder), torch.device("cpu"), layers=False
    )
    data = TaskData(load_spec("sst2"), folder, 64)
    trainer = TaskTrainer(
        data.spec, params().defaults, params(), load_config(folder), folder, data.training(), 1, Machine()
    )
    lines = Path("results/predictions/sst2/4/predicted/pretrained/sst2.jsonl").read_text(encoding="utf-8").splitlines()
    found = [row["prediction"] for row in trainer.predict(teacher, data.eval_set("sst2"))]
    assert found == [json.loads(line)["prediction"] for line in lines]


def test_an_lstm_reads_the_tokens_whatever_the_pooling(study, monkeypatch):
    monkeypatch.chdir(study)
    hashes = []
    for pooling in ("cls", "first_last"):
        recipe = params(pooling=pooling, random_baseline=False).model_copy(update={"bilstm": True})
        run(seed=1, model=MODEL, finetune=recipe, task="sst2", restart="5")
        hashes.append(hash_file("models/finetuned/sst2/5/kept-model/model.safetensors"))
    assert hashes[0] == hashes[1]


def test_same_bytes_again_and_another_restart_differs(study, monkeypatch):
    monkeypatch.chdir(study)
    hashes = []
    for restart in ("1", "1", "2"):
        run(seed=1, model=MODEL, finetune=params(), task="sst2", restart=restart)
        hashes.append(hash_file(f"models/finetuned/sst2/{restart}/kept-model/model.safetensors"))
    assert hashes[0] == hashes[1] != hashes[2]


def test_a_bad_label_stops_before_training_and_leaves_no_model(study, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models/pretrained").mkdir(parents=True)
    (tmp_path / "models/pretrained/phase2").symlink_to(study / "models/pretrained/phase2")
    write_task("sst2", tmp_path / "data/tasks/sst2", seed=1)
    dev = tmp_path / "data/tasks/sst2/dev.tsv"
    lines = dev.read_text(encoding="utf-8").splitlines()
    lines[7] = lines[7].rsplit("\t", 1)[0] + "\tmaybe"
    dev.write_text("\n".join(lines) + "\n", encoding="utf-8")
    with pytest.raises(PipelineError, match=r"maybe[\s\S]*dev.tsv:8"):
        run(seed=1, model=MODEL, finetune=params(), task="sst2", restart="1")
    assert not Path("models/finetuned").exists() and not Path("results/predictions").exists()


def test_what_this_machine_cannot_do_is_said_before_anything_is_trained(study, monkeypatch):
    """A step that a GPU could take, and predictions that it could not make, once cost a whole training."""
    monkeypatch.chdir(study)
    monkeypatch.setattr(finetune, "make_trainer", None)  # not come to
    with pytest.raises(PipelineError, match="this attention needs a GPU: flash_varlen, on cpu"):
        run(seed=1, model=MODEL, finetune=params(), task="sst2", restart="2", machine=Machine(attention="flash_varlen"))
    show_an_old_gpu(monkeypatch)
    with pytest.raises(PipelineError, match="this GPU has no bfloat16: Tesla T4"):
        run(seed=1, model=MODEL, finetune=params(), task="sst2", restart="2", machine=Machine(precision="bfloat16"))


def test_a_cpu_finetunes_in_bfloat16_where_it_is_told_to(study, tmp_path, monkeypatch):
    monkeypatch.chdir(copy_of(study, tmp_path))
    losses, weights = [], []
    for precision in ("float32", "bfloat16"):
        run(seed=1, model=MODEL, finetune=params(), task="sst2", restart="1", machine=Machine(precision=precision))
        losses.append(read_json("results/predictions/sst2/1/predicted/run.json")["runs"][0]["train_loss"])
        weights.append(Path("models/finetuned/sst2/1/kept-model/model.safetensors").read_bytes())
    assert weights[0] != weights[1] and losses[1] == pytest.approx(losses[0], rel=0.02)  # losses are rounded


def test_every_point_of_the_grid_is_tried_and_test_files_are_predicted(study, tmp_path, monkeypatch):
    monkeypatch.chdir(copy_of(study, tmp_path))
    run(seed=1, model=MODEL, finetune=params(epochs=(1, 2), batch_sizes=(32, 64)), task="sst2", restart="1")
    found = read_json("results/predictions/sst2/1/predicted/run.json")
    assert [(r["epochs"], r["batch"]) for r in found["runs"][:4]] == [(1, 32), (1, 64), (2, 32), (2, 64)]
    test = Path("data/tasks/sst2/test.tsv").read_text(encoding="utf-8").splitlines()
    lines = (
        Path("results/predictions/sst2/1/predicted/pretrained/sst2.test.jsonl").read_text(encoding="utf-8").splitlines()
    )
    assert len(lines) == len(test) - 1 and {json.loads(line)["prediction"] for line in lines} <= {"0", "1"}


def test_predictions_are_those_of_the_model_that_is_kept(study, tmp_path, monkeypatch):
    transformers = pytest.importorskip("transformers")
    monkeypatch.chdir(copy_of(study, tmp_path))
    run(seed=1, model=MODEL, finetune=params(learning_rates=(2e-3, 1e-6)), task="sst2", restart="1")
    model = transformers.AutoModelForSequenceClassification.from_pretrained("models/finetuned/sst2/1/kept-model").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained("models/finetuned/sst2/1/kept-model")
    rows = [line.split("\t") for line in Path("data/tasks/sst2/dev.tsv").read_text().splitlines()[1:40]]
    with torch.no_grad():
        theirs = model(**tokenizer([row[0] for row in rows], padding=True, return_tensors="pt")).logits
    lines = Path("results/predictions/sst2/1/predicted/pretrained/sst2.jsonl").read_text(encoding="utf-8").splitlines()
    ours = [json.loads(line)["outputs"] for line in lines[:39]]
    np.testing.assert_allclose(ours, theirs, atol=1e-5)


@pytest.mark.parametrize(("task", "labels"), [("mnli", 3), ("stsb", 1), ("sst2", 2), ("squad1", None)])
def test_labels_are_named_as_transformers_does(task, labels):
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
def test_stopped_anywhere_it_ends_in_the_same_bytes(study, tmp_path, monkeypatch, after, recipe):
    wanted = params(learning_rates=(1e-3, 2e-3), **recipe)
    monkeypatch.chdir(study)
    run(seed=1, model=MODEL, finetune=wanted, task="sst2", restart="7")
    undisturbed = outputs_of(study)
    monkeypatch.chdir(copy_of(study, tmp_path))
    monkeypatch.setattr(finetune, "make_trainer", stopping_after(after))
    with pytest.raises(Interrupted, match="checkpoint is saved"):
        run(seed=1, model=MODEL, finetune=wanted, task="sst2", restart="7")
    assert (
        not Path("models/finetuned/sst2/7/kept-model").exists()
        and not Path("results/predictions/sst2/7/predicted").exists()
    )
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    steps = []
    monkeypatch.setattr(finetune, "make_trainer", counting(steps))
    run(seed=1, model=MODEL, finetune=wanted, task="sst2", restart="7")
    assert outputs_of(tmp_path) == undisturbed
    per_run = (
        4 * wanted.defaults.epochs[0] * -(-len(Path("data/tasks/sst2/train.tsv").read_text().splitlines()[1:]) // 64)
    )
    assert len(steps) == per_run - after, "what was done before the stop was done again"
    assert not list(Path("checkpoints/finetune/sst2/7").iterdir())


def test_another_encoder_of_the_same_form_trains_no_baseline_again(study, tmp_path, monkeypatch):
    """What `dvc exp run -S mask_prob=0.2` changes is pretraining, on which random weights do not depend."""
    monkeypatch.chdir(copy_of(study, tmp_path))
    steps, predicted = [], Path("results/predictions/sst2/1/predicted")
    monkeypatch.setattr(finetune, "make_trainer", counting(steps))
    run(seed=1, model=MODEL, finetune=params(), task="sst2", restart="1")
    both, baseline = len(steps), hash_file(predicted / "random/sst2.jsonl")
    file = Path("models/pretrained/phase2/model.safetensors")
    save_file({name: tensor * 1.1 for name, tensor in load_file(file).items()}, file)
    run(seed=1, model=MODEL, finetune=params(), task="sst2", restart="1")
    assert len(steps) == both + both // 2
    assert hash_file(predicted / "random/sst2.jsonl") == baseline
    assert [r["weights"] for r in read_json(predicted / "run.json")["runs"]] == ["pretrained", "random"]

    shutil.rmtree("data/baselines")
    run(seed=1, model=MODEL, finetune=params(), task="sst2", restart="1")
    assert hash_file(predicted / "random/sst2.jsonl") == baseline, "the same bytes, kept or trained again"
    del steps[:]
    run(seed=1, model=MODEL, finetune=params(dropout=0.2), task="sst2", restart="1")
    assert len(steps) == both, "another recipe, another baseline"
    tokenizer = Path("models/pretrained/phase2/tokenizer.json")
    tokenizer.write_text(tokenizer.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    del steps[:]
    run(seed=1, model=MODEL, finetune=params(), task="sst2", restart="1")
    assert len(steps) == both, "another form, another baseline"


def task_trainer(folder: Path, optimizer: str = "adamw", **recipe) -> TaskTrainer:
    """A trainer of SST-2 from an encoder."""
    wanted = params(**recipe).model_copy(update={"optimizer": optimizer})
    model = ModelParams(
        architecture=architecture_name(load_config(folder).names.model_type), num_hidden_layers=1, hidden_size=64
    )
    data, config = TaskData(load_spec("sst2"), folder, 64), load_task_config(folder, model, wanted.defaults)
    return TaskTrainer(data.spec, wanted.defaults, wanted, config, folder, data.training(), 1, Machine())


def test_select_best_keeps_the_weights_and_loss_of_the_epoch_with_the_highest_score(study, tmp_path, monkeypatch):
    monkeypatch.chdir(copy_of(study, tmp_path))
    trainer, seen = task_trainer(Path("models/pretrained/phase2"), epochs=4, select="best"), []
    point = GridPoint(1e-3, 4, 64)

    def score_model(model: BertForTask) -> float:
        seen.append({name: tensor.clone() for name, tensor in model.state_dict().items()})
        return [60.0, 80.0, 80.0, 70.0][len(seen) - 1]  # of equal ones the first is kept

    with catch_stop_requests() as stop_request:
        checkpointer = open_checkpointer(trainer, {"task": {"name": "sst2"}, "restart": "1"}, stop_request, point)
        model, loss, epoch = trainer.train("pretrained", point, checkpointer, score_model=score_model)
        checkpointer.finish()
    assert epoch == 2 and len(seen) == 4
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, seen[1][name]), name
    assert not torch.equal(seen[1]["classifier.weight"], seen[3]["classifier.weight"])
    assert not [path for path in Path("checkpoints").rglob("*.safetensors")]


def test_select_best_is_an_error_once_the_best_checkpoint_is_damaged(study, tmp_path, monkeypatch):
    monkeypatch.chdir(copy_of(study, tmp_path))
    trainer, point, scores = (
        task_trainer(Path("models/pretrained/phase2"), epochs=3, select="best"),
        GridPoint(1e-3, 3, 64),
        [],
    )

    def score_model(model: BertForTask) -> float:
        scores.append(80.0 - len(scores))
        if len(scores) == 3:
            first = min(Path("checkpoints").rglob("step-*"))
            (first / "tensors.safetensors").write_bytes(b"damaged")
        return scores[-1]

    with catch_stop_requests() as stop_request:
        checkpointer = open_checkpointer(trainer, {"task": {"name": "sst2"}, "restart": "2"}, stop_request, point)
        with pytest.raises(PipelineError, match="the best checkpoint cannot be read"):
            trainer.train("pretrained", point, checkpointer, score_model=score_model)


@pytest.mark.parametrize("architecture", ["bert", "deberta", "deberta_v2", "modernbert", "bilstm", "albert"])
def test_training_after_a_prediction_has_gradients_at_lengths_that_were_predicted_first(
    study, tmp_path, monkeypatch, architecture
):
    monkeypatch.chdir(copy_of(study, tmp_path))
    size = ModelParams(architecture=architecture, num_hidden_layers=2, hidden_size=64)
    config = load_architecture(architecture).config.from_params(size, 600)
    encoder = BertForMaskedLM(config)
    initialise(encoder, torch.Generator().manual_seed(3))
    Path("models/other").mkdir()
    save_model(
        Path("models/other"), encoder, config, config.names.classes["masked_words"], Path("models/pretrained/phase2")
    )
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


def test_run_json_says_which_epoch_was_kept(study, monkeypatch):
    monkeypatch.chdir(study)
    for select in ("last", "best"):
        run(seed=1, model=MODEL, finetune=params(epochs=3, select=select), task="sst2", restart="8")
        found = read_json("results/predictions/sst2/8/predicted/run.json")
        assert found["recipe"]["select"] == select
        assert all(run["kept_epoch"] in ((3,) if select == "last" else (1, 2, 3)) for run in found["runs"])


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_every_optimizer_finetunes(study, monkeypatch, optimizer):
    monkeypatch.chdir(study)
    trainer = task_trainer(Path("models/pretrained/phase2"), optimizer)
    before, (after, loss, _) = trainer.pretrained(), trainer.train("pretrained", GridPoint(1e-3, 1, 64))
    assert np.isfinite(loss)
    moved = {name for name, tensor in after.state_dict().items() if not torch.equal(tensor, before.state_dict()[name])}
    assert "bert.encoder.layer.0.output.dense.weight" in moved and "classifier.weight" in moved


def test_reinit_layers_draws_the_top_blocks_and_the_pooler_anew(make_study, monkeypatch):
    monkeypatch.chdir(make_study(("sst2",), layers=2))
    folder = Path("models/pretrained/phase2")
    stored, model = load_file(folder / "model.safetensors"), task_trainer(folder, reinit_layers=1).pretrained()
    drawn = {
        name for name, tensor in model.named_parameters() if name in stored and not torch.equal(tensor, stored[name])
    }
    assert {".".join(name.split(".")[:4]) for name in drawn if ".layer." in name} == {"bert.encoder.layer.1"}
    assert {name for name in drawn if ".layer." not in name} == {"bert.pooler.dense.weight"}
    assert all(float(tensor.detach().std()) < 0.03 for name, tensor in model.named_parameters() if name in drawn)


def test_more_blocks_to_draw_anew_than_there_are_is_an_error_before_any_work(study, monkeypatch):
    monkeypatch.chdir(study)
    with pytest.raises(PipelineError, match="than there are: 2"):
        run(seed=1, model=MODEL, finetune=params(reinit_layers=2), task="sst2", restart="1")


def test_an_untrained_pooler_is_drawn_anew_and_said(study, tmp_path, monkeypatch, caplog):
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


def test_modernbert_carries_its_mlm_transform_into_the_task_head(study, tmp_path, monkeypatch):
    monkeypatch.chdir(copy_of(study, tmp_path))
    config = ModernBertConfig(600, 64, 1, 1, 96)
    pretrained = BertForMaskedLM(config)
    initialise(pretrained, torch.Generator().manual_seed(3))
    Path("models/modern").mkdir()
    save_model(Path("models/modern"), pretrained, config, "ModernBertForMaskedLM", Path("models/pretrained/phase2"))
    head = task_trainer(Path("models/modern")).pretrained().bert.pooler
    assert torch.equal(head.dense.weight, pretrained.cls["predictions"].transform.dense.weight)
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained("models/modern")
    assert torch.equal(head.dense.weight, theirs.head.dense.weight)
    assert torch.equal(head.LayerNorm.weight, theirs.head.norm.weight)


def test_an_encoder_without_a_pooler_will_do(study, tmp_path, monkeypatch):
    monkeypatch.chdir(copy_of(study, tmp_path))
    bare = Path("models/bare")
    shutil.copytree("models/pretrained/phase2", bare)
    tensors = load_file(bare / "model.safetensors")
    save_file({name: t for name, t in tensors.items() if ".pooler." not in name}, bare / "model.safetensors")
    run(seed=1, model=MODEL, finetune=params().model_copy(update={"model": "models/bare"}), task="sst2", restart="1")
    assert "bert.pooler.dense.weight" in load_file("models/finetuned/sst2/1/kept-model/model.safetensors")


def copy_of(study: Path, tmp_path: Path) -> Path:
    """The study's inputs in a folder of their own."""
    shutil.copytree(study / "data/tasks", tmp_path / "data/tasks")
    shutil.copytree(study / "models/pretrained", tmp_path / "models/pretrained")
    return tmp_path


def outputs_of(root: Path) -> dict[str, str]:
    """Sums of every output of restart 7."""
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
