"""Who may import whom: the layers of the house, walked."""

import ast
from pathlib import Path

import pytest

# Each package may import itself, what is named here, and everything in layer 0.
MAY_IMPORT = {
    "common": set(),
    "config": {"tasks.spec"},  # study.py alone, to know the tasks' names
    "download": {"corpus", "tasks"},
    "corpus": {"tokenizer", "examples", "tasks.readers", "tasks.spec"},  # the last three: corpus_statistics.py alone
    "tokenizer": {"corpus"},  # train_tokenizer.py alone
    "examples": {"corpus", "tokenizer"},
    "models": set(),
    "objectives": {"models", "training", "pretraining"},
    "tasks": {"tokenizer"},
    "training": {"tokenizer", "models"},
    "pretraining": {"tokenizer", "examples.token_store", "models", "training", "download"},  # the last: start_model.py
    "finetuning": {"tokenizer", "models", "tasks", "training"},
    "interpretation": {"corpus", "tokenizer", "models", "tasks.readers", "tasks.spec"},
    "evaluation": {"tasks", "download.synthetic", "download.from_corpus"},
    "report": {"evaluation.scores", "tasks.kinds", "tasks.spec"},
    "tools": {
        *("download", "tokenizer", "examples", "models", "pretraining", "corpus", "finetuning", "training"),
        *("report", "interpretation", "tasks.spec"),
    },
}
LAYER_0 = ("common", "config")
WITHOUT_TORCH = {
    *("common", "config", "download", "corpus", "tokenizer", "examples", "tasks", "evaluation"),
    "report",
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
        assert "torch" not in tops or path.name != "train_word_vectors.py", path
        assert "apache_beam" not in tops or path.parent.name == "wikipedia", path


def test_every_package_has_its_rule(root):
    packages = {path.parent.name for path in (root / "pipeline_src").glob("*/__init__.py")}
    assert packages == set(MAY_IMPORT)
