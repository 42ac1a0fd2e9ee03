"""The tool that puts a complete study in place of params.yaml, and the published members of the family."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import pytest
import yaml

from pipeline_src.common.errors import PipelineError
from pipeline_src.config.study import check_study
from pipeline_src.finetuning.hyperparameter_grid import grid_points
from pipeline_src.models.bert import load_architecture
from pipeline_src.tools import preset
from pipeline_src.tools.preset import FAMILY_BASE, NAMED, SMALL_RECIPE, family, preset_text, published

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


def test_a_preset_comes_byte_for_byte_with_its_comments(project: Path) -> None:
    call("sample")
    assert (project / "params.yaml").read_bytes() == (project / preset.PRESETS / "sample.yaml").read_bytes()
    assert "#" in (project / "params.yaml").read_text()


def test_the_list_changes_nothing(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call("--list")
    lines = capsys.readouterr().out.splitlines()
    assert {line.split()[0] for line in lines} >= {"sample", "bert-base"}
    assert all(len(line.split()) > 1 for line in lines), "a preset starts with a comment that says what it is"
    assert (project / "params.yaml").read_text() == "# the study before\n"


@pytest.mark.parametrize(("words", "said"), [(["huge"], "no such preset: huge"), ([], "no preset is named")])
def test_a_name_that_is_not_there_lists_those_that_are(project: Path, words: list[str], said: str) -> None:
    with pytest.raises(PipelineError, match=rf"(?s){said}.*sample"):
        call(*words)
    assert (project / "params.yaml").read_text() == "# the study before\n"


def test_a_preset_that_is_no_valid_study_is_not_put_in_place(project: Path) -> None:
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


def test_values_and_their_comments_are_replaced_and_all_else_stays(tmp_path: Path) -> None:
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
    other = preset.Overlay("other", {"e": 0.00002, "a.d": {"x": [1e-07]}}, {"e": "departs: 1"})
    text = preset.merged(BASE, "other", other)
    assert "e: 0.00002 # departs: 1" in text and "x: [0.0000001]" in text and "# a map" not in text


@pytest.fixture(scope="module")
def basis(root) -> str:
    return preset_text(FAMILY_BASE, root / "workflow/presets")


def sizes_of(cased: bool) -> set[tuple[int, int]]:
    members = [one.values for name, one in family().items() if name.endswith("-cased") == cased]
    return {(values["model.num_hidden_layers"], values["model.hidden_size"]) for values in members}


def test_it_is_the_published_family():
    sizes = sizes_of(cased=False) | {NAMED[FAMILY_BASE]}
    assert len(sizes) == 25 and (24, 1024) in sizes  # 24 small ones, base among them, and large
    assert sizes_of(cased=True) == sizes


@pytest.mark.parametrize("name", family())
def test_a_member_is_a_study(root, basis, name):
    text = preset_text(name, root / "workflow/presets")
    study, values = check_study(yaml.safe_load(text)), family()[name].values
    size = (study.model.num_hidden_layers, study.model.hidden_size)
    assert size == (values["model.num_hidden_layers"], values["model.hidden_size"])
    assert study.vocabulary.lowercase is not name.endswith("-cased")
    assert text.startswith(f"# {name}: {size[0]} layers")
    grid = len(list(grid_points(study.finetune.defaults)))
    assert grid == (20 if size not in (NAMED[FAMILY_BASE], NAMED["bert-large"]) else 4)
    same = check_study(yaml.safe_load(basis))
    assert study.pretrain.steps == same.pretrain.steps and study.corpus == same.corpus


@pytest.mark.parametrize("name", ["bert-large", "bert-l2-h512-cased"])
def test_only_what_differs_changes_and_its_comments_say_so(root, basis, name):
    """The comments of all other lines stay, byte for byte."""
    after = preset_text(name, root / "workflow/presets").splitlines()
    changed = {line.split(":")[0].strip("# ") for line in set(after) - set(basis.splitlines())}
    if name == "bert-large":
        assert changed == {name, "num_hidden_layers", "hidden_size"} and "  num_hidden_layers: 24 # section 3" in after
    else:
        rates = {f"- {rate}" for rate in ("0.0003", "0.0001", 8, 16, 32, 64, 128)}
        assert changed - rates == {
            name,
            "num_hidden_layers",
            "hidden_size",
            "epochs",
            "batch_sizes",
            "vocab_size",
            "lowercase",
        }
        assert "  vocab_size: 28996 # the released cased vocabulary; 30,000 in the paper" in after
        assert "  num_hidden_layers: 2 # Turc et al. 2019" in after
        recipe = yaml.safe_load("\n".join(after))["finetune"]["defaults"]
        assert {
            f"finetune.defaults.{key}": recipe[key] for key in ("learning_rates", "epochs", "batch_sizes")
        } == SMALL_RECIPE


# Entries of the original's vocabulary, and parameters of transformers' encoder class.
COUNTS = {
    "roberta-base": (50_265, 124_645_632),
    "roberta-large": (50_265, 355_359_744),
    "albert-base": (30_000, 11_683_584),
    "albert-large": (30_000, 17_683_968),
    "albert-xlarge": (30_000, 58_724_864),
    "albert-xxlarge": (30_000, 222_595_584),
    "electra-small": (30_522, 13_483_008),
    "electra-base": (30_522, 108_891_648),
    "electra-large": (30_522, 334_092_288),
    "distilbert": (30_522, 66_362_880),
    "tinybert-4": (30_522, 14_350_248),
    "tinybert-6": (30_522, 66_955_008),
    "deberta-base": (50_265, 138_601_728),
    "deberta-large": (50_265, 405_163_008),
    "deberta-v3-xsmall": (128_100, 70_682_112),
    "deberta-v3-small": (128_100, 141_304_320),
    "deberta-v3-base": (128_100, 183_831_552),
    "deberta-v3-large": (128_100, 434_012_160),
    "modernbert-base": (50_368, 149_014_272),
    "modernbert-large": (50_368, 394_781_696),
}
KINDS = {  # of vocabulary, and whether it is lower-cased; WordPiece of uncased text where none is named
    "roberta": ("byte_bpe", False),
    "albert": ("unigram", True),
    "deberta": ("byte_bpe", False),
    "deberta_v2": ("unigram", False),
    "modernbert": ("byte_bpe", False),
}
WITH_POOLER = ("bert", "roberta", "albert")  # transformers' encoder has one


def test_every_member_has_a_published_size():
    assert COUNTS.keys() == published().keys()


@pytest.mark.parametrize("name", COUNTS)
def test_a_member_is_a_study_with_the_published_number_of_parameters(root, name):
    text = preset_text(name, root / "workflow/presets")
    study, (entries, count) = check_study(yaml.safe_load(text)), COUNTS[name]
    for key, original in published()[name].comments.items():
        assert any(f"{key.rpartition('.')[2]}:" in line and original in line for line in text.splitlines()), key
    architecture = load_architecture(study.model.architecture)
    padding = {"pad_token_id": 1} if study.model.architecture == "roberta" else {}
    vocabulary = study.vocabulary
    assert (vocabulary.kind, vocabulary.lowercase) == KINDS.get(study.model.architecture, ("wordpiece", True))
    assert vocabulary.vocab_size == entries
    config = architecture.config.from_params(study.model, vocabulary.vocab_size, **padding)
    found = architecture.parameters(config)
    if (
        study.model.architecture not in WITH_POOLER
    ):  # ours has one for tasks, and DeBERTa's the mask decoder's positions
        found -= config.hidden_size**2 + config.hidden_size
        found -= config.max_position_embeddings * config.hidden_size if hasattr(config, "mask_decoder") else 0
    assert found == count


def test_what_bert_base_says_of_a_value_is_not_said_of_another(root):
    lines = preset_text("roberta-large", root / "workflow/presets").splitlines()
    assert (
        "  num_hidden_layers: 24" in lines
        and "  train_batch_size: 8192" in lines
        and "model:" in lines
        and "pretrain:" in lines
    )
    changed = [
        line for line in lines if line.startswith(("  vocab_size:", "  kind:", "  objective:", "  warmup_steps:"))
    ]
    assert len(changed) == 4 and not any("30,000" in line or "(ALBERT)" in line for line in changed)
    assert "  max_seq_length: {phase1: 512, phase2: 512}" in lines
    assert "  validation: 0.001" in lines and any("section 3.1" in line for line in lines), "others keep theirs"
