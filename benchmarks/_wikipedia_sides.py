"""The sides of benchmark ``wikipedia``, each a program: ``python -m benchmarks._wikipedia_sides SIDE DUMP FOLDER``.

It writes below FOLDER and prints one line of JSON about itself. Nothing is imported that its side does not need.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.measure import cpu_seconds
from pipeline_src.common.paths import raw_wikipedia, text_wikipedia

TEXT = text_wikipedia("all")


def beam(dump: Path, folder: Path) -> None:
    """Ours: the stage as it is, in a project of its own."""
    from pipeline_src.params.wikipedia import WikipediaParams
    from pipeline_src.wikipedia import clean_wikipedia as wikipedia

    os.chdir(folder)
    raw_wikipedia("all").mkdir(parents=True)
    (raw_wikipedia("all") / "dump.xml.bz2").symlink_to(dump)
    wikipedia.run(WikipediaParams(dump="own-wikipedia", parts=("all",)), "all")


def loop(dump: Path, folder: Path) -> None:
    """The same functions called one range after another: the least that the same shards can cost."""
    from pipeline_src.corpus.documents import write_manifest
    from pipeline_src.wikipedia.articles import clean_range
    from pipeline_src.wikipedia.dump import read_head
    from pipeline_src.wikipedia.siteinfo import read_siteinfo
    from pipeline_src.wikipedia.streams import split_ranges

    (folder / TEXT).mkdir(parents=True)
    site = read_siteinfo(read_head(dump))
    rows = [clean_range(dump, start, end, site, folder / TEXT, min_words=0) for start, end in split_ranges(dump)]
    write_manifest(folder / TEXT, [row["shard"] for row in rows], {})


def published(dump: Path, folder: Path) -> None:
    """The topology of TensorFlow Datasets and Hugging Face."""
    from benchmarks._tfds_wikipedia import run

    run(dump, folder)


SIDES: dict[str, Callable[[Path, Path], None]] = {"beam": beam, "loop": loop, "published": published}


def main(side: str, dump: str, folder: str) -> None:
    """One run, then its CPU seconds, with those of its children, and its peak memory in MB."""
    SIDES[side](Path(dump).absolute(), Path(folder).absolute())
    # this program's own peak; ru_maxrss would count what its parent held when it was started
    peak = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert peak is not None
    print(json.dumps({"cpu_s": cpu_seconds(), "peak_mb": int(peak[1]) * 1024 / 1e6}))


if __name__ == "__main__":
    main(*sys.argv[1:])
