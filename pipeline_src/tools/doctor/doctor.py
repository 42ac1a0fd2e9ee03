"""Tool ``doctor``: what this machine has, what the study in params.yaml needs, and what to do about the difference."""

from __future__ import annotations

import argparse
import json
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from pipeline_src.common.errors import PipelineError
from pipeline_src.tools.doctor import checkout, cluster, machine, software
from pipeline_src.tools.doctor.finding import OK, PROBLEM, WARNING, Finding

WIDTH = 80
WHOLE_WORDS: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}  # they are names and commands
PLAIN: tuple[Callable[[], Finding], ...] = (
    software.python, software.engines, software.packages, software.torch,
    checkout.folder, checkout.links, checkout.git, checkout.remote, cluster.slurm,
)  # fmt: skip
BY_STUDY: tuple[Callable[[Any], Finding], ...] = (
    machine.disk, machine.memory, machine.cores, machine.gpus, machine.precision,
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the tool's own arguments."""
    parser.add_argument(
        "--gpu", action="store_true", help="try instead what trains here, part by part: half a minute, to paste"
    )
    parser.add_argument("--json", action="store_true", help="print a list of objects: check, state, found, remedy")


def main(arguments: argparse.Namespace) -> int:
    """Print what every check found; the exit status is 2 where one found a problem."""
    findings = try_accelerator() if arguments.gpu else examine()
    if arguments.json:
        print(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        print("\n".join(in_words(findings)))
    return 2 if any(finding.state == PROBLEM for finding in findings) else 0


def examine() -> list[Finding]:
    """Run every check; none writes anything that stays."""
    parameters, study = read_study()
    return [parameters, *(check() for check in PLAIN), *(check(study) for check in BY_STUDY)]


def try_accelerator() -> list[Finding]:
    """Run a kernel of each kind on the GPU, and time what a training step is made of.

    Raises:
        PipelineError: params.yaml or machine.yaml is no valid one.
    """
    from pipeline_src.params.machine import load_machine  # these take torch, which the other checks go without
    from pipeline_src.params.study import load_study
    from pipeline_src.tools.doctor import trial
    from pipeline_src.tools.doctor.accelerator import Accelerator

    return trial.run(Accelerator.here(load_study(), load_machine()))


def read_study() -> tuple[Finding, Any | None]:
    """Whether params.yaml is a valid study; and the study, None where it is not."""
    try:
        from pipeline_src.params.study import load_study

        study = load_study()
    except ImportError as error:
        return Finding("params.yaml", WARNING, f"not read: {error.name} is not installed", software.ENVIRONMENT), None
    except PipelineError as error:
        value = "" if error.value is None else f": {error.value}"
        return Finding("params.yaml", PROBLEM, f"{error.what}{value}", error.remedy), None
    layers, hidden = study.model.layers, study.model.hidden
    found = f"a valid study: {layers} layers, {hidden} wide, {len(study.tasks)} tasks ({study.task_source})"
    return Finding("params.yaml", OK, found), study


def in_words(findings: Sequence[Finding]) -> list[str]:
    """Lines for people, 80 columns wide."""
    lines = []
    for finding in findings:
        start = f"{finding.state:<8} {finding.check:<12} "
        indent = " " * len(start)
        lines += textwrap.wrap(finding.found, WIDTH, initial_indent=start, subsequent_indent=indent, **WHOLE_WORDS)
        if finding.remedy:
            first, more = f"{indent}-> ", f"{indent}   "
            lines += textwrap.wrap(finding.remedy, WIDTH, initial_indent=first, subsequent_indent=more, **WHOLE_WORDS)
    states = [finding.state for finding in findings]
    counts = f"ok: {states.count(OK)}, warnings: {states.count(WARNING)}, problems: {states.count(PROBLEM)}"
    verdict = "mend the problems first" if PROBLEM in states else "the study can run"
    return [*lines, f"{counts}; {verdict}"]
