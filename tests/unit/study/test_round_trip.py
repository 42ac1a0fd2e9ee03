"""`dvc exp run -S key=value` changes only the lines of that key in params.yaml."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from dvc.utils.hydra import apply_overrides

from pipeline_src.study.preset import preset_text

ROOT = Path(__file__).resolve().parents[3]
FILES = sorted(path.stem for path in (ROOT / "workflow/presets").glob("*.yaml"))
Tree = dict[str, Any]


def text_of(name: str) -> str:
    return preset_text(name, ROOT / "workflow/presets")


def apply(text: str, overrides: list[str], folder: Path) -> str:
    """The text of a study after `dvc exp run -S`."""
    path = folder / "params.yaml"
    path.write_text(text, encoding="utf-8")
    apply_overrides(path, overrides)
    return path.read_text(encoding="utf-8")


def leaves(tree: Tree, kind: type | tuple[type, ...], parent: str = "") -> Iterator[tuple[str, Any]]:
    """Keys with dots whose value is of a kind."""
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from leaves(value, kind, f"{parent}{key}.")
        elif isinstance(value, kind):
            yield f"{parent}{key}", value


def lines_of(text: str) -> dict[str, range]:
    """Key with dots -> the lines it takes."""
    ranges: dict[str, range] = {}

    def collect(node: yaml.MappingNode, parent: str) -> None:
        for key, value in node.value:
            name = f"{parent}{key.value}"
            if isinstance(value, yaml.MappingNode):
                collect(value, f"{name}.")
            else:
                # A block's end is the beginning of what comes behind it.
                last = value.end_mark.line - (value.end_mark.column == 0 or not getattr(value, "flow_style", True))
                ranges[name] = range(key.start_mark.line, max(last, key.start_mark.line) + 1)

    collect(yaml.compose(text), "")
    return ranges


def other_value(value: Any) -> str:
    """Another value of the same kind, and longer, as `-S` takes it."""
    if value is None or isinstance(value, bool):
        return json.dumps(not value)
    if isinstance(value, int):
        return str(value * 10 + 1)
    return f"{value}1" if isinstance(value, str) else repr(value * 0.75 + 1e-7)


def overridden(overrides: dict[str, str], text: str) -> Tree:
    """A study's values with some of its keys set to others."""
    tree: Tree = yaml.safe_load(text)
    for name, value in overrides.items():
        *parent, last = name.split(".")
        block = tree
        for key in parent:
            block = block[key]
        block[last] = yaml.safe_load(value)
    return tree


@pytest.mark.parametrize("name", FILES)
def test_apply_overrides_all_values_change_only_their_lines(name: str, tmp_path: Path) -> None:
    """Twice: the second time in the form that DVC has written."""
    text = text_of(name)
    assert apply(text, ["seed=1"], tmp_path) == text, "the value that it has"
    for _ in range(2):
        values = {key: other_value(value) for key, value in leaves(yaml.safe_load(text), (str, int, float, type(None)))}
        assert len(values) > 80
        new = apply(text, [f"{key}={value}" for key, value in values.items()], tmp_path)
        assert len(new.splitlines()) == len(text.splitlines())
        lines, allowed = lines_of(text), set[int]()
        for key in values:
            assert len(lines[key]) == 1
            allowed |= set(lines[key])
        pairs = zip(text.splitlines(), new.splitlines(), strict=True)
        assert {number for number, (before, after) in enumerate(pairs) if before != after} == allowed
        assert comments(new) == comments(text)
        text = new


@pytest.mark.parametrize("name", ["sample", "multilingual", "roberta-base"])
def test_apply_overrides_lists_change_only_their_lines(name: str, tmp_path: Path) -> None:
    """Also one that is emptied and filled again: DVC breaks the YAML if a comment follows its key."""
    text = text_of(name)
    for now in ("[11,0.25,a text]", "[]", "[[a,b],[c,d]]"):
        lists = {key: now for key, _ in leaves(yaml.safe_load(text), list)}
        assert len(lists) >= 8
        new = apply(text, [f"{key}={value}" for key, value in lists.items()], tmp_path)
        assert yaml.safe_load(new) == overridden(lists, text)
        assert comments(new) == comments(text)
        assert outside(new, lists) == outside(text, lists)
        text = new


def comments(text: str) -> list[str]:
    return [line.partition("# ")[2] for line in text.splitlines() if "# " in line]


def outside(text: str, keys: dict[str, str]) -> list[str]:
    """Lines of other keys."""
    lines = lines_of(text)
    taken = {number for key in keys for number in lines[key]}
    return [line for number, line in enumerate(text.splitlines()) if number not in taken]
