"""Fingerprints of code: what counts, and what does not."""

import ast
import hashlib
import shutil

import pytest

from pipeline_src.__main__ import STAGES
from pipeline_src.common import fingerprint as module
from pipeline_src.common.fingerprint import fingerprint, imported_files

FILES = {
    "p/__init__.py": '"""Words alone."""\n',
    "p/q/__init__.py": "from p import base\n",
    "p/base.py": "import os\n",
    "p/q/stage.py": "from . import near\nfrom ..other import thing\ndef run():\n    import p.late.one\n",
    "p/q/near.py": "",
    "p/q/tables/en.tsv": "a\tb\n",
    "p/other/__init__.py": "thing = 1\n",
    "p/late/one.py": "",
    "p/late/unused.py": "",
    "p/unused/file.py": "",
}
CODE = '''"""A docstring."""
import os  # a comment


def add(a, b):
    """Another one."""
    return a + b
'''


@pytest.fixture
def tree(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.fixture(autouse=True)
def nothing_remembered():
    """Files of a test are read again after an edit, as by another process."""
    yield
    forget()


def forget():
    for remembered in (module._statements, module._file, module._imports, module._is_docstring_only):
        remembered.cache_clear()


def of_text(tree, text, file="p/late/one.py"):
    (tree / file).write_text(text)
    forget()
    return fingerprint("p.q.stage", root=tree)


def test_it_follows_packages_relative_and_inner_imports(tree):
    found = imported_files("p.q.stage", tree)
    assert found == sorted(set(FILES) - {"p/__init__.py", "p/late/unused.py", "p/unused/file.py", "p/q/tables/en.tsv"})
    assert imported_files("p.late.one", tree) == ["p/late/one.py"]
    with pytest.raises(FileNotFoundError, match=r"p\.q\.stages"):
        imported_files("p.q.stages", tree)


@pytest.mark.parametrize(
    "same",
    [
        CODE.replace("A docstring", "A better docstring"),
        CODE.replace('    """Another one."""\n', ""),
        CODE.replace("a comment", "another"),
        CODE.replace("a + b", "(a\n        + b)"),
        CODE.replace("\n\n\n", "\n# a line\n\n"),
        f"{CODE}\n'a string that stands alone'\n",
    ],
)
def test_words_and_layout_do_not_count(tree, same):
    before = of_text(tree, CODE)
    assert same != CODE and of_text(tree, same) == before


@pytest.mark.parametrize(
    "other",
    [CODE.replace("a + b", "a - b"), CODE.replace("(a, b)", "(a, b=1)"), CODE.replace("import os", "import re")],
)
def test_statements_count(tree, other):
    before = of_text(tree, CODE)
    assert of_text(tree, other) != before


def test_data_beside_the_code_counts_and_other_modules_do_not(tree):
    before = of_text(tree, CODE)
    assert of_text(tree, "x = 1\n", "p/late/unused.py") == before
    assert of_text(tree, "x = 1\n", "p/unused/file.py") == before
    assert of_text(tree, "a\tc\n", "p/q/tables/en.tsv") != before


def test_several_modules_have_one_fingerprint(tree):
    alone = fingerprint("p.late.one", root=tree)
    both = fingerprint("p.late.one", "p.unused.file", root=tree)
    assert both == fingerprint("p.unused.file", "p.late.one", root=tree) != alone
    of_text(tree, "x = 1\n", "p/unused/file.py")
    assert fingerprint("p.late.one", root=tree) == alone
    assert fingerprint("p.late.one", "p.unused.file", root=tree) != both


def test_it_is_the_same_in_every_python():
    """Recorded once; newer Pythons add fields to their trees."""
    text = 'async def f(x: int = 1, *a, **k):\n    return f"{x!r:>{a}}" if x else {**k}\n'
    digest = hashlib.sha256(module._dump(ast.parse(text)).encode())
    assert digest.hexdigest()[:16] == "0ea83bf8e5dfc9c8"


@pytest.mark.parametrize("stage", ["pretrain", "finetune", "clean"])
def test_comments_anywhere_and_changes_in_tools_leave_the_project_as_it_is(root, tmp_path, stage):
    copy = tmp_path / "copy"
    shutil.copytree(root / "pipeline_src", copy / "pipeline_src", ignore=shutil.ignore_patterns("__pycache__"))
    name = STAGES[stage].module
    before = fingerprint(name, root=copy)
    for path in (copy / "pipeline_src").rglob("*.py"):
        changed = "changed = 1\n" if "tools" in path.parts else ""
        path.write_text(f"# a comment\n{path.read_text()}\n# another\n{changed}")
    forget()
    assert fingerprint(name, root=copy) == before
    errors = copy / "pipeline_src/common/errors.py"
    errors.write_text(f"{errors.read_text()}\nchanged = 1\n")
    forget()
    assert fingerprint(name, root=copy) != before
