"""Detect edits of a stage's dependencies while it runs.

DVC hashes a stage's dependencies once its command has ended. If a file was edited after the stage had read it,
dvc.lock would pair the new file with outputs of the old file. So a stage notes sizes and times of its dependencies
when it starts. If any has changed when the stage ends, it fails, and DVC records nothing.
"""

from __future__ import annotations

import fnmatch
import functools
import itertools
import operator
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.yaml_files import parse_yaml

DVC_YAML, PARAMS = Path("dvc.yaml"), Path("params.yaml")
IGNORED = (".gitignore", ".snakemake_timestamp", ".*.partial", "__pycache__", "*.pyc")  # as in .dvcignore
EXPRESSION = r"\$\{\s*([^}\s]+)\s*\}"
# path -> bytes, time of change (ns); no inode, which differs from one look to the next on some network file systems
Signature = dict[str, tuple[int, int]]


def declared_dependencies(address: str) -> list[str]:
    """Return the ``deps`` of a stage in dvc.yaml, with the study's values filled in.

    Args:
        address: DVC's name of the stage, such as ``tokenize``, ``clean@wikipedia`` or ``finetune@rte-1``.
    """
    try:
        values: dict[str, Any] = parse_yaml(PARAMS.read_text(encoding="utf-8"))
        name, _, item = address.rpartition(":")[2].partition("@")  # `dvc.yaml:` may come first
        stage = parse_yaml(DVC_YAML.read_text(encoding="utf-8"))["stages"][name]
        if "foreach" in stage:
            items = _resolve(stage["foreach"], values)
            values |= {"key": item, "item": items[item] if isinstance(items, dict) else item}
            stage = stage["do"]
        elif "matrix" in stage:
            lists = {key: _resolve(choices, values) for key, choices in stage["matrix"].items()}
            combinations = (dict(zip(lists, chosen, strict=True)) for chosen in itertools.product(*lists.values()))
            (values["item"],) = (chosen for chosen in combinations if "-".join(map(str, chosen.values())) == item)
        return [re.sub(EXPRESSION, lambda match: str(_value(values, match[1])), text) for text in stage.get("deps", [])]
    except (OSError, ValueError, TypeError, KeyError) as error:
        hint = "use only `${key}` of params.yaml there, `foreach` and `matrix`, as the other stages do"
        raise PipelineError("cannot read the dependencies of a stage", address, where=DVC_YAML, hint=hint) from error


def _resolve(given: Any, values: Mapping[str, Any]) -> Any:
    """Return the items of ``foreach`` or ``matrix``; ``given`` is the items, or an expression (``${key}``)."""
    return _value(values, re.fullmatch(EXPRESSION, given)[1]) if isinstance(given, str) else given  # type: ignore[index]


def _value(values: Mapping[str, Any], expression: str) -> Any:
    return functools.reduce(operator.getitem, expression.split("."), values)  # type: ignore[arg-type]


def sign(paths: Iterable[str | Path]) -> Signature:
    """Return the signature of all files at and below ``paths``; missing paths are left out."""
    return {file: (state.st_size, state.st_mtime_ns) for path in paths for file, state in _files(path)}


def _files(path: str | Path) -> Iterator[tuple[str, os.stat_result]]:
    try:
        if not os.path.isdir(path):
            with open(path, "rb") as file:  # on NFS, opening asks the server; `stat` alone may tell what was once true
                yield os.fspath(path), os.fstat(file.fileno())
            return
        entries = sorted(os.listdir(path))
    except FileNotFoundError:
        return
    for entry in entries:
        if not any(fnmatch.fnmatch(entry, pattern) for pattern in IGNORED):
            yield from _files(os.path.join(path, entry))


def check_unchanged_files(before: Signature, paths: Iterable[str | Path]) -> None:
    """Raise an error if a file differs from ``before``, the signature of ``paths`` when the stage started."""
    after = sign(paths)
    changed = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
    if changed:
        more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        raise PipelineError(
            "a dependency changed while the stage ran; what it made is not recorded", f"{changed[0]}{more}",
            hint="if the edit is meant to stay, start again (`snakemake all` or `dvc repro`); else put it back first",
        )  # fmt: skip


@dataclass
class Checks:
    """Functions that raise an error if inputs of the running stage were edited; outside of DVC they do nothing."""

    before_saving: Callable[[], None] = lambda: None  # no checkpoint or cache is computed from edited inputs
    before_finishing: Callable[[], None] = lambda: (
        None
    )  # before checkpoints are deleted: training can continue from them


CHECKS = Checks()
