from __future__ import annotations

from pipeline_src.base.mistakes import not_installed


def test_not_installed_gensim_on_python_3_14_hints_at_an_older_python() -> None:
    error = ModuleNotFoundError("No module named 'gensim'", name="gensim.models")
    assert "make study PYTHON=" in str(not_installed(error, (3, 14)))
    assert "make study PYTHON=" not in str(not_installed(error, (3, 13)))
