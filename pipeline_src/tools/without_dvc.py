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
import functools
import json
import operator
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from hashlib import md5
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from pipeline_src.common.dependencies import DVC_YAML, declared_stages, look
from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import atomic_directory, atomic_file, digests
from pipeline_src.common.names import checked_path
from pipeline_src.common.records import folder_hash
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
    else:
        recorded = read_lock()
        changes = {name: compare(stage, recorded.get(name)) for name, stage in stages.items()}
        print(json.dumps({name: why for name, why in changes.items() if why}, indent=2))
    return 0


def graph(stages: Mapping[str, Stage]) -> dict[str, list[str]]:
    """Return stage -> stages before it: it depends on their outputs, on parts of them, or on folders that hold them."""
    maker = {f"{out}/": name for name, stage in stages.items() for out in stage["outs"]}

    @functools.cache
    def makers(dep: str) -> set[str]:
        return {name for out, name in maker.items() if out.startswith(f"{dep}/") or f"{dep}/".startswith(out)}

    return {name: sorted(set().union(*map(makers, stage["deps"]))) for name, stage in stages.items()}


def read_lock() -> dict[str, Entry]:
    """Return the recorded stages."""
    if not LOCK.exists():
        return {}
    try:
        stages = dict(parse_yaml(LOCK.read_text(encoding="utf-8")).get("stages", {}))
        for item in (item for entry in stages.values() for item in entry.get("outs", [])):
            checked_path(item["path"], LOCK, "git checkout dvc.lock")
        return stages
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise PipelineError("not what DVC writes", error, where=LOCK, hint="git checkout dvc.lock") from None


def describe(path: str) -> Entry:
    """Return path, hash and size of a file or folder as dvc.lock holds them; without a hash if it is missing."""
    if not os.path.exists(path):
        return {"path": path}
    files = look([path])
    size = sum(state.size for state in files.values())
    if os.path.isfile(path):
        return {"path": path, "hash": "md5", "md5": _md5(path), "size": size}
    digest = folder_hash({os.path.relpath(file, path): _md5(file) for file in files})
    return {"path": path, "hash": "md5", "md5": digest, "size": size, "nfiles": len(files)}


@functools.cache  # until outputs change
def _md5(path: str | Path) -> str:
    return digests(path, ["md5"])["md5"]


def values_of(params: Mapping[str, list[str]]) -> dict[str, dict[str, Any]]:
    """Return file -> key -> value of a stage's parameters."""
    values = {}
    for file, keys in sorted(params.items()):
        try:
            content = parse_yaml(Path(file).read_text(encoding="utf-8"))
            values[file] = {key: functools.reduce(operator.getitem, key.split("."), content) for key in sorted(keys)}
        except (OSError, ValueError, LookupError, TypeError) as error:
            hint = f"{DVC_YAML} names it under `params`"
            raise PipelineError("a parameter cannot be read", error, where=file, hint=hint) from None
    return values


def compare(stage: Stage, recorded: Entry | None) -> list[Any]:
    """Return what differs from the record, in the form of ``dvc status --json``; [] if the stage is fresh."""
    if recorded is None:
        return ["not recorded"]
    changes: list[Any] = [] if stage["cmd"] == recorded["cmd"] else ["changed command"]
    before = recorded.get("params", {})
    for file, values in values_of(stage["params"]).items():
        if edited := [key for key, item in values.items() if (key, item) not in before.get(file, {}).items()]:
            changes.append({"changed params": {file: dict.fromkeys(edited, "modified")}})
    for kind in ("deps", "outs"):
        hashes = {item["path"]: item["md5"] for item in recorded.get(kind, [])}
        now = {path: describe(path).get("md5") for path in stage[kind]}
        why = {path: "modified" if new else "deleted" for path, new in now.items() if new != hashes.get(path, "")}
        if why:
            changes.append({f"changed {kind}": why})
    return changes


def reproduce(name: str, stage: Stage) -> int:
    """Restore a stage's outputs if only they changed, else run its command and record it; return the exit status."""
    with locked(name, wait=False) as lock:
        recorded = read_lock().get(name)
        changes = compare(stage, recorded)
        if recorded and len(changes) == 1 and "changed outs" in changes[0]:
            for item in recorded.get("outs", []):
                if item["path"] in changes[0]["changed outs"]:
                    restore(item, CACHE)
            changes = compare(stage, recorded)
        if not changes:
            print(f"Stage '{name}' is fresh, or its outputs are restored")
            return 0
        if missing := [path for path in stage["deps"] if not os.path.exists(path)]:
            raise PipelineError("a dependency is missing", missing[0], hint="run the stage that makes it first")
        for path, options in stage["outs"].items():
            os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
            if not options.get("persist"):
                _remove(path)
        for command in stage["cmd"].splitlines() if isinstance(stage["cmd"], str) else stage["cmd"]:
            print(f"Running stage '{name}':\n> {command}", flush=True)
            if status := run(command, os.environ | {"DVC_STAGE": name}, lock):
                return status
        _md5.cache_clear()
        deps, outs = ([describe(path) for path in sorted(stage[kind])] for kind in ("deps", "outs"))
        if missing := [item["path"] for item in deps + outs if "md5" not in item]:
            raise PipelineError("not there when the stage ended", missing[0], hint="see the stage's log in logs/")
        entry = {"cmd": stage["cmd"], "deps": deps, "params": values_of(stage["params"]), "outs": outs}
        with locked("dvc.lock"), atomic_file(LOCK) as file:
            yaml = YAML()
            yaml.default_flow_style = False
            stages = read_lock() | {name: {key: value for key, value in entry.items() if value}}
            yaml.dump({"schema": "2.0", "stages": stages}, file)
    return 0


def run(command: str, environment: Mapping[str, str], lock: int) -> int:
    """Run a stage's command, which holds ``lock`` too: if this process is killed, the stage may live on."""
    with subprocess.Popen(["/bin/bash", "-c", command], env=environment, pass_fds=[lock]) as process:
        handler = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the stage, which saves a checkpoint
        status = process.wait()
        signal.signal(signal.SIGINT, handler)
    return status


@contextlib.contextmanager
def locked(name: str, wait: bool = True) -> Iterator[int]:
    """Hold a lock among the processes of this tool, and yield its file's number."""
    LOCKS.mkdir(parents=True, exist_ok=True)
    with open(LOCKS / name, "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            raise PipelineError("the stage is busy: another process runs it", name, hint="wait for its end") from None
        yield file.fileno()


def _remove(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(path) if os.path.isdir(path) and not os.path.islink(path) else os.unlink(path)


def checkout(cache: Path) -> int:
    """Put back each missing output; the exit status is 1 if one could not be, or is not what was recorded."""
    problems, count = [], 0
    for item in (item for entry in read_lock().values() for item in entry.get("outs", [])):
        present = describe(item["path"]).get("md5")
        if present and present != item["md5"]:
            problems.append(f"{item['path']}: not what was recorded; move it away to restore it")
        elif not present and restore(item, cache):
            count += 1
        elif not present:
            problems.append(f"{item['path']}: not in {cache}, or damaged there")
    print(f"{count} outputs restored", *problems, sep="\n")
    return 1 if problems else 0


def restore(item: Entry, cache: Path) -> bool:
    """Put a recorded output in place, with the recorded hash; return False if the cache cannot, and change nothing."""
    try:
        if item["md5"].endswith(".dir"):
            listed = json.loads(b"".join(_blocks(item["md5"], cache)))
            with atomic_directory(item["path"]) as folder:
                for entry in listed:
                    checked_path(entry["relpath"], item["path"], "do not trust this cache; run the stage again")
                    with atomic_file(folder / entry["relpath"], "wb") as file:
                        file.writelines(_blocks(entry["md5"], cache))
        else:
            with atomic_file(item["path"], "wb") as file:
                file.writelines(_blocks(item["md5"], cache))
    except (FileNotFoundError, ValueError):
        return False
    _md5.cache_clear()
    return True


def _blocks(digest: str, cache: Path) -> Iterator[bytes]:
    """Yield the content of a file of the cache; at its end, raise ValueError if it is damaged."""
    running = md5()
    with open(cache / "files/md5" / digest[:2] / digest[2:], "rb") as file:
        while block := file.read(1 << 20):
            running.update(block)
            yield block
    if running.hexdigest() != digest.removesuffix(".dir"):
        raise ValueError(digest)
