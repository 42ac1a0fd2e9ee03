"""Metadata that people and services read: version, licence, Pythons, files of the image, make's checks."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_citation_version_and_licence_equal_pyproject() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == PROJECT["version"] and citation["license"] == PROJECT["license"] == "Apache-2.0"
    assert "Version 2.0, January 2004" in (ROOT / "LICENSE").read_text()
    assert "## Unreleased" in (ROOT / "CHANGELOG.md").read_text()


def test_zenodo_metadata_equals_citation() -> None:
    zenodo = json.loads((ROOT / ".zenodo.json").read_text())
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    shared = ("title", "license", "keywords")
    assert {key: zenodo[key] for key in shared} == {key: citation[key] for key in shared}
    assert [creator["name"] for creator in zenodo["creators"]] == [author["name"] for author in citation["authors"]]


def test_ci_matrix_has_every_supported_python_and_platform() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text())
    jobs = workflow["jobs"]["test"]["strategy"]["matrix"]["include"]
    supported = SpecifierSet(PROJECT["requires-python"])
    expected = {f"3.{minor}" for minor in range(8, 20) if supported.contains(f"3.{minor}")}
    assert {job["python"] for job in jobs if job["os"] == "ubuntu-latest"} == expected
    assert {job["os"].split("-")[0] for job in jobs} == {"ubuntu", "macos"} and any("arm" in job["os"] for job in jobs)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflow_names_actions_by_commit_and_grants_no_more_than_reading(path: Path) -> None:
    text = path.read_text()
    used = re.findall(r"uses: (.*)", text)
    assert [line for line in used if not re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line)] == []
    workflow = yaml.safe_load(text)
    assert workflow["permissions"] in ({}, {"contents": "read"})
    assert all("timeout-minutes" in job for job in workflow["jobs"].values())
    assert text.count("uses: actions/checkout") == text.count("persist-credentials: false")


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflow_with_right_to_write_runs_no_code_of_the_repository(path: Path) -> None:
    for job in yaml.safe_load(path.read_text())["jobs"].values():
        if "write" in job.get("permissions", {}).values():
            assert not any("checkout" in step.get("uses", "") for step in job["steps"])


def test_new_versions_wait_a_week_in_dependabot_and_in_locks() -> None:
    updates = yaml.safe_load((ROOT / ".github/dependabot.yml").read_text())["updates"]
    assert {update["cooldown"]["default-days"] for update in updates} == {7}
    assert "--exclude-newer '7 days'" in (ROOT / "Makefile").read_text()


def test_snakemake_catalogue_has_what_it_shows() -> None:
    usage = yaml.safe_load((ROOT / ".snakemake-workflow-catalog.yml").read_text())["usage"]
    assert usage["software-stack-deployment"] and usage["report"]
    page = ROOT / "config/README.md"
    targets = re.findall(r"\]\(([^)#\s]+)", page.read_text())
    assert targets and all((page.parent / target).exists() for target in targets)
    assert (ROOT / "workflow/Snakefile").exists()


def test_dockerfile_copies_existing_files() -> None:
    allowed = re.findall(r"^!(.*)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE)
    copied = [name for line in re.findall(r"^COPY (.*) \S+$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
              for name in line.split()]  # fmt: skip
    assert sorted(allowed) == sorted(copied) and all((ROOT / name).exists() for name in copied)


def test_clone_with_autocrlf_has_committed_bytes(tmp_path: Path) -> None:
    if subprocess.run(["git", "rev-parse", "--git-dir"], cwd=ROOT, capture_output=True, check=False).returncode:
        pytest.skip("no git repository, which lists the project's files")
    # the files as they are here, of which some may not be committed yet
    listed = subprocess.run(
        ["git", "ls-files", "-z", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    origin, clone = tmp_path / "origin", tmp_path / "clone"
    for name in listed.stdout.rstrip("\0").split("\0"):
        (origin / name).parent.mkdir(parents=True, exist_ok=True)
        # a file that was deleted, but is still in the index, is left out
        if os.path.lexists(ROOT / name):
            shutil.copyfile(ROOT / name, origin / name, follow_symlinks=False)
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", "init", "--quiet"], cwd=origin, check=True)
    subprocess.run(["git", "-c", "core.autocrlf=false", "add", "--all", "--force"], cwd=origin, check=True)
    subprocess.run(["git", *identity, "commit", "--quiet", "--message=all"], cwd=origin, check=True)
    subprocess.run(["git", "clone", "--quiet", "-c", "core.autocrlf=true", origin, clone], check=True)
    files = [path for path in sorted(origin.rglob("*")) if path.is_file() and ".git" not in path.parts]
    assert files
    changed = [path for path in files if path.read_bytes() != (clone / path.relative_to(origin)).read_bytes()]
    assert changed == []


def test_contributing_and_changelog_links_exist() -> None:
    for page in ("CONTRIBUTING.md", "CHANGELOG.md"):
        for target in re.findall(r"\]\(([^)#\s]+)\)", (ROOT / page).read_text()):
            assert target.startswith("https:") or (ROOT / target).exists(), target


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([".venv/torch-installed", "PYTHON=/bin/false"], "is not Python 3.11 to 3.14"),
        ([".venv/torch-installed", "UV=no", "TORCH=cu130"], "needs uv"),
        (["stub/torch-installed", "VENV=stub", "UV=no", "TORCH=installed"], "stub finds no torch"),
        (["release"], "no model; name its folder: make release MODEL="),
        (["study"], "is no git repository, which DVC needs; use git clone, or here: git init"),
    ],
    ids=["Python", "uv", "torch", "release", "git"],
)
def test_make_unsupported_setup_is_rejected(tmp_path: Path, arguments: list[str], message: str) -> None:
    for name in ("Makefile", "torch.lock"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    (tmp_path / "stub/bin").mkdir(parents=True)
    (tmp_path / "stub/bin/python").symlink_to("/bin/false")
    environment = os.environ | {"GIT_CEILING_DIRECTORIES": str(tmp_path.parent)}
    done = subprocess.run(
        ["make", *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode and message in done.stdout + done.stderr
