"""Interpreter and packages, beside what requirements.lock pins."""

from __future__ import annotations

import platform
import re
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from pipeline_src.tools.doctor.finding import OK, PROBLEM, WARNING, Finding

LOCK = Path("requirements.lock")
PYTHON = (3, 11)
OLDEST_TORCH = (2, 11)  # pyproject.toml; `make study TORCH=installed` takes any from there on
ENGINES = ("dvc", "snakemake", "snakemake-executor-plugin-slurm")  # the bridge uses their internals
ENVIRONMENT = "run `make study`, which installs it, or activate the environment: `source .venv/bin/activate`"


def python() -> Finding:
    """The interpreter's version and the machine's kind."""
    found = f"{platform.python_version()}, {platform.system()} {platform.machine()}, {sys.executable}"
    if sys.version_info[:2] != PYTHON:
        return Finding("python", PROBLEM, found, "use Python 3.11: make study PYTHON=/path/to/python3.11")
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        return Finding("python", WARNING, found, "the versions pinned are for Linux on x86-64; others may not install")
    return Finding("python", OK, found)


def torch() -> Finding:
    """PyTorch's version; any from the oldest on will do, but bits are the same again only with the same one."""
    wanted, found = pinned().get("torch"), installed("torch")
    if found is None:
        return Finding("torch", PROBLEM, "not installed", ENVIRONMENT)
    if tuple(int(number) for number in re.findall(r"\d+", found)[:2]) < OLDEST_TORCH:
        return Finding("torch", PROBLEM, found, f"install {'.'.join(map(str, OLDEST_TORCH))} or newer")
    if wanted and plain(found) != wanted:
        return Finding("torch", WARNING, f"{found}; pinned: {wanted}", "expect other last bits than with that one")
    return Finding("torch", OK, found)


def engines() -> Finding:
    """DVC, Snakemake and its Slurm plugin, which must be the versions pinned."""
    wanted, wrong = pinned(), []
    for name in ENGINES:
        found = installed(name)
        if found is None or (name in wanted and found != wanted[name]):
            wrong.append(f"{name} {found or 'not installed'}; needed: {wanted.get(name, 'any')}")
    if wrong:
        return Finding("engines", PROBLEM, "; ".join(wrong), ENVIRONMENT)
    return Finding("engines", OK, ", ".join(f"{name} {installed(name)}" for name in ENGINES[:2]))


def packages() -> Finding:
    """All other packages that requirements.lock pins."""
    wanted = {name: pin for name, pin in pinned().items() if name not in (*ENGINES, "torch")}
    if not wanted:
        return Finding("packages", PROBLEM, f"no {LOCK}", "run from the project's root")
    missing = [name for name in wanted if installed(name) is None]
    other = [f"{name} {installed(name)}" for name, pin in wanted.items() if plain(installed(name) or pin) != pin]
    if missing:
        return Finding("packages", PROBLEM, f"not installed: {_few(missing)}", ENVIRONMENT)
    if other:
        remedy = "expect other bytes, or errors; `make study` in a fresh clone installs what is pinned"
        return Finding("packages", WARNING, f"not the version pinned: {_few(other)}", remedy)
    return Finding("packages", OK, f"{len(wanted)} as {LOCK} pins them")


def pinned() -> dict[str, str]:
    """Name -> version, from requirements.lock; empty where there is none."""
    try:
        lines = LOCK.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return {}
    pins = (re.match(r"([\w.-]+)(?:\[[^]]*])?==([^\s;+]+)", line) for line in lines)
    return {pin[1].lower(): pin[2] for pin in pins if pin}


def installed(name: str) -> str | None:
    """The version of a package of this interpreter, or None. Nothing is imported."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def plain(found: str) -> str:
    """A version without its local part: 2.13.0 of 2.13.0+cpu."""
    return found.partition("+")[0]


def _few(names: list[str], most: int = 5) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
