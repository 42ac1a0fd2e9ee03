"""Every member of the family from a preset of seconds: the stages that differ; two of them under both engines."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from safetensors.torch import load_file

from pipeline_src.base.files import read_json
from pipeline_src.base.registry import member_names
from pipeline_src.examples.build_examples import run as build_examples
from pipeline_src.finetune.finetune import run as finetune
from pipeline_src.model.bert import load_architecture
from pipeline_src.pretrain.pretrain import run as pretrain
from pipeline_src.study.preset import preset_text
from pipeline_src.study.study import check_study
from pipeline_src.tasks.made.synthetic import write_task
from pipeline_src.tools.ablations import apply
from tests.studies import PRESETS
from tests.unit.pretrain.small import EXAMPLES, build_teacher, make_study
from tests.workflow.on_slurm import change_params

if TYPE_CHECKING:
    from conftest import Project

ELECTRA = {"model.architecture": "electra", "pretrain.objective": "electra"}
MEMBERS: dict[str, dict[str, Any]] = {  # changes of the preset `test`
    "bert": {"examples.pair_objective": "nsp"},
    "left-to-right": {"pretrain.objective": "clm"},
    "roberta": {"model.architecture": "roberta", "pretrain.masking.dynamic": True},
    "albert": {"model.architecture": "albert", "model.embedding_size": 16, "examples.pair_objective": "sop"},
    "electra": ELECTRA,
    "electra, all tokens": ELECTRA | {"objectives.electra.disc_target": "mlm"},
    "deberta": {"model.architecture": "deberta"},
    "deberta-v3": {
        **{"model.architecture": "deberta_v2", "pretrain.objective": "electra"},
        "objectives.electra.generator_width": 1.0,
        "objectives.electra.embeddings": "disentangled",
    },
    "distilbert": {
        "model.architecture": "distilbert",
        "pretrain.objective": "distilbert",
        "pretrain.teacher": "models/teacher",
        "model.num_attention_heads": 1,
        "objectives.distilbert.init": "random",
    },
    "tinybert": {
        "pretrain.objective": "tinybert",
        "pretrain.teacher": "models/teacher",
        "model.num_attention_heads": 1,
    },
    "modernbert": {"model.architecture": "modernbert", "mask_prob": 0.3},
    "elmo": {"model.architecture": "bilstm", "pretrain.objective": "bilm"},
    "word vectors": {"model.architecture": "word_vectors", "pretrain.optimizer": "adamw"},
}
SECONDS = {
    **{"examples.pair_objective": "none", "pretrain.steps": {"phase1": 2, "phase2": 1}, "pretrain.train_batch_size": 4},
    "pretrain.warmup_steps": 1,
    **{"examples.max_seq_length": {"phase1": 16, "phase2": 32}, "model.max_position_embeddings": 32},
    **{"finetune.defaults.batch_sizes": 256, "finetune.defaults.max_length": 16},
}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What pretraining reads but examples, a teacher, and a task."""
    folder = tmp_path_factory.mktemp("members")
    make_study(folder)
    build_teacher(folder)
    (folder / "models").mkdir()
    (folder / "teacher").rename(folder / "models/teacher")
    write_task("sst2", folder / "data/tasks/sst2", seed=1)
    return folder


def test_members_cover_every_architecture_and_objective() -> None:
    for key, default, folder in (
        ("model.architecture", "bert", "models"),
        ("pretrain.objective", "mlm", "objectives"),
    ):
        assert {changes.get(key, default) for changes in MEMBERS.values()} == set(member_names(folder))


@pytest.mark.parametrize("member", MEMBERS)
def test_every_member_is_pretrained_and_fine_tuned(inputs: Path, member: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretraining in two phases and fine-tuning, with the blocks of a study that was checked as a whole."""
    monkeypatch.chdir(inputs)
    preset = yaml.safe_load(preset_text("test", PRESETS))
    study = check_study(apply(SECONDS | MEMBERS[member], preset))
    build_examples(seed=1, examples=EXAMPLES.model_copy(update={"pair_objective": study.examples.pair_objective}))
    blocks = {"model": study.model, "pretrain": study.pretrain, "objectives": study.objectives}
    for phase in ("phase1", "phase2"):
        pretrain(seed=1, mask_prob=study.mask_prob, phase=phase, **blocks)
    figures = read_json("results/pretrain/phase2.json")
    assert (figures["steps"], figures["objective"]) == (1, study.pretrain.objective)
    finetune(seed=1, model=study.model, finetune=study.finetune, task="sst2", finetune_seed="1")
    expected = load_architecture(study.model.architecture).names
    raw = read_json("models/finetuned/sst2/1/kept-model/config.json")
    assert (raw["model_type"], raw["architectures"]) == (expected.model_type, [expected.classes["sequence"]])
    weights = load_file("models/finetuned/sst2/1/kept-model/model.safetensors")
    assert expected.model_type == "bert" or not any(key.startswith(("bert.", "cls.")) for key in weights)


IN_A_STUDY = {  # by the engine that runs it
    "snakemake": {"model.architecture": "electra", "pretrain.objective": "electra", "examples.pair_objective": "none"},
    "dvc": {
        **{"model.architecture": "distilbert", "pretrain.objective": "distilbert", "examples.pair_objective": "none"},
        **{"pretrain.teacher": "models/teacher", "objectives.distilbert.init": "random"},
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("engine", IN_A_STUDY)
def test_study_of_family_member_is_fresh_in_both_engines(finished_study: Project, tmp_path: Path, engine: str) -> None:
    """A study with another member: one engine runs it, and for neither is anything left to do."""
    project = finished_study.copy(tmp_path / "study")
    shutil.copytree(project.path / "models/pretrained/phase2", project.path / "models/teacher")
    changes = IN_A_STUDY[engine]
    change_params(project, changes | {"tasks": ["rte"]})
    # A task that is taken out leaves its predictions, which `evaluate` depends on.
    for removed in ("squad2", "swag"):
        shutil.rmtree(project.path / "results/predictions" / removed)
    project.snakemake() if engine == "snakemake" else project.dvc("repro")
    assert project.nothing_to_do()
    assert read_json(project.path / "results/pretrain/phase2.json")["objective"] == changes["pretrain.objective"]
    assert read_json(project.path / "results/summary.json")["mlm_loss"] > 0
