"""Stage ``clean_wikipedia``: one part of a dump to documents of clean prose, as an Apache Beam pipeline.

An element is a range of the dump's bz2 streams; its worker writes the range's shard itself, named by byte offset, and
the shard's row of the manifest beside it. So articles are never shuffled or held in memory, no result passes through
the runner, and the output does not depend on which one it is or on the number of workers.
"""

from __future__ import annotations

import errno
import os
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import atomic_directory, read_json, write_json
from pipeline_src.common.parallel import count_workers
from pipeline_src.common.paths import raw_wikipedia, text_wikipedia
from pipeline_src.common.progress import Progress, log
from pipeline_src.corpus.documents import read_source, write_manifest
from pipeline_src.params.wikipedia import WikipediaParams
from pipeline_src.wikipedia.articles import Row, clean_range, drop_repeated, shard_name
from pipeline_src.wikipedia.dump import find_dump, read_head
from pipeline_src.wikipedia.siteinfo import SiteInfo, read_siteinfo
from pipeline_src.wikipedia.streams import split_ranges

MOST_UNKNOWN = 100  # templates that the manifest lists


def run(wikipedia: WikipediaParams, part: str) -> None:
    """Clean ``data/raw/wikipedia/<part>/dump-files/`` into ``data/text/wikipedia/<part>/clean-text/``.

    Raises:
        PipelineError: no dump, not a dump, a dump that is cut off or corrupt, or one without a single article.
        OSError: the disk is full.
    """
    dump = find_dump(raw_wikipedia(part))
    siteinfo = read_siteinfo(read_head(dump))
    ranges = split_ranges(dump)
    with atomic_directory(text_wikipedia(part)) as folder:
        with _progress(dump, ranges, folder):
            _run_beam(dump, ranges, siteinfo, folder.absolute(), wikipedia)
        rows = _collect(ranges, folder)
        drop_repeated(rows, folder)
        corrupt = [{"byte": byte, "problem": problem} for row in rows for byte, problem in row["corrupt_streams"]]
        for stream in corrupt:
            log.warning("%s: the bz2 stream at byte %d is corrupt and left out: %s", dump, *stream.values())
        counts: Counter[str] = sum((Counter(row["counts"]) for row in rows), Counter())
        dropped: Counter[str] = sum((Counter(row["dropped"]) for row in rows), Counter())
        lines: Counter[str] = sum((Counter(row["lines"]) for row in rows), Counter())
        unknown: Counter[str] = sum((Counter(row["unknown_templates"]) for row in rows), Counter())
        if not counts["pages"]:
            raise PipelineError("the dump holds no pages", dump, remedy="use a pages-articles dump")
        manifest = write_manifest(
            folder,
            [row["shard"] for row in rows],
            dropped,
            source=dump.name,
            site=siteinfo.name,
            language=siteinfo.language,
            pages=counts["pages"],
            dropped_lines=dict(sorted(lines.items())),
            unknown_templates=most_frequent(unknown),
            corrupt_streams=corrupt,
            sources=[{**source, "language": siteinfo.language} for source in read_source(raw_wikipedia(part))],
        )
        if not manifest["documents"]:
            raise PipelineError(
                "no article of the dump is left", dict(sorted(dropped.items())), where=dump,
                remedy="lower wikipedia.min_words in params.yaml, or use a pages-articles dump",
            )  # fmt: skip
    log.info("%d articles, %d words kept; dropped %s", manifest["documents"], manifest["words"], manifest["dropped"])


def most_frequent(unknown: Counter[str]) -> dict[str, int]:
    """The commonest unknown templates and the sentences left out for each, the most first."""
    commonest = sorted(unknown.items(), key=lambda item: (-item[1], item[0]))[:MOST_UNKNOWN]
    return dict(commonest)


class CleanRange(beam.DoFn):  # type: ignore[misc]
    """Cleans one range. Errors that a user can mend are rows too, so that every runner reports them alike."""

    def __init__(self, dump: Path, siteinfo: SiteInfo, folder: Path, min_words: int) -> None:
        super().__init__()
        self.dump, self.siteinfo, self.folder, self.min_words = dump, siteinfo, folder, min_words

    def process(self, element: tuple[int, int]) -> None:
        """Write the shard of the range and, last, its row of the manifest, or a row that holds its error."""
        try:
            row = clean_range(self.dump, *element, self.siteinfo, self.folder, self.min_words)
        except PipelineError as error:
            row = {"error": [error.what, *map(_plain, (error.value, error.where)), error.remedy]}
        except OSError as error:
            row = {"errno": [error.errno, error.strerror or str(error), _plain(error.filename)]}
        write_json(self.folder / _row(element[0]), row)


def _plain(value: object) -> str | None:
    return None if value is None else str(value)


def _row(start: int) -> str:
    return f".pages-{start:014d}.row.json"


def _run_beam(
    dump: Path, ranges: list[tuple[int, int]], siteinfo: SiteInfo, folder: Path, params: WikipediaParams
) -> None:
    # worker processes must find this package wherever it is run from
    paths = [str(Path(__file__).resolve().parents[2]), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    options = PipelineOptions(beam_options(params.beam_args, len(ranges)))
    try:
        with beam.Pipeline(options=options) as pipeline:
            (
                pipeline
                | "ranges" >> beam.Create(ranges)
                | "spread over workers" >> beam.Reshuffle()
                | "clean" >> beam.ParDo(CleanRange(dump.absolute(), siteinfo, folder, params.min_words))
            )
    except Exception as error:
        # A runner turns an exception of its workers into text; a full disk must still be told as one.
        if os.strerror(errno.ENOSPC) in str(error):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder)) from error
        raise


def beam_options(beam_args: Sequence[str], ranges: int) -> list[str]:
    """The user's options verbatim; without a runner among them, the local one on every core at hand.

    The local runner is named because Beam's default first tries to fetch a program from the network.
    """
    if any(argument.split("=")[0] == "--runner" for argument in beam_args):
        return list(beam_args)
    workers = min(ranges, count_workers())
    local = ["--runner=FnApiRunner"]
    if workers > 1:  # starting worker processes takes seconds: not for a single range
        local += [f"--direct_num_workers={workers}", "--direct_running_mode=multi_processing"]
    return [*local, *beam_args]


def _collect(ranges: list[tuple[int, int]], folder: Path) -> list[Row]:
    """The row of every range, after holding it to what lies on the disk; the first range's error is raised."""
    rows = []
    for start, _ in ranges:
        path, shard = folder / _row(start), folder / shard_name(start)
        row = read_json(path) if path.exists() else {}
        path.unlink(missing_ok=True)
        if "error" in row:
            what, value, where, remedy = row["error"]
            raise PipelineError(what, value, where=where, remedy=remedy)
        if "errno" in row:
            raise OSError(*row["errno"])
        written = shard.stat().st_size if shard.exists() else 0
        if not row or written != row["shard"]["bytes"]:
            raise PipelineError(
                "the Beam runner lost output",
                f"{written} bytes on disk, {row['shard']['bytes'] if row else 0} reported",
                where=f"range at byte {start:,}",
                remedy="give workers and this process the same file system, or leave wikipedia.beam_args empty",
            )
        rows.append(row)
    return rows


@contextmanager
def _progress(dump: Path, ranges: list[tuple[int, int]], folder: Path) -> Iterator[None]:
    """Show how much of the dump is done by looking, once a second, which shards are there: works for any runner."""
    finished = threading.Event()

    def watch() -> None:
        left = dict(ranges)
        with Progress(f"cleaning {dump.name}", dump.stat().st_size, "B") as progress:
            while not finished.wait(1.0):
                for start in [start for start in left if (folder / shard_name(start)).exists()]:
                    progress.advance(left.pop(start) - start)
                progress.advance(0)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        finished.set()
        thread.join()
