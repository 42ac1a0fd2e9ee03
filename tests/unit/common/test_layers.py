"""Who may import whom: the layers of the house, walked."""

import ast
from pathlib import Path

import pytest

# Each package may import itself, what is named here, and everything in layer 0.
MAY_IMPORT = {
    "common": set(),
    "params": {"tasks.files.spec"},  # study.py alone, to know the tasks' names
    "sources": set(),
    "corpus": set(),
    "wikipedia": {"corpus"},
    "books": {"corpus"},
    "tokenizer": set(),
    "tokenizer_training": {"corpus", "tokenizer"},
    "word_vectors": {"tokenizer"},
    "examples": {"corpus", "tokenizer"},
    "task_sources": {"sources", "corpus"},
    "models": set(),
    "architectures": {"models"},
    "objectives": {"models", "training", "pretraining"},
    "tasks": {"tokenizer"},
    "training": {"tokenizer", "models"},
    "pretraining": {"tokenizer", "models", "training"},
    "finetuning": {"tokenizer", "models", "tasks", "training"},
    "interpretation": {"corpus", "tokenizer", "models", "tasks.files"},
    "evaluation": {"tasks", "task_sources.synthetic", "task_sources.from_corpus"},
    "statistics": {"corpus", "tokenizer", "examples", "tasks.files"},
    "report": {"evaluation.prediction_files", "evaluation.task_scores", "tasks.handlers", "tasks.files.spec"},
    "tools": {
        *("sources", "tokenizer", "examples", "models", "pretraining", "statistics", "finetuning", "training"),
        *("report", "interpretation", "tasks.files.spec"),
    },
}
LAYER_0 = ("common", "params")
WITHOUT_TORCH = {
    *("common", "params", "sources", "corpus", "wikipedia", "books", "tokenizer", "tokenizer_training", "examples"),
    *("task_sources", "tasks", "word_vectors", "evaluation", "statistics", "report"),
}


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


@pytest.mark.parametrize("package", sorted(MAY_IMPORT))
def test_a_package_imports_only_what_lies_below_it(root, package):
    allowed = (package, *LAYER_0, *MAY_IMPORT[package])
    for path in sorted((root / "pipeline_src" / package).rglob("*.py")):
        for name in imports(path):
            if name.startswith("pipeline_src."):
                inner = name.removeprefix("pipeline_src.")
                assert any(inner == ok or inner.startswith(f"{ok}.") or ok.startswith(f"{inner}.") for ok in allowed), (
                    f"{path.relative_to(root)} imports {name}"
                )


def test_torch_and_beam_stay_where_they_belong(root):
    for path in sorted((root / "pipeline_src").rglob("*.py")):
        package = path.relative_to(root / "pipeline_src").parts[0]
        tops = {name.split(".")[0] for name in imports(path)}
        assert "torch" not in tops or package not in WITHOUT_TORCH | {"__main__.py"}, path
        assert "apache_beam" not in tops or package == "wikipedia", path


def test_every_package_has_its_rule(root):
    packages = {path.parent.name for path in (root / "pipeline_src").glob("*/__init__.py")}
    assert packages == set(MAY_IMPORT)
