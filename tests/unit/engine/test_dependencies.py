"""Dependencies of a stage as DVC resolves them, and edits while it runs."""

import os
import shutil

import pytest

from pipeline_src import code
from pipeline_src.base.errors import PipelineError
from pipeline_src.code import StageCode
from pipeline_src.engine import fingerprint as fingerprints
from pipeline_src.engine.dependencies import (
    IGNORED,
    check_unchanged_files,
    declared_stage,
    declared_stages,
    sign,
)
from tests.studies import write_params


@pytest.mark.parametrize("preset", ["test", "multilingual", "bert-base"])
def test_declared_stages_equal_stages_of_dvc(tmp_path, root, monkeypatch, preset):
    from dvc.repo import Repo

    shutil.copy(root / "dvc.yaml", tmp_path)
    write_params(tmp_path, preset)
    monkeypatch.chdir(tmp_path)
    Repo.init(no_scm=True)
    stages = Repo().index.stages
    declared = declared_stages()
    assert len(stages) == len(declared) > 10
    for stage in stages:
        params = {dep.def_path: dep.params for dep in stage.deps if "params" in dep.dumpd()}
        found = declared[stage.addressing]
        assert found["cmd"] == stage.cmd
        assert found["deps"] == [dep.def_path for dep in stage.deps if dep.def_path not in params]
        assert found["params"] == params
        outs = {out.def_path: (out.persist, out.use_cache) for out in stage.outs}
        given = found["outs"].items()
        assert {path: (out.get("persist", False), out.get("cache", True)) for path, out in given} == outs


EDITS = {
    "nothing": lambda path: None,
    "other bytes of the same length": lambda path: (path / "data/a").write_text("B"),
    "the same bytes again": lambda path: (path / "data/a").write_text("a"),
    "another file in its place": lambda path: shutil.move(shutil.copy(path / "data/a", path), path / "data/a"),
    "a file more": lambda path: (path / "data/sub/c").write_text(""),
    "a file less": lambda path: (path / "data/sub/b").unlink(),
    "bytecode": lambda path: (path / "data/x.pyc").write_text(""),
}  # fmt: skip


@pytest.mark.parametrize("edit", EDITS)
def test_check_unchanged_files_edited_file_is_rejected(tmp_path, edit):
    (tmp_path / "data/sub").mkdir(parents=True)
    for name in ("data/a", "data/sub/b"):
        (tmp_path / name).write_text("a")
        os.utime(tmp_path / name, (1, 1))
    paths = [tmp_path / "data", tmp_path / "missing"]
    before = sign(paths)
    EDITS[edit](tmp_path)
    if edit in ("nothing", "bytecode"):
        check_unchanged_files(before, paths)
    else:
        with pytest.raises(PipelineError, match=r"changed while the stage ran.*data/(a|sub/[bc])"):
            check_unchanged_files(before, paths)


def test_ignored_names_equal_dvcignore(root):
    lines = (root / ".dvcignore").read_text().splitlines()
    assert set(IGNORED) == {line.removeprefix("\\") for line in lines[lines.index(".gitignore") :]}


@pytest.mark.parametrize(
    ("stage", "expected"),
    [
        ("foreach: [a, b]\n    do: {deps: ['x/${item}', 'y/${key}']}", ["x/a", "y/a"]),
        ("foreach: {a: {size: 3}}\n    do: {deps: ['x/${item.size}']}", ["x/3"]),
        ("matrix: {one: [a], two: [1, 2]}\n    deps: ['${item.one}${item.two}']", None),
        ("foreach: [a]\n    do: {cmd: 'true'}", []),
        ("foreach: [a]\n    do: {deps: ['x/${on}${half}']}", ["x/true0.5"]),
        ("foreach: [a]\n    do: {deps: ['x/${many}']}", None),
        ("deps: ['${vars_elsewhere}']", None),
    ],
)
def test_declared_stages_expand_foreach_and_matrix(tmp_path, monkeypatch, stage, expected):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "params.yaml").write_text("seed: 1\non: true\nhalf: 0.5\nmany: [1]\n")
    (tmp_path / "dvc.yaml").write_text(f"stages:\n  s:\n    {stage}\n")
    if expected is None:
        with pytest.raises(PipelineError, match="cannot read the stages|no such stage"):
            declared_stage("s@a", declared_stages())
    else:
        assert declared_stage("s@a", declared_stages())["deps"] == expected


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A stage of two modules and a table, whose fingerprint is recorded."""
    folder = tmp_path / "p"
    folder.mkdir()
    (folder / "stage.py").write_text('"""Words."""\nfrom p import base\n')
    (folder / "base.py").write_text("VALUE = 1\n")
    (folder / "table.yaml").write_text("a: 1\n")
    for path in folder.iterdir():
        os.utime(path, (1, 1))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(fingerprints, "ROOT", tmp_path)
    monkeypatch.setattr(code, "modules", lambda: {"stage": "p.stage"})
    for name, function in (("covered_files", fingerprints.covered_files), ("fingerprint", fingerprints.fingerprint)):
        monkeypatch.setattr(code, name, lambda module, function=function: function(module, root=tmp_path))
    yield folder
    for cached in (fingerprints._statements, fingerprints._file, fingerprints._imports):
        cached.cache_clear()


CODE_EDITS = {
    "code": ("base.py", "VALUE = 2\n", True),
    "code that was put back": ("base.py", "VALUE = 1\n", True),
    "broken code": ("base.py", "VALUE = (\n", True),
    "a comment": ("base.py", "VALUE = 1  # one\n", False),
    "a docstring": ("stage.py", '"""Other words."""\nfrom p import base\n', False),
    "a table": ("table.yaml", "a: 2\n", True),
    "a new table": ("more.yaml", "a: 2\n", True),
    "code of another stage": ("other.py", "VALUE = 2\n", False),
}


@pytest.mark.parametrize("edit", CODE_EDITS)
def test_stage_code_edit_is_rejected_unless_only_comments_changed(package, edit):
    file, text, is_rejected = CODE_EDITS[edit]
    stage = StageCode(["stage"])
    (package / file).write_text(text)
    if is_rejected:
        with pytest.raises(PipelineError, match=f"edited since this run began.*{file}"):
            stage.check_unchanged()
    else:
        stage.check_unchanged()
    if is_rejected and file.endswith(".py"):
        stage.check_unchanged(imported=True)


def test_stage_code_changed_fingerprint_is_rejected(package, tmp_path):
    (tmp_path / "code").mkdir()
    recorded, text = tmp_path / "code/stage", f"{fingerprints.fingerprint('p.stage', root=tmp_path)}\n"
    recorded.write_text(text)
    stage = StageCode(["stage"])
    os.replace(shutil.copy(recorded, tmp_path), recorded)  # as the stage `code` does on another host: equal bytes
    stage.check_unchanged()
    recorded.write_text("0123456789abcdef\n")
    with pytest.raises(PipelineError, match="edited since this run began: code/"):
        stage.check_unchanged(imported=True)


def test_stage_code_that_differs_from_fingerprint_is_rejected(package, tmp_path):
    (tmp_path / "code").mkdir()
    (tmp_path / "code/stage").write_text(f"{fingerprints.fingerprint('p.stage', root=tmp_path)}\n")
    StageCode(["stage"])
    (tmp_path / "code/stage").write_text("0123456789abcdef\n")
    with pytest.raises(PipelineError, match="edited since this run began: stage"):
        StageCode(["stage"])
