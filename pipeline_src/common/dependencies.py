"""Notice edits of what a stage depends on, made while it runs.

DVC hashes a stage's dependencies once its command has ended. If a file was edited after the stage had read it,
dvc.lock would pair the new file with outputs of the old one. So a stage notes sizes, times and inodes of its
dependencies when it starts, and fails if one differs when it ends: what fails is not recorded.
"""

from __future__ import annotations

import fnmatch
import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.yaml_files import parse_yaml

DVC_YAML, PARAMS = Path("dvc.yaml"), Path("params.yaml")
IGNORED = (".gitignore", ".snakemake_timestamp", ".*.partial", "__pycache__", "*.pyc")  # as in .dvcignore
_WATCHED: list[Callable[[], None]] = []
Signature = dict[str, tuple[int, int, int]]  # path -> bytes, time of change (ns), inode


def declared_dependencies(address: str) -> list[str]:
    """Return the paths that dvc.yaml lists as ``deps`` of a stage, with the study's values filled in.

    Args:
        address: DVC's name of the stage, such as ``tokenize``, ``clean@wikipedia`` or ``finetune@rte-1``.
    """
    values: dict[str, Any] = parse_yaml(PARAMS.read_text(encoding="utf-8"))
    name, _, item = address.rpartition(":")[2].partition("@")  # `dvc.yaml:` may come first
    stage = parse_yaml(DVC_YAML.read_text(encoding="utf-8"))["stages"][name]
    if "foreach" in stage:
        items = _value(values, _expressions(stage["foreach"])[0])
        values |= {"key": item, "item": items[item]}
        stage = stage["do"]
    elif "matrix" in stage:
        lists = {key: _value(values, _expressions(text)[0]) for key, text in stage["matrix"].items()}
        combinations = (dict(zip(lists, chosen, strict=True)) for chosen in itertools.product(*lists.values()))
        values["item"] = next(each for each in combinations if "-".join(map(str, each.values())) == item)
    return [_fill(text, values) for text in stage["deps"]]


def _expressions(text: str) -> list[str]:
    return re.findall(r"\$\{\s*([^}\s]+)\s*\}", text)


def _value(values: Mapping[str, Any], expression: str) -> Any:
    found: Any = values
    for key in expression.split("."):
        found = found[key]
    return found


def _fill(text: str, values: Mapping[str, Any]) -> str:
    return re.sub(r"\$\{\s*([^}\s]+)\s*\}", lambda match: str(_value(values, match[1])), text)


def sign(paths: Iterable[str | Path]) -> Signature:
    """Return the signature of all files at these paths and below; of a missing path there is none."""
    return {file: (state.st_size, state.st_mtime_ns, state.st_ino) for path in paths for file, state in _files(path)}


def _files(path: str | Path) -> Iterator[tuple[str, os.stat_result]]:
    try:
        if not os.path.isdir(path):
            yield os.fspath(path), os.stat(path)
            return
        entries = sorted(os.listdir(path))
    except FileNotFoundError:
        return
    for entry in entries:
        if not any(fnmatch.fnmatch(entry, pattern) for pattern in IGNORED):
            yield from _files(os.path.join(path, entry))


def check_unchanged_files(before: Signature, paths: Iterable[str | Path]) -> None:
    """Compare files with their signature when the stage started.

    Raises:
        PipelineError: one was edited, replaced, added or removed.
    """
    after = sign(paths)
    changed = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
    if changed:
        others = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        raise PipelineError(
            "a dependency changed while the stage ran; what it made is not recorded", f"{changed[0]}{others}",
            hint="if the edit is meant to stay, start again (`snakemake all` or `dvc repro`); else put it back first",
        )  # fmt: skip


def watch(check: Callable[[], None]) -> None:
    """Have this process's stage call ``check`` before it saves its state."""
    _WATCHED[:] = [check]


def check_watched() -> None:
    """Run the check of this process's stage, if it has one: a state that an edit has reached must not be saved.

    Raises:
        PipelineError: a dependency of the stage was edited.
    """
    for check in _WATCHED:
        check()
