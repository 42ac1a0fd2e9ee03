"""Checks of the interpreter and the packages, against the ranges in pyproject.toml and the locks."""

from __future__ import annotations

import platform
import re
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from pipeline_src.tools.doctor.finding import OK, PROBLEM, WARNING, Finding

PROJECT = Path("pyproject.toml")
LOCKS = (Path("locks/study.lock"), Path("torch.lock"))
PLATFORMS = {("Linux", "x86_64"), ("Linux", "aarch64"), ("Darwin", "arm64")}
NO_WHEELS = (3, 14)  # gensim and immutables have no wheel from this Python on
ENGINES = ("dvc", "snakemake", "snakemake-executor-plugin-slurm")
ENVIRONMENT = "run `make study`, which installs it, or activate the environment: `source .venv/bin/activate`"


def python() -> Finding:
    """Check the interpreter's version and the kind of machine."""
    found = f"{platform.python_version()}, {platform.system()} {platform.machine()}, {sys.executable}"
    oldest, beyond = (tuple(map(int, each.split("."))) for each in re.findall(r"\d+\.\d+", _project("requires-python")))
    if not oldest <= sys.version_info[:2] < beyond:
        names = f"Python {oldest[0]}.{oldest[1]} to {beyond[0]}.{beyond[1] - 1}"
        return Finding("python", PROBLEM, found, f"use {names}: make study PYTHON=/path/to/python3")
    if (platform.system(), platform.machine()) not in PLATFORMS:
        remedy = "the locks are for Linux on x86-64 and aarch64 and for macOS on arm64; expect packages without a wheel"
        return Finding("python", WARNING, found, remedy)
    if sys.version_info[:2] >= NO_WHEELS:
        remedy = "needs a C compiler to install, and gensim is left out: see docs/limits.md"
        return Finding("python", WARNING, found, remedy)
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
        return Finding("torch", WARNING, f"{found}; pinned: {wanted}", "expect other last bits than with that one")
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
        remedy = "expect other bytes, or errors; `make study` in a fresh clone installs what is pinned"
        return Finding("packages", WARNING, f"not the version pinned: {_few(other)}", remedy)
    return Finding("packages", OK, f"{len(wanted)} as {LOCKS[0]} pins them")


def pinned() -> dict[str, str]:
    """Versions in the locks by name, for this Python and machine; empty if there are no locks."""
    pins = {}
    for lock in LOCKS:
        for line in _lines(lock):
            requirement, _, marker = line.partition(";")
            name, _, pin = requirement.strip().partition("==")
            if pin and _applies(marker.strip()):
                pins[name] = pin
    return pins


def installed(name: str) -> str | None:
    """The version of a package, or None if it is not installed. Nothing is imported."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def plain(found: str) -> str:
    """A version without its local part: 2.13.0 of 2.13.0+cpu."""
    return found.partition("+")[0]


def _applies(marker: str) -> bool:
    """Whether a line of a lock is for this Python and machine."""
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
    """The versions of a package that pyproject.toml allows, such as ``>=2.11``."""
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
