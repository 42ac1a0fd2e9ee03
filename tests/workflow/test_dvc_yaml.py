"""dvc.yaml names the code, the catalogue's entries and the parameters that each stage reads."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline_src.__main__ import STAGES
from pipeline_src.base import yaml_files
from pipeline_src.engine.fingerprint import imported_files
from pipeline_src.report.page import PARAMS, SAMPLE
from pipeline_src.study.study import Study

ROOT = Path(__file__).resolve().parents[2]
STAGES_AS_WRITTEN: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
DECLARED = {name: stage.get("do", stage) for name, stage in STAGES_AS_WRITTEN.items()}
LOADERS = {  # a file that loads a member by name -> the member's fingerprint, by the parameter that chooses it
    "pipeline_src/text/clean.py": "code/cleaners/${item.kind}",
    "pipeline_src/model/bert.py": "code/models/${model.architecture}",
    "pipeline_src/pretrain/objective.py": "code/objectives/${pretrain.objective}",
}
CATALOGUE_FOLDERS = ("SOURCES", "TASK_SOURCES", "TASK_SPECS")  # in pipeline_src/base/yaml_files.py


def command_of(stage: str) -> str:
    """The command of ``python -m pipeline_src`` behind a stage."""
    return DECLARED[stage]["cmd"].split(" pipeline_src ")[1].split()[0]


@pytest.mark.parametrize("stage", sorted(DECLARED.keys() - {"code"}))
def test_dvc_yaml_stage_depends_on_fingerprints_of_its_code(stage: str) -> None:
    files = imported_files(STAGES[command_of(stage)].module)
    expected = {f"code/{command_of(stage)}", *(code for file, code in LOADERS.items() if file in files)}
    deps = DECLARED[stage]["deps"]
    assert {dep for dep in deps if dep.startswith("code")} == expected
    assert not any(dep.startswith("pipeline_src") for dep in deps)


@pytest.mark.parametrize("stage", sorted(DECLARED.keys() - {"code"}))
def test_dvc_yaml_stage_depends_on_catalogue_entries_it_reads(stage: str) -> None:
    read = set()
    for file in imported_files(STAGES[command_of(stage)].module):
        for node in ast.walk(ast.parse((ROOT / file).read_text())):
            if isinstance(node, ast.ImportFrom) and node.module == yaml_files.__name__:
                read |= {alias.name for alias in node.names}
    for name in read.intersection(CATALOGUE_FOLDERS):
        folder = getattr(yaml_files, name)
        assert any(dep.startswith(folder) for dep in DECLARED[stage]["deps"]), folder


def test_dvc_yaml_code_stage_depends_on_all_code_and_params() -> None:
    assert DECLARED["code"]["deps"] == ["pipeline_src", "params.yaml"]
    assert DECLARED["code"]["outs"] == [{"code": {"persist": True}}]


def test_dvc_yaml_stage_declares_blocks_and_items_of_its_command() -> None:
    for stage in [stage for name, stage in DECLARED.items() if name != "code"]:
        command = stage["cmd"].split(" pipeline_src ")[1].split()
        declared = STAGES[command[0]]
        names = {entry.split(".")[0] for entry in stage.get("params", [])}
        if "params.yaml" in stage["deps"]:  # whole
            names = set(Study.model_fields)
        assert names == set(declared.blocks), command[0]
        items = set(stage.get("matrix", {})) if "${item}" in command else set()  # DVC writes --key value for each
        given = {word[2:] for word in command[1:] if word.startswith("--")} | items
        assert given == set(declared.items), command[0]
    assert {stage["cmd"].split(" pipeline_src ")[1].split()[0] for stage in DECLARED.values()} == set(STAGES)


def test_dvc_yaml_report_depends_on_whole_params(root: Path) -> None:
    """It shows them, and what they change in the preset: the run cache would give the page of another experiment."""
    assert set(STAGES["report"].blocks) == set(Study.model_fields)
    dependencies = yaml.safe_load((root / "dvc.yaml").read_text())["stages"]["report"]["deps"]
    assert {PARAMS.as_posix(), SAMPLE.as_posix()} <= set(dependencies)


def test_dvc_yaml_finetune_depends_on_params_of_its_task_only(root: Path) -> None:
    from pipeline_src.study.finetune import FinetuneParams

    declared = yaml.safe_load((root / "dvc.yaml").read_text())["stages"]["finetune"]["params"]
    names = {entry.removeprefix("finetune.") for entry in declared if str(entry).startswith("finetune.")}
    per_task = "per_task.${item.task}"  # of the recipes, this task's alone
    assert names == set(FinetuneParams.model_fields) - {"seeds", "per_task"} | {per_task}
