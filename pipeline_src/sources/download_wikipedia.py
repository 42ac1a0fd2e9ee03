"""Stage ``download_wikipedia``: one part of the dump that params.yaml names."""

from __future__ import annotations

from pathlib import Path

from pipeline_src.files import atomic_directory
from pipeline_src.params.wikipedia import WikipediaParams
from pipeline_src.progress import log
from pipeline_src.sources.catalogue import load_source, resolve
from pipeline_src.sources.fetch import obtain, place

FOLDER = Path("data/raw/wikipedia")


def run(wikipedia: WikipediaParams, part: str) -> None:
    """Fetch and verify one part of the dump into ``data/raw/wikipedia/<part>/``, with a ``source.json``."""
    source = resolve(wikipedia.dump, load_source(wikipedia.dump), date=wikipedia.date, part=part)
    obtained = obtain(wikipedia.dump, source)
    with atomic_directory(FOLDER / part) as folder:
        place(wikipedia.dump, source, obtained, folder)
    log.info("%d files of %s in %s", len(obtained), wikipedia.dump, FOLDER / part)
