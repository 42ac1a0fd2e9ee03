"""One DAG for two engines: dvc.yaml says what a stage is, ``rules/*.smk`` say how to run it.

A rule looks its stage up, ``dag["tokens"].input`` and so on, and DVC alone decides what is stale (``dvc_state``).
"""

from __future__ import annotations

import atexit
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from dvc.exceptions import DvcException
from dvc.lock import LockError
from dvc.repo import Repo, lock_repo
from dvc.stage import PipelineStage
from snakemake.cli import get_argument_parser
from snakemake.exceptions import WorkflowError
from snakemake.io import ancient, directory, touch
from snakemake.logging import logger

from code_deps import compare
from dvc_stages import Group, Pipeline
from dvc_state import State
from lock_file import MergeConflictError, keep_copy, mend, refuse_conflict, write_whole
from recorder import Recorder
from restore import holds_files
from run_lock import RunLock, cancel_orphans, locked_by

STAMPS = Path(".snakemake/dvc")
LOOKING = (  # Snakemake's options that execute no job, ``-n`` apart
    "lint list_rules list_target_rules print_compilation containerize report reporter generate_unit_tests dag "
    "rulegraph filegraph d3dag unlock cleanup_metadata conda_cleanup_envs conda_create_envs_only list_conda_envs "
    "cleanup_shadow container_cleanup_images list_changes list_input_changes list_params_changes list_untracked "
    "summary detailed_summary archive delete_all_output delete_temp_output touch"
).split()


class Stage:
    """One stage of dvc.yaml as a rule needs it; a whole matrix or foreach group is one Stage with wildcards.

    Args:
        pipeline: all stages.
        group: the stage.
        stamps: folder of the stamps.
    """

    def __init__(self, pipeline: Pipeline, group: Group, stamps: Path) -> None:
        self._pipeline, self._group, self._stamps = pipeline, group, stamps

    def input(self, wildcards: Any) -> list[Any]:
        """Files the stage depends on. All are ``ancient``: DVC compares contents, Snakemake must not compare ages."""
        stage = self._member(wildcards)
        # the stamps: what makes the input may be stale while the input itself lies there
        found = {str(self._stamps / self._pipeline.stamps[above.name]): None for above in self._pipeline.above(stage)}
        for dep in stage.deps:
            if dep.hash_name != "params":
                path = self._pipeline.path(dep)
                found |= dict.fromkeys(self._pipeline.outputs_behind(path) or [path])
        return [ancient(path) for path in found]

    @property
    def output(self) -> list[Any]:
        """Files the stage makes, with wildcards, and its stamp."""
        made = [directory(path) if folder else path for path, folder in self._group.patterns.items()]
        return [*made, touch(str(self._stamps / self._group.stamp(f"{{{key}}}" for key in self._group.keys)))]

    def cmd(self, wildcards: Any) -> str:
        """The command, as DVC would run it: in the stage's own folder, and of a list one after another."""
        stage = self._member(wildcards)
        commands = [stage.cmd] if isinstance(stage.cmd, str) else list(stage.cmd or [])
        folder = os.path.relpath(stage.wdir)
        return "\n".join(commands if folder == "." else [f"cd {shlex.quote(folder)}", *commands])

    def _member(self, wildcards: Any) -> PipelineStage:
        values = tuple(str(getattr(wildcards, key)) for key in self._group.keys)
        if values not in self._group.members:
            listed = ", ".join("-".join(known) for known in self._group.members)
            raise WorkflowError(f"dvc.yaml has no {self._group.name} for {'-'.join(values)}; there are {listed}.")
        return self._group.members[values]


class Dag:
    """The stages for the rules; around a run, it keeps the state of both engines the same.

    Args:
        workflow: Snakemake's workflow, as the Snakefile sees it.

    A run that executes jobs holds a lock from here to its end, first commits what an interrupted run finished, and
    restores what DVC has; while jobs run, a thread records what is finished. Looking (``-n``, ``--dag``, ``--lint``,
    ``--report``, ``--touch`` and the like) writes nothing here: its stamps stand in a temporary folder. Inside a job
    nothing is decided.

    Raises:
        WorkflowError: another engine is at work here, or dvc.yaml cannot be read.
    """

    def __init__(self, workflow: Any) -> None:
        os.environ.setdefault("PIPELINE_PLAIN_PROGRESS", "1")  # jobs side by side print lines, not bars
        os.environ.setdefault("LAUNCH", "")  # Snakemake's shell refuses a variable that is not defined
        self._workflow = workflow
        self._asked: set[str] = set()
        self._lock: RunLock | None = None
        self._recorder = Recorder(STAMPS)
        try:
            refuse_conflict()
            if not workflow.is_main_process:
                self._pipeline, self._stamps = Pipeline(Repo(".")), STAMPS
            elif not _only_looks(workflow):
                self._pipeline, self._stamps = self._begin(Repo(".")), STAMPS
            else:
                self._pipeline = Pipeline(Repo("."))
                self._stamps = Path(tempfile.mkdtemp(prefix="dvc-stamps-"))
                atexit.register(shutil.rmtree, self._stamps, ignore_errors=True)
                state = State(self._pipeline, STAMPS)
                state.write_stamps(self._stamps, state.stale(restore=False))
            if workflow.is_main_process:
                _change_targets(workflow, self._with_stamps)
        except MergeConflictError as error:
            raise WorkflowError(str(error)) from None
        except DvcException as error:
            raise WorkflowError(f"DVC: {error}") from None

    def _with_stamps(self, targets: Iterable[str]) -> set[str]:
        """The targets, and beside a file that is asked for by name its stamp: the file may lie there and be stale."""
        stages = [self._pipeline.makers.get(os.path.normpath(target)) for target in targets]
        return {*targets, *(str(self._stamps / self._pipeline.stamps[stage.name]) for stage in stages if stage)}

    def __getitem__(self, name: str) -> Stage:
        """The stage that dvc.yaml calls ``name``, for the rule that runs it."""
        if name not in self._pipeline.groups:
            raise WorkflowError(f"A rule runs stage {name!r}, which dvc.yaml does not declare.")
        self._asked.add(name)
        return Stage(self._pipeline, self._pipeline.groups[name], self._stamps)

    @property
    def targets(self) -> list[str]:
        """Every output and every stamp: what ``snakemake all`` asks for."""
        return [*self._pipeline.makers, *(str(self._stamps / name) for name in self._pipeline.stamps.values())]

    @property
    def constraints(self) -> dict[str, str]:
        """For every wildcard, the values that params.yaml lists."""
        values: dict[str, set[str]] = {}
        for group in self._pipeline.groups.values():
            for member in group.members:
                for key, value in zip(group.keys, member, strict=True):
                    values.setdefault(key, set()).add(re.escape(value))
        return {key: "|".join(sorted(known)) for key, known in values.items()}

    def require_all(self) -> None:
        """Stop where a stage of dvc.yaml has no rule, or declares other code than it imports; after the last rule."""
        missing = [name for name in self._pipeline.groups if name not in self._asked]
        if missing:
            raise WorkflowError(f"dvc.yaml declares {', '.join(missing)}, which no rule in workflow/rules runs.")
        if self._workflow.is_main_process and (wrong := compare(Path.cwd())):
            raise WorkflowError("\n".join([*wrong, "Mend dvc.yaml by: python workflow/code_deps.py --fix"]))

    def start(self) -> None:
        """For ``onstart``: record what the jobs are about to run with."""
        if self._lock:
            settings = self._workflow.dag_settings
            if settings.forceall or settings.forcerun or settings.forcetargets:
                self._lock.guard(self._pipeline.stages.values())
            State(self._pipeline, STAMPS).snapshot()
            self._recorder.start()

    def finish(self) -> None:
        """For ``onsuccess`` and ``onerror``: commit what was finished, as dvc.yaml and params.yaml stand now."""
        if not self._lock:
            return
        recorded = self._recorder.end()
        repo = Repo(".")
        try:
            with lock_repo(repo):
                State(Pipeline(repo), STAMPS).commit(recorded)
                keep_copy(repo)
        except LockError as error:
            raise locked_by(repo, error) from None
        except DvcException as error:
            raise WorkflowError(f"DVC: {error}\nWhat was finished is committed at the next start.") from None
        finally:
            self._lock.release()

    def _begin(self, repo: Repo) -> Pipeline:
        """Take the lock, bring stamps, dvc.lock and the workspace together, and keep DVC off what will run."""
        self._lock = RunLock(repo)
        atexit.register(self._lock.release)
        _forget_interrupted_run()
        try:
            if (STAMPS / "snapshot.json").exists():  # the run before did not come to its end
                cancel_orphans()
            with lock_repo(repo):
                self._lock.refuse_dvc()
                if mended := mend(repo):
                    logger.warning(f"dvc: {mended}")
                write_whole()
                keep_copy(repo)
                pipeline = Pipeline(repo)
                state = State(pipeline, STAMPS)
                state.commit()
                stale = state.stale(restore=True)
                for out in (out for stage in stale for out in stage.outs if holds_files(out.fs_path)):
                    out.unprotect()  # a link into the cache is read-only, and Snakemake would refuse to replace it
                state.write_stamps(STAMPS, stale)
                self._lock.guard(stale)
                return pipeline
        except LockError as error:
            self._lock.release()
            raise locked_by(repo, error) from None
        except BaseException:
            self._lock.release()
            raise


def _change_targets(workflow: Any, change: Callable[[Iterable[str]], set[str]]) -> None:
    """Let ``change`` have the targets of the command line, which Snakemake hands over once the Snakefile is read."""

    class Changing(type(workflow)):  # type: ignore[misc]
        def __setattr__(self, name: str, value: Any) -> None:
            if name == "dag_settings" and value is not None:
                value = replace(value, targets=change(value.targets))
            super().__setattr__(name, value)

    workflow.__class__ = Changing


def _only_looks(workflow: Any) -> bool:
    """Whether this Snakemake will execute no job. It tells a Snakefile about ``-n`` alone: the rest is asked anew."""
    if workflow.output_settings.dryrun:
        return True
    try:
        arguments, _ = get_argument_parser().parse_known_args(sys.argv[1:])
    except SystemExit:  # started from Python, not from the command line
        return False
    if arguments.report_after_run:
        arguments.report = None
    return any(getattr(arguments, option, None) not in (None, False) for option in LOOKING)


def _forget_interrupted_run() -> None:
    """Clear Snakemake's own lock and marks of unfinished files: ours is held, and the stamps say what is finished."""
    for kind in ("locks", "incomplete"):
        for file in Path(".snakemake", kind).rglob("*"):
            if file.is_file():
                file.unlink()
