"""Stage ``clean`` for a Wikipedia: all parts of a dump to documents of clean prose, as an Apache Beam pipeline.

An element is a batch of ranges of bz2 streams. Each range becomes a shard, named by part and byte offset, and a line of
counts. Articles are never shuffled or held in memory, and the output does not depend on the runner
or on the number of workers. Beam takes a second to import, so only the process that builds the pipeline imports it.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import shutil
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import atomic_directory, atomic_file
from pipeline_src.common.parallel import count_workers, map_in_order
from pipeline_src.common.paths import clean_text, raw_files
from pipeline_src.common.progress import Progress, log
from pipeline_src.config.data import WikipediaParams
from pipeline_src.corpus.documents import Document, part_names, read_origins, write_manifest, write_shard
from pipeline_src.corpus.dropped import DroppedSample, drop_documents
from pipeline_src.corpus.filters import refusal
from pipeline_src.corpus.language import check_language
from pipeline_src.corpus.wikipedia.dump import Damage, Page, find_dump, read_head, read_pages, split_ranges
from pipeline_src.corpus.wikipedia.siteinfo import REDIRECT, SiteInfo, read_siteinfo
from pipeline_src.corpus.wikipedia.wikitext import clean

MAX_UNKNOWN_TEMPLATES = 100  # in the manifest
RESULTS = ".results"  # a folder with a file for each batch, until they are collected
RangeResult = dict[str, Any]  # a range's shard and counts


@dataclass(frozen=True)
class DumpPart:
    """A part of a dump; ``name`` is '' if the dump has no parts."""

    name: str
    dump: Path
    siteinfo: SiteInfo


@dataclass(frozen=True)
class Range:
    """The pages that begin in bytes [start, end) of a part."""

    part: DumpPart
    start: int
    end: int

    @property
    def shard(self) -> str:
        """Name of its shard; names sort in the dump's order."""
        return f"{self.part.name}{self.part.name and '-'}pages-{self.start:014d}.jsonl"


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
        results = _collect(ranges, folder)
        corrupt = [
            {"dump": span.part.dump.name, "byte": byte, "problem": problem}
            for span, result in zip(ranges, results, strict=True)
            for byte, problem in result["corrupt_streams"]
        ]
        for stream in corrupt:
            log.warning("%s: the bz2 stream at byte %d is corrupt and left out: %s", *stream.values())
        counts, dropped, lines, unknown = (
            sum((Counter(result[key]) for result in results), Counter[str]())
            for key in ("counts", "dropped", "lines", "unknown_templates")
        )
        if not counts["pages"]:
            raise PipelineError("the dump holds no pages", _names(parts), hint="use a pages-articles dump")
        sample = DroppedSample()
        for result in results:
            sample.merge(result.pop("dropped_sample"))
        shards, dropped_later = drop_documents(
            folder, [result["shard"] for result in results], params.max_words, sample, _find_repeated(results)
        )
        dropped += dropped_later
        sample.write(folder)
        manifest = write_manifest(
            folder,
            shards,
            +dropped,
            dumps=[part.dump.name for part in parts],
            site=siteinfo.name,
            language=params.language or siteinfo.language,
            pages=counts["pages"],
            dropped_lines=dict(sorted(lines.items())),
            unknown_templates=_most_frequent(unknown),
            corrupt_streams=corrupt,
            sources=[{**origin, "language": siteinfo.language} for origin in read_origins(files, names)],
        )
        if not manifest["documents"]:
            raise PipelineError(
                "no article of the dump is left", dict(sorted(dropped.items())), where=_names(parts),
                hint=f"lower corpus.sources.{source}.min_words in params.yaml, or use a pages-articles dump",
            )  # fmt: skip
    log.info("%d articles, %d words kept; dropped %s", manifest["documents"], manifest["words"], manifest["dropped"])


def _most_frequent(unknown: Counter[str]) -> list[list[str | int]]:
    ranked = sorted(unknown.items(), key=lambda item: (-item[1], item[0]))
    return [list(item) for item in ranked[:MAX_UNKNOWN_TEMPLATES]]


def _names(parts: list[DumpPart]) -> str:
    return ", ".join(str(part.dump) for part in parts)


def clean_batch(batch: Sequence[int], ranges: list[Range], folder: Path, params: WikipediaParams) -> None:
    """Clean a batch of ranges, given by index, and write their results as lines of JSON.

    An error meant for the user is written like a result, not raised, so that it reads the same under every Beam runner.
    Beam's WriteToText is not used: it takes the folder's path as a pattern, in which ``[`` means something else.
    """
    function = partial(clean_range, folder=folder, params=params)
    results = map_in_order(function, [ranges[index] for index in batch], min(len(batch), count_workers()))
    lines: list[dict[str, Any]] = []
    try:
        lines += [{"range": index, **result} for index, result in zip(batch, results, strict=True)]
    except PipelineError as error:
        lines.append({"error": [error.what, *map(_plain, (error.value, error.where)), error.hint]})
    except OSError as error:
        lines.append({"errno": [error.errno, error.strerror or str(error), _plain(error.filename)]})
    with atomic_file(folder / RESULTS / f"{batch[0]}.jsonl") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)


def clean_range(span: Range, folder: Path, params: WikipediaParams) -> RangeResult:
    """Clean the pages of a range, write their shard, and return its result."""
    siteinfo = span.part.siteinfo
    counts: Counter[str] = Counter()
    dropped: Counter[str] = Counter()
    sample = DroppedSample()
    lines: Counter[str] = Counter()
    unknown: Counter[str] = Counter()
    ids: list[int] = []
    damage = Damage()

    def documents() -> Iterator[Document]:
        for page in read_pages(span.part.dump, span.start, span.end, damage):
            counts["pages"] += 1
            value: float | None = None
            limit: float | None = None
            sampled = article = Document(f"{siteinfo.name}:{page.id}", page.title, page.text, page.revision)
            reason = why_not_an_article(page, siteinfo)
            if reason is None:
                text = clean(page.text, siteinfo, lines, unknown, page.title)
                article = replace(article, text=text)
                if not article.words:
                    reason = "empty"
                elif article.words < params.min_words:
                    reason, value, limit, sampled = "too_short", article.words, params.min_words, article
                elif broken := refusal(text, params.filters, params.language or siteinfo.language):
                    reason, value, limit, sampled = *broken, article
                else:
                    ids.append(page.id)
                    yield article
                    continue
            dropped[reason] += 1
            sample.add(reason, sampled, value, limit)

    shard = write_shard(folder / span.shard, documents())
    dropped += Counter(corrupt_stream=len(damage.streams), page_cut_by_corrupt_stream=damage.cut_pages)
    return {
        "shard": shard,
        "counts": counts,
        "dropped": dropped,
        "dropped_sample": sample.records(),
        "lines": lines,
        "unknown_templates": unknown,
        "ids": ids,
        "corrupt_streams": damage.streams,
    }


def _find_repeated(results: list[RangeResult]) -> dict[str, set[int]]:
    """Return, by shard, the positions of articles whose id occurs before: a dump may contain a stream twice."""
    seen: set[int] = set()
    repeated: dict[str, set[int]] = {}
    for result in results:
        for position, page in enumerate(result["ids"]):
            if page in seen:
                repeated.setdefault(result["shard"]["name"], set()).add(position)
            seen.add(page)
    return repeated


def why_not_an_article(page: Page, siteinfo: SiteInfo) -> str | None:
    """Return the reason to drop a page before it is cleaned, or None."""
    if page.namespace != 0:
        return "namespace"
    if page.redirect or REDIRECT.match(page.text):
        return "redirect"
    if siteinfo.disambiguation.search(page.text) or "__DISAMBIG__" in page.text:
        return "disambiguation"
    return None


def _plain(value: object) -> str | None:
    return None if value is None else str(value)


def _run_beam(ranges: list[Range], folder: Path, params: WikipediaParams) -> None:
    beam = _import_beam()
    # worker processes must find this package from any working directory
    paths = [str(Path(__file__).resolve().parents[3]), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    options = beam.options.pipeline_options.PipelineOptions(beam_options(params.beam_args))
    absolute = [replace(span, part=replace(span.part, dump=span.part.dump.absolute())) for span in ranges]
    indices = list(range(len(ranges)))
    # on this machine, processes that do not import Beam work on one batch
    batches = [[index] for index in indices] if _names_runner(params.beam_args) else [indices]
    try:
        with beam.Pipeline(options=options) as pipeline:
            (
                pipeline
                | "batches" >> beam.Create(batches)
                | "spread over workers" >> beam.Reshuffle()
                | "clean" >> beam.Map(partial(clean_batch, ranges=absolute, folder=folder, params=params))
            )
    except Exception as error:
        # A runner turns its workers' exceptions into text; a full disk must remain an OSError.
        if os.strerror(errno.ENOSPC) in str(error):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder)) from error
        raise


def _import_beam() -> Any:
    """Import Beam without two installed libraries that it would import for uses not made here: 1 CPU-second of 2."""
    unused = [name for name in ("pandas", "pymongo") if name not in sys.modules]
    modules: dict[str, Any] = sys.modules
    modules.update(dict.fromkeys(unused))  # Beam then takes them as not installed
    logging.getLogger("apache_beam.io.mongodbio").setLevel(logging.ERROR)  # it warns that pymongo is missing
    try:
        import apache_beam
    finally:
        for name in unused:
            del modules[name]
    return apache_beam


def beam_options(beam_args: Sequence[str]) -> list[str]:
    """Return the user's options and, unless they name a runner, the local one.

    It is named because Beam's default runner first tries to fetch a program from the network.
    """
    return list(beam_args) if _names_runner(beam_args) else ["--runner=FnApiRunner", *beam_args]


def _names_runner(beam_args: Sequence[str]) -> bool:
    return any(argument.split("=")[0] == "--runner" for argument in beam_args)


def _collect(ranges: list[Range], folder: Path) -> list[RangeResult]:
    results: dict[int, RangeResult] = {}
    for path in sorted((folder / RESULTS).glob("*.jsonl")):
        for result in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
            if "error" in result:
                what, value, where, hint = result["error"]
                raise PipelineError(what, value, where=where, hint=hint)
            if "errno" in result:
                raise OSError(*result["errno"])
            results[result.pop("range")] = result
    shutil.rmtree(folder / RESULTS, ignore_errors=True)
    for index, span in enumerate(ranges):
        shard = folder / span.shard
        written = shard.stat().st_size if shard.exists() else 0
        reported = results[index]["shard"]["bytes"] if index in results else 0
        if index not in results or written != reported:
            raise PipelineError(
                "the Beam runner lost output",
                f"{written} bytes on disk, {reported} reported",
                where=f"{span.part.dump}, range at byte {span.start:,}",
                hint="give workers and this process the same file system, or leave the source's beam_args empty",
            )
    return [results[index] for index in range(len(ranges))]


@contextmanager
def _progress(source: str, ranges: list[Range], folder: Path) -> Iterator[None]:
    """Show the progress by looking for new shards once a second, which works with any runner."""
    finished = threading.Event()

    def watch() -> None:
        remaining = {span.shard: span.end - span.start for span in ranges}
        with Progress(f"cleaning {source}", sum(remaining.values()), "B") as progress:
            while not finished.wait(1.0):
                for shard in [shard for shard in remaining if (folder / shard).exists()]:
                    progress.advance(remaining.pop(shard))
                progress.advance(0)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        finished.set()
        thread.join()
