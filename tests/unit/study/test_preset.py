"""The tool that puts a complete study in place of params.yaml, and the published members of the family."""

from __future__ import annotations

import argparse
import re
import shutil
from pathlib import Path

import pytest
import yaml

from pipeline_src.base.errors import PipelineError
from pipeline_src.finetune.hyperparameter_grid import grid_points
from pipeline_src.model.bert import load_architecture
from pipeline_src.study import preset
from pipeline_src.study.preset import preset_text
from pipeline_src.study.study import Study, check_study
from pipeline_src.tools.ablations import apply

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(ROOT / preset.PRESETS, tmp_path / preset.PRESETS)
    (tmp_path / "params.yaml").write_text("# the study before\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def call(*words: str) -> None:
    parser = argparse.ArgumentParser()
    preset.add_arguments(parser)
    preset.main(parser.parse_args(words))


def test_preset_sample_is_copied_byte_for_byte(project: Path) -> None:
    call("sample")
    assert (project / "params.yaml").read_bytes() == (project / preset.PRESETS / "sample.yaml").read_bytes()
    assert "#" in (project / "params.yaml").read_text()


def test_preset_list_changes_nothing(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call("--list")
    lines = capsys.readouterr().out.splitlines()
    assert {line.split()[0] for line in lines} >= {"sample", "bert-base"}
    assert all(len(line.split()) > 1 for line in lines), "a preset starts with a comment that says what it is"
    assert (project / "params.yaml").read_text() == "# the study before\n"


@pytest.mark.parametrize(("words", "message"), [(["huge"], "no such preset: huge"), ([], "no preset is named")])
def test_preset_unknown_name_lists_presets(project: Path, words: list[str], message: str) -> None:
    with pytest.raises(PipelineError, match=rf"(?s){message}.*sample"):
        call(*words)
    assert (project / "params.yaml").read_text() == "# the study before\n"


def test_preset_invalid_study_is_rejected(project: Path) -> None:
    (project / preset.PRESETS / "mine.yaml").write_text("# mine: a study\nsede: 1\n")
    with pytest.raises(PipelineError, match=r"mine\.yaml"):
        call("mine")
    assert (project / "params.yaml").read_text() == "# the study before\n"


BASE = """\
# sample: a study
# of something

a: # first
  b: # nothing
  c: '20260901' # a date
  f:
  - - a text
    - 0.00001
  d: {x: 0.00005, y: [1, null]} # a map
  # a line of its own

finetune: # tuned
  per_task: # of the sample
    one: {}
e: true
"""


def test_preset_text_replaces_values_and_their_comments(tmp_path: Path) -> None:
    (tmp_path / "sample.yaml").write_text(BASE)
    (tmp_path / "mine.yaml").write_text(
        """\
# mine: Another
a: # second
  b: 1234
  c: "010"
  f:
  - 0.000003

  d: {y: [1, 7]} # changed
finetune:
  per_task:
    two: {x: 1} # new
"""
    )
    assert preset.preset_text("sample", tmp_path) == BASE
    assert (
        preset.preset_text("mine", tmp_path)
        == """\
# mine: Another
# of something

a: # second
  b: 1234
  c: '010'
  f:
  - 0.000003
  d: {x: 0.00005, y: [1, 7]} # changed
  # a line of its own

finetune: # tuned
  per_task: # of the sample
    two: {x: 1} # new
e: true
"""
    )


def test_preset_text_base_may_be_another_preset(tmp_path: Path) -> None:
    (tmp_path / "sample.yaml").write_text(BASE)
    (tmp_path / "large.yaml").write_text("# large: Large\na:\n  b: 1 # one\ne: false\n")
    (tmp_path / "larger.yaml").write_text("# larger: Larger\nbase: large\n\na:\n  b: 2\n")
    lines = preset.preset_text("larger", tmp_path).splitlines()
    assert lines[0] == "# larger: Larger" and "  b: 2" in lines and "e: false" in lines and "base: large" not in lines


# Entries of the original's vocabulary, and parameters of transformers' encoder class.
PRESETS = {
    "roberta-base": (50_265, 124_645_632),
    "albert-base": (30_000, 11_683_584),
    "electra-small": (30_522, 13_483_008),
    "electra-base": (30_522, 108_891_648),
    "distilbert": (30_522, 66_362_880),
    "tinybert-4": (30_522, 14_350_248),
    "deberta-base": (50_265, 138_601_728),
    "deberta-v3-base": (128_100, 183_831_552),
    "modernbert-base": (50_368, 149_014_272),
}
# Sizes of docs/family.md.
DOCUMENTED = {
    "the other small BERTs, such as 6 × 512": 35_068_416,
    "RoBERTa-large": 355_359_744,
    "ALBERT-large": 17_683_968,
    "ALBERT-xlarge": 58_724_864,
    "ALBERT-xxlarge": 222_595_584,
    "ELECTRA-large": 334_092_288,
    "TinyBERT of 6 layers": 66_955_008,
    "DeBERTa-large": 405_163_008,
    "DeBERTa-v3-xsmall": 70_682_112,
    "DeBERTa-v3-small": 141_304_320,
    "DeBERTa-v3-large": 434_012_160,
    "ModernBERT-large": 394_781_696,
}
# Layers, width and points of the grid (Devlin et al. 2018, Turc et al. 2019).
BERTS = {
    "bert-tiny": (2, 128, 20),
    "bert-mini": (4, 256, 20),
    "bert-small": (4, 512, 20),
    "bert-medium": (8, 512, 20),
    "bert-base": (12, 768, 4),
    "bert-large": (24, 1024, 4),
}
# Kind of the vocabulary, and whether it is lower-cased; the others have WordPiece of uncased text.
KINDS = {
    "roberta": ("byte_bpe", False),
    "albert": ("unigram", True),
    "deberta": ("byte_bpe", False),
    "deberta_v2": ("unigram", False),
    "modernbert": ("byte_bpe", False),
}
# transformers' encoder has a pooler.
WITH_POOLER = ("bert", "roberta", "albert")


def study_of(name: str, changes: tuple[str, ...] = ()) -> Study:
    params = yaml.safe_load(preset_text(name, ROOT / "workflow/presets"))
    return check_study(apply(dict(yaml.safe_load(f"[{key.replace('=', ', ')}]") for key in changes), params))


def encoder_parameters(study: Study) -> int:
    """Parameters of transformers' encoder class; ours always has a pooler, and DeBERTa's the decoder's positions."""
    architecture = load_architecture(study.model.architecture)
    padding = {"pad_token_id": 1} if study.model.architecture == "roberta" else {}
    config = architecture.config.from_params(study.model, study.vocabulary.vocab_size, **padding)
    count = architecture.parameters(config)
    if study.model.architecture not in WITH_POOLER:
        count -= config.hidden_size**2 + config.hidden_size
        count -= config.max_position_embeddings * config.hidden_size if hasattr(config, "mask_decoder") else 0
    return count


def documented_sizes() -> dict[str, tuple[str, tuple[str, ...]]]:
    """Size -> preset and changed keys, of the table in docs/family.md."""
    text = (ROOT / "docs/family.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (.+) \| `([\w-]+)` \| `(.+)` \|$", text, re.MULTILINE)
    return {name: (base, tuple(keys.split())) for name, base, keys in rows if "=" in keys}


@pytest.mark.parametrize("name", BERTS)
def test_preset_bert_has_published_size_and_grid(name: str) -> None:
    study = study_of(name)
    grid = len(list(grid_points(study.finetune.defaults)))
    assert (study.model.num_hidden_layers, study.model.hidden_size, grid) == BERTS[name]
    assert study.pretrain.steps == study_of("bert-base").pretrain.steps


@pytest.mark.parametrize("name", PRESETS)
def test_preset_member_has_published_vocabulary_and_parameters(name: str) -> None:
    study, (entries, count) = study_of(name), PRESETS[name]
    kind = (study.vocabulary.kind, study.vocabulary.lowercase)
    assert kind == KINDS.get(study.model.architecture, ("wordpiece", True))
    assert (study.vocabulary.vocab_size, encoder_parameters(study)) == (entries, count)


@pytest.mark.parametrize("name", DOCUMENTED)
def test_documented_keys_have_published_parameters(name: str) -> None:
    assert encoder_parameters(study_of(*documented_sizes()[name])) == DOCUMENTED[name]


def test_documented_model_sizes_are_all_tested() -> None:
    assert documented_sizes().keys() == DOCUMENTED.keys()


def test_preset_text_changed_value_loses_base_comment() -> None:
    lines = preset_text("roberta-base", ROOT / "workflow/presets").splitlines()
    assert "  train_batch_size: 8192" in lines and "  max_seq_length: {phase1: 512, phase2: 512}" in lines
    kind = next(line for line in lines if line.startswith("  kind: byte_bpe"))
    assert "departs" in kind and "(ALBERT)" not in kind
    assert "  validation: 0.001" in lines and "  num_hidden_layers: 12 # section 3" in lines
