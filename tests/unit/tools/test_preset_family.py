"""The published models as presets: each a study, with the sizes its name says."""

import re
import textwrap

import pytest
import yaml

from pipeline_src.finetuning.recipes import grid_points
from pipeline_src.params.study import check_study
from pipeline_src.tools.preset_family import BASIS, NAMED, SMALL_RECIPE, family, render


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


@pytest.mark.parametrize("name", ["bert-large", "bert-l2-h512-cased"])
def test_only_what_differs_changes_and_its_comments_say_so(basis, name):
    """The comments of all other lines stay, byte for byte."""
    text = render(name, family()[name], basis)
    if name != "bert-large":  # the recipe is of another length
        recipe = r" +learning_rates:\n( +- .*\n)+ +epochs: .*\n +batches: .*\n"
        basis = re.sub(recipe, textwrap.indent(SMALL_RECIPE, "    "), basis, count=1)
    before, after = basis.splitlines(), text.splitlines()
    assert len(before) == len(after)
    changed = {line.split(":")[0].strip("# ") for old, line in zip(before, after, strict=True) if old != line}
    small_and_cased = {"default", "entries", "lowercase"} if name != "bert-large" else set()
    assert changed == {name, "model", "layers", "hidden"} | small_and_cased
    if small_and_cased:
        assert "  entries: 28996 # the released cased vocabulary; 30,000 in the paper" in after
        assert "model: # Turc et al. 2019: L=2, H=512, A=8" in after
    else:
        assert "model: # section 3: L=24, H=1024, A=16" in after
