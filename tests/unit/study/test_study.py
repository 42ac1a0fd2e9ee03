"""params.yaml is checked before any work: errors name key, value and what is allowed."""

from __future__ import annotations

import copy
import functools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline_src.base.errors import PipelineError
from pipeline_src.study import study as module
from pipeline_src.study.machine import load_machine
from pipeline_src.study.preset import preset_text
from pipeline_src.study.reading import read_yaml
from pipeline_src.study.study import Study, check_study, check_unchanged, load_study
from pipeline_src.study.task_spec import load_spec

ROOT = Path(__file__).resolve().parents[3]
PRESETS = sorted(path.stem for path in (ROOT / "workflow/presets").glob("*.yaml"))
MINILM = "catalogue/models/minilm.yaml"
SAMPLE = yaml.safe_load((ROOT / "workflow/presets/sample.yaml").read_text(encoding="utf-8"))
MODEL = SAMPLE["model"]


def changed_all(changes: dict[str, Any]) -> dict[str, Any]:
    """The sample study with some dotted keys set to values."""
    study = copy.deepcopy(SAMPLE)
    for key, value in copy.deepcopy(changes).items():
        *path, last = key.split(".")
        functools.reduce(dict.__getitem__, path, study)[last] = value
    return study


def changed(key: str, value: Any) -> dict[str, Any]:
    return changed_all({key: value})


@pytest.mark.parametrize("name", PRESETS)
def test_check_study_preset_is_accepted(name: str) -> None:
    check_study(yaml.safe_load(preset_text(name, ROOT / "workflow/presets")))


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("sede", 1, "seed"),
        ("pretrain.learning_rat", 1e-4, "learning_rate"),
        ("pretrain.masking.maks_ratio", 0.8, "mask_ratio"),
        ("finetune.per_task.rte", {"epoch": 3}, "epochs"),
        ("corpus.sources.books.text_colum", "body", "text_column"),
        ("corpus.sources.wikipedia.beam_args", [], "from, date"),
    ],
)
def test_check_study_unknown_key_is_rejected_with_allowed_keys(key: str, value: Any, allowed: str) -> None:
    with pytest.raises(PipelineError, match="unknown key") as caught:
        check_study(changed(key, value))
    assert key in str(caught.value) and allowed in caught.value.hint.replace(key, "")


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("mask_prob", 1.5, "less than 1"),
        ("mask_prob", 0, "greater than 0"),
        ("seed", -1, "greater than or equal to 0"),
        ("seed", "one", "integer"),
        ("vocabulary.vocab_size", 2_000_000, "1000000"),
        ("model.hidden_size", 100.5, "integer"),
        ("pretrain.train_batch_size", None, "integer"),
        ("pretrain.keep_checkpoint_steps", [999_999], "1 to 2000"),
        ("corpus.validation", 0.9, "0.5"),
        ("corpus.sources.wikipedia.date", "2026-09-01", "pattern"),
        ("corpus.sources.wikipedia.parts", ["../up"], "letters, digits"),
        ("corpus.sources.wikipedia.language", "xx", "use one of en, und, am"),
        ("corpus.sources.wikipedia.lists", "keep", "'drop' or 'sentences'"),
        ("corpus.sources.books.kind", "novels", "'wikipedia', 'books', 'text'"),
        ("model.hidden_act", "relu", "gelu"),
    ],
)
def test_check_study_value_out_of_bounds_is_rejected_with_bounds(key: str, value: Any, allowed: str) -> None:
    with pytest.raises(PipelineError, match="value not allowed") as caught:
        check_study(changed(key, value))
    text = str(caught.value)
    assert key in text and repr(value).strip("[]'") in text and allowed in text


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("model.num_attention_heads", 3, "multiple of num_attention_heads"),
        ("model.num_attention_heads", 128, "even head width, not 1"),
        ("model", MODEL | {"architecture": "modernbert", "num_attention_heads": 128}, "even head width, not 1"),
        (
            "model",
            MODEL | {"architecture": "bilstm", "hidden_size": 65, "num_attention_heads": 1},
            "even hidden width",
        ),
        ("pretrain.masking.mask_ratio", 0.9, "must be 1"),
        ("vocabulary.num_added_tokens", 9, "only for kind: given"),
    ],
)
def test_check_study_contradicting_values_of_a_section_are_rejected(key: str, value: Any, allowed: str) -> None:
    with pytest.raises(PipelineError) as caught:
        check_study(changed(key, value))
    assert allowed in str(caught.value)


@pytest.mark.parametrize(
    ("key", "value", "hint"),
    [
        ("finetune.defaults.epochs", [], "it should have at least 1 item, not 0"),
        ("finetune.defaults.epochs", 0, "it should be greater than or equal to 1"),
        ("finetune.per_task.rte", 3, "it should be a mapping of keys"),
        ("tasks", "rte", "it should be a list"),
        ("corpus.sources.books.kind", "book", "use one of 'wikipedia', 'books', 'text'"),
        ("corpus.sources.books", None, "it should be a mapping of keys"),
        ("seed", "one", "it should be a valid integer"),
        ("examples.weights", {"a b": 1}, "a name has only ASCII letters"),
        ("pretrain.betas", [0.9], "add it"),
    ],
)
def test_check_study_hint_uses_yaml_terms(key: str, value: Any, hint: str) -> None:
    with pytest.raises(PipelineError) as caught:
        check_study(changed(key, value))
    assert caught.value.hint.startswith(hint) and not re.search("Input|valid dict|tuple|key]", str(caught.value))


TAUGHT = {"pretrain.objective": "distilbert"}
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
        ("pretrain.teacher", {"pretrain.objective": "distilbert"}),
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
        ("pretrain.teacher", TAUGHT | {"pretrain.teacher": "models/pretrained/phase2"}),
        ("pretrain.teacher", TAUGHT | {"pretrain.teacher": "hub:acme/tiny@main"}),
        ("pretrain.teacher", TAUGHT | {"pretrain.teacher": "teacher"}),
        ("finetune.teacher", {"finetune.teacher": "models"}),
        ("finetune.model", {"finetune.model": MINILM}),
        ("finetune.model", {"finetune.model": "mymodel"}),
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
        {"pretrain.objective": "distilbert", "pretrain.teacher": "models/teacher"},
        {"finetune.teacher": "models/teacher", "tasks": ["cola", "stsb", "mnli"], "interpretation.tags": []},
        {"pretrain.objective": "electra", "model.architecture": "electra", "model.embedding_size": 64},
        {"pretrain.init_from": MINILM, "vocabulary.kind": "given", "vocabulary.num_added_tokens": 9},
        {"finetune.defaults.max_length": 512, "finetune.per_task.rte": {"window_stride": 510}},
        {"finetune.model": "models/pretrained/phase1/steps/1000"},
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


def test_check_study_gap_among_phases_is_rejected() -> None:
    with pytest.raises(PipelineError, match="without a gap; not phase1, phase2, phase4"):
        check_study(changed("pretrain.steps.phase4", 5))


def test_dump_omits_unset_optional_keys() -> None:
    """They are recorded in the results of every study."""
    study = check_study(SAMPLE)
    assert {*study.model.model_dump(), *study.pretrain.model_dump()} == {*SAMPLE["model"], *SAMPLE["pretrain"]}
    assert study.pretrain.model_dump()["steps"] == SAMPLE["pretrain"]["steps"]
    assert study.examples.model_dump().keys() == SAMPLE["examples"].keys()


def test_check_study_init_from_other_architecture_is_rejected(tmp_path: Path) -> None:
    changes = {"pretrain.init_from": str(tmp_path), "vocabulary.kind": "given"}
    changes |= {"model.architecture": "deberta", "examples.pair_objective": "none"}
    (tmp_path / "config.json").write_text('{"model_type": "deberta-v2"}')
    with pytest.raises(PipelineError, match="set model.architecture: deberta_v2"):
        check_study(changed_all(changes))
    check_study(changed_all(changes | {"model.architecture": "deberta_v2"}))


def test_check_study_several_mistakes_are_all_reported() -> None:
    study = changed("mask_prob", 2)
    del study["seed"]
    message = r"(?s)a key is missing: seed.*hint: add `seed`.*also: value not allowed: mask_prob = 2; .*less than 1"
    with pytest.raises(PipelineError, match=message):
        check_study(study)


def keys_in(block: dict[str, Any], prefix: str = "") -> Iterator[str]:
    """Dotted keys of a study, nested ones too; not those that its author names: sources, and ``finetune.per_task``."""
    for key, value in block.items():
        if prefix != "corpus.sources.":
            yield f"{prefix}{key}"
        if isinstance(value, dict) and f"{prefix}{key}" != "finetune.per_task":
            yield from keys_in(value, f"{prefix}{key}.")


def test_check_study_missing_key_is_rejected() -> None:
    for key in keys_in(SAMPLE):
        study = copy.deepcopy(SAMPLE)
        *path, last = key.split(".")
        del functools.reduce(dict.__getitem__, path, study)[last]
        with pytest.raises(PipelineError, match=rf"(?m)^a key is missing: {re.escape(key)}$"):
            check_study(study)


def test_check_study_missing_key_is_reported_with_default() -> None:
    study = copy.deepcopy(SAMPLE)
    del study["pretrain"]["masking"]["max_predictions"], study["pretrain"]["log_points"], study["model"]["hidden_size"]
    with pytest.raises(PipelineError, match="a key is missing: model.hidden_size, pretrain.masking.max_pred") as caught:
        check_study(study)
    for key in ("`pretrain.log_points: 100`", "`pretrain.masking.max_predictions: null`", "`model.hidden_size`"):
        assert key in caught.value.hint


def test_check_study_misspelt_key_is_reported_as_unknown() -> None:
    study = changed("sede", 1)
    del study["seed"]
    with pytest.raises(PipelineError, match=r"unknown key: sede[\s\S]*also: a key is missing: seed"):
        check_study(study)


def test_recipe_of_a_task_inherits_from_defaults() -> None:
    study = check_study(changed("finetune.per_task.rte", {"epochs": 7}))
    assert study.finetune.recipe("rte") == study.finetune.defaults.model_copy(update={"epochs": (7,)})
    assert study.finetune.recipe("next_sentence_choice") == study.finetune.defaults
    complete = {**SAMPLE["finetune"]["defaults"], "max_length": 32, "feature_layers": "last"}
    study = check_study(changed("finetune.per_task.rte", complete))
    assert study.finetune.recipe("rte") == study.finetune.per_task["rte"]


@pytest.mark.parametrize(("written", "epochs"), [(None, (3,)), (5, (5,)), ([5, 9], (5, 9))])
def test_recipe_of_random_weights_defaults_to_pretrained_recipe(written: Any, epochs: tuple[int, ...]) -> None:
    recipe = check_study(changed("finetune.defaults.random_epochs", written)).finetune.recipe("cola")
    random = recipe.starting_from("random")
    assert random.epochs == epochs and random.learning_rates == recipe.learning_rates
    assert recipe.starting_from("pretrained").epochs == recipe.epochs == (3,)


def test_check_study_task_without_recipe_is_rejected() -> None:
    without = changed("finetune.per_task", {"cola": {}, "rte": {}})
    with pytest.raises(PipelineError, match="squad1 is missing; add `squad1: {}`"):
        check_study(without | {"tasks": ["cola", "squad1"]})
    check_study(without | {"tasks": ["cola"]})


def test_check_unchanged_edited_section_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    def write(recipe: dict[str, Any]) -> Study:
        Path("params.yaml").write_text(yaml.safe_dump(changed("finetune.per_task.rte", recipe)))
        return load_study()

    started = write({"epochs": 3})
    check_unchanged(started, ["finetune"])
    # No longer the default's.
    write({"epochs": 3, "max_length": 128})
    with pytest.raises(PipelineError, match="params.yaml changed"):
        check_unchanged(started, ["finetune"])
    check_unchanged(started, ["model", "pretrain"])


def test_check_study_number_as_text_and_date_as_number_are_converted() -> None:
    study = check_study(changed_all({"pretrain.learning_rate": "1e-05", "corpus.sources.wikipedia.date": 20260901}))
    assert study.pretrain.learning_rate == 1e-5 and study.corpus.sources["wikipedia"].date == "20260901"


@pytest.mark.parametrize("marker", ["<<<<<<< HEAD", "||||||| 1a2b3c", "=======", ">>>>>>> theirs"])
def test_read_yaml_merge_marker_is_rejected_with_its_line(tmp_path: Path, marker: str) -> None:
    path = tmp_path / "params.yaml"
    path.write_text(f"seed: 1\n{marker}\nmask_prob: 0.2\n")
    with pytest.raises(PipelineError, match=r"unresolved merge conflict: \S{7}\n") as raised:
        read_yaml(path)
    assert raised.value.where == f"{path}, line 2" and "git checkout --ours" in raised.value.hint


@pytest.mark.parametrize(
    ("text", "sign", "line"),
    [
        ("a: 1\nb: &m 2\nc: *m\n", "&m", 2),
        ("a: &m {x: 1}\nb:\n  <<: *m\n", "&m", 1),
        ("a: 1\nb: {<<: {x: 1}}\n", "<<", 2),
        ("a:\n- 1\n- &last\n", "&last", 3),
        ("&top\na: 1\n", "&top", 1),
        ("&key a: 1\n", "&key", 1),
    ],
)
@pytest.mark.parametrize("load", [load_study, load_machine])
def test_read_yaml_alias_is_rejected_with_its_line(
    tmp_path: Path, text: str, sign: str, line: int, load: Callable[[Path], object]
) -> None:
    path = tmp_path / "some.yaml"
    path.write_text(text)
    with pytest.raises(PipelineError, match="YAML anchors, aliases and merge keys are not supported") as raised:
        load(path)
    assert raised.value.value == sign and str(raised.value.where) == f"{path}, line {line}"


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a: 'R&D *x'  # & * <<\n\"<<\": b << c\nd: 2*3 & 4\n", {"a": "R&D *x", "<<": "b << c", "d": "2*3 & 4"}),
        ("# =======\nseed: 1 # <<<<<<< here\n", {"seed": 1}),
    ],
)
def test_read_yaml_alias_signs_in_text_and_comments_are_accepted(
    tmp_path: Path, text: str, values: dict[str, Any]
) -> None:
    path = tmp_path / "params.yaml"
    path.write_text(text)
    assert read_yaml(path) == values


@pytest.mark.parametrize(
    ("text", "message"),
    [(None, "no such study file"), ("seed: [1\n", "invalid YAML"), ("- seed\n", "has no keys"), ("", "has no keys")],
)
def test_load_study_file_without_study_is_rejected(tmp_path: Path, text: str | None, message: str) -> None:
    path = tmp_path / "params.yaml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(PipelineError, match=message):
        load_study(path)


def test_sample_preset_has_no_key_that_dvc_ignores():
    """DVC's run-cache drops ``size`` and ``nfiles`` at any depth (dvc/stage/cache.py, _get_cache_hash)."""
    keys = {part for key in keys_in(SAMPLE) for part in key.split(".")}
    assert len(keys) > 80 and not keys & {"size", "nfiles"}


def test_check_study_two_tasks_with_one_eval_set_name_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "load_spec", lambda task: load_spec("rte" if task == "wnli" else task))
    with pytest.raises(PipelineError, match="both have 'rte' in their `scores`"):
        check_study(SAMPLE)


@pytest.mark.parametrize(
    ("weights", "temperature", "message"),
    [
        ({"wikipedia": 1}, None, r"(?s)examples.weights = .*list each source .*only in one: books"),
        ({"wikipedia": 1, "books": 1, "news": 1}, None, "only in one: news"),
        ({"wikipedia": 0, "books": 0}, None, "all weights are 0"),
        ({"wikipedia": -1, "books": 2}, None, "greater than or equal to 0"),
        ({"wikipedia": 1, "books": 2}, 0.7, "weights and temperature both give shares"),
        (None, 1.5, "less than or equal to 1"),
    ],
)
def test_check_study_invalid_shares_of_sources_are_rejected(weights: Any, temperature: Any, message: str) -> None:
    study = changed("examples.weights", weights)
    study["examples"]["temperature"] = temperature
    with pytest.raises(PipelineError, match=message):
        check_study(study)
