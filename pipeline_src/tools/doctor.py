"""Tool ``doctor``: check whether this machine can run the study in params.yaml, and say what to fix.

Other packages are imported only where they are needed, so that the tool can report a package that is not installed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import re
import shutil
import tempfile
import textwrap
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.messages import amount, printable, without_credentials
from pipeline_src.base.parallel import usable_cores

OK, WARNING, PROBLEM = "ok", "warning", "problem"
WIDTH = 80
PROJECT, TORCH_LOCK = (Path(__file__).parents[2] / name for name in ("pyproject.toml", "torch.lock"))
PACKAGES = ("dvc", "snakemake", "snakemake-executor-plugin-slurm", "torch")
ENVIRONMENT = "run `make study`, which installs it, or activate the environment: `source .venv/bin/activate`"
MEMORY_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
ENVIRONMENT_BYTES = 2e9
# Weights, gradients and two optimizer moments in float32.
TRAINING_BYTES_PER_PARAMETER = 16
# Assumed memory of the libraries and of one microbatch's activations.
LIBRARY_BYTES = 1.5e9
MAX_SHOWN_FILES = 5


@dataclass(frozen=True)
class Finding:
    check: str
    # OK, WARNING (the study may fail) or PROBLEM (the study cannot run).
    state: str
    message: str
    hint: str | None = None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print a list of objects: check, state, message, hint")


def main(arguments: argparse.Namespace) -> int:
    parameters, study = read_study()
    findings = [parameters, check_versions(installed_versions())]
    if study is not None:
        checks = {
            "memory": check_memory,
            "disk": check_disk,
            "sources": check_sources,
            "start model": check_start_model,
        }
        findings.append(check_torch())
        findings += [run_check(name, check, study) for name, check in checks.items()]
    if arguments.json:
        print(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        print(as_text(findings))
    return 2 if any(finding.state == PROBLEM for finding in findings) else 0


def run_check(name: str, check: Callable[[Any], Finding], study: Any) -> Finding:
    try:
        return check(study)
    except ImportError as error:
        return Finding(name, WARNING, f"not known: {error.name} is not installed", ENVIRONMENT)
    except OSError as error:
        return Finding(name, PROBLEM, f"{error.filename}: {error.strerror}", "give yourself permission to read it")
    except PipelineError as error:
        return _problem(name, error)


def as_text(findings: Sequence[Finding]) -> str:
    lines = []
    for finding in findings:
        start = f"{finding.state:<8} {finding.check:<12} "
        indent = " " * len(start)
        for first, text in ((start, finding.message), (f"{indent}-> ", finding.hint or "")):
            wrap = textwrap.TextWrapper(WIDTH, first, indent, break_long_words=False, break_on_hyphens=False)
            lines += wrap.wrap(text)
    states = [finding.state for finding in findings]
    num_problems = states.count(PROBLEM)
    counts = f"ok: {states.count(OK)}, warnings: {states.count(WARNING)}, problems: {num_problems}"
    conclusion = "fix the problems first" if num_problems else "the study can run"
    lines.append(f"{counts}; {conclusion}")
    return "\n".join(lines)


def read_study() -> tuple[Finding, Any | None]:
    try:
        from pipeline_src.study.study import load_study

        study = load_study()
    except ImportError as error:
        return Finding("params.yaml", WARNING, f"not read: {error.name} is not installed", ENVIRONMENT), None
    except PipelineError as error:
        return _problem("params.yaml", error), None
    return Finding("params.yaml", OK, f"a valid study of {len(study.tasks)} tasks, {study.task_source}"), study


def installed_versions() -> dict[str, str | None]:
    versions: dict[str, str | None] = {"python": platform.python_version(), **dict.fromkeys(PACKAGES)}
    for name in PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions


def check_versions(versions: Mapping[str, str | None]) -> Finding:
    # versions: package -> installed version, or None if the package is not installed.
    missing = [name for name, installed in versions.items() if installed is None]
    if missing:
        return Finding("versions", PROBLEM, f"not installed: {', '.join(missing)}", ENVIRONMENT)
    from packaging.requirements import Requirement

    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    allowed = {"python": Requirement(f"python{project['requires-python']}").specifier}
    for line in project["dependencies"]:
        requirement = Requirement(line)
        allowed[requirement.name] = requirement.specifier
    listed = []
    wrong = []
    for name, installed in versions.items():
        listed.append(f"{name} {installed}")
        public = str(installed).partition("+")[0]
        if not allowed[name].contains(public, prereleases=True):
            wrong.append(f"{name} {installed}; needed: {allowed[name]}")
    if wrong:
        hint = f"{ENVIRONMENT}; another Python: make study PYTHON=PATH"
        return Finding("versions", PROBLEM, ", ".join(wrong), hint)
    return Finding("versions", OK, ", ".join(listed))


def check_torch() -> Finding:
    try:
        import torch
    except ImportError as error:
        return Finding("torch", PROBLEM, f"cannot be imported: {error}", ENVIRONMENT)
    gpus = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    devices = f"{usable_cores()} CPU cores, GPUs: {', '.join(gpus) or 'none'}"
    if not gpus and shutil.which("nvidia-smi"):
        hint = "install a CUDA build of torch for this python3, then make study TORCH=installed"
        return Finding("torch", WARNING, f"{devices}; there is a driver, but this torch cannot use it", hint)
    locked = re.findall(r"^torch==(\S+)", TORCH_LOCK.read_text(encoding="utf-8"), re.MULTILINE)
    if torch.__version__.partition("+")[0] not in locked:
        return Finding("torch", WARNING, f"{devices}; {torch.__version__}; locked: {locked}", "expect other last bits")
    return Finding("torch", OK, devices)


def check_memory(study: Any, available: float | None = None) -> Finding:
    from pipeline_src.tools.plan import count_parameters, make_objective

    available = usable_memory() if available is None else available
    needed = LIBRARY_BYTES + TRAINING_BYTES_PER_PARAMETER * count_parameters(make_objective(study))
    state = WARNING if available < needed else OK
    hint = "set activation_checkpointing: true and fewer microbatch_tokens in machine.yaml, or use a larger machine"
    text = f"{amount(available)}B; the study needs about {amount(needed)}B"
    return Finding("memory", state, text, None if state == OK else hint)


def check_disk(study: Any, free: float | None = None) -> Finding:
    from pipeline_src.sources.sizes import source_size
    from pipeline_src.tools.plan import make_objective, stages_of

    free = shutil.disk_usage(".").free if free is None else free
    sizes = {name: source_size(source) for name, source in study.corpus.sources.items()}
    stages = stages_of(study, make_objective(study), sizes)
    # The disk space for the whole study. Files that already exist are not subtracted.
    needed = ENVIRONMENT_BYTES + sum(stage.disk for stage in stages)
    text = f"{amount(free)}B free; the study needs about {amount(needed)}B in all"
    if free >= needed:
        return Finding("disk", OK, text)
    hint = "free some space, or clone to a larger disk; `python -m pipeline_src plan` lists the need by stage"
    return Finding("disk", PROBLEM if free < needed / 4 else WARNING, text, hint)


def check_sources(study: Any) -> Finding:
    from pipeline_src.tools.own_files import find_wrong

    wrong = list(find_wrong(study))
    if not wrong:
        return Finding("sources", OK, "files of your own, if there are any, can be read")
    state = PROBLEM if any(file.stops for file in wrong) else WARNING
    shown = [_problem("sources", file.error) for file in wrong[:MAX_SHOWN_FILES]]
    messages = [finding.message for finding in shown]
    if len(wrong) > MAX_SHOWN_FILES:
        messages.append(f"and {len(wrong) - MAX_SHOWN_FILES} more")
    # Print a hint only once, even if several files have it.
    hints = dict.fromkeys(str(finding.hint) for finding in shown)
    return Finding("sources", state, "; ".join(messages), "; ".join(hints))


def check_start_model(study: Any) -> Finding:
    # Imports the model as the stage `start_model` does. A model that must be downloaded first is not checked.
    if study.vocabulary.kind != "given" or not Path(study.pretrain.init_from).is_dir():
        return Finding("start model", OK, "none to read here")
    from pipeline_src.model.hub import load_config
    from pipeline_src.pretrain.start_model import import_start_model

    with tempfile.TemporaryDirectory() as folder:
        import_start_model(study.pretrain, study.model, study.examples, Path(folder))
        limit = load_config(Path(folder)).longest_input
    # Fine-tuning would notice it too, but only after the pretraining.
    longest = max(recipe.max_length for recipe in study.finetune.recipes)
    if study.finetune.model.startswith("models/pretrained/") and longest > limit:
        raise PipelineError(
            "a task reads longer sequences than the start model",
            f"{longest} tokens, and {study.pretrain.init_from} reads {limit}",
            where="finetune: max_length",
            hint=f"set finetune.defaults.max_length, or the task's own value, to at most {limit}",
        )
    return Finding("start model", OK, f"{study.pretrain.init_from} fits the study")


def usable_memory(limits: Sequence[Path] = MEMORY_LIMITS) -> float:
    total = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for file in limits:
        # Without a memory limit, the file does not exist or contains "max".
        with contextlib.suppress(OSError, ValueError):
            total = min(total, float(file.read_text(encoding="ascii")))
    return total


def _problem(check: str, error: PipelineError) -> Finding:
    text = error.what + ("" if error.value is None else f": {error.value}")
    text += "" if error.where is None else f" ({error.where})"
    return Finding(check, PROBLEM, printable(without_credentials(text)), error.hint)
