"""Phases of pretraining, and the effects of their settings."""

import os
import shutil

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import hash_file, read_json
from pipeline_src.examples.build_examples import run as plan_examples
from pipeline_src.model.bert import INITIAL_STD, BertConfig
from pipeline_src.pretrain import pretrain
from pipeline_src.pretrain.objective import load_objective
from pipeline_src.pretrain.phases import Phase
from pipeline_src.study.data import ExamplesParams, Lengths
from pipeline_src.study.machine import Machine, PretrainingMachine
from pipeline_src.study.model import ModelParams
from pipeline_src.study.pretrain import LaterPhase, PretrainParams, Steps
from pipeline_src.tokenizer.load import load_tokenizer
from pipeline_src.training.distributed import Distributed
from tests.unit.old_gpu import show_an_old_gpu
from tests.unit.pretrain.small import EXAMPLES, PAIRS, WAYS, build_teacher
from tests.unit.pretrain.small import train_phase as run


def test_phase2_continues_phase1(study):
    run("phase1", phase1=250)
    run("phase2", phase1=250)
    first, second = (read_json(f"results/pretrain/{phase}.json") for phase in ("phase1", "phase2"))
    assert second["steps_before"] == 250
    assert read_json("models/pretrained/phase2/training_state/state.json")["step"] == 260
    assert first["validation"]["mlm_loss"] < np.log(50) - 0.5 and first["validation"]["gap"] > 0
    curve = pd.read_csv("results/pretrain/phase2.tsv", sep="\t")
    assert curve["step"].tolist()[-1] == 260 and curve["learning_rate"].iloc[-1] < curve["learning_rate"].iloc[0]
    # A new model would start at a loss of log(50).
    assert curve["mlm_loss"].iloc[0] < np.log(50) - 0.2


def test_phase_outputs_depend_on_seed_and_masking(study):
    def weights(**changes) -> str:
        run("phase1", phase1=8, **changes)
        return hash_file("models/pretrained/phase1/model.safetensors")

    first = weights()
    assert weights() == first
    assert weights(seed=2) != first
    assert weights(mask_prob=0.3) != first
    # In the first epoch, static and dynamic masks are the same.
    assert weights(dynamic=True) == first
    assert weights(mask_ratio=1.0, random_ratio=0.0, keep_ratio=0.0) != first


def test_phase_without_pairs_learns_words_only(study):
    plan_examples(seed=1, examples=EXAMPLES.model_copy(update={"pair_objective": "none"}))
    run("phase1", phase1=250)
    figures = read_json("results/pretrain/phase1.json")
    assert figures["pairs"] == "none" and "nsp_loss" not in figures["train"]
    assert figures["validation"]["gap"] > 0 and "nsp_accuracy" not in figures["validation"]
    curve = pd.read_csv("results/pretrain/phase1.tsv", sep="\t")
    assert curve["nsp_loss"].isna().all() and np.allclose(curve["loss"], curve["mlm_loss"])


def test_validation_masks_do_not_depend_on_mask_prob(study):
    run("phase1", phase1=2)
    predictions = read_json("results/pretrain/phase1.json")["validation"]["predictions"]
    run("phase1", phase1=2, mask_prob=0.4)
    assert read_json("results/pretrain/phase1.json")["validation"]["predictions"] == predictions


def test_phase2_without_phase1_is_rejected(study):
    with pytest.raises(PipelineError, match="input of training is missing: models/pretrained/phase1"):
        run("phase2")
    assert not os.path.exists("models/pretrained/phase2")


def test_phase_settings_unsupported_by_machine_are_rejected_before_training(study, monkeypatch):
    with pytest.raises(PipelineError, match="this attention needs a GPU: flash_varlen, on cpu"):
        run("phase1", attention="flash_varlen")
    show_an_old_gpu(monkeypatch)
    with pytest.raises(PipelineError, match="this GPU has no bfloat16: Tesla T4"):
        run("phase1", precision="bfloat16")
    assert not any(map(os.path.exists, ("models", "results", "checkpoints/phase1")))


OBJECTIVES = [way if way in ("mlm", "electra") else pytest.param(way, marks=pytest.mark.slow) for way in WAYS]


@pytest.mark.parametrize("way", OBJECTIVES)
def test_phase_bfloat16_on_cpu_is_close_to_float32_and_deterministic(study, way):
    if "teacher" in WAYS[way]:
        build_teacher(study)
    if way in PAIRS:
        plan_examples(seed=1, examples=EXAMPLES.model_copy(update={"pair_objective": PAIRS[way]}))
    changes = {"phase1": 6, **WAYS[way]}
    losses = {}
    for precision in ("float32", "bfloat16"):
        run("phase1", precision=precision, **changes)
        losses[precision] = pd.read_csv("results/pretrain/phase1.tsv", sep="\t")["loss"].to_numpy()
        cost = read_json("logs/pretrain/phase1.cost.json")
        assert cost["peak_source"].startswith(precision)
    first = hash_file("models/pretrained/phase1/model.safetensors")
    run("phase1", precision="bfloat16", **changes)
    assert hash_file("models/pretrained/phase1/model.safetensors") == first
    assert not np.array_equal(losses["float32"], losses["bfloat16"])
    np.testing.assert_allclose(losses["bfloat16"], losses["float32"], rtol=0.02)


def test_max_flops_per_step_is_a_close_upper_bound(study):
    run("phase1", phase1=6, train_batch_size=16)
    counted = read_json("results/pretrain/phase1.json")["cost"]["flops"]
    model = ModelParams(num_hidden_layers=1, hidden_size=64, max_position_embeddings=32)
    phase = Phase("phase1", 1, 0.15, model, PretrainParams(steps=Steps(phase1=6, phase2=0), train_batch_size=16))
    config = BertConfig.from_params(model, 50)
    full, causal = (pretrain.max_flops_per_step(phase, load_objective(name)(config, "none")) for name in ("mlm", "clm"))
    assert counted < 6 * full < 1.5 * counted and full < causal  # which predicts every token


def test_phase_failure_keeps_earlier_model(study):
    """The phase fails after it has written its model, since a model to be copied is missing."""
    run("phase1", phase1=3)
    before = hash_file("models/pretrained/phase1/model.safetensors")

    def lose_kept_model(step: int) -> None:
        for folder in study.glob("checkpoints/phase1/*/kept"):
            shutil.rmtree(folder)

    with pytest.raises(FileNotFoundError):
        run("phase1", phase1=4, keep_checkpoint_steps=(2,), after_step=lose_kept_model)
    assert hash_file("models/pretrained/phase1/model.safetensors") == before
    assert sorted(os.listdir("models/pretrained")) == ["phase1"]


def test_phase2_other_number_of_phase1_steps_is_rejected(study):
    run("phase1", phase1=3)
    with pytest.raises(PipelineError, match="3, not 4"):
        run("phase2", phase1=4)


def test_phase2_without_steps_copies_phase1_model(study):
    steps = Steps(phase1=9, phase2=0)
    run("phase1", steps=steps)
    run("phase2", steps=steps)
    for name in ("model.safetensors", "training_state/optimizer.safetensors", "training_state/state.json"):
        first, second = (hash_file(f"models/pretrained/{phase}/{name}") for phase in ("phase1", "phase2"))
        assert first == second, name
    figures = read_json("results/pretrain/phase2.json")
    assert (figures["steps"], figures["steps_before"], figures["train"]) == (0, 9, {})
    assert figures["cost"]["tokens"] == 0 and figures["validation"]["mlm_loss"] > 0
    curve = pd.read_csv("results/pretrain/phase2.tsv", sep="\t")
    assert curve.empty and list(curve) == list(pd.read_csv("results/pretrain/phase1.tsv", sep="\t"))


THREE = ExamplesParams(max_seq_length=Lengths(phase1=16, phase2=16, phase3=32), dupe_factor=4, pair_objective="none")
LATER = {"phase3": LaterPhase(after="phase2", train_batch_size=4, global_rope_theta=160_000.0)}
LONG = {
    **{"steps": Steps(phase1=4, phase2=3, phase3=2), "later_phases": LATER},
    **{"architecture": "modernbert", "global_rope_theta": 10_000.0},
}


def test_phase3_continues_phase2_with_its_own_length_batch_and_theta(study, monkeypatch):
    monkeypatch.setattr("pipeline_src.pretrain.validation.MIN_RANGE", 16)
    plan_examples(seed=1, examples=THREE)
    for phase in ("phase1", "phase2", "phase3"):
        run(phase, **LONG)
    results = [read_json(f"results/pretrain/phase{number}.json") for number in (1, 2, 3)]
    assert [(result["steps_before"], result["steps"], result["batch"]) for result in results] == [
        (0, 4, 16), (4, 3, 16), (7, 2, 4),
    ]  # fmt: skip
    thetas = [read_json(f"models/pretrained/phase{number}/config.json")["global_rope_theta"] for number in (1, 2, 3)]
    assert thetas == [10_000, 10_000, 160_000]
    assert all(list(result["by_position"]) == ["0-15", "16-31"] for result in results)
    assert results[2]["cost"]["tokens"] > 2 * 4 * 16
    total = results[2]["by_position"]["0-15"] + results[2]["by_position"]["16-31"]
    assert abs(total / 2 - results[2]["validation"]["mlm_loss"]) < 0.1


def test_phase_later_phases_override_settings():
    lengths = {f"phase{number}": {"length": length} for number, length in enumerate((16, 16, 32, 64), 1)}
    later = LATER | {"phase4": LaterPhase(after="phase3")}
    params = PretrainParams(
        steps=Steps(phase1=4, phase2=3, phase3=2, phase4=1), train_batch_size=16, later_phases=later
    )
    phases = [Phase(name, 1, 0.15, ModelParams(num_hidden_layers=1, hidden_size=64), params) for name in lengths]
    for phase in phases:
        phase.__dict__["examples_manifest"] = lengths
    assert [(phase.first, phase.last, phase.total) for phase in phases] == [
        (0, 4, 10), (4, 7, 10), (7, 9, 10), (9, 10, 10),
    ]  # fmt: skip
    assert [phase.start and phase.start.name for phase in phases] == [None, "phase1", "phase2", "phase3"]
    assert [phase.pretrain.train_batch_size for phase in phases] == [16, 16, 4, 16]
    assert [phase.model.global_rope_theta for phase in phases] == [None, None, 160_000, 160_000]
    assert phases[1].tokens(5) == 5 * 16 * 16 and phases[2].tokens(8) == 7 * 16 * 16 + 4 * 32
    assert phases[3].tokens(10) == 7 * 16 * 16 + 2 * 4 * 32 + 16 * 64
    with pytest.raises(PipelineError, match="phase5"):
        Phase("phase5", 1, 0.15, phases[0].model, params)


def test_phase1_without_steps_saves_random_weights(study):
    steps = Steps(phase1=0, phase2=9)
    run("phase1", steps=steps)
    initial = load_file("models/pretrained/phase1/model.safetensors")
    assert initial["bert.embeddings.word_embeddings.weight"].abs().max() <= 2 * INITIAL_STD
    run("phase2", steps=steps)
    learnt = load_file("models/pretrained/phase2/model.safetensors")
    assert not torch.equal(initial["cls.predictions.bias"], learnt["cls.predictions.bias"])
    assert read_json("results/pretrain/phase2.json")["cost"]["steps"] == 9


def test_phase_betas_and_epsilon_change_the_weights(study):
    weights = set()
    for change in ({}, {"betas": (0.5, 0.999)}, {"betas": (0.9, 0.9)}, {"adam_epsilon": 1e-2}):
        run("phase1", phase1=3, **change)
        weights.add(hash_file("models/pretrained/phase1/model.safetensors"))
    assert len(weights) == 4


def test_phase_microbatches_equal_full_batch_but_for_rounding(study):

    def curve(microbatch_tokens: int) -> pd.DataFrame:
        run("phase1", phase1=5, hidden_dropout_prob=0.0, microbatch_tokens=microbatch_tokens)
        return pd.read_csv("results/pretrain/phase1.tsv", sep="\t")

    expected = curve(16_384).drop(columns="step")
    assert len(expected) == 5
    for tokens in (50, 1):
        np.testing.assert_allclose(curve(tokens).drop(columns="step"), expected, rtol=2e-4, atol=1e-6)


def test_phase_eval_steps_measure_validation_set(study):
    run("phase1", phase1=30, eval_steps=10, log_points=5)
    curve = pd.read_csv("results/pretrain/phase1.tsv", sep="\t")
    measured = curve.dropna(subset="validation_mlm_loss")
    assert curve["step"].tolist() == [8, 10, 16, 20, 24, 30] and measured["step"].tolist() == [10, 20]
    assert measured["validation_mlm_loss"].is_monotonic_decreasing and measured["validation_nsp_accuracy"].notna().all()
    run("phase1", phase1=30, log_points=5)
    assert pd.read_csv("results/pretrain/phase1.tsv", sep="\t")["step"].tolist() == [8, 16, 24, 30]


def test_phase_keep_checkpoint_steps_saves_models(study):
    run("phase1", phase1=9, keep_checkpoint_steps=(3, 6))
    third, last = (hash_file(f"models/pretrained/phase1/{at}model.safetensors") for at in ("steps/3/", ""))
    assert sorted(os.listdir("models/pretrained/phase1/steps")) == ["3", "6"] and third != last
    for folder in ("", "steps/3/"):
        assert read_json(f"models/pretrained/phase1/{folder}tokenizer_config.json")["model_max_length"] == 32
    run("phase1", phase1=3)  # still in the warm-up, so that a shorter training takes the same steps
    assert hash_file("models/pretrained/phase1/model.safetensors") == third
    assert not os.path.exists("models/pretrained/phase1/steps")


def test_phase_clm_learns(study):
    plan_examples(seed=1, examples=EXAMPLES.model_copy(update={"pair_objective": "none"}))
    run("phase1", phase1=150, objective="clm")
    figures = read_json("results/pretrain/phase1.json")
    assert figures["objective"] == "clm" and figures["config"]["is_decoder"]
    assert figures["validation"]["mlm_loss"] < np.log(50) - 0.5


@pytest.mark.parametrize(
    "change",
    [
        {"optimizer": "bert_adam"},
        {"optimizer": "lamb"},
        {"optimizer": "muon", "max_grad_norm": None},
        {"activation_checkpointing": True},
    ],
)
def test_phase_other_optimizers_and_checkpointing_learn(study, change):
    run("phase1", phase1=150, **change)
    curve = pd.read_csv("results/pretrain/phase1.tsv", sep="\t")
    assert curve["mlm_loss"].iloc[-1] < curve["mlm_loss"].iloc[0] - 0.1


def test_phase_cost_counts_steps_sequences_tokens(study):
    run("phase1", phase1=6)
    cost = read_json("results/pretrain/phase1.json")["cost"]
    assert cost["steps"] == 6 and cost["sequences"] == 96
    assert cost["tokens"] <= 96 * 16 and cost["tokens_per_batch"] == 16 * 16
    assert cost["normalised_computation"] == read_json("results/pretrain/phase1.json")["parameters"] * 6 * 256
    assert read_json("logs/pretrain/phase1.cost.json")["tokens_per_second"] > 0


def test_phase_results_have_examples_with_masks(study):
    run("phase1", mask_prob=0.5, phase1=2)
    examples = read_json("results/pretrain/phase1.json")["shown_examples"]
    assert len(examples) == 5 and all(example["pair"].startswith("B ") for example in examples)
    assert all(len(example["segments"]) == 2 for example in examples)
    pieces = [piece for example in examples for segment in example["segments"] for piece in segment]
    predicted = [piece for piece in pieces if piece["fate"]]
    assert 0.4 < len(predicted) / len(pieces) < 0.8 and all(piece["was"] for piece in predicted)
    assert {piece["text"] for piece in predicted if piece["fate"] == "mask"} == {"[MASK]"}
    assert all(piece["text"] == piece["was"] for piece in predicted if piece["fate"] == "keep")


def capacity_of(machine: PretrainingMachine, objective: str = "mlm", architecture: str = "bert", device: str = "cuda"):
    """Return the capacity for a batch of 5 sequences of up to 16 tokens on two processes, with GPU attention."""
    model = ModelParams(architecture=architecture, num_hidden_layers=1, hidden_size=64, max_position_embeddings=32)
    params = PretrainParams(steps=Steps(phase1=6, phase2=0), train_batch_size=5, objective=objective)
    phase = Phase("phase1", 1, 0.15, model, params, Machine(pretrain=machine))
    tokenizer, distributed = load_tokenizer(pretrain.VOCABULARY), Distributed(0, 2, torch.device(device))
    examples = pretrain.open_training_examples(phase, tokenizer)
    return pretrain.phase_capacity(phase, examples, tokenizer, "flash_varlen", distributed)


def test_phase_capacity_auto_is_used_only_with_unpadded_attention_on_gpu(study):
    capacity = capacity_of(PretrainingMachine())
    assert (capacity.real_sequences, capacity.length, capacity.predictions_per_sequence) == (3, 16, 2)
    assert capacity_of(PretrainingMachine(microbatch_tokens=20)).real_sequences == 1
    assert capacity_of(PretrainingMachine(), device="cpu") is None
    assert capacity_of(PretrainingMachine(), architecture="deberta") is None
    assert capacity_of(PretrainingMachine(fixed_capacity=True), architecture="deberta") == capacity
    assert capacity_of(PretrainingMachine(fixed_capacity=False)) is None


@pytest.mark.parametrize(
    ("objective", "device", "reason"),
    [("tinybert", "cuda", "another objective than tinybert"), ("mlm", "cpu", "a CUDA device")],
)
def test_phase_capacity_unsupported_is_rejected(study, objective, device, reason):
    assert capacity_of(PretrainingMachine(), objective, device=device) is None
    with pytest.raises(PipelineError, match=f"needs {reason}"):
        capacity_of(PretrainingMachine(fixed_capacity=True), objective, device=device)
