"""Schedule, optimiser groups, the loop's guards, and the two phases as one training."""

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from pipeline_src.errors import PipelineError
from pipeline_src.examples.plan import run as plan_examples
from pipeline_src.examples.store import TokenWriter
from pipeline_src.files import hash_file, read_json, write_json
from pipeline_src.models.bert import BertConfig
from pipeline_src.models.heads import BertForPretraining
from pipeline_src.params.examples import ExamplesParams, Lengths
from pipeline_src.params.model import ModelParams
from pipeline_src.params.pretrain import Masking, PretrainParams, Steps
from pipeline_src.training import pretrain
from pipeline_src.training.loop import train
from pipeline_src.training.optimiser import linear_schedule, make_optimiser
from pipeline_src.vocabulary.wordpiece import SPECIAL_TOKENS, save_tokenizer


def test_schedule_rises_then_falls_to_zero():
    rate = linear_schedule(1e-4, 10, 100)
    assert rate(0) == pytest.approx(1e-5) and rate(9) == pytest.approx(1e-4) and rate(10) == pytest.approx(1e-4)
    assert rate(55) == pytest.approx(5e-5) and rate(100) == 0.0
    assert linear_schedule(1.0, 0, 10)(0) == 1.0


def test_biases_and_layer_norms_are_not_decayed():
    model = BertForPretraining(BertConfig(50, 64, 1, 1, 128))
    decayed, plain = make_optimiser(model, 1e-3, 0.01).param_groups
    assert decayed["weight_decay"] == 0.01 and plain["weight_decay"] == 0
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    assert all(names[id(p)].endswith("bias") or "LayerNorm" in names[id(p)] for p in plain["params"])
    assert not any(names[id(p)].endswith("bias") or "LayerNorm" in names[id(p)] for p in decayed["params"])
    assert len(decayed["params"]) + len(plain["params"]) == len(names)


def test_a_loss_that_is_no_number_stops_with_the_step():
    model = torch.nn.Linear(2, 1)

    def objective(batch: float) -> dict[str, torch.Tensor]:
        return {"loss": model(torch.ones(1, 2)).sum() * batch}

    rows = train(
        model, [1.0, 1.0, float("nan")], objective, make_optimiser(model, 0.1, 0.0), lambda _: 0.1, 0, 3, "x", 1
    )
    with pytest.raises(PipelineError, match="step 2"):
        list(rows)


@pytest.fixture
def study(tmp_path, monkeypatch) -> Path:
    """Token shards of a tiny corpus in which every sentence is a run of consecutive ids, easy to learn."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    folder = tmp_path / "data" / "tokens"
    folder.mkdir(parents=True)
    splits = {}
    for split, count in (("train", 30), ("heldout", 6)):
        writer = TokenWriter(folder, split)
        starts = rng.integers(5, 40, 12 * count)
        writer.add((starts[:, None] + np.arange(6)).ravel(), np.full(12 * count, 6), np.full(count, 12))
        splits[split] = writer.close()
    write_json(folder / "manifest.json", {"splits": splits})
    vocabulary = tmp_path / "data" / "vocabulary"
    vocabulary.mkdir()
    save_tokenizer(vocabulary, [*SPECIAL_TOKENS, *(f"w{number}" for number in range(45))], lowercase=True)
    plan_examples(seed=1, examples=EXAMPLES)
    return tmp_path


EXAMPLES = ExamplesParams(lengths=Lengths(short=16, long=32), duplicates=4)


def run(phase: str, seed: int = 1, mask_prob: float = 0.15, short: int = 60, **masking) -> None:
    params = PretrainParams(
        steps=Steps(short=short, long=10),
        batch=16,
        learning_rate=3e-3,
        warmup=5,
        masking=Masking(**masking),
        curve_points=100,
        threads=1,
    )
    model = ModelParams(layers=1, hidden=64, positions=32)
    pretrain.run(seed=seed, mask_prob=mask_prob, model=model, pretrain=params, phase=phase)


def test_two_phases_learn_and_go_on_where_the_first_stopped(study):
    run("short", short=250)
    run("long", short=250)
    short, long = (read_json(f"results/pretrain/{phase}.json") for phase in ("short", "long"))
    assert long["steps_before"] == 250 and read_json("models/pretrained/long/training_state/state.json") == {
        "step": 260
    }
    assert short["heldout"]["mlm_loss"] < np.log(50) - 0.5 and short["heldout"]["gap"] > 0
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
    plan_examples(seed=1, examples=EXAMPLES.model_copy(update={"next_sentence": False}))
    run("short", short=250)
    run("long", short=250)
    figures = read_json("results/pretrain/short.json")
    assert figures["next_sentence"] is False and "nsp_loss" not in figures["train"]
    assert figures["heldout"]["gap"] > 0 and "nsp_accuracy" not in figures["heldout"]
    curve = pd.read_csv("results/pretrain/short.tsv", sep="\t")
    assert curve["nsp_loss"].isna().all() and np.allclose(curve["loss"], curve["mlm_loss"])


def test_heldout_masks_do_not_follow_the_studys_rate(study):
    run("short", short=2)
    predictions = read_json("results/pretrain/short.json")["heldout"]["predictions"]
    run("short", short=2, mask_prob=0.4)
    assert read_json("results/pretrain/short.json")["heldout"]["predictions"] == predictions


def test_the_second_phase_without_the_first_is_one_clear_error(study):
    with pytest.raises(PipelineError, match="no weights to read"):
        run("long")
    assert not os.path.exists("models/pretrained/long")


def test_a_failing_phase_leaves_an_earlier_model_alone(study, monkeypatch):
    run("short", short=3)
    before = hash_file("models/pretrained/short/model.safetensors")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pretrain, "save_state", full)
    with pytest.raises(OSError):
        run("short", short=4)
    assert hash_file("models/pretrained/short/model.safetensors") == before
    assert sorted(os.listdir("models/pretrained")) == ["short"]
