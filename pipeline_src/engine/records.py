"""Compare what DVC recorded of a stage with what the stage read, and keep checkpoints until the record is there.

DVC hashes a stage's inputs after the stage has ended, perhaps minutes later if another DVC command holds DVC's lock. So
a stage's last act is to take that lock, to look at its inputs once more, and to leave a note of their hashes in NOTES.
Whatever starts next (a stage, or Snakemake) compares the notes with dvc.lock. A record of other inputs is removed, from
the run-cache too, so that the stage runs again. A finished training's checkpoints are deleted once its record is there.
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
    """The inputs of the running stage: from its start until DVC has recorded them.

    Attributes:
        fingerprints: the names of the fingerprints among the dependencies, below ``code``.
        folders: checkpoints to delete once DVC has recorded the stage.
    """

    def __init__(self, stage: str, dependencies: Sequence[str], outputs: Iterable[str]) -> None:
        self.stage = stage
        self.dependencies = dependencies
        self.outputs = list(outputs)
        # Fingerprints of code are compared by their text, all other files by their signatures.
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
        # DVC's table of files in use may be in /tmp, where what has not been used for days is deleted.
        with suppress(OSError):
            os.utime(FILES_IN_USE)

    def check(self) -> None:
        # The stage's code is not looked at.
        check_unchanged_files(self._data, self._files, self._recorded_md5)

    def wait_for_dvc(self) -> None:
        # The lock is kept until this process ends.
        try:
            self._held = take_dvc_lock(COMMAND_LOCK, patience=1)
        except TimeoutError:
            log.info("waiting until another DVC command (such as dvc push) has ended, so that this stage is recorded")
            self._held = take_dvc_lock(COMMAND_LOCK)

    def leave_note(self) -> None:
        """Write what this stage has read, to be compared with what DVC records after this process has ended."""
        inputs = {path: self._hash_at_start(path) for path in self.dependencies}
        # Inputs too large to be hashed: as recorded before, if they are still what they were at the start.
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
        # None if not all files of the dependency were hashed.
        below = {file: state.md5 for file, state in self.signature.items() if f"{file}/".startswith(f"{path}/")}
        return dvc_hash(path, below) if all(below.values()) else None

    def _recorded_md5(self, path: str) -> str | None:
        # The file may be an output of another stage, or in a folder that is one.
        for output in (Path(path), *Path(path).parents):
            digest = recorded_output(self._lock, str(output))
            if digest:
                return digest if output == Path(path) else read_listing(digest).get(os.path.relpath(path, output))
        return None


def dvc_hash(path: str, md5_of: Mapping[str, str | None]) -> str:
    # DVC hashes a folder by a listing of its files.
    if list(md5_of) == [path]:
        return md5_of[path] or ""
    listing = [{"md5": md5_of[file], "relpath": os.path.relpath(file, path)} for file in sorted(md5_of)]
    return f"{hashlib.md5(json.dumps(listing).encode()).hexdigest()}.dir"


def describe_output(path: str) -> dict[str, Any]:
    files = look([path])
    size = sum(state.size for state in files.values())
    # A large output is told by its size alone.
    is_hashed = size <= MAX_HASHED_OUTPUT_BYTES
    return {"size": size, "md5": dvc_hash(path, {file: file_md5(file) for file in files}) if is_hashed else None}


def recorded_output(lock: str, path: str) -> str | None:
    for entry in split_entries(lock).values():
        # Parsing takes milliseconds an entry, and there may be hundreds.
        if f"    - path: {path}\n" in entry.partition("    outs:\n")[2]:
            return hashes(parse_entry(entry), "outs").get(path)
    return None


@cache
def cache_folder() -> Path:
    command = [sys.executable, "-m", "dvc", "cache", "dir"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return Path(answer or ".dvc/cache")


def read_listing(digest: str) -> dict[str, str]:
    # A listing is a file of DVC's cache: relative path and MD5 of each file of a folder.
    try:
        listing = read_json(cache_folder() / "files/md5" / digest[:2] / digest[2:], [{"md5": str, "relpath": str}])
    except (PipelineError, OSError):
        return {}
    return {item["relpath"]: item["md5"] for item in listing}


def settle_records() -> list[str]:
    """Compare all notes with dvc.lock; delete the checkpoints of recorded trainings, and remove false records.

    Returns:
        A sentence for each record that was removed.
    """
    paths = sorted(NOTES.glob("*.json"))
    try:
        held = take_dvc_lock(COMMAND_LOCK, patience=5) if paths else None
    except TimeoutError:
        # Another DVC command may be writing dvc.lock; the notes wait for the next start.
        return []
    with held or nullcontext():
        sentences = [_settle(path) for path in paths]
    return [sentence for sentence in sentences if sentence]


def keep_copy_of_lock() -> None:
    """Update the copy of dvc.lock, from which Snakemake's start completes a file that a kill cut off."""
    lock, copy = _read_lock(), _text(LOCK_COPY)
    completed, _ = complete_lock(lock, copy)
    if not copy and complete_lock(lock, committed_lock())[1]:
        # Cut off, or another branch's: Snakemake's start tells, and makes the first copy.
        return
    if lock.endswith("\n") and completed != copy:
        with atomic_file(LOCK_COPY) as file:
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
        # DVC has not recorded this run, or `git checkout` and `dvc exp apply` have put another record in its place.
        return ""
    edited = _differences(note, entry)
    if edited and not _was_recorded_after(path, entry):
        # Another run made the same of other inputs: an earlier one, or one of another branch.
        return ""
    if edited:
        _replace_record(stage, text, note["entry"])
    else:
        for folder in note["folders"]:
            remove_folder(Path(folder))
    path.unlink(missing_ok=True)
    return f"{stage}: {edited[0]} was edited after the stage had read it, before DVC recorded it" if edited else ""


def _was_recorded_after(note: Path, entry: Mapping[str, Any]) -> bool:
    # DVC puts each run into its run-cache before it records it.
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
        # "count.size" -> the value of "size" in "count"
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
    # While its lock is held, no DVC command writes dvc.lock.
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
    # Deleted from the run-cache too, the run is not restored.
    entry = parse_entry(text)
    for cached, run in cached_runs(cache_folder()):
        if _is_same_run(run, entry):
            with suppress(OSError):
                cached.unlink()
    for path in (LOCK, LOCK_COPY):
        entries = split_entries(_text(path))
        if entries.get(stage) != text:
            continue
        entries[stage] = before
        with atomic_file(path) as file:
            file.write(join_entries(entries))


def run_of_same_inputs(entry: str, folder: Path) -> str | None:
    """Return the newest cached run with the command and inputs of an entry in dvc.lock, as the text of an entry.

    None if the cache, ``folder``, has the outputs of the entry itself, or those of no such run.
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
    # The runs in the run-cache of DVC's cache, the newest first.
    files = [file for file in folder.glob("runs/*/*/*") if file.is_file()]
    for file in sorted(files, key=lambda path: path.stat().st_mtime, reverse=True):
        try:
            run = parse_yaml(file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(run, dict):
            yield file, run
