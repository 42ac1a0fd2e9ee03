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
import shlex
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
    stages, name = declared_stages(), address.rpartition(":")[2]  # `dvc.yaml:` may come first
    if name not in stages:
        raise PipelineError("no such stage", address, where=DVC_YAML, hint="`dvc stage list` names them")
    deps: list[str] = stages[name]["deps"]
    return deps


def declared_stages() -> dict[str, dict[str, Any]]:
    """Return DVC's name of each stage in dvc.yaml -> its keys, with the study's values filled in.

    ``deps`` is a list of paths, ``params`` file -> list of keys, and ``outs`` path -> options, with metrics and plots.
    """
    try:
        declared = parse_yaml(DVC_YAML.read_text(encoding="utf-8"))
        params: dict[str, Any] = parse_yaml(PARAMS.read_text(encoding="utf-8"))
        values = functools.reduce(_merge, [*declared.get("vars", []), params])
        return {
            address: _normalize(_fill(stage, values | item))
            for name, template in declared["stages"].items()
            for address, item, stage in _members(name, template, values)
        }
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        hint = "use only `${key}` of params.yaml and vars, `foreach` and `matrix` there, as the other stages do"
        raise PipelineError("cannot read the stages", error, where=DVC_YAML, hint=hint) from error


def _members(name: str, template: Any, values: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any], Any]]:
    """Yield name, values and template of each stage that a ``foreach`` or ``matrix`` makes, or of the stage itself."""
    if "foreach" in template:
        items = _fill(template["foreach"], values)
        for key, item in (items if isinstance(items, dict) else dict(zip(items, items, strict=True))).items():
            yield f"{name}@{_command_text(key)}", {"key": key, "item": item}, template["do"]
    elif "matrix" in template:
        lists = _fill(template["matrix"], values)
        for chosen in itertools.product(*lists.values()):
            item = dict(zip(lists, chosen, strict=True))
            yield f"{name}@{'-'.join(map(_command_text, chosen))}", {"item": item}, template | {"matrix": None}
    else:
        yield name, {}, template


def _fill(node: Any, values: Mapping[str, Any]) -> Any:
    """Return ``node`` with the values of all expressions; an expression alone keeps the type of its value."""
    if isinstance(node, dict):
        return {_fill(key, values): _fill(value, values) for key, value in node.items()}
    if isinstance(node, list):
        return [_fill(item, values) for item in node]
    if not isinstance(node, str):
        return node
    if alone := re.fullmatch(EXPRESSION, node):
        return _value(values, alone[1])
    return re.sub(EXPRESSION, lambda match: _command_text(_value(values, match[1])), node)


def _value(values: Mapping[str, Any], expression: str) -> Any:
    return functools.reduce(operator.getitem, expression.split("."), values)  # type: ignore[arg-type]


def _command_text(value: Any) -> str:
    """Return a value as DVC writes it into a text: a mapping as options."""
    items = value.values() if isinstance(value, dict) else ()
    if isinstance(value, list) or any(isinstance(item, bool | dict | list) for item in items):
        raise TypeError(f"only texts and numbers can be options: {value}")
    if isinstance(value, dict):
        return " ".join(f"--{key} {shlex.quote(str(item))}" for key, item in value.items())
    return str(value).lower() if isinstance(value, bool) else str(value)


def _merge(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    shared = {
        key: _merge(first[key], second[key]) for key in first.keys() & second.keys() if isinstance(first[key], dict)
    }
    return first | second | shared


def _normalize(stage: dict[str, Any]) -> dict[str, Any]:
    """Return a stage with one form for each key, of the several that DVC allows."""
    params: dict[str, list[str]] = {}
    for given in stage.get("params", []):
        for file, keys in (given if isinstance(given, dict) else {str(PARAMS): [given]}).items():
            params.setdefault(file, []).extend(keys)
    listed = [out for kind in ("outs", "metrics", "plots") for out in stage.get(kind, [])]
    outs = {path: options for out in listed for path, options in (out if isinstance(out, dict) else {out: {}}).items()}
    return stage | {"deps": stage.get("deps", []), "params": params, "outs": outs}


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
        inner = os.path.join(path, entry)
        is_linked_folder = os.path.islink(inner) and os.path.isdir(inner)  # which DVC leaves out
        if not is_linked_folder and not any(fnmatch.fnmatch(entry, pattern) for pattern in IGNORED):
            yield from _files(inner)


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
