"""Map a function over items by an Apache Beam runner: on this machine, or on the workers of the runner that is named.

Results and errors come back through the runner: its last step writes them to one file, which this process reads. Beam's
WriteToText is not used: it takes its path as a pattern, in which ``[`` means something else.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import pickle
import shutil
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from uuid import uuid4

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.parallel import count_workers, map_in_order
from pipeline_src.text.addresses import Location, copy_file, file_systems, import_beam, open_file

Item = TypeVar("Item")
Result = TypeVar("Result")
WHERE = "beam_args in machine.yaml"
MAX_RECORD_BYTES = 1 << 20  # of a pickle that goes through the runner; a larger one is a file next to the results
HEADER = struct.Struct("<QQ")  # of a record in the results' file: the item's number, the bytes of the pickle


class Workers:
    """The workers of a stage. Leaving the context removes what was made for them.

    Args:
        beam_args: arguments of Beam's ``PipelineOptions``. Without ``--runner``, processes of this machine work. With a
            runner and an address such as ``gs://bucket/folder`` as ``--temp_location``, files travel through that
            address; else workers must see this machine's files.
        folder: what the stage makes.

    Attributes:
        folder: where workers write files of the stage's output (see ``output_folder``, ``receive``). Its name is new:
            workers of a run that was killed may still write to theirs.
    """

    def __init__(self, beam_args: Sequence[str], folder: Path) -> None:
        self._args = tuple(beam_args)
        self._output = folder.absolute()
        options = parse_options(self._args) if beam_args else None
        values = options.get_all_options() if options else {}
        self._runner = str(values.get("runner") or "")
        temporary = str(values.get("temp_location") or "")
        self._address = f"{temporary.rstrip('/')}/{uuid4().hex}" if self._runner and "://" in temporary else None
        if self._address:
            file_systems().set_options(options)
            try:
                file_systems().get_filesystem(temporary)
            except ValueError as error:
                raise PipelineError("no such file system here", temporary, where=WHERE, hint=str(error)) from None
        self._results = f"{self._address or self._output}/.results"
        self.folder: Location = f"{self._address}/output" if self._address else Path(self._results, uuid4().hex)
        self._opened = contextlib.ExitStack()
        self._sent: dict[Path, str] = {}

    def __enter__(self) -> Workers:
        if isinstance(self.folder, Path):
            self.folder.mkdir(parents=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()  # NFS keeps an open file, and so its folder
        shutil.rmtree(self._output / ".results", ignore_errors=True)
        if self._address:
            folders = [f"{self._address}/{number}" for number in range(len(self._sent))]
            for folder in (*folders, self._results, str(self.folder)):
                with contextlib.suppress(OSError):  # there is none
                    file_systems().delete([f"{folder}/"])

    def send(self, location: Location) -> Location:
        """Return where workers find a file, or a folder of files: the path itself, or a copy of it at the address."""
        path = Path(location).absolute()
        if not self._address:
            return path
        if path not in self._sent:
            folder = f"{self._address}/{len(self._sent)}"
            self._sent[path] = folder if path.is_dir() else f"{folder}/{path.name}"
            for file in path.iterdir() if path.is_dir() else [path]:
                copy_file(file, f"{folder}/{file.name}")
        return self._sent[path]

    def receive(self, name: str) -> Path:
        """Move a file that workers have written to ``folder`` to the stage's output, and return its path."""
        path = self._output / name
        try:
            if isinstance(self.folder, Path):
                os.replace(self.folder / name, path)
            else:
                copy_file(f"{self.folder}/{name}", path)
        except OSError as error:
            if error.errno in (None, errno.ENOENT):  # None: of Beam's file systems
                raise lost_output(name, self.folder) from error
            raise
        return path

    def map(
        self, function: Callable[[Item], Result], items: Iterable[Item], through_beam: bool = True
    ) -> Iterator[Result]:
        """Yield ``function(item)`` for every item, in order; raise the error of the first item that has one.

        Errors are PipelineError and OSError; others are bugs, which a runner reports in its own way.

        Args:
            function: see ``map_in_order``.
            through_beam: whether Beam's local runner starts the processes of this machine, if no runner is named.
        """
        if not (self._runner or through_beam):
            yield from map_in_order(function, items)
            return
        numbered = list(enumerate(items))
        if numbered:
            # new names: workers keep functions by path, and those of an earlier run or map may still write
            records = f"{self._results}/{uuid4().hex}"
            self._run(function, numbered, records)
            yield from self._read(records, len(numbered))

    def _run(self, function: Callable[[Item], Result], items: list[tuple[int, Item]], records: str) -> None:
        beam = import_beam()
        # worker processes must find this package from any working directory
        paths = [str(Path(__file__).resolve().parents[2]), os.environ.get("PYTHONPATH", "")]
        os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(filter(None, paths)))
        # Beam's default runner would first try to fetch a program from the network
        arguments = [*self._args, *(() if self._runner else ("--runner=FnApiRunner",))]
        if "dask" in self._runner.lower() and not any(
            argument.startswith(("--dask_npartitions", "--dask_partition_size")) for argument in arguments
        ):
            arguments.append(f"--dask_npartitions={len(items)}")  # else a worker takes 128 items at a time
        # on this machine, processes that do not import Beam work on one batch
        batches = [[item] for item in items] if self._runner else [items]
        work = partial(
            _work,
            function=_pack(function, f"{records}-function"),
            records=records,
            options=self._args if self._address else (),
        )
        try:
            with beam.Pipeline(options=parse_options(arguments)) as pipeline:
                (
                    pipeline
                    | "batches" >> beam.Create(batches)
                    | "spread over workers" >> beam.Reshuffle()
                    | "work" >> beam.FlatMap(work).with_output_types(tuple[int, bytes])
                    | "collect" >> beam.GroupByKey()
                    | "write" >> beam.Map(partial(_write, path=records))
                )
        except Exception as error:
            # A runner turns its workers' exceptions into text; a full disk must remain an OSError.
            if os.strerror(errno.ENOSPC) in str(error):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._output)) from error
            if self._runner and isinstance(error, OSError) and error.errno is None:
                hint = "start its service and workers, or leave beam_args empty to work on this machine"
                raise PipelineError("the Beam runner cannot be reached", error, where=WHERE, hint=hint) from error
            raise

    def _read(self, records: str, count: int) -> Iterator[Any]:
        offsets: dict[int, int] = {}
        try:
            file = self._opened.enter_context(open_file(_location(records)))
        except OSError:
            raise lost_output(f"no results of {count} parts", WHERE) from None
        while header := file.read(HEADER.size):
            number, size = HEADER.unpack(header)
            offsets[number] = file.tell()
            file.seek(size, os.SEEK_CUR)
        for number in range(count):
            if number not in offsets:
                raise lost_output(f"results of {len(offsets)} of {count} parts", WHERE)
            file.seek(offsets[number])
            result, error = _unpack(file)
            if error is not None:
                raise self._explain(error)
            yield result

    def _explain(self, error: Exception) -> Exception:
        """Return a worker's error with this machine's paths; a file that only the worker does not find is a mistake."""
        if isinstance(error, PipelineError):
            where = error.where
            for path, address in self._sent.items():
                where = where if where is None else str(where).replace(address, str(path))
            return PipelineError(error.what, error.value, where=where, hint=error.hint)
        if self._runner and isinstance(error, FileNotFoundError):
            return lost_output(error.filename, "a file that a worker does not find")
        return error


def lost_output(value: object, where: object) -> PipelineError:
    """Return the error for a runner whose workers do not have the files of this process, or it does not have theirs."""
    return PipelineError(
        "the Beam runner lost output",
        value,
        where=where,
        hint="give workers and this process the same file system or an address as --temp_location, or leave beam_args "
        "in machine.yaml empty",
    )


def dask_setup(worker: object) -> None:
    """Import Beam, without unused libraries, as a Dask worker with ``--preload pipeline_src.text.beam`` starts."""
    import_beam()


def parse_options(arguments: Sequence[str]) -> Any:
    """Return the arguments as Beam's ``PipelineOptions``; the runner's module must be installed and know them all."""
    module = import_beam().options.pipeline_options
    message, runner = io.StringIO(), None
    try:
        with contextlib.redirect_stderr(message):  # argparse prints its usage of a page
            options = module.PipelineOptions(list(arguments))
            if runner := options.view_as(module.StandardOptions).runner:
                import_beam().runners.runner.create_runner(runner)  # imports the options of its own
            known, given = (options.get_all_options(retain_unknown_options=unknown) for unknown in (False, True))
    except SystemExit:
        problem = message.getvalue().strip().rpartition("error: ")[2]
        raise PipelineError("Beam refuses an option", problem, where=WHERE, hint="change it there") from None
    except (ImportError, ValueError, AttributeError, TypeError) as error:
        hint = f"{error}; install what it needs, or name another"
        raise PipelineError("no such Beam runner here", runner, where=WHERE, hint=hint) from None
    if unknown := sorted(given.keys() - known.keys()):
        hint = "Beam would ignore it: fix its spelling or remove it"
        raise PipelineError("not an option of Beam or its runner", f"--{unknown[0]}", where=WHERE, hint=hint)
    return options


def _location(text: str) -> Location:
    return text if "://" in text else Path(text)


class _Stored(NamedTuple):
    path: str


def _pack(value: object, path: str) -> bytes:
    """Pickle a value; a large pickle is written to ``path``, and the one returned says where it is."""
    data = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    if len(data) > MAX_RECORD_BYTES:
        with open_file(_location(path), "wb") as file:
            file.write(data)
        data = pickle.dumps(_Stored(path))
    return data


def _unpack(file: Any) -> Any:
    value = pickle.load(file)
    if isinstance(value, _Stored):
        with open_file(_location(value.path)) as stored:
            return pickle.load(stored)
    return value


@lru_cache(maxsize=1)  # a large function is read once by each process
def _unpack_function(data: bytes) -> Callable[[Any], Any]:
    function: Callable[[Any], Any] = _unpack(io.BytesIO(data))
    return function


def _work(
    batch: list[tuple[int, Any]], function: bytes, records: str, options: Sequence[str]
) -> Iterator[tuple[int, bytes]]:
    """Yield the records of a batch, all under one key; an error is a record, so that every runner hands it on."""
    if options:
        file_systems().set_options(parse_options(options))
    numbers = iter([number for number, _ in batch])
    number = next(numbers)
    try:
        items = [item for _, item in batch]
        for result in map_in_order(_unpack_function(function), items, min(len(batch), count_workers())):
            yield 0, _record(number, (result, None), records)
            number = next(numbers, -1)
    except (PipelineError, OSError) as error:
        yield 0, _record(number, (None, error), records)


def _record(number: int, outcome: tuple[object, Exception | None], records: str) -> bytes:
    data = _pack(outcome, f"{records}-{number}")
    return HEADER.pack(number, len(data)) + data


def _write(group: tuple[int, Iterable[bytes]], path: str) -> None:
    with open_file(_location(path), "wb") as file:
        file.writelines(group[1])
