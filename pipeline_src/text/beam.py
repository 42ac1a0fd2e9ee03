"""Map a function over items by an Apache Beam runner: on this machine, or on workers that share its disk.

Results and errors come back as files, one for each item, so that runners move nothing large.
"""

from __future__ import annotations

import contextlib
import errno
import io
import logging
import os
import pickle
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.parallel import count_workers, map_in_order

Item = TypeVar("Item")
Result = TypeVar("Result")
WHERE = "beam_args in machine.yaml"
FUNCTION = "function"
DASK_SIZES = ("--dask_npartitions", "--dask_partition_size")
# Beam says when it is imported that Google Cloud's libraries are missing; nothing here needs them.
logging.getLogger().addFilter(lambda record: not record.getMessage().startswith("apitools not found"))


class Workers:
    """The workers of a stage. Leaving the context removes what was made for them.

    Args:
        beam_args: arguments of Beam's ``PipelineOptions``. Without ``--runner``, processes of this machine work; the
            workers of a runner must see this machine's files by the same paths.
        folder: what the stage makes.

    Attributes:
        folder: where workers write files of the stage's output; ``receive`` moves them there.
    """

    def __init__(self, beam_args: Sequence[str], folder: Path) -> None:
        self._args = tuple(beam_args)
        self._output = folder.absolute()
        self._runner = ""
        if beam_args:
            self._runner = str(parse_options(beam_args).get_all_options()["runner"] or "")
        self._results = self._output / ".results"
        # A new name: workers of a run that was killed may still write to theirs.
        self.folder = self._results / uuid4().hex

    def __enter__(self) -> Workers:
        self.folder.mkdir(parents=True)
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._results, ignore_errors=True)

    # Move a file that workers have written to folder to the stage's output.
    def receive(self, name: str) -> Path:
        path = self._output / name
        try:
            os.replace(self.folder / name, path)
        except FileNotFoundError as error:
            raise _lost_output(name, self.folder) from error
        return path

    def map(
        self, function: Callable[[Item], Result], items: Iterable[Item], through_beam: bool = True
    ) -> Iterator[Result]:
        """Yield ``function(item)`` for every item, in order.

        The first PipelineError or OSError of an item is raised. A runner reports other exceptions in its own way.

        Args:
            function: see ``map_in_order``.
            through_beam: whether Beam's local runner starts the processes of this machine, if no runner is named.
        """
        if not (self._runner or through_beam):
            yield from map_in_order(function, items)
            return
        numbered = list(enumerate(items))
        if not numbered:
            return
        # A new name here too: workers keep the last function by its path.
        results = self._results / uuid4().hex
        results.mkdir()
        _write(results / FUNCTION, function)
        self._run(numbered, results)
        for number, _ in numbered:
            yield self._read(results / str(number))

    def _run(self, items: list[tuple[int, Any]], results: Path) -> None:
        beam = import_beam()
        # Worker processes must find this package from any working directory.
        paths = [str(Path(__file__).resolve().parents[2]), os.environ.get("PYTHONPATH", "")]
        os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(filter(None, paths)))
        arguments = list(self._args)
        batches = [[item] for item in items]
        if not self._runner:
            # Beam's default runner would first try to fetch a program from the network.
            arguments.append("--runner=FnApiRunner")
            # On this machine, processes that do not import Beam work on one batch.
            batches = [items]
        if "dask" in self._runner.lower() and not any(argument.startswith(DASK_SIZES) for argument in arguments):
            # A worker of Dask would take 128 items at a time.
            arguments.append(f"--dask_npartitions={len(items)}")
        try:
            with beam.Pipeline(options=parse_options(arguments)) as pipeline:
                spread = pipeline | "batches" >> beam.Create(batches) | "spread over workers" >> beam.Reshuffle()
                spread | "work" >> beam.Map(partial(_work, results=results))  # noqa: B018
        except Exception as error:
            # A runner turns its workers' exceptions into text; a full disk must remain an OSError.
            if os.strerror(errno.ENOSPC) in str(error):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._output)) from error
            if str(results / FUNCTION) in str(error):
                raise _lost_output(results / FUNCTION, "a file that a worker does not find") from error
            if self._runner and isinstance(error, OSError) and error.errno is None:
                hint = "start its service and workers, or leave beam_args empty to work on this machine"
                raise PipelineError("the Beam runner cannot be reached", error, where=WHERE, hint=hint) from error
            raise

    def _read(self, path: Path) -> Any:
        try:
            result, error = pickle.loads(path.read_bytes())
        except FileNotFoundError:
            raise _lost_output(f"the result of part {path.name}", path.parent) from None
        if error is None:
            return result
        # What this process finds and a worker does not is on another disk.
        if self._runner and isinstance(error, FileNotFoundError):
            raise _lost_output(error.filename, "a file that a worker does not find")
        raise error


# Workers that do not have the files of this process, or whose files it does not have.
def _lost_output(value: object, where: object) -> PipelineError:
    return PipelineError(
        "the Beam runner lost output",
        value,
        where=where,
        hint="run on a disk that this process and all workers share, or leave beam_args in machine.yaml empty",
    )


@cache
def import_beam() -> Any:
    """Import Beam without pandas and pymongo, which take half of its two seconds."""
    unused = [name for name in ("pandas", "pymongo") if name not in sys.modules]
    # Beam takes a module that is None as not installed, and warns that pymongo is missing.
    modules: dict[str, Any] = sys.modules
    modules.update(dict.fromkeys(unused))
    logging.getLogger("apache_beam.io.mongodbio").setLevel(logging.ERROR)
    try:
        import apache_beam
    finally:
        for name in unused:
            del modules[name]
    return apache_beam


def dask_setup(worker: object) -> None:
    """Import Beam early: Dask calls this with ``--preload pipeline_src.text.beam``."""
    import_beam()


# The runner's module must be installed and know every option.
def parse_options(arguments: Sequence[str]) -> Any:
    module = import_beam().options.pipeline_options
    message = io.StringIO()
    runner = None
    try:
        # argparse prints its usage of a page.
        with contextlib.redirect_stderr(message):
            options = module.PipelineOptions(list(arguments))
            runner = options.view_as(module.StandardOptions).runner
            if runner:
                # This imports the runner's own options.
                import_beam().runners.runner.create_runner(runner)
            known = options.get_all_options()
            given = options.get_all_options(retain_unknown_options=True)
    except SystemExit:
        problem = message.getvalue().strip().rpartition("error: ")[2]
        raise PipelineError("invalid option of Beam", problem, where=WHERE, hint="change it there") from None
    except (ImportError, ValueError, AttributeError, TypeError) as error:
        hint = f"{error}; install what it needs, or name another"
        raise PipelineError("no such Beam runner here", runner, where=WHERE, hint=hint) from None
    unknown = sorted(given.keys() - known.keys())
    if unknown:
        hint = "Beam would ignore it: fix its spelling or remove it"
        raise PipelineError("not an option of Beam or its runner", f"--{unknown[0]}", where=WHERE, hint=hint)
    return options


def _write(path: Path, value: object) -> None:
    # Another worker may do the work of one that is taken for dead, at the same time.
    partial_file = path.with_name(uuid4().hex)
    partial_file.write_bytes(pickle.dumps(value, pickle.HIGHEST_PROTOCOL))
    partial_file.replace(path)


# A function may hold megabytes: a process reads it once.
@lru_cache(maxsize=1)
def _read_function(path: Path) -> Callable[[Any], Any]:
    function: Callable[[Any], Any] = pickle.loads(path.read_bytes())
    return function


# Write a file with the result of each item, or with its error, which ends the batch.
def _work(batch: list[tuple[int, Any]], results: Path) -> None:
    function = _read_function(results / FUNCTION)
    items = [item for _, item in batch]
    outcomes = map_in_order(function, items, min(len(batch), count_workers()))
    for number, _ in batch:
        result = problem = None
        try:
            result = next(outcomes)
        except (PipelineError, OSError) as error:
            problem = error
        _write(results / str(number), (result, problem))
        if problem:
            return
