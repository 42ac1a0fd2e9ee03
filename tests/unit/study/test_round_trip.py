"""`dvc exp run -S key=value` changes only the lines of that key in params.yaml."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from dvc.utils.hydra import apply_overrides

from pipeline_src.study.preset import preset_text

PRESETS = Path(__file__).resolve().parents[3] / "workflow/presets"


def apply(text: str, values: dict[str, Any], folder: Path) -> str:
    """Return the text of a study after `dvc exp run -S`, whose values may be JSON."""
    path = folder / "params.yaml"
    path.write_text(text, encoding="utf-8")
    apply_overrides(path, [f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in values.items()])
    return path.read_text(encoding="utf-8")


def leaves(tree: dict[str, Any], parent: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{parent}{key}.")
        else:
            yield f"{parent}{key}", value


def normalised(text: str) -> str:
    """What DVC writes otherwise: "min: 200   # words" for a value that was longer, and 1e-05 for 0.00001."""
    return re.sub(r"\b0\.0+\d+", lambda number: repr(float(number[0])), re.sub(" +#", " #", text))


def comments(text: str) -> list[str]:
    return [line.partition("# ")[2] for line in text.splitlines() if "# " in line]


@pytest.mark.parametrize("name", sorted(path.stem for path in PRESETS.glob("*.yaml")))
def test_apply_overrides_and_back_gives_the_same_text(name: str, tmp_path: Path) -> None:
    text = preset_text(name, PRESETS)
    assert apply(text, {"seed": 1}, tmp_path) == text
    values = dict(leaves(yaml.safe_load(text)))
    lists = {key: [] for key, value in values.items() if isinstance(value, list)}
    assert len(lists) >= 8 and len(values) > 80
    changed = apply(text, {key: "other" for key in values} | {key: [11, "a text"] for key in lists}, tmp_path)
    # DVC breaks the YAML of an emptied list if a comment follows its key.
    emptied = apply(changed, lists, tmp_path)
    assert yaml.safe_load(emptied).keys() == yaml.safe_load(text).keys()
    assert comments(changed) == comments(emptied) == comments(text)
    for other in (text, changed, emptied):
        assert normalised(apply(other, values, tmp_path)) == normalised(text)
