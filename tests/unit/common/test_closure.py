"""A stage's code: the folders that its module reaches by imports, and the sum that stands for them."""

import shutil

import pytest

from pipeline_src.__main__ import STAGES
from pipeline_src.common import closure as module
from pipeline_src.common.closure import closure, code_checksum, imported_files

FILES = {
    "p/__init__.py": '"""Words alone."""\n',
    "p/q/__init__.py": "from p import base\n",
    "p/base.py": "import os\n",
    "p/q/stage.py": "from . import near\nfrom ..other import thing\ndef run():\n    import p.late.one\n",
    "p/q/near.py": "",
    "p/other/__init__.py": "thing = 1\n",
    "p/late/one.py": "",
    "p/late/unused.py": "",
    "p/unused/file.py": "",
}


@pytest.fixture
def tree(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_it_follows_packages_relative_and_inner_imports(tree):
    found = imported_files("p.q.stage", tree)
    assert found == sorted(set(FILES) - {"p/__init__.py", "p/late/unused.py", "p/unused/file.py"})
    assert closure("p.q.stage", tree) == ["p"]  # a folder stands for those below it
    assert closure("p.late.one", tree) == ["p/late"]
    with pytest.raises(FileNotFoundError, match=r"p\.q\.stages"):
        closure("p.q.stages", tree)


def test_of_a_member_folder_the_member_that_is_loaded_counts_alone(tree, monkeypatch):
    monkeypatch.setattr(module, "LOADERS", {"p/late/one.py": "p/members/${model.kind}.py"})
    monkeypatch.setattr(module, "MEMBER_FOLDERS", ("p/members",))
    (tree / "p/members").mkdir()
    for name in "ab":
        (tree / f"p/members/{name}.py").write_text("")
    assert closure("p.late.one", tree) == ["p/late", "p/members/${model.kind}.py"]
    sums = {name: code_checksum("p.late.one", {"model.kind": name}, tree) for name in "ab"}
    (tree / "p/members/b.py").write_text("# changed\n")
    assert code_checksum("p.late.one", {"model.kind": "a"}, tree) == sums["a"]
    assert code_checksum("p.late.one", {"model.kind": "b"}, tree) != sums["b"]


@pytest.mark.parametrize("stage", ["pretrain", "finetune"])
def test_a_comment_in_tools_leaves_the_sum_by_which_checkpoints_are_known(root, tmp_path, stage):
    copy = tmp_path / "copy"
    shutil.copytree(root / "pipeline_src", copy / "pipeline_src", ignore=shutil.ignore_patterns("__pycache__"))
    name = STAGES[stage].module
    before = code_checksum(name, root=copy)
    for path in (copy / "pipeline_src/tools").rglob("*.py"):
        path.write_text(f"# a comment\n{path.read_text()}")
    assert code_checksum(name, root=copy) == before
    tokenizer = copy / "pipeline_src/tokenizer/wordpiece.py"
    tokenizer.write_text(f"# a comment\n{tokenizer.read_text()}")
    module._file.cache_clear()
    assert code_checksum(name, root=copy) != before
