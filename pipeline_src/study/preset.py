"""Tool ``preset``: replace params.yaml by a complete study.

``workflow/presets/sample.yaml`` is complete. Every other file there has only what differs, with comments, from the
preset that its key ``base`` names, by default ``sample``.

The output has the form in which `dvc exp run -S` writes params.yaml (dvc.utils.hydra.apply_overrides), so that DVC
changes only the lines of the changed key: lists are not indented and have an item per line, null is empty, and strings
are quoted only if necessary. The comment on a list is above its key and stays, so it has to be true in every preset.
"""

from __future__ import annotations

import argparse
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap
from ruamel.yaml.error import CommentMark

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import atomic_file
from pipeline_src.base.yaml_files import parse_yaml
from pipeline_src.study.study import check_study

PRESETS, PARAMS = Path("workflow/presets"), Path("params.yaml")
SAMPLE = "sample"
REPLACED = "finetune.per_task"  # a preset's map of tasks replaces the whole map of its base


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command-line arguments."""
    parser.add_argument("name", nargs="?", help="a study of workflow/presets/, without .yaml")
    parser.add_argument("--list", action="store_true", help="list the studies, and change nothing")


def main(arguments: argparse.Namespace) -> None:
    """List the presets, or put one in place."""
    if arguments.list:
        for path in sorted(PRESETS.glob("*.yaml")):
            print(f"{path.stem:<20} {_title(path)}")
        return
    text = preset_text(arguments.name)
    check_study(parse_yaml(text), PRESETS / f"{arguments.name}.yaml")
    with atomic_file(PARAMS) as file:
        file.write(text)
    print(f"params.yaml is now the study {arguments.name!r}; `git diff params.yaml` shows what changed")


def preset_text(name: str | None, folder: Path = PRESETS) -> str:
    """Return the text of params.yaml for a preset."""
    names = sorted(path.stem for path in folder.glob("*.yaml"))
    if name not in names:
        what = "no such preset" if name else "no preset is named"
        raise PipelineError(what, name, where=folder, hint=f"there are {', '.join(names) or 'none'}")
    path = folder / f"{name}.yaml"
    text = path.read_text(encoding="utf-8")
    if name == SAMPLE:
        return text
    changes = round_trip().load(text)
    base = preset_text(changes.pop("base", SAMPLE), folder)
    return merged(base, f"# {name}: {_title(path)}", changes)


def merged(base: str, title: str, changes: CommentedMap) -> str:
    """Return the text of ``base`` with another title and other values; a changed value loses the base's comment.

    A map in ``changes`` updates the map in ``base``; null removes that map.
    """
    values = round_trip().load(base)
    values.ca.comment[1][0].value = f"{title}\n"
    for key, value, has_items in _items(changes):
        if has_items:
            continue
        value = list(value) if isinstance(value, list) else value  # a plain list, without the lines that follow it
        parts = key.split(".")
        for depth in range(2, len(parts)):  # the comment may be on a map around the value
            _drop_comment(*_parent(values, ".".join(parts[:depth])))
        block, last = _parent(values, key)
        if value is None and isinstance(block.get(last), CommentedMap):  # a source that the study does not have
            del block[last]
            continue
        block[last] = value
        if not isinstance(value, CommentedMap):
            _drop_comment(block, last)
    for key, _, _ in _items(changes):
        if comment := _comment(*_parent(changes, key)):
            _set_comment(*_parent(values, key), comment)
    return dumped(values)


def _items(block: CommentedMap, prefix: str = "") -> Iterator[tuple[str, Any, bool]]:
    """Yield (dotted key, value, whether the value is a map whose items follow)."""
    for key, value in block.items():
        has_items = isinstance(value, CommentedMap) and bool(value) and prefix + key != REPLACED
        yield prefix + key, value, has_items
        if has_items:
            yield from _items(value, f"{prefix}{key}.")


def _title(path: Path) -> str:
    first_line = path.read_text(encoding="utf-8").partition("\n")[0]
    return first_line.lstrip("# ").removeprefix(f"{path.stem}: ")


def _parent(values: CommentedMap, key: str) -> tuple[CommentedMap, str]:
    """Return the map that holds a dotted key, and the key's last part."""
    *above, last = key.split(".")
    for name in above:
        values = values.setdefault(name, CommentedMap())
    return values, last


def _comment_token(block: CommentedMap, key: str) -> Any:
    """Return the token that has a value's comment and the comment lines below it, or None."""
    tokens = block.ca.items.get(key)
    return tokens and tokens[2]


def _comment(block: CommentedMap, key: str) -> str:
    token = _comment_token(block, key)
    return token.value.partition("\n")[0].lstrip("# ") if token else ""


def _set_comment(block: CommentedMap, key: str, comment: str) -> None:
    """Put a comment after a key's value; lines of comments below it stay."""
    if token := _comment_token(block, key):
        token.value = f"# {comment}\n{token.value.partition(chr(10))[2]}"
        token.start_mark = CommentMark(0)  # one space after the value, however long the previous value was
    else:
        block.yaml_add_eol_comment(comment, key, column=0)


def _drop_comment(block: CommentedMap, key: str) -> None:
    if token := _comment_token(block, key):
        token.value = "\n" + token.value.partition("\n")[2]


def round_trip() -> YAML:
    """Return a YAML reader and writer that keeps comments and layout."""
    editor = YAML()
    editor.default_flow_style = False  # for values that are put in
    editor.width = 1 << 16  # no line is folded
    return editor


def dumped(values: CommentedMap) -> str:
    """Return the text of values loaded by ``round_trip`` and changed."""
    first, second = io.StringIO(), io.StringIO()
    round_trip().dump(values, first)
    round_trip().dump(round_trip().load(first.getvalue()), second)  # without quotes that are not needed
    return second.getvalue()
