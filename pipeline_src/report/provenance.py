"""Where a study's numbers come from: commit, parameters, data, versions, machine.

The report is the one output that holds these; its hash is never compared.
"""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import yaml

from pipeline_src.common.parallel import usable_cores
from pipeline_src.common.paths import CORPUS, SCORES
from pipeline_src.report.traced import JsonRef

PACKAGES = ("torch", "tokenizers", "numpy", "apache-beam", "snakemake", "dvc", "matplotlib")
PARAMS, LOCK = Path("params.yaml"), Path("dvc.lock")
SHOWN_OUTPUTS = ("data/", "models/pretrained/", SCORES.as_posix(), CORPUS.as_posix())


def provenance() -> dict[str, str]:
    """Name -> value: commit, the command that reproduces it, versions, machine."""
    commit, changed = _commit()
    versions = []
    for package in PACKAGES:
        try:
            versions.append(f"{package} {version(package)}")
        except PackageNotFoundError:  # a package of another stage, which this environment need not hold
            continue
    return {
        "Commit": (f"{commit} with uncommitted changes" if changed else commit) or "not in a git repository",
        "To reproduce": f"git checkout {commit} && make study" if commit else "make study",
        "Versions": ", ".join([f"Python {platform.python_version()}", *versions]),
        "Made on": f"{platform.system()} {platform.machine()}, {_processor()}, {usable_cores()} cores, "
        f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 1e9:.0f} GB of memory",
    }


def parameters() -> list[tuple[str, str]]:
    """The top-level blocks of params.yaml as text; empty where there is none."""
    if not PARAMS.exists():
        return []
    return [(name, _flow(value)) for name, value in _load(PARAMS).items()]


def data_hashes() -> list[JsonRef] | None:
    """Outputs in dvc.lock: data, pretrained models, scores and counts of the corpus.

    None where the lock is not of these results, which the hashes of scores and counts tell: they may have been
    made by hand.
    """
    if not LOCK.exists():
        return None
    lock = JsonRef(_load(LOCK), LOCK.as_posix())
    outputs = [output for stage in lock["stages"] if "outs" in stage for output in stage["outs"]]
    hashes = {output.value["path"]: output.value.get("md5") for output in outputs}
    if any(hashes.get(path.as_posix()) != _md5(path) for path in (SCORES, CORPUS)):
        return None
    return [output for output in outputs if output.value["path"].startswith(SHOWN_OUTPUTS) and "md5" in output]


def _md5(path: Path) -> str:
    return hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()


def _load(path: Path) -> Any:
    return yaml.load(path.read_text(encoding="utf-8"), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def _flow(value: Any) -> str:
    text = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10_000, allow_unicode=True)
    return text.removesuffix("...\n").strip()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or "unknown processor"
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else "unknown processor"


def _commit() -> tuple[str, bool]:
    """The commit, and whether tracked files differ from it."""
    try:
        head = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
        changed = subprocess.run(
            ["git", "status", "--porcelain", "-uno"], capture_output=True, text=True
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "", False
    return head, bool(changed)
