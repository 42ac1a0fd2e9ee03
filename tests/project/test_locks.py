"""The locks install on every supported Python and platform without a compiler; checked offline."""

from __future__ import annotations

import re
import runpy
import tomllib
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.tags import Tag, compatible_tags, cpython_tags, mac_platforms, parse_tag
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
LOCKS = ("study", "test", "bench")
FROM_SOURCE = {"antlr4-python3-runtime", "connection-pool", "jieba", "seqeval"}  # pure Python, built in seconds
COMPILED = {(3, 14): {"immutables"}}  # published for older Pythons alone, and needs a C compiler there
MIN_GLIBC = 28
PLATFORMS = {
    "Linux x86-64": ("linux", "Linux", "x86_64"),
    "Linux aarch64": ("linux", "Linux", "aarch64"),
    "macOS arm64": ("darwin", "Darwin", "arm64"),
}


def pins(name: str) -> list[Requirement]:
    return [Requirement(line) for line in (ROOT / f"locks/{name}.lock").read_text().splitlines() if line[0] not in "# "]


def wheels() -> dict[tuple[str, str], list[str]]:
    lines = map(str.split, (ROOT / "locks/wheels.txt").read_text().splitlines())
    return {(name, version): tags for name, version, *tags in lines}


def tags_of(python: tuple[int, int], platform: str) -> set[Tag]:
    """Tags of the wheels that pip takes there: glibc 2.28, macOS 14."""
    machine = PLATFORMS[platform][2]
    if platform.startswith("macOS"):
        names = list(mac_platforms((14, 0), machine))
    else:
        names = [f"manylinux_2_{minor}_{machine}" for minor in range(5, MIN_GLIBC + 1)]
        names += [f"manylinux{year}_{machine}" for year in (1, 2010, 2014)]
    return {*cpython_tags(python, platforms=names), *compatible_tags(python, f"cp{python[0]}{python[1]}", names)}


@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize("python", [(3, 11), (3, 12), (3, 13), (3, 14)], ids=lambda version: f"3.{version[1]}")
def test_lock_every_package_has_a_wheel(python: tuple[int, int], platform: str) -> None:
    system, name, machine = PLATFORMS[platform]
    environment = default_environment() | {
        "python_version": f"3.{python[1]}", "python_full_version": f"3.{python[1]}.0", "sys_platform": system,
        "platform_system": name, "platform_machine": machine,
    }  # fmt: skip
    supported_tags, table, seen, without = tags_of(python, platform), wheels(), {}, set()
    for pin in pins("test"):
        if pin.marker is None or pin.marker.evaluate(environment):
            version = str(pin.specifier).removeprefix("==")
            assert seen.setdefault(pin.name, version) == version, f"two versions of {pin.name}"
            if not any(tag != "-" and supported_tags & parse_tag(tag) for tag in table[pin.name, version]):
                without.add(pin.name)
    assert without == FROM_SOURCE | COMPILED.get(python, set())


def test_lock_every_dependency_is_locked_within_its_range() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    requirements_of = {"study": project["project"]["dependencies"]} | project["dependency-groups"]
    for name, requirements in requirements_of.items():
        locked = {pin.name: str(pin.specifier).removeprefix("==") for pin in pins(name)}
        for requirement in map(Requirement, requirements):
            if requirement.name != "torch":
                version = locked[canonicalize_name(requirement.name)]
                assert requirement.specifier.contains(version), requirement


def test_package_lock_larger_group_pins_same_versions() -> None:
    for smaller, larger in zip(LOCKS, LOCKS[1:], strict=False):
        there = {pin.name: str(pin.specifier) for pin in pins(larger)}
        assert all(there[pin.name] == str(pin.specifier) for pin in pins(smaller))


def test_lock_torch_is_only_in_torch_lock_and_no_index_is_named() -> None:
    (torch,) = map(Requirement, (ROOT / "torch.lock").read_text().split())
    assert torch.name == "torch" and str(torch.specifier).startswith("==")
    for name in LOCKS:
        text = (ROOT / f"locks/{name}.lock").read_text()
        assert "://" not in text and not re.search(r"^torch\b", text, re.MULTILINE)


def test_conda_environment_has_checksum_of_lock() -> None:
    recorded = re.search(r"^# locks: (.*)$", (ROOT / "workflow/envs/pipeline.yaml").read_text(), re.MULTILINE)
    checksum = runpy.run_path(str(ROOT / "locks/record.py"))["locks_checksum"]
    assert recorded and recorded[1] == checksum(), "run make lock"
