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
from pipeline_src.study.machine import load_machine
from pipeline_src.study.preset import preset_text
from pipeline_src.study.reading import read_yaml
from pipeline_src.study.study import Study, check_study, check_unchanged, load_study
from tests.unit.study.samples import ROOT, SAMPLE, changed, changed_all

PRESETS = sorted(path.stem for path in (ROOT / "workflow/presets").glob("*.yaml"))
MODEL = SAMPLE["model"]


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


def test_check_study_gap_among_phases_is_rejected() -> None:
    with pytest.raises(PipelineError, match="without a gap; not phase1, phase2, phase4"):
        check_study(changed("pretrain.steps.phase4", 5))


def test_dump_omits_unset_optional_keys() -> None:
    """They are recorded in the results of every study."""
    study = check_study(SAMPLE)
    assert {*study.model.model_dump(), *study.pretrain.model_dump()} == {*SAMPLE["model"], *SAMPLE["pretrain"]}
    assert study.pretrain.model_dump()["steps"] == SAMPLE["pretrain"]["steps"]
    assert study.examples.model_dump().keys() == SAMPLE["examples"].keys()


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
