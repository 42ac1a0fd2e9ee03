"""One range of a dump to one shard of documents: which pages are articles, cleaned, and every drop counted."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipeline_src.corpus.documents import Document, ShardSlice, read_slice, write_shard
from pipeline_src.wikipedia.dump import Damage, Page, read_pages
from pipeline_src.wikipedia.siteinfo import SiteInfo
from pipeline_src.wikipedia.wikitext import clean

Row = dict[str, Any]


def clean_range(dump: Path, start: int, end: int, siteinfo: SiteInfo, folder: Path, min_words: int) -> Row:
    """Clean the pages that begin in bytes [start, end) of the dump, write their shard, return its manifest row."""
    counts: Counter[str] = Counter()
    dropped: Counter[str] = Counter()
    lines: Counter[str] = Counter()
    unknown: Counter[str] = Counter()
    ids: list[int] = []
    damage = Damage()

    def documents() -> Iterator[Document]:
        for page in read_pages(dump, start, end, damage):
            counts["pages"] += 1
            reason = why_not_an_article(page, siteinfo)
            if reason is None:
                text = clean(page.text, siteinfo, lines, unknown)
                article = Document(f"{siteinfo.name}:{page.id}", page.title, text, page.revision)
                if article.words >= max(min_words, 1):
                    ids.append(page.id)
                    yield article
                    continue
                reason = "too_short" if article.words else "empty"
            dropped[reason] += 1

    name = shard_name(start)
    partial = folder / f".{name}"  # a retried range overwrites its own file alone
    shard = write_shard(partial, documents()) | {"name": name}
    os.replace(partial, folder / name)
    dropped += Counter(corrupt_stream=len(damage.streams), page_cut_by_corrupt_stream=damage.cut_pages)
    return {
        "shard": shard,
        "counts": counts,
        "dropped": dropped,
        "lines": lines,
        "unknown_templates": unknown,
        "ids": ids,
        "corrupt_streams": damage.streams,
    }


def drop_repeated(rows: list[Row], folder: Path) -> None:
    """Keep the first of several articles of one id, as where a stream stands twice in a dump; count the others.

    Args:
        rows: of the manifest, in the dump's order; those of shards that hold repeated articles are changed.
        folder: where the shards are; those are written anew.
    """
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
        kept = [document for document, keep in zip(documents, first, strict=True) if keep]
        partial = folder / f".{path.name}"
        row["shard"] = write_shard(partial, kept) | {"name": path.name}
        os.replace(partial, path)
        row["dropped"]["repeated"] = row["dropped"].get("repeated", 0) + len(first) - len(kept)


def why_not_an_article(page: Page, siteinfo: SiteInfo) -> str | None:
    """The reason to drop a page before it is cleaned; None for an article."""
    if page.namespace != 0:
        return "namespace"
    if page.redirect or siteinfo.redirect.match(page.text):
        return "redirect"
    if siteinfo.disambiguation.search(page.text) or "__DISAMBIG__" in page.text:
        return "disambiguation"
    return None


def shard_name(start: int) -> str:
    """The name of the shard of the range that begins at byte ``start``: names sort as the dump does."""
    return f"pages-{start:014d}.jsonl"
