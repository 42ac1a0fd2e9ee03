"""The published models as presets: each a study, with the sizes its name says."""

import pytest
import yaml

from pipeline_src.finetuning.recipes import grid_points
from pipeline_src.params.study import check_study
from pipeline_src.tools.preset_family import BASIS, NAMED, family, render


@pytest.fixture(scope="module")
def basis(root) -> str:
    return (root / f"workflow/presets/{BASIS}.yaml").read_text(encoding="utf-8")


def test_it_is_the_published_family():
    sizes = {(member.layers, member.hidden) for member in family().values() if not member.cased} | {NAMED[BASIS]}
    assert len(sizes) == 25 and (24, 1024) in sizes  # 24 small ones, base among them, and large
    assert {(member.layers, member.hidden) for member in family().values() if member.cased} == sizes


@pytest.mark.parametrize("name", family())
def test_a_member_is_a_study(basis, name):
    member, text = family()[name], render(name, family()[name], basis)
    study = check_study(yaml.safe_load(text))
    assert (study.model.layers, study.model.hidden) == (member.layers, member.hidden)
    assert study.vocabulary.lowercase is not member.cased
    assert text.startswith(f"# {name}: {member.layers} layers") and "110M" not in text
    grid = len(list(grid_points(study.finetune.default)))
    assert grid == (20 if member.layers < 24 and (member.layers, member.hidden) != NAMED[BASIS] else 4)
    same = check_study(yaml.safe_load(basis))
    assert study.pretrain.steps == same.pretrain.steps and study.wikipedia == same.wikipedia
