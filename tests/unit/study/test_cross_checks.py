"""Tests of ``pipeline_src.study.cross_checks``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipeline_src.base.errors import PipelineError
from pipeline_src.study.study import check_study
from tests.unit.study.samples import SAMPLE, changed, changed_all

MINILM = "catalogue/models/minilm.yaml"
DISTILLED = {"pretrain.objective": "distilbert"}
GIVEN = {"vocabulary.kind": "given"}
TAUGHT = {"finetune.teacher": "models/teacher", "tasks": ["cola"]}
RETRIEVAL = {"tasks": ["qnli_retrieval"], "finetune.per_task": {"qnli_retrieval": {}}}
ADAMW = {"pretrain.optimizer": "adamw"}
SHORT = {"pretrain.steps.phase1": 50, "pretrain.steps.phase2": 50, "pretrain.keep_checkpoint_steps": []}
PAIRLESS = {"examples.pair_objective": "none"}
THREE = {
    "examples.max_seq_length": {"phase1": 64, "phase2": 128, "phase3": 512},
    "pretrain.steps": {"phase1": 400, "phase2": 1600, "phase3": 200},
    "pretrain.later_phases": {"phase3": {"after": "phase2", "train_batch_size": 4}},
}
ROTARY = {"model.architecture": "modernbert", "model.global_rope_theta": 10_000.0, **PAIRLESS}


@pytest.mark.parametrize(
    ("key", "changes"),
    # The key that the error names, and what is set.
    [
        ("corpus.sources.books.from", {"corpus.sources.books.from": "nothing"}),
        ("tasks", {"tasks": ["colla"]}),
        ("finetune.per_task", {"finetune.per_task": {}}),
        ("examples.max_seq_length.phase1", {"examples.max_seq_length.phase1": 256}),
        ("examples.max_seq_length.phase2", {"model.max_position_embeddings": 64}),
        ("pretrain.steps", THREE | {"pretrain.steps": {"phase1": 400, "phase2": 1600}}),
        ("pretrain.later_phases", THREE | {"pretrain.later_phases": {}}),
        ("pretrain.later_phases.phase3.after", THREE | {"pretrain.later_phases": {"phase3": {"after": "phase1"}}}),
        ("examples.max_seq_length.phase2", THREE | {"examples.max_seq_length.phase2": 513}),
        ("examples.max_seq_length.phase3", THREE | {"examples.max_seq_length.phase3": 513}),
        ("examples.full_length_share.phase3", {"examples.full_length_share": {"phase3": 0.5}}),
        ("examples.full_length_share", {"examples.full_length_share": {"phase1": 0.5}, "examples.temperature": 0.7}),
        ("model.global_rope_theta", {"model.global_rope_theta": 10_000.0}),
        (
            "pretrain.later_phases.phase3.global_rope_theta",
            THREE | {"pretrain.later_phases.phase3.global_rope_theta": 160_000.0},
        ),
        ("finetune.defaults.max_length", {"finetune.defaults.max_length": 513}),
        ("finetune.per_task.rte.max_length", {"finetune.per_task.rte": {"max_length": 513}}),
        ("examples.pair_objective", {"pretrain.objective": "clm"}),
        ("examples.pair_objective", {"model.architecture": "deberta"}),
        ("model.architecture", {"pretrain.objective": "bilm", **PAIRLESS}),
        ("pretrain.objective", {"pretrain.objective": "clm", "model.architecture": "albert", **PAIRLESS}),
        ("pretrain.warmup_steps", {"pretrain.warmup_steps": 2001}),
        ("pretrain.warmup_steps", SHORT),
        ("pretrain.decay_steps", {"pretrain.decay_steps": 2001}),
        # After 150 steps of warm-up.
        ("pretrain.decay_steps", {"pretrain.decay_steps": 1851}),
        ("pretrain.teacher", DISTILLED),
        ("pretrain.teacher", {"pretrain.teacher": "models/x"}),
        ("pretrain.masking.max_predictions", {"pretrain.masking.max_predictions": 2}),
        ("pretrain.optimizer", {"model.architecture": "word_vectors", **PAIRLESS}),
        ("objectives.electra.embeddings", {"pretrain.objective": "electra"}),
        ("model.embedding_size", {"model.embedding_size": 64}),
        # A task is of kind tagging; ModernBERT imitates no layers.
        ("finetune.teacher", {"finetune.teacher": "models/teacher"}),
        ("finetune.teacher", TAUGHT | {"model.architecture": "modernbert"}),
        ("finetune.teacher", TAUGHT | {"finetune.defaults.feature_layers": "last"}),
        ("finetune.optimizer", TAUGHT | {"finetune.optimizer": "muon"}),
        ("finetune.pair_head", {"finetune.pair_head": "bi_encoder", "finetune.bilstm": True}),
        ("tasks", RETRIEVAL | {"finetune.bilstm": True}),
        ("tasks", RETRIEVAL | {"finetune.per_task": {"qnli_retrieval": {"feature_layers": "last"}}}),
        ("finetune.defaults.reinit_layers", {"finetune.defaults.reinit_layers": 3}),
        (
            "finetune.per_task.rte.head_learning_rate",
            {"finetune.defaults.head_learning_rate": 0.01, "finetune.per_task.rte": {"feature_layers": "last"}},
        ),
        (
            "finetune.defaults.head_learning_rate",
            {"finetune.defaults.head_learning_rate": 0.01, "model.architecture": "word_vectors", **ADAMW},
        ),
        ("finetune.defaults.patience", {"finetune.defaults.patience": 2}),
        (
            "finetune.per_task.rte.patience",
            {"finetune.defaults.select": "best", "finetune.per_task.rte": {"patience": 2, "select": "last"}},
        ),
        ("finetune.defaults.window_stride", {"finetune.defaults.window_stride": 63}),
        (
            "finetune.per_task.rte.window_stride",
            {"finetune.defaults.max_length": 32, "finetune.per_task.rte": {"window_stride": 31}},
        ),
        (
            "finetune.per_task.rte.reinit_layers",
            {"finetune.per_task.rte": {"reinit_layers": 1}, "model.architecture": "albert"},
        ),
        (
            "finetune.per_task.rte.reinit_layers",
            {"finetune.defaults.reinit_layers": 1, "finetune.per_task.rte": {"feature_layers": "last"}},
        ),
        ("finetune.optimizer", {"finetune.optimizer": "muon", "finetune.per_task.rte": {"feature_layers": "last"}}),
        (
            "finetune.optimizer",
            {"finetune.optimizer": "muon", "model.architecture": "word_vectors", **PAIRLESS, **ADAMW},
        ),
        ("vocabulary.kind", GIVEN),
        ("interpretation.tags", {"interpretation.tags": ["pos", "nosuch"]}),
        ("interpretation.minimal_pairs", {"interpretation.minimal_pairs": ["templates", "nosuch"]}),
        (
            "finetune.per_task.ner.feature_layers",
            {"finetune.per_task.ner": {"feature_layers": "concat_last_four"}},
        ),
        ("pretrain.teacher", DISTILLED | {"pretrain.teacher": "models/pretrained/phase2"}),
        ("pretrain.teacher", DISTILLED | {"pretrain.teacher": "hub:acme/tiny@main"}),
        ("pretrain.teacher", DISTILLED | {"pretrain.teacher": "teacher"}),
        ("finetune.teacher", {"finetune.teacher": "models"}),
        ("finetune.model", {"finetune.model": MINILM}),
        ("finetune.model", {"finetune.model": "mymodel"}),
        ("finetune.model", {"finetune.model": "models"}),
        ("finetune.model", {"finetune.model": "models/finetuned/ner/1/kept-model"}),
        ("finetune.model", {"finetune.model": "models/word_vectors"}),
        (
            "finetune.defaults.feature_layers",
            {
                **{"model.architecture": "word_vectors", "finetune.model": "models/word_vectors"},
                **{"finetune.defaults.feature_layers": "second_to_last", **ADAMW, **PAIRLESS},
            },
        ),
        ("finetune.model", {"finetune.model": "models/pretrained/phase3"}),
        ("pretrain.init_from", {"pretrain.init_from": "catalogue/models/modernbert.yaml", **GIVEN}),
        ("pretrain.init_from", {"pretrain.init_from": MINILM}),
        ("pretrain.init_from", {"pretrain.init_from": "models/nowhere", **GIVEN}),
        ("pretrain.init_from", {"pretrain.init_from": "models/pretrained/phase2", **GIVEN}),
        ("pretrain.init_from", {"pretrain.init_from": "mine", **GIVEN}),
        ("pretrain.init_from", {"pretrain.init_from": "hub:acme/tiny", **GIVEN}),
        ("finetune.model", {"finetune.model": "hub:tiny@main"}),
        ("pretrain.init_from", {"pretrain.init_from": MINILM, "pretrain.objective": "clm", **GIVEN, **PAIRLESS}),
    ],
)
def test_cross_checks_values_that_do_not_fit_are_rejected_with_key(key: str, changes: dict[str, Any]) -> None:
    with pytest.raises(PipelineError, match="value does not fit the other settings") as caught:
        check_study(changed_all(changes))
    assert str(caught.value.value).partition(" = ")[0] == key and caught.value.hint


def test_cross_checks_schedule_longer_than_training_is_rejected_with_both_numbers() -> None:
    with pytest.raises(PipelineError, match="longer than all phases together; set it to at most 100"):
        check_study(changed_all(SHORT))
    with pytest.raises(
        PipelineError,
        match="20 steps of warm-up plus the decay exceed the 100 steps of all phases; set it to 80 or less",
    ):
        check_study(changed_all(SHORT | {"pretrain.warmup_steps": 20, "pretrain.decay_steps": 90}))


@pytest.mark.parametrize(
    "changes",
    [
        {"corpus.sources.wikipedia.lists": "sentences"},
        {"pretrain.warmup_steps": 2000},
        SHORT | {"pretrain.warmup_steps": 100},
        {"pretrain.decay_steps": 1850},
        THREE | {"pretrain.warmup_steps": 2200},
        THREE,
        THREE | ROTARY | {"pretrain.later_phases.phase3.global_rope_theta": 160_000.0},
        {"pretrain.objective": "electra", "objectives.electra.embeddings": "separate"},
        {"pretrain.objective": "electra", "objectives.electra.generator_width": 1},
        DISTILLED | {"pretrain.teacher": "models/teacher"},
        {"finetune.teacher": "models/teacher", "tasks": ["cola", "stsb", "mnli"], "interpretation.tags": []},
        {"pretrain.objective": "electra", "model.architecture": "electra", "model.embedding_size": 64},
        {"pretrain.init_from": MINILM, "vocabulary.kind": "given", "vocabulary.num_added_tokens": 9},
        {"finetune.defaults.max_length": 512, "finetune.per_task.rte": {"window_stride": 510}},
        {"finetune.model": "models/pretrained/phase1/steps/1000"},
        {"finetune.model": "models/word_vectors", "model.architecture": "word_vectors", **ADAMW, **PAIRLESS},
        # Enough for the shorter phase alone.
        {"pretrain.masking.max_predictions": 10},
        {"finetune.per_task.ner": {"feature_layers": "concat_last_four"}, "finetune.model": "models/deep"},
        {"pretrain.init_from": "hub:acme/tiny@main", "finetune.model": "hub:acme/tiny@v1.0", **GIVEN},
    ],
)
def test_cross_checks_values_that_fit_are_accepted(changes: dict[str, Any]) -> None:
    check_study(changed_all(changes))


TOPICS = """
kind: multilabel
columns: {texts: [text], labels: [topics]}
labels: [sport, money]
scores: {topics: {title: Topics, file: dev.jsonl, metrics: [micro_f1]}}
"""


@pytest.mark.parametrize(
    ("key", "changes"),
    [
        ("finetune.per_task.topics.class_weights", {"finetune.defaults.class_weights": "balanced"}),
        ("finetune.per_task.topics.class_weights", {"finetune.per_task.topics": {"class_weights": "balanced"}}),
        ("finetune.teacher", {"finetune.teacher": "models/teacher"}),
    ],
)
def test_cross_checks_settings_for_one_label_a_text_are_rejected(
    catalogue: Path, key: str, changes: dict[str, Any]
) -> None:
    (catalogue / "tasks/topics.yaml").write_text(TOPICS)
    study = {"tasks": ["topics"], "finetune.per_task.topics": {}, "interpretation.tags": []}
    check_study(changed_all(study))
    with pytest.raises(
        PipelineError, match="one label a text; set this to null|multilabel task, which supports no"
    ) as caught:
        check_study(changed_all(study | changes))
    assert str(caught.value.value).partition(" = ")[0] == key
    per_task = {"finetune.per_task.topics": {"class_weights": None}}
    check_study(changed_all(study | {"finetune.defaults.class_weights": "balanced"} | per_task))


def test_cross_checks_init_from_other_architecture_is_rejected(tmp_path: Path) -> None:
    changes = {"pretrain.init_from": str(tmp_path), "vocabulary.kind": "given"}
    changes |= {"model.architecture": "deberta", "examples.pair_objective": "none"}
    (tmp_path / "config.json").write_text('{"model_type": "deberta-v2"}')
    with pytest.raises(PipelineError, match="set model.architecture: deberta_v2"):
        check_study(changed_all(changes))
    check_study(changed_all(changes | {"model.architecture": "deberta_v2"}))


def test_cross_checks_task_without_recipe_is_rejected() -> None:
    without = changed("finetune.per_task", {"cola": {}, "rte": {}})
    with pytest.raises(PipelineError, match="squad1 is missing; add `squad1: {}`"):
        check_study(without | {"tasks": ["cola", "squad1"]})
    check_study(without | {"tasks": ["cola"]})


def test_cross_checks_two_tasks_with_one_eval_set_name_are_rejected(catalogue: Path) -> None:
    (catalogue / "tasks/wnli.yaml").write_bytes((catalogue / "tasks/rte.yaml").read_bytes())
    with pytest.raises(PipelineError, match="rte and wnli both have 'rte' in their `scores`"):
        check_study(SAMPLE)
