from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.yaml_files import SOURCES
from pipeline_src.sources import download
from pipeline_src.sources.catalogue import Source, load_source
from pipeline_src.sources.download import find_parts, wants_all_parts
from pipeline_src.study.data import ALL_PARTS, BooksParams, CorpusParams, WikipediaParams
from pipeline_src.text.documents import part_names

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


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_run_local_dump_missing_part_is_rejected_and_writes_nothing(project: Path) -> None:
    corpus = CorpusParams(sources={"mine": WikipediaParams(entry="own-wikipedia", parts=("one", "two"))})
    (project / "data/own/wikipedia").mkdir(parents=True)
    (project / "data/own/wikipedia/one.xml.bz2").write_bytes(b"dump")
    with pytest.raises(PipelineError, match=r"your own file is not there: data/own/wikipedia/two\.xml\.bz2"):
        download.run(corpus=corpus, source="mine")
    assert not (project / "data/raw/mine").exists()
    (project / "data/own/wikipedia/two.xml.bz2").write_bytes(b"dump")
    download.run(corpus=corpus, source="mine")
    for part in ("one", "two"):
        assert names(project / "data/raw/mine/fetched-files" / part) == sorted([f"{part}.xml.bz2", "source.json"])


def test_run_local_books_are_copied(project: Path) -> None:
    (project / "data/own/books").mkdir(parents=True)
    (project / "data/own/books/a.txt").write_text("Once.")
    download.run(corpus=CorpusParams(sources={"shelf": BooksParams(entry="own-books")}), source="shelf")
    assert names(project / "data/raw/shelf/fetched-files") == ["a.txt", "source.json"]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (BooksParams(entry="own-books", parts=("one",)), r"(?s)has no parts: one.*corpus.sources.mine.parts"),
        (WikipediaParams(entry="own-wikipedia"), r"own-wikipedia needs a list of parts"),
        (WikipediaParams(entry="enwiki", parts=("1-p1p41242",)), r"(?s)enwiki needs a date.*corpus.sources.mine.date"),
    ],
)
def test_run_source_without_part_or_date_is_rejected(project: Path, source: object, message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        download.run(corpus=CorpusParams(sources={"mine": source}), source="mine")


def test_find_parts_fetches_only_incomplete_list_again(web: Any, project: Path) -> None:
    web.files[f"/{DATE}/sums.txt"] = listing([])
    with pytest.raises(PipelineError, match="the dump lists no part"):
        find_parts("enwiki", entry_on(web), DATE)
    web.files[f"/{DATE}/sums.txt"] = listing(RANGES)
    assert find_parts("enwiki", entry_on(web), DATE) == RANGES  # in natural order
    del web.files[f"/{DATE}/sums.txt"]
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
def test_wants_all_parts_unless_a_part_is_called_all(entry: str, parts: tuple[str, ...], expected: bool) -> None:
    assert wants_all_parts(load_source(SOURCES, entry), parts) is expected


def test_part_names_all_parts_are_downloaded_folders(tmp_path: Path) -> None:
    for part in ("2-p3p4", "1-p1p2"):
        (tmp_path / part).mkdir()
        (tmp_path / part / "source.json").touch()
    assert part_names(tmp_path, ALL_PARTS) == ["1-p1p2", "2-p3p4"]
    assert part_names(tmp_path, ("2-p3p4",)) == ("2-p3p4",)
    (tmp_path / "all").mkdir()
    assert part_names(tmp_path, ALL_PARTS) == ALL_PARTS
