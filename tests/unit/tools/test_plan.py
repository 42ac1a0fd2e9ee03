"""Amounts of the stages, against counts of the models, the paper and the catalogue; the tool as people call it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline_src import __main__ as command
from pipeline_src.base.messages import amount
from pipeline_src.base.registry import member_names
from pipeline_src.model.bert import BertConfig
from pipeline_src.sources.sizes import source_size
from pipeline_src.study.study import Study
from pipeline_src.tools.plan import (
    RATES,
    Devices,
    Stage,
    count_parameters,
    make_objective,
    probe,
    stages_of,
)
from tests.studies import load_preset

CPU, GPU = ("--teraflops", "0.09"), ("--gpus", "8", "--teraflops", "300")
MINUTE = 60


@pytest.fixture
def planned(project: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Plan the sample study, or a preset."""

    def run(*arguments: str) -> Any:
        assert command.main(["plan", "--json", *arguments]) == 0
        return json.loads(capsys.readouterr().out)

    return run


def amounts(study: Study) -> dict[str, Stage]:
    sizes = {name: source_size(source) for name, source in study.corpus.sources.items()}
    return {stage.stage: stage for stage in stages_of(study, make_objective(study), sizes)}


def test_stages_of_equal_dvc_yaml(root: Path) -> None:
    stages = yaml.safe_load((root / "dvc.yaml").read_text(encoding="utf-8"))["stages"]
    del stages["pretrain"]  # of a third phase, which the sample lacks
    assert ["code", *amounts(load_preset("sample"))] == list(stages)


def test_stages_of_third_phase_use_its_length_and_batch_size() -> None:
    two = load_preset("sample")
    steps, later = {"phase1": 400, "phase2": 1600, "phase3": 100}, {"phase3": {"after": "phase2"}}
    later["phase3"]["train_batch_size"] = 8
    lengths = two.examples.model_dump() | {"max_seq_length": {"phase1": 64, "phase2": 128, "phase3": 512}}
    pretrain = two.pretrain.model_dump(mode="json") | {"steps": steps, "later_phases": later}
    stages = amounts(load_preset("sample", examples=lengths, pretrain=pretrain))
    assert stages["pretrain@phase3"].tokens == 100 * 8 * 512
    assert 1 / 16 < stages["pretrain@phase3"].flops / stages["pretrain_phase2"].flops < 1 / 8  # more attention


@pytest.mark.parametrize(("preset", "published"), [("bert-base", 2.3e19), ("bert-large", 8.0e19)])
def test_stages_of_bert_have_published_flops(preset: str, published: float) -> None:
    stages = amounts(load_preset(preset))
    phases = [stages[f"pretrain_{phase}"] for phase in ("phase1", "phase2")]
    assert sum(stage.flops for stage in phases) == pytest.approx(published, rel=0.06)
    assert sum(stage.tokens for stage in phases) == pytest.approx(42.6e9, rel=0.01)  # docs/experiments.md


def test_make_objective_bert_base_has_published_parameters() -> None:
    assert count_parameters(make_objective(load_preset("bert-base"))) == pytest.approx(110e6, rel=0.01)


def test_stages_of_wide_word_vectors_take_longer() -> None:
    def work(width: int) -> float:
        vectors = load_preset("sample").word_vectors.model_dump(mode="json") | {"width": width}
        return amounts(load_preset("sample", word_vectors=vectors))["train_word_vectors"].work

    assert work(300) / work(128) == pytest.approx(34.5 / 20.8, rel=0.05)  # CPU-seconds measured, five epochs of 3.6 M


def test_stages_of_finetuning_count_grid_seeds_weights_epochs() -> None:
    def finetuning(**recipe: Any) -> Stage:
        seeds = recipe.pop("seeds")
        defaults = load_preset("sample").finetune.defaults.model_dump(mode="json") | recipe
        finetune = {"defaults": defaults, "per_task": {"cola": {}}, "seeds": seeds}
        return amounts(load_preset("sample", tasks=["cola"], finetune=finetune))["finetune"]

    single = finetuning(seeds=[1], learning_rates=[0.001], epochs=[1], random_baseline=False)
    grid = finetuning(seeds=[1, 2], learning_rates=[0.001, 0.002, 0.003], epochs=[1, 3], random_baseline=True)
    assert (single.jobs, grid.jobs) == (1, 2)
    assert grid.tokens == single.tokens * 3 * (1 + 3) * 2 * 2
    assert grid.flops / single.flops == pytest.approx(grid.tokens / single.tokens, rel=0.01)
    own = finetuning(seeds=[1], learning_rates=[0.001], epochs=[1], random_baseline=True, random_epochs=[2, 5])
    assert own.tokens == single.tokens * (1 + 2 + 5)


def test_stages_of_finetuning_count_the_lstm() -> None:
    """At the sample's size it has more weights than the encoder: 2 layers, 768 wide."""

    def finetuning(**changes: Any) -> Stage:
        finetune = load_preset("sample").finetune.model_dump(mode="json")
        finetune["defaults"] |= {"feature_layers": changes.get("feature_layers")}
        finetune |= {"bilstm": changes.get("bilstm", False), "per_task": {"cola": {}}, "optimizer": "adamw"}
        return amounts(load_preset("sample", tasks=["cola"], finetune=finetune))["finetune"]

    plain, frozen, with_lstm = finetuning(), finetuning(feature_layers="last"), finetuning(bilstm=True)
    assert frozen.flops > 6 * 5e6 * frozen.tokens > 3 * plain.flops
    assert 1.1 < with_lstm.flops / plain.flops < 1.6


def test_make_objective_start_model_has_its_own_sizes(tmp_path: Path) -> None:
    config = {"model_type": "bert", **BertConfig(30_522, 256, 4, 4, 1024).as_dict()}
    (tmp_path / "config.json").write_text(json.dumps(config))
    study = load_preset("sample", vocabulary={"kind": "given"}, pretrain={"init_from": str(tmp_path)})
    same = load_preset("sample", vocabulary={"vocab_size": 30_522}, model={"num_hidden_layers": 4, "hidden_size": 256})
    assert count_parameters(make_objective(study)) == count_parameters(make_objective(same))
    fetched = load_preset(
        "sample", vocabulary={"kind": "given"}, pretrain={"init_from": "catalogue/models/minilm.yaml"}
    )
    assert amounts(fetched)["start_model"].fetched == 83_506_384


def test_plan_sample_takes_5_to_14_minutes(planned: Callable[..., Any]) -> None:
    totals = planned("--cores", "2", *CPU)["totals"]
    assert 5 * MINUTE < totals["seconds"] < 14 * MINUTE
    assert totals["jobs"] == 40 and totals["cost"] is None


def test_plan_gpu_cost_counts_training_hours_only(planned: Callable[..., Any]) -> None:
    rows = planned("--preset", "bert-base", "--price", "2", *GPU)["stages"]
    assert sum(row["cost"] for row in rows) == pytest.approx(
        2 * 8 * sum(row["seconds"] for row in rows if row["flops"]) / 3600
    )
    machine = planned("--price", "6", *CPU)["totals"]
    assert machine["cost"] == pytest.approx(6 * machine["seconds"] / 3600)


def test_stage_seconds_follow_work_cores_and_gpus() -> None:
    text = Stage("tokenize", work=RATES["tokenize"] * 60)
    training = Stage("pretrain_phase1", flops=1e15, max_cores=2)
    assert text.seconds(Devices(4, 0, 1)) == pytest.approx(4 + 15)
    assert training.seconds(Devices(4, 0, 1e12)) == pytest.approx(4 + 500)
    assert training.seconds(Devices(4, 8, 1e12)) == pytest.approx(4 + 125)
    assert Stage("finetune", jobs=6).seconds(Devices(2, 0, 1)) == pytest.approx(4 * 3)
    finetuning = Stage("finetune", jobs=3, flops=12e15, max_cores=2, max_gpus=1)
    assert finetuning.seconds(Devices(64, 0, 1e12)) == pytest.approx(4 + 12_000 / 6)
    assert finetuning.seconds(Devices(64, 8, 1e12)) == pytest.approx(4 + 12_000 / 3)


@pytest.mark.parametrize("objective", member_names("objectives"))
def test_probe_measures_every_objective(objective: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline_src.tools.plan.PROBE_FLOPS", 1e9)
    architecture = {"bilm": "bilstm", "electra": "electra"}.get(objective, "bert")
    model = {"architecture": architecture, "position_init": "random"}
    pretrain = {"objective": objective}
    if objective in ("distilbert", "tinybert"):
        pretrain["teacher"] = str(tmp_path)
    study = load_preset("sample", model=model, pretrain=pretrain, examples={"pair_objective": "none"})
    assert 1e6 < probe(study, threads=1, seconds=0.01) < 1e13


@pytest.mark.parametrize(
    "wrong", ["--gpus=-1", "--cores=0", "--teraflops=nan", "--price=inf", "--gpus=1", "--preset=bert-huge"]
)
def test_plan_option_out_of_range_is_rejected(planned: Callable[..., Any], wrong: str) -> None:
    assert command.main(["plan", wrong]) == 2


@pytest.mark.parametrize("arguments", [CPU, ("--preset", "bert-large", "--price", "12345", *GPU)])
def test_plan_table_fits_100_columns(planned: Callable[..., Any], capsys: Any, arguments: tuple[str, ...]) -> None:
    assert command.main(["plan", *arguments]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 100
    assert len({len(line) for line in lines[2:20]}) == 1  # no cell pushed its neighbours aside


def test_amount_has_one_decimal_and_unit() -> None:
    values = {0: "-", 999: "999.0 ", 1_696_448: "1.7 M", 25e9: "25.0 G", 32.7e12: "32.7 T", 1.77e19: "1.8e19"}
    assert [amount(value) for value in values] == list(values.values())


def test_workflow_imports_no_torch(root: Path) -> None:
    """An import at the head of a module made every start of Snakemake a second and a half slower."""
    program = "import sys, bridge, resources; print('torch' in sys.modules)"
    paths = os.environ | {"PYTHONPATH": f"{root}{os.pathsep}{root / 'workflow'}"}
    done = subprocess.run([sys.executable, "-c", program], env=paths, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
