"""The code that dvc.yaml declares for each stage is the code that the stage imports."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from pipeline_src.__main__ import STAGES
from pipeline_src.params.study import Study


@pytest.fixture(scope="module")
def code_deps(root: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("code_deps", root / "workflow/code_deps.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_dvc_yaml_declares_what_the_stages_import(code_deps: ModuleType, root: Path) -> None:
    assert code_deps.compare(root) == []


def test_no_stage_depends_on_tools_and_none_on_many_folders(root: Path) -> None:
    stages = yaml.safe_load((root / "dvc.yaml").read_text())["stages"]
    for name, stage in stages.items():
        code = [dep for dep in stage["deps"] if dep.startswith("pipeline_src/") and "/catalogue/" not in dep]
        assert 2 <= len(code) <= 7, name
        assert not any(dep.startswith("pipeline_src/tools") for dep in code), name


def test_stages_declare_the_blocks_they_are_handed(root: Path) -> None:
    stages = yaml.safe_load((root / "dvc.yaml").read_text())["stages"]
    for stage in stages.values():
        command = stage["cmd"].split(" pipeline_src ")[1].split()
        declared = STAGES[command[0]]
        names = {entry.split(".")[0] for entry in stage.get("params", [])}
        if "params.yaml" in stage["deps"]:  # whole
            names = set(Study.model_fields)
        assert names == set(declared.blocks), command[0]
        items = set(stage.get("matrix", {})) if "${item}" in command else set()  # DVC writes --key value for each
        given = {word[2:] for word in command[1:] if word.startswith("--")} | items
        assert given == set(declared.items), command[0]
    assert {stage["cmd"].split(" pipeline_src ")[1].split()[0] for stage in stages.values()} == set(STAGES)


def test_the_report_is_made_anew_for_other_params(root: Path) -> None:
    """It shows them: with equal results the run cache would give the page of another experiment."""
    assert set(STAGES["report"].blocks) == set(Study.model_fields)
    assert "params.yaml" in yaml.safe_load((root / "dvc.yaml").read_text())["stages"]["report"]["deps"]


def test_a_further_restart_makes_no_finished_one_stale(root: Path) -> None:
    from pipeline_src.params.finetune import FinetuneParams

    declared = yaml.safe_load((root / "dvc.yaml").read_text())["stages"]["finetune"]["params"]
    names = {entry.removeprefix("finetune.") for entry in declared if str(entry).startswith("finetune.")}
    own = "tasks.${item.task}"  # of the recipes, this task's alone
    assert names == set(FinetuneParams.model_fields) - {"restarts", "tasks"} | {own}


def test_fix_mends_the_code_and_keeps_the_rest(code_deps: ModuleType, root: Path, tmp_path: Path) -> None:
    (tmp_path / "pipeline_src").symlink_to(root / "pipeline_src")
    text = (root / "dvc.yaml").read_text()
    broken = text.replace("      - pipeline_src/report\n", "").replace(
        "    deps:\n", "    deps:\n      - pipeline_src/tools\n", 1
    )
    assert broken != text
    (tmp_path / "dvc.yaml").write_text(broken)
    assert len(code_deps.compare(tmp_path, fix=True)) == 2
    assert (tmp_path / "dvc.yaml").read_text() == text
