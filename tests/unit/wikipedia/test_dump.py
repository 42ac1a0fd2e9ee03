"""Reading dumps: every packing, every way of cutting into streams, and every way of being broken."""

from __future__ import annotations

import bz2
import gzip
import time
from pathlib import Path

import pytest
import zstandard

from pipeline_src.common.errors import PipelineError
from pipeline_src.wikipedia.dump import find_dump, read_head, read_pages
from pipeline_src.wikipedia.siteinfo import read_siteinfo

HEAD = """<mediawiki xml:lang="it"><siteinfo><sitename>Wikipedia</sitename><dbname>itwiki</dbname><namespaces>
<namespace key="0" case="first-letter" /><namespace key="6" case="first-letter">File</namespace>
<namespace key="14" case="first-letter">Categoria</namespace></namespaces></siteinfo>
"""
TAIL = "</mediawiki>\n"


def page(number: int, text: str = "Some &lt;b&gt; text &amp;amp; more.") -> str:
    """The XML of one article."""
    return (
        f"<page><title>Page &amp; {number}</title><ns>0</ns><id>{number}</id><revision><id>{number + 1000}</id>"
        f'<text xml:space="preserve">{text}</text></revision></page>\n'
    )


def pack_multistream(xml: bytes) -> bytes:
    """Two pages a stream, the opening and the end in streams of their own, as Wikimedia packs them (100 pages)."""
    opening, *pages = xml.replace(TAIL.encode(), b"").split(b"<page>")
    pages = [b"<page>" + page for page in pages]
    pieces = [opening, *(b"".join(pages[start : start + 2]) for start in range(0, len(pages), 2)), TAIL.encode()]
    return b"".join(bz2.compress(piece) for piece in pieces)


PACKINGS = [bytes, bz2.compress, pack_multistream, gzip.compress, zstandard.compress]


@pytest.mark.parametrize("pack", PACKINGS)
def test_reads_pages_from_every_packing(tmp_path: Path, pack) -> None:
    path = tmp_path / "dump"
    path.write_bytes(pack((HEAD + page(1) + page(2) + TAIL).encode()))
    first, second = read_pages(path)
    assert (first.id, first.title, first.revision, first.redirect) == (1, "Page & 1", 1001, False)
    assert first.text == "Some <b> text &amp; more."
    assert second.id == 2
    site = read_siteinfo(read_head(path))
    assert (site.name, site.language) == ("itwiki", "it")
    assert {"categoria", "file", "immagine", "category"} <= site.hidden


@pytest.mark.parametrize("pack", [bz2.compress, gzip.compress, zstandard.compress])
def test_frames_laid_end_to_end_are_one_dump(tmp_path: Path, pack) -> None:
    path = tmp_path / "dump"
    xml = (HEAD + page(1) + page(2) + TAIL).encode()
    path.write_bytes(pack(xml[:-300]) + pack(xml[-300:]))
    assert [read.id for read in read_pages(path)] == [1, 2]


def test_the_last_revision_counts(tmp_path: Path) -> None:
    path = tmp_path / "dump.xml"
    more = "<revision><id>7</id><text>newer</text></revision></page>"
    path.write_text(HEAD + page(1).replace("</page>", more) + TAIL)
    (read,) = read_pages(path)
    assert (read.id, read.revision, read.text) == (1, 7, "newer")


@pytest.mark.parametrize("pack", PACKINGS)
@pytest.mark.parametrize("share", [0.3, 0.9, 0.999])
def test_a_dump_that_is_cut_off_is_named_with_the_place(tmp_path: Path, pack, share: float) -> None:
    path = tmp_path / "dump"
    data = pack((HEAD + "".join(page(n) for n in range(500)) + TAIL).encode())
    path.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(PipelineError, match=r"cut off or corrupt[\s\S]*dump, [\s\S]*download"):
        list(read_pages(path))


@pytest.mark.parametrize("pack", [bz2.compress, gzip.compress, zstandard.ZstdCompressor(write_checksum=True).compress])
def test_corruption_within_a_single_stream_is_an_error(tmp_path: Path, pack) -> None:
    path = tmp_path / "dump"
    data = bytearray(pack((HEAD + "".join(page(n) for n in range(500)) + TAIL).encode()))
    data[len(data) // 2] ^= 0xFF  # gzip notices at its end only, if the XML does not stumble over it before
    path.write_bytes(data)
    with pytest.raises(PipelineError, match=r"(cut off or corrupt|a page without title)[\s\S]*dump, [\s\S]*download"):
        list(read_pages(path))


@pytest.mark.parametrize("content", [b"just some text\n", b"<html></html>", bz2.compress(b"no xml"), b"\0" * 100])
def test_what_is_not_a_dump_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "dump"
    path.write_bytes(content)
    with pytest.raises(PipelineError, match="not a MediaWiki dump"):
        read_head(path)


@pytest.mark.parametrize("broken", ["", "<id>x1</id>", "<id>²</id>", "<id>1</id><ns>a</ns>", f"<id>{'9' * 5_000}</id>"])
def test_a_page_without_id_is_refused(tmp_path: Path, broken: str) -> None:
    path = tmp_path / "dump.xml"
    path.write_text(HEAD + page(1).replace("<ns>0</ns><id>1</id>", broken) + TAIL)
    with pytest.raises(PipelineError, match="a page without title, id or text"):
        list(read_pages(path))


@pytest.mark.parametrize("more", ["x", " \n garbage of some length, no page at all", "<mediawiki>" + page(2) + TAIL])
@pytest.mark.parametrize("pack", [bytes, bz2.compress])
def test_what_stands_after_the_end_is_named(tmp_path: Path, more: str, pack) -> None:
    path = tmp_path / "dump"
    path.write_bytes(pack((HEAD + page(1) + TAIL + more).encode()))
    with pytest.raises(PipelineError, match="there is more[\\s\\S]*after </mediawiki>"):
        list(read_pages(path))
    path.write_bytes(pack((HEAD + page(1) + TAIL + "\n" * 100_000).encode()))
    assert [read.id for read in read_pages(path)] == [1]


def test_a_page_without_an_end_meets_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline_src.wikipedia.dump.LONGEST_PAGE", 1 << 20)
    path = tmp_path / "dump"
    path.write_bytes(bz2.compress((HEAD + page(1)[:-30] + "a" * (16 << 20)).encode()))
    with pytest.raises(PipelineError, match="a page of more than 1,048,576 bytes"):
        list(read_pages(path))


def test_a_long_page_in_small_blocks_takes_linear_time(tmp_path: Path) -> None:
    path = tmp_path / "dump.xml"  # plain: read in blocks of 64 kB
    path.write_text(HEAD + page(1, "a" * (24 << 20)) + TAIL)
    start = time.process_time()
    (read,) = read_pages(path)
    assert len(read.text) == 24 << 20
    assert time.process_time() - start < 2.5  # 5 s where each block was searched and copied from the page's start


def test_find_dump_wants_exactly_one_full_file(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="none found"):
        find_dump(tmp_path / "missing")
    (tmp_path / "source.json").write_text("{}")
    (tmp_path / "x-index.txt.bz2").write_text("index")
    dump = tmp_path / "x.xml.bz2"
    dump.touch()
    with pytest.raises(PipelineError, match="the dump is empty"):
        find_dump(tmp_path)
    dump.write_bytes(b"x")
    assert find_dump(tmp_path) == dump
    (tmp_path / "y.xml").write_text("y")
    with pytest.raises(PipelineError, match="exactly one dump file: x.xml.bz2, y.xml"):
        find_dump(tmp_path)
