"""What the bridge takes from DVC and Snakemake looks as it did when the bridge was written.

Where an upgrade fails here, the message says what moved; ``workflow/engine_api.py`` is where to follow it.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

PARAMETERS = {  # a function or method -> names of its parameters
    "snakemake.workflow:Workflow.execute": "self executor_plugin executor_settings scheduler_plugin scheduler_settings "
    "greedy_scheduler_settings updated_files",
    "snakemake.dag:DAG.check_output_mtime": "self job expanded_output",
    "snakemake.workflow:Workflow.log_metadata_info": "self metadata_attr description",
    "snakemake.exceptions:WorkflowError": "args lineno snakefile rule",
    "snakemake.io:ancient": "value",
    "snakemake.io:directory": "value",
    "snakemake.logging:logger.info": "msg args kwargs",
    "snakemake.logging:logger.warning": "msg args kwargs",
    "dvc.repo:Repo": "root_dir fs rev subrepos uninitialized config url repo_factory scm remote remote_config "
    "_wait_for_lock",
    "dvc.repo:lock_repo": "repo",
    "dvc.repo.experiments.utils:get_exp_rwlock": "repo reads writes",
    "dvc.rwlock:rwlock": "tmp_dir fs cmd read write hardlink",
    "dvc.exceptions:DvcException": "msg args",
    "dvc.lock:LockError": "msg args",
    "dvc.stage:PipelineStage.save": "self allow_missing run_cache",
    "dvc.stage:PipelineStage.save_deps": "self allow_missing",
    "dvc.stage:PipelineStage.commit": "self allow_missing filter_info kwargs",
    "dvc.stage:PipelineStage.changed_stage": "self",
    "dvc.stage.cache:_can_hash": "stage",
    "dvc.stage.cache:StageCache._load": "self stage",
    "dvc.stage.cache:StageCache._create_stage": "self cache wdir",
    "dvc.stage.serialize:to_lockfile": "stage kwargs",
    "dvc.stage.serialize:to_single_stage_lockfile": "stage kwargs",
    "dvc.output:Output.checkout": "self force progress_callback relink filter_info allow_missing kwargs",
    "dvc.output:Output.commit": "self filter_info relink",
    "dvc.output:Output.workspace_status": "self",
    "dvc.output:Output.changed_cache": "self filter_info",
    "dvc.output:Output.unprotect": "self",
    "dvc.output:Output.get_obj": "self filter_info kwargs",
    "dvc.dependency.param:ParamsDependency.read_params": "self flatten kwargs",
    "dvc.dependency.param:read_param_file": "fs path key_paths flatten load_kwargs",
    "dvc.dependency.db:AbstractDependency": "stage info args kwargs",
    "dvc.dependency.repo:RepoDependency": "def_repo stage args kwargs",
    "dvc.dvcfile:Lockfile": "repo path verify kwargs",
    "dvc.dvcfile:Lockfile.load": "self kwargs",
    "dvc.dvcfile:load_file": "repo path kwargs",
    "dvc.parsing:DataResolver": "repo wdir d",
    "dvc.parsing:DataResolver.resolve": "self",
    "dvc.utils.serialize:dump_yaml": "path data fs kwargs",
    "dvc.utils.serialize:load_yaml": "path fs kwargs",
    "dvc.ignore:DvcIgnoreFilter.find": "self fs path kwargs",
    "dvc_data.hashfile.hash:hash_file": "path fs name state callback info",
    "dvc_data.hashfile.tree:Tree.__iter__": "self",
}
FIELDS = {  # settings of Snakemake that are read or set
    "snakemake.workflow:Workflow": "execution_settings dag_settings output_settings",
    "snakemake.settings.types:ExecutionSettings": "lock ignore_incomplete",
    "snakemake.settings.types:DAGSettings": "force_incomplete forceall forcerun forcetargets",
    "snakemake.settings.types:OutputSettings": "dryrun",
    "snakemake_interface_executor_plugins.settings:CommonSettings": "dryrun_exec touch_exec",
}
ATTRIBUTES = {  # of objects that DVC makes
    "repo": "root_dir tmp_dir fs config index stage_cache dvcignore",
    "stage": "name cmd deps outs wdir path repo frozen is_callback always_changed",
    "out": "fs_path hash_info use_cache cache exists",
    "dep": "fs_path protocol fs",
    "params": "params fs_path hash_info exists repo",
}
ENGINES = {"dvc", "dvc_data", "dvc_objects", "snakemake", "snakemake_interface_common"}
DVC_YAML = """
stages:
  count:
    foreach: [a, b]
    do: {cmd: "echo ${item} > ${item}.txt", deps: [given], params: [size], outs: ["${item}.txt"]}
"""


@pytest.fixture(scope="module")
def engine_api(root: Path) -> Any:
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(str(root / "workflow"))
        importlib.import_module("snakemake.api")  # before snakemake.workflow, or Python goes round in a circle
        yield importlib.import_module("engine_api")


def named(path: str) -> Any:
    module, _, names = path.partition(":")
    item: Any = importlib.import_module(module)
    for name in names.split("."):
        item = getattr(item, name, None)
        assert item is not None, f"{path} is gone"
    return item


@pytest.mark.parametrize("path", PARAMETERS)
def test_functions_take_what_they_took(engine_api: ModuleType, path: str) -> None:
    assert " ".join(inspect.signature(named(path)).parameters) == PARAMETERS[path]


@pytest.mark.parametrize("path", FIELDS)
def test_settings_have_their_names(engine_api: ModuleType, path: str) -> None:
    assert set(FIELDS[path].split()) <= set(named(path).__dataclass_fields__)


def test_jobs_are_executed_by_keyword_and_by_one_door(engine_api: ModuleType) -> None:
    called = inspect.getsource(named("snakemake.api:DAGApi.execute_workflow"))
    assert called.count("workflow.execute(") == 1 and "executor_plugin=run_executor_plugin" in called
    assert "schedule()" not in inspect.getsource(importlib.import_module("snakemake.api"))


def test_objects_of_dvc_have_what_is_read_of_them(engine_api: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "dvc.yaml").write_text(DVC_YAML)
    (tmp_path / "params.yaml").write_text("size: 3\n")
    (tmp_path / "given").write_text("given\n")
    repo = engine_api.Repo.init(str(tmp_path), no_scm=True)
    (stage, _) = repo.index.stages
    params, dep = sorted(stage.deps, key=lambda dep: not isinstance(dep, engine_api.ParamsDependency))
    objects = {"repo": repo, "stage": stage, "out": stage.outs[0], "dep": dep, "params": params}
    missing = [
        f"{kind}.{name}"
        for kind, names in ATTRIBUTES.items()
        for name in names.split()
        if not hasattr(objects[kind], name)
    ]
    assert missing == []
    assert set(repo.index.graph) == set(repo.index.stages)
    assert stage.name == "count@a" and stage.cmd == "echo a > a.txt"
    assert stage.outs[0].cache.oid_to_path("0123") == f"{tmp_path}/.dvc/cache/files/md5/01/23"
    assert engine_api.declared_stages(repo)["stages"]["count"]["foreach"] == ["a", "b"]
    assert engine_api.resolve(repo, engine_api.declared_stages(repo))["count@b"]["outs"] == ["b.txt"]
    assert engine_api.params_of([params]) == {str(tmp_path / "params.yaml"): {"size": 3}}


def test_other_versions_are_refused_in_one_sentence(engine_api: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    engine_api.refuse_other_versions()
    monkeypatch.setattr(engine_api, "version", lambda name: "9.99.0" if name == "snakemake" else "3.67.1")
    with pytest.raises(engine_api.WorkflowError, match="for dvc 3.67.1 and snakemake 9.27.1, not for .* 9.99.0: pip"):
        engine_api.refuse_other_versions()


def test_the_versions_are_those_that_are_installed_for_users(engine_api: ModuleType, root: Path) -> None:
    for file in ("pyproject.toml", "locks/study.lock"):
        text = (root / file).read_text()
        for name, number in engine_api.VERSIONS.items():
            assert re.search(rf"^\W*{name}=={re.escape(number)}\b", text, re.MULTILINE), f"{file}: {name}"


def test_every_name_that_is_imported_is_held_here(root: Path) -> None:
    held = {re.sub(r"\..*", "", path.partition(":")[2]) for path in PARAMETERS} | {"ObjectFormatError", "PipelineStage"}
    tree = ast.parse((root / "workflow/engine_api.py").read_text())
    imported = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and re.match("dvc|snakemake", node.module or "")
        for alias in node.names
    }
    assert imported <= held


def test_no_other_file_knows_the_engines_from_inside(root: Path) -> None:
    complaints = []
    for file in sorted((root / "workflow").glob("*.py")):
        if file.name == "engine_api.py":
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            complaints += [f"{file.name}: imports {name}" for name in names if name.split(".")[0] in ENGINES]
            if isinstance(node, ast.Attribute) and re.match("_[a-z]", node.attr):
                if not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")):
                    complaints.append(f"{file.name}:{node.lineno}: reads .{node.attr}")
    for file in [root / "workflow/Snakefile", *(root / "workflow/rules").glob("*.smk")]:
        lines = re.findall(r"^.*(?:(?:from|import) (?:dvc|snakemake)\b|\w\._[a-z]).*$", file.read_text(), re.MULTILINE)
        complaints += [f"{file.name}: {line}" for line in lines]
    assert complaints == []
