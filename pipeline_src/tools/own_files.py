"""Read the start of each of the user's own files of text, and their task files, as the stages do, before any work."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.yaml_files import SOURCES
from pipeline_src.sources.catalogue import Source, load_source
from pipeline_src.sources.download import resolved
from pipeline_src.sources.fetch import check_targets, fill_folder, obtain, own_files, with_local_paths
from pipeline_src.study.data import FilesParams, SourceParams
from pipeline_src.study.study import Study
from pipeline_src.tasks.download_tasks import check_task, fetched_sources
from pipeline_src.text.books.readers import WrongFile, find_wrong_files
from pipeline_src.text.wikipedia.dump import find_dump, read_head


def find_wrong(study: Study) -> Iterator[WrongFile]:
    """Check the user's own files (``file:`` addresses of the catalogue), and yield the faulty ones."""
    for name, source in fetched_sources(study.task_source, study.tasks, study.interpretation.pair_sets).items():
        if not _is_own(source):
            continue
        try:
            if name in study.tasks:
                warning = _check_files(name, source, partial(check_task, name))
                if warning is not None:
                    yield WrongFile(warning, stops=False)
            else:
                _check_files(name, source, _read_pairs)
        except PipelineError as error:
            yield WrongFile(error, stops=True)
    for name, params in study.corpus.sources.items():
        # the parts of other sources are asked for at an address
        if _is_own(load_source(SOURCES, params.entry)):
            for part, source in resolved(name, params):
                yield from _wrong_texts(part, source, params)


def _is_own(source: Source) -> bool:
    return all(file.scheme == "file" for file in source.files)


def _check_files(name: str, source: Source, read: Callable[[Path], PipelineError | None]) -> PipelineError | None:
    # Returns the warning of `read`, which does not stop the study, with the paths of the own files.
    obtained = obtain(name, source)
    with TemporaryDirectory() as temporary:
        folder = Path(temporary, name)
        fill_folder(name, source, obtained, folder)
        try:
            warning = read(folder)
        except PipelineError as error:
            raise with_local_paths(error, folder, obtained) from None
    return warning and with_local_paths(warning, folder, obtained)


def _read_pairs(folder: Path) -> None:
    # Imported here, since it imports torch and few studies have pairs of their own.
    from pipeline_src.interpret.minimal_pairs import read_pair_set

    read_pair_set(folder, seed=0)


def _wrong_texts(part: Path, source: Source, params: SourceParams) -> Iterator[WrongFile]:
    try:
        obtained = own_files(params.entry, source)
        check_targets(params.entry, [(item.file, str(item.local)) for item in obtained])
    except PipelineError as error:
        yield WrongFile(error, stops=True)
        return
    if any(file.unpack or file.excerpts for file in source.files):
        return
    with TemporaryDirectory() as temporary:
        # links under the names that the stage would give the files
        folder = Path(temporary, part)
        for item in obtained:
            link = folder / item.file.path
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(item.local.absolute())
            if not os.access(item.local, os.R_OK):
                hint = "give yourself permission to read it (`chmod u+r`), or move it elsewhere"
                yield WrongFile(PipelineError("no permission to read a file", item.local, hint=hint), stops=True)
                link.unlink()
        for wrong in _read_starts(folder, params):
            yield WrongFile(with_local_paths(wrong.error, folder, obtained), wrong.stops)


def _read_starts(folder: Path, params: SourceParams) -> Iterator[WrongFile]:
    if isinstance(params, FilesParams):
        yield from find_wrong_files(folder, params)
        return
    try:
        read_head(find_dump(folder))
    except PipelineError as error:
        yield WrongFile(error, stops=True)
