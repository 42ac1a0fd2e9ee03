"""No module imports itself by way of others, at its top or inside a function: each can be read, and moved, alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

FOLDERS = {"pipeline_src": "pipeline_src.", "workflow": ""}  # what names of modules begin with


def module_files(root: Path) -> dict[str, Path]:
    """Every module by the name that others import it by: those of workflow/ import each other without a package."""
    files = {}
    for folder, prefix in FOLDERS.items():
        for path in sorted((root / folder).rglob("*.py")):
            parts = path.relative_to(root / folder).with_suffix("").parts
            name = prefix + ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            files[name.rstrip(".") or folder] = path
    return files


def imported(path: Path, name: str) -> Iterator[str]:
    """What a file imports anywhere in it: modules, and names that may be modules of a package."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package.rsplit(".", node.level - 1)[0] if node.level else ""
            module = ".".join(part for part in (base, node.module) if part)
            names = [f"{module}.{alias.name}" for alias in node.names]
            yield from names
            yield module


def import_graph(root: Path) -> dict[str, set[str]]:
    """Module -> modules of this project that it imports; a package only where names of its own are meant."""
    files = module_files(root)
    graph = {}
    for name, path in files.items():
        names = [target for target in imported(path, name) if target in files]
        submodules = {target.rpartition(".")[0] for target in names}
        graph[name] = {target for target in names if target not in submodules}
    return graph


def find_circle(graph: Mapping[str, set[str]]) -> list[str]:
    """A circle, from a module back to itself; empty where there is none."""
    done: set[str] = set()

    def walk(name: str, way: list[str]) -> list[str]:
        if name in way:
            return [*way[way.index(name) :], name]
        if name not in done:
            for target in sorted(graph[name]):
                if circle := walk(target, [*way, name]):
                    return circle
            done.add(name)
        return []

    return next((circle for name in graph if (circle := walk(name, []))), [])


def test_there_is_none(root: Path) -> None:
    graph = import_graph(root)
    assert len(graph) > 150 and sum(map(len, graph.values())) > 500
    assert "pipeline_src.common.errors" in graph["pipeline_src.config.study"]
    assert any(target in graph for name in graph if not name.startswith("pipeline_src") for target in graph[name])
    assert find_circle(graph) == []


def test_circles_are_found_wherever_the_imports_stand(tmp_path: Path) -> None:
    texts = {
        "pipeline_src/__init__.py": "",
        "pipeline_src/a.py": "from pipeline_src import b\n",
        "pipeline_src/b.py": "def late():\n    from pipeline_src.c import thing\n",
        "pipeline_src/c.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .a import thing\n",
        "workflow/x.py": "import y\n",
        "workflow/y.py": "import pipeline_src.a\n",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    circle = ["pipeline_src.a", "pipeline_src.b", "pipeline_src.c", "pipeline_src.a"]
    assert find_circle(import_graph(tmp_path)) == circle
    (tmp_path / "pipeline_src/c.py").write_text("", encoding="utf-8")
    assert find_circle(import_graph(tmp_path)) == []
    (tmp_path / "pipeline_src/c.py").write_text("import y\n", encoding="utf-8")
    assert find_circle(import_graph(tmp_path)) == [
        "pipeline_src.a",
        "pipeline_src.b",
        "pipeline_src.c",
        "y",
        "pipeline_src.a",
    ]
