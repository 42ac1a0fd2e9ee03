"""``python -m pipeline_src STAGE [--key value]``: the command of every stage, and a few tools beside them.

A stage's code is imported only when it runs. Its blocks of params.yaml are handed to it already checked, and the
whole of params.yaml is checked first, so that a typing mistake fails before any work. This module and
``params.study`` are not part of any stage's code: what a stage depends on starts at the module named here.
"""

from __future__ import annotations

import argparse
import importlib
import os
import platform
import resource
import signal
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING

from pipeline_src.common.errors import Interrupted, PipelineError
from pipeline_src.common.files import write_json
from pipeline_src.common.names import check_name, shown
from pipeline_src.stages import STAGES
from pipeline_src.tools.usage import mistake, not_installed, overview

if TYPE_CHECKING:
    from pipeline_src.params.study import Study


TOOLS = {
    "preset": ("pipeline_src.tools.preset", "put a complete study in place of params.yaml"),
    "plan": ("pipeline_src.tools.planning.plan", "what the study takes, stage by stage, before it runs"),
    "show": ("pipeline_src.tools.show_examples", "print pretraining examples as readable text, with their masks"),
    "export": ("pipeline_src.tools.export_examples", "write pretraining examples as TFRecord or Parquet"),
    "ablations": ("pipeline_src.tools.ablations.ablations", "queue and run the paper's ablations as DVC experiments"),
    "parts": ("pipeline_src.tools.parts", "list the parts of a dump of one date in params.yaml"),
    "import": ("pipeline_src.tools.import_model", "bring a Hugging Face or Google BERT into this layout"),
    "fill-mask": ("pipeline_src.tools.fill_mask", "what a model would put at each [MASK] of a text"),
    "attention": ("pipeline_src.tools.attention", "where each attention head looks in a text"),
    "neighbours": ("pipeline_src.tools.neighbours", "which uses of a word are most alike, layer by layer"),
    "score": ("pipeline_src.tools.score", "how likely texts are, each token hidden in turn"),
    "complete": ("pipeline_src.tools.complete", "a text gone on with, mask by mask"),
    "look-into": ("pipeline_src.tools.look_into", "all that `interpret` measures, of any model, as a page"),
    "embed": ("pipeline_src.tools.embed", "texts as vectors"),
    "statistics": ("pipeline_src.tools.statistics", "print what the corpus stages have made so far"),
    "table": ("pipeline_src.report.table", "print the results table"),
    "doctor": ("pipeline_src.tools.doctor.doctor", "check this machine, and say what to mend"),
}


def main(argv: list[str] | None = None) -> int:
    """Run one stage or tool; returns the exit status.

    0 done, 1 bug, 2 a mistake the user can mend, 75 stopped by a signal after its state was saved, 130 interrupted.
    A tool may say its own: ``doctor`` does.
    """
    argv = sys.argv[1:] if argv is None else argv
    # Threads that wait must sleep, not spin: on a machine that does anything else beside, spinning threads made
    # training 3 to 5 times slower. A thousand turns first, microseconds, last from one product of a small model to
    # the next: on two threads BERT-Tiny's step takes a fifth less with them. Read when torch is imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    # How many pieces of code for shapes of tensors oneDNN keeps: 1,024 by itself. Batches of ever other sizes leave
    # them all over the heap: BERT-Tiny at up to 512 tokens then held 1.4 GB after 2,000 steps, and more with each,
    # where 0.6 GB are enough. Read when torch first computes.
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "16")
    try:
        for word in argv:
            if not _is_text(word):
                remedy = "rename the file, or type it where the terminal's text is UTF-8"
                raise PipelineError("not text in UTF-8", shown(word), where="the command line", remedy=remedy)
        arguments = _parser(argv[:1]).parse_args(argv)
        if arguments.command in TOOLS:
            return importlib.import_module(TOOLS[arguments.command][0]).main(arguments) or 0
        stage = STAGES[arguments.command]
        asked = {key: value for key in stage.options if (value := getattr(arguments, key)) is not None}
        run_stage(arguments.command, {key: getattr(arguments, key) for key in stage.items}, asked)
    except PipelineError as error:
        return _complain(str(error))
    except Interrupted as stop:
        # `srun --kill-on-bad-exit` ends all processes that train together when the first one has ended: what is left to
        # do here must not turn the status into that of a killed one.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        return _complain(f"{stop}; run the same command again to go on", Interrupted.STATUS, "stopped")
    except BrokenPipeError:  # `| head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (OSError, ModuleNotFoundError) as error:
        explained = _explained(error)
        if explained is None:
            raise
        return _complain(str(explained))
    except KeyboardInterrupt:
        return _complain("interrupted; run the same command again to go on", status=130)
    return 0


def run_stage(name: str, items: dict[str, str], options: Mapping[str, object] = MappingProxyType({})) -> None:
    """Check params.yaml, open the stage's log, run it, and leave ``logs/<stage>/<item>.run.json``.

    What a person can mend stands in the log as one message, a bug with its traceback. The JSON file alone holds time,
    host and versions, which no tracked output may; ``logs/rates.jsonl`` gets the rate.
    """
    from pipeline_src.code import check_unchanged_code
    from pipeline_src.common.parallel import peak_memory, place, usable_cores
    from pipeline_src.common.progress import DONE, PLAIN, log, open_log
    from pipeline_src.params.machine import load_machine
    from pipeline_src.params.study import check_unchanged, load_study
    from pipeline_src.tools.planning.record import record_run

    stage = STAGES[name]
    study = load_study()
    for key, value in items.items():  # they become the names of files
        try:
            check_name(value)
        except ValueError as error:
            raise PipelineError("not a name", shown(value), where=f"--{key}", remedy=str(error)) from None
    item = "-".join(items.values()) or "all"
    rank = place()[0]
    if rank:  # one of several processes that train together: the first one alone speaks
        item += f".process-{rank}"
        os.environ[PLAIN] = "1"
    log_file = open_log(name, item, speaks=not rank)
    started, clock = datetime.now(UTC), time.monotonic()
    try:
        if "DVC_STAGE" in os.environ and name != "code":
            check_unchanged_code([name, *(_members(study) if stage.training else [])])
        run = importlib.import_module(stage.module).run
        machine = {"machine": load_machine()} if stage.training else {}
        run(**{block: getattr(study, block) for block in stage.blocks}, **items, **options, **machine)
        if "DVC_STAGE" in os.environ:
            check_unchanged(study, stage.blocks)
    except Interrupted as stop:
        log.error("%s", stop)
        raise
    except KeyboardInterrupt:
        log.error("interrupted")
        raise
    except BaseException as error:
        explained = _explained(error)
        log.error("failed: %s", explained or error, exc_info=explained is None)
        raise
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
    if not rank:
        record_run(name, item, study, seconds)


def _members(study: Study) -> list[str]:
    """The members of the family that training loads by name, as paths below ``code``."""
    return [f"architectures/{study.model.architecture}", f"objectives/{study.pretrain.objective}"]


def _is_text(word: str) -> bool:
    """Whether a word of the command line was UTF-8; bytes that are not come as halves of pairs."""
    return not any("\ud800" <= letter <= "\udfff" for letter in word)


def _explained(error: BaseException) -> PipelineError | None:
    """The error as a person can mend it; None for a bug."""
    if isinstance(error, PipelineError):
        return error
    if isinstance(error, OSError):
        return mistake(error)
    return not_installed(error) if isinstance(error, ModuleNotFoundError) else None


def _parser(wanted: list[str]) -> argparse.ArgumentParser:
    listed = {name: stage.help for name, stage in STAGES.items()}, {name: text for name, (_, text) in TOOLS.items()}
    parser = argparse.ArgumentParser(
        prog="python -m pipeline_src", usage="%(prog)s COMMAND [options]",
        description="One stage of the study, or a tool beside it.",
        epilog=overview(*listed), formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    commands = parser.add_subparsers(
        dest="command", required=True, metavar="COMMAND", help=argparse.SUPPRESS, prog=parser.prog
    )
    for name, stage in STAGES.items():
        command = commands.add_parser(name, description=stage.help)
        for item in stage.items:
            command.add_argument(f"--{item}", required=True)
        for key, option in stage.options.items():
            command.add_argument(f"--{key}", type=option.type, nargs="+" if option.many else None, help=option.help)
    for name, (module, text) in TOOLS.items():
        command = commands.add_parser(name, description=text)
        if name in wanted:  # a tool declares its own arguments, and is imported only when it is called
            importlib.import_module(module).add_arguments(command)
    return parser


def _complain(text: str, status: int = 2, kind: str = "error") -> int:
    print(f"{kind}: {text}", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
