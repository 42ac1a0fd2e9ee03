from __future__ import annotations

from pathlib import Path

import pytest

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.yaml_files import MODELS, SOURCES, TASK_SOURCES, entry_names
from pipeline_src.sources.catalogue import load_source, resolve
from pipeline_src.study.task_spec import task_names
from pipeline_src.tasks.made.from_corpus import RULES

PAIR_SETS = ("blimp",)  # minimal pairs, which are no task
WITHOUT_CHECKSUM = ("novels-shelf",)  # Project Gutenberg regenerates its files from time to time
NAMES = [(folder, name) for folder in (SOURCES, TASK_SOURCES, MODELS) for name in entry_names(folder)]
ENTRY = "description: d\nlicence: l\ncitation: c\nfiles:\n  - "


@pytest.mark.parametrize(("folder", "name"), NAMES)
def test_catalogue_entry_resolves_and_has_checksums(folder: str, name: str) -> None:
    source = load_source(folder, name)
    for file in resolve(name, source, date="20260901", part=source.part_example).files:
        assert not set("{}") & set(file.path + file.url + "".join(file.mirrors) + (file.checksum_file or ""))
        if file.checksum is None and file.checksum_file is None and file.scheme not in ("file", "hub"):
            assert file.path == "diagnostic-full.tsv" or name in WITHOUT_CHECKSUM


def test_catalogue_every_task_has_a_source() -> None:
    assert {*task_names(), *PAIR_SETS} == {*entry_names(TASK_SOURCES), *RULES}


def test_resolve_part_of_english_dump() -> None:
    source = resolve("enwiki", load_source(SOURCES, "enwiki"), date="20260901", part="27-p70000000p71234567")
    dump, index = source.files
    name = "enwiki-20260901-pages-articles-multistream27.xml-p70000000p71234567.bz2"
    assert source.description.startswith("English Wikipedia, multistream dump of 20260901")
    assert dump.path == name
    assert dump.url == f"https://dumps.wikimedia.org/enwiki/20260901/{name}"
    assert dump.mirrors == (f"https://mirror.accum.se/mirror/wikimedia.org/dumps/enwiki/20260901/{name}",)
    assert dump.checksum_file == "https://dumps.wikimedia.org/enwiki/20260901/enwiki-20260901-sha1sums.txt"
    assert index.path == "enwiki-20260901-pages-articles-multistream-index27.txt-p70000000p71234567.bz2"


def test_resolve_unknown_part_or_missing_date_is_rejected() -> None:
    with pytest.raises(PipelineError, match=r"(?s)enwiki has no such part: all.*1-p1p41242"):
        resolve("enwiki", load_source(SOURCES, "enwiki"), date="20260901", part="all")
    with pytest.raises(PipelineError, match=r"(?s)simplewiki needs a date.*corpus\.sources\.date"):
        resolve("simplewiki", load_source(SOURCES, "simplewiki"), part="all")


def test_load_source_unknown_name_lists_entries() -> None:
    with pytest.raises(PipelineError, match=r"(?s)no such catalogue entry: enviki.*enwiki-sample"):
        load_source(SOURCES, "enviki")


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("{path: a, url: 'ftp://x/a'}", "https, file, pypi"),
        ("{path: ., url: 'file:own/a.txt'}", "path . is a folder"),
        (f"{{path: ., url: 'file:own/*', checksum: 'md5:{'0' * 32}'}}", "the address of a single file"),
        ("{path: a, url: 'file:own/a[12]', unpack: {b: c}}", "the address of a single file"),
        ("{path: a, url: 'file:own/?.txt', excerpts: {b: {begins: b, ends: e}}}", "the address of a single file"),
        ("{path: ../a, url: 'https://x/a'}", "a path is relative, without .."),
        ("{path: a.zip, url: 'https://x/a.zip', unpack: {../../b: b}}", "a path is relative, without .."),
        ("{path: a, url: 'https://x/a', checksum: 'sha256:abc'}", "64 hex digits"),
        ("{path: a, url: 'https://x/a', size: 3}", "allowed here: path, url, mirrors"),
        ("{path: a, url: 'pypi:a==1/b'}", "needs the key `wheel`"),
        ("{path: a, url: 'https://x/a', excerpts: {../b: {begins: b, ends: e}}}", "a path is relative, without .."),
        ("{path: a, url: 'https://x/a', excerpts: {b: {begins: '(', ends: e}}}", "invalid regular expression"),
        ("{path: a, url: 'https://x/a', excerpts: {b: {begins: b, ends: e}}, unpack: {b: c}}", "not both"),
        ("{path: a, url: 'https://x/a', mirrors: ['http://x/a']}", "https://HOST/PATH"),
        ("{path: a, url: 'https://x/a', checksum_file: 'http://x/sums'}", "https://HOST/PATH"),
        ("{path: a, url: 'https://[::1'}", "https://HOST/PATH"),
        ("{path: a, url: 'https://x/{path:>9999999999}'}", "https://HOST/PATH"),
        ("{path: a, url: 'https://x/ü'}", "https://HOST/PATH"),
        ("{path: a.zip, url: 'https://x/a.zip', unpack: {}}", "at least 1 item"),
        ("{path: a, url: 'https://x/a'}\n  - {path: a, url: 'https://x/b'}", "path 'a' is given twice"),
        ("{path: a, url: 'https://x/a'}\n  - {path: a/b, url: 'https://x/b'}", "path 'a' is given twice"),
        ("{path: a, url: 'pypi:a/b'}", "NAME==VERSION"),
        (f"{{path: a, url: 'https://x/a', checksum: 'md5:{'0' * 32}', checksum_file: 'https://x/s'}}", "not both"),
        ("{path: a, url: 'https://x/a'}\npart: '*'", "regular expression"),
    ],
)
def test_load_source_invalid_field_is_rejected(catalogue: Path, file: str, message: str) -> None:
    (catalogue / "sources/mine.yaml").write_text(f"{ENTRY}{file}\n")
    with pytest.raises(PipelineError, match=r"(?s)(unknown key|value not allowed).*sources/mine\.yaml") as caught:
        load_source(SOURCES, "mine")
    assert message in str(caught.value)


@pytest.mark.parametrize("text", ["a: [", "\x00", "[" * 3000, "seed: 2026-13-45", "", "- a", "1"])
def test_load_source_file_without_keys_is_rejected(catalogue: Path, text: str) -> None:
    (catalogue / "sources/mine.yaml").write_text(text)
    with pytest.raises(PipelineError, match=r"(cannot be read|has no keys): mine\.yaml"):
        load_source(SOURCES, "mine")


@pytest.mark.parametrize("name", ["my.shelf", "../sources/enwiki", "", "a b"])
def test_load_source_invalid_name_is_rejected(name: str) -> None:
    with pytest.raises(PipelineError, match="letters, digits"):
        load_source(SOURCES, name)
