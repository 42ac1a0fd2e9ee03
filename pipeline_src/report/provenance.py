"""Where a study's numbers come from: commit, versions, machine and time.

The report is the one output that holds these; its hash is never compared.
"""

from __future__ import annotations

import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from pipeline_src.files import read_json

LOGS = Path("logs")
PACKAGES = ("torch", "tokenizers", "apache-beam", "snakemake", "dvc")


def provenance() -> dict[str, str]:
    """Name -> value: commit, versions, machine."""
    versions = []
    for package in PACKAGES:
        try:
            versions.append(f"{package} {version(package)}")
        except PackageNotFoundError:  # a package of another stage, which this environment need not hold
            continue
    return {
        "Commit": _commit(),
        "Reproduce": "git checkout the commit above, then make study",
        "Versions": ", ".join([f"Python {platform.python_version()}", *versions]),
        "Machine": f"{platform.system()} {platform.machine()}",
    }


def stage_costs() -> list[dict[str, Any]]:
    """Runs, seconds, CPU seconds and peak memory of each stage, from ``logs/<stage>/*.run.json`` where at hand."""
    costs = []
    for folder in sorted(LOGS.glob("*")):
        runs = [read_json(path) for path in sorted(folder.glob("*.run.json"))]
        if runs:
            costs.append(
                {
                    "name": folder.name,
                    "runs": len(runs),
                    "started": min(run["started"] for run in runs),
                    "seconds": sum(run["seconds"] for run in runs),
                    "cpu_seconds": sum(run["cpu_seconds"] for run in runs),
                    "memory": max(run["max_rss_mb"] for run in runs),
                }
            )
    return sorted(costs, key=lambda cost: cost["started"])


def _commit() -> str:
    try:
        head = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
        changed = subprocess.run(
            ["git", "status", "--porcelain", "-uno"], capture_output=True, text=True
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "not in a git repository"
    return f"{head} with uncommitted changes" if changed else head
