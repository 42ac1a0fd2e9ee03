"""The catalogue itself, and how an entry is read and filled in."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from pipeline_src.common.errors import PipelineError
from pipeline_src.sources.catalogue import CATALOGUE, load_source, resolve
from pipeline_src.tasks.files.spec import task_names

NAMES = list(yaml.safe_load(CATALOGUE.read_text(encoding="utf-8")))
ENTRY = "description: d\n  licence: l\n  citation: c\n  files:\n    - "


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "sources.yaml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("name", NAMES)
def test_every_entry_is_well_formed_and_can_be_filled_in(name: str) -> None:
    source = load_source(name)
    filled = resolve(name, source, date="20260901", part=source.part_example)
    for file in filled.files:
        assert not set("{}") & set(file.path + file.url + "".join(file.mirrors) + (file.checksum_file or ""))
        if file.checksum is None and file.checksum_file is None and file.scheme != "file":
            assert file.path == "diagnostic-full.tsv", "a new entry without a sum: look for one first"


def test_every_task_has_an_entry_of_its_name() -> None:
    assert set(task_names()) <= set(NAMES)


def test_a_part_of_the_english_dump() -> None:
    dump, index = resolve("enwiki", load_source("enwiki"), date="20260901", part="27-p70000000p71234567").files
    name = "enwiki-20260901-pages-articles-multistream27.xml-p70000000p71234567.bz2"
    assert dump.path == name
    assert dump.url == f"https://dumps.wikimedia.org/enwiki/20260901/{name}"
    assert dump.mirrors == (f"https://mirror.accum.se/mirror/wikimedia.org/dumps/enwiki/20260901/{name}",)
    assert dump.checksum_file == "https://dumps.wikimedia.org/enwiki/20260901/enwiki-20260901-sha1sums.txt"
    assert index.path == "enwiki-20260901-pages-articles-multistream-index27.txt-p70000000p71234567.bz2"


def test_the_description_names_the_date() -> None:
    source = resolve("enwiki", load_source("enwiki"), date="20260901", part="1-p1p41242")
    assert source.description.startswith("English Wikipedia, multistream dump of 20260901")


def test_a_part_that_the_entry_does_not_have_and_a_date_that_is_missing() -> None:
    with pytest.raises(PipelineError, match=r"(?s)enwiki has no such part: all.*1-p1p41242"):
        resolve("enwiki", load_source("enwiki"), date="20260901", part="all")
    with pytest.raises(PipelineError, match=r"(?s)simplewiki needs a date.*wikipedia\.date"):
        resolve("simplewiki", load_source("simplewiki"), part="all")


def test_an_unknown_name_lists_those_there() -> None:
    with pytest.raises(PipelineError, match=r"(?s)no such source: enviki.*enwiki-sample"):
        load_source("enviki")


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("{path: a, url: 'ftp://x/a'}", "https, file, pypi"),
        ("{path: ../a, url: 'https://x/a'}", "stays below its folder"),
        ("{path: a.zip, url: 'https://x/a.zip', unpack: {../../b: b}}", "stays below its folder"),
        ("{path: a, url: 'https://x/a', checksum: 'sha256:abc'}", "64 hex digits"),
        ("{path: a, url: 'https://x/a', size: 3}", "Extra inputs"),
        ("{path: a, url: 'pypi:a==1/b'}", "needs a wheel"),
        ("{path: a, url: 'pypi:a/b'}", "NAME==VERSION"),
        (f"{{path: a, url: 'https://x/a', checksum: 'md5:{'0' * 32}', checksum_file: 'https://x/s'}}", "not both"),
    ],
)
def test_a_badly_written_entry_is_refused_by_name(tmp_path: Path, file: str, said: str) -> None:
    with pytest.raises(PipelineError, match="wrong entry in the catalogue: mine") as caught:
        load_source("mine", written(tmp_path, f"mine:\n  {ENTRY}{file}\n"))
    assert said in str(caught.value)


def test_a_catalogue_that_is_not_yaml(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="cannot be read"):
        load_source("mine", written(tmp_path, "mine: [\n"))
    with pytest.raises(PipelineError, match="letters, digits"):
        load_source("my.shelf", written(tmp_path, f"my.shelf:\n  {ENTRY}{{path: a, url: 'file:a'}}\n"))
