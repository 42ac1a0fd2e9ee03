"""Stage ``clean`` for a Wikipedia: turn a dump into documents of clean prose with Apache Beam.

Each worker cleans a range of bz2 streams at a time. A range becomes one shard, named by part and byte offset, and
counts for the manifest. Articles are not shuffled or collected in memory. The output does not depend on the runner or
on the number of workers.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import atomic_directory
from pipeline_src.base.paths import clean_text, raw_files
from pipeline_src.base.progress import Progress, log
from pipeline_src.study.data import WikipediaParams
from pipeline_src.text.beam import Workers
from pipeline_src.text.documents import (
    Document,
    part_names,
    read_origins,
    without_controls,
    write_manifest,
    write_shard,
)
from pipeline_src.text.dropped import DroppedSample, drop_documents
from pipeline_src.text.filters import refusal
from pipeline_src.text.language import check_language
from pipeline_src.text.wikipedia.dump import Damage, Page, find_dump, read_head, read_pages, split_ranges
from pipeline_src.text.wikipedia.siteinfo import REDIRECT, SiteInfo, read_siteinfo
from pipeline_src.text.wikipedia.templates import languages
from pipeline_src.text.wikipedia.wikitext import clean

# Maximum number of unknown templates that the manifest lists.
MAX_UNKNOWN_TEMPLATES = 100
# What a worker returns for a range: the shard's entry for the manifest, and counts.
RangeResult = dict[str, Any]


@dataclass(frozen=True)
class DumpPart:
    # '' if the dump has no parts.
    name: str
    dump: Path
    siteinfo: SiteInfo


@dataclass(frozen=True)
class Range:
    # The pages that begin in bytes [start, end) of a part.
    part: DumpPart
    start: int
    end: int

    @property
    def shard(self) -> str:
        # With zero-padded offsets, the names sort in the order of the dump.
        return f"{self.part.name}{self.part.name and '-'}pages-{self.start:014d}.jsonl"


def run(source: str, params: WikipediaParams, beam_args: Sequence[str] = ()) -> None:
    """Clean ``data/raw/<source>/fetched-files/`` and write ``data/text/<source>/clean-text/``.

    Args:
        beam_args: see ``text.beam.Workers``.

    Raises:
        OSError: the disk is full.
    """
    files = raw_files(source)
    names = part_names(files, params.parts)
    dumps = {name: find_dump(files / name) for name in sorted(names or ("",))}
    siteinfos = {name: read_siteinfo(read_head(dump)) for name, dump in dumps.items()}
    siteinfo = next(iter(siteinfos.values()))
    wikis = sorted({about.name for about in siteinfos.values()})
    # The numbers of pages are unique only within a wiki, and a source has one language.
    if len(wikis) > 1:
        raise PipelineError(
            "the parts of a source belong to several wikis",
            ", ".join(wikis),
            where=f"corpus.sources.{source}.parts in params.yaml",
            hint="describe each wiki as a source of its own",
        )
    check_language(params.filters, params.language or siteinfo.language, source)
    if siteinfo.language.partition("-")[0] not in languages():
        log.warning(
            "templates.yaml has no names of the wiki's language (%s): sentences with templates of its own are dropped",
            siteinfo.language,
        )
    with atomic_directory(clean_text(source)) as folder, Workers(beam_args, folder) as workers:
        parts = [DumpPart(name, dump.absolute(), siteinfos[name]) for name, dump in dumps.items()]
        ranges = [Range(part, *ends) for part in parts for ends in split_ranges(dumps[part.name])]
        sample = DroppedSample()
        results: list[RangeResult] = []
        with _progress(source, ranges, workers.folder):
            for span, result in zip(
                ranges, workers.map(partial(clean_range, folder=workers.folder, params=params), ranges), strict=True
            ):
                workers.receive(span.shard)
                sample.merge(result.pop("dropped_sample"))
                results.append(result)
        corrupt = [
            {"dump": dumps[span.part.name].name, "byte": byte, "problem": problem}
            for span, result in zip(ranges, results, strict=True)
            for byte, problem in result["corrupt_streams"]
        ]
        for stream in corrupt:
            log.warning("%s: the bz2 stream at byte %d is corrupt and left out: %s", *stream.values())
        pages = sum(result["pages"] for result in results)
        dropped = _total(results, "dropped")
        lines = _total(results, "lines")
        unknown = _total(results, "unknown_templates")
        if not pages:
            raise PipelineError("the dump contains no pages", _names(dumps), hint="use a pages-articles dump")
        shards, dropped_later = drop_documents(
            folder, [result["shard"] for result in results], params.max_words, sample, _find_repeated(results)
        )
        dropped += dropped_later
        sample.write(folder)
        manifest = write_manifest(
            folder,
            shards,
            +dropped,
            dumps=[dump.name for dump in dumps.values()],
            site=siteinfo.name,
            language=params.language or siteinfo.language,
            pages=pages,
            dropped_lines=dict(sorted(lines.items())),
            unknown_templates=sorted(unknown.items(), key=lambda item: (-item[1], item[0]))[:MAX_UNKNOWN_TEMPLATES],
            corrupt_streams=corrupt,
            sources=[{**origin, "language": siteinfo.language} for origin in read_origins(files, names)],
        )
        if not manifest["documents"]:
            raise PipelineError(
                "cleaning dropped every article of the dump",
                dict(sorted(dropped.items())),
                where=_names(dumps),
                hint=f"lower corpus.sources.{source}.min_words in params.yaml, or use a pages-articles dump",
            )
    log.info("%d articles, %d words kept; dropped %s", manifest["documents"], manifest["words"], manifest["dropped"])


def _total(results: list[RangeResult], key: str) -> Counter[str]:
    total: Counter[str] = Counter()
    for result in results:
        total += result[key]
    return total


def _names(dumps: dict[str, Path]) -> str:
    return ", ".join(map(str, dumps.values()))


def clean_range(span: Range, folder: Path, params: WikipediaParams) -> RangeResult:
    siteinfo = span.part.siteinfo
    pages = 0
    dropped: Counter[str] = Counter()
    sample = DroppedSample()
    lines: Counter[str] = Counter()
    unknown: Counter[str] = Counter()
    ids: list[int] = []
    damage = Damage()

    def drop(reason: str, document: Document, value: float | None = None, limit: float | None = None) -> None:
        dropped[reason] += 1
        sample.add(reason, document, value, limit)

    def documents() -> Iterator[Document]:
        nonlocal pages
        for page in read_pages(span.part.dump, span.start, span.end, damage):
            pages += 1
            source = Document(f"{siteinfo.name}:{page.id}", page.title, page.text, page.revision)
            reason = why_not_an_article(page, siteinfo)
            if reason:
                drop(reason, source)
                continue
            text = without_controls(clean(page.text, siteinfo, lines, unknown, page.title, params.lists))
            article = replace(source, text=text)
            if not article.words:
                drop("empty", source)
                continue
            if article.words < params.min_words:
                drop("too_short", article, article.words, params.min_words)
                continue
            broken = refusal(text, params.filters, params.language or siteinfo.language)
            if broken:
                drop(broken.rule, article, broken.value, broken.limit)
                continue
            ids.append(page.id)
            yield article

    shard = write_shard(folder / span.shard, documents())
    dropped += Counter(corrupt_stream=len(damage.streams), page_cut_by_corrupt_stream=damage.cut_pages)
    return {
        "shard": shard,
        "pages": pages,
        "dropped": dropped,
        "dropped_sample": sample.records(),
        "lines": lines,
        "unknown_templates": unknown,
        "ids": ids,
        "corrupt_streams": damage.streams,
    }


def _find_repeated(results: list[RangeResult]) -> dict[str, set[int]]:
    # Return shard name -> positions of articles whose id occurred earlier, since a dump may contain a stream twice.
    seen: set[int] = set()
    repeated: dict[str, set[int]] = {}
    for result in results:
        for position, page in enumerate(result["ids"]):
            if page in seen:
                repeated.setdefault(result["shard"]["name"], set()).add(position)
            seen.add(page)
    return repeated


def why_not_an_article(page: Page, siteinfo: SiteInfo) -> str | None:
    if page.namespace != 0:
        return "namespace"
    if page.redirect or REDIRECT.match(page.text):
        return "redirect"
    if siteinfo.disambiguation.search(page.text) or "__DISAMBIG__" in page.text:
        return "disambiguation"
    return None


@contextmanager
def _progress(source: str, ranges: list[Range], folder: Path) -> Iterator[None]:
    # Looks for new shards once a second, which shows the progress of any runner.
    finished = threading.Event()

    def watch() -> None:
        remaining = {span.shard: span.end - span.start for span in ranges}
        with Progress(f"cleaning {source}", sum(remaining.values()), "B") as progress:
            while not finished.wait(1.0):
                # List the folder instead of testing each name. A network disk may cache for long that a file is
                # missing.
                for shard in remaining.keys() & set(os.listdir(folder)):
                    progress.advance(remaining.pop(shard))
                progress.advance(0)
            # Shards that were written and moved within the last second were not seen.
            progress.advance(sum(remaining.values()))

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        finished.set()
        thread.join()
