"""The locks install on every supported Python and platform without a compiler; asked offline, from the locks."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.tags import compatible_tags, cpython_tags, mac_platforms
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
LOCKS = ("study", "test", "bench")
FROM_SOURCE = {"antlr4-python3-runtime", "connection-pool", "jieba", "seqeval"}  # pure Python, built in seconds
COMPILED = {(3, 14): {"immutables"}}  # published for older Pythons alone, and needs a C compiler there
OLDEST_GLIBC = 28
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


def tags_of(python: tuple[int, int], platform: str) -> set[str]:
    """Tags of the wheels that pip takes there: glibc 2.28, macOS 14."""
    machine = PLATFORMS[platform][2]
    if platform.startswith("macOS"):
        names = list(mac_platforms((14, 0), machine))
    else:
        names = [f"manylinux_2_{minor}_{machine}" for minor in range(5, OLDEST_GLIBC + 1)]
        names += [f"manylinux{year}_{machine}" for year in (1, 2010, 2014)]
    listed = [*cpython_tags(python, platforms=names), *compatible_tags(python, f"cp{python[0]}{python[1]}", names)]
    return {str(tag) for tag in listed}


def installs(tags: list[str], wanted: set[str]) -> bool:
    """Whether one of the wheels fits; a wheel's tag may join several by dots."""
    for tag in filter(lambda each: each != "-", tags):
        python, abi, platforms = tag.split("-")
        for each in (f"{p}-{a}-{q}" for p in python.split(".") for a in abi.split(".") for q in platforms.split(".")):
            if each in wanted:
                return True
    return False


@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize("python", [(3, 11), (3, 12), (3, 13), (3, 14)], ids=lambda each: f"3.{each[1]}")
def test_every_package_has_a_wheel(python: tuple[int, int], platform: str) -> None:
    system, name, machine = PLATFORMS[platform]
    environment = default_environment() | {
        "python_version": f"3.{python[1]}", "python_full_version": f"3.{python[1]}.0", "sys_platform": system,
        "platform_system": name, "platform_machine": machine,
    }  # fmt: skip
    wanted, table, seen, without = tags_of(python, platform), wheels(), {}, set()
    for pin in pins("test"):
        if pin.marker is None or pin.marker.evaluate(environment):
            version = str(pin.specifier).removeprefix("==")
            assert seen.setdefault(pin.name, version) == version, f"two versions of {pin.name}"
            if not installs(table[pin.name, version], wanted):
                without.add(pin.name)
    assert without == FROM_SOURCE | COMPILED.get(python, set())


def test_every_dependency_of_pyproject_is_in_the_locks_and_in_its_range() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    asked = {"study": project["project"]["dependencies"]} | project["dependency-groups"]
    for name, requirements in asked.items():
        locked = {pin.name: str(pin.specifier).removeprefix("==") for pin in pins(name)}
        for requirement in map(Requirement, requirements):
            if requirement.name != "torch":
                version = locked[canonicalize_name(requirement.name)]
                assert requirement.specifier.contains(version), requirement


def test_each_lock_extends_the_one_before_it() -> None:
    for smaller, larger in zip(LOCKS, LOCKS[1:], strict=False):
        there = {pin.name: str(pin.specifier) for pin in pins(larger)}
        assert all(there[pin.name] == str(pin.specifier) for pin in pins(smaller))


def test_torch_is_in_its_own_lock_alone_and_no_lock_names_an_index() -> None:
    (torch,) = map(Requirement, (ROOT / "torch.lock").read_text().split())
    assert torch.name == "torch" and str(torch.specifier).startswith("==")
    for name in LOCKS:
        text = (ROOT / f"locks/{name}.lock").read_text()
        assert "://" not in text and not re.search(r"^torch\b", text, re.MULTILINE)


def test_gensim_and_mwparserfromhell_are_left_out_of_python_3_14() -> None:
    newest = default_environment() | {"python_version": "3.14", "python_full_version": "3.14.0"}
    left_out = {pin.name for pin in pins("test") if pin.marker and not pin.marker.evaluate(newest)}
    assert {"gensim", "mwparserfromhell"} <= left_out


def test_the_conda_environment_changes_with_the_locks(tmp_path: Path) -> None:
    recorded = re.search(r"^# locks: (.*)$", (ROOT / "workflow/envs/pipeline.yaml").read_text(), re.MULTILINE)
    asked = "import sys; sys.path.insert(0, sys.argv[1]); import record; from pathlib import Path; "
    asked += "print(record.locks_checksum(Path(sys.argv[2])))"

    def checksum(root: Path) -> str:
        command = [sys.executable, "-c", asked, str(ROOT / "locks"), str(root)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    assert recorded and recorded[1] == checksum(ROOT), "run make lock"
    (tmp_path / "locks").mkdir()
    for name in ("torch.lock", "locks/study.lock"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    assert checksum(tmp_path) == recorded[1]
    (tmp_path / "torch.lock").write_text("torch==9\n")
    assert checksum(tmp_path) != recorded[1]
