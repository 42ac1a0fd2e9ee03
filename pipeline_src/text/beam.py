"""Map a function over items with Apache Beam, on this machine or on workers that share its disk.

Each item's result or error comes back in a file of its own, so that the Beam runner transfers little data.
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
# Hide Beam's message at import that the Google Cloud libraries are missing. The pipeline does not need them.
logging.getLogger().addFilter(lambda record: not record.getMessage().startswith("apitools not found"))


class Workers:
    """The workers of a stage, as a context manager that removes their temporary files on exit.

    Args:
        beam_args: arguments of Beam's ``PipelineOptions``. Without ``--runner``, the workers are processes of this
            machine. The workers of a runner must see this machine's files under the same paths.
        folder: output folder of the stage.

    Attributes:
        folder: temporary folder in which workers write output files. ``receive`` moves a file to the output folder.
    """

    def __init__(self, beam_args: Sequence[str], folder: Path) -> None:
        self._args = tuple(beam_args)
        self._output = folder.absolute()
        self._runner = ""
        if beam_args:
            self._runner = str(parse_options(beam_args).get_all_options()["runner"] or "")
        self._results = self._output / ".results"
        # Every run has a folder of its own, since workers of a killed run may still be writing to the folder of that
        # run.
        self.folder = self._results / uuid4().hex

    def __enter__(self) -> Workers:
        self.folder.mkdir(parents=True)
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._results, ignore_errors=True)

    def receive(self, name: str) -> Path:
        # Move a file that a worker has written from the temporary folder to the output folder.
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

        The first PipelineError or OSError of an item is raised unchanged. How another exception is reported depends on
        the runner.

        Args:
            function: see ``map_in_order``.
            through_beam: whether to use Beam's local runner if ``beam_args`` names no runner. If False, use
                ``map_in_order`` without Beam.
        """
        if not (self._runner or through_beam):
            yield from map_in_order(function, items)
            return
        numbered = list(enumerate(items))
        if not numbered:
            return
        # Every call has a folder of its own, since workers cache the last function by its path.
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
            # Without this argument, Beam would first try to download its default runner.
            arguments.append("--runner=FnApiRunner")
            # One batch holds all items. `_work` spreads them over processes, which start faster because they do not
            # import Beam.
            batches = [items]
        if "dask" in self._runner.lower() and not any(argument.startswith(DASK_SIZES) for argument in arguments):
            # By default, a Dask worker would take up to 128 items at a time.
            arguments.append(f"--dask_npartitions={len(items)}")
        try:
            with beam.Pipeline(options=parse_options(arguments)) as pipeline:
                spread = pipeline | "batches" >> beam.Create(batches) | "spread over workers" >> beam.Reshuffle()
                spread | "work" >> beam.Map(partial(_work, results=results))  # noqa: B018
        except Exception as error:
            # A runner turns an exception of a worker into text. Turn the text of a full disk back into an OSError.
            if os.strerror(errno.ENOSPC) in str(error):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._output)) from error
            if str(results / FUNCTION) in str(error):
                raise _lost_output(results / FUNCTION, "a worker did not find this file") from error
            if self._runner and isinstance(error, OSError) and error.errno is None:
                hint = "start its service and workers, or leave beam_args empty to work on this machine"
                raise PipelineError("the Beam runner cannot be reached", error, where=WHERE, hint=hint) from error
            raise

    def _read(self, path: Path) -> Any:
        try:
            result, error = pickle.loads(path.read_bytes())
        except FileNotFoundError:
            raise _lost_output(f"the result of item {path.name}", path.parent) from None
        if error is None:
            return result
        # The file exists for this process. A worker that does not find it has another disk.
        if self._runner and isinstance(error, FileNotFoundError):
            raise _lost_output(error.filename, "a worker did not find this file")
        raise error


def _lost_output(value: object, where: object) -> PipelineError:
    # The usual cause is that a worker and this process do not share a disk.
    return PipelineError(
        "the Beam runner lost output",
        value,
        where=where,
        hint="run on a disk that this process and all workers share, or leave beam_args in machine.yaml empty",
    )


@cache
def import_beam() -> Any:
    """Import Beam without pandas and pymongo, which saves one of its two seconds."""
    unused = [name for name in ("pandas", "pymongo") if name not in sys.modules]
    # A module that is None in sys.modules looks to Beam as if it were not installed. Beam warns if pymongo is missing.
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
    """Import Beam when a Dask worker starts with ``--preload pipeline_src.text.beam``, and not in its first task."""
    import_beam()


def parse_options(arguments: Sequence[str]) -> Any:
    # Raises an error if the runner is not installed, or if neither Beam nor the runner knows an option.
    module = import_beam().options.pipeline_options
    message = io.StringIO()
    runner = None
    try:
        # argparse would print a page of usage to stderr.
        with contextlib.redirect_stderr(message):
            options = module.PipelineOptions(list(arguments))
            runner = options.view_as(module.StandardOptions).runner
            if runner:
                # Creating the runner registers its own options.
                import_beam().runners.runner.create_runner(runner)
            known = options.get_all_options()
            given = options.get_all_options(retain_unknown_options=True)
    except SystemExit:
        problem = message.getvalue().strip().rpartition("error: ")[2]
        raise PipelineError("invalid Beam option", problem, where=WHERE, hint="correct it in beam_args") from None
    except (ImportError, ValueError, AttributeError, TypeError) as error:
        hint = f"{error}; install the missing package, or name another runner"
        raise PipelineError("the Beam runner is unknown or not installed", runner, where=WHERE, hint=hint) from None
    unknown = sorted(given.keys() - known.keys())
    if unknown:
        hint = "Beam would ignore it. Fix its spelling, or remove it"
        raise PipelineError("unknown option of Beam or its runner", f"--{unknown[0]}", where=WHERE, hint=hint)
    return options


def _write(path: Path, value: object) -> None:
    # Two workers may write the same result at the same time: a runner restarts the work of a worker that it takes for
    # dead. So write a file with a unique name first, and rename it.
    partial_file = path.with_name(uuid4().hex)
    partial_file.write_bytes(pickle.dumps(value, pickle.HIGHEST_PROTOCOL))
    partial_file.replace(path)


# Cached, so that each process reads the pickled function, which may have several MB, only once.
@lru_cache(maxsize=1)
def _read_function(path: Path) -> Callable[[Any], Any]:
    function: Callable[[Any], Any] = pickle.loads(path.read_bytes())
    return function


def _work(batch: list[tuple[int, Any]], results: Path) -> None:
    # Write the result of each item to a file. At the first error, write the error instead and stop.
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
