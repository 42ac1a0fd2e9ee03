"""Reading dumps: every packing, every way of cutting into streams, and every way of being broken."""

from __future__ import annotations

import bz2
import gzip
from pathlib import Path

import pytest

from pipeline_src.corpus.dump import find_dump, read_head, read_pages, split_ranges
from pipeline_src.corpus.site import read_site
from pipeline_src.errors import PipelineError

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


def ids(path: Path, *span: int) -> list[int]:
    """The ids of the pages in a range."""
    return [read.id for read in read_pages(path, *span)]


@pytest.mark.parametrize("pack", [bytes, bz2.compress, gzip.compress])
def test_reads_pages_from_every_packing(tmp_path: Path, pack) -> None:
    path = tmp_path / "dump"
    path.write_bytes(pack((HEAD + page(1) + page(2) + TAIL).encode()))
    first, second = read_pages(path)
    assert (first.id, first.title, first.revision, first.redirect) == (1, "Page & 1", 1001, False)
    assert first.text == "Some <b> text &amp; more."
    assert second.id == 2
    site = read_site(read_head(path))
    assert (site.name, site.language) == ("itwiki", "it")
    assert {"categoria", "file", "immagine", "category"} <= site.hidden


@pytest.mark.parametrize("cut", ["between pages", "anywhere"])
def test_ranges_of_streams_give_every_page_once(tmp_path: Path, cut: str) -> None:
    pieces = [HEAD, *(page(n, f"text of page {n} " * 40) for n in range(60)), TAIL]
    if cut == "anywhere":  # as pbzip2 does: streams end within pages and within tags
        whole = "".join(pieces)
        pieces = [whole[start : start + 97] for start in range(0, len(whole), 97)]
    path = tmp_path / "dump.bz2"
    path.write_bytes(b"".join(bz2.compress(piece.encode()) for piece in pieces))
    for size in (1, 300, 2_000, 1 << 30):
        ranges = split_ranges(path, size)
        assert [page_id for span in ranges for page_id in ids(path, *span)] == list(range(60))
        assert ranges[0][0] == 0 and ranges[-1][1] == path.stat().st_size
        assert size == 1 << 30 or len(ranges) > 3


def test_bytes_that_look_like_a_stream_are_not_taken_for_one(tmp_path: Path) -> None:
    path = tmp_path / "dump.bz2"
    good = bz2.compress((HEAD + page(1) + TAIL).encode())
    path.write_bytes(good[:-4] + b"BZh91AY&SY" + b"\0" * 50 + bz2.compress(b"x"))
    assert all(start != len(good) - 4 for start, _ in split_ranges(path, 8))


def test_the_last_revision_counts(tmp_path: Path) -> None:
    path = tmp_path / "dump.xml"
    more = "<revision><id>7</id><text>newer</text></revision></page>"
    path.write_text(HEAD + page(1).replace("</page>", more) + TAIL)
    (read,) = read_pages(path)
    assert (read.id, read.revision, read.text) == (1, 7, "newer")


@pytest.mark.parametrize("pack", [bz2.compress, gzip.compress, bytes])
@pytest.mark.parametrize("share", [0.3, 0.9, 0.999])
def test_a_dump_that_is_cut_off_is_named_with_the_place(tmp_path: Path, pack, share: float) -> None:
    path = tmp_path / "dump"
    data = pack((HEAD + "".join(page(n) for n in range(500)) + TAIL).encode())
    path.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(PipelineError, match=r"cut off or corrupt[\s\S]*dump, [\s\S]*download"):
        list(read_pages(path))


def test_a_corrupt_stream_is_named_with_its_offset(tmp_path: Path) -> None:
    path = tmp_path / "dump.bz2"
    first, second = bz2.compress((HEAD + page(1)).encode()), bytearray(bz2.compress((page(2) + TAIL).encode()))
    second[40] ^= 0xFF
    path.write_bytes(first + second)
    with pytest.raises(PipelineError, match=f"stream at byte {len(first):,}"):
        list(read_pages(path))


@pytest.mark.parametrize("content", [b"just some text\n", b"<html></html>", bz2.compress(b"no xml"), b"\0" * 100])
def test_what_is_not_a_dump_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "dump"
    path.write_bytes(content)
    with pytest.raises(PipelineError, match="not a MediaWiki dump"):
        read_head(path)


def test_a_page_without_id_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "dump.xml"
    path.write_text(HEAD + page(1).replace("<id>1</id>", "") + TAIL)
    with pytest.raises(PipelineError, match="a page without title, id or text"):
        list(read_pages(path))


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
