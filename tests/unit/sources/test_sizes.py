"""Bytes of sources before they are fetched, against the catalogue and this disk."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from pipeline_src.base.yaml_files import SOURCES
from pipeline_src.sources.catalogue import load_source
from pipeline_src.sources.sizes import fetched_bytes, source_size
from tests.studies import load_preset


def test_source_size_all_parts_is_the_whole_dump() -> None:
    wikipedia = load_preset("bert-base").corpus.sources["wikipedia"]
    dump, part = source_size(wikipedia), source_size(wikipedia.model_copy(update={"parts": ("1-p1p41242",)}))
    assert dump.files == pytest.approx(25e9, rel=0.05) and "enwiki" in dump.note
    assert dump.files == 70 * part.files


def test_source_size_is_from_catalogue_or_disk(catalogue: Path, tmp_path: Path) -> None:
    sources = load_preset("sample").corpus.sources
    assert source_size(sources["wikipedia"]).files == 1_695_871
    assert source_size(sources["reviews"]).text == 6 * sources["reviews"].max_words
    (tmp_path / "one.tsv").write_bytes(b"1" * 48_000)
    entry = {"description": "d", "licence": "l", "citation": "c"}
    entry |= {"files": [{"path": "one.tsv", "url": f"file:{tmp_path}/*.tsv"}]}
    (catalogue / "sources/mine.yaml").write_text(yaml.safe_dump(entry))
    size = source_size(sources["books"].model_copy(update={"entry": "mine"}))
    assert size == (48_000, 0, 48_000, "")


@pytest.mark.parametrize("bytes_of_copy", [None, 3_000_000])
def test_source_size_of_hub_entry_without_bytes_is_assumed(catalogue: Path, bytes_of_copy: int | None) -> None:
    entry = yaml.safe_load((catalogue / "sources/fineweb-edu-10bt.yaml").read_text())
    entry["files"][0]["bytes"] = bytes_of_copy
    (catalogue / "sources/mine.yaml").write_text(yaml.safe_dump(entry))
    size = source_size(load_preset("sample").corpus.sources["reviews"].model_copy(update={"entry": "mine"}))
    assert size.files == (bytes_of_copy or 4.4e9) and ("mine: 4.4 GB assumed" in size.note) == (bytes_of_copy is None)


def test_fetched_bytes_counts_whole_wheel_once(catalogue: Path) -> None:
    files = []
    for name, sha, size in (("a", "a", 1000), ("b", "a", 1000), ("c", "c", 30)):
        wheel = {"checksum": f"sha256:{sha * 64}", "bytes": size, "platforms": ["any"]}
        wheel |= {"python_version": "3.11", "implementation": "py", "abi": "none"}
        files.append({"path": name, "url": f"pypi:x==1/{name}", "bytes": 5, "wheel": wheel})
    entry = {"description": "d", "licence": "l", "citation": "c", "files": files}
    (catalogue / "sources/mine.yaml").write_text(yaml.safe_dump(entry))
    assert fetched_bytes(load_source(SOURCES, "mine")) == 1030
