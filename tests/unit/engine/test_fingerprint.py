"""Fingerprints of code and of the data files next to it."""

import ast
import hashlib
import shutil

import pytest

from pipeline_src.__main__ import STAGES
from pipeline_src.engine import fingerprint as module
from pipeline_src.engine.fingerprint import fingerprint, imported_files

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
def empty_caches():
    yield
    clear_caches()


def clear_caches():
    """Read files again after an edit, as another process does."""
    for cached in (module._statements, module._file, module._imports, module._is_docstring_only):
        cached.cache_clear()


def fingerprint_with(tree, text, file="p/late/one.py"):
    (tree / file).write_text(text)
    clear_caches()
    return fingerprint("p.q.stage", root=tree)


def test_imported_files_follow_packages_relative_and_inner_imports(tree):
    files = imported_files("p.q.stage", tree)
    assert files == sorted(set(FILES) - {"p/__init__.py", "p/late/unused.py", "p/unused/file.py", "p/q/tables/en.tsv"})
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
def test_fingerprint_ignores_comments_and_formatting(tree, same):
    before = fingerprint_with(tree, CODE)
    assert same != CODE and fingerprint_with(tree, same) == before


@pytest.mark.parametrize(
    "other",
    [CODE.replace("a + b", "a - b"), CODE.replace("(a, b)", "(a, b=1)"), CODE.replace("import os", "import re")],
)
def test_fingerprint_edited_statement_changes_it(tree, other):
    before = fingerprint_with(tree, CODE)
    assert fingerprint_with(tree, other) != before


def test_fingerprint_covers_data_files_and_imports_only(tree):
    before = fingerprint_with(tree, CODE)
    assert fingerprint_with(tree, "x = 1\n", "p/late/unused.py") == before
    assert fingerprint_with(tree, "x = 1\n", "p/unused/file.py") == before
    assert fingerprint_with(tree, "a\tc\n", "p/q/tables/en.tsv") != before


@pytest.mark.parametrize(
    "name", ["stage.py~", "#stage.py#", "stage.py.orig", "stage.py.rej", "tables/en.tsv~", ".ipynb_checkpoints/en.tsv"]
)
def test_fingerprint_ignores_backups_of_editors_and_patches(tree, name):
    before = fingerprint("p.q.stage", root=tree)
    (tree / "p/q/.ipynb_checkpoints").mkdir()
    (tree / "p/q" / name).write_text("another version\n")
    assert fingerprint("p.q.stage", root=tree) == before


def test_fingerprint_covers_members_in_any_order(tree):
    single = fingerprint("p.late.one", root=tree)
    combined = fingerprint("p.late.one", "p.unused.file", root=tree)
    assert combined == fingerprint("p.unused.file", "p.late.one", root=tree) != single
    fingerprint_with(tree, "x = 1\n", "p/unused/file.py")
    assert fingerprint("p.late.one", root=tree) == single
    assert fingerprint("p.late.one", "p.unused.file", root=tree) != combined
    with pytest.raises(FileNotFoundError, match=r"p\.no\.member"):
        fingerprint("p.late.one", "p.no.member", root=tree)


def test_dump_is_equal_in_all_python_versions():
    """Newer Pythons add fields to their trees."""
    text = 'async def f(x: int = 1, *a, **k):\n    return f"{x!r:>{a}}" if x else {**k}\n'
    digest = hashlib.sha256(module._dump(ast.parse(text)).encode())
    assert digest.hexdigest()[:16] == "0ea83bf8e5dfc9c8"


@pytest.mark.parametrize("stage", ["pretrain", "finetune", "clean"])
def test_fingerprint_of_stage_ignores_comments_and_tools(root, tmp_path, stage):
    copy = tmp_path / "copy"
    shutil.copytree(root / "pipeline_src", copy / "pipeline_src", ignore=shutil.ignore_patterns("__pycache__"))
    name = STAGES[stage].module
    before = fingerprint(name, root=copy)
    for path in (copy / "pipeline_src").rglob("*.py"):
        changed = "changed = 1\n" if "tools" in path.parts else ""
        path.write_text(f"# a comment\n{path.read_text()}\n# another\n{changed}")
    clear_caches()
    assert fingerprint(name, root=copy) == before
    errors = copy / "pipeline_src/base/errors.py"
    errors.write_text(f"{errors.read_text()}\nchanged = 1\n")
    clear_caches()
    assert fingerprint(name, root=copy) != before
