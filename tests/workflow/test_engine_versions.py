"""The bridge uses no more of DVC and Snakemake than their users do, and works with every version that is allowed."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
ENGINES = ("dvc", "snakemake", "snakemake-executor-plugin-slurm")
BESIDE = ("pytest", "hypothesis", "packaging", "psutil", "pyyaml", "ruamel.yaml", "ruff")  # what the tests need
IMPORTED = {"snakemake.logging": {"logger"}}
OF_WORKFLOW = {"basedir", "is_main_process", "remote_exec"}
# A public property of Snakemake's jobs, with a setter: the number of this try.
SET = {"job.attempt"}
# of the promises in test_two_engines.py, those that depend most on the engines
PROMISES = (
    "after_ or experiments or restored or edited or outlives or torn or merge or second_engine or every_way or options"
)


def requirements() -> dict[str, Requirement]:
    """What pyproject.toml says of the engines."""
    dependencies = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    return {item.name: item for item in map(Requirement, dependencies) if item.name in ENGINES}


def test_pyproject_engine_versions_are_lower_bounds() -> None:
    assert set(requirements()) == set(ENGINES)
    for requirement in requirements().values():
        assert [item.operator for item in requirement.specifier] == [">="], requirement


def test_workflow_imports_only_logger_of_snakemake() -> None:
    for file in [*(ROOT / "workflow").glob("*.py"), ROOT / "benchmarks/_checkout.py"]:
        for node in ast.walk(ast.parse(file.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            assert not any(name.split(".")[0] in ("dvc", "snakemake") for name in names), file
            if isinstance(node, ast.ImportFrom) and re.match(r"(dvc|snakemake)\b", node.module or ""):
                assert {alias.name for alias in node.names} <= IMPORTED.get(node.module or "", set()), file
    snakefile = (ROOT / "workflow/Snakefile").read_text()
    assert set(re.findall(r"\bworkflow\.(\w+)", re.sub(r"#.*|import.*", "", snakefile))) - {"py"} <= OF_WORKFLOW


def test_workflow_uses_no_private_attributes_and_no_patches() -> None:
    for file in (ROOT / "workflow").glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.endswith("__"):
                assert isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"), (file, node.attr)
            if isinstance(node, ast.Assign | ast.AugAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                for target in targets:
                    own = not isinstance(target, ast.Attribute) or getattr(target.value, "id", "") == "self"
                    assert own or ast.unparse(target) in SET, (file, ast.unparse(target))


@pytest.mark.slow
@pytest.mark.parametrize("end", ["lowest-direct", "highest"])
def test_two_engines_tests_pass_with_lowest_and_highest_versions(tmp_path: Path, end: str) -> None:
    uv = shutil.which("uv") or next(map(str, (ROOT / ".venv/tools/bin").glob("uv")), None)
    if uv is None:
        pytest.skip("no uv, which installs other versions in seconds")
    python = tmp_path / "environment/bin/python"
    subprocess.run([uv, "venv", "-q", "--python", sys.executable, tmp_path / "environment"], check=True)
    install = [uv, "pip", "install", "-q", "--python", python]
    engines = [str(requirement) for requirement in requirements().values()]
    done = subprocess.run([*install, "--resolution", end, *engines], capture_output=True, text=True)
    if done.returncode and "error sending request" in done.stderr.lower():
        pytest.skip("no package index can be reached")
    assert done.returncode == 0, done.stderr
    subprocess.run([*install, *BESIDE], check=True)
    program = "from importlib.metadata import version; import sys; print(*map(version, sys.argv[1:]))"
    there = subprocess.run([python, "-c", program, *ENGINES], capture_output=True, text=True, check=True).stdout.split()
    if there == [version(name) for name in ENGINES]:
        pytest.skip(f"{', '.join(there)} are installed here, and test_two_engines.py runs with them")
    command = [python, "-m", "pytest", "-q", "tests/workflow/test_two_engines.py", "-k", PROMISES]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST")}
    done = subprocess.run(
        [*command, f"--basetemp={tmp_path / 'tests'}"], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-1000:]
    assert re.search(r"\d\d passed", done.stdout)
