"""The tables of ablations, and what of them is queued."""

from __future__ import annotations

import copy
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from dvc.utils.hydra import apply_overrides

from pipeline_src import __main__ as command_line
from pipeline_src.base.errors import PipelineError
from pipeline_src.model.bert import BertConfig
from pipeline_src.model.flops import Workload
from pipeline_src.model.hub import save_tensors
from pipeline_src.study.preset import preset_text
from pipeline_src.study.study import Study, check_study
from pipeline_src.tools import ablations
from pipeline_src.tools.ablations import FOLDER, Table, apply, equal_steps, flops, read_table, table_names

ROOT = Path(__file__).resolve().parents[3]


def names(*arguments: set[str]) -> list[str]:
    """Experiments of table 5 that are ready, given those done and those waiting."""
    return [experiment.name for experiment in ablations.ready(table("table5").experiments, *arguments)]


def test_ready_yields_one_experiment_of_each_pretraining() -> None:
    assert names(set(), set()) == ["table5-no-nsp", "table5-ltr"]
    assert names(set(), {"table5-ltr"}) == ["table5-no-nsp"]
    assert [experiment.name for experiment in ablations.ready(table("figure5").experiments, set(), set())] == [
        "figure5-masked-003",
        "figure5-ltr-003",
    ]
    assert len(list(ablations.ready(table("table8").experiments, set(), set()))) == 5


def test_ready_yields_experiments_that_share_a_finished_pretraining() -> None:
    assert names({"table5-ltr"}, {"table5-no-nsp"}) == ["table5-ltr-bilstm"]
    assert names({"table5-ltr-bilstm"}, {"table5-no-nsp"}) == ["table5-ltr"]
    figure5 = table("figure5").experiments
    assert len(list(ablations.ready(figure5, {"figure5-masked-003"}, {"figure5-ltr-003"}))) == 7
    assert names({experiment.name for experiment in table("table5").experiments}, set()) == []


def test_main_queue_adds_missing_experiments_to_dvc(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "dvc.yaml").unlink()
    (project / "dvc.yaml").write_text("stages: {count: {cmd: echo, params: [mask_prob, examples, pretrain]}}\n")
    for words in ("git init -q", "dvc init -q", "git add .", "git -c user.name=a -c user.email=a@b commit -qm study"):
        subprocess.run(words, shell=True, check=True)
    queue = ["ablations", "--queue", "--only", "table5-ltr", "table5-ltr-bilstm", "distillation-tinybert-1"]
    assert command_line.main(queue) == 0
    assert "distillation-tinybert-1: skipped" in capsys.readouterr().out
    assert ablations.unfinished() == {"table5-ltr"} and ablations.finished() == set()
    assert command_line.main(queue) == 0
    assert ablations.unfinished() == {"table5-ltr"}


TABLES = table_names(ROOT / FOLDER)
# Layers, width, heads.
PAPER_SIZES = {
    "table6-quarter-depth": (3, 768, 12),
    "table6-half-depth-few-heads": (6, 768, 3),
    "table6-half-depth": (6, 768, 12),
    "table6-wide": (12, 1024, 16),
    "table6-wide-double-depth": (24, 1024, 16),
}
# Thousands of steps of figure 5.
THOUSANDS = [30, 50, 100, 200, 400, 600, 800, 1000]


@cache
def preset(name: str) -> dict[str, Any]:
    return yaml.safe_load(preset_text(name, ROOT / "workflow/presets"))


@cache
def table(name: str, scale: str = "bert-base") -> Table:
    return read_table(name, preset(scale), ROOT / FOLDER)


def studies(name: str, scale: str = "bert-base") -> dict[str, Study]:
    settings = table(name, scale).experiments
    return {experiment.name: check_study(apply(experiment.changes, preset(scale))) for experiment in settings}


def test_table_names_include_tables_of_paper() -> None:
    expected = {"table5", "table6", "table8", "figure5", "mask_rates", "baselines", "family", "electra", "distillation"}
    assert set(TABLES) == expected


@pytest.mark.parametrize("name", TABLES)
def test_read_table_experiments_of_a_small_study_are_valid(name: str) -> None:
    for experiment in table(name, "test").experiments:
        assert experiment.name.startswith(f"{name}-")


def test_table6_sizes_equal_paper() -> None:
    sizes = {}
    for name, study in studies("table6").items():
        model = study.model
        heads = model.num_attention_heads or model.hidden_size // 64
        sizes[name] = (model.num_hidden_layers, model.hidden_size, heads)
    assert sizes == PAPER_SIZES


def test_figure5_steps_equal_paper_and_are_saved() -> None:
    for name, study in studies("figure5").items():
        step = 10 * int(name[-3:])
        folder = f"models/pretrained/phase1/steps/{step}000" if step < 1000 else "models/pretrained/phase2"
        assert study.finetune.model == folder
        assert study.pretrain.keep_checkpoint_steps == tuple(1000 * thousands for thousands in THOUSANDS[:-1])
    assert [10 * int(experiment.name[-3:]) for experiment in table("figure5").experiments] == 2 * THOUSANDS


def test_figure5_step_of_second_phase_is_in_its_folder() -> None:
    settings = {name: study.finetune.model for name, study in studies("figure5", "test").items()}
    # The phases have 20 and 10 steps.
    assert settings["figure5-masked-060"] == "models/pretrained/phase1/steps/18"
    assert settings["figure5-masked-080"] == "models/pretrained/phase2/steps/24"


@pytest.mark.parametrize("name", TABLES)
def test_command_overrides_give_dvc_distinct_studies(name: str, tmp_path: Path) -> None:
    params = preset("bert-base")
    path = tmp_path / "params.yaml"
    seen = [params]
    for experiment in table(name).experiments:
        path.write_text(yaml.safe_dump(params))
        words = ablations.command(experiment)
        assert words[:5] == ["exp", "run", "--queue", "-n", experiment.name]
        apply_overrides(path, words[6::2])
        written = yaml.safe_load(path.read_text())
        assert written == yaml.safe_load(yaml.safe_dump(apply(experiment.changes, params)))
        assert written not in seen
        seen.append(written)


def test_read_table_unknown_name_lists_tables() -> None:
    with pytest.raises(PipelineError, match=r"(?s)no such table.*tab5.*table5"):
        read_table("tab5", preset("sample"), ROOT / FOLDER)


def test_read_table_unknown_key_names_the_experiment(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("{title: t, source: null, experiments: {mine-a: {set: {mask_porb: 0.2}}}}")
    with pytest.raises(PipelineError, match=r"(?s)mask_porb.*mine-a"):
        read_table("mine", preset("sample"), tmp_path)


def test_main_prints_commands_and_scores_of_paper(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.main(["ablations", "table5"]) == 0
    lines = capsys.readouterr().out.splitlines()
    commands = [line for line in lines if line.startswith("dvc exp run --queue -n table5-")]
    assert len(commands) == 3 and "mnli_m 83.9" in commands[0] and "table 5" in lines[0]
    assert command_line.main(["ablations", "--only", "table5-ltr", "mask_rates-05"]) == 0
    assert capsys.readouterr().out.count("dvc exp run") == 2
    assert sorted(path.name for path in project.iterdir()) == ["dvc.yaml", "params.yaml", "workflow"]


def test_main_unknown_experiment_is_rejected(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.main(["ablations", "--only", "table5-nsp"]) == 2
    assert "table5-no-nsp" in capsys.readouterr().err


SHORT, LONG = 3600, 1200


@pytest.fixture
def raw():
    sample = copy.deepcopy(preset("sample"))
    sample["pretrain"] |= {"steps": {"phase1": SHORT, "phase2": LONG}, "keep_checkpoint_steps": []}
    return sample


def test_flops_of_bert_equal_the_formula(raw):
    """2 x 128, full sequences of 64 and 128 tokens, one in seven predicted; [CLS] beside them is in use."""
    expected = 0
    for length, steps in ((64, SHORT), (128, LONG)):
        tokens, predicted = 32 * length, round(0.15 * 32 * length)
        rows = predicted + 32
        block = 6 * 12 * 128**2 * tokens + 12 * 128 * length * tokens
        last = 6 * (2 * 128**2 * tokens + 10 * 128**2 * rows) + 12 * 128 * length * rows
        expected += steps * (block + last + 6 * (128**2 + 128 * 4096) * predicted)
    assert flops(check_study(raw)) == expected


@pytest.mark.parametrize("table", ["baselines", "family", "distillation"])
def test_read_table_equal_compute_experiments_have_flops_of_study(raw, table):
    study, steps = check_study(raw), []
    for experiment in read_table(table, raw, ROOT / FOLDER).experiments:
        changed = check_study(apply(experiment.changes, raw))
        if experiment.changes["pretrain.steps.phase2"]:
            assert flops(changed, teacher=study) == pytest.approx(flops(study), rel=2e-3), experiment.name
        else:
            assert experiment.changes["finetune.model"] == "models/word_vectors"
        steps.append(experiment.changes["pretrain.steps.phase1"])
    # Members differ in what a step costs.
    assert len(set(steps)) > (4 if table != "distillation" else 1)


@pytest.mark.parametrize("objective", ["distilbert", "tinybert"])
def test_flops_of_teacher_are_a_third_of_training(raw, objective, tmp_path):
    """Of the study's own model where the folder is not there; else of the sizes that it says."""
    study = check_study(raw)
    changes = {"pretrain.objective": objective, "pretrain.teacher": str(tmp_path), "examples.pair_objective": "none"}
    taught = check_study(apply(changes | {"model.num_hidden_layers": 1}, raw))
    expected = 0.0
    for length, steps in ((64, SHORT), (128, LONG)):
        tokens = 32 * length
        predicted = tokens if objective == "distilbert" else 0
        work = Workload(32, tokens, tokens * length, predicted, tokens, tokens * length)
        own, teacher = (BertConfig(4096, 128, layers, 2, 512).training_flops(work) for layers in (1, 2))
        # TinyBERT projects the embeddings and the only layer to the teacher's width.
        projections = 2 * 6 * 128 * 128 * tokens if objective == "tinybert" else 0
        expected += steps * (own + projections + teacher / 3)
    assert flops(taught, teacher=study) == pytest.approx(expected, rel=1e-6)
    larger = BertConfig(4096, 256 if objective == "tinybert" else 128, 4, 2, 512)
    save_tensors(tmp_path, {"any": torch.zeros(1)}, larger, "BertForPreTraining")
    assert flops(taught, teacher=study) > 1.1 * expected


def test_equal_steps_scales_all_schedules(raw):
    study = check_study(raw)
    half = check_study(apply({"pretrain.train_batch_size": 64}, raw))
    steps = {"pretrain.steps.phase1": SHORT // 2, "pretrain.steps.phase2": LONG // 2}
    assert equal_steps(half, study) == {**steps, "pretrain.warmup_steps": 75}
    falling = check_study(apply({"pretrain.decay_steps": 100, "pretrain.train_batch_size": 64}, raw))
    assert equal_steps(falling, study)["pretrain.decay_steps"] == 50


def test_equal_steps_zero_phase_stays_zero(raw):
    study = check_study(apply({"pretrain.steps.phase2": 0}, raw))
    changed = check_study(apply({"pretrain.steps.phase2": 0, "pretrain.train_batch_size": 64}, raw))
    steps = equal_steps(changed, study)["pretrain.steps.phase2"]
    assert steps == 0
    # `-S pretrain.steps.phase2=false` is no number.
    assert not isinstance(steps, bool)
