"""Imports between folders: the core from low to high, the rings around it, torch and Beam only where they belong."""

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

# From low to high: a folder imports itself and those before it.
CORE = (
    *("base", "engine", "study", "sources", "text", "tokenizer", "tasks", "examples"),
    *("model", "training", "pretrain", "finetune", "evaluate", "report"),
)
# A ring imports the core and the rings before it; nothing in the core imports a ring.
RINGS = ("family", "interpret", "tools")
WITHOUT_TORCH = {
    *("base", "engine", "study", "sources", "text", "tokenizer", "tasks", "examples", "evaluate", "report"),
    "__main__.py",
}


def imports(path: Path, for_types: bool = True) -> set[str]:
    """Names imported anywhere in a file: modules, and names that may be modules of a package."""
    names, tree = set(), ast.parse(path.read_text(encoding="utf-8"))
    if not for_types:
        tree.body = [
            node for node in tree.body if not isinstance(node, ast.If) or "TYPE_CHECKING" not in ast.dump(node)
        ]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


@pytest.mark.parametrize("folder", [*CORE, *RINGS])
def test_folder_imports_only_lower_folders(root, folder):
    order = [*CORE, *RINGS]
    allowed = order[: order.index(folder) + 1]
    for path in sorted((root / "pipeline_src" / folder).rglob("*.py")):
        for name in imports(path):
            if name.startswith("pipeline_src."):
                assert name.split(".")[1] in allowed, f"{path.relative_to(root)} imports {name}"


def test_torch_and_beam_are_imported_only_where_allowed(root):
    for path in sorted((root / "pipeline_src").rglob("*.py")):
        package = path.relative_to(root / "pipeline_src").parts[0]
        tops = {name.split(".")[0] for name in imports(path)}
        assert "torch" not in tops or package not in WITHOUT_TORCH, path
        assert "torch" not in tops or path.name != "train_word_vectors.py", path
        assert "apache_beam" not in tops or path.name == "beam.py", path


def test_layer_order_lists_every_folder(root):
    folders = {path.parent.name for path in (root / "pipeline_src").glob("*/__init__.py")}
    assert folders == {*CORE, *RINGS}


def import_graph(root: Path) -> dict[str, set[str]]:
    """Module -> modules of this project that it imports; a package only if its own names are imported."""
    files = {}
    for folder in ("pipeline_src", "workflow"):  # modules of workflow/ import each other without a package
        base = root if folder == "pipeline_src" else root / folder
        for path in (root / folder).rglob("*.py"):
            files[".".join(path.relative_to(base).with_suffix("").parts).removesuffix(".__init__")] = path
    graph = {}
    for module, path in files.items():
        names = imports(path, for_types=False) & files.keys()
        graph[module] = names - {name.rpartition(".")[0] for name in names}
    return graph


def test_imports_have_no_cycle(root):
    graph = import_graph(root)
    assert len(graph) > 150 and sum(map(len, graph.values())) > 500
    assert "pipeline_src.base.errors" in graph["pipeline_src.study.study"]
    TopologicalSorter(graph).prepare()


def test_imports_inside_functions_count_as_cycle(tmp_path):
    texts = {
        "pipeline_src/a.py": "from pipeline_src import b\n",
        "pipeline_src/b.py": "def late():\n    from pipeline_src.c import thing\n",
        "pipeline_src/c.py": "import y\n",
        "workflow/y.py": "import pipeline_src.a\n",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(CycleError):
        TopologicalSorter(import_graph(tmp_path)).prepare()
