"""Experiments handed from one clone to another: commits through git, files through DVC's remote."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conftest import Project


def test_an_experiment_pushed_on_one_clone_is_applied_on_another(study: Project, tmp_path: Path) -> None:
    study.run("git", "config", "user.name", "a")
    study.run("git", "config", "user.email", "a@example.org")
    study.dvc("remote", "add", "-d", "shelf", str(tmp_path / "shelf"))
    study.commit()
    study.run("git", "init", "-q", "--bare", "-b", "main", str(tmp_path / "shared.git"))
    study.run("git", "remote", "add", "origin", str(tmp_path / "shared.git"))
    study.run("git", "push", "-q", "origin", "main")
    study.dvc("exp", "run", "-n", "more-masks", "-S", "mask_prob=0.3")
    study.dvc("exp", "push", "origin", "more-masks")

    study.run("git", "clone", "-q", str(tmp_path / "shared.git"), str(tmp_path / "clone"))
    clone = type(study)(tmp_path / "clone", tmp_path / "home")  # another home: nothing of DVC's is shared
    clone.home.mkdir()
    assert "more-masks" in clone.dvc("exp", "list", "origin")
    clone.dvc("exp", "pull", "origin", "more-masks")
    clone.dvc("exp", "apply", "more-masks")
    assert "0.3" in (clone.path / "models/pretrained/model.txt").read_text()
    assert clone.nothing_to_do()
    assert clone.ran() == []


def test_without_the_remote_a_clone_says_what_is_missing(study: Project, tmp_path: Path) -> None:
    study.dvc("remote", "add", "-d", "shelf", str(tmp_path / "shelf"))
    study.commit()
    study.run("git", "clone", "-q", str(study.path), str(tmp_path / "clone"))
    clone = type(study)(tmp_path / "clone", study.home)
    pulled = clone.run("dvc", "pull", check=False)
    assert pulled.returncode and "models/pretrained" in pulled.stdout  # nothing was ever pushed
    assert "Traceback" not in pulled.stdout
    assert "rule pretrain" in clone.snakemake("-n")
