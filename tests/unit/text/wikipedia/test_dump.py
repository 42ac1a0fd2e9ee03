"""Reading dumps of Wikipedia: every compression, split into ranges of streams, and damaged."""

from __future__ import annotations

import bz2
import gzip
import tracemalloc
from pathlib import Path

import pytest
import zstandard
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from pipeline_src.base.errors import PipelineError
from pipeline_src.text.wikipedia import dump
from pipeline_src.text.wikipedia.dump import Damage, find_dump, read_head, read_pages, split_ranges
from pipeline_src.text.wikipedia.siteinfo import read_siteinfo
from tests.growth import TIMES, assert_linear

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


def compress_multistream(xml: bytes) -> bytes:
    """Two pages a stream, the opening and the end in streams of their own, as Wikimedia packs them (100 pages)."""
    opening, *pages = xml.replace(TAIL.encode(), b"").split(b"<page>")
    pages = [b"<page>" + page for page in pages]
    pieces = [opening, *(b"".join(pages[start : start + 2]) for start in range(0, len(pages), 2)), TAIL.encode()]
    return b"".join(bz2.compress(piece) for piece in pieces)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "dump"


SINGLE_STREAM = {"bz2": bz2.compress, "gzip": gzip.compress, "zstd": zstandard.compress}
CHECKED_ZSTD = zstandard.ZstdCompressor(write_checksum=True)
COMPRESSIONS = {"none": bytes, "multistream": compress_multistream, **SINGLE_STREAM}


@pytest.mark.parametrize("pack", COMPRESSIONS.values(), ids=COMPRESSIONS)
def test_read_pages_every_compression_gives_same_pages(path: Path, pack) -> None:
    path.write_bytes(pack((HEAD + page(1) + page(2) + TAIL).encode()))
    first, second = read_pages(path)
    assert (first.id, first.title, first.revision, first.redirect) == (1, "Page & 1", 1001, False)
    assert first.text == "Some <b> text &amp; more."
    assert second.id == 2
    site = read_siteinfo(read_head(path))
    assert (site.name, site.language) == ("itwiki", "it")
    assert {"categoria", "file", "immagine", "category"} <= site.hidden


@pytest.mark.parametrize("pack", SINGLE_STREAM.values(), ids=SINGLE_STREAM)
def test_read_pages_concatenated_frames_are_read_as_one_dump(path: Path, pack) -> None:
    xml = (HEAD + page(1) + page(2) + TAIL).encode()
    path.write_bytes(pack(xml[:-300]) + pack(xml[-300:]))
    assert [read.id for read in read_pages(path)] == [1, 2]


def test_read_pages_last_revision_is_used(path: Path) -> None:
    more = "<revision><id>7</id><text>newer</text></revision></page>"
    path.write_text(HEAD + page(1).replace("</page>", more) + TAIL)
    (read,) = read_pages(path)
    assert (read.id, read.revision, read.text) == (1, 7, "newer")


def test_read_pages_xml_references_are_decoded_once(path: Path) -> None:
    text = "&#39;&#039;&#x27;&apos; &#10;&#x416; &amp;#39; &amp;nbsp; &nbsp;"
    path.write_text(HEAD + page(1, text) + TAIL)
    (read,) = read_pages(path)
    assert read.text == "'''' \nЖ &#39; &nbsp; &nbsp;"


@pytest.mark.parametrize("pack", COMPRESSIONS.values(), ids=COMPRESSIONS)
@pytest.mark.parametrize("share", [0.3, 0.9, 0.999])
def test_read_pages_truncated_dump_is_rejected(path: Path, pack, share: float) -> None:
    data = pack((HEAD + "".join(page(n) for n in range(500)) + TAIL).encode())
    path.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(PipelineError, match=r"cut off or corrupt[\s\S]*dump, [\s\S]*download"):
        list(read_pages(path))


@pytest.mark.parametrize("pack", [bz2.compress, gzip.compress, CHECKED_ZSTD.compress], ids=SINGLE_STREAM)
def test_read_pages_corrupt_single_stream_is_rejected(path: Path, pack) -> None:
    data = bytearray(pack((HEAD + "".join(page(n) for n in range(500)) + TAIL).encode()))
    # Gzip notices at its end only, if the XML does not stumble over it before.
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(
        PipelineError, match=r"(cut off or corrupt|a page has no valid title)[\s\S]*dump, [\s\S]*download"
    ):
        list(read_pages(path))


@pytest.mark.parametrize(
    "content",
    [b"just some text\n", b"<html></html>", bz2.compress(b"no xml"), b"\0" * 100],
    ids=["text", "HTML", "bz2", "zeros"],
)
def test_read_head_file_that_is_no_dump_is_rejected(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(PipelineError, match="not a MediaWiki dump"):
        read_head(path)


@pytest.mark.parametrize(
    "broken",
    ["", "<id>x1</id>", "<id>²</id>", "<id>1</id><ns>a</ns>", f"<id>{'9' * 5_000}</id>"],
    ids=["missing", "letter", "superscript", "namespace", "too long"],
)
def test_read_pages_page_without_id_is_rejected(path: Path, broken: str) -> None:
    path.write_text(HEAD + page(1).replace("<ns>0</ns><id>1</id>", broken) + TAIL)
    with pytest.raises(PipelineError, match="a page has no valid title, id or text"):
        list(read_pages(path))


@pytest.mark.parametrize(
    "more",
    ["x", " \n garbage of some length, no page at all", "<mediawiki>" + page(2) + TAIL],
    ids=["letter", "garbage", "second dump"],
)
@pytest.mark.parametrize("pack", [bytes, bz2.compress], ids=["none", "bz2"])
def test_read_pages_data_after_the_end_is_rejected(path: Path, more: str, pack) -> None:
    path.write_bytes(pack((HEAD + page(1) + TAIL + more).encode()))
    with pytest.raises(PipelineError, match="unexpected data[\\s\\S]*after </mediawiki>"):
        list(read_pages(path))
    path.write_bytes(pack((HEAD + page(1) + TAIL + "\n\0\0" + "\n" * 100_000).encode()))
    assert [read.id for read in read_pages(path)] == [1]


@pytest.mark.parametrize("padding", [b"\n", b"\0", b"\0" * 1000, b"\r\n\r\n", b"BZ", b"some other bytes"])
@pytest.mark.parametrize("pack", [compress_multistream, *SINGLE_STREAM.values()], ids=["multistream", *SINGLE_STREAM])
def test_read_pages_padding_after_the_last_stream_is_ignored(
    path: Path, pack, padding: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    dump = pack((HEAD + "".join(page(number) for number in range(50)) + TAIL).encode())
    path.write_bytes(dump + padding)
    with caplog.at_level("WARNING"):
        assert [read.id for read in read_pages(path)] == [*range(50)]
        assert [read.id for read in read_pages(path, damage=Damage())] == [*range(50)]
    # Python's gzip skips zeros, as gzip does.
    assert ("after the last compressed stream" in caplog.text) or (pack is gzip.compress and not padding.strip(b"\0"))
    path.write_bytes(dump[: len(dump) // 2] + padding)
    with pytest.raises(PipelineError, match="cut off or corrupt"):
        list(read_pages(path))


def test_read_pages_unclosed_page_is_rejected_at_size_limit(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline_src.text.wikipedia.dump.MAX_PAGE_BYTES", 1 << 20)
    path.write_bytes(bz2.compress((HEAD + page(1)[:-30] + "a" * (16 << 20)).encode()))
    with pytest.raises(PipelineError, match="a page is larger than 1,048,576 bytes"):
        list(read_pages(path))


def test_read_pages_long_page_in_small_blocks_takes_linear_time(tmp_path: Path) -> None:
    """Each block is searched and copied once, not from the page's start."""

    def read(path: Path) -> None:
        (page,) = read_pages(path)
        assert len(page.text) == int(path.stem)

    # A plain file is read in blocks of 64 kB.
    paths = [tmp_path / f"{size}.xml" for size in (2 << 20, TIMES * 2 << 20)]
    for path in paths:
        path.write_text(HEAD + page(1, "a" * int(path.stem)) + TAIL)
    assert_linear(read, *paths)


def test_find_dump_missing_empty_or_several_files_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="none found"):
        find_dump(tmp_path / "missing")
    (tmp_path / "source.json").write_text("{}")
    for index in ("x-index.txt.bz2", "x-index1.txt-p1p9.bz2"):
        (tmp_path / index).write_text("index")
    dump = tmp_path / "my-index.xml.bz2"
    dump.touch()
    with pytest.raises(PipelineError, match="the dump is empty"):
        find_dump(tmp_path)
    dump.write_bytes(b"x")
    assert find_dump(tmp_path) == dump
    (tmp_path / "y.xml").write_text("y")
    with pytest.raises(PipelineError, match="exactly one dump file in the folder: my-index.xml.bz2, y.xml"):
        find_dump(tmp_path)


def text_page(number: int, text: str | None = None) -> str:
    return page(number, text or f"text of page {number} " * 40)


def compress_pieces(pieces: list[str]) -> list[bytes]:
    return [bz2.compress(piece.encode()) for piece in pieces]


def ids(path: Path, size: int, damage: Damage | None = None) -> list[int]:
    return [read.id for span in split_ranges(path, size) for read in read_pages(path, *span, damage)]


SIZES = (1, 300, 2_000, 1 << 30)


@pytest.mark.parametrize("cut", ["between pages", "anywhere"])
def test_split_ranges_any_size_covers_every_page_once(path: Path, cut: str) -> None:
    pieces = [HEAD, *(text_page(n) for n in range(60)), TAIL]
    # As pbzip2 does: streams end within pages and within tags.
    if cut == "anywhere":
        whole = "".join(pieces)
        pieces = [whole[start : start + 97] for start in range(0, len(whole), 97)]
    path.write_bytes(b"".join(compress_pieces(pieces)))
    for size in SIZES:
        ranges = split_ranges(path, size)
        assert ids(path, size) == list(range(60))
        assert ranges[0][0] == 0 and ranges[-1][1] == path.stat().st_size
        assert size == 1 << 30 or len(ranges) > 3


def test_split_ranges_stream_header_across_read_blocks_is_found(path: Path) -> None:
    for before in range((1 << 20) - 20, (1 << 20) + 3):
        path.write_bytes(b"BZh9" + b"\0" * before + b"BZh91AY&SY" + b"\0" * 20)
        assert split_ranges(path, 10) == [(0, before + 4), (before + 4, before + 34)]


@st.composite
def damaged_dumps(draw) -> tuple[list[str], list[bytes], list[int]]:
    """Pieces of a dump, their dump, some of which are damaged, and which."""
    number = draw(st.integers(3, 12))
    pages = [text_page(n, f"{n} " * draw(st.integers(1, 200))) for n in range(number)]
    if draw(st.booleans()):
        pieces = [HEAD, *pages, TAIL]
    else:  # streams that end anywhere
        body = "".join(pages)
        cuts = sorted({0, len(body), *draw(st.lists(st.integers(1, len(body) - 1), min_size=2, max_size=12))})
        pieces = [HEAD, *(body[a:b] for a, b in zip(cuts, cuts[1:], strict=False)), TAIL]
    packed = compress_pieces(pieces)
    bad = sorted(draw(st.sets(st.integers(1, len(pieces) - 2), min_size=1, max_size=3)))
    for which in bad:
        data = bytearray(packed[which])
        at = draw(st.integers(0, len(data) - 2))
        how = draw(st.sampled_from(["flip", "zeros", "cut", "more"]))
        if how == "flip":
            data[at] ^= draw(st.integers(1, 255))
        elif how == "zeros":
            data[at : at + 8] = bytes(min(8, len(data) - at))
        elif how == "cut":
            del data[at + 1 : min(at + 1 + draw(st.integers(1, 50)), len(data) - 10)]
        else:
            data[at + 1 : at + 1] = b"\xff" * draw(st.integers(1, 50))
        packed[which] = bytes(data)
    return pieces, packed, bad


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(damaged_dumps())
def test_read_pages_corrupt_stream_loses_only_its_own_pages(path: Path, dump) -> None:
    pieces, packed, damaged = dump
    path.write_bytes(b"".join(packed))
    # a page must come out, as it went in, if and only if every stream that holds a piece of it can be decoded
    starts, position, undecodable = [0], 0, []
    for piece, data, which in zip(pieces, packed, range(len(pieces)), strict=True):
        starts.append(starts[-1] + len(piece))
        if which in damaged:
            decoder = bz2.BZ2Decompressor()
            try:
                good = decoder.decompress(data) == piece.encode() and decoder.eof
            except OSError:
                good = False
            # Only bits of padding at its end were damaged, and moved.
            assume(not good or not decoder.unused_data)
            if not good:
                undecodable.append((which, position))
        position += len(data)
    whole = "".join(pieces)
    expected, end = [], 0
    while (begin := whole.find("<page>", end)) >= 0:
        end = whole.index("</page>", begin) + len("</page>")
        if not any(starts[which] < end and begin < starts[which + 1] for which, _ in undecodable):
            expected.append(whole[whole.index('preserve">', begin) + 10 : whole.index("</text>", begin)])
    outcomes = []
    for size in SIZES:
        damage = Damage()
        texts = [read.text for span in split_ranges(path, size) for read in read_pages(path, *span, damage)]
        outcomes.append((texts, damage))
        assert texts == expected
        named = {offset for offset, _ in damage.streams}
        # a hole that follows another may be one with it, and what follows an early end is a hole of its own
        assert all(offset in named or which - 1 in dict(undecodable) for which, offset in undecodable)
        for offset in named:
            assert any(start <= offset < start + len(packed[which]) for which, start in undecodable)
    assert all(outcome == outcomes[0] for outcome in outcomes)


def test_read_pages_page_cut_by_corrupt_stream_is_counted_and_dropped(path: Path) -> None:
    first, second, third = text_page(1), text_page(2), text_page(3)
    packed = compress_pieces([HEAD, first + second[:300], second[300:] + third[:300], third[300:] + text_page(4), TAIL])
    packed[2] = packed[2][:40] + b"\xff" * 8 + packed[2][48:]
    path.write_bytes(b"".join(packed))
    for size in SIZES:
        damage = Damage()
        assert ids(path, size, damage) == [1, 4]
        ((offset, problem),) = damage.streams
        assert offset == len(packed[0] + packed[1]) and problem
        assert damage.cut_pages == 1


@pytest.mark.parametrize("where", [0, -1])
def test_read_pages_corrupt_first_or_last_stream_is_rejected(path: Path, where: int) -> None:
    packed = compress_pieces([HEAD + text_page(1), text_page(2), text_page(3) + TAIL])
    packed[where] = packed[where][:-6] + b"\xff" + packed[where][-5:]
    path.write_bytes(b"".join(packed))
    offset = 0 if where == 0 else len(packed[0] + packed[1])
    for size in SIZES:
        for damage in (Damage(), None):
            with pytest.raises(PipelineError, match=f"cut off or corrupt[\\s\\S]*stream at byte {offset:,}"):
                ids(path, size, damage)
    if where == 0:
        with pytest.raises(PipelineError, match="stream at byte 0"):
            read_head(path)


def test_read_pages_long_stream_is_not_held_in_memory(path: Path, monkeypatch) -> None:
    monkeypatch.setattr(dump, "MAX_HELD_BYTES", 1 << 20)
    # 19 MB of XML in one stream
    pages = "".join(text_page(n, f"{n} " * 1000) for n in range(4000))
    packed = compress_pieces([HEAD, pages, text_page(9999) + TAIL])
    path.write_bytes(b"".join(packed))
    del pages
    tracemalloc.start()
    assert sum(1 for _ in read_pages(path)) == 4001
    assert tracemalloc.get_traced_memory()[1] < 8 << 20
    tracemalloc.stop()
    path.write_bytes(packed[0] + packed[1][:-6] + b"\xff" + packed[1][-5:] + packed[2])
    with pytest.raises(PipelineError, match=f"stream at byte {len(packed[0]):,}"):
        list(read_pages(path, damage=Damage()))
