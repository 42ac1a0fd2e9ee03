"""Read a stage's dependencies from dvc.yaml, and detect edits of these files while the stage runs.

DVC hashes a stage's dependencies after its command has ended. If a file was edited after the stage had read it,
dvc.lock would pair the hash of the new file with outputs of the old file. So a stage notes the sizes, times and hashes
of its dependencies when it starts. If a dependency has changed when the stage ends, the stage fails, and DVC records
nothing.

This module parses dvc.yaml itself, in 0.01 s. DVC's own index of the sample study's 41 stages takes 0.5 s, and each
stage would have to build it.
"""

from __future__ import annotations

import fnmatch
import functools
import hashlib
import itertools
import operator
import os
import re
import shlex
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.yaml_files import parse_yaml

DVC_YAML, PARAMS = Path("dvc.yaml"), Path("params.yaml")
# The same patterns as in .dvcignore, where # is escaped. The second row is of editors, patches and notebooks.
IGNORED = (
    *(".gitignore", ".snakemake_timestamp", ".*.partial", "__pycache__", "*.pyc"),
    *("*~", ".#*", "#*#", "*.orig", "*.rej", ".ipynb_checkpoints"),
)
# "${finetune.seeds}" -> "finetune.seeds"
EXPRESSION = r"\$\{\s*([^}\s]+)\s*\}"
# At its start, a stage hashes its smallest dependencies, up to this total size. That takes 50 ms.
MAX_HASHED_BYTES = 32 << 20
# For about a second, `dvc exp run --queue` and `--temp` replace this file by the experiment's values.
REWRITTEN = (str(PARAMS),)


@dataclass(frozen=True)
class FileState:
    """State of a file, to detect whether it has changed.

    The inode is left out, since some network file systems change it.

    Attributes:
        size: bytes.
        modified: mtime in ns, the time of the last write. Programs such as `touch` can set it.
        changed: ctime in ns, the time of the last change of content or metadata. No program can set it.
        access: permissions, number of links, user and group.
        md5: hash of the content when the stage started; None if the file was too large to hash.
    """

    size: int
    modified: int
    changed: int
    access: tuple[int, int, int, int]
    md5: str | None = None


# Path -> state of the file.
Signature = dict[str, FileState]


def declared_stage(address: str, stages: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    # DVC's addresses look like "tokenize", "finetune@rte-1" or "dvc.yaml:tokenize".
    name = address.rpartition(":")[2]
    if name not in stages:
        raise PipelineError("no such stage", address, where=DVC_YAML, hint="use a name that `dvc stage list` prints")
    return stages[name]


def declared_stages() -> dict[str, dict[str, Any]]:
    """Return name -> declaration of each stage in dvc.yaml, with the study's values filled in.

    In a declaration, ``deps`` is a list of paths. ``params`` maps a file to a list of its keys. ``outs`` maps the path
    of each output, metric and plot to its options.
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
        hint = "in dvc.yaml, use only `foreach`, `matrix`, and `${key}` with a key of params.yaml or vars"
        raise PipelineError("cannot read the stages", error, where=DVC_YAML, hint=hint) from error


def _members(name: str, template: Any, values: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any], Any]]:
    # Expands `foreach` and `matrix`. Yields (name, values of this item, declaration) for each stage.
    if "foreach" in template:
        items = _fill(template["foreach"], values)
        # If `foreach` is a list, DVC uses each item as its own key.
        pairs = items.items() if isinstance(items, dict) else [(item, item) for item in items]
        for key, item in pairs:
            yield f"{name}@{_command_text(key)}", {"key": key, "item": item}, template["do"]
    elif "matrix" in template:
        lists = _fill(template["matrix"], values)
        for chosen in itertools.product(*lists.values()):
            item = dict(zip(lists, chosen, strict=True))
            address = "-".join(map(_command_text, chosen))
            yield f"{name}@{address}", {"item": item}, template | {"matrix": None}
    else:
        yield name, {}, template


def _fill(node: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(node, dict):
        return {_fill(key, values): _fill(value, values) for key, value in node.items()}
    if isinstance(node, list):
        return [_fill(item, values) for item in node]
    if not isinstance(node, str):
        return node
    # "${seed}" keeps the type of the value (a number). "seed-${seed}" becomes a string.
    alone = re.fullmatch(EXPRESSION, node)
    if alone:
        return _value(values, alone[1])
    return re.sub(EXPRESSION, lambda match: _command_text(_value(values, match[1])), node)


def _value(values: Mapping[str, Any], expression: str) -> Any:
    return functools.reduce(operator.getitem, expression.split("."), values)  # type: ignore[arg-type]


def _command_text(value: Any) -> str:
    # In a command, DVC writes a mapping as options: {"size": 3, "name": "a b"} -> "--size 3 --name 'a b'"
    if isinstance(value, bool):
        return str(value).lower()
    options = []
    for key, item in value.items() if isinstance(value, dict) else ():
        if isinstance(item, bool | dict | list):
            raise TypeError(f"a command's options must be strings or numbers: {value}")
        options.append(f"--{key} {shlex.quote(str(item))}")
    if isinstance(value, list):
        raise TypeError(f"a list cannot be inserted into a string: {value}")
    return " ".join(options) if isinstance(value, dict) else str(value)


def _merge(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    shared = {
        key: _merge(first[key], second[key]) for key in first.keys() & second.keys() if isinstance(first[key], dict)
    }
    return first | second | shared


def _normalize(stage: dict[str, Any]) -> dict[str, Any]:
    # DVC allows several notations for the same key. Bring them all into one form.
    params: dict[str, list[str]] = {}
    for given in stage.get("params", []):
        # `- seed` is a key of params.yaml, `- other.yaml: [seed]` a key of another file.
        by_file = given if isinstance(given, dict) else {str(PARAMS): [given]}
        for file, keys in by_file.items():
            params.setdefault(file, []).extend(keys)
    outs: dict[str, Any] = {}
    for kind in ("outs", "metrics", "plots"):
        for out in stage.get(kind, []):
            outs |= out if isinstance(out, dict) else {out: {}}
    return stage | {"deps": stage.get("deps", []), "params": params, "outs": outs}


def sign(paths: Iterable[str | Path]) -> Signature:
    """Return the state of all files at and below ``paths``. Small files get a hash (see MAX_HASHED_BYTES)."""
    signature = look(paths)
    room = MAX_HASHED_BYTES
    for path, state in sorted(signature.items(), key=lambda item: item[1].size):
        room -= state.size
        if room < 0:
            break
        signature[path] = replace(state, md5=file_md5(path))
    return signature


def look(paths: Iterable[str | Path]) -> Signature:
    signature = {}
    for path in paths:
        for file, state in _files(path):
            access = (state.st_mode, state.st_nlink, state.st_uid, state.st_gid)
            signature[file] = FileState(state.st_size, state.st_mtime_ns, state.st_ctime_ns, access)
    return signature


def file_md5(path: str | Path) -> str | None:
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "md5").hexdigest()
    except FileNotFoundError:
        return None


def _files(path: str | Path) -> Iterator[tuple[str, os.stat_result]]:
    try:
        if not os.path.isdir(path):
            # On NFS, opening the file asks the server for its state. `stat` alone may return outdated values.
            with open(path, "rb") as file:
                yield os.fspath(path), os.fstat(file.fileno())
            return
        entries = sorted(os.listdir(path))
    except FileNotFoundError:
        return
    for entry in entries:
        inner = os.path.join(path, entry)
        # DVC does not follow links to folders.
        is_linked_folder = os.path.islink(inner) and os.path.isdir(inner)
        if not is_linked_folder and not any(fnmatch.fnmatch(entry, pattern) for pattern in IGNORED):
            yield from _files(inner)


def changed_files(
    before: Signature, paths: Iterable[str | Path], recorded_md5: Callable[[str], str | None] = lambda path: None
) -> list[str]:
    """Return the files at and below ``paths`` that were added, deleted or edited, sorted.

    Args:
        before: the earlier result of ``sign`` for ``paths``. It is updated if only the access rights of a file changed.
        recorded_md5: returns the hash that dvc.lock had for a file when the stage started, or None.
    """
    after = look(paths)
    changed = []
    for path in sorted(before.keys() | after.keys()):
        old, new = before.get(path), after.get(path)
        if old is None or new is None:
            changed.append(path)
        elif replace(old, md5=None) != new:
            same_times = (old.size, old.modified) == (new.size, new.modified)
            # Changed metadata alone is no edit: another checkout may link a file of the shared cache, and an
            # administrator may change a file's group.
            is_allowed = path in REWRITTEN or (same_times and old.access != new.access)
            original = old.md5 or recorded_md5(path)
            if is_allowed and original and file_md5(path) == original:
                before[path] = replace(new, md5=old.md5)
            else:
                changed.append(path)
    return changed


def check_unchanged_files(
    before: Signature, paths: Iterable[str | Path], recorded_md5: Callable[[str], str | None] = lambda path: None
) -> None:
    changed = changed_files(before, paths, recorded_md5)
    if changed:
        more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        raise PipelineError(
            "a dependency changed while the stage ran; the outputs are not recorded",
            f"{changed[0]}{more}",
            hint="to keep the edit, start again (`snakemake all` or `dvc repro`); otherwise undo it before you start",
        )


def remove_folder(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def check_nothing() -> None:
    # Used when the stage was not started by DVC.
    return


@dataclass
class Checks:
    """Callbacks of the running stage. The defaults are for a stage that DVC did not start.

    By default nothing is checked, and folders are removed at once.

    Attributes:
        before_saving: called before a checkpoint or cache is written; raises an error if inputs were edited.
        before_finishing: the same check at the end of training, while its checkpoints still exist.
        remove_when_recorded: deletes a folder of checkpoints after DVC has recorded the stage. If DVC fails to record
            it, the next run finds the finished training there and ends at once.
    """

    before_saving: Callable[[], None] = check_nothing
    before_finishing: Callable[[], None] = check_nothing
    remove_when_recorded: Callable[[Path], None] = remove_folder


CHECKS = Checks()
