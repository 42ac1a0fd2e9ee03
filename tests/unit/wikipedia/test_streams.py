"""The streams of a dump: found in the file itself, read from any of them, and lost one at a time."""

from __future__ import annotations

import bz2
import random
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from pipeline_src.common.errors import PipelineError
from pipeline_src.wikipedia import streams
from pipeline_src.wikipedia.dump import Damage, read_head, read_pages
from pipeline_src.wikipedia.streams import split_ranges

HEAD = '<mediawiki xml:lang="en"><siteinfo><dbname>testwiki</dbname></siteinfo>\n'
TAIL = "</mediawiki>\n"


def page(number: int, text: str | None = None) -> str:
    """The XML of one article."""
    return (
        f"<page><title>P{number}</title><ns>0</ns><id>{number}</id><revision><id>9</id>"
        f"<text>{text or f'text of page {number} ' * 40}</text></revision></page>\n"
    )


def pack(pieces: list[str]) -> list[bytes]:
    """Each piece as a bz2 stream."""
    return [bz2.compress(piece.encode()) for piece in pieces]


def ids(path: Path, size: int, damage: Damage | None = None) -> list[int]:
    """The ids of all pages, read range by range."""
    return [read.id for span in split_ranges(path, size) for read in read_pages(path, *span, damage)]


SIZES = (1, 300, 2_000, 1 << 30)


@pytest.mark.parametrize("cut", ["between pages", "anywhere"])
def test_ranges_of_streams_give_every_page_once(tmp_path: Path, cut: str) -> None:
    pieces = [HEAD, *(page(n) for n in range(60)), TAIL]
    if cut == "anywhere":  # as pbzip2 does: streams end within pages and within tags
        whole = "".join(pieces)
        pieces = [whole[start : start + 97] for start in range(0, len(whole), 97)]
    path = tmp_path / "dump.bz2"
    path.write_bytes(b"".join(pack(pieces)))
    for size in SIZES:
        ranges = split_ranges(path, size)
        assert ids(path, size) == list(range(60))
        assert ranges[0][0] == 0 and ranges[-1][1] == path.stat().st_size
        assert size == 1 << 30 or len(ranges) > 3


def test_a_tag_in_streams_of_one_byte_each(tmp_path: Path) -> None:
    path = tmp_path / "dump.bz2"
    path.write_bytes(b"".join(pack([HEAD, *(page(1, "x") + page(2, "y")), TAIL])))
    assert ids(path, 1) == [1, 2]


def test_a_stream_is_found_across_the_blocks_that_are_read(tmp_path: Path) -> None:
    path = tmp_path / "dump.bz2"
    for before in range((1 << 20) - 20, (1 << 20) + 3):
        path.write_bytes(b"BZh9" + b"\0" * before + b"BZh91AY&SY" + b"\0" * 20)
        assert split_ranges(path, 10) == [(0, before + 4), (before + 4, before + 34)]


@st.composite
def damaged_dumps(draw) -> tuple[list[str], list[bytes], list[int]]:
    """Pieces of a dump, their streams, some of which are damaged, and which."""
    number = draw(st.integers(3, 12))
    pages = [page(n, f"{n} " * draw(st.integers(1, 200))) for n in range(number)]
    if draw(st.booleans()):
        pieces = [HEAD, *pages, TAIL]
    else:  # streams that end anywhere
        body = "".join(pages)
        cuts = sorted({0, len(body), *draw(st.lists(st.integers(1, len(body) - 1), min_size=2, max_size=12))})
        pieces = [HEAD, *(body[a:b] for a, b in zip(cuts, cuts[1:], strict=False)), TAIL]
    packed = pack(pieces)
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
def test_a_corrupt_stream_costs_itself_alone(tmp_path: Path, dump: tuple[list[str], list[bytes], list[int]]) -> None:
    pieces, packed, damaged = dump
    path = tmp_path / "dump.bz2"
    path.write_bytes(b"".join(packed))
    # a page must come out, as it went in, if and only if every stream that holds a piece of it can be decoded
    starts, position, holes = [0], 0, []
    for piece, data, which in zip(pieces, packed, range(len(pieces)), strict=True):
        starts.append(starts[-1] + len(piece))
        if which in damaged:
            decoder = bz2.BZ2Decompressor()
            try:
                good = decoder.decompress(data) == piece.encode() and decoder.eof
            except OSError:
                good = False
            assume(not good or not decoder.unused_data)  # only bits of padding at its end were met, and moved
            if not good:
                holes.append((which, position))
        position += len(data)
    whole = "".join(pieces)
    expected, end = [], 0
    while (begin := whole.find("<page>", end)) >= 0:
        end = whole.index("</page>", begin) + len("</page>")
        if not any(starts[which] < end and begin < starts[which + 1] for which, _ in holes):
            expected.append(whole[whole.index("<text>", begin) + 6 : whole.index("</text>", begin)])
    outcomes = []
    for size in SIZES:
        damage = Damage()
        texts = [read.text for span in split_ranges(path, size) for read in read_pages(path, *span, damage)]
        outcomes.append((texts, damage))
        assert texts == expected
        named = {offset for offset, _ in damage.streams}
        # a hole that follows another may be one with it, and what follows an early end is a hole of its own
        assert all(offset in named or which - 1 in dict(holes) for which, offset in holes)
        assert all(any(start <= offset < start + len(packed[which]) for which, start in holes) for offset in named)
    assert all(outcome == outcomes[0] for outcome in outcomes)


def test_a_page_that_runs_into_a_hole_is_counted_and_not_joined_to_what_follows(tmp_path: Path) -> None:
    path = tmp_path / "dump.bz2"
    first, second, third = page(1), page(2), page(3)
    packed = pack([HEAD, first + second[:300], second[300:] + third[:300], third[300:] + page(4), TAIL])
    packed[2] = packed[2][:40] + b"\xff" * 8 + packed[2][48:]
    path.write_bytes(b"".join(packed))
    for size in SIZES:
        damage = Damage()
        assert ids(path, size, damage) == [1, 4]
        ((offset, problem),) = damage.streams
        assert offset == len(packed[0] + packed[1]) and problem
        assert damage.cut_pages == 1


def test_data_that_comes_before_a_wrong_checksum_is_not_used(tmp_path: Path) -> None:
    path = tmp_path / "dump.bz2"
    rng = random.Random(0)
    long = [page(n, "".join(rng.choices("abcdefgh ", k=300_000))) for n in (1, 2, 3, 4)]  # four blocks of bz2
    packed = pack([HEAD, "".join(long), page(5), TAIL])
    bad = bytearray(packed[1])
    bad[-5] ^= 0xFF  # the sum over the whole stream, which stands at its very end
    path.write_bytes(packed[0] + bytes(bad) + packed[2] + packed[3])
    assert bz2.BZ2Decompressor().decompress(packed[1][:-8])  # data does come out before
    damage = Damage()
    assert ids(path, 1 << 30, damage) == [5]
    assert [offset for offset, _ in damage.streams] == [len(packed[0])]


@pytest.mark.parametrize("where", [0, -1])
def test_the_first_and_the_last_stream_must_be_good(tmp_path: Path, where: int) -> None:
    path = tmp_path / "dump.bz2"
    packed = pack([HEAD + page(1), page(2), page(3) + TAIL])
    packed[where] = packed[where][:-6] + b"\xff" + packed[where][-5:]
    path.write_bytes(b"".join(packed))
    offset = 0 if where == 0 else len(packed[0] + packed[1])
    for size in SIZES:
        with pytest.raises(PipelineError, match=f"cut off or corrupt[\\s\\S]*stream at byte {offset:,}"):
            ids(path, size, Damage())
    if where == 0:
        with pytest.raises(PipelineError, match="stream at byte 0"):
            read_head(path)


def test_without_a_place_to_take_it_down_a_corrupt_stream_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "dump.bz2"
    packed = pack([HEAD, page(1), page(2), TAIL])
    path.write_bytes(packed[0] + packed[1][:50] + b"\0" + packed[1][51:] + packed[2] + packed[3])
    with pytest.raises(PipelineError, match=f"stream at byte {len(packed[0]):,}"):
        list(read_pages(path))


def test_a_long_stream_is_passed_on_as_it_comes_and_must_be_good(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(streams, "LONGEST_HELD", 1 << 20)
    path = tmp_path / "dump.bz2"
    pages = "".join(page(n, f"{n} " * 1000) for n in range(4000))  # 19 MB of XML in one stream
    packed = pack([HEAD, pages, page(9999) + TAIL])
    path.write_bytes(b"".join(packed))
    del pages
    tracemalloc.start()
    assert sum(1 for _ in read_pages(path)) == 4001
    assert tracemalloc.get_traced_memory()[1] < 8 << 20
    tracemalloc.stop()
    path.write_bytes(packed[0] + packed[1][:-6] + b"\xff" + packed[1][-5:] + packed[2])
    with pytest.raises(PipelineError, match=f"stream at byte {len(packed[0]):,}"):
        list(read_pages(path, damage=Damage()))


def test_a_disk_that_fails_is_not_taken_for_a_corrupt_stream(tmp_path: Path) -> None:
    path = tmp_path / "dump.bz2"
    path.write_bytes(b"".join(pack([HEAD, page(1), TAIL])))

    class Failing:
        def read(self, size: int) -> bytes:
            raise OSError(5, "Input/output error")

    with pytest.raises(OSError, match="Input/output"):
        list(streams._decode(Failing()))  # type: ignore[arg-type]
