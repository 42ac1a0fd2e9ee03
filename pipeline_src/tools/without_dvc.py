"""Tool ``without-dvc``: the few commands of DVC that a study needs, if DVC cannot be installed.

dvc.yaml and dvc.lock are YAML, and the cache is files named by MD5. This tool reads them, and writes dvc.lock, as DVC
does, so that either of the two continues what the other has recorded:
``DVC="python -m pipeline_src without-dvc" snakemake --cores 2 all``. It hashes every file at every start, puts nothing
into the cache, and has no run-cache, experiments, or remotes other than folders.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import fnmatch
import functools
import json
import operator
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from hashlib import md5
from pathlib import Path
from typing import IO, Any

from ruamel.yaml import YAML

from pipeline_src.common.dependencies import DVC_YAML, IGNORED, declared_stages
from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import atomic_directory, atomic_file, digests
from pipeline_src.common.yaml_files import parse_yaml

LOCK, LOCKS, CACHE = Path("dvc.lock"), Path(".dvc/tmp/without-dvc"), Path(".dvc/cache")
Stage = Mapping[str, Any]  # of `declared_stages`
Entry = dict[str, Any]  # of a stage, or of one of its files, in dvc.lock


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command-line arguments, which are DVC's."""
    parser.add_argument("--wait-for-lock", action="store_true", help="is always done")
    commands = parser.add_subparsers(dest="task", required=True, metavar="COMMAND")
    commands.add_parser("dag", help="print the graph").add_argument("--dot", action="store_true")
    commands.add_parser("status", help="list stale stages, and why").add_argument("--json", action="store_true")
    repro = commands.add_parser("repro", help="run a stage if it is stale, and record it")
    repro.add_argument("-s", "--single-item", metavar="STAGE", required=True)
    checkout = commands.add_parser("checkout", help="put back each recorded output that is missing")
    checkout.add_argument("--cache", type=Path, default=CACHE, help="another cache, or the folder of a remote")


def main(arguments: argparse.Namespace) -> int:
    """Run a command; the exit status of ``repro`` is that of the stage."""
    if arguments.task == "checkout":
        return checkout(arguments.cache)
    stages = declared_stages()
    if arguments.task == "repro":
        if arguments.single_item not in stages:
            raise PipelineError("no such stage", arguments.single_item, where=DVC_YAML, hint="`dag` names them")
        return reproduce(arguments.single_item, stages[arguments.single_item])
    if arguments.task == "dag":
        for name, upstream in graph(stages).items():
            print(f'"{name}";', *(f'"{before}" -> "{name}";' for before in upstream), sep="\n")
        return 0
    recorded = read_lock()
    changes = {name: why for name, stage in stages.items() if (why := compare(stage, recorded.get(name)))}
    if arguments.json:
        print(json.dumps(changes))
    else:
        lines = [f"{name}: {json.dumps(reason)}" for name, why in changes.items() for reason in why]
        print("\n".join(lines or ["Data and pipelines are up to date."]))
    return 0


def graph(stages: Mapping[str, Stage]) -> dict[str, list[str]]:
    """Return stage -> stages before it: it depends on their outputs, on parts of them, or on folders that hold them."""
    maker = {out: name for name, stage in stages.items() for out in stage["outs"]}
    makers_below: dict[str, set[str]] = {}
    for out, name in maker.items():
        for folder in Path(out).parents:
            makers_below.setdefault(str(folder), set()).add(name)
    upstream = {}
    for name, stage in stages.items():
        paths = [str(path) for dep in stage["deps"] for path in (Path(dep), *Path(dep).parents)]
        before = {maker[path] for path in paths if path in maker}
        upstream[name] = sorted(before.union(*(makers_below.get(dep, ()) for dep in stage["deps"])))
    return upstream


def read_lock() -> dict[str, Entry]:
    """Return the recorded stages."""
    if not LOCK.exists():
        return {}
    try:
        return dict(parse_yaml(LOCK.read_text(encoding="utf-8"))["stages"])
    except (ValueError, TypeError, KeyError) as error:
        raise PipelineError("not what DVC writes", error, where=LOCK, hint="git checkout dvc.lock") from None


def describe(path: str) -> Entry | None:
    """Return path, hash and size of a file or folder as dvc.lock holds them; None if it is missing."""
    if not os.path.exists(path):
        return None
    if os.path.isfile(path):
        return {"path": path, "hash": "md5", "md5": _md5(path), "size": os.path.getsize(path)}
    files = sorted(_files(path), key=lambda file: file.relative_to(path).parts)
    listed = [{"md5": _md5(file), "relpath": file.relative_to(path).as_posix()} for file in files]
    digest = md5(json.dumps(listed, sort_keys=True).encode()).hexdigest()
    size = sum(map(os.path.getsize, files))
    return {"path": path, "hash": "md5", "md5": f"{digest}.dir", "size": size, "nfiles": len(files)}


def _required(path: str) -> Entry:
    if entry := describe(path):
        return entry
    raise PipelineError("not there when the stage ended", path, hint="see the stage's log in logs/")


def _files(folder: str) -> Iterator[Path]:
    for root, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not _ignored(name)]
        yield from (Path(root, name) for name in names if not _ignored(name))


def _ignored(name: str) -> bool:
    return any(fnmatch.fnmatch(name, pattern) for pattern in IGNORED)


@functools.cache  # until a stage has run
def _md5(path: str | Path) -> str:
    return digests(path, ["md5"])["md5"]


def values_of(params: Mapping[str, list[str]]) -> dict[str, dict[str, Any]]:
    """Return file -> key -> value of a stage's parameters; keys that the file does not have are left out."""
    values: dict[str, dict[str, Any]] = {}
    for file, keys in params.items():
        content = parse_yaml(Path(file).read_text(encoding="utf-8"))
        values[file] = {}
        for key in sorted(keys):
            with contextlib.suppress(KeyError, TypeError):
                values[file][key] = functools.reduce(operator.getitem, key.split("."), content)
    return values


def compare(stage: Stage, recorded: Entry | None) -> list[Any]:
    """Return what differs from the record, in the form of ``dvc status --json``; [] if the stage is fresh."""
    if recorded is None:
        return ["not recorded"]
    changes: list[Any] = [] if stage["cmd"] == recorded["cmd"] else ["changed command"]
    values, before = values_of(stage["params"]), recorded.get("params", {})
    edited = [key for file in values for key, value in values[file].items() if (key, value) not in before[file].items()]
    if edited:
        changes.append({"changed params": dict.fromkeys(edited, "modified")})
    for kind in ("deps", "outs"):
        hashes = {item["path"]: item["md5"] for item in recorded.get(kind, [])}
        items = {path: describe(path) for path in stage[kind]}
        modified = {path for path, item in items.items() if item and item["md5"] != hashes.get(path)}
        differing = dict.fromkeys(sorted(modified), "modified")
        differing |= {path: "deleted" for path, item in items.items() if not item}
        differing |= dict.fromkeys(hashes.keys() - items.keys(), "not declared")
        if differing:
            changes.append({f"changed {kind}": differing})
    return changes


def reproduce(name: str, stage: Stage) -> int:
    """Restore a stage's outputs if only they changed, else run its command and record it; return the exit status."""
    with locked(name, wait=False):
        recorded = read_lock().get(name, {})
        changes = compare(stage, recorded or None)
        if not changes:
            print(f"Stage '{name}' didn't change, skipping")
            return 0
        if all("changed outs" in change for change in changes):
            changed = [item for item in recorded["outs"] if (describe(item["path"]) or {}).get("md5") != item["md5"]]
            if all(restore(item, CACHE) for item in changed):
                print(f"Stage '{name}' is cached, restored its outputs")
                return 0
        for path, options in stage["outs"].items():
            os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
            if not options.get("persist"):
                _remove(path)
        for command in [stage["cmd"]] if isinstance(stage["cmd"], str) else stage["cmd"]:
            print(f"Running stage '{name}':\n> {command}", flush=True)
            if status := subprocess.run(["/bin/bash", "-c", command], env=os.environ | {"DVC_STAGE": name}).returncode:
                return status
        _md5.cache_clear()
        entry: Entry = {"cmd": stage["cmd"]}
        for kind, value in (("deps", stage["deps"]), ("params", stage["params"]), ("outs", stage["outs"])):
            if value:
                entry[kind] = values_of(value) if kind == "params" else [_required(path) for path in sorted(value)]
        with locked("dvc.lock"):
            yaml = YAML()
            yaml.default_flow_style = False
            with atomic_file(LOCK) as file:
                yaml.dump({"schema": "2.0", "stages": read_lock() | {name: entry}}, file)
    return 0


@contextlib.contextmanager
def locked(name: str, wait: bool = True) -> Iterator[None]:
    """Hold a lock among the processes of this tool; that of a killed process is free."""
    LOCKS.mkdir(parents=True, exist_ok=True)
    with open(LOCKS / name, "w") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError:
            raise PipelineError("the stage is busy: another process runs it", name, hint="wait for its end") from None
        yield


def _remove(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)


def checkout(cache: Path) -> int:
    """Put back each missing output; the exit status is 1 if one could not be, or is not what was recorded."""
    problems, count = [], 0
    for item in (item for entry in read_lock().values() for item in entry.get("outs", [])):
        present = describe(item["path"])
        if present and present["md5"] != item["md5"]:
            problems.append(f"{item['path']}: not what was recorded; move it away to restore it")
        elif not present and restore(item, cache):
            count += 1
        elif not present:
            problems.append(f"{item['path']}: not in {cache}, or damaged there")
    print(f"{count} outputs restored", *problems, sep="\n")
    return 1 if problems else 0


def restore(item: Entry, cache: Path) -> bool:
    """Put a recorded output in place, with the recorded hash; return False if the cache cannot, and change nothing."""
    path, digest = item["path"], item["md5"]
    try:
        if not digest.endswith(".dir"):
            with atomic_file(path, "wb") as file:
                _copy(digest, cache, file)
            return True
        listed = _object(digest, cache).read_bytes()
        if f"{md5(listed).hexdigest()}.dir" != digest:
            return False
        with atomic_directory(path) as folder:
            for entry in json.loads(listed):
                with atomic_file(folder / entry["relpath"], "wb") as file:
                    _copy(entry["md5"], cache, file)
    except (FileNotFoundError, DamagedError):
        return False
    return True


class DamagedError(Exception):
    """A file of the cache does not have the hash that is its name."""


def _object(digest: str, cache: Path) -> Path:
    return cache / "files/md5" / digest[:2] / digest[2:]


def _copy(digest: str, cache: Path, target: IO[bytes]) -> None:
    running = md5()
    with open(_object(digest, cache), "rb") as source:
        while block := source.read(1 << 20):
            running.update(block)
            target.write(block)
    if running.hexdigest() != digest:
        raise DamagedError
