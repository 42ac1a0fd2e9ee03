"""Tool ``doctor``: compare this machine with what the study in params.yaml needs, and say what to fix.

It imports other packages only when it needs them, so that it can report that they are not installed.
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
from dataclasses import astuple, dataclass
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
# what the engines and stages write, below the checkout
WRITTEN = (
    *("dvc.lock", ".dvc", ".dvc/tmp", ".dvc/cache", ".dvc/cache/files", ".git", ".snakemake", ".snakemake/dvc"),
    *("code", "data", "models", "results", "logs", "checkpoints"),
)
MEMORY_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
ENVIRONMENT_BYTES = 2e9
TRAINING_BYTES = 16  # of memory per parameter: weights, gradients, two moments
MAX_SHOWN = 5  # wrong files
LIBRARY_BYTES = 1.5e9  # of memory for libraries and the activations of a microbatch


@dataclass(frozen=True)
class Finding:
    """Result of a check: ``ok``, a ``warning`` if a run may fail, a ``problem`` if the study cannot run."""

    check: str
    state: str
    message: str
    hint: str | None = None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command-line arguments."""
    parser.add_argument("--json", action="store_true", help="print a list of objects: check, state, found, hint")


def main(arguments: argparse.Namespace) -> int:
    """Print every finding; the exit status is 2 if one is a problem."""
    parameters, study = read_study()
    findings = [parameters, check_versions(installed_versions()), check_folders()]
    if study is not None:
        checks = {
            "memory": check_memory,
            "disk": check_disk,
            "sources": check_sources,
            "start model": check_start_model,
            "outputs": check_recordable_outputs,
        }
        findings += [check_torch(), *(run_check(name, check, study) for name, check in checks.items())]
    if arguments.json:
        entries = [
            dict(zip(("check", "state", "found", "hint"), astuple(finding), strict=True)) for finding in findings
        ]
        print(json.dumps(entries, indent=2))
    else:
        print(as_text(findings))
    return 2 if any(finding.state == PROBLEM for finding in findings) else 0


def run_check(name: str, check: Callable[[Any], Finding], study: Any) -> Finding:
    """Return the finding of ``check``; if the check fails with an error, a finding that says why."""
    try:
        return check(study)
    except ImportError as error:
        return Finding(name, WARNING, f"not known: {error.name} is not installed", ENVIRONMENT)
    except OSError as error:
        return Finding(name, PROBLEM, f"{error.filename}: {error.strerror}", "give yourself permission to read it")
    except PipelineError as error:
        return _problem(name, error)


def as_text(findings: Sequence[Finding]) -> str:
    """Return lines for people, 80 columns wide."""
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
    """Check params.yaml; return the finding and the study, which is None if it cannot be read."""
    try:
        from pipeline_src.study.study import load_study

        study = load_study()
    except ImportError as error:
        return Finding("params.yaml", WARNING, f"not read: {error.name} is not installed", ENVIRONMENT), None
    except PipelineError as error:
        return _problem("params.yaml", error), None
    return Finding("params.yaml", OK, f"a valid study of {len(study.tasks)} tasks, {study.task_source}"), study


def installed_versions() -> dict[str, str | None]:
    """Return the version of Python and of each of ``PACKAGES``, by name, without importing it; None: not installed."""
    versions: dict[str, str | None] = {"python": platform.python_version(), **dict.fromkeys(PACKAGES)}
    for name in PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions


def check_versions(versions: Mapping[str, str | None]) -> Finding:
    """Check that pyproject.toml allows the versions of Python and of ``PACKAGES``; see ``installed_versions``."""
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


def check_folders(cache_home: Path | None = None) -> Finding:
    """Check that the study's files and folders can be written, and ``cache_home`` (None: as the system has it)."""
    cache_home = cache_home or Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
    closed = []
    for path in (Path(), *map(Path, WRITTEN)):
        if os.path.exists(path) and not os.access(path, os.W_OK):
            closed.append(str(path.absolute()))
    if closed:
        hint = "give yourself permission to write there, or clone onto a disk that can be written"
        return Finding("folders", PROBLEM, f"cannot be written: {', '.join(closed)}", hint)
    # the folder itself, or the one in which Snakemake makes it
    existing = next(path for path in (cache_home, *cache_home.parents) if os.path.exists(path))
    if not os.access(existing, os.W_OK | os.X_OK):
        hint = 'export XDG_CACHE_HOME="$PWD/.snakemake/cache", as make does'
        return Finding("folders", PROBLEM, f"Snakemake's cache cannot be written: {cache_home}", hint)
    return Finding("folders", OK, "the checkout can be written")


def check_torch() -> Finding:
    """Check that torch can use the GPUs, and that its version is the one with which the results were recorded."""
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
    """Check that ``available`` bytes of memory (None: ask the system) are enough for training."""
    from pipeline_src.tools.plan import count_parameters, make_objective

    available = usable_memory() if available is None else available
    needed = LIBRARY_BYTES + TRAINING_BYTES * count_parameters(make_objective(study))
    state = WARNING if available < needed else OK
    hint = "set activation_checkpointing: true and fewer microbatch_tokens in machine.yaml, or use a larger machine"
    text = f"{amount(available)}B; the study needs about {amount(needed)}B"
    return Finding("memory", state, text, None if state == OK else hint)


def check_disk(study: Any, free: float | None = None) -> Finding:
    """Check that ``free`` bytes on the disk (None: ask the system) hold all files of the study, even if some exist."""
    from pipeline_src.sources.sizes import source_size
    from pipeline_src.tools.plan import COPIES, make_objective, stages_of

    free = shutil.disk_usage(".").free if free is None else free
    sizes = {name: source_size(source) for name, source in study.corpus.sources.items()}
    needed = ENVIRONMENT_BYTES
    for stage in stages_of(study, make_objective(study), sizes):
        needed += COPIES * stage.written + stage.extra
    text = f"{amount(free)}B free; the study needs about {amount(needed)}B in all"
    if free >= needed:
        return Finding("disk", OK, text)
    hint = "free some, or clone onto a larger disk; `python -m pipeline_src plan` lists it by stage"
    return Finding("disk", PROBLEM if free < needed / 4 else WARNING, text, hint)


def check_sources(study: Any) -> Finding:
    """Check that the study's own files of text and tasks (addresses ``file:``) can be read as the stages read them."""
    from pipeline_src.tools.own_files import find_wrong

    wrong = list(find_wrong(study))
    if not wrong:
        return Finding("sources", OK, "files of your own, if there are any, can be read")
    state = PROBLEM if any(file.stops for file in wrong) else WARNING
    shown = [_problem("sources", file.error) for file in wrong[:MAX_SHOWN]]
    messages = [finding.message for finding in shown]
    if len(wrong) > MAX_SHOWN:
        messages.append(f"and {len(wrong) - MAX_SHOWN} more")
    # several files may have one hint
    hints = dict.fromkeys(str(finding.hint) for finding in shown)
    return Finding("sources", state, "; ".join(messages), "; ".join(hints))


def check_start_model(study: Any) -> Finding:
    """Check the model that pretraining starts from, as its stage does, unless it must be fetched first."""
    if study.vocabulary.kind != "given" or not Path(study.pretrain.init_from).is_dir():
        return Finding("start model", OK, "none to read here")
    from pipeline_src.pretrain.start_model import import_start_model

    with tempfile.TemporaryDirectory() as folder:
        import_start_model(study.pretrain, study.model, study.examples, Path(folder))
    return Finding("start model", OK, f"{study.pretrain.init_from} fits the study")


def check_recordable_outputs(study: Any) -> Finding:
    """Check that DVC can record the outputs, which lie in the checkout unless a folder is a link."""
    from pipeline_src.engine.dependencies import declared_stages
    from pipeline_src.engine.workspace import check_outputs

    check_outputs(output for stage in declared_stages().values() for output in stage["outs"])
    return Finding("outputs", OK, "all lie in the checkout, where DVC can record them")


def usable_memory(limits: Sequence[Path] = MEMORY_LIMITS) -> float:
    """Return the machine's bytes of memory, or the limit of a container."""
    total = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for file in limits:
        with contextlib.suppress(OSError, ValueError):  # not limited: there is no such file, or it says "max"
            total = min(total, float(file.read_text(encoding="ascii")))
    return total


def _problem(check: str, error: PipelineError) -> Finding:
    text = error.what + ("" if error.value is None else f": {error.value}")
    text += "" if error.where is None else f" ({error.where})"
    return Finding(check, PROBLEM, printable(without_credentials(text)), error.hint)
