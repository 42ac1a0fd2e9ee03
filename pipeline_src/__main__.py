"""``python -m pipeline_src COMMAND [--key value]``: the command line of all stages and tools.

The whole params.yaml is validated before a stage's module is imported, so a typo fails before any work. The stage gets
only the sections that it declares. Edits of this module make no stage stale.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import signal
import sys
import textwrap
from collections.abc import Callable
from typing import Any

from pipeline_src.base.errors import Interrupted, PipelineError
from pipeline_src.base.mistakes import explain
from pipeline_src.base.names import shown
from pipeline_src.stages import STAGES

# Tool -> (module, help). The module has the functions `main` and `add_arguments`. If it has several tools,
# MODULE:NAME stands for its functions NAME and add_NAME_arguments.
TOOLS = {
    "preset": ("pipeline_src.study.preset", "put a complete study in place of params.yaml"),
    "plan": ("pipeline_src.tools.plan", "sizes, FLOPs, time and cost of the study before it runs"),
    "show-examples": ("pipeline_src.tools.show_examples", "print pretraining examples as text, with their masks"),
    "export": ("pipeline_src.tools.export", "write a model for other libraries, or examples as Parquet"),
    "release": ("pipeline_src.tools.release", "write a model as a folder for a hub: card, citation, checksums"),
    "models": ("pipeline_src.tools.release:models", "print a table of the study's models: scores, SHA-256"),
    "ablations": ("pipeline_src.tools.ablations", "print or queue the paper's ablations as DVC experiments"),
    "import": ("pipeline_src.pretrain.import_model", "import a model in Hugging Face's layout"),
    "predict": ("pipeline_src.tools.predict", "what a fine-tuned model predicts for a file, as lines of JSON"),
    "fill-mask": ("pipeline_src.tools.fill_mask", "the likeliest tokens at each [MASK] of a text"),
    "attention": ("pipeline_src.tools.inspect:attention", "the words that each attention head attends to in a text"),
    "blimp": ("pipeline_src.tools.blimp", "accuracy on BLiMP's minimal pairs, as published figures count it"),
    "inspect": ("pipeline_src.tools.inspect", "all that `interpret` measures, of any model, as a page"),
    "verify": ("pipeline_src.tools.verify", "check saved models by replaying the last steps of their training"),
    "corpus-stats": ("pipeline_src.tools.show_examples:statistics", "print statistics of the corpus made so far"),
    "results": ("pipeline_src.report.table", "print the results table"),
    "doctor": ("pipeline_src.tools.doctor", "check this machine, and say what to fix"),
}
WIDTH = 80
STATUSES = {
    0: "done",
    1: "a bug in this project: the traceback says where",
    2: "a mistake that you can fix: what, where and the hint are printed",
    75: "stopped by a signal, its state saved: run the same command again to continue",
    130: "interrupted (Ctrl-C) before there was a state to save",
}


def main(argv: list[str] | None = None) -> int:
    """Run one stage or tool, and return the exit status (see ``STATUSES``)."""
    argv = sys.argv[1:] if argv is None else argv
    # OpenMP threads that wait should sleep: on a busy machine, threads that spin made training 3 to 5 times slower.
    # Before they sleep, they still spin for some microseconds (GOMP_SPINCOUNT). That is enough to bridge the time
    # between two matrix products of a small model: on two threads, BERT-Tiny's step takes a fifth less. torch reads
    # both variables when it is imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    # By default oneDNN caches 1,024 kernels, one per shape. Batches of ever new sizes fill this cache: BERT-Tiny at up
    # to 512 tokens needed 1.4 GB instead of 0.6 GB after 2,000 steps. torch reads this variable when it first computes.
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "16")
    try:
        for word in argv:
            # Python decodes bytes of the command line that are not UTF-8 as surrogates.
            if any("\ud800" <= letter <= "\udfff" for letter in word):
                hint = "rename the file, or set the terminal's encoding to UTF-8"
                raise PipelineError("argument is not UTF-8", shown(word), where="the command line", hint=hint)
        # These two tools must compute the same numbers as a stage. The settings for that are read when torch is
        # imported.
        if argv[:1] in (["verify"], ["predict"]):
            from pipeline_src.study.machine import load_machine

            load_machine().choose_code_paths()
        arguments = _parse(argv)
        if arguments.command in TOOLS:
            return _tool(arguments.command)[1](arguments) or 0
        stage = STAGES[arguments.command]
        values = vars(arguments)
        options = {key: values[key] for key in stage.options if values[key] is not None}
        items = {key: values[key] for key in stage.items}
        # Imported here because only stages need it.
        from pipeline_src import run

        run.run_stage(arguments.command, items, options)
    except PipelineError as error:
        return _complain(str(error))
    except Interrupted as stop:
        return _stopped(str(stop), Interrupted.STATUS)
    except BrokenPipeError:
        # The reader of a tool's output has ended, as in `| head`. In a stage, a broken pipe means that a worker died.
        if argv and argv[0] in STAGES:
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


def _overview() -> str:
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
        # Import only the tool that is called.
        if name in argv[:1]:
            _tool(name)[0](command)
    arguments, unrecognized = parser.parse_known_args(argv)
    if unrecognized:
        hint = "; a text of several words goes in quotes" if arguments.command in TOOLS else ""
        commands.choices[arguments.command].error(f"unrecognized arguments: {' '.join(unrecognized)}{hint}")
    return arguments


def _tool(name: str) -> tuple[Callable[[argparse.ArgumentParser], None], Callable[[argparse.Namespace], Any]]:
    path, _, function = TOOLS[name][0].partition(":")
    module = importlib.import_module(path)
    add_arguments = f"add_{function}_arguments" if function else "add_arguments"
    return getattr(module, add_arguments), getattr(module, function or "main")


def _stopped(message: str, status: int) -> int:
    # Ignore further signals, so that they change neither the exit status nor the output. A second signal arrives if the
    # user presses Ctrl-C twice, or from `srun --kill-on-bad-exit` when another process has ended.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    return _complain(f"{message}; run the same command again to continue", status, "stopped")


def _complain(text: str, status: int = 2, kind: str = "error") -> int:
    # Ignore an OSError, since the terminal may have been closed.
    with contextlib.suppress(OSError):
        print(f"{kind}: {text}", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
