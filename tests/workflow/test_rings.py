"""A ring can be taken away: what the core's tests check holds without it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline_src.base.registry import CORE, EXPORTS, member_names
from tests.unit.test_layers import CORE as FOLDERS
from tests.unit.test_layers import RINGS

COPIED = ("pipeline_src", "tests", "catalogue", "workflow", "locks", "docs", "benchmarks")
FILES = ("params.yaml", "machine.yaml", "dvc.yaml", "dvc.lock", "pyproject.toml", "torch.lock", "README.md")
# Of every folder of the core a file that takes seconds. Others name members of the family as values.
TESTS = (
    *("base/test_names.py", "engine/test_fingerprint.py", "study/test_settled.py", "sources/test_catalogue.py"),
    *("text/wikipedia/test_formulas.py", "tokenizer/test_wordpiece.py", "tasks/test_metrics.py"),
    *("examples/test_pairs.py", "model/test_losses.py", "training/test_stop.py", "pretrain/test_data.py"),
    *("finetune/test_task_data.py", "evaluate/test_significance.py", "report/test_page.py"),
)
IMPORT_ALL = """
import importlib, pkgutil, pipeline_src
for module in pkgutil.walk_packages(pipeline_src.__path__, "pipeline_src."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
"""


@pytest.mark.slow
@pytest.mark.parametrize("ring", RINGS)
def test_core_works_without_optional_folders(root: Path, tmp_path: Path, ring: str) -> None:
    ignored = shutil.ignore_patterns("__pycache__")
    for name in COPIED:
        shutil.copytree(root / name, tmp_path / name, ignore=ignored)
    for name in FILES:
        shutil.copy(root / name, tmp_path / name)
    taken = RINGS[RINGS.index(ring) :]
    for name in taken:  # a ring may import those before it
        shutil.rmtree(tmp_path / "pipeline_src" / name)
        shutil.rmtree(tmp_path / "tests/unit" / name)
    run(tmp_path, "-c", IMPORT_ALL)
    if taken != RINGS:
        # The core's tests run once, without any ring.
        return
    family = {name for kind in EXPORTS for name in member_names(kind) if name not in CORE[kind]}
    without_family = ["-k", f"not ({' or '.join(sorted(family))})"]
    files = [f"tests/unit/{name}" for name in TESTS]
    assert {name.partition("/")[0] for name in TESTS} == set(FOLDERS)
    run(tmp_path, "-m", "pytest", "-q", "-x", "-m", "not slow", "-p", "no:cacheprovider", *without_family, *files)


def run(folder: Path, *arguments: str) -> None:
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    assert done.returncode == 0, done.stdout[-4000:]
