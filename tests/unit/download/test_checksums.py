"""Reading sums, and the record of first downloads."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import digests
from pipeline_src.download import checksums
from pipeline_src.download.checksums import Checksum, find_in_list, recorded


@given(st.sampled_from(sorted(checksums.DIGITS)), st.binary())
def test_a_checksum_reads_back_as_written(algorithm: str, content: bytes) -> None:
    checksum = Checksum(algorithm, hashlib.new(algorithm, content).hexdigest())
    assert Checksum.parse(str(checksum)) == checksum
    assert Checksum.parse(f"{algorithm}:{checksum.digest.upper()}") == checksum


@pytest.mark.parametrize("text", ["", "abc", "crc32:00000000", "md5:" + "0" * 40, "sha1:" + "g" * 40])
def test_what_is_no_checksum(text: str) -> None:
    with pytest.raises(ValueError, match="hex digits"):
        Checksum.parse(text)


def test_several_sums_in_one_reading(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc" * 1_000_000)
    expected = {name: hashlib.new(name, b"abc" * 1_000_000).hexdigest() for name in ("sha256", "md5")}
    assert digests(tmp_path / "a", ["sha256", "md5", "sha256"]) == expected


def test_a_list_of_sums_in_its_common_forms() -> None:
    text = f"{'a' * 40}  wiki.xml.bz2.torrent\n{'b' * 40}  wiki.xml.bz2\n{'C' * 64} *binary.bz2\nnot a line\n"
    assert find_in_list(text, "wiki.xml.bz2") == Checksum("sha1", "b" * 40)
    assert find_in_list(text, "binary.bz2") == Checksum("sha256", "c" * 64)
    assert find_in_list(text, "wiki.xml") is None


def _record(number: int) -> None:
    checksums.record("entry", f"file-{number}", "0" * 64, Path("guard"))


def test_jobs_side_by_side_lose_no_line_of_the_record(project: Path) -> None:
    with multiprocessing.get_context("fork").Pool(4) as pool:
        pool.map(_record, range(40))
    held = json.loads((project / "sources.lock").read_text())
    assert sorted(held["entry"]) == sorted(f"file-{number}" for number in range(40))
    assert checksums.recorded("entry", "file-7") == Checksum("sha256", "0" * 64)
    assert checksums.recorded("entry", "other") is None


@pytest.mark.parametrize("text", ["[]", "5", '{"x": []}', '{"x": {"a": 5}}', '{"x": {"a": "short"}}', "[" * 9000])
def test_a_record_of_another_shape_is_one_error(project: Path, text: str) -> None:
    Path("sources.lock").write_text(text)
    with pytest.raises(PipelineError, match=r"sources\.lock"):
        recorded("x", "a")
