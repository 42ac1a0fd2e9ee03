"""This folder: git, DVC, permissions, links."""

from __future__ import annotations

import configparser
import fcntl
import os
import subprocess
import tempfile
from pathlib import Path

from pipeline_src.tools.doctor.finding import OK, PROBLEM, WARNING, Finding

CONFIGS = (Path(".dvc/config"), Path(".dvc/config.local"))
PROFILE = Path("slurm")


def folder() -> Finding:
    """Whether files can be written, renamed and locked here."""
    try:
        with tempfile.TemporaryDirectory(prefix=".doctor-", dir=".") as name:
            file = Path(name, "a")
            with open(file, "w", encoding="utf-8") as opened:
                fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.replace(file, Path(name, "b"))
    except OSError as error:
        remedy = "clone the project into a folder that you may write, on a file system with locks"
        return Finding("folder", PROBLEM, f"{Path.cwd()}: {error.strerror}", remedy)
    return Finding("folder", OK, f"{Path.cwd()}: writing and locking work")


def links() -> Finding:
    """Whether the link `slurm`, by which Snakemake finds its profile, came with the clone."""
    if (PROFILE / "config.yaml").exists():
        return Finding("links", OK, f"{PROFILE} leads to workflow/profiles/slurm")
    remedy = "write `--profile workflow/profiles/slurm`, or clone with git where symbolic links can be made"
    return Finding("links", WARNING, f"no symbolic link {PROFILE}: `snakemake --profile slurm` fails", remedy)


def git() -> Finding:
    """Whether this is a git checkout, and git knows who commits: DVC keeps experiments as commits."""
    inside = _git("rev-parse", "--git-dir")
    if inside is None:
        return Finding("git", PROBLEM, "git is not installed", "install git")
    if not inside:
        return Finding("git", PROBLEM, "not a git checkout", "use `git clone`, or `git init` and commit all files here")
    if not _git("config", "user.email"):
        remedy = "git config user.name NAME, git config user.email ADDRESS; `make study` sets both for this clone"
        return Finding("git", WARNING, "no name: `dvc exp run` cannot keep experiments", remedy)
    return Finding("git", OK, "a checkout, and git knows a name")


def remote() -> Finding:
    """Whether DVC has a place to share artifacts by."""
    parser = configparser.ConfigParser(interpolation=None)
    try:
        read = parser.read(CONFIGS, encoding="utf-8")
    except (configparser.Error, UnicodeDecodeError) as error:
        return Finding("dvc remote", PROBLEM, f"DVC's configuration cannot be read: {error}", "mend .dvc/config")
    if not read:
        return Finding("dvc remote", PROBLEM, "no .dvc/config", "run from the project's root")
    places = {name: parser[name].get("url", "") for name in parser.sections() if "remote" in name}
    if not places:
        remedy = "to share artifacts: dvc remote add --default NAME FOLDER-OR-ADDRESS; a single checkout needs none"
        return Finding("dvc remote", WARNING, "none: `dvc push` and `dvc pull` have no place to go to", remedy)
    return Finding("dvc remote", OK, ", ".join(places.values()))


def _git(*arguments: str) -> str | None:
    """What git says, empty where it fails; None where there is no git."""
    try:
        done = subprocess.run(["git", *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return done.stdout.strip() if done.returncode == 0 else ""
