"""Tool ``doctor``: compare this machine with what the study in params.yaml needs, and say what to fix.

It runs on the standard library alone, so that it can report packages that are not installed.
"""

from __future__ import annotations

import argparse
import configparser
import fcntl
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.parallel import usable_cores

OK, WARNING, PROBLEM = "ok", "warning", "problem"
WIDTH = 80
WHOLE_WORDS: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}  # they are names and commands
PROJECT = Path("pyproject.toml")
LOCKS = (Path("locks/study.lock"), Path("torch.lock"))
CONFIGS = (Path(".dvc/config"), Path(".dvc/config.local"))
PROFILE = Path("slurm")
PLATFORMS = {("Linux", "x86_64"), ("Linux", "aarch64"), ("Darwin", "arm64")}
NO_WHEELS = (3, 14)  # gensim and immutables have no wheel from this Python on
ENGINES = ("dvc", "snakemake", "snakemake-executor-plugin-slurm")
ENVIRONMENT = "run `make study`, which installs it, or activate the environment: `source .venv/bin/activate`"
SLURM = ("sbatch", "squeue", "scancel", "scontrol", "srun", "sinfo")
SECONDS = 5  # for Slurm's answer
MEMINFO = Path("/proc/meminfo")
LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
INSTALLED = 2e9  # bytes of the environment
TRAINING = 16  # bytes per parameter in memory: weights, gradients, two moments
LIBRARIES = 1.5e9  # bytes, with the activations of a microbatch
LARGE = 30e6  # parameters of a model that takes a CPU weeks


@dataclass(frozen=True)
class Finding:
    """Result of one check.

    Attributes:
        check: its name.
        state: ``ok``; ``warning`` if part of the project will not work or a run may fail; ``problem`` if the study
            cannot run.
        found: what was found.
        hint: what to do, as an imperative sentence; None if ``state`` is ``ok``.
    """

    check: str
    state: str
    found: str
    hint: str | None = None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the tool's own arguments."""
    parser.add_argument("--json", action="store_true", help="print a list of objects: check, state, found, hint")


def main(arguments: argparse.Namespace) -> int:
    """Print every finding; the exit status is 2 if one is a problem."""
    findings = examine()
    if arguments.json:
        print(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        print("\n".join(in_words(findings)))
    return 2 if any(finding.state == PROBLEM for finding in findings) else 0


def examine() -> list[Finding]:
    """Run every check; none leaves a file behind."""
    parameters, study = read_study()
    always: tuple[Callable[[], Finding], ...] = (python, engines, packages, torch, folder, links, git, remote, slurm)
    by_study: tuple[Callable[[Any], Finding], ...] = (local_sources, start_model, disk, memory, cores, gpus)
    return [parameters, *(check() for check in always), *(check(study) for check in by_study)]


def in_words(findings: Sequence[Finding]) -> list[str]:
    """Return lines for people, 80 columns wide."""
    lines = []
    for finding in findings:
        start = f"{finding.state:<8} {finding.check:<12} "
        indent = " " * len(start)
        lines += textwrap.wrap(finding.found, WIDTH, initial_indent=start, subsequent_indent=indent, **WHOLE_WORDS)
        if finding.hint:
            first, more = f"{indent}-> ", f"{indent}   "
            lines += textwrap.wrap(finding.hint, WIDTH, initial_indent=first, subsequent_indent=more, **WHOLE_WORDS)
    states = [finding.state for finding in findings]
    counts = f"ok: {states.count(OK)}, warnings: {states.count(WARNING)}, problems: {states.count(PROBLEM)}"
    return [*lines, f"{counts}; {'fix the problems first' if PROBLEM in states else 'the study can run'}"]


def read_study() -> tuple[Finding, Any | None]:
    """Check params.yaml; return the study too, None if it is invalid."""
    try:
        from pipeline_src.config.study import load_study

        study = load_study()
    except ImportError as error:
        return Finding("params.yaml", WARNING, f"not read: {error.name} is not installed", ENVIRONMENT), None
    except PipelineError as error:
        value = "" if error.value is None else f": {error.value}"
        return Finding("params.yaml", PROBLEM, f"{error.what}{value}", error.hint), None
    layers, hidden = study.model.num_hidden_layers, study.model.hidden_size
    given = study.vocabulary.kind == "given"
    size = f"goes on from {study.pretrain.init_from}" if given else f"{layers} layers, {hidden} wide"
    found = f"a valid study: {size}, {len(study.tasks)} tasks, task_source {study.task_source}"
    return Finding("params.yaml", OK, found), study


def python() -> Finding:
    """Check the interpreter's version and the kind of machine."""
    found = f"{platform.python_version()}, {platform.system()} {platform.machine()}, {sys.executable}"
    oldest, beyond = (tuple(map(int, each.split("."))) for each in re.findall(r"\d+\.\d+", _project("requires-python")))
    if not oldest <= sys.version_info[:2] < beyond:
        names = f"Python {oldest[0]}.{oldest[1]} to {beyond[0]}.{beyond[1] - 1}"
        return Finding("python", PROBLEM, found, f"use {names}: make study PYTHON=/path/to/python3")
    if (platform.system(), platform.machine()) not in PLATFORMS:
        hint = "the locks are for Linux on x86-64 and aarch64 and for macOS on arm64; expect packages without a wheel"
        return Finding("python", WARNING, found, hint)
    if sys.version_info[:2] >= NO_WHEELS:
        hint = "needs a C compiler to install, and gensim is left out: see docs/limits.md"
        return Finding("python", WARNING, found, hint)
    return Finding("python", OK, found)


def torch() -> Finding:
    """Check PyTorch's version; bits are the same again only with the version in torch.lock."""
    found = installed("torch")
    if found is None:
        return Finding("torch", PROBLEM, "not installed", ENVIRONMENT)
    if not _in_range("torch", found):
        return Finding("torch", PROBLEM, found, f"install torch{_range('torch')}")
    wanted = pinned().get("torch", plain(found))
    if plain(found) != wanted:
        return Finding("torch", WARNING, f"{found}; pinned: {wanted}", "expect other last bits than with that version")
    return Finding("torch", OK, found)


def engines() -> Finding:
    """Check that DVC, Snakemake and its Slurm plugin are of versions that pyproject.toml allows."""
    versions = {name: installed(name) for name in ENGINES}
    wrong = [
        f"{name} {found or 'not installed'}; needed: {_range(name) or 'any'}"
        for name, found in versions.items()
        if found is None or not _in_range(name, found)
    ]
    if wrong:
        return Finding("engines", PROBLEM, "; ".join(wrong), ENVIRONMENT)
    return Finding("engines", OK, ", ".join(f"{name} {versions[name]}" for name in ENGINES[:2]))


def packages() -> Finding:
    """Check all other packages that the lock lists for this Python and machine."""
    wanted = {name: pin for name, pin in pinned().items() if name not in (*ENGINES, "torch")}
    if not wanted:
        return Finding("packages", PROBLEM, f"no {LOCKS[0]}", "run from the project's root")
    versions = {name: installed(name) for name in wanted}
    missing = [name for name, found in versions.items() if found is None]
    other = [f"{name} {found}" for name, found in versions.items() if found and plain(found) != wanted[name]]
    if missing:
        return Finding("packages", PROBLEM, f"not installed: {_few(missing)}", ENVIRONMENT)
    if other:
        hint = "expect other bytes, or errors; `make study` in a fresh clone installs what is pinned"
        return Finding("packages", WARNING, f"not the version pinned: {_few(other)}", hint)
    return Finding("packages", OK, f"{len(wanted)} as {LOCKS[0]} pins them")


def pinned() -> dict[str, str]:
    """Return the versions in the locks by name, for this Python and machine."""
    pins = {}
    for lock in LOCKS:
        for line in _lines(lock):
            requirement, _, marker = line.partition(";")
            name, _, pin = requirement.strip().partition("==")
            if pin and _applies(marker.strip()):
                pins[name] = pin
    return pins


def installed(name: str) -> str | None:
    """Return the version of a package, None if it is not installed; nothing is imported."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def plain(found: str) -> str:
    """Return a version without its local part: 2.13.0 for 2.13.0+cpu."""
    return found.partition("+")[0]


def _applies(marker: str) -> bool:
    try:
        from packaging.markers import Marker
    except ImportError:  # nothing is installed, and every line will be reported as missing
        return True
    return not marker or Marker(marker).evaluate()


def _in_range(name: str, found: str) -> bool:
    try:
        from packaging.specifiers import SpecifierSet
    except ImportError:
        return True
    return SpecifierSet(_range(name)).contains(plain(found), prereleases=True)


def _range(name: str) -> str:
    """Return the versions of a package that pyproject.toml allows, such as ``>=2.11``."""
    found = (re.match(rf"{name}(?:\[[^]]*])?([<>=!~][^;]*)", each) for each in _project("dependencies"))
    return next((each[1].strip() for each in found if each), "")


def _project(key: str) -> Any:
    try:
        return tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"][key]
    except (OSError, ValueError, KeyError):
        return {"requires-python": ">=3.11,<3.15"}.get(key, [])


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return []


def _few(names: list[str], most: int = 5) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def folder() -> Finding:
    """Check that files can be written, renamed and locked here."""
    try:
        with tempfile.TemporaryDirectory(prefix=".doctor-", dir=".") as name:
            file = Path(name, "a")
            with open(file, "w", encoding="utf-8") as opened:
                fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.replace(file, Path(name, "b"))
    except OSError as error:
        hint = "clone the project into a folder that you may write, on a file system with locks"
        return Finding("folder", PROBLEM, f"{Path.cwd()}: {error.strerror}", hint)
    return Finding("folder", OK, f"{Path.cwd()}: writing and locking work")


def links() -> Finding:
    """Check the link `slurm`, by which Snakemake finds its profile."""
    if (PROFILE / "config.yaml").exists():
        return Finding("links", OK, f"{PROFILE} leads to workflow/profiles/slurm")
    hint = "write `--profile workflow/profiles/slurm`, or clone with git where symbolic links can be made"
    return Finding("links", WARNING, f"no symbolic link {PROFILE}: `snakemake --profile slurm` fails", hint)


def git() -> Finding:
    """Check that this is a git checkout and git knows who commits: DVC keeps experiments as commits."""
    inside = _git("rev-parse", "--git-dir")
    if inside is None:
        return Finding("git", PROBLEM, "git is not installed", "install git")
    if not inside:
        return Finding("git", PROBLEM, "not a git checkout", "use `git clone`, or `git init` and commit all files here")
    if not _git("config", "user.email"):
        hint = "git config user.name NAME, git config user.email ADDRESS; `make study` sets both for this clone"
        return Finding("git", WARNING, "no name: `dvc exp run` cannot keep experiments", hint)
    entries = (_git("ls-files", "--others", "--exclude-standard", "--", "catalogue") or "").split()
    if entries:
        hint = f"git add {' '.join(entries)}"
        return Finding("git", WARNING, "entries of the catalogue are not in git: experiments lack them", hint)
    return Finding("git", OK, "a checkout, and git knows a name")


def remote() -> Finding:
    """Check that DVC has a place to share artifacts."""
    parser = configparser.ConfigParser(interpolation=None)
    try:
        read = parser.read(CONFIGS, encoding="utf-8")
    except (configparser.Error, UnicodeDecodeError) as error:
        return Finding("dvc remote", PROBLEM, f"DVC's configuration cannot be read: {error}", "fix .dvc/config")
    if not read:
        return Finding("dvc remote", PROBLEM, "no .dvc/config", "run from the project's root")
    places = {name: parser[name].get("url", "") for name in parser.sections() if "remote" in name}
    if not places:
        hint = "to share artifacts: dvc remote add --default NAME FOLDER-OR-ADDRESS; a single checkout needs none"
        return Finding("dvc remote", WARNING, "none: `dvc push` and `dvc pull` have no place to go to", hint)
    return Finding("dvc remote", OK, ", ".join(places.values()))


def _git(*arguments: str) -> str | None:
    """Return git's output, empty if it fails; None without git."""
    try:
        done = subprocess.run(["git", *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return done.stdout.strip() if done.returncode == 0 else ""


def slurm() -> Finding:
    """Check that `snakemake --profile slurm` reaches a cluster."""
    there = [name for name in SLURM if shutil.which(name)]
    if not there:
        return Finding("slurm", OK, "none here; `--profile slurm` runs only on a cluster's login node")
    missing = [name for name in SLURM if name not in there]
    if missing:
        hint = "install Slurm's client commands, or run on a login node"
        return Finding("slurm", WARNING, f"no {', '.join(missing)}", hint)
    hint = "start it or ask its operators; until it answers, every start of Snakemake here waits ten seconds for it"
    try:
        asked = subprocess.run(
            ["sinfo", "--noheader", "--format=%P %D %G"], capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return Finding("slurm", WARNING, f"no answer in {SECONDS} s", hint)
    if asked.returncode:
        said = asked.stderr.strip().partition("\n")[0]
        return Finding("slurm", WARNING, f"the cluster cannot be reached: {said}", hint)
    partitions = "; ".join(line.strip() for line in asked.stdout.splitlines())
    return Finding("slurm", OK, f"partition, nodes, GPUs: {partitions or 'no partition'}")


def local_sources(study: Any | None) -> Finding:
    """Check that files of the study's sources that are on this machine (``file:``) can be opened."""
    if study is None:
        return Finding("sources", OK, "not checked without a valid study")
    from pipeline_src.download.download import resolved
    from pipeline_src.download.download_tasks import fetched_sources

    try:
        sources = [entry for name, params in study.corpus.sources.items() for _, entry in resolved(name, params)]
        sources += fetched_sources(study.task_source, study.tasks, study.interpretation.pair_sets).values()
    except PipelineError as error:
        return Finding("sources", PROBLEM, f"{error.what}: {error.value}", error.hint)
    files = [file for source in sources for file in source.files if file.scheme == "file"]
    closed = [file.url.removeprefix("file:") for file in files if not file.local_files]
    there = [path for file in files for path in file.local_files]
    closed += [str(path) for path in there if not os.access(path, os.R_OK)]
    if closed:
        hint = "put the files in place, or choose another source: docs/own-corpus.md, docs/tasks.md"
        return Finding("sources", PROBLEM, f"cannot be opened: {_few(closed)}", hint)
    return Finding("sources", OK, f"{len(there)} local files can be opened" if there else "none is local")


def start_model(study: Any | None) -> Finding:
    """Check the model that pretraining goes on from, as its stage will."""
    if study is None or study.vocabulary.kind != "given":
        return Finding("start model", OK, "none: pretraining starts from random weights")
    source = study.pretrain.init_from
    if source.endswith(".yaml"):
        return Finding("start model", OK, f"{source}: the stage start_model fetches and checks it")
    try:
        from pipeline_src.pretraining.start_model import import_start_model
    except ImportError as error:
        return Finding("start model", WARNING, f"not read: {error.name} is not installed", ENVIRONMENT)
    try:
        with tempfile.TemporaryDirectory() as folder:
            import_start_model(study.pretrain, study.model, study.examples, Path(folder))
    except PipelineError as error:
        value = "" if error.value is None else f": {error.value}"
        return Finding("start model", PROBLEM, f"{error.what}{value}", error.hint)
    return Finding("start model", OK, f"{source} fits the study")


def disk(study: Any | None) -> Finding:
    """Check the free disk space."""
    free, wanted = shutil.disk_usage(".").free, needed_disk(study) if study else 0
    found = f"{_gb(free)} free" + (f"; the study needs about {_gb(wanted)} in all" if study else "")
    if free < wanted / 4:
        hint = "free some, or clone onto a larger disk; `python -m pipeline_src plan` lists it by stage"
        return Finding("disk", PROBLEM, found, hint)
    if free < wanted:
        return Finding("disk", WARNING, found, "watch it: what earlier runs left here counts towards the need")
    return Finding("disk", OK, found)


def memory(study: Any | None) -> Finding:
    """Check the memory that processes may use here."""
    there = usable_memory()
    wanted = LIBRARIES + TRAINING * encoder_parameters(study) if study else 0
    found = f"{_gb(there)}" + (f"; the study needs about {_gb(wanted)}" if study else "")
    if there < wanted:
        hint = "set activation_checkpointing: true and fewer microbatch_tokens in machine.yaml, or use a larger machine"
        return Finding("memory", WARNING, found, hint)
    return Finding("memory", OK, found)


def cores(study: Any | None) -> Finding:
    """Check the number of CPU cores that this process may use."""
    there, wanted = usable_cores(), _machine().pretrain.threads if study else 1
    if there < wanted:
        hint = f"set pretrain.threads: {there} in machine.yaml; more threads than cores slow each other down"
        return Finding("cores", WARNING, f"{there}; pretrain.threads is {wanted}", hint)
    return Finding("cores", OK, str(there))


def gpus(study: Any | None) -> Finding:
    """Check for GPUs that torch can use."""
    try:
        import torch
    except ImportError:
        return Finding("gpus", WARNING, "not known: torch cannot be imported", "see the line `torch`")
    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
        return Finding("gpus", OK, f"{len(names)}: {', '.join(sorted(set(names)))}")
    if shutil.which("nvidia-smi"):
        hint = "install a CUDA build of torch for this python3, then make study TORCH=installed"
        return Finding("gpus", WARNING, "there is a driver, but this torch cannot use it", hint)
    if study and encoder_parameters(study) > LARGE:
        size = f"{encoder_parameters(study) / 1e6:.0f} M parameters"
        return Finding("gpus", WARNING, f"none, for a model of {size}", "pretrain on GPUs: docs/your-cluster.md")
    if _machine().precision == "bfloat16":
        from pipeline_src.training.throughput import cpu_slowdown

        if (times := cpu_slowdown(torch.bfloat16)) >= 2:
            found = f"none; this CPU multiplies bfloat16 {times:.0f} times as slowly as float32"
            return Finding("gpus", WARNING, found, "set precision: float32 (or auto) in machine.yaml")
    return Finding("gpus", OK, "none; training runs on the CPU")


def usable_memory() -> float:
    """Return the machine's bytes of memory, or what a container may use of it."""
    lines = MEMINFO.read_text(encoding="ascii").splitlines() if MEMINFO.exists() else []
    total = next((1024 * float(line.split()[1]) for line in lines if line.startswith("MemTotal:")), float("inf"))
    for file in LIMITS:
        try:
            total = min(total, float(file.read_text(encoding="ascii")))
        except (OSError, ValueError):  # not limited: there is no such file, or it says "max"
            continue
    return total


def _gb(size: float) -> str:
    return f"{size / 1e9:,.1f} GB"


def _machine() -> Any:
    """Return machine.yaml's settings, or the defaults if it is invalid."""
    from pipeline_src.config.machine import Machine, load_machine

    try:
        return load_machine()
    except PipelineError:
        return Machine()


def encoder_parameters(study: Any) -> int:
    """Return the number of weights of the study's encoder."""
    from pipeline_src.tools.planning.cost import ModelCost

    return ModelCost.of(study).encoder_parameters


def needed_disk(study: Any) -> float:
    """Return the bytes that the study writes, its environment included; only the listed parts of a dump count."""
    from pipeline_src.tools.planning.jobs import STAGES, Jobs
    from pipeline_src.tools.planning.plan import COPIES

    jobs = Jobs(study, lambda _: None)
    estimates = [job for stage in STAGES.values() for job in stage(jobs)]
    return INSTALLED + sum(COPIES * job.written + job.extra for job in estimates)
