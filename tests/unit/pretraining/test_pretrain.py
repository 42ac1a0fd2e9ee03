"""The two phases as one training, and what its parameters change."""

import os

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import hash_file, read_json
from pipeline_src.examples.build_examples import run as plan_examples
from pipeline_src.models.bert import INITIAL_STD, BertConfig
from pipeline_src.params.model import ModelParams
from pipeline_src.params.pretrain import PretrainParams, Steps
from pipeline_src.pretraining import finish, prepare
from pipeline_src.training.objective import load_objective
from tests.unit.old_gpu import show_an_old_gpu
from tests.unit.pretraining.small import EXAMPLES, PAIRS, WAYS, make_teacher
from tests.unit.pretraining.small import train_phase as run


def test_two_phases_learn_and_go_on_where_the_first_stopped(study):
    run("short", short=250)
    run("long", short=250)
    short, long = (read_json(f"results/pretrain/{phase}.json") for phase in ("short", "long"))
    assert long["steps_before"] == 250 and read_json("models/pretrained/long/training_state/state.json")["step"] == 260
    assert short["validation"]["mlm_loss"] < np.log(50) - 0.5 and short["validation"]["gap"] > 0
    curve = pd.read_csv("results/pretrain/long.tsv", sep="\t")
    assert curve["step"].tolist()[-1] == 260 and curve["learning_rate"].iloc[-1] < curve["learning_rate"].iloc[0]
    assert curve["mlm_loss"].iloc[0] < np.log(50) - 0.2  # it went on; a fresh model would start at log(50)


def test_same_seed_same_bytes_and_another_seed_other_ones(study):
    def weights(**changes) -> str:
        run("short", short=8, **changes)
        return hash_file("models/pretrained/short/model.safetensors")

    first = weights()
    assert weights() == first
    assert weights(seed=2) != first
    assert weights(mask_prob=0.3) != first
    assert weights(dynamic=True) == first  # in the first epoch they are the same
    assert weights(mask=1.0, random=0.0, keep=0.0) != first


def test_masked_words_alone(study):
    """Without next sentences there is no such loss, no such figure, and the words are learnt all the same."""
    plan_examples(seed=1, examples=EXAMPLES.model_copy(update={"pairs": "none"}))
    run("short", short=250)
    run("long", short=250)
    figures = read_json("results/pretrain/short.json")
    assert figures["pairs"] == "none" and "nsp_loss" not in figures["train"]
    assert figures["validation"]["gap"] > 0 and "nsp_accuracy" not in figures["validation"]
    curve = pd.read_csv("results/pretrain/short.tsv", sep="\t")
    assert curve["nsp_loss"].isna().all() and np.allclose(curve["loss"], curve["mlm_loss"])


def test_validation_masks_do_not_follow_the_studys_rate(study):
    run("short", short=2)
    predictions = read_json("results/pretrain/short.json")["validation"]["predictions"]
    run("short", short=2, mask_prob=0.4)
    assert read_json("results/pretrain/short.json")["validation"]["predictions"] == predictions


def test_the_second_phase_without_the_first_is_one_clear_error(study):
    with pytest.raises(PipelineError, match="nothing to read: models/pretrained/short"):
        run("long")
    assert not os.path.exists("models/pretrained/long")


def test_what_this_machine_cannot_do_is_said_before_anything_is_trained(study, monkeypatch):
    monkeypatch.setattr(prepare, "empty_objective", None)  # not come to
    with pytest.raises(PipelineError, match="this attention needs a GPU: flash, on cpu"):
        run("short", attention="flash")
    monkeypatch.setattr(prepare, "choose", None)
    show_an_old_gpu(monkeypatch)
    with pytest.raises(PipelineError, match="this GPU has no bfloat16: Tesla T4"):
        run("short")


IN_CI = [way if way in ("masked", "replaced") else pytest.param(way, marks=pytest.mark.slow) for way in WAYS]


@pytest.mark.parametrize("way", IN_CI)
def test_every_way_of_learning_goes_in_bfloat16_on_a_cpu(study, way):
    """The same curve but for rounding, from the same bytes twice; and said in what it was computed."""
    if "teacher" in WAYS[way]:
        make_teacher(study)
    if way in PAIRS:
        plan_examples(seed=1, examples=EXAMPLES.model_copy(update={"pairs": PAIRS[way]}))
    changes = {"short": 6, **WAYS[way]}
    losses = {}
    for precision in ("float32", "bfloat16"):
        run("short", precision=precision, **changes)
        losses[precision] = pd.read_csv("results/pretrain/short.tsv", sep="\t")["loss"].to_numpy()
        cost = read_json("logs/pretrain/short.cost.json")
        assert cost["peak_source"].startswith(precision)
    first = hash_file("models/pretrained/short/model.safetensors")
    run("short", precision="bfloat16", **changes)
    assert hash_file("models/pretrained/short/model.safetensors") == first
    assert not np.array_equal(losses["float32"], losses["bfloat16"])
    np.testing.assert_allclose(losses["bfloat16"], losses["float32"], rtol=0.02)


def test_the_flops_that_compiling_is_weighed_by_are_those_of_full_sequences(study):
    """More than are counted from the examples as they are, but not by much."""
    run("short", short=6, batch=16)
    counted = read_json("results/pretrain/short.json")["cost"]["flops"]
    model = ModelParams(layers=1, hidden=64, positions=32)
    phase = prepare.Phase("short", 1, 0.15, model, PretrainParams(steps=Steps(short=6, long=0), batch=16))
    config = BertConfig.from_params(model, 50)
    full, causal = (
        prepare.flops_of_a_step(phase, load_objective(name)(config, "none"), 16) for name in ("masked", "left_to_right")
    )
    assert counted < 6 * full < 1.5 * counted and full < causal  # which predicts every token


def test_a_failing_phase_leaves_an_earlier_model_alone(study, monkeypatch):
    run("short", short=3)
    before = hash_file("models/pretrained/short/model.safetensors")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(finish, "save_state", full)
    with pytest.raises(OSError):
        run("short", short=4)
    assert hash_file("models/pretrained/short/model.safetensors") == before
    assert sorted(os.listdir("models/pretrained")) == ["short"]


def test_another_number_of_steps_than_the_first_phase_took_is_one_clear_error(study):
    run("short", short=3)
    with pytest.raises(PipelineError, match="3, not 4"):
        run("long", short=4)


def test_a_second_phase_of_no_steps_hands_on_the_first_ones_model(study):
    steps = Steps(short=9, long=0)
    run("short", steps=steps)
    run("long", steps=steps)
    for name in ("model.safetensors", "training_state/optimiser.safetensors", "training_state/state.json"):
        short, long = (hash_file(f"models/pretrained/{phase}/{name}") for phase in ("short", "long"))
        assert short == long, name
    figures = read_json("results/pretrain/long.json")
    assert (figures["steps"], figures["steps_before"], figures["train"]) == (0, 9, {})
    assert figures["cost"]["tokens"] == 0 and figures["validation"]["mlm_loss"] > 0
    curve = pd.read_csv("results/pretrain/long.tsv", sep="\t")
    assert curve.empty and list(curve) == list(pd.read_csv("results/pretrain/short.tsv", sep="\t"))


def test_a_first_phase_of_no_steps_hands_on_the_weights_it_drew(study):
    steps = Steps(short=0, long=9)
    run("short", steps=steps)
    drawn = load_file("models/pretrained/short/model.safetensors")
    assert drawn["bert.embeddings.word_embeddings.weight"].abs().max() <= 2 * INITIAL_STD
    run("long", steps=steps)
    learnt = load_file("models/pretrained/long/model.safetensors")
    assert not torch.equal(drawn["cls.predictions.bias"], learnt["cls.predictions.bias"])
    assert read_json("results/pretrain/long.json")["cost"]["steps"] == 9


def test_betas_and_epsilon_of_the_parameters_are_used(study):
    weights = set()
    for change in ({}, {"betas": (0.5, 0.999)}, {"betas": (0.9, 0.9)}, {"epsilon": 1e-2}):
        run("short", short=3, **change)
        weights.add(hash_file("models/pretrained/short/model.safetensors"))
    assert len(weights) == 4


def test_a_batch_cut_into_pieces_is_the_same_batch(study):
    """Up to rounding: losses of unequal pieces are divided by the counts of the whole."""

    def curve(max_tokens: int) -> pd.DataFrame:
        run("short", short=5, dropout=0.0, max_tokens=max_tokens)
        return pd.read_csv("results/pretrain/short.tsv", sep="\t")

    whole, pieces, single = curve(16_384), curve(50), curve(1)
    assert len(whole) == 5
    for other in (pieces, single):
        np.testing.assert_allclose(other.drop(columns="step"), whole.drop(columns="step"), rtol=2e-4, atol=1e-6)


def test_held_out_text_is_measured_on_the_way(study):
    run("short", short=30, evaluate_every=10, curve_points=5)
    curve = pd.read_csv("results/pretrain/short.tsv", sep="\t")
    measured = curve.dropna(subset="validation_mlm_loss")
    assert curve["step"].tolist() == [8, 10, 16, 20, 24, 30] and measured["step"].tolist() == [10, 20]
    assert measured["validation_mlm_loss"].is_monotonic_decreasing and measured["validation_nsp_accuracy"].notna().all()
    run("short", short=30, curve_points=5)
    assert pd.read_csv("results/pretrain/short.tsv", sep="\t")["step"].tolist() == [8, 16, 24, 30]


def test_models_of_chosen_steps_are_kept(study):
    run("short", short=9, keep_steps=(3, 6))
    one, last = (hash_file(f"models/pretrained/short/{at}model.safetensors") for at in ("steps/3/", ""))
    assert sorted(os.listdir("models/pretrained/short/steps")) == ["3", "6"] and one != last
    run("short", short=3)  # still in the warm-up, so that a shorter training takes the same steps
    assert hash_file("models/pretrained/short/model.safetensors") == one
    assert not os.path.exists("models/pretrained/short/steps")


def test_left_to_right(study):
    plan_examples(seed=1, examples=EXAMPLES.model_copy(update={"pairs": "none"}))
    run("short", short=150, objective="left_to_right")
    figures = read_json("results/pretrain/short.json")
    assert figures["objective"] == "left_to_right" and figures["config"]["is_decoder"]
    assert figures["validation"]["mlm_loss"] < np.log(50) - 0.5


@pytest.mark.parametrize(
    "change",
    [{"optimiser": "bert_adam"}, {"optimiser": "lamb"}, {"optimiser": "muon", "clip": None}, {"recompute": True}],
)
def test_other_ways_to_train_learn_too(study, change):
    run("short", short=150, **change)
    curve = pd.read_csv("results/pretrain/short.tsv", sep="\t")
    assert curve["mlm_loss"].iloc[-1] < curve["mlm_loss"].iloc[0] - 0.1


def test_the_cost_is_that_of_the_examples(study):
    run("short", short=6)
    cost = read_json("results/pretrain/short.json")["cost"]
    assert cost["steps"] == 6 and cost["sequences"] == 96
    assert cost["tokens"] <= 96 * 16 and cost["tokens_per_batch"] == 16 * 16
    assert cost["normalised_computation"] == read_json("results/pretrain/short.json")["parameters"] * 6 * 256
    assert read_json("logs/pretrain/short.cost.json")["tokens_per_second"] > 0


def test_the_results_show_examples_as_training_saw_them(study):
    run("short", mask_prob=0.5, short=2)
    shown = read_json("results/pretrain/short.json")["shown_examples"]
    assert len(shown) == 5 and all(example["pair"].startswith("B ") for example in shown)
    assert all(len(example["segments"]) == 2 for example in shown)
    pieces = [piece for example in shown for segment in example["segments"] for piece in segment]
    predicted = [piece for piece in pieces if piece["fate"]]
    assert 0.4 < len(predicted) / len(pieces) < 0.8 and all(piece["was"] for piece in predicted)
    assert {piece["text"] for piece in predicted if piece["fate"] == "mask"} == {"[MASK]"}
    assert all(piece["text"] == piece["was"] for piece in predicted if piece["fate"] == "keep")
