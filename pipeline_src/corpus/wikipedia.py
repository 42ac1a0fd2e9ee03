"""Stage ``wikipedia``: one part of a dump to documents of clean prose, as an Apache Beam pipeline.

An element is a range of the dump's bz2 streams; its worker writes the range's shard itself, named by byte offset, and
only rows of the manifest flow through Beam. So articles are never shuffled or held in memory, and the output does
not depend on the runner or on the number of workers.
"""

from __future__ import annotations

import errno
import os
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from pipeline_src.corpus.documents import Document, write_manifest, write_shard
from pipeline_src.corpus.dump import Page, find_dump, read_head, read_pages, split_ranges
from pipeline_src.corpus.site import Site, read_site
from pipeline_src.corpus.wikitext import clean
from pipeline_src.errors import PipelineError
from pipeline_src.files import atomic_directory, read_json, write_json
from pipeline_src.params.wikipedia import WikipediaParams
from pipeline_src.progress import Progress, log

RAW, TEXT = Path("data/raw/wikipedia"), Path("data/text/wikipedia")
ROWS = ".rows.json"
Row = dict[str, Any]


def run(wikipedia: WikipediaParams, part: str) -> None:
    """Clean ``data/raw/wikipedia/<part>/`` into ``data/text/wikipedia/<part>/``.

    Raises:
        PipelineError: no dump, not a dump, a dump that is cut off or corrupt, or one without a single article.
        OSError: the disk is full.
    """
    dump = find_dump(RAW / part)
    site = read_site(read_head(dump))
    ranges = split_ranges(dump)
    with atomic_directory(TEXT / part) as folder:
        with _progress(dump, ranges, folder):
            rows = _run_beam(dump, ranges, site, folder.absolute(), wikipedia)
        _check(rows, ranges, folder)
        counts: Counter[str] = sum((Counter(row["counts"]) for row in rows), Counter())
        dropped: Counter[str] = sum((Counter(row["dropped"]) for row in rows), Counter())
        lines: Counter[str] = sum((Counter(row["lines"]) for row in rows), Counter())
        if not counts["pages"]:
            raise PipelineError("the dump holds no pages", dump, remedy="use a pages-articles dump")
        manifest = write_manifest(
            folder,
            [row["shard"] for row in rows],
            dropped,
            source=dump.name,
            site=site.name,
            language=site.language,
            pages=counts["pages"],
            dropped_lines=dict(sorted(lines.items())),
        )
        if not manifest["documents"]:
            raise PipelineError(
                "no article of the dump is left", dict(sorted(dropped.items())), where=dump,
                remedy="lower wikipedia.min_words in params.yaml, or use a pages-articles dump",
            )  # fmt: skip
    log.info("%d articles, %d words kept; dropped %s", manifest["documents"], manifest["words"], manifest["dropped"])


def clean_range(dump: Path, start: int, end: int, site: Site, folder: Path, min_words: int) -> Row:
    """Clean the pages that begin in bytes [start, end) of the dump, write their shard, return its manifest row."""
    counts: Counter[str] = Counter()
    dropped: Counter[str] = Counter()
    lines: Counter[str] = Counter()

    def documents() -> Iterator[Document]:
        for page in read_pages(dump, start, end):
            counts["pages"] += 1
            reason = why_not_an_article(page, site)
            if reason is None:
                text = clean(page.text, site, lines)
                words = len(text.split())
                reason = "empty" if not words else "too_short" if words < min_words else None
            if reason is not None:
                dropped[reason] += 1
                continue
            yield Document(f"{site.name}:{page.id}", page.title, text, page.revision)

    name = f"pages-{start:014d}.jsonl"
    partial = folder / f".{name}"  # a retried range overwrites its own file alone
    shard = write_shard(partial, documents()) | {"name": name}
    os.replace(partial, folder / name)
    return {"start": start, "shard": shard, "counts": counts, "dropped": dropped, "lines": lines}


def why_not_an_article(page: Page, site: Site) -> str | None:
    """The reason to drop a page before it is cleaned; None for an article."""
    if page.namespace != 0:
        return "namespace"
    if page.redirect or site.redirect.match(page.text):
        return "redirect"
    if site.disambiguation.search(page.text) or "__DISAMBIG__" in page.text:
        return "disambiguation"
    return None


class CleanRange(beam.DoFn):  # type: ignore[misc]
    """Cleans one range. Errors that a user can mend travel as rows, so that every runner reports them alike."""

    def __init__(self, dump: Path, site: Site, folder: Path, min_words: int) -> None:
        super().__init__()
        self.dump, self.site, self.folder, self.min_words = dump, site, folder, min_words

    def process(self, element: tuple[int, int]) -> Iterable[Row]:
        """Yield the manifest row of the range, or a row that holds its error."""
        try:
            yield clean_range(self.dump, *element, self.site, self.folder, self.min_words)
        except PipelineError as error:
            yield {"start": element[0], "error": [error.what, *map(_plain, (error.value, error.where)), error.remedy]}
        except OSError as error:
            yield {
                "start": element[0],
                "errno": error.errno,
                "text": error.strerror or str(error),
                "file": _plain(error.filename),
            }


def _plain(value: object) -> str | None:
    return None if value is None else str(value)


def _run_beam(
    dump: Path, ranges: list[tuple[int, int]], site: Site, folder: Path, params: WikipediaParams
) -> list[Row]:
    rows_file = folder / ROWS
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
                | "clean" >> beam.ParDo(CleanRange(dump.absolute(), site, folder, params.min_words))
                | "gather rows" >> beam.combiners.ToList()
                | "write rows" >> beam.Map(lambda rows: write_json(rows_file, rows))
            )
    except Exception as error:
        # A runner turns an exception of its workers into text; a full disk must still be told as one.
        if os.strerror(errno.ENOSPC) in str(error):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder)) from error
        raise
    rows = sorted(read_json(rows_file), key=lambda row: row["start"]) if rows_file.exists() else []
    rows_file.unlink(missing_ok=True)
    return rows


def beam_options(beam_args: Sequence[str], ranges: int) -> list[str]:
    """The user's options verbatim; without a runner among them, the local one on every core at hand.

    The local runner is named because Beam's default first tries to fetch a program from the network.
    """
    if any(argument.split("=")[0] == "--runner" for argument in beam_args):
        return list(beam_args)
    workers = min(ranges, int(os.environ.get("PIPELINE_WORKERS") or len(os.sched_getaffinity(0))))
    local = ["--runner=FnApiRunner"]
    if workers > 1:  # starting worker processes takes seconds: not for a single range
        local += [f"--direct_num_workers={workers}", "--direct_running_mode=multi_processing"]
    return [*local, *beam_args]


def _check(rows: list[Row], ranges: list[tuple[int, int]], folder: Path) -> None:
    """Raise the first range's error; then compare what the runner reports with what lies on the disk."""
    for row in rows:
        if "error" in row:
            what, value, where, remedy = row["error"]
            raise PipelineError(what, value, where=where, remedy=remedy)
        if "errno" in row:
            raise OSError(row["errno"], row["text"], row["file"])
    reported = {row["start"]: row["shard"]["bytes"] for row in rows}
    for start, _ in ranges:
        path = folder / f"pages-{start:014d}.jsonl"
        written = path.stat().st_size if path.exists() else None
        if written is None or written != reported.get(start):
            raise PipelineError(
                "the Beam runner lost output",
                f"{written or 0} bytes on disk, {reported.get(start, 0)} reported",
                where=f"range at byte {start:,}",
                remedy="give workers and this process the same file system, or leave wikipedia.beam_args empty",
            )


@contextmanager
def _progress(dump: Path, ranges: list[tuple[int, int]], folder: Path) -> Iterator[None]:
    """Show how much of the dump is done by looking, once a second, which shards are there: works for any runner."""
    finished = threading.Event()

    def watch() -> None:
        left = dict(ranges)
        with Progress(f"cleaning {dump.name}", dump.stat().st_size, "B") as progress:
            while not finished.wait(1.0):
                for start in [start for start in left if (folder / f"pages-{start:014d}.jsonl").exists()]:
                    progress.advance(left.pop(start) - start)
                progress.advance(0)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        finished.set()
        thread.join()
