"""The tool that lists a dump's parts in params.yaml."""

from __future__ import annotations

import argparse
import shutil
import socket
from pathlib import Path

import pytest
import yaml

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.yaml_files import SOURCES
from pipeline_src.config.study import load_study
from pipeline_src.download.catalogue import load_source, resolve
from pipeline_src.tools import parts as tool

DATE = "20260901"
RANGES = ["1-p1p41242", "2-p41243p151573", "10-p2336423p3046512", "10-p3046513p3046517", "27-p71000000p72000000"]


def listing(ranges: list[str], name: str = "enwiki") -> bytes:
    """A list of sums as Wikimedia writes it, in no order that helps."""
    names = [f"{name}-{DATE}-pages-articles-multistream.xml.bz2", f"{name}-{DATE}-abstract.xml.gz"]
    for part in reversed(ranges):
        number, _, pages = part.partition("-")
        names += [
            f"{name}-{DATE}-pages-articles{number}.xml-{pages}.bz2",
            f"{name}-{DATE}-pages-articles-multistream{number}.xml-{pages}.bz2",
            f"{name}-{DATE}-pages-articles-multistream-index{number}.txt-{pages}.bz2",
            f"{name}-{DATE}-pages-meta-history{number}.xml-{pages}.bz2",
        ]
    return "".join(f"{'0' * 40}  {file}\n" for file in names).encode()


@pytest.fixture
def enwiki(web, monkeypatch: pytest.MonkeyPatch):
    """The catalogue's own entries, with lists of sums on this machine; the catalogue itself admits https alone."""

    def local(folder: str, name: str):
        source = load_source(folder, name)
        files = tuple(
            file.model_copy(update={"checksum_file": file.checksum_file and web.url("/{date}/sums.txt")})
            for file in source.files
        )
        return source.model_copy(update={"files": files})

    monkeypatch.setattr(tool, "load_source", local)
    web.files[f"/{DATE}/sums.txt"] = listing(RANGES)
    return web


@pytest.fixture
def study(project: Path, root: Path) -> Path:
    """The sample study's params.yaml in an empty project."""
    return Path(shutil.copy(root / "workflow/presets/sample.yaml", project / "params.yaml"))


def run(date: str = DATE, dump: str = "enwiki", only_print: bool = False) -> None:
    """The tool from its arguments."""
    parser = argparse.ArgumentParser()
    tool.add_arguments(parser)
    tool.main(parser.parse_args(["--date", date, "--dump", dump, *(["--print"] if only_print else [])]))


def test_parts_go_into_the_study_in_natural_order_and_all_else_stays(enwiki, study: Path, capsys) -> None:
    before = study.read_text()
    run()
    text = study.read_text()
    assert yaml.safe_load(text)["corpus"]["sources"]["wikipedia"]["date"] == DATE  # text, not a number
    wikipedia = load_study(study).corpus.sources["wikipedia"]
    assert (wikipedia.entry, wikipedia.date, list(wikipedia.parts)) == ("enwiki", DATE, RANGES)
    one_line = "      - 1-p1p41242\n"
    assert one_line in text
    changed = {line for line in before.splitlines() if line not in text.splitlines()}
    assert {line.split(":")[0].strip() for line in changed} == {"from", "date", "- excerpt"}
    for line in before.splitlines():  # comments of changed lines too
        assert line.partition("#")[2].strip() in text
    assert not [path for path in study.parent.iterdir() if path.name not in ("params.yaml", "data")]
    out = capsys.readouterr().out
    assert f"5 parts of enwiki {DATE}, {RANGES[0]} to {RANGES[-1]}" in out and "make study" in out
    for part in RANGES:
        resolve("enwiki", load_source(SOURCES, "enwiki"), date=DATE, part=part)


def test_a_second_time_changes_the_list_alone(enwiki, study: Path) -> None:
    run()
    study.write_text(study.read_text().replace("      language:", "\n      # about languages\n      language:"))
    once = study.read_text()
    run()
    assert study.read_text() == once
    enwiki.files[f"/{DATE}/sums.txt"] = listing(RANGES[:2])  # fetched anew, whatever was kept
    run()
    assert list(load_study(study).corpus.sources["wikipedia"].parts) == RANGES[:2]
    assert "\n\n      # about languages\n      language:" in study.read_text()
    assert study.read_text() == once.replace("".join(f"      - {part}\n" for part in RANGES[2:]), "")


def test_print_changes_nothing(enwiki, study: Path, capsys) -> None:
    before = study.read_bytes()
    run(only_print=True)
    assert study.read_bytes() == before
    assert capsys.readouterr().out.splitlines() == [*RANGES, f"5 parts of enwiki {DATE}"]


def test_a_wiki_in_one_file(enwiki, study: Path) -> None:
    enwiki.files[f"/{DATE}/sums.txt"] = (
        f"{'0' * 40}  simplewiki-{DATE}-pages-articles-multistream.xml.bz2\n"
        f"{'0' * 40}  simplewiki-{DATE}-pages-articles-multistream-index.txt.bz2\n"
    ).encode()
    run(dump="simplewiki")
    assert load_study(study).corpus.sources["wikipedia"].parts == ("all",)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dump": "klingonwiki"}, "no such entry in the catalogue: klingonwiki"),
        ({"dump": "enwiki-sample"}, "no dates with parts to list: enwiki-sample"),
        ({"dump": "own-wikipedia"}, "no dates with parts to list: own-wikipedia"),
        ({"dump": "shakespeare-sample"}, "no dates with parts to list"),
        ({"date": "2026-09-01"}, "not a date of a dump: 2026-09-01"),
        ({"date": "20200101"}, r"no dump of that date: 20200101\n  where:  \S+/20200101/sums.txt\n  hint: choose"),
    ],
)
def test_what_cannot_be_listed_is_one_clear_error(enwiki, study: Path, arguments: dict, message: str) -> None:
    before = study.read_bytes()
    with pytest.raises(PipelineError, match=message):
        run(**arguments)
    assert study.read_bytes() == before


def test_no_network(enwiki, study: Path) -> None:
    with socket.socket() as unused:  # bound but not listening: connections are refused
        unused.bind(("127.0.0.1", 0))
        enwiki.address = f"http://127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(PipelineError, match=r"download failed[\s\S]*refused[\s\S]*check the network"):
            run()


def test_a_dump_that_is_still_being_made(enwiki, study: Path) -> None:
    address = f"/{DATE}/sums.txt"
    enwiki.files[address] = listing([])
    with pytest.raises(PipelineError, match=r"no part is listed[\s\S]*wait until"):
        run()
    whole = listing(RANGES).decode().splitlines(keepends=True)
    enwiki.files[address] = "".join(line for line in whole if "index27" not in line).encode()
    with pytest.raises(PipelineError, match=r"not complete yet: a file is not listed: enwiki-20260901\S+index27\S+"):
        run()


def test_a_study_that_is_not_valid_stays_as_it_is(enwiki, study: Path) -> None:
    study.write_text(study.read_text().replace("mask_prob: 0.15", "mask_prob: 15"))
    before = study.read_bytes()
    with pytest.raises(PipelineError, match="mask_prob"):
        run()
    assert study.read_bytes() == before
