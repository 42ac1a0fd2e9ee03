"""Run one stage: validate params.yaml, call the stage's module, detect edits of its inputs, log time and memory.

No stage imports this module, so edits of it make no stage stale.
"""

from __future__ import annotations

import importlib
import os
import platform
import resource
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pipeline_src.base.errors import Interrupted, PipelineError
from pipeline_src.base.files import write_json
from pipeline_src.base.mistakes import explain
from pipeline_src.base.names import check_name, shown
from pipeline_src.base.parallel import peak_memory, process_rank, usable_cores
from pipeline_src.base.progress import DONE, PLAIN, log, open_log
from pipeline_src.code import StageCode
from pipeline_src.engine.dependencies import CHECKS, check_nothing, declared_stage, declared_stages, remove_folder
from pipeline_src.engine.records import StageRecord, keep_copy_of_lock, settle_records
from pipeline_src.engine.workspace import check_outputs, put_aside_undeclared
from pipeline_src.stages import STAGES, Stage
from pipeline_src.study.machine import load_machine
from pipeline_src.study.settled import when_settled
from pipeline_src.study.study import Study, check_unchanged, load_study


def run_stage(name: str, items: Mapping[str, str], options: Mapping[str, object] = MappingProxyType({})) -> None:
    """Run a stage, and write its time, memory, host and versions to ``logs/<stage>/<item>.run.json``.

    Args:
        name: name of the stage.
        items: command-line values that select one job of the stage, such as the task and seed of ``finetune``. dvc.yaml
            passes them; their keys are ``Stage.items``.
        options: command-line values that only users give, such as ``--price`` of ``report``. Their keys are
            ``Stage.options``.
    """
    machine = load_machine()
    # This must come before torch is imported.
    machine.choose_code_paths()
    stage = STAGES[name]
    study = load_study()
    items = _checked_items(name, items)
    item = "-".join(items.values()) or "all"
    rank = process_rank()[0]
    if rank:
        # In distributed training, only the process with rank 0 prints.
        item += f".process-{rank}"
        os.environ[PLAIN] = "1"

    arguments: dict[str, Any] = {block: getattr(study, block) for block in stage.blocks}
    for key, value in items.items():
        # The item `seed` of finetune would clash with the section `seed`, so it is passed as `finetune_seed`.
        arguments[f"{name}_{key}" if key in arguments else key] = value
    arguments |= options
    if stage.training:
        arguments["machine"] = machine
    if stage.on_beam:
        arguments["beam_args"] = machine.beam_args

    log_file = open_log(name, item, to_stderr=not rank)
    started = datetime.now(UTC)
    clock = time.monotonic()
    try:
        _run_watched(stage, study, arguments, is_first=not rank)
    except Interrupted as stop:
        log.error("%s", stop)
        raise
    except KeyboardInterrupt:
        log.error("interrupted")
        raise
    except BaseException as error:
        mistake = explain(error)
        log.error("failed: %s", mistake or error, exc_info=mistake is None)
        raise
    finally:
        CHECKS.before_saving = CHECKS.before_finishing = check_nothing
        CHECKS.remove_when_recorded = remove_folder
    seconds = time.monotonic() - clock
    log.info("%s %.1f s", DONE, seconds)
    _write_cost(log_file, name, item, started, seconds)


def _checked_items(name: str, items: Mapping[str, str]) -> dict[str, str]:
    # An item may have DVC's name of the stage in front, which is removed: "download@wikipedia" -> "wikipedia".
    checked = {}
    for key, given in items.items():
        value = given.partition(f"{name}@")[2] or given
        try:
            # The value becomes part of file names.
            check_name(value)
        except ValueError as error:
            raise PipelineError("invalid name", shown(value), where=f"--{key}", hint=str(error)) from None
        checked[key] = value
    return checked


def _run_watched(stage: Stage, study: Study, arguments: Mapping[str, Any], is_first: bool) -> None:
    """Run a stage's module, and fail if its settings, inputs or code were edited meanwhile.

    Without DVC, inputs are not checked.

    Args:
        is_first: whether this process has rank 0 (in distributed training) or is the only one.
    """
    dvc_stage = os.environ.get("DVC_STAGE")
    record = _start_record(dvc_stage, is_first) if dvc_stage else None
    fingerprints = record.fingerprints if record else ()
    code = when_settled(lambda: StageCode(fingerprints))
    run = importlib.import_module(stage.module).run
    if stage.training:
        # Training may take days, in which users may edit the code.
        code.import_all()

    def check_unedited() -> None:
        check_unchanged(study, stage.blocks)
        if record:
            record.check()
        code.check_unchanged(imported=stage.training)

    if record:
        before_saving = record.before_saving
        CHECKS.before_saving = lambda: when_settled(before_saving)
        CHECKS.before_finishing = lambda: when_settled(check_unedited)
        CHECKS.remove_when_recorded = record.folders.append
    run(**arguments)
    if record:
        if is_first:
            record.wait_for_dvc()
        when_settled(check_unedited)
        # The stage `code` has no fingerprints and leaves no note: later stages compare its files with the code.
        if is_first and fingerprints:
            record.leave_note()


def _start_record(dvc_stage: str, is_first: bool) -> StageRecord:
    stages = when_settled(declared_stages)
    declared = declared_stage(dvc_stage, stages)
    if is_first:
        check_outputs(declared["outs"])
        put_aside_undeclared(stages)
        keep_copy_of_lock()
        false_records = settle_records()
        if false_records:
            hint = "start again (`snakemake all` or `dvc repro`), and the stage named here runs again"
            raise PipelineError("a wrong record in dvc.lock was removed", false_records[0], hint=hint)
    name = dvc_stage.rpartition(":")[2]
    return when_settled(lambda: StageRecord(name, declared["deps"], declared["outs"]))


def _write_cost(log_file: Path, stage: str, item: str, started: datetime, seconds: float) -> None:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    write_json(
        log_file.with_suffix(".run.json"),
        {
            "stage": stage,
            "item": item,
            "started": started.isoformat(timespec="seconds"),
            "seconds": round(seconds, 3),
            "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 3),
            "max_rss_mb": round(peak_memory() / 2**20, 1),
            "host": platform.node(),
            "cpus": usable_cores(),
            "python": platform.python_version(),
        },
    )
