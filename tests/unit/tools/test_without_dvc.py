"""Tool ``without-dvc`` next to DVC itself, and on a study of one stage."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline_src.common.dependencies import declared_stages
from pipeline_src.common.errors import PipelineError
from pipeline_src.tools.without_dvc import compare, describe, graph, locked, read_lock, reproduce

PARAMS = "on: true\nsmall: 1e-05\nnone: null\nshape: {size: 3, name: a b}\n"


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Writes stage ``s``, in the current folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "params.yaml").write_text(PARAMS)
    (tmp_path / "given").write_text("1\n")
    return lambda keys: (tmp_path / "dvc.yaml").write_text(f"stages: {{s: {{{keys}}}}}\n") and None


def repro() -> int:
    return reproduce("s", declared_stages()["s"])


def test_hashes_and_commands_equal_dvcs(study, tmp_path):
    from dvc.repo import Repo

    study(
        "cmd: 'echo ${on} ${small} ${none} ${shape}', params: [small, none, shape], deps: [given], outs: [out, empty]"
    )
    for name in ("out/a/x", "out/a.yaml", "out/a-b", "out/.gitignore", "out/__pycache__/x", "elsewhere/x"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "out/link").symlink_to("../elsewhere")
    (tmp_path / "empty").mkdir()
    (tmp_path / ".dvcignore").write_text(".gitignore\n__pycache__\n")
    Repo.init(no_scm=True)
    Repo().commit(force=True)
    assert compare(declared_stages()["s"], read_lock()["s"]) == []
    assert read_lock()["s"]["outs"] == [describe("empty"), describe("out")]


@pytest.mark.parametrize("added", ["outs: [out, new]", "outs: [out], params: [small]", "outs: [out], deps: [given]"])
def test_stage_with_a_new_key_runs_and_is_recorded(study, added):
    study("cmd: 'touch out new', outs: [out]")
    assert repro() == 0
    study(f"cmd: 'touch out new', {added}")
    assert compare(declared_stages()["s"], read_lock()["s"])
    os.remove("new")
    assert repro() == 0
    assert os.path.exists("new")
    assert compare(declared_stages()["s"], read_lock()["s"]) == []


def test_stage_without_a_dependency_keeps_its_outputs(study, tmp_path):
    study("cmd: 'cp given out', deps: [given], outs: [out]")
    assert repro() == 0
    (tmp_path / "given").unlink()
    with pytest.raises(PipelineError, match="a dependency is missing: given"):
        repro()
    assert (tmp_path / "out").read_text() == "1\n"


def test_missing_parameter_is_named(study):
    study("cmd: 'true', params: [shape.depth]")
    with pytest.raises(PipelineError, match="a parameter cannot be read: 'depth'"):
        repro()


def test_read_lock_without_stages_is_empty(study, tmp_path):
    (tmp_path / "dvc.lock").write_text("schema: '2.0'\n")
    assert read_lock() == {}
    (tmp_path / "dvc.lock").write_text("[]\n")
    with pytest.raises(PipelineError, match="not what DVC writes"):
        read_lock()


def test_failed_line_of_a_command_ends_the_stage(study, tmp_path):
    study('cmd: "false\\ntouch out", outs: [out]')
    assert repro() == 1
    assert not (tmp_path / "out").exists() and read_lock() == {}


def test_graph_parts_and_folders_of_outputs_are_edges_and_like_names_are_not():
    outs = {"whole": ["data/a"], "part": ["data/b/c"], "like": ["data/ab"]}
    deps = {"in": ["data/a/x"], "above": ["data/b"], "same": ["data/ab"]}
    stages = {name: {"deps": [], "outs": dict.fromkeys(paths)} for name, paths in outs.items()}
    stages |= {name: {"deps": paths, "outs": {}} for name, paths in deps.items()}
    edges = {name: upstream for name, upstream in graph(stages).items() if upstream}
    assert edges == {"in": ["whole"], "above": ["part"], "same": ["like"]}


TOOL = """
import sys
from pipeline_src.common.dependencies import declared_stages
from pipeline_src.tools.without_dvc import reproduce
sys.exit(reproduce("s", declared_stages()["s"]))
"""


@pytest.fixture
def running(study, tmp_path, root):
    """The tool while its stage runs, which ends once there is a file ``go``; after Ctrl-C it saves first."""
    study("cmd: 'trap \"sleep 1; touch saved; exit 3\" INT; touch started; until [ -e go ]; do sleep 0.1; done'")
    environment = os.environ | {"PYTHONPATH": str(root)}
    process = subprocess.Popen([sys.executable, "-c", TOOL], env=environment, start_new_session=True)
    while not (tmp_path / "started").exists():
        assert process.poll() is None
        time.sleep(0.05)
    yield process
    (tmp_path / "go").touch()
    process.wait()


def test_interrupted_stage_has_time_to_save(running, tmp_path):
    time.sleep(0.5)  # until the tool waits for the stage
    os.killpg(running.pid, signal.SIGINT)
    assert running.wait() == 3
    assert (tmp_path / "saved").exists()


def test_second_start_is_refused_although_the_first_was_killed_while_its_stage_lives(running):
    running.kill()
    running.wait()
    with pytest.raises(PipelineError, match="the stage is busy"), locked("s", wait=False):
        pass
