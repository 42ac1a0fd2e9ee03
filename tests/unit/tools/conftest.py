import argparse
from pathlib import Path

import pytest

from tests.unit.sources.conftest import no_waiting

__all__ = ["no_waiting"]


@pytest.fixture
def call():
    """Run a tool with command-line arguments."""

    def run(tool, *given) -> int | None:
        parser = argparse.ArgumentParser()
        tool.add_arguments(parser)
        return tool.main(parser.parse_args([str(argument) for argument in given]))

    return run


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, root: Path) -> Path:
    """A checkout without code, whose study is the sample, as working directory."""
    for name in ("workflow", "dvc.yaml"):
        (tmp_path / name).symlink_to(root / name)
    (tmp_path / "params.yaml").write_bytes((root / "workflow/presets/sample.yaml").read_bytes())
    monkeypatch.chdir(tmp_path)
    return tmp_path
