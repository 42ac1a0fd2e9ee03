"""The Beam stage: drops counted, errors clear, output the same however it is run."""

from __future__ import annotations

import bz2
import errno
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import distributed
import pytest

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import write_json
from pipeline_src.config.data import WikipediaParams
from pipeline_src.corpus.documents import read_documents, read_manifest
from pipeline_src.corpus.dropped import read_dropped
from pipeline_src.corpus.wikipedia import clean_wikipedia as stage

ITALIAN = Path(__file__).resolve().parents[5] / "shared" / "data" / "wiki_xml" / "itwiki-small-dump.xml.gz"
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
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty project root, made the working directory; one worker, since another takes seconds to start."""
    monkeypatch.setenv("PIPELINE_WORKERS", "1")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def put(root: Path, data: bytes, part: str = "a") -> Path:
    """Lay a dump where the stage looks for a part of the source ``wiki``."""
    folder = root / "data/raw/wiki/fetched-files" / part
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "dump.xml.bz2").write_bytes(data)
    return root / "data/text/wiki/clean-text"


def run(**params) -> None:
    """Run the stage on part ``a``."""
    stage.run("wiki", WikipediaParams(entry="x", parts=("a",), **params))


def test_drops_are_counted_by_reason(root: Path) -> None:
    out = put(root, bz2.compress((HEAD + "".join(PAGES) + TAIL).encode()))
    about = {"name": "w", "description": "A wiki", "licence": "CC BY-SA", "citation": "its authors"}
    write_json(root / "data/raw/wiki/fetched-files/a/source.json", {**about, "files": []})
    run(min_words=20)
    manifest = read_manifest(out)
    about["title"] = about.pop("description")
    assert manifest["sources"] == [{**about, "language": "en"}]
    assert manifest["pages"] == 7
    assert manifest["dropped"] == {"disambiguation": 1, "empty": 1, "namespace": 1, "redirect": 2, "too_short": 1}
    (document,) = read_documents(out)
    assert (document.id, document.title, document.revision) == ("testwiki:7", "P7", 9)
    assert document.text == f"{PROSE} {PROSE}"
    assert sorted(path.name for path in out.iterdir()) == [
        "a-pages-00000000000000.jsonl",
        "dropped.jsonl",
        "manifest.json",
    ]
    rows = [tuple(row.get(key) for key in ("reason", "id", "value", "limit", "text")) for row in read_dropped(out)]
    assert sorted(rows, key=lambda row: (row[0], row[1])) == [
        ("disambiguation", "testwiki:5", None, None, "P5 may be: {{disambiguation}}"),
        ("empty", "testwiki:6", None, None, "* only a list"),
        ("namespace", "testwiki:4", None, None, PROSE),
        ("redirect", "testwiki:2", None, None, PROSE),
        ("redirect", "testwiki:3", None, None, "#RINVIA [[P1]]"),
        ("too_short", "testwiki:1", 12, 20, PROSE),
    ]


def test_filters_drop_articles_and_keep_the_same_few_to_be_read(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = " ".join(f"{PROSE} It was {number} miles long to the end, and wide." for number in range(4))
    texts = [f"Page {number}. {long if number % 3 else PROSE}" for number in range(90)]
    pieces = [HEAD, *(page(number, text) for number, text in enumerate(texts)), TAIL]
    out = put(root, b"".join(bz2.compress(piece.encode()) for piece in pieces))
    split = stage.split_ranges
    results = []
    for size, workers in ((600, "1"), (600, "2"), (1 << 20, "1")):
        monkeypatch.setattr(stage, "split_ranges", lambda path, size=size: split(path, size))
        monkeypatch.setenv("PIPELINE_WORKERS", workers)
        run(filters={"gopher_quality": {"min_words": 40}})
        results.append((read_manifest(out)["dropped"], (out / "dropped.jsonl").read_bytes()))
    assert results == [results[0]] * 3
    assert results[0][0] == {"gopher_quality.min_words": 30}
    rows = read_dropped(out)
    assert len({row["id"] for row in rows}) == 20
    for row in rows:
        assert int(row["title"][1:]) % 3 == 0
        assert (row["value"], row["limit"]) == (14, 40)
        assert row["text"] == f"Page {row['title'][1:]}. {PROSE}"
    assert len(list(read_documents(out))) == 60


DASK = ("--runner=apache_beam.runners.dask.dask_runner.DaskRunner", "--dask_npartitions=3")


@pytest.fixture
def dask_cluster() -> Iterator[str]:
    """Address of a Dask scheduler with one worker, a process of its own."""
    with distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster:
        yield cluster.scheduler_address
        distributed.default_client().close()  # Beam's, which would go on asking for the cluster


@pytest.mark.parametrize("corrupt", [None, 7, 1])
def test_the_same_bytes_whatever_the_workers_the_ranges_and_the_runner(
    root: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, corrupt: int | None, request
) -> None:
    pieces = [HEAD, *(page(number, f"Page {number}. {PROSE}") for number in range(40)), TAIL]
    streams = [bz2.compress(piece.encode()) for piece in pieces]
    hole = len(b"".join(streams[: corrupt or 0]))
    if corrupt:
        streams[corrupt] = streams[corrupt][:60] + b"\xff\xff" + streams[corrupt][62:]
    out = put(root, b"".join(streams))
    split = stage.split_ranges
    assert hole in dict(split(next(root.rglob("dump.xml.bz2")), 1))  # a range begins with the corrupt stream, below
    monkeypatch.setenv("PYTHONPATH", "")  # the stage itself tells its worker processes where the package is
    results = []
    runs: list[tuple[int, str, tuple[str, ...]]] = [(1_000, "1", ()), (1_000, "2", ())]
    if corrupt == 7:
        runs.append((1_000, "1", (*DASK, f"--dask_client_address={request.getfixturevalue('dask_cluster')}")))
    for size, workers, beam_args in runs:
        monkeypatch.setattr(stage, "split_ranges", lambda path, size=size: split(path, size))
        monkeypatch.setenv("PIPELINE_WORKERS", workers)
        run(beam_args=beam_args)
        results.append({path.name: path.read_bytes() for path in out.iterdir()})
        assert len(results[-1]) > 3
    assert all(result == results[0] for result in results)
    kept = [f"testwiki:{number}" for number in range(40) if number + 1 != corrupt]
    assert [document.id for document in read_documents(out)] == kept
    for size in (1, 1 << 20):  # other shards, the same documents and the same counts
        monkeypatch.setattr(stage, "split_ranges", lambda path, size=size: split(path, size))
        monkeypatch.setenv("PIPELINE_WORKERS", "1")
        run()
        assert [document.id for document in read_documents(out)] == kept
        manifest = read_manifest(out)
        assert manifest["dropped"] == ({"corrupt_stream": 1} if corrupt else {})
        assert [stream["byte"] for stream in manifest["corrupt_streams"]] == ([hole] if corrupt else [])
    assert not corrupt or f"the bz2 stream at byte {hole} is corrupt" in caplog.text


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the dump is empty"),
        (b"plain text, not XML", "not a MediaWiki dump"),
        (bz2.compress((HEAD + page(1) + TAIL).encode())[:-20], "cut off or corrupt"),
        ((HEAD + page(1)).encode(), "the XML stops before </mediawiki>"),
        ((HEAD + TAIL).encode(), "the dump holds no pages"),
        ((HEAD + page(1, namespace=4) + TAIL).encode(), "no article of the dump is left"),
    ],
)
def test_bad_input_is_one_clear_error_and_keeps_earlier_output(root: Path, data: bytes, message: str) -> None:
    out = put(root, data)
    with pytest.raises(PipelineError, match=message):
        run()
    assert not out.exists() or not list(out.parent.iterdir())
    put(root, bz2.compress((HEAD + page(1) + TAIL).encode()))
    run()
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    put(root, data)
    with pytest.raises(PipelineError, match="dump.xml.bz2"):
        run()
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    assert [path.name for path in out.parent.iterdir()] == ["clean-text"]


def test_an_article_that_stands_twice_is_kept_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pieces = [HEAD, *(page(number, f"Page {number}. {PROSE}") for number in (1, 2, 1, 3, 2)), TAIL]
    out = put(root, b"".join(bz2.compress(piece.encode()) for piece in pieces))
    split = stage.split_ranges
    for size in (1, 1 << 20):  # each in a range of its own, all in one
        monkeypatch.setattr(stage, "split_ranges", lambda path, size=size: split(path, size))
        run()
        assert [document.id for document in read_documents(out)] == ["testwiki:1", "testwiki:2", "testwiki:3"]
        manifest = read_manifest(out)
        assert (manifest["documents"], manifest["dropped"]) == (3, {"repeated": 2})
        assert {row["reason"] for row in read_dropped(out)} == {"repeated"}
        assert manifest["words"] == sum(document.words for document in read_documents(out))


def test_parts_of_a_dump_are_one_source_in_the_order_of_their_names(root: Path) -> None:
    for part, numbers in {"2": (4, 5, 1), "10": (1, 2)}.items():
        put(root, bz2.compress((HEAD + "".join(map(page, numbers)) + TAIL).encode()), part)
    stage.run("wiki", WikipediaParams(entry="x", parts=("2", "10"), language="und"))
    out = root / "data/text/wiki/clean-text"
    manifest = read_manifest(out)
    assert [document.id for document in read_documents(out)] == [f"testwiki:{number}" for number in (1, 2, 4, 5)]
    assert (manifest["pages"], manifest["dropped"], manifest["language"]) == (5, {"repeated": 1}, "und")
    assert [shard["name"].partition("-")[0] for shard in manifest["shards"]] == ["10", "2"]


def test_unknown_templates_are_listed_by_the_sentences_they_cost(root: Path) -> None:
    texts = ["It is {{odd}} here.", "It is {{Odd|x}} here. {{a}} is there, and {{odd}} is too.", "{{odd}}"]
    out = put(root, bz2.compress((HEAD + "".join(page(n, f"{PROSE} {text}") for n, text in enumerate(texts))
                                  + TAIL).encode()))  # fmt: skip
    run()
    assert read_manifest(out)["unknown_templates"] == [["odd", 4], ["a", 1]]
    assert {document.text for document in read_documents(out)} == {PROSE}


def test_a_full_disk_reaches_the_caller_as_such(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = put(root, bz2.compress((HEAD + page(1) + TAIL).encode()))

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "shard")

    for function in ("write_shard", "write_json"):  # the shard, and its row
        with monkeypatch.context() as patch:
            patch.setattr(stage, function, full)
            with pytest.raises(OSError) as caught:
                run()
            assert caught.value.errno == errno.ENOSPC
            assert not out.exists()


def test_output_lost_by_a_runner_is_noticed(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(root, bz2.compress((HEAD + page(1) + TAIL).encode()))
    monkeypatch.setattr(stage, "_run_beam", lambda *_: None)
    with pytest.raises(PipelineError, match="the Beam runner lost output"):
        run()


def test_beam_options_name_the_local_runner_unless_the_user_names_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIPELINE_WORKERS", "4")
    assert stage.beam_options((), ranges=1) == ["--runner=FnApiRunner"]
    assert "--direct_num_workers=3" in stage.beam_options((), ranges=3)
    assert stage.beam_options(("--runner=FlinkRunner", "--x=1"), ranges=3) == ["--runner=FlinkRunner", "--x=1"]


def test_an_italian_dump_by_its_own_siteinfo(root: Path) -> None:
    if not ITALIAN.exists():
        pytest.skip("../shared with the Italian dump is not here")
    out = put(root, ITALIAN.read_bytes())
    run()
    manifest = read_manifest(out)
    assert (manifest["site"], manifest["language"], manifest["pages"]) == ("itwiki", "it", 747)
    assert manifest["dropped"]["namespace"] == 75 and manifest["dropped"]["redirect"] >= 60
    assert manifest["dropped"]["disambiguation"] >= 15
    text = "\n".join(document.text for document in read_documents(out))
    assert not any(mark in text for mark in ("{{", "}}", "[[", "]]", "{|", "|}", "==", "<ref", "File:", "Categoria:"))
    assert manifest["words"] > 400_000


def test_a_warning_that_nobody_can_act_on_is_not_shown():
    def shown(text: str) -> bool:
        return bool(logging.getLogger().filter(logging.LogRecord("root", logging.WARNING, "", 0, text, None, None)))

    assert not shown("apitools not found, and bigquery client libraries are not available")
    assert shown("something else not found")
