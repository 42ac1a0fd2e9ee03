"""Slurm: its commands, and whether it answers."""

from __future__ import annotations

import shutil
import subprocess

from pipeline_src.tools.doctor.finding import OK, WARNING, Finding

COMMANDS = ("sbatch", "squeue", "scancel", "scontrol", "srun", "sinfo")
SECONDS = 5  # for an answer


def slurm() -> Finding:
    """Whether `snakemake --profile slurm` has a cluster to go to."""
    there = [name for name in COMMANDS if shutil.which(name)]
    if not there:
        return Finding("slurm", OK, "none here; `--profile slurm` runs on a cluster's login node alone")
    missing = [name for name in COMMANDS if name not in there]
    if missing:
        remedy = "install Slurm's client commands, or run on a login node"
        return Finding("slurm", WARNING, f"no {', '.join(missing)}", remedy)
    remedy = "start it or ask its operators; while it is silent, every start of Snakemake here waits ten seconds for it"
    try:
        asked = subprocess.run(
            ["sinfo", "--noheader", "--format=%P %D %G"], capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return Finding("slurm", WARNING, f"no answer in {SECONDS} s", remedy)
    if asked.returncode:
        said = asked.stderr.strip().partition("\n")[0]
        return Finding("slurm", WARNING, f"the cluster cannot be reached: {said}", remedy)
    partitions = "; ".join(line.strip() for line in asked.stdout.splitlines())
    return Finding("slurm", OK, f"partition, nodes, GPUs: {partitions or 'no partition'}")
