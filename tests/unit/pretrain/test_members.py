"""Objectives are loaded by name, and do not make other objectives' models stale."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.registry import member_module, member_names
from pipeline_src.engine.fingerprint import fingerprint, imported_files
from pipeline_src.pretrain.objective import PretrainingObjective, load_objective
from pipeline_src.pretrain.phases import Phase
from pipeline_src.pretrain.pretrain import CODE, checkpoint_identity
from pipeline_src.study.model import ModelParams
from pipeline_src.study.pretrain import PretrainParams, Steps
from tests.unit.engine.test_fingerprint import clear_caches

NAMES = member_names("objectives")


@pytest.mark.parametrize("name", NAMES)
def test_load_objective_known_name_returns_its_class(name):
    kind = load_objective(name)
    assert issubclass(kind, PretrainingObjective) and kind.__module__ == member_module("objectives", name)
    assert kind.columns()[0] == "loss" and kind.spec.validation_columns[0].endswith("_loss")


def test_pretraining_imports_no_objective_directly():
    assert not {member_module("objectives", name).replace(".", "/") + ".py" for name in NAMES} & {*imported_files(CODE)}


def test_load_objective_unknown_name_is_rejected():
    with pytest.raises(PipelineError, match="(?s)no such objective: backwards.*clm, .*mlm"):
        load_objective("backwards")
    with pytest.raises(ValueError, match="unknown objective 'backwards'; use one of .*clm, .*mlm"):
        PretrainParams(steps=Steps(phase1=1, phase2=1), objective="backwards")


def test_pretrain_objective_documented_in_new_variant_learns(root, study):
    """The example of docs/new-variant.md is installed in a copy of the package."""
    copy = study / "copy"
    shutil.copytree(root / "pipeline_src", copy / "pipeline_src", ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "tests").symlink_to(root / "tests")
    folder = copy / "pipeline_src/family/half_pairs"
    folder.mkdir()
    page = (root / "docs/new-variant.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    for file, mark in (("__init__.py", "OBJECTIVES ="), ("objective.py", "OBJECTIVE =")):
        (folder / file).write_text(next(block for block in blocks if mark in block))
    training = "train_phase('phase1', phase1=4, objective='half_pairs', log_points=14)"
    script = f"from tests.unit.pretrain.small import train_phase; {training}"
    subprocess.run([sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": str(copy)}, check=True)
    row = pd.read_csv("results/pretrain/phase1.tsv", sep="\t").iloc[-1]
    assert row["loss"] == pytest.approx(row["mlm_loss"] + row["nsp_loss"] / 2, rel=1e-4)
    assert "masked words and next sentences" in (study / "models/pretrained/phase1/README.md").read_text()


def test_reading_study_config_does_not_import_torch(root):
    script = "import sys, pipeline_src.study.study; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_fingerprint_of_pretraining_includes_own_objective_only(root, tmp_path):
    shutil.copytree(root / "pipeline_src", tmp_path / "pipeline_src", ignore=shutil.ignore_patterns("__pycache__"))

    def checksums() -> list[str]:
        clear_caches()
        members = (member_module("objectives", name) for name in ("mlm", "clm"))
        return [fingerprint(CODE, member, root=tmp_path) for member in members]

    before = checksums()
    member = Path(tmp_path / "pipeline_src/pretrain/mlm.py")
    member.write_text(member.read_text() + "an_edit = 1\n")
    after = checksums()
    assert after[0] != before[0] and after[1] == before[1] and before[0] != before[1]


def test_checkpoint_identity_depends_on_code_of_encoder_and_objective(study, monkeypatch):
    monkeypatch.setattr("pipeline_src.pretrain.pretrain.fingerprint", lambda *modules: modules)
    model = ModelParams(architecture="bert", num_hidden_layers=1, hidden_size=64, max_position_embeddings=32)
    for objective in ("mlm", "clm"):
        phase = Phase("phase1", 1, 0.15, model, PretrainParams(steps=Steps(phase1=1, phase2=1), objective=objective))
        modules = checkpoint_identity(phase)["code"]
        assert modules == (CODE, "pipeline_src.model.bert", f"pipeline_src.pretrain.{objective}")
        assert all(importlib.util.find_spec(module) for module in modules)
