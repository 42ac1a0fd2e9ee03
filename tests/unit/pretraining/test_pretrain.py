"""The two phases as one training, and what its parameters change."""

import logging
import os
import shutil

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import hash_file, read_json
from pipeline_src.config.machine import Machine, PretrainingMachine
from pipeline_src.config.model import ModelParams
from pipeline_src.config.pretrain import PretrainParams, Steps
from pipeline_src.examples.build_examples import run as plan_examples
from pipeline_src.models.bert import INITIAL_STD, BertConfig
from pipeline_src.pretraining import pretrain
from pipeline_src.pretraining.phases import Phase
from pipeline_src.tokenizer.load import load_tokenizer
from pipeline_src.training.distributed import Distributed
from pipeline_src.training.gpu import choose_compile
from pipeline_src.training.objective import load_objective
from tests.unit.old_gpu import show_an_old_gpu
from tests.unit.pretraining.small import EXAMPLES, PAIRS, WAYS, build_teacher
from tests.unit.pretraining.small import train_phase as run


def test_two_phases_learn_and_go_on_where_the_first_stopped(study):
    run("phase1", phase1=250)
    run("phase2", phase1=250)
    short, long = (read_json(f"results/pretrain/{phase}.json") for phase in ("phase1", "phase2"))
    assert (
        long["steps_before"] == 250 and read_json("models/pretrained/phase2/training_state/state.json")["step"] == 260
    )
    assert short["validation"]["mlm_loss"] < np.log(50) - 0.5 and short["validation"]["gap"] > 0
    curve = pd.read_csv("results/pretrain/phase2.tsv", sep="\t")
    assert curve["step"].tolist()[-1] == 260 and curve["learning_rate"].iloc[-1] < curve["learning_rate"].iloc[0]
    assert curve["mlm_loss"].iloc[0] < np.log(50) - 0.2  # it went on; a fresh model would start at log(50)


def test_same_seed_same_bytes_and_another_seed_other_ones(study):
    def weights(**changes) -> str:
        run("phase1", phase1=8, **changes)
        return hash_file("models/pretrained/phase1/model.safetensors")

    first = weights()
    assert weights() == first
    assert weights(seed=2) != first
    assert weights(mask_prob=0.3) != first
    assert weights(dynamic=True) == first  # in the first epoch they are the same
    assert weights(mask_ratio=1.0, random_ratio=0.0, keep_ratio=0.0) != first


def test_masked_words_alone(study):
    """Without next sentences there is no such loss, no such figure, and the words are learnt all the same."""
    plan_examples(seed=1, examples=EXAMPLES.model_copy(update={"pair_objective": "none"}))
    run("phase1", phase1=250)
    run("phase2", phase1=250)
    figures = read_json("results/pretrain/phase1.json")
    assert figures["pairs"] == "none" and "nsp_loss" not in figures["train"]
    assert figures["validation"]["gap"] > 0 and "nsp_accuracy" not in figures["validation"]
    curve = pd.read_csv("results/pretrain/phase1.tsv", sep="\t")
    assert curve["nsp_loss"].isna().all() and np.allclose(curve["loss"], curve["mlm_loss"])


def test_validation_masks_do_not_follow_the_studys_rate(study):
    run("phase1", phase1=2)
    predictions = read_json("results/pretrain/phase1.json")["validation"]["predictions"]
    run("phase1", phase1=2, mask_prob=0.4)
    assert read_json("results/pretrain/phase1.json")["validation"]["predictions"] == predictions


def test_the_second_phase_without_the_first_is_one_clear_error(study):
    with pytest.raises(PipelineError, match="nothing to read: models/pretrained/phase1"):
        run("phase2")
    assert not os.path.exists("models/pretrained/phase2")


def test_what_this_machine_cannot_do_is_said_before_anything_is_trained(study, monkeypatch):
    with pytest.raises(PipelineError, match="this attention needs a GPU: flash_varlen, on cpu"):
        run("phase1", attention="flash_varlen")
    show_an_old_gpu(monkeypatch)
    with pytest.raises(PipelineError, match="this GPU has no bfloat16: Tesla T4"):
        run("phase1", precision="bfloat16")
    assert not any(map(os.path.exists, ("models", "results", "checkpoints/phase1")))


IN_CI = [way if way in ("mlm", "electra") else pytest.param(way, marks=pytest.mark.slow) for way in WAYS]


@pytest.mark.parametrize("way", IN_CI)
def test_every_way_of_learning_goes_in_bfloat16_on_a_cpu(study, way):
    """The same curve but for rounding, from the same bytes twice; and said in what it was computed."""
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


def test_the_flops_that_compiling_is_weighed_by_are_those_of_full_sequences(study):
    """More than are counted from the examples as they are, but not by much."""
    run("phase1", phase1=6, train_batch_size=16)
    counted = read_json("results/pretrain/phase1.json")["cost"]["flops"]
    model = ModelParams(num_hidden_layers=1, hidden_size=64, max_position_embeddings=32)
    phase = Phase("phase1", 1, 0.15, model, PretrainParams(steps=Steps(phase1=6, phase2=0), train_batch_size=16))
    config = BertConfig.from_params(model, 50)
    full, causal = (pretrain.max_flops_per_step(phase, load_objective(name)(config, "none")) for name in ("mlm", "clm"))
    assert counted < 6 * full < 1.5 * counted and full < causal  # which predicts every token


def test_a_failing_phase_leaves_an_earlier_model_alone(study):
    """It fails after its model is written: a kept model is gone when it is to be copied."""
    run("phase1", phase1=3)
    before = hash_file("models/pretrained/phase1/model.safetensors")

    def lose_kept_model(step: int) -> None:
        for folder in study.glob("checkpoints/phase1/*/kept"):
            shutil.rmtree(folder)

    with pytest.raises(FileNotFoundError):
        run("phase1", phase1=4, keep_checkpoint_steps=(2,), after_step=lose_kept_model)
    assert hash_file("models/pretrained/phase1/model.safetensors") == before
    assert sorted(os.listdir("models/pretrained")) == ["phase1"]


def test_another_number_of_steps_than_the_first_phase_took_is_one_clear_error(study):
    run("phase1", phase1=3)
    with pytest.raises(PipelineError, match="3, not 4"):
        run("phase2", phase1=4)


def test_a_second_phase_of_no_steps_hands_on_the_first_ones_model(study):
    steps = Steps(phase1=9, phase2=0)
    run("phase1", steps=steps)
    run("phase2", steps=steps)
    for name in ("model.safetensors", "training_state/optimizer.safetensors", "training_state/state.json"):
        short, long = (hash_file(f"models/pretrained/{phase}/{name}") for phase in ("phase1", "phase2"))
        assert short == long, name
    figures = read_json("results/pretrain/phase2.json")
    assert (figures["steps"], figures["steps_before"], figures["train"]) == (0, 9, {})
    assert figures["cost"]["tokens"] == 0 and figures["validation"]["mlm_loss"] > 0
    curve = pd.read_csv("results/pretrain/phase2.tsv", sep="\t")
    assert curve.empty and list(curve) == list(pd.read_csv("results/pretrain/phase1.tsv", sep="\t"))


def test_a_first_phase_of_no_steps_hands_on_the_weights_it_drew(study):
    steps = Steps(phase1=0, phase2=9)
    run("phase1", steps=steps)
    drawn = load_file("models/pretrained/phase1/model.safetensors")
    assert drawn["bert.embeddings.word_embeddings.weight"].abs().max() <= 2 * INITIAL_STD
    run("phase2", steps=steps)
    learnt = load_file("models/pretrained/phase2/model.safetensors")
    assert not torch.equal(drawn["cls.predictions.bias"], learnt["cls.predictions.bias"])
    assert read_json("results/pretrain/phase2.json")["cost"]["steps"] == 9


def test_betas_and_epsilon_of_the_parameters_are_used(study):
    weights = set()
    for change in ({}, {"betas": (0.5, 0.999)}, {"betas": (0.9, 0.9)}, {"adam_epsilon": 1e-2}):
        run("phase1", phase1=3, **change)
        weights.add(hash_file("models/pretrained/phase1/model.safetensors"))
    assert len(weights) == 4


def test_a_batch_cut_into_pieces_is_the_same_batch(study):
    """Up to rounding: losses of unequal pieces are divided by the counts of the whole."""

    def curve(microbatch_tokens: int) -> pd.DataFrame:
        run("phase1", phase1=5, hidden_dropout_prob=0.0, microbatch_tokens=microbatch_tokens)
        return pd.read_csv("results/pretrain/phase1.tsv", sep="\t")

    whole, pieces, single = curve(16_384), curve(50), curve(1)
    assert len(whole) == 5
    for other in (pieces, single):
        np.testing.assert_allclose(other.drop(columns="step"), whole.drop(columns="step"), rtol=2e-4, atol=1e-6)


def test_held_out_text_is_measured_on_the_way(study):
    run("phase1", phase1=30, eval_steps=10, log_points=5)
    curve = pd.read_csv("results/pretrain/phase1.tsv", sep="\t")
    measured = curve.dropna(subset="validation_mlm_loss")
    assert curve["step"].tolist() == [8, 10, 16, 20, 24, 30] and measured["step"].tolist() == [10, 20]
    assert measured["validation_mlm_loss"].is_monotonic_decreasing and measured["validation_nsp_accuracy"].notna().all()
    run("phase1", phase1=30, log_points=5)
    assert pd.read_csv("results/pretrain/phase1.tsv", sep="\t")["step"].tolist() == [8, 16, 24, 30]


def test_models_of_chosen_steps_are_kept(study):
    run("phase1", phase1=9, keep_checkpoint_steps=(3, 6))
    one, last = (hash_file(f"models/pretrained/phase1/{at}model.safetensors") for at in ("steps/3/", ""))
    assert sorted(os.listdir("models/pretrained/phase1/steps")) == ["3", "6"] and one != last
    run("phase1", phase1=3)  # still in the warm-up, so that a shorter training takes the same steps
    assert hash_file("models/pretrained/phase1/model.safetensors") == one
    assert not os.path.exists("models/pretrained/phase1/steps")


def test_left_to_right(study):
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
def test_other_ways_to_train_learn_too(study, change):
    run("phase1", phase1=150, **change)
    curve = pd.read_csv("results/pretrain/phase1.tsv", sep="\t")
    assert curve["mlm_loss"].iloc[-1] < curve["mlm_loss"].iloc[0] - 0.1


def test_the_cost_is_that_of_the_examples(study):
    run("phase1", phase1=6)
    cost = read_json("results/pretrain/phase1.json")["cost"]
    assert cost["steps"] == 6 and cost["sequences"] == 96
    assert cost["tokens"] <= 96 * 16 and cost["tokens_per_batch"] == 16 * 16
    assert cost["normalised_computation"] == read_json("results/pretrain/phase1.json")["parameters"] * 6 * 256
    assert read_json("logs/pretrain/phase1.cost.json")["tokens_per_second"] > 0


def test_the_results_show_examples_as_training_saw_them(study):
    run("phase1", mask_prob=0.5, phase1=2)
    shown = read_json("results/pretrain/phase1.json")["shown_examples"]
    assert len(shown) == 5 and all(example["pair"].startswith("B ") for example in shown)
    assert all(len(example["segments"]) == 2 for example in shown)
    pieces = [piece for example in shown for segment in example["segments"] for piece in segment]
    predicted = [piece for piece in pieces if piece["fate"]]
    assert 0.4 < len(predicted) / len(pieces) < 0.8 and all(piece["was"] for piece in predicted)
    assert {piece["text"] for piece in predicted if piece["fate"] == "mask"} == {"[MASK]"}
    assert all(piece["text"] == piece["was"] for piece in predicted if piece["fate"] == "keep")


PEAK = 1e15
FIVE_MINUTES = 300 * 0.25 * PEAK  # FLOPs


@pytest.fixture
def a_compiler(monkeypatch):
    monkeypatch.setenv("CC", "cc")


@pytest.mark.parametrize(
    ("flops", "expected", "said"), [(1.01, True, "compiled"), (0.99, False, "not compiled: some 297")]
)
def test_auto_compiles_what_takes_over_five_minutes(caplog, a_compiler, flops, expected, said):
    with caplog.at_level(logging.INFO):
        assert choose_compile("auto", flops * FIVE_MINUTES, PEAK) is expected
    assert caplog.messages[-1].startswith(said)


def test_twice_the_gpus_take_half_the_time(a_compiler):
    assert not choose_compile("auto", 1.5 * FIVE_MINUTES, 2 * PEAK)


def test_without_a_c_compiler_auto_does_not(caplog, monkeypatch):
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", "")
    with caplog.at_level(logging.INFO):
        assert choose_compile("auto", 9 * FIVE_MINUTES, PEAK) is False
    assert "no C compiler" in caplog.messages[-1]


@pytest.mark.parametrize("wanted", [True, False])
def test_what_machine_yaml_says_holds(wanted):
    assert choose_compile(wanted, 0 if wanted else 9 * FIVE_MINUTES, PEAK) is wanted


def capacity_of(machine: PretrainingMachine, objective: str = "mlm", architecture: str = "bert", device: str = "cuda"):
    """Sizes for a batch of 5 sequences of up to 16 tokens on two processes, with the attention of a GPU."""
    model = ModelParams(architecture=architecture, num_hidden_layers=1, hidden_size=64, max_position_embeddings=32)
    params = PretrainParams(steps=Steps(phase1=6, phase2=0), train_batch_size=5, objective=objective)
    phase = Phase("phase1", 1, 0.15, model, params, Machine(pretrain=machine))
    tokenizer, distributed = load_tokenizer(pretrain.VOCABULARY), Distributed(0, 2, torch.device(device))
    examples = pretrain.open_training_examples(phase, tokenizer)
    return pretrain.phase_capacity(phase, examples, tokenizer, "flash_varlen", distributed)


def test_a_gpus_microbatches_have_a_fixed_capacity_where_that_costs_nothing(study):
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
def test_a_fixed_capacity_that_cannot_be_is_one_clear_error(study, objective, device, reason):
    assert capacity_of(PretrainingMachine(), objective, device=device) is None
    with pytest.raises(PipelineError, match=f"needs {reason}"):
        capacity_of(PretrainingMachine(fixed_capacity=True), objective, device=device)
