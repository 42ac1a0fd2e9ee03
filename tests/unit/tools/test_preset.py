"""The tool that puts a complete study in place of params.yaml."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import pytest

from pipeline_src.common.errors import PipelineError
from pipeline_src.tools import preset

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(ROOT / preset.PRESETS, tmp_path / preset.PRESETS)
    (tmp_path / "params.yaml").write_text("# the study before\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def call(*words: str) -> None:
    parser = argparse.ArgumentParser()
    preset.add_arguments(parser)
    preset.main(parser.parse_args(words))


def test_a_preset_comes_byte_for_byte_with_its_comments(project: Path) -> None:
    call("sample")
    assert (project / "params.yaml").read_bytes() == (project / preset.PRESETS / "sample.yaml").read_bytes()
    assert "#" in (project / "params.yaml").read_text()


def test_the_list_changes_nothing(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call("--list")
    lines = capsys.readouterr().out.splitlines()
    assert {line.split()[0] for line in lines} >= {"sample", "bert-base"}
    assert all(len(line.split()) > 1 for line in lines), "a preset starts with a comment that says what it is"
    assert (project / "params.yaml").read_text() == "# the study before\n"


@pytest.mark.parametrize(("words", "said"), [(["huge"], "no such preset: huge"), ([], "no preset is named")])
def test_a_name_that_is_not_there_lists_those_that_are(project: Path, words: list[str], said: str) -> None:
    with pytest.raises(PipelineError, match=rf"(?s){said}.*sample"):
        call(*words)
    assert (project / "params.yaml").read_text() == "# the study before\n"


def test_a_preset_that_is_no_valid_study_is_not_put_in_place(project: Path) -> None:
    good = (project / preset.PRESETS / "sample.yaml").read_text()
    (project / preset.PRESETS / "mine.yaml").write_text(good.replace("seed: 1", "sede: 1"))
    with pytest.raises(PipelineError, match=r"mine\.yaml"):
        call("mine")
    assert (project / "params.yaml").read_text() == "# the study before\n"
