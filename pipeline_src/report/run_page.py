"""The page run.html: time, cost, versions and machine, which may differ between runs with equal results."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import read_json
from pipeline_src.base.parallel import usable_cores
from pipeline_src.base.paths import CORPUS, LOGS, SCORES
from pipeline_src.base.yaml_files import parse_yaml
from pipeline_src.report.figures import throughput_panel
from pipeline_src.report.rendering import render
from pipeline_src.report.results import Results, read_curve
from pipeline_src.study.settled import read_settled

# Schemas of log files: the cost of a pretraining phase, and one run of a stage.
COST = {"flops": float, "seconds": float, "processes": int}
RUN = {"seconds": float, "cpu_seconds": float, "max_rss_mb": float, "started": str}
PACKAGES = ("torch", "tokenizers", "numpy", "apache-beam", "snakemake", "dvc", "matplotlib")
LOCK = Path("dvc.lock")
HASHED_OUTPUTS = ("data/", "models/pretrained/", SCORES.as_posix(), CORPUS.as_posix())


def check_price(price: float, option: str) -> None:
    if not 0 <= price < float("inf"):
        raise PipelineError("invalid price", price, where=option, hint="give a number of 0 or more")


def render_run(results: Results, price: float | None) -> str:
    phases = measured_phases(results)
    hours = sum(phase["seconds"] * phase["processes"] for phase in phases.values()) / 3600
    curves = {}
    for phase in phases:
        path = LOGS / f"dvclive/{phase}/plots/metrics/tokens_per_second.tsv"
        if path.exists():
            curves[phase] = read_curve(path)
    return render(
        "run.html.j2",
        title=f"{results.title}: this run",
        sections=[("cost", "Cost"), ("provenance", "Where this comes from")],
        measured=phases,
        throughput=throughput_panel(curves),
        rate=price,
        price=None if price is None else price * hours,
        stages=stage_costs(),
        provenance=provenance(),
        hashes=data_hashes(),
    )


def measured_phases(results: Results) -> dict[str, dict[str, Any]]:
    # Returns phase -> log of its cost. Logs of runs that did not produce these results are left out.
    logs = {}
    for phase, result in results.pretrain.items():
        path = LOGS / f"pretrain/{phase}.cost.json"
        if not path.exists():
            continue
        log = read_json(path, COST)
        # If the number of operations differs, the log is from another run.
        if log["flops"] != result.get("cost", {}).get("flops"):
            continue
        # The utilisation is left out if the peak was measured on this machine, because a CPU's peak varies with its
        # load.
        if str(log.get("peak_source", "this machine")).endswith("this machine"):
            log |= dict.fromkeys(("mfu", "peak_flops", "peak_source"))
        logs[phase] = log
    return logs


def stage_costs() -> list[dict[str, Any]]:
    costs = []
    for folder in sorted(LOGS.glob("*")):
        runs = [read_json(path, RUN) for path in sorted(folder.glob("*.run.json"))]
        if runs:
            cost = {
                "name": folder.name,
                "started": min(run["started"] for run in runs),
                "runs": len(runs),
                "seconds": sum(run["seconds"] for run in runs),
                "cpu_seconds": sum(run["cpu_seconds"] for run in runs),
                "memory": max(run["max_rss_mb"] for run in runs),
            }
            costs.append(cost)
    return sorted(costs, key=lambda cost: cost["started"])


def provenance() -> dict[str, str]:
    described = described_commit()
    commit = described.removesuffix("-dirty")
    versions = [f"Python {platform.python_version()}"]
    for package in PACKAGES:
        try:
            versions.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            # The package is not installed here, since only another stage needs it.
            continue
    gigabytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    system = f"{platform.system()} {platform.machine()}"
    return {
        "Commit": described.replace("-dirty", " with uncommitted changes") or "not in a git repository",
        "To reproduce": f"git checkout {commit} && make study" if commit else "make study",
        "Versions": ", ".join(versions),
        "Made on": f"{system}, {_processor()}, {usable_cores()} cores, {gigabytes:.0f} GB of memory",
    }


def described_commit() -> str:
    # Returns the commit's hash, with the suffix "-dirty" if tracked files differ from the commit; "" outside git.
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    text = cpuinfo.read_text(encoding="utf-8") if cpuinfo.exists() else ""
    model = re.search(r"^model name\s*:(.*)$", text, re.MULTILINE)
    return model[1].strip() if model else platform.processor() or "unknown processor"


def data_hashes() -> list[dict[str, Any]] | None:
    # Returns the outputs in dvc.lock with their hashes. None if dvc.lock is missing or from another run, which shows in
    # the hash of scores.json or corpus.json.
    if not LOCK.exists():
        return None
    # `dvc exp run` rewrites dvc.lock while it makes an experiment, so the file may be empty for a moment.
    lock = parse_yaml(read_settled(LOCK)) or {}
    outputs: list[dict[str, Any]] = []
    for stage in lock.get("stages", {}).values():
        outputs += stage.get("outs", ())
    hashes = {output["path"]: output.get("md5") for output in outputs}
    for path in (SCORES, CORPUS):
        if hashes.get(path.as_posix()) != hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest():
            return None
    return [output for output in outputs if output["path"].startswith(HASHED_OUTPUTS) and "md5" in output]
