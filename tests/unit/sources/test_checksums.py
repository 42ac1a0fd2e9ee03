from __future__ import annotations

import json
import multiprocessing
from pathlib import Path

import pytest

from pipeline_src.base.errors import PipelineError
from pipeline_src.sources import checksums
from pipeline_src.sources.checksums import Checksum, find_in_list, recorded


@pytest.mark.parametrize("algorithm", checksums.DIGITS)
def test_checksum_parse_inverts_str(algorithm: str) -> None:
    checksum = Checksum(algorithm, "0a" * (checksums.DIGITS[algorithm] // 2))
    assert Checksum.parse(str(checksum)) == Checksum.parse(f"{algorithm}:{checksum.digest.upper()}") == checksum


@pytest.mark.parametrize("text", ["", "abc", "crc32:00000000", "md5:" + "0" * 40, "sha1:" + "g" * 40])
def test_checksum_parse_invalid_text_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="hex digits"):
        Checksum.parse(text)


def test_find_in_list_common_formats() -> None:
    text = f"{'a' * 40}  wiki.xml.bz2.torrent\n{'b' * 40}  wiki.xml.bz2\n{'C' * 64} *binary.bz2\nnot a line\n"
    assert find_in_list(text, "wiki.xml.bz2") == Checksum("sha1", "b" * 40)
    assert find_in_list(text, "binary.bz2") == Checksum("sha256", "c" * 64)
    assert find_in_list(text, "wiki.xml") is None


def _record(number: int) -> None:
    checksums.record("entry", f"file-{number}", "0" * 64, Path("guard"))


def test_record_by_parallel_processes_keeps_every_line(project: Path) -> None:
    with multiprocessing.get_context("fork").Pool(4) as pool:
        pool.map(_record, range(40))
    content = json.loads((project / "sources.lock").read_text())
    assert sorted(content["entry"]) == sorted(f"file-{number}" for number in range(40))
    assert recorded("entry", "file-7") == Checksum("sha256", "0" * 64)
    assert recorded("entry", "other") is None


@pytest.mark.parametrize("text", ["[]", '{"x": []}', '{"x": {"a": 5}}', "[" * 9000])
def test_recorded_invalid_sources_lock_is_rejected(project: Path, text: str) -> None:
    Path("sources.lock").write_text(text)
    with pytest.raises(PipelineError, match=r"sources\.lock"):
        recorded("x", "a")
