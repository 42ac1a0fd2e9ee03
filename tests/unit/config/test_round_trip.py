"""`dvc exp run -S key=value` changes the lines of that key in params.yaml, and no other."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from dvc.utils.hydra import apply_overrides

from pipeline_src.tools.preset import preset_text

ROOT = Path(__file__).resolve().parents[3]
FILES = sorted(path.stem for path in (ROOT / "workflow/presets").glob("*.yaml"))
# Of every study: a decimal, what is read as a text or written by its exponent, a number, null, words, inside of {}.
ONE = [
    "mask_prob=0.2", "seed=2", "corpus.sources.wikipedia.date=20260901", "corpus.sources.wikipedia.from=own-wikipedia",
    "vocabulary.lowercase=null",
    "examples.max_seq_length.phase1=96", "model.num_attention_heads=null", "model.num_attention_heads=4",
    "pretrain.learning_rate=0.00003",
    "pretrain.adam_epsilon=1e-9", "pretrain.steps.phase2=123456", "pretrain.masking.max_predictions=77",
    "objectives.distilbert.init=random", "task_source=null", "finetune.defaults.max_length=96",
    "finetune.defaults.dropout=0.25", "interpretation.words=12",
]  # fmt: skip
Tree = dict[str, Any]


def text_of(name: str) -> str:
    """A preset's text."""
    return preset_text(name, ROOT / "workflow/presets")


def applied(text: str, overrides: list[str], folder: Path) -> str:
    """What DVC makes of a study's text."""
    path = folder / "params.yaml"
    path.write_text(text, encoding="utf-8")
    apply_overrides(path, overrides)
    return path.read_text(encoding="utf-8")


def differing(before: str, after: str) -> list[str]:
    """Lines that one of two texts has alone, with the sign of that text."""
    lines = difflib.ndiff(before.splitlines(), after.splitlines())
    return [line for line in lines if line[0] in "+-"]


def leaves(tree: Tree, kind: type | tuple[type, ...], above: str = "") -> Iterator[tuple[str, Any]]:
    """Keys with dots whose value is of a kind."""
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from leaves(value, kind, f"{above}{key}.")
        elif isinstance(value, kind):
            yield f"{above}{key}", value


def lines_of(text: str) -> dict[str, range]:
    """Key with dots -> the lines it takes."""
    found: dict[str, range] = {}

    def collect(node: yaml.MappingNode, above: str) -> None:
        for key, value in node.value:
            name = f"{above}{key.value}"
            if isinstance(value, yaml.MappingNode):
                collect(value, f"{name}.")
            else:  # a block's end is the beginning of what comes behind it
                last = value.end_mark.line - (value.end_mark.column == 0 or not getattr(value, "flow_style", True))
                found[name] = range(key.start_mark.line, max(last, key.start_mark.line) + 1)

    collect(yaml.compose(text), "")
    return found


def other(value: Any) -> str:
    """Another value of the same kind, and longer, as `-S` takes it."""
    if value is None or isinstance(value, bool):
        return json.dumps(not value)
    if isinstance(value, int):
        return str(value * 10 + 1)
    return f"{value}1" if isinstance(value, str) else repr(value * 0.75 + 1e-7)


def written(overrides: dict[str, str], text: str) -> Tree:
    """What a study holds once some of its keys have other values."""
    tree: Tree = yaml.safe_load(text)
    for name, value in overrides.items():
        *above, last = name.split(".")
        block = tree
        for key in above:
            block = block[key]
        block[last] = yaml.safe_load(value)
    return tree


@pytest.mark.parametrize("name", FILES)
def test_one_value_is_one_line(name: str, tmp_path: Path) -> None:
    text = text_of(name)
    assert applied(text, ["seed=1"], tmp_path) == text, "what it is already"
    changed = differing(text, applied(text, ["mask_prob=0.2123"], tmp_path))
    assert [line[:12] for line in changed] == ["- mask_prob:", "+ mask_prob:"]
    assert changed[1].partition(" #")[0].endswith("0.2123") and ("#" in changed[0]) == ("#" in changed[1])


@pytest.mark.parametrize("override", ONE)
def test_one_value_of_any_block_is_one_line(override: str, tmp_path: Path) -> None:
    for name in ("sample", "bert-base"):
        text = text_of(name)
        changed = differing(text, applied(text, [override], tmp_path))
        if yaml.safe_load(text) == written(dict([override.split("=")]), text):  # null for null
            assert not changed
        else:
            assert [line[0] for line in changed] == ["-", "+"], name


def test_one_tasks_rate_is_one_line(tmp_path: Path) -> None:
    for name, key in (
        ("sample", "finetune.per_task.swapped.learning_rates=[0.003,0.00001]"),
        ("sample", "finetune.per_task.qnli.epochs=5"),
        ("bert-base", "finetune.per_task.squad1.learning_rates=[0.0001]"),
        ("bert-base", "finetune.per_task.pos.batch_sizes=16"),
        ("tinybert-4", "finetune.defaults.layer_learning_rate=0.00002"),
    ):
        text = text_of(name)
        assert [line[0] for line in differing(text, applied(text, [key], tmp_path))] == ["-", "+"], key


@pytest.mark.parametrize("name", FILES)
def test_all_values_at_once_are_their_lines_and_nothing_else(name: str, tmp_path: Path) -> None:
    """Twice: in the form that DVC has written, it writes again."""
    text = text_of(name)
    for _ in range(2):
        values = {key: other(value) for key, value in leaves(yaml.safe_load(text), (str, int, float, type(None)))}
        assert len(values) > 80
        new = applied(text, [f"{key}={value}" for key, value in values.items()], tmp_path)
        assert len(new.splitlines()) == len(text.splitlines())
        lines, allowed = lines_of(text), set[int]()
        for key in values:
            assert len(lines[key]) == 1
            allowed |= set(lines[key])
        pairs = zip(text.splitlines(), new.splitlines(), strict=True)
        assert {number for number, (before, after) in enumerate(pairs) if before != after} == allowed
        assert comments(new) == comments(text)
        text = new


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("items", ["[]", "[11,0.25,a text]", "[[a,b],[c,d]]"])
def test_a_list_is_its_lines_and_nothing_else(name: str, items: str, tmp_path: Path) -> None:
    """One that is emptied and filled anew too: with a comment behind its key, DVC writes what is no YAML."""
    text = text_of(name)
    for now in (items, "[]", "[a,b]"):
        lists = {key: now for key, _ in leaves(yaml.safe_load(text), list)}
        assert len(lists) >= 8
        new = applied(text, [f"{key}={value}" for key, value in lists.items()], tmp_path)
        assert yaml.safe_load(new) == written(lists, text)
        assert comments(new) == comments(text)
        assert outside(new, lists) == outside(text, lists)
        text = new


def comments(text: str) -> list[str]:
    """All comments, in their order."""
    return [line.partition("# ")[2] for line in text.splitlines() if "# " in line]


def outside(text: str, keys: dict[str, str]) -> list[str]:
    """The lines that are none of some keys'."""
    lines = lines_of(text)
    taken = {number for key in keys for number in lines[key]}
    return [line for number, line in enumerate(text.splitlines()) if number not in taken]
