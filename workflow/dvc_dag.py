"""One DAG for two engines: dvc.yaml says what a stage is, ``rules/*.smk`` say how to run it.

A rule looks its stage up, ``dag["tokenize"].input`` and so on, and DVC alone decides what is stale (``dvc_state``).
"""

from __future__ import annotations

import atexit
import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import reuse
from code_deps import compare
from commit_thread import CommitThread
from dvc_stages import Group, Pipeline
from dvc_state import NOTES, SNAPSHOT, STAMPS, State, finished_stages, free_from_cache, stamp_of, write_notes
from engine_api import (
    DvcException,
    LockError,
    PipelineStage,
    Repo,
    WorkflowError,
    ancient,
    around_execution,
    directory,
    has_forced_jobs,
    let_clocks_differ,
    lock_repo,
    logger,
    silence_missing_metadata,
)
from lock_file import is_damaged, keep_copy, mend_lock, mend_table
from run_lock import RunLock, cancel_orphans, locked_by


class Stage:
    """One stage of dvc.yaml as a rule needs it; a whole matrix or foreach group is one Stage with wildcards.

    Args:
        pipeline: all stages.
        group: the stage.
        notes: gives DVC's names of the stages that are stale -> an input to run them for.
    """

    def __init__(self, pipeline: Pipeline, group: Group, notes: Callable[[], Mapping[str, str]]) -> None:
        self._pipeline, self._group, self._notes = pipeline, group, notes

    def input(self, wildcards: Any) -> list[Any]:
        """Files the stage depends on, ``ancient``: DVC compares contents, Snakemake must not compare ages.

        Of a stale stage, what stale stages make is not, or Snakemake would not run it after them; and it has a note.
        """
        stage, notes, makers = self._member(wildcards), self._notes(), self._pipeline.makers
        paths = self._pipeline.inputs(stage)
        if stage.name not in notes:
            return [ancient(path) for path in paths]
        made_anew = {path for path in paths if path in makers and makers[path].name in notes}
        return [*(path if path in made_anew else ancient(path) for path in paths), notes[stage.name]]

    @property
    def output(self) -> list[Any]:
        """Files the stage makes, with wildcards."""
        return [directory(path) if is_folder else path for path, is_folder in self._group.outputs.items()]

    def cmd(self, wildcards: Any) -> str:
        """The command, as DVC would run it: in the stage's own folder, and of a list one after another.

        Where it ends well, it leaves the stage's stamp. A stage that can be spared has another one, see ``reuse``.
        """
        stage = self._member(wildcards)
        folder = os.path.relpath(stage.wdir)
        command = reuse.command(self._pipeline, stage)
        if command:
            folder = "."
        else:
            commands = [stage.cmd] if isinstance(stage.cmd, str) else list(stage.cmd)
            lines = commands if folder == "." else [f"cd {shlex.quote(folder)}", *commands]
            command = "\n".join(lines).strip()
        touch = f"touch {shlex.quote(os.path.relpath(stamp_of(stage.name), folder))}"
        # a rule may go on with `|| ...` after one line; after several, Snakemake's `set -e` ends the job
        return f"{command} && {touch}" if re.fullmatch(r"[^#\n]*[^#\n;&]", command) else f"{command}\n{touch}"

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

    A run that executes jobs holds a lock from its beginning to its end, first commits what an interrupted run finished,
    and restores what DVC has; while jobs run, a thread records what is finished. Looking (``-n``, ``--dag``,
    ``--lint``, ``--report``, ``--touch`` and whatever else runs no command) takes no lock and leaves all as it is.
    Inside a job nothing is decided.

    Raises:
        WorkflowError: dvc.yaml or dvc.lock cannot be read, or the folder's name is one that Snakemake cannot bear.
    """

    def __init__(self, workflow: Any) -> None:
        if set("{}") & set(os.getcwd()):  # they are wildcards, in paths of the rules' environments
            raise WorkflowError(f"Snakemake does not work in a folder with braces in its name: rename {os.getcwd()}.")
        os.environ.setdefault("PIPELINE_PLAIN_PROGRESS", "1")  # jobs side by side print lines, not bars
        os.environ.setdefault("LAUNCH", "")  # Snakemake's shell refuses a variable that is not defined
        self._workflow = workflow
        self._asked: set[str] = set()
        self._notes: dict[str, str] | None = None
        self._read_at = _versions()
        let_clocks_differ()
        try:
            self._pipeline = _read(Repo("."), may_mend=not workflow.output_settings.dryrun)
            self._groups = self._pipeline.groups
        except DvcException as error:
            raise WorkflowError(f"DVC: {error}") from None
        if workflow.is_main_process:
            silence_missing_metadata(workflow)
            around_execution(workflow, self._run, self._stale_notes)
        else:
            self._notes = {}

    def __getitem__(self, name: str) -> Stage:
        """The stage that dvc.yaml calls ``name``, for the rule that runs it."""
        if name not in self._groups:
            raise WorkflowError(f"A rule runs stage {name!r}, which dvc.yaml does not declare.")
        self._asked.add(name)
        return Stage(self._pipeline, self._groups[name], self._stale_notes)

    @property
    def targets(self) -> list[str]:
        """Every output: what ``snakemake all`` asks for."""
        return list(self._pipeline.makers)

    @property
    def constraints(self) -> dict[str, str]:
        """For every wildcard, the values that params.yaml lists."""
        values: dict[str, set[str]] = {}
        for group in self._groups.values():
            for member in group.members:
                for key, value in zip(group.keys, member, strict=True):
                    values.setdefault(key, set()).add(re.escape(value))
        return {key: "|".join(sorted(known)) for key, known in values.items()}

    def require_all(self) -> None:
        """Stop where a stage of dvc.yaml has no rule, or declares other code than it imports; after the last rule."""
        missing = [name for name in self._groups if name not in self._asked]
        if missing:
            raise WorkflowError(f"dvc.yaml declares {', '.join(missing)}, which no rule in workflow/rules runs.")
        if self._workflow.is_main_process and (wrong := compare(Path.cwd())):
            raise WorkflowError("\n".join([*wrong, "Mend dvc.yaml by: python workflow/code_deps.py --fix"]))

    def _stale_notes(self) -> Mapping[str, str]:
        """The notes of a run, or, for one who only looks, such as the run would write, in a temporary folder."""
        if self._notes is None:
            try:
                stale = State(self._pipeline).stale()
            except DvcException as error:
                raise WorkflowError(f"DVC: {error}") from None
            folder = Path(tempfile.mkdtemp(prefix="dvc-stale-"))
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
            self._notes = write_notes(folder, stale, may_age=False)
        return self._notes

    def _run(self, execute: Callable[[], Any]) -> Any:
        """Execute jobs between :meth:`_begin` and :meth:`_finish`."""
        repo = self._pipeline.repo
        try:
            lock = RunLock(repo)
            try:
                self._begin(repo, lock)
                thread = CommitThread()
                thread.start()
                try:
                    return execute()
                finally:
                    self._finish(thread.end())
            finally:
                lock.release()
        except LockError as error:
            raise locked_by(repo, error) from None
        except DvcException as error:
            raise WorkflowError(f"DVC: {error}") from None

    def _begin(self, repo: Repo, lock: RunLock) -> None:
        """Bring dvc.lock and the workspace together, and keep DVC off what will run."""
        if SNAPSHOT.exists():  # the run before did not come to its end
            cancel_orphans()
        with lock_repo(repo):
            lock.refuse_dvc()
            if mended := mend_table(repo):
                logger.warning(f"dvc: {mended}")
            if _versions() != self._read_at:  # another engine ended just now
                self._pipeline = _read(repo, may_mend=True)
            keep_copy(repo)
            pipeline = self._pipeline
            state = State(pipeline)
            state.commit()
            stale = state.restored()
            free_from_cache(stale)
            shutil.rmtree(NOTES, ignore_errors=True)
            self._notes = write_notes(NOTES, stale, may_age=True)
            reuse.mark([] if has_forced_jobs(self._workflow) else state.unchanged)
            STAMPS.mkdir(parents=True, exist_ok=True)
            state.snapshot()
            lock.guard(pipeline.stages.values() if has_forced_jobs(self._workflow) else stale)

    def _finish(self, recorded: set[str]) -> None:
        """Commit what was finished, as dvc.yaml and params.yaml stand now."""
        if finished_stages():
            repo = Repo(".")
            with lock_repo(repo):
                try:
                    State(Pipeline(repo)).commit(recorded)
                except DvcException as error:
                    raise WorkflowError(f"DVC: {error}\nWhat was finished is committed at the next start.") from None
                keep_copy(repo)
        SNAPSHOT.unlink(missing_ok=True)
        shutil.rmtree(NOTES, ignore_errors=True)
        reuse.clear()


def _read(repo: Repo, *, may_mend: bool) -> Pipeline:
    """The pipeline, from a dvc.lock that is mended where a kill has damaged it: without, DVC reads nothing."""
    try:
        return Pipeline(repo)
    except DvcException:
        if not is_damaged(repo):
            raise
    if not may_mend:
        raise WorkflowError("dvc.lock was damaged by a kill: mend it by `python workflow/lock_file.py`.")
    with lock_repo(repo):
        logger.warning(f"dvc: {mend_lock(repo)}")
    return Pipeline(Repo("."))


def _versions() -> list[tuple[int, int, int] | None]:
    """Tells whether what the pipeline is read from has changed."""
    facts = [os.stat(name) if os.path.exists(name) else None for name in ("dvc.lock", "dvc.yaml", "params.yaml")]
    return [each and (each.st_ino, each.st_size, each.st_mtime_ns) for each in facts]
