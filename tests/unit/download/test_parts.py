"""The parts of a dump, from lists of checksums as Wikimedia writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.yaml_files import SOURCES
from pipeline_src.config.data import ALL_PARTS
from pipeline_src.corpus.documents import part_names
from pipeline_src.download.catalogue import Source, load_source
from pipeline_src.download.parts import find_parts, wants_all_parts

DATE = "20260901"
RANGES = ["1-p1p41242", "2-p41243p151573", "10-p2336423p3046512", "10-p3046513p3046517", "27-p71000000p72000000"]


def listing(ranges: list[str]) -> bytes:
    """A list of checksums of the English Wikipedia, the last part first."""
    names = [f"enwiki-{DATE}-pages-articles-multistream.xml.bz2", f"enwiki-{DATE}-abstract.xml.gz"]
    for part in reversed(ranges):
        number, _, pages = part.partition("-")
        names += [
            f"enwiki-{DATE}-pages-articles{number}.xml-{pages}.bz2",
            f"enwiki-{DATE}-pages-articles-multistream{number}.xml-{pages}.bz2",
            f"enwiki-{DATE}-pages-articles-multistream-index{number}.txt-{pages}.bz2",
            f"enwiki-{DATE}-pages-meta-history{number}.xml-{pages}.bz2",
        ]
    return "".join(f"{'0' * 40}  {file}\n" for file in names).encode()


def entry_on(web: Any, name: str = "enwiki") -> Source:
    """An entry of the catalogue with its list of checksums on the test's own server."""
    source, address = load_source(SOURCES, name), web.url("/{date}/sums.txt")
    files = (file.model_copy(update={"checksum_file": file.checksum_file and address}) for file in source.files)
    return source.model_copy(update={"files": tuple(files)})


def test_find_parts_come_in_natural_order(web: Any, project: Path) -> None:
    web.files[f"/{DATE}/sums.txt"] = listing(RANGES)
    assert find_parts("enwiki", entry_on(web), DATE) == RANGES


def test_find_parts_kept_list_needs_no_network(web: Any, project: Path) -> None:
    web.files[f"/{DATE}/sums.txt"] = listing(RANGES)
    parts = find_parts("enwiki", entry_on(web), DATE)
    del web.files[f"/{DATE}/sums.txt"]
    assert find_parts("enwiki", entry_on(web), DATE) == parts


def test_find_parts_unfinished_list_is_fetched_again(web: Any, project: Path) -> None:
    web.files[f"/{DATE}/sums.txt"] = listing([])
    with pytest.raises(PipelineError, match="no part is listed"):
        find_parts("enwiki", entry_on(web), DATE)
    web.files[f"/{DATE}/sums.txt"] = listing(RANGES)
    assert find_parts("enwiki", entry_on(web), DATE) == RANGES


def test_find_parts_dump_without_parts_is_an_error(project: Path) -> None:
    with pytest.raises(PipelineError, match="no list of its parts: own-wikipedia"):
        find_parts("own-wikipedia", load_source(SOURCES, "own-wikipedia"), DATE)


@pytest.mark.parametrize("date", [None, "20200101"])
def test_find_parts_missing_or_unknown_date_is_an_error(web: Any, project: Path, date: str | None) -> None:
    with pytest.raises(PipelineError) as caught:
        find_parts("enwiki", entry_on(web), date, "corpus.sources.wiki")
    assert str(caught.value.where).endswith("/20200101/sums.txt" if date else "corpus.sources.wiki.date in params.yaml")


@pytest.mark.parametrize("missing", ["index27", "multistream"])
def test_find_parts_unfinished_dump_is_an_error(web: Any, project: Path, missing: str) -> None:
    lines = listing(RANGES).decode().splitlines(keepends=True)
    web.files[f"/{DATE}/sums.txt"] = "".join(line for line in lines if missing not in line).encode()
    with pytest.raises(PipelineError) as caught:
        find_parts("enwiki", entry_on(web), DATE)
    assert caught.value.value.startswith(f"enwiki-{DATE}-pages-articles-multistream")


@pytest.mark.parametrize(
    ("entry", "parts", "expected"),
    [("enwiki", ALL_PARTS, True), ("enwiki", ("1-p1p41242",), False), ("simplewiki", ALL_PARTS, False),
     ("own-wikipedia", ALL_PARTS, False), ("novels-sample", (), False)],
)  # fmt: skip
def test_wants_all_parts_only_where_all_is_no_part(entry: str, parts: tuple[str, ...], expected: bool) -> None:
    assert wants_all_parts(load_source(SOURCES, entry), parts) is expected


def test_part_names_of_all_are_the_folders_of_the_download(tmp_path: Path) -> None:
    for part in ("2-p3p4", "1-p1p2"):
        (tmp_path / part).mkdir()
        (tmp_path / part / "source.json").touch()
    assert part_names(tmp_path, ALL_PARTS) == ["1-p1p2", "2-p3p4"]
    assert part_names(tmp_path, ("2-p3p4",)) == ("2-p3p4",)
    (tmp_path / "all").mkdir()
    assert part_names(tmp_path, ALL_PARTS) == ALL_PARTS
