"""Stage ``download_wikipedia``: one part of the dump in params.yaml."""

from __future__ import annotations

from pipeline_src.common.files import atomic_directory
from pipeline_src.common.paths import raw_wikipedia
from pipeline_src.common.progress import log
from pipeline_src.common.yaml_files import SOURCES
from pipeline_src.config.data import WikipediaParams
from pipeline_src.download.catalogue import load_source, resolve
from pipeline_src.download.fetch import obtain, place


def run(wikipedia: WikipediaParams, part: str) -> None:
    """Fetch and verify one part of the dump into ``data/raw/wikipedia/<part>/dump-files/``, with a ``source.json``."""
    source = resolve(wikipedia.dump, load_source(SOURCES, wikipedia.dump), date=wikipedia.date, part=part)
    obtained = obtain(wikipedia.dump, source)
    with atomic_directory(raw_wikipedia(part)) as folder:
        place(wikipedia.dump, source, obtained, folder)
    log.info("%d files of %s in %s", len(obtained), wikipedia.dump, raw_wikipedia(part))
