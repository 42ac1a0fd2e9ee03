"""All that the bridge takes from DVC and Snakemake: every import from either stands here, and every private name.

Both change such names without notice. So this is for one version of each, and ``tests/workflow/test_engine_api.py``
holds what each name looks like: after an upgrade it says what moved. Another version is refused when this is imported.
"""
# ruff: noqa: E402 -- the versions are compared before a name that may have moved is imported

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from snakemake.exceptions import WorkflowError

VERSIONS = {"dvc": "3.67.1", "snakemake": "9.27.1"}  # as in pyproject.toml


def refuse_other_versions() -> None:
    """Stop where another version than the bridge is written for is installed.

    Raises:
        WorkflowError: it names both versions.
    """
    installed = {name: version(name) for name in VERSIONS}
    if installed != VERSIONS:
        wanted, here = (
            " and ".join(f"{name} {number}" for name, number in each.items()) for each in (VERSIONS, installed)
        )
        raise WorkflowError(f"The workflow is written for {wanted}, not for {here}: pip install -r requirements.lock.")


refuse_other_versions()

from dvc.dependency.db import AbstractDependency
from dvc.dependency.param import ParamsDependency, read_param_file
from dvc.dependency.repo import RepoDependency
from dvc.dvcfile import Lockfile, load_file
from dvc.exceptions import DvcException
from dvc.lock import LockError
from dvc.parsing import DataResolver
from dvc.repo import Repo, lock_repo
from dvc.repo.experiments.utils import get_exp_rwlock
from dvc.rwlock import rwlock
from dvc.stage import PipelineStage
from dvc.stage.cache import _can_hash
from dvc.stage.serialize import to_lockfile, to_single_stage_lockfile
from dvc.utils.serialize import dump_yaml, load_yaml
from dvc_data.hashfile.hash import hash_file
from dvc_data.hashfile.tree import Tree
from dvc_objects.errors import ObjectFormatError
from snakemake.io import ancient, directory
from snakemake.logging import logger

__all__ = [
    "VERSIONS", "DvcException", "LockError", "ObjectFormatError", "ParamsDependency", "PipelineStage", "Repo",
    "WorkflowError", "ancient", "around_execution", "cached_files", "declared_stages", "directory", "executes",
    "experiment_lock", "files_in_use", "has_forced_jobs", "is_elsewhere", "let_clocks_differ", "lock_repo", "logger",
    "params_of", "read_lock_file", "record_of", "recorded_run", "resolve", "run_with_outputs_of",
    "silence_missing_metadata", "true_hash", "write_lock_file",
]  # fmt: skip


# -- Snakemake ----------------------------------------------------------------------------------------------------


def around_execution(workflow: Any, run: Callable[[Callable[[], Any]], Any], look: Callable[[], Any]) -> None:
    """Let ``run`` surround the execution of jobs; it is handed what executes them.

    ``Workflow.execute`` is the one door to jobs. Whatever else Snakemake was called for (``--dag``, ``--summary``,
    ``--unlock``), by options of today or of tomorrow, does not pass it. ``-n`` and ``--touch`` do, and run no command:
    before them, ``look`` is called.
    """
    execute = workflow.execute

    def surrounded(*args: Any, **settings: Any) -> Any:
        if not executes(settings["executor_plugin"]):
            look()
            return execute(*args, **settings)
        # the bridge holds a lock of its own, which ends with its process; DVC says what is unfinished
        workflow.execution_settings.lock = False
        workflow.execution_settings.ignore_incomplete = True
        workflow.dag_settings.force_incomplete = False
        return run(lambda: execute(*args, **settings))

    workflow.execute = surrounded


def executes(plugin: Any) -> bool:
    """Whether an executor runs commands."""
    return not (plugin.common_settings.dryrun_exec or plugin.common_settings.touch_exec)


def has_forced_jobs(workflow: Any) -> bool:
    """Whether jobs run that are not stale (``--force``, ``--forceall``, ``--forcerun``)."""
    settings = workflow.dag_settings
    return bool(settings.forceall or settings.forcerun or settings.forcetargets)


def silence_missing_metadata(workflow: Any) -> None:
    """Keep Snakemake from listing the rules of which it has no records after ``-n``: DVC has them."""
    workflow.log_metadata_info = lambda attribute, description: None


def let_clocks_differ() -> None:
    """Keep Snakemake from deleting what a job has made because an input is dated later.

    A disk's or an earlier machine's clock may have been ahead. What is stale is decided by content.
    """

    from snakemake.dag import DAG  # goes round in a circle where it is imported before Snakemake itself

    async def accept(dag: DAG, job: Any, expanded_output: Any) -> None:
        return

    DAG.check_output_mtime = accept


# -- what dvc.yaml declares ---------------------------------------------------------------------------------------


def declared_stages(repo: Repo) -> dict[str, Any]:
    """dvc.yaml as it is written, before anything is put in for ``${...}``."""
    return load_file(repo, str(Path(repo.root_dir, "dvc.yaml"))).contents


def resolve(repo: Repo, declared: dict[str, Any]) -> dict[str, Any]:
    """The stages of a dvc.yaml of which this is the content, with values in the place of ``${...}``."""
    return DataResolver(repo, repo.root_dir, declared).resolve()["stages"]


def params_of(dependencies: Iterable[ParamsDependency]) -> dict[str, dict[str, Any]]:
    """Every file of parameters read once: its path -> the values of all keys that the dependencies name."""
    keys: dict[str, dict[str, None]] = {}
    for dependency in dependencies:
        keys.setdefault(dependency.fs_path, {}).update(dict.fromkeys(dependency.params))
        fs = dependency.repo.fs
    return {
        path: read_param_file(fs, path, list(known), flatten=True) for path, known in keys.items() if fs.exists(path)
    }


# -- dvc.lock, the cache and the run-cache ------------------------------------------------------------------------


def read_lock_file(repo: Repo, path: Path) -> Any:
    """What a dvc.lock holds.

    Raises:
        DvcException: it is damaged.
    """
    return Lockfile(repo, str(path.absolute()), verify=False).load()


def write_lock_file(path: Path, stages: Iterable[PipelineStage], to: Path) -> None:
    """Write the content of the dvc.lock at ``path``, with what these stages read and made now, to another file."""
    content = load_yaml(path) if path.exists() else {}
    content = content or {"schema": "2.0"}
    recorded = content.setdefault("stages", {})
    for stage in stages:
        recorded |= to_lockfile(stage)
    dump_yaml(to, content)


def record_of(stage: PipelineStage) -> Any:
    """What dvc.lock says of a stage."""
    return to_single_stage_lockfile(stage)


def recorded_run(stage: PipelineStage) -> Any:
    """What the run-cache says of the latest run of the same command on the same input; None where it knows none."""
    try:
        stage.save_deps()
    except DvcException:
        return None  # input is missing
    return stage.repo.stage_cache._load(stage) if _can_hash(stage) else None


def run_with_outputs_of(stage: PipelineStage, record: Any) -> PipelineStage:
    """A stage with the outputs that a record names; all of them lie in the cache, those that git keeps as well."""
    return stage.repo.stage_cache._create_stage(record, wdir=stage.wdir)


def cached_files(out: Any) -> dict[str, Any]:
    """Path of every file of an output in the workspace -> its hash, by the folder's list in the cache.

    Raises:
        FileNotFoundError, ObjectFormatError: the list is not in the cache, or damaged.
    """
    content = out.get_obj()
    if content is None:
        raise FileNotFoundError(out.fs_path)
    if not isinstance(content, Tree):
        return {out.fs_path: out.hash_info}
    return {out.fs.join(out.fs_path, *parts): entry for parts, _, entry in content}


def true_hash(path: str, fs: Any, name: str) -> str:
    """The hash of a file's content, whatever DVC noted of it."""
    return str(hash_file(path, fs, name, None)[1].value)


# -- locks --------------------------------------------------------------------------------------------------------


def experiment_lock(repo: Repo) -> Any:
    """Keeps `dvc exp run` from stashing the working tree while it is held."""
    return get_exp_rwlock(repo, writes=["workspace"])


def files_in_use(repo: Repo, command: str, reads: list[str], writes: list[str]) -> Any:
    """An entry in DVC's table of files in use while it is held.

    Raises:
        LockError: another process uses one of them.
    """
    return rwlock(repo.tmp_dir, repo.fs, command, reads, writes, repo.config["core"].get("hardlink_lock", False))


def is_elsewhere(dependency: Any) -> bool:
    """Whether a dependency is no file of this project: of another repository, or of a database."""
    return isinstance(dependency, RepoDependency | AbstractDependency)
