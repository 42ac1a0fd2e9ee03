"""Tool ``preset``: replace params.yaml by a complete study from workflow/presets/.

``sample.yaml`` is a complete study. Every other preset has only the values that differ from its base, with comments.
Its key ``base`` names the base; the default is ``sample``.

The output is formatted as `dvc exp run -S` writes params.yaml (dvc.utils.hydra.apply_overrides). So when DVC changes a
key later, only the lines of that key change. In this format, lists are not indented and have one item per line, null is
empty, and strings are quoted only if necessary. A comment on a list is above its key and is kept from the base, so it
has to be true in every preset.
"""

from __future__ import annotations

import argparse
import io
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
# A preset's map of tasks replaces the whole map of its base.
REPLACED = "finetune.per_task"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", help="a study of workflow/presets/, without .yaml")
    parser.add_argument("--list", action="store_true", help="list the studies, and change nothing")


def main(arguments: argparse.Namespace) -> None:
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
    names = sorted(path.stem for path in folder.glob("*.yaml"))
    if name not in names:
        what = "no such preset" if name else "no preset is named"
        raise PipelineError(what, name, where=folder, hint=f"use one of {', '.join(names) or '(the folder is empty)'}")
    path = folder / f"{name}.yaml"
    text = path.read_text(encoding="utf-8")
    if name == SAMPLE:
        return text
    changes = round_trip().load(text)
    base = preset_text(changes.pop("base", SAMPLE), folder)
    values = round_trip().load(base)
    values.ca.comment[1][0].value = f"# {name}: {_title(path)}\n"
    _update(values, changes)
    return dumped(values)


def _update(values: CommentedMap, changes: CommentedMap, prefix: str = "") -> None:
    """Update ``values`` in place by a preset's changes and their comments.

    A changed value loses its old comment. If a change is null and the old value is a mapping, the key is removed.
    """
    for key, change in changes.items():
        is_section = isinstance(change, CommentedMap) and bool(change) and prefix + key != REPLACED
        if change is None and isinstance(values.get(key), CommentedMap):
            del values[key]
            continue
        if is_section:
            _update(values.setdefault(key, CommentedMap()), change, f"{prefix}{key}.")
        else:
            # list() drops the comment lines that ruamel.yaml attaches to the end of a list.
            values[key] = list(change) if isinstance(change, list) else change
        # Keep the comments of top-level sections and of mappings such as "per_task: # of the sample".
        if prefix if is_section else not isinstance(change, CommentedMap):
            _drop_comment(values, key)
        comment = _comment(changes, key)
        if comment:
            _set_comment(values, key, comment)


def _title(path: Path) -> str:
    first_line = path.read_text(encoding="utf-8").partition("\n")[0]
    return first_line.lstrip("# ").removeprefix(f"{path.stem}: ")


def _comment_token(block: CommentedMap, key: str) -> Any:
    # ruamel.yaml's token of the comment behind a value. It also contains the comment lines below the value.
    tokens = block.ca.items.get(key)
    return tokens and tokens[2]


def _comment(block: CommentedMap, key: str) -> str:
    token = _comment_token(block, key)
    return token.value.partition("\n")[0].lstrip("# ") if token else ""


def _set_comment(block: CommentedMap, key: str, comment: str) -> None:
    token = _comment_token(block, key)
    if token:
        token.value = f"# {comment}\n{token.value.partition(chr(10))[2]}"
        # One space after the value, however long the previous value was.
        token.start_mark = CommentMark(0)
    else:
        block.yaml_add_eol_comment(comment, key, column=0)


def _drop_comment(block: CommentedMap, key: str) -> None:
    token = _comment_token(block, key)
    if token:
        token.value = "\n" + token.value.partition("\n")[2]


def round_trip() -> YAML:
    editor = YAML()
    editor.default_flow_style = False
    # A width that no line reaches, so that no line is folded.
    editor.width = 1 << 16
    return editor


def dumped(values: CommentedMap) -> str:
    first, second = io.StringIO(), io.StringIO()
    round_trip().dump(values, first)
    # Dump a second time, which removes quotes that are not needed.
    round_trip().dump(round_trip().load(first.getvalue()), second)
    return second.getvalue()
