"""Stage ``clean`` for a Wikipedia: all parts of a dump to documents of clean prose, as an Apache Beam pipeline.

An element is a range of a part's bz2 streams; a worker writes its shard, named by part and byte offset, and the shard's
row of the manifest. Articles are never shuffled or held in memory, no result passes through the runner, and the output
does not depend on the runner or on the number of workers.
"""

from __future__ import annotations

import errno
import os
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import atomic_directory, read_json, write_json
from pipeline_src.common.parallel import count_workers
from pipeline_src.common.paths import clean_text, raw_files
from pipeline_src.common.progress import Progress, log
from pipeline_src.config.data import WikipediaParams
from pipeline_src.corpus.documents import (
    Document,
    ShardSlice,
    part_names,
    read_origins,
    read_slice,
    subsample_to_words,
    write_manifest,
    write_shard,
)
from pipeline_src.corpus.dropped import DroppedSample
from pipeline_src.corpus.filters import refusal
from pipeline_src.corpus.language import check_language
from pipeline_src.corpus.wikipedia.dump import Damage, Page, find_dump, read_head, read_pages, split_ranges
from pipeline_src.corpus.wikipedia.siteinfo import SiteInfo, read_siteinfo
from pipeline_src.corpus.wikipedia.wikitext import clean

Row = dict[str, Any]  # of the manifest, for one range

MOST_UNKNOWN = 100  # templates that the manifest lists


@dataclass(frozen=True)
class DumpPart:
    """A part of a dump: its name, '' without parts, its file, and what the file says of the site."""

    name: str
    dump: Path
    siteinfo: SiteInfo

    def shard_name(self, start: int) -> str:
        """Return the shard's name of the range that begins at byte ``start``; they sort in the dump's order."""
        return f"{self.name}{self.name and '-'}pages-{start:014d}.jsonl"


@dataclass(frozen=True)
class Range:
    """The pages that begin in bytes [start, end) of a part."""

    part: DumpPart
    start: int
    end: int

    @property
    def shard(self) -> str:
        return self.part.shard_name(self.start)

    @property
    def row(self) -> str:
        """Name of the file of its row, until they are collected."""
        return f".{self.shard}.row.json"


def run(source: str, params: WikipediaParams) -> None:
    """Clean ``data/raw/<source>/fetched-files/`` into ``data/text/<source>/clean-text/``.

    Raises:
        OSError: the disk is full.
    """
    files = raw_files(source)
    names = part_names(files, params.parts)
    dumps = {name: find_dump(files / name) for name in sorted(names or ("",))}
    parts = [DumpPart(name, dump, read_siteinfo(read_head(dump))) for name, dump in dumps.items()]
    siteinfo = parts[0].siteinfo
    check_language(params.filters, params.language or siteinfo.language, source)
    ranges = [Range(part, *ends) for part in parts for ends in split_ranges(part.dump)]
    with atomic_directory(clean_text(source)) as folder:
        with _progress(source, ranges, folder):
            _run_beam(ranges, folder.absolute(), params)
        rows = _collect(ranges, folder)
        sample = DroppedSample()
        for row in rows:
            sample.merge(row.pop("dropped_sample"))
        drop_repeated(rows, folder, sample)
        sample.write(folder)
        corrupt = [
            {"dump": each.part.dump.name, "byte": byte, "problem": problem}
            for each, row in zip(ranges, rows, strict=True)
            for byte, problem in row["corrupt_streams"]
        ]
        for stream in corrupt:
            log.warning("%s: the bz2 stream at byte %d is corrupt and left out: %s", *stream.values())
        counts, dropped, lines, unknown = (
            sum((Counter(row[key]) for row in rows), Counter[str]())
            for key in ("counts", "dropped", "lines", "unknown_templates")
        )
        if not counts["pages"]:
            raise PipelineError("the dump holds no pages", _names(parts), hint="use a pages-articles dump")
        shards, beyond = subsample_to_words(folder, [row["shard"] for row in rows], params.max_words)
        manifest = write_manifest(
            folder,
            shards,
            +(dropped + Counter(beyond_max_words=beyond)),
            dumps=[part.dump.name for part in parts],
            site=siteinfo.name,
            language=params.language or siteinfo.language,
            pages=counts["pages"],
            dropped_lines=dict(sorted(lines.items())),
            unknown_templates=most_frequent(unknown),
            corrupt_streams=corrupt,
            sources=[{**origin, "language": siteinfo.language} for origin in read_origins(files, names)],
        )
        if not manifest["documents"]:
            raise PipelineError(
                "no article of the dump is left", dict(sorted(dropped.items())), where=_names(parts),
                hint=f"lower corpus.sources.{source}.min_words in params.yaml, or use a pages-articles dump",
            )  # fmt: skip
    log.info("%d articles, %d words kept; dropped %s", manifest["documents"], manifest["words"], manifest["dropped"])


def _names(parts: list[DumpPart]) -> str:
    return ", ".join(str(part.dump) for part in parts)


def most_frequent(unknown: Counter[str]) -> list[list[str | int]]:
    """Return the templates that cost most sentences, each with their number, by number."""
    commonest = sorted(unknown.items(), key=lambda item: (-item[1], item[0]))[:MOST_UNKNOWN]
    return [list(item) for item in commonest]


class CleanRange(beam.DoFn):  # type: ignore[misc]
    """Cleans one range. An error for the user is also a row, so that every runner reports it alike."""

    def __init__(self, ranges: list[Range], folder: Path, params: WikipediaParams) -> None:
        super().__init__()
        self.ranges, self.folder, self.params = ranges, folder, params

    def process(self, element: int) -> None:
        """Write the shard of a range, by its number, and then its row of the manifest, or a row with its error."""
        mine = self.ranges[element]
        try:
            row = clean_range(mine, self.folder, self.params)
        except PipelineError as error:
            row = {"error": [error.what, *map(_plain, (error.value, error.where)), error.hint]}
        except OSError as error:
            row = {"errno": [error.errno, error.strerror or str(error), _plain(error.filename)]}
        write_json(self.folder / mine.row, row)


def clean_range(mine: Range, folder: Path, params: WikipediaParams) -> Row:
    """Clean the pages of a range, write their shard, and return its row."""
    siteinfo = mine.part.siteinfo
    counts: Counter[str] = Counter()
    dropped: Counter[str] = Counter()
    sample = DroppedSample()
    lines: Counter[str] = Counter()
    unknown: Counter[str] = Counter()
    ids: list[int] = []
    damage = Damage()

    def documents() -> Iterator[Document]:
        for page in read_pages(mine.part.dump, mine.start, mine.end, damage):
            counts["pages"] += 1
            value: float | None = None
            limit: float | None = None
            shown = article = Document(f"{siteinfo.name}:{page.id}", page.title, page.text, page.revision)
            reason = why_not_an_article(page, siteinfo)
            if reason is None:
                text = clean(page.text, siteinfo, lines, unknown, page.title)
                article = replace(article, text=text)
                if not article.words:
                    reason = "empty"
                elif article.words < params.min_words:
                    reason, value, limit, shown = "too_short", article.words, params.min_words, article
                elif broken := refusal(text, params.filters, params.language or siteinfo.language):
                    reason, value, limit, shown = *broken, article
                else:
                    ids.append(page.id)
                    yield article
                    continue
            dropped[reason] += 1
            sample.add(reason, shown, value, limit)

    partial = folder / f".{mine.shard}"  # a retried range overwrites only its own file
    shard = write_shard(partial, documents()) | {"name": mine.shard}
    os.replace(partial, folder / mine.shard)
    dropped += Counter(corrupt_stream=len(damage.streams), page_cut_by_corrupt_stream=damage.cut_pages)
    return {
        "shard": shard,
        "counts": counts,
        "dropped": dropped,
        "dropped_sample": sample.rows(),
        "lines": lines,
        "unknown_templates": unknown,
        "ids": ids,
        "corrupt_streams": damage.streams,
    }


def drop_repeated(rows: list[Row], folder: Path, sample: DroppedSample) -> None:
    """Keep the first of several articles of one id (a dump may contain a stream twice), and count the others."""
    seen: set[int] = set()
    for row in rows:
        first = []
        for page in row["ids"]:
            first.append(page not in seen)
            seen.add(page)
        if all(first):
            continue
        path = folder / row["shard"]["name"]
        documents = read_slice(ShardSlice(path, 0, path.stat().st_size))
        kept = []
        for document, keep in zip(documents, first, strict=True):
            if keep:
                kept.append(document)
            else:
                sample.add("repeated", document)
        partial = folder / f".{path.name}"
        row["shard"] = write_shard(partial, kept) | {"name": path.name}
        os.replace(partial, path)
        row["dropped"]["repeated"] = row["dropped"].get("repeated", 0) + len(first) - len(kept)


def why_not_an_article(page: Page, siteinfo: SiteInfo) -> str | None:
    """Return the reason to drop a page before it is cleaned, or None."""
    if page.namespace != 0:
        return "namespace"
    if page.redirect or siteinfo.redirect.match(page.text):
        return "redirect"
    if siteinfo.disambiguation.search(page.text) or "__DISAMBIG__" in page.text:
        return "disambiguation"
    return None


def _plain(value: object) -> str | None:
    return None if value is None else str(value)


def _run_beam(ranges: list[Range], folder: Path, params: WikipediaParams) -> None:
    # worker processes must find this package from any working directory
    paths = [str(Path(__file__).resolve().parents[3]), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    options = PipelineOptions(beam_options(params.beam_args, len(ranges)))
    absolute = [replace(each, part=replace(each.part, dump=each.part.dump.absolute())) for each in ranges]
    try:
        with beam.Pipeline(options=options) as pipeline:
            (
                pipeline
                | "ranges" >> beam.Create(range(len(ranges)))
                | "spread over workers" >> beam.Reshuffle()
                | "clean" >> beam.ParDo(CleanRange(absolute, folder, params))
            )
    except Exception as error:
        # A runner turns its workers' exceptions into text; a full disk must remain an OSError.
        if os.strerror(errno.ENOSPC) in str(error):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder)) from error
        raise


def beam_options(beam_args: Sequence[str], ranges: int) -> list[str]:
    """Return the user's options and, unless they name a runner, the local one on every available core.

    It is named because Beam's default runner first tries to fetch a program from the network.
    """
    if any(argument.split("=")[0] == "--runner" for argument in beam_args):
        return list(beam_args)
    workers = min(ranges, count_workers())
    local = ["--runner=FnApiRunner"]
    if workers > 1:  # starting worker processes takes seconds
        local += [f"--direct_num_workers={workers}", "--direct_running_mode=multi_processing"]
    return [*local, *beam_args]


def _collect(ranges: list[Range], folder: Path) -> list[Row]:
    """Return every range's row, checked against the files; raise the first error among them."""
    rows = []
    for each in ranges:
        path, shard = folder / each.row, folder / each.shard
        row = read_json(path) if path.exists() else {}
        path.unlink(missing_ok=True)
        if "error" in row:
            what, value, where, hint = row["error"]
            raise PipelineError(what, value, where=where, hint=hint)
        if "errno" in row:
            raise OSError(*row["errno"])
        written = shard.stat().st_size if shard.exists() else 0
        if not row or written != row["shard"]["bytes"]:
            raise PipelineError(
                "the Beam runner lost output",
                f"{written} bytes on disk, {row['shard']['bytes'] if row else 0} reported",
                where=f"{each.part.dump}, range at byte {each.start:,}",
                hint="give workers and this process the same file system, or leave the source's beam_args empty",
            )
        rows.append(row)
    return rows


@contextmanager
def _progress(source: str, ranges: list[Range], folder: Path) -> Iterator[None]:
    """Show the progress by looking for new shards once a second, which works with any runner."""
    finished = threading.Event()

    def watch() -> None:
        left = {each.shard: each.end - each.start for each in ranges}
        with Progress(f"cleaning {source}", sum(left.values()), "B") as progress:
            while not finished.wait(1.0):
                for shard in [shard for shard in left if (folder / shard).exists()]:
                    progress.advance(left.pop(shard))
                progress.advance(0)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        finished.set()
        thread.join()
