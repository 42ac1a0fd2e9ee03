"""``python -m pipeline_src COMMAND [--key value]``: the command line of every stage and tool.

A stage's module is imported only when the stage runs. All of params.yaml is checked first, so that a typing mistake
fails before any work; the stage then gets the sections that it declares. An edit of this module makes no stage stale.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import importlib
import os
import platform
import resource
import shutil
import signal
import sys
import textwrap
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pipeline_src.common.errors import Interrupted, PipelineError, is_panic
from pipeline_src.common.files import copy_error, write_json
from pipeline_src.common.names import check_name, shown
from pipeline_src.stages import STAGES

# tool -> (module, or MODULE:NAME if the module has several: functions NAME and add_NAME_arguments; line of help)
TOOLS = {
    "preset": ("pipeline_src.config.preset", "put a complete study in place of params.yaml"),
    "plan": ("pipeline_src.tools.plan", "sizes, FLOPs, time and cost of the study before it runs"),
    "show-examples": ("pipeline_src.tools.show_examples", "print pretraining examples as text, with their masks"),
    "export": ("pipeline_src.tools.export", "write a model for other libraries, or examples as Parquet"),
    "ablations": ("pipeline_src.tools.ablations", "print or queue the paper's ablations as DVC experiments"),
    "import": ("pipeline_src.pretraining.import_model", "import a Hugging Face or Google BERT"),
    "predict": ("pipeline_src.tools.predict", "what a fine-tuned model predicts for a file, as lines of JSON"),
    "fill-mask": ("pipeline_src.tools.fill_mask", "the likeliest tokens at each [MASK] of a text"),
    "attention": ("pipeline_src.tools.inspect:attention", "the words that each attention head attends to in a text"),
    "blimp": ("pipeline_src.tools.blimp", "accuracy on BLiMP's minimal pairs, as published figures count it"),
    "inspect": ("pipeline_src.tools.inspect", "all that `interpret` measures, of any model, as a page"),
    "verify": ("pipeline_src.tools.verify", "check saved models by taking the last steps of their training again"),
    "corpus-stats": ("pipeline_src.tools.show_examples:statistics", "print statistics of the corpus made so far"),
    "results": ("pipeline_src.report.table", "print the results table"),
    "doctor": ("pipeline_src.tools.doctor", "check this machine, and say what to fix"),
}
WIDTH = 80
PROJECT = "pipeline_src"
STATUSES = {
    0: "done",
    1: "a bug in this project: the traceback says where",
    2: "a mistake that you can fix: what, where and the hint are printed",
    75: "stopped by a signal, its state saved: run the same command again to continue",
    130: "interrupted (Ctrl-C) before there was a state to save",
}
DISK_FULL = ("no space left on the disk", "free some and run the same command again; nothing half-written is left")
NO_PERMISSION = ("no permission", "change the permissions of the file or folder, or name another")
# errors of the operating system that a user can fix: message and hint; all others are bugs
MISTAKES = {
    errno.ENOSPC: DISK_FULL,
    errno.EDQUOT: DISK_FULL,
    errno.EACCES: NO_PERMISSION,
    errno.EPERM: NO_PERMISSION,
    errno.EROFS: ("no permission", "name a folder on a file system that can be written"),
    errno.EISDIR: ("a folder where a file belongs", "name a file, or move the folder away"),
    errno.ENOTDIR: ("a file where a folder belongs", "name a folder, or move the file away"),
    errno.ENAMETOOLONG: ("a name is too long", "give a shorter one"),
}
NO_WHEEL = {  # package -> why the lock leaves it out for this Python
    "gensim": "it has no wheel for Python 3.14: `pip install gensim` builds it where a C compiler is, or take an older "
    "Python: make study PYTHON=/path/to/python3.13",
}


def main(argv: list[str] | None = None) -> int:
    """Run one stage or tool and return the exit status: a key of ``STATUSES``, or a tool's own."""
    argv = sys.argv[1:] if argv is None else argv
    # Waiting threads must sleep: on a busy machine, spinning threads made training 3 to 5 times slower. They spin for
    # microseconds first, which lasts from one product of a small model to the next: on two threads, BERT-Tiny's step
    # takes a fifth less. torch reads this when it is imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    # oneDNN caches 1,024 kernels by shape, which batches of always different sizes fill: BERT-Tiny at up to 512 tokens
    # held 1.4 GB after 2,000 steps instead of 0.6 GB. torch reads this when it first computes.
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "16")
    try:
        for word in argv:
            if any("\ud800" <= letter <= "\udfff" for letter in word):  # bytes that are not UTF-8
                hint = "rename the file, or type it where the terminal's text is UTF-8"
                raise PipelineError("not text in UTF-8", shown(word), where="the command line", hint=hint)
        if argv[:1] in (["verify"], ["predict"]):  # give a stage's numbers again: set before torch is imported
            from pipeline_src.config.machine import load_machine

            load_machine().choose_code_paths()
        arguments = _parse(argv)
        if arguments.command in TOOLS:
            return _tool(arguments.command)[1](arguments) or 0
        stage = STAGES[arguments.command]
        options = {key: value for key in stage.options if (value := getattr(arguments, key)) is not None}
        run_stage(arguments.command, {key: getattr(arguments, key) for key in stage.items}, options)
    except PipelineError as error:
        return _complain(str(error))
    except Interrupted as stop:
        return _stopped(str(stop), Interrupted.STATUS)
    except BrokenPipeError:  # `| head` has ended
        if argv and argv[0] in STAGES:  # a worker's pipe
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return _stopped("interrupted", 130)
    except BaseException as error:
        mistake = explain(error)
        if mistake is None:
            raise
        return _complain(str(mistake))
    return 0


def run_stage(name: str, items: dict[str, str], options: Mapping[str, object] = MappingProxyType({})) -> None:
    """Check params.yaml, open the stage's log, run the stage, and write ``logs/<stage>/<item>.run.json``.

    ``items`` and ``options`` are the values of the command line, by the keys of ``stages.Stage``. Time, host and
    versions are only in the JSON file, never in a tracked output. Under DVC, a stage whose parameters,
    dependencies or code were edited while it ran fails at its end, so that nothing false is recorded.
    """
    from pipeline_src.config.machine import load_machine

    machine = load_machine()
    machine.choose_code_paths()

    from pipeline_src.code import StageCode
    from pipeline_src.common.dependencies import CHECKS, check_nothing, declared_stage, declared_stages, remove_folder
    from pipeline_src.common.parallel import peak_memory, process_rank, usable_cores
    from pipeline_src.common.progress import DONE, PLAIN, log, open_log
    from pipeline_src.common.records import StageRecord, keep_copy_of_lock, settle_records
    from pipeline_src.common.workspace import check_outputs, put_aside_undeclared
    from pipeline_src.config.settled import when_settled
    from pipeline_src.config.study import check_unchanged, load_study

    stage, dvc_stage = STAGES[name], os.environ.get("DVC_STAGE")
    study = load_study()
    items = {key: value.partition(f"{name}@")[2] or value for key, value in items.items()}  # may be DVC's stage name
    for key, value in items.items():  # become names of files
        try:
            check_name(value)
        except ValueError as error:
            raise PipelineError("not a name", shown(value), where=f"--{key}", hint=str(error)) from None
    item = "-".join(items.values()) or "all"
    rank = process_rank()[0]
    if rank:  # one of several processes that train together: only the first one prints
        item += f".process-{rank}"
        os.environ[PLAIN] = "1"

    log_file = open_log(name, item, to_stderr=not rank)
    started, clock = datetime.now(UTC), time.monotonic()
    record = None
    try:
        if dvc_stage:
            stages = when_settled(declared_stages)
            declared = declared_stage(dvc_stage, stages)
            if not rank:
                check_outputs(declared["outs"])
                put_aside_undeclared(stages)
                keep_copy_of_lock()
                if false_records := settle_records():
                    hint = "start again (`snakemake all` or `dvc repro`): the stage named first runs again"
                    raise PipelineError("a record of DVC was false and is removed", false_records[0], hint=hint)
            stage_name = dvc_stage.rpartition(":")[2]
            record = when_settled(lambda: StageRecord(stage_name, declared["deps"], declared["outs"]))
        fingerprints = record.fingerprints if record else ()
        code = when_settled(lambda: StageCode(fingerprints))
        run = importlib.import_module(stage.module).run
        if stage.training:  # it may take days, in which people edit code
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
        settings: dict[str, object] = {"machine": machine} if stage.training else {}
        settings |= {"beam_args": machine.beam_args} if stage.on_beam else {}
        blocks = {block: getattr(study, block) for block in stage.blocks}
        named = {f"{name}_{key}" if key in blocks else key: value for key, value in items.items()}  # finetune's seed
        run(**blocks, **named, **options, **settings)
        if record:
            if not rank:
                record.wait_for_dvc()
            when_settled(check_unedited)
            # Only `code` depends on no fingerprint; the stages after it compare what it has written with the code.
            if not rank and fingerprints:
                record.leave_note()
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
    usage = resource.getrusage(resource.RUSAGE_SELF)
    log.info("%s %.1f s", DONE, seconds)
    write_json(
        log_file.with_suffix(".run.json"),
        {
            "stage": name,
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


def explain(error: BaseException) -> PipelineError | None:
    """Return ``error`` as a PipelineError if a user can fix it, None if it is a bug."""
    if isinstance(error, PipelineError):
        return error
    if isinstance(error, shutil.Error):
        error = copy_error(error)
    if isinstance(error, OSError) and error.errno in MISTAKES:
        what, hint = MISTAKES[error.errno]
        return PipelineError(what, error.filename or Path.cwd(), hint=hint)
    if is_panic(error):
        hint = "the file that it read is damaged, or its text holds what a pattern in tokenizer.json cannot match"
        return PipelineError("a library in Rust failed", error, hint=f"{hint}: fetch it again")
    return not_installed(error) if isinstance(error, ModuleNotFoundError) else None


def not_installed(error: ModuleNotFoundError, python: tuple[int, ...] = sys.version_info[:2]) -> PipelineError | None:
    """Return the error that a library is not installed; None if a module of this project is missing, a bug."""
    package = (error.name or "").partition(".")[0]
    if package in ("", PROJECT):
        return None
    hint = "run `make study` once, then `source .venv/bin/activate`; `python -m pipeline_src doctor` checks the rest"
    if python >= (3, 14):
        hint = NO_WHEEL.get(package, hint)
    return PipelineError("a package is not installed", package, hint=hint)


def _overview() -> str:
    """Return commands and exit statuses, grouped, for the end of the help text."""
    groups = {
        "stages, in the order of the study (`snakemake all` and `dvc repro` run them):": {
            name: stage.help for name, stage in STAGES.items()
        },
        "tools:": {name: text for name, (_, text) in TOOLS.items()},
        "exit status:": {str(status): text for status, text in STATUSES.items()},
    }
    lines = []
    for title, texts in groups.items():
        column = 4 + max(map(len, texts))
        lines.append(title)
        for name, text in texts.items():
            first = f"  {name}".ljust(column)
            lines += textwrap.wrap(text, WIDTH, initial_indent=first, subsequent_indent=" " * column)
        lines.append("")
    return "\n".join([*lines, "COMMAND --help shows a command's own options."])


def _parse(argv: list[str]) -> argparse.Namespace:
    """Parse the command line; unrecognized arguments print the subcommand's usage."""
    parser = argparse.ArgumentParser(
        prog="python -m pipeline_src",
        usage="%(prog)s COMMAND [options]",
        description="Run one stage of the study, or a tool.",
        epilog=_overview(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(
        dest="command", required=True, metavar="COMMAND", help=argparse.SUPPRESS, prog=parser.prog
    )
    for name, stage in STAGES.items():
        command = commands.add_parser(name, description=stage.help)
        for item in stage.items:
            command.add_argument(f"--{item}", required=True)
        for key, option in stage.options.items():
            command.add_argument(f"--{key}", type=option.type, nargs="+" if option.many else None, help=option.help)
    for name, (_, text) in TOOLS.items():
        command = commands.add_parser(name, description=text)
        if name in argv[:1]:  # a tool is imported only when it is called
            _tool(name)[0](command)
    arguments, unrecognized = parser.parse_known_args(argv)
    if unrecognized:
        hint = "; a text of several words goes in quotes" if arguments.command in TOOLS else ""
        commands.choices[arguments.command].error(f"unrecognized arguments: {' '.join(unrecognized)}{hint}")
    return arguments


def _tool(name: str) -> tuple[Callable[[argparse.ArgumentParser], None], Callable[[argparse.Namespace], Any]]:
    """Import a tool; return the functions that add its arguments and run it."""
    path, _, function = TOOLS[name][0].partition(":")
    module = importlib.import_module(path)
    add_arguments = f"add_{function}_arguments" if function else "add_arguments"
    return getattr(module, add_arguments), getattr(module, function or "main")


def _stopped(message: str, status: int) -> int:
    """Print how a command was stopped, and ignore further signals: they change neither status nor output.

    A second signal arrives if Ctrl-C is pressed twice, or from ``srun --kill-on-bad-exit`` when another process ends.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    return _complain(f"{message}; run the same command again to continue", status, "stopped")


def _complain(text: str, status: int = 2, kind: str = "error") -> int:
    with contextlib.suppress(OSError):  # the terminal was closed
        print(f"{kind}: {text}", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
