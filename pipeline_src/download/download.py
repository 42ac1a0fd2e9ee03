"""Stage ``download``: the files of one source in params.yaml."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pipeline_src.common.files import atomic_directory
from pipeline_src.common.paths import raw_files
from pipeline_src.common.progress import log
from pipeline_src.common.yaml_files import SOURCES
from pipeline_src.config.data import CorpusParams, SourceParams
from pipeline_src.download.catalogue import Source, load_source, resolve
from pipeline_src.download.fetch import obtain, place
from pipeline_src.download.parts import find_parts, wants_all_parts


def run(corpus: CorpusParams, source: str) -> None:
    """Fetch and verify the files of a source into ``data/raw/<source>/fetched-files/``, with a ``source.json``.

    If the source has parts, each has a folder of its name there.
    """
    params = corpus.source(source)
    obtained = [(part, entry, obtain(params.entry, entry)) for part, entry in resolved(source, params)]
    with atomic_directory(raw_files(source)) as folder:
        for part, entry, files in obtained:
            place(params.entry, entry, files, folder / part)
    count = sum(len(files) for _, _, files in obtained)
    log.info("%s, of %d files fetched, is in %s", params.entry, count, raw_files(source))


def resolved(source: str, params: SourceParams) -> Iterator[tuple[Path, Source]]:
    """Yield the folder of each part below that of the source, and its entry of the catalogue with all filled in."""
    entry, where = load_source(SOURCES, params.entry), f"corpus.sources.{source}"
    parts = params.parts
    if wants_all_parts(entry, parts):
        parts = tuple(find_parts(params.entry, entry, params.date, where))
    for part in parts or (None,):
        yield Path(part or "."), resolve(params.entry, entry, date=params.date, part=part, where=where)
