"""The Beam stage that cleans a Wikipedia dump."""

from __future__ import annotations

import bz2
import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import write_json
from pipeline_src.study.data import WikipediaParams
from pipeline_src.text import beam
from pipeline_src.text.documents import read_documents, read_manifest
from pipeline_src.text.wikipedia import clean_wikipedia as stage
from tests.studies import read_dropped

HEAD = '<mediawiki xml:lang="en"><siteinfo><dbname>testwiki</dbname></siteinfo>\n'
TAIL = "</mediawiki>\n"
PROSE = "The river runs north through two counties before it meets the sea."


def page(number: int, text: str = PROSE, namespace: int = 0, redirect: str = "") -> str:
    """The XML of one page."""
    return (
        f"<page><title>P{number}</title><ns>{namespace}</ns><id>{number}</id>{redirect}<revision><id>9</id>"
        f"<text>{text}</text></revision></page>\n"
    )


PAGES = [
    page(1),
    page(2, redirect='<redirect title="P1" />'),
    page(3, "#RINVIA [[P1]]"),
    page(4, namespace=1),
    page(5, "P5 may be: {{disambiguation}}"),
    page(6, "* only a list"),
    page(7, f"{PROSE} {PROSE}"),
]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory; one worker, since another takes seconds to start."""
    monkeypatch.setenv("PIPELINE_WORKERS", "1")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def dump_of(*pages: str) -> bytes:
    return bz2.compress((HEAD + "".join(pages) + TAIL).encode())


def streams_of(*pages: str) -> bytes:
    """A dump with each page in its own bz2 stream."""
    return b"".join(bz2.compress(piece.encode()) for piece in (HEAD, *pages, TAIL))


@pytest.fixture
def set_range_size(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    split = stage.split_ranges
    return lambda size: monkeypatch.setattr(stage, "split_ranges", lambda path: split(path, size))


def write_dump(project: Path, data: bytes, part: str = "a") -> Path:
    """Lay a dump where the stage looks for a part of the source ``wiki``."""
    folder = project / "data/raw/wiki/fetched-files" / part
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "dump.xml.bz2").write_bytes(data)
    return project / "data/text/wiki/clean-text"


def run(**params) -> None:
    """Run the stage on part ``a``."""
    stage.run("wiki", WikipediaParams(entry="x", parts=("a",), **params))


def test_clean_wikipedia_drops_are_counted_and_sampled_by_reason(project: Path) -> None:
    out = write_dump(project, dump_of(*PAGES))
    about = {"name": "w", "description": "A wiki", "licence": "CC BY-SA", "citation": "its authors"}
    write_json(project / "data/raw/wiki/fetched-files/a/source.json", {**about, "files": []})
    run(min_words=20)
    manifest = read_manifest(out)
    about["title"] = about.pop("description")
    assert manifest["sources"] == [{**about, "language": "en"}]
    assert manifest["pages"] == 7
    assert manifest["dropped"] == {"disambiguation": 1, "empty": 1, "namespace": 1, "redirect": 2, "too_short": 1}
    (document,) = read_documents(out)
    assert (document.id, document.title, document.revision) == ("testwiki:7", "P7", 9)
    assert document.text == f"{PROSE} {PROSE}"
    assert {path.name for path in out.iterdir()} == {"a-pages-00000000000000.jsonl", "dropped.jsonl", "manifest.json"}
    rows = [tuple(row.get(key) for key in ("reason", "id", "value", "limit", "text")) for row in read_dropped(out)]
    assert sorted(rows, key=lambda row: (row[0], row[1])) == [
        ("disambiguation", "testwiki:5", None, None, "P5 may be: {{disambiguation}}"),
        ("empty", "testwiki:6", None, None, "* only a list"),
        ("namespace", "testwiki:4", None, None, PROSE),
        ("redirect", "testwiki:2", None, None, PROSE),
        ("redirect", "testwiki:3", None, None, "#RINVIA [[P1]]"),
        ("too_short", "testwiki:1", 12, 20, PROSE),
    ]


def test_clean_wikipedia_list_sentences_are_kept_if_lists_is_sentences(project: Path) -> None:
    item = "The wheel is in the river and drives the two heavy stones."
    out = write_dump(project, dump_of(page(1, f"{PROSE}\n* {item}\n* a wheel")))
    run(lists="sentences")
    (document,) = read_documents(out)
    assert document.text == f"{PROSE}\n{item}"


def test_clean_wikipedia_filters_drop_same_articles_for_any_ranges(project: Path, set_range_size) -> None:
    long = " ".join(f"{PROSE} It was {number} miles long to the end, and wide." for number in range(4))
    texts = [f"Page {number}. {long if number % 3 else PROSE}" for number in range(90)]
    out = write_dump(project, streams_of(*(page(number, text) for number, text in enumerate(texts))))
    results = []
    for size in (600, 1 << 20):
        set_range_size(size)
        run(filters={"gopher_quality": {"min_words": 40}})
        results.append((read_manifest(out)["dropped"], (out / "dropped.jsonl").read_bytes()))
    assert results[0] == results[1]
    assert results[0][0] == {"gopher_quality.min_words": 30}
    rows = read_dropped(out)
    assert len({row["id"] for row in rows}) == 20
    for row in rows:
        assert int(row["title"][1:]) % 3 == 0
        assert (row["value"], row["limit"]) == (14, 40)
        assert row["text"] == f"Page {row['title'][1:]}. {PROSE}"
    assert len(list(read_documents(out))) == 60


SENTENCES = {
    "zh": "水车在河边不停地转动，磨坊的主人每天早晨都去看它。",
    "ja": "水車は川のほとりで回り続け、粉屋は毎朝それを見に行く。",
    "gan": "水車到河邊不停嗰轉動，磨坊嗰主人每日朝晨都去看佢。",
}


@pytest.mark.parametrize("language", SENTENCES)
def test_clean_wikipedia_min_words_counts_letters_in_chinese(project: Path, language: str) -> None:
    sentence = SENTENCES[language]
    articles = [sentence * (length // len(sentence) + 1) for length in (200, 1_000, 6_000)]
    pages = [page(number, text) for number, text in enumerate([*articles, sentence])]
    head = HEAD.replace("testwiki", f"{language}wiki").replace('"en"', f'"{language}"')
    out = write_dump(project, bz2.compress((head + "".join(pages) + TAIL).encode()))
    run(min_words=50)
    assert [document.text for document in read_documents(out)] == articles
    assert read_manifest(out)["dropped"] == {"too_short": 1}


def test_clean_wikipedia_control_characters_are_removed(project: Path) -> None:
    dump = dump_of(page(1, PROSE.replace("north", "no\0r\x07th").replace("sea", "s\x7fea")))
    out = write_dump(project, dump)
    run()
    assert [document.text for document in read_documents(out)] == [PROSE]


@pytest.mark.parametrize("corrupt", [None, 7, 1])
def test_clean_wikipedia_same_bytes_for_any_workers_and_ranges(
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    corrupt: int | None,
    set_range_size,
) -> None:
    pieces = [HEAD, *(page(number, f"Page {number}. {PROSE}") for number in range(40)), TAIL]
    streams = [bz2.compress(piece.encode()) for piece in pieces]
    hole = len(b"".join(streams[: corrupt or 0]))
    if corrupt:
        streams[corrupt] = streams[corrupt][:60] + b"\xff\xff" + streams[corrupt][62:]
    out = write_dump(project, b"".join(streams))
    # The stage itself tells its worker processes where the package is.
    monkeypatch.setenv("PYTHONPATH", "")
    set_range_size(1_000)
    results = []
    for workers in ("1", "2"):
        monkeypatch.setenv("PIPELINE_WORKERS", workers)
        run()
        results.append({path.name: path.read_bytes() for path in out.iterdir()})
    assert results[0] == results[1] and len(results[0]) > 3
    kept_ids = [f"testwiki:{number}" for number in range(40) if number + 1 != corrupt]
    monkeypatch.setenv("PIPELINE_WORKERS", "1")
    # Other ranges, of which one begins with the corrupt stream: other shards, the same documents and counts.
    for size in (1, 1 << 20):
        set_range_size(size)
        run()
        assert [document.id for document in read_documents(out)] == kept_ids
        manifest = read_manifest(out)
        assert manifest["dropped"] == ({"corrupt_stream": 1} if corrupt else {})
        assert [stream["byte"] for stream in manifest["corrupt_streams"]] == ([hole] if corrupt else [])
    assert not corrupt or f"the bz2 stream at byte {hole} is corrupt" in caplog.text


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the dump is empty"),
        (b"plain text, not XML", "not a MediaWiki dump"),
        (dump_of(page(1))[:-20], "cut off or corrupt"),
        ((HEAD + page(1)).encode(), "the XML stops before </mediawiki>"),
        ((HEAD + TAIL).encode(), "the dump contains no pages"),
        ((HEAD + page(1, namespace=4) + TAIL).encode(), "cleaning dropped every article of the dump"),
    ],
    ids=["empty", "text", "cut bz2", "cut XML", "no pages", "no article"],
)
def test_clean_wikipedia_invalid_dump_is_rejected_and_keeps_old_output(
    project: Path, data: bytes, message: str
) -> None:
    out = write_dump(project, data)
    with pytest.raises(PipelineError, match=message):
        run()
    assert not out.exists() or not list(out.parent.iterdir())
    write_dump(project, dump_of(page(1)))
    run()
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    write_dump(project, data)
    with pytest.raises(PipelineError, match="dump.xml.bz2"):
        run()
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    assert [path.name for path in out.parent.iterdir()] == ["clean-text"]


def test_clean_wikipedia_repeated_article_is_dropped(project: Path, set_range_size) -> None:
    out = write_dump(project, streams_of(*(page(number, f"Page {number}. {PROSE}") for number in (1, 2, 1, 3, 2))))
    # Each page is in a range of its own, then all are in one.
    for size in (1, 1 << 20):
        set_range_size(size)
        run()
        assert [document.id for document in read_documents(out)] == ["testwiki:1", "testwiki:2", "testwiki:3"]
        manifest = read_manifest(out)
        assert (manifest["documents"], manifest["dropped"]) == (3, {"repeated": 2})
        assert {row["reason"] for row in read_dropped(out)} == {"repeated"}
        assert manifest["words"] == sum(document.words for document in read_documents(out))


def test_clean_wikipedia_dump_parts_are_merged_into_one_source(project: Path) -> None:
    for part, numbers in {"2": (4, 5, 1), "10": (1, 2)}.items():
        write_dump(project, dump_of(*map(page, numbers)), part)
    stage.run("wiki", WikipediaParams(entry="x", parts=("2", "10"), language="und"))
    out = project / "data/text/wiki/clean-text"
    manifest = read_manifest(out)
    assert [document.id for document in read_documents(out)] == [f"testwiki:{number}" for number in (1, 2, 4, 5)]
    assert (manifest["pages"], manifest["dropped"], manifest["language"]) == (5, {"repeated": 1}, "und")
    assert [shard["name"].partition("-")[0] for shard in manifest["shards"]] == ["10", "2"]


def test_clean_wikipedia_parts_of_several_wikis_are_rejected(project: Path) -> None:
    """Their pages have the same numbers, and a source has one language."""
    write_dump(project, dump_of(page(1)), "a")
    write_dump(project, bz2.compress((HEAD.replace("testwiki", "otherwiki") + page(1) + TAIL).encode()), "b")
    message = r"(?s)several wikis: otherwiki, testwiki\n.*corpus\.sources\.wiki\.parts.*a source of its own"
    with pytest.raises(PipelineError, match=message):
        stage.run("wiki", WikipediaParams(entry="x", parts=("a", "b")))
    assert not (project / "data/text/wiki/clean-text").exists()


def test_clean_wikipedia_unknown_templates_are_counted_in_manifest(project: Path) -> None:
    texts = ["It is {{odd}} here.", "It is {{Odd|x}} here. {{a}} is there, and {{odd}} is too.", "{{odd}}"]
    out = write_dump(project, dump_of(*(page(n, f"{PROSE} {text}") for n, text in enumerate(texts))))
    run()
    assert read_manifest(out)["unknown_templates"] == [["odd", 4], ["a", 1]]
    assert {document.text for document in read_documents(out)} == {PROSE}


@pytest.mark.parametrize(("language", "warned"), [("ltg", True), ("lv", False), ("pt-br", False)])
def test_clean_wikipedia_language_without_template_names_logs_warning(
    project: Path, caplog: pytest.LogCaptureFixture, language: str, warned: bool
) -> None:
    dump = (HEAD.replace('"en"', f'"{language}"') + page(1, f"{PROSE} {PROSE}") + TAIL).encode()
    write_dump(project, bz2.compress(dump))
    run(min_words=1)
    assert ("has no names of the wiki's language (ltg)" in caplog.text) == warned


def test_clean_wikipedia_full_disk_raises_enospc_and_writes_nothing(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = write_dump(project, dump_of(page(1)))

    def write(path: Path, documents: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "shard")

    def write_results(group: object, path: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "results")

    # an error that is a result, and one that Beam reports
    for module, function, full in ((stage, "write_shard", write), (beam, "_write", write_results)):
        with monkeypatch.context() as patch:
            patch.setattr(module, function, full)
            with pytest.raises(OSError) as caught:
                run()
            assert caught.value.errno == errno.ENOSPC
            assert not out.exists()


def test_clean_wikipedia_output_lost_by_runner_is_rejected(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_dump(project, dump_of(page(1)))
    monkeypatch.setattr(beam.Workers, "_run", lambda *_: None)
    with pytest.raises(PipelineError, match="the Beam runner lost output"):
        run()


def test_clean_wikipedia_workers_do_not_import_beam(root: Path) -> None:
    heavy = "{'apache_beam', 'pandas', 'pymongo'} & set(sys.modules)"
    program = (
        "import sys, pipeline_src.text.beam as beam, pipeline_src.text.wikipedia.clean_wikipedia\n"
        f"print({heavy}); beam.import_beam(); print({heavy})\n"
        "import pandas"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["set()", "{'apache_beam'}"]


def test_clean_wikipedia_italian_dump_leaves_no_markup(project: Path, root: Path) -> None:
    dump = root.parent / "shared/data/wiki_xml/itwiki-small-dump.xml.gz"
    if not dump.exists():
        pytest.skip("../shared with the Italian dump is not here")
    out = write_dump(project, dump.read_bytes())
    run()
    manifest = read_manifest(out)
    assert (manifest["site"], manifest["language"], manifest["pages"]) == ("itwiki", "it", 747)
    assert manifest["dropped"]["namespace"] == 75 and manifest["dropped"]["redirect"] >= 60
    assert manifest["dropped"]["disambiguation"] >= 15
    text = "\n".join(document.text for document in read_documents(out))
    assert not any(mark in text for mark in ("{{", "}}", "[[", "]]", "{|", "|}", "==", "<ref", "File:", "Categoria:"))
    assert manifest["words"] > 400_000
