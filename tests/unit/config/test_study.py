"""params.yaml, checked before any stage: unknown and missing keys, values out of bounds, contradictions."""

from __future__ import annotations

import copy
import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from pipeline_src.common.errors import PipelineError
from pipeline_src.config import study as module
from pipeline_src.config.reading import read_yaml
from pipeline_src.config.study import Study, check_study, check_unchanged, load_study
from pipeline_src.tasks.spec import load_spec
from pipeline_src.tools.preset import preset_text

ROOT = Path(__file__).resolve().parents[3]
PRESETS = sorted(path.stem for path in (ROOT / "workflow/presets").glob("*.yaml"))
MINILM = "catalogue/models/minilm.yaml"
SAMPLE = yaml.safe_load((ROOT / "workflow/presets/sample.yaml").read_text(encoding="utf-8"))


def changed(changes: dict[str, Any], without: tuple[str, ...] = ()) -> dict[str, Any]:
    """The sample study with dotted keys set to other values, and without some."""
    study = copy.deepcopy(SAMPLE)
    for key in (*changes, *without):
        *path, last = key.split(".")
        block = functools.reduce(dict.__getitem__, path, study)
        if key in without:
            del block[last]
        else:
            block[last] = changes[key]
    return study


@pytest.mark.parametrize("name", PRESETS)
def test_check_study_preset_is_accepted(name: str) -> None:
    check_study(yaml.safe_load(preset_text(name, ROOT / "workflow/presets")))


def test_presets_include_sample_test_and_bert_base() -> None:
    assert {"sample", "test", "bert-base"} <= set(PRESETS)


@pytest.mark.parametrize(
    ("key", "allowed"),
    [
        ("sede", "seed"),
        ("pretrain.learning_rat", "learning_rate"),
        ("pretrain.masking.maks_ratio", "mask_ratio"),
        ("wikipedia", "corpus"),
        ("corpus.sources.books.beam_args", "near_duplicates"),  # a key of another kind of source
    ],
)
def test_check_study_unknown_key_is_rejected_with_allowed_keys(key: str, allowed: str) -> None:
    with pytest.raises(PipelineError, match=f"unknown key: {key}\n") as caught:
        check_study(changed({key: 1}))
    assert allowed in caught.value.hint.replace(key, "")


@pytest.mark.parametrize(
    ("key", "value", "bounds"),
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
        ("corpus.sources.wikipedia.language", "xx", "there are en, cs, da"),
        ("corpus.sources.wikipedia.min_words", -1, "greater than or equal to 0"),
        ("corpus.sources.books.kind", "novels", "'wikipedia', 'books', 'text'"),
        ("tasks", ["colla"], "cola"),
        ("model.hidden_act", "relu", "gelu"),
    ],
)
def test_check_study_value_out_of_bounds_is_rejected_with_bounds(key: str, value: Any, bounds: str) -> None:
    with pytest.raises(PipelineError, match="value not allowed") as caught:
        check_study(changed({key: value}))
    text = str(caught.value)
    assert key in text and repr(value).strip("[]'") in text and bounds in text


def name_case(value: object) -> str:
    return " ".join(f"{key}={new}" for key, new in value.items()) if isinstance(value, dict) else str(value)


TAUGHT = {"finetune.teacher": "models/teacher", "tasks": ["cola"]}
GIVEN = {"vocabulary.kind": "given"}


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"examples.max_seq_length.phase1": 256}, "must not exceed phase2"),
        ({"model.max_position_embeddings": 64}, "exceeds model.max_position_embeddings"),
        ({"model.num_attention_heads": 3}, "multiple of num_attention_heads"),
        ({"model.num_attention_heads": 128}, "even width, not 1"),
        ({"model.architecture": "modernbert", "model.num_attention_heads": 128}, "even width of its head, not 1"),
        (
            {"model.architecture": "bilstm", "model.hidden_size": 65, "model.num_attention_heads": 1},
            "even width of its hidden",
        ),
        ({"model.embedding_size": 64}, "model.embedding_size (64)"),
        ({"pretrain.masking.mask_ratio": 0.9}, "must be 1"),
        ({"pretrain.masking.max_predictions": 2}, "pretrain.masking.max_predictions (2)"),
        ({"pretrain.objective": "electra"}, "a narrower generator"),
        ({"pretrain.objective": "distilbert"}, "needs the folder of a pretrained model"),
        ({"pretrain.teacher": "models/x"}, "has no teacher"),
        ({"finetune.teacher": "models/teacher"}, "ner is a task of kind tagging"),
        ({**TAUGHT, "model.architecture": "modernbert"}, "modernbert imitates no layers"),
        ({**TAUGHT, "finetune.defaults.feature_layers": "last"}, "a frozen encoder learns nothing"),
        ({**TAUGHT, "finetune.optimizer": "muon"}, "optimizer (muon)"),
        ({"finetune.pair_head": "two_towers", "finetune.bilstm": True}, "pair_head (two_towers)"),
        ({"finetune.defaults.reinit_layers": 3}, "finetune.defaults.reinit_layers (3)"),
        (
            {"finetune.per_task.rte": {"reinit_layers": 1}, "model.architecture": "albert"},
            "finetune.per_task.rte.reinit_layers (1)",
        ),
        (
            {"finetune.defaults.reinit_layers": 1, "finetune.per_task.rte": {"feature_layers": "last"}},
            "a frozen encoder takes no random blocks",
        ),
        (
            {"finetune.optimizer": "muon", "finetune.per_task.rte": {"feature_layers": "last"}},
            "muon has no matrices to update in a frozen encoder",
        ),
        (
            {"finetune.optimizer": "muon", "model.architecture": "word_vectors", "examples.pair_objective": "none"},
            "finetune.optimizer: muon updates the matrices of blocks",
        ),
        (GIVEN, "vocabulary.kind: given"),
        ({"pretrain.init_from": MINILM}, "set vocabulary.kind: given"),
        ({"vocabulary.extend": 9}, "extend (9)"),
        ({**GIVEN, "pretrain.init_from": "models/nowhere"}, "no model here: models/nowhere"),
        ({**GIVEN, "pretrain.init_from": "models/pretrained/phase2"}, "made by the study itself"),
        ({**GIVEN, "pretrain.init_from": "mine"}, "DVC reads no model in mine"),
        (
            {**GIVEN, "pretrain.init_from": MINILM, "pretrain.objective": "clm", "examples.pair_objective": "none"},
            "starts from random weights",
        ),
        ({"examples.weights": {"wikipedia": 1}}, "not in both: books"),
        ({"examples.weights": {"wikipedia": 1, "books": 1, "news": 1}}, "not in both: news"),
        ({"examples.weights": {"wikipedia": 0, "books": 0}}, "weights sum to nothing"),
        ({"examples.weights": {"wikipedia": -1, "books": 2}}, "greater than or equal to 0"),
        (
            {"examples.weights": {"wikipedia": 1, "books": 2}, "examples.temperature": 0.7},
            "weights and temperature both give shares",
        ),
        ({"examples.temperature": 1.5}, "less than or equal to 1"),
        ({"tasks": ["cola", "squad1"], "finetune.per_task": {"cola": {}, "rte": {}}}, "no recipe for squad1"),
    ],
    ids=name_case,
)
def test_cross_checks_values_that_do_not_fit_are_rejected(changes: dict[str, Any], rule: str) -> None:
    with pytest.raises(PipelineError, match=re.escape(rule)) as caught:
        check_study(changed(changes))
    assert caught.value.what == "value not allowed"


@pytest.mark.parametrize(
    "changes",
    [
        {"pretrain.objective": "electra", "objectives.electra.embeddings": "separate"},
        {"pretrain.objective": "electra", "objectives.electra.generator_width": 1},
        {"pretrain.objective": "distilbert", "pretrain.teacher": "models/teacher"},
        {**TAUGHT, "tasks": ["cola", "stsb", "mnli"], "interpretation.tags": []},
        {"pretrain.objective": "electra", "model.architecture": "electra", "model.embedding_size": 64},
        {**GIVEN, "pretrain.init_from": MINILM, "vocabulary.extend": 9},
        {"tasks": ["cola"], "finetune.per_task": {"cola": {}, "rte": {}}},
    ],
    ids=name_case,
)
def test_cross_checks_values_that_fit_are_accepted(changes: dict[str, Any]) -> None:
    check_study(changed(changes))


def test_check_study_init_from_other_architecture_is_rejected(tmp_path: Path) -> None:
    changes = {**GIVEN, "pretrain.init_from": str(tmp_path), "examples.pair_objective": "none"}
    changes["model.architecture"] = "deberta"
    (tmp_path / "config.json").write_text('{"model_type": "deberta-v2"}')
    with pytest.raises(PipelineError, match="set model.architecture: deberta_v2"):
        check_study(changed(changes))
    check_study(changed(changes | {"model.architecture": "deberta_v2"}))


def test_check_study_several_mistakes_are_all_reported() -> None:
    with pytest.raises(PipelineError, match=r"(?s)a key is missing: seed.*also: value not allowed: mask_prob = 2"):
        check_study(changed({"mask_prob": 2}, without=("seed",)))
    with pytest.raises(PipelineError, match=r"(?s)unknown key: sede.*also: a key is missing: seed"):
        check_study(changed({"sede": 1}, without=("seed",)))


def keys_in(block: dict[str, Any], prefix: str = "") -> Iterator[str]:
    """Dotted keys of a study, but for names of sources and of tasks in ``finetune.per_task``."""
    for key, value in block.items():
        if prefix != "corpus.sources.":
            yield f"{prefix}{key}"
        if isinstance(value, dict) and f"{prefix}{key}" != "finetune.per_task":
            yield from keys_in(value, f"{prefix}{key}.")


@pytest.mark.parametrize("key", list(keys_in(SAMPLE)))
def test_check_study_missing_key_is_rejected(key: str) -> None:
    with pytest.raises(PipelineError, match=rf"(?m)^a key is missing: {re.escape(key)}$"):
        check_study(changed({}, without=(key,)))


def test_check_study_missing_keys_are_reported_with_defaults() -> None:
    keys = ("model.num_hidden_layers", "pretrain.masking.max_predictions", "pretrain.log_points")
    with pytest.raises(PipelineError, match="a key is missing: model.num_hidden_layers, pretrain") as caught:
        check_study(changed({}, without=keys))
    for key in ("`pretrain.log_points: 100`", "`pretrain.masking.max_predictions: null`", "`model.num_hidden_layers`"):
        assert key in caught.value.hint


def test_recipe_of_a_task_inherits_from_defaults() -> None:
    study = check_study(changed({"finetune.per_task.rte": {"epochs": 7}}))
    assert study.finetune.recipe("rte") == study.finetune.defaults.model_copy(update={"epochs": (7,)})
    assert study.finetune.recipe("following") == study.finetune.defaults
    whole = {**SAMPLE["finetune"]["defaults"], "max_length": 32, "feature_layers": "last"}
    study = check_study(changed({"finetune.per_task.rte": whole}))
    assert study.finetune.recipe("rte") == study.finetune.per_task["rte"]


def test_check_unchanged_edited_section_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    def write(recipe: dict[str, Any]) -> Study:
        Path("params.yaml").write_text(yaml.safe_dump(changed({"finetune.per_task.rte": recipe})))
        return load_study()

    ran = write({"epochs": 3})
    check_unchanged(ran, ["finetune"])
    write({"epochs": 3, "max_length": 128})  # no longer the default's
    with pytest.raises(PipelineError, match="params.yaml changed"):
        check_unchanged(ran, ["finetune"])
    check_unchanged(ran, ["model", "pretrain"])


def test_check_study_numbers_and_dates_are_converted() -> None:
    """YAML 1.1 reads 1e-05 as text and a date without dashes as a number."""
    study = check_study(
        changed({"pretrain.learning_rate": "1e-05", "mask_prob": "1e-05", "corpus.sources.wikipedia.date": 20260901})
    )
    assert study.pretrain.learning_rate == study.mask_prob == 1e-5
    assert study.corpus.sources["wikipedia"].date == "20260901"


def test_study_is_immutable() -> None:
    study = check_study(SAMPLE)
    with pytest.raises(ValidationError):
        study.seed = 2  # type: ignore[misc]
    with pytest.raises(ValidationError):
        study.pretrain.train_batch_size = 2  # type: ignore[misc]


@pytest.mark.parametrize("marker", ["<<<<<<< HEAD", "||||||| 1a2b3c", "=======", ">>>>>>> theirs"])
def test_read_yaml_merge_marker_is_rejected_with_its_line(tmp_path: Path, marker: str) -> None:
    path = tmp_path / "params.yaml"
    path.write_text(f"seed: 1\n{marker}\nmask_prob: 0.2\n")
    with pytest.raises(PipelineError, match=r"unresolved merge conflict: \S{7}\n") as raised:
        read_yaml(path)
    assert raised.value.where == f"{path}, line 2" and "git checkout --ours" in raised.value.hint


def test_read_yaml_equals_signs_in_a_comment_are_accepted(tmp_path: Path) -> None:
    path = tmp_path / "params.yaml"
    path.write_text("# =======\nseed: 1 # <<<<<<< here\n")
    assert read_yaml(path) == {"seed": 1}


@pytest.mark.parametrize(
    ("text", "what"),
    [(None, "no study here"), ("seed: [1\n", "not a YAML file"), ("- seed\n", "not a study"), ("", "not a study")],
)
def test_load_study_file_without_study_is_rejected(tmp_path: Path, text: str | None, what: str) -> None:
    path = tmp_path / "params.yaml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(PipelineError, match=what):
        load_study(path)


def test_sample_no_key_is_one_that_dvc_ignores() -> None:
    """DVC's run cache ignores keys called ``size`` and ``nfiles`` at any depth (dvc/stage/cache.py)."""
    assert not {key.rpartition(".")[2] for key in keys_in(SAMPLE)} & {"size", "nfiles"}


def test_check_study_two_tasks_with_one_eval_set_name_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "load_spec", lambda task: load_spec("rte" if task == "wnli" else task))
    with pytest.raises(PipelineError, match="both call a row of their `scores` 'rte'"):
        check_study(SAMPLE)
