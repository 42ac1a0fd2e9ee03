"""Compare the inputs that DVC recorded for a stage with the inputs that the stage read.

DVC hashes a stage's inputs after the stage has ended. If another DVC command holds DVC's lock, that may be minutes
later, and an input may have been edited meanwhile. Therefore a stage ends with three steps. It takes DVC's lock, checks
its inputs once more, and writes their hashes to a note in NOTES.

The next stage, or the next start of Snakemake, compares each note with dvc.lock. If the record has other inputs, it is
removed from dvc.lock and the run-cache, and the stage runs again. If the record is right, the checkpoints of a finished
training are deleted.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from functools import cache
from pathlib import Path
from typing import IO, Any

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import atomic_file, read_json, write_json
from pipeline_src.base.progress import log
from pipeline_src.base.yaml_files import parse_yaml
from pipeline_src.engine.dependencies import (
    PARAMS,
    Signature,
    check_unchanged_files,
    file_md5,
    look,
    remove_folder,
    sign,
)
from pipeline_src.engine.dvc_lock import (
    COMMAND_LOCK,
    LOCK,
    LOCK_COPY,
    committed_lock,
    complete_lock,
    hashes,
    join_entries,
    parse_entry,
    read_entry_text,
    split_entries,
    take_dvc_lock,
)

NOTES = Path(".dvc/tmp/stage-inputs")
FILES_IN_USE = Path(".dvc/tmp/rwlock")
OUTPUT = {"size": int, "md5": object}
NOTE = {"entry": str, "inputs": dict, "large": dict, "params": str, "outputs": {str: OUTPUT}, "folders": [str]}
MAX_HASHED_OUTPUT_BYTES = 4 << 20


class StageRecord:
    """The inputs of the running stage, from its start until DVC has recorded it.

    Attributes:
        fingerprints: the dependencies that are code fingerprints, as paths below ``code``.
        folders: folders of checkpoints to delete after DVC has recorded the stage.
    """

    def __init__(self, stage: str, dependencies: Sequence[str], outputs: Iterable[str]) -> None:
        self.stage = stage
        self.dependencies = dependencies
        self.outputs = list(outputs)
        # Code fingerprints are compared by `StageCode`, all other dependencies here.
        code = [path for path in dependencies if path.startswith("code/")]
        self.fingerprints = [path.removeprefix("code/") for path in code]
        self._files = [path for path in dependencies if path not in code]
        self.signature = sign(dependencies)
        self._data = {path: state for path, state in self.signature.items() if not path.startswith("code/")}
        self._params = _json(parse_yaml(_text(PARAMS)))
        self._lock = _read_lock()
        self.folders: list[Path] = []
        self._held: IO[str] | None = None

    def before_saving(self) -> None:
        self.check()
        # DVC's table of files in use may be in /tmp. Touch it, since the system deletes old files there after days.
        with suppress(OSError):
            os.utime(FILES_IN_USE)

    def check(self) -> None:
        # Does not check the stage's code. That is done by `StageCode`.
        check_unchanged_files(self._data, self._files, self._recorded_md5)

    def wait_for_dvc(self) -> None:
        # Takes DVC's lock and keeps it until this process ends.
        try:
            self._held = take_dvc_lock(COMMAND_LOCK, patience=1)
        except TimeoutError:
            log.info("waiting for another DVC command (such as dvc push) to end, so that DVC can record this stage")
            self._held = take_dvc_lock(COMMAND_LOCK)

    def leave_note(self) -> None:
        """Write the hashes of this stage's inputs to a note, which ``settle_records`` later compares with dvc.lock."""
        inputs = {path: self._hash_at_start(path) for path in self.dependencies}
        # Inputs that were too large to hash at the start get the hash that dvc.lock has for them.
        large = [path for path, digest in inputs.items() if digest is None]
        recorded = {path: recorded_output(self._lock, path) for path in large}
        write_json(
            NOTES / f"{self.stage}.json",
            {
                "entry": split_entries(self._lock).get(self.stage, ""),
                "inputs": inputs | recorded,
                "large": {path: _digest(look([path])) for path in large},
                "params": self._params,
                "outputs": {output: describe_output(output) for output in self.outputs},
                "folders": [str(folder) for folder in self.folders],
            },
        )

    def _hash_at_start(self, path: str) -> str | None:
        # Returns None if a file of the dependency was too large to be hashed.
        below = {file: state.md5 for file, state in self.signature.items() if f"{file}/".startswith(f"{path}/")}
        return dvc_hash(path, below) if all(below.values()) else None

    def _recorded_md5(self, path: str) -> str | None:
        # The file may itself be the output of another stage, or lie in a folder that is such an output.
        for output in (Path(path), *Path(path).parents):
            digest = recorded_output(self._lock, str(output))
            if digest:
                return digest if output == Path(path) else read_listing(digest).get(os.path.relpath(path, output))
        return None


def dvc_hash(path: str, md5_of: Mapping[str, str | None]) -> str:
    # DVC's hash of a folder is the MD5 of a JSON list of its files.
    if list(md5_of) == [path]:
        return md5_of[path] or ""
    listing = [{"md5": md5_of[file], "relpath": os.path.relpath(file, path)} for file in sorted(md5_of)]
    return f"{hashlib.md5(json.dumps(listing).encode()).hexdigest()}.dir"


def describe_output(path: str) -> dict[str, Any]:
    files = look([path])
    size = sum(state.size for state in files.values())
    # A large output is described by its size alone, since hashing it takes too long.
    is_hashed = size <= MAX_HASHED_OUTPUT_BYTES
    return {"size": size, "md5": dvc_hash(path, {file: file_md5(file) for file in files}) if is_hashed else None}


def recorded_output(lock: str, path: str) -> str | None:
    for entry in split_entries(lock).values():
        # A quick text search first: parsing an entry takes milliseconds, and there may be hundreds.
        if f"    - path: {path}\n" in entry.partition("    outs:\n")[2]:
            return hashes(parse_entry(entry), "outs").get(path)
    return None


@cache
def cache_folder() -> Path:
    command = [sys.executable, "-m", "dvc", "cache", "dir"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return Path(answer or ".dvc/cache")


def read_listing(digest: str) -> dict[str, str]:
    # For a folder, DVC's cache holds a JSON list with the relative path and MD5 of each file.
    try:
        listing = read_json(cache_folder() / "files/md5" / digest[:2] / digest[2:], [{"md5": str, "relpath": str}])
    except (PipelineError, OSError):
        return {}
    return {item["relpath"]: item["md5"] for item in listing}


def settle_records() -> list[str]:
    """Compare all notes with dvc.lock, and remove the records whose inputs are wrong.

    The checkpoints of trainings that were recorded correctly are deleted.

    Returns:
        A sentence for each record that was removed.
    """
    paths = sorted(NOTES.glob("*.json"))
    try:
        held = take_dvc_lock(COMMAND_LOCK, patience=5) if paths else None
    except TimeoutError:
        # Another DVC command may be writing dvc.lock, so leave the notes for the next start.
        return []
    with held or nullcontext():
        sentences = [_settle(path) for path in paths]
    return [sentence for sentence in sentences if sentence]


def keep_copy_of_lock() -> None:
    """Update the backup of dvc.lock, from which Snakemake repairs a truncated dvc.lock."""
    lock, copy = _read_lock(), _text(LOCK_COPY)
    completed, _ = complete_lock(lock, copy)
    if not copy and complete_lock(lock, committed_lock())[1]:
        # dvc.lock lacks entries of the committed file: it is truncated, or from another branch. Snakemake decides
        # which at its next start, and then makes the first backup.
        return
    if lock.endswith("\n") and completed != copy:
        # Several stages may start at the same time.
        with atomic_file(LOCK_COPY, shared=True) as file:
            file.write(completed)


def _settle(path: Path) -> str:
    try:
        note = read_json(path, NOTE)
    except PipelineError:
        path.unlink(missing_ok=True)
        return ""
    stage = path.stem
    text = read_entry_text(stage)
    entry = parse_entry(text)
    if not _is_record_of(note, entry):
        # DVC has not recorded this run, or `git checkout` or `dvc exp apply` has replaced its record.
        return ""
    edited = _differences(note, entry)
    if edited and not _was_recorded_after(path, entry):
        # The record is of another run (an earlier one, or on another branch) that made the same outputs from other
        # inputs.
        return ""
    if edited:
        _replace_record(stage, text, note["entry"])
    else:
        for folder in note["folders"]:
            remove_folder(Path(folder))
    path.unlink(missing_ok=True)
    return f"{stage}: {edited[0]} was edited after the stage had read it, before DVC recorded it" if edited else ""


def _was_recorded_after(note: Path, entry: Mapping[str, Any]) -> bool:
    # DVC writes each run to its run-cache just before it writes dvc.lock, so the run-cache file has the time.
    written = note.stat().st_mtime
    runs = cached_runs(cache_folder())
    return any(_is_same_run(run, entry) and file.stat().st_mtime >= written for file, run in runs)


def _is_same_run(run: Mapping[str, Any], entry: Mapping[str, Any]) -> bool:
    return all(run.get(key) == entry.get(key) for key in ("cmd", "deps", "params", "outs"))


def _is_record_of(note: Mapping[str, Any], entry: Mapping[str, Any]) -> bool:
    recorded = {item["path"]: item for item in entry.get("outs", [])}
    for path, output in note["outputs"].items():
        item = recorded.get(path, {})
        if item.get("size") != output["size"] or output["md5"] not in (None, item.get("md5")):
            return False
    return bool(recorded)


def _differences(note: Mapping[str, Any], entry: Mapping[str, Any]) -> list[str]:
    recorded = hashes(entry, "deps")
    edited = []
    for path, digest in note["inputs"].items():
        if digest is None or recorded.get(path, digest) == digest:
            continue
        if note["large"].get(path) != _digest(look([path])):
            edited.append(path)
    for key, value in entry.get("params", {}).get(str(PARAMS), {}).items():
        read = json.loads(note["params"])
        # Resolve a dotted key: "count.size" is the value of "size" in "count".
        for name in key.split("."):
            read = read.get(name) if isinstance(read, dict) else None
        if _json(read) != _json(value):
            edited.append(f"{key} in {PARAMS}")
    return edited


def _json(values: Any) -> str:
    return json.dumps(values, sort_keys=True, default=str)


def _digest(signature: Signature) -> str:
    states = {path: (state.size, state.modified, state.changed) for path, state in signature.items()}
    return hashlib.sha256(_json(states).encode()).hexdigest()


def _read_lock() -> str:
    # Hold DVC's lock while reading, so that no DVC command is in the middle of writing dvc.lock.
    held = None
    with suppress(TimeoutError):
        held = take_dvc_lock(COMMAND_LOCK, patience=1)
    with held or nullcontext():
        return _text(LOCK)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""


def _replace_record(stage: str, text: str, before: str) -> None:
    # The run-cache comes last: it has the evidence that the record is false. After a kill in between, the next start
    # finds that evidence, and does all of this again.
    for path in (LOCK_COPY, LOCK):
        entries = split_entries(_text(path))
        if entries.get(stage) != text:
            continue
        entries[stage] = before
        with atomic_file(path) as file:
            file.write(join_entries(entries))
    # Delete the run from the run-cache too. Otherwise DVC would restore it instead of running the stage.
    entry = parse_entry(text)
    for cached, run in cached_runs(cache_folder()):
        if _is_same_run(run, entry):
            with suppress(OSError):
                cached.unlink()


def run_of_same_inputs(entry: str, folder: Path) -> str | None:
    """Find the newest cached run with the same command and inputs as an entry of dvc.lock.

    Args:
        entry: text of the entry.
        folder: DVC's cache.

    Returns:
        The run as the text of an entry. None if the cache has the outputs of ``entry`` itself, or if it has no such run
        with its outputs.
    """
    wanted = parse_entry(entry)
    if is_cached(wanted, folder):
        return None
    for file, run in cached_runs(folder):
        is_same = all(run.get(key) == wanted.get(key) for key in ("cmd", "params"))
        if is_same and hashes(run, "deps") == hashes(wanted, "deps") and is_cached(run, folder):
            name = entry.partition("\n")[0]
            lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
            return name + "\n" + "".join(f"    {line}" for line in lines)
    return None


def is_cached(entry: Mapping[str, Any], folder: Path) -> bool:
    digests = hashes(entry, "outs").values()
    return all((folder / "files/md5" / digest[:2] / digest[2:]).exists() for digest in digests)


def cached_runs(folder: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    # Yields (file, run) for each run in DVC's run-cache, newest first.
    files = [file for file in folder.glob("runs/*/*/*") if file.is_file()]
    for file in sorted(files, key=lambda path: path.stat().st_mtime, reverse=True):
        try:
            run = parse_yaml(file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(run, dict):
            yield file, run
