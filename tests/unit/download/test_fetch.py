"""Entries of a catalogue become verified folders; a wrong file never does."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from pathlib import Path

import pytest

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import atomic_directory
from pipeline_src.download import fetch, pypi
from pipeline_src.download.catalogue import Excerpt, Source, SourceFile, Wheel

BYTES = b"some bytes\n" * 1000


def sha(content: bytes, algorithm: str = "sha256") -> str:
    return f"{algorithm}:{hashlib.new(algorithm, content).hexdigest()}"


def source(*files: dict) -> Source:
    """An entry whose addresses may be plain http on this machine, which the catalogue itself would refuse."""
    missing = {"mirrors": (), "checksum": None, "checksum_file": None, "bytes": None,
               "unpack": None, "excerpts": None, "wheel": None}  # fmt: skip
    made = tuple(SourceFile.model_construct(**missing | file) for file in files)
    about = {"description": "d", "licence": "l", "citation": "c"}
    return Source.model_construct(**about, terms=None, part=None, part_example=None, wheel=None, files=made)


@pytest.fixture(autouse=True)
def plain_http(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(fetch.FETCHERS, "http", fetch.FETCHERS["https"])


def run(entry: Source, folder: Path = Path("out")) -> None:
    obtained = fetch.obtain("entry", entry)
    with atomic_directory(folder) as partial:
        fetch.place("entry", entry, obtained, partial)


def test_a_folder_and_its_source_json(web, project: Path) -> None:
    web.files["/a"] = BYTES
    run(source({"path": "deep/a.txt", "url": web.url("/a"), "checksum": sha(BYTES), "bytes": len(BYTES)}))
    assert (project / "out/deep/a.txt").read_bytes() == BYTES
    about = json.loads((project / "out/source.json").read_text())
    assert about == {
        "name": "entry", "description": "d", "licence": "l", "citation": "c",
        "files": [{"path": "deep/a.txt", "bytes": len(BYTES), "sha256": sha(BYTES).partition(":")[2]}],
    }  # fmt: skip


def test_a_second_run_downloads_nothing(web, project: Path) -> None:
    web.files["/a"] = BYTES
    entry = source({"path": "a", "url": web.url("/a"), "checksum": sha(BYTES, "md5")})
    run(entry)
    run(entry)
    assert len(web.asked) == 1


def test_a_wrong_checksum_names_both_sums_and_keeps_the_earlier_folder(web, project: Path) -> None:
    (project / "out").mkdir()
    (project / "out/old").write_text("good")
    web.files["/a"] = BYTES
    with pytest.raises(PipelineError, match="wrong checksum: a") as caught:
        run(source({"path": "a", "url": web.url("/a"), "checksum": sha(b"other")}))
    assert sha(b"other") in str(caught.value) and sha(BYTES) in str(caught.value) and "hint" in str(caught.value)
    assert [path.name for path in (project / "out").iterdir()] == ["old"]
    assert not [path for path in (project / "data/downloads").iterdir() if not path.name.startswith(".")]


def test_a_kept_download_that_was_damaged_is_fetched_anew(web, project: Path) -> None:
    web.files["/a"] = BYTES
    entry = source({"path": "a", "url": web.url("/a"), "checksum": sha(BYTES)})
    run(entry)
    (kept,) = (project / "data/downloads").glob("*-a")
    kept.write_bytes(b"damaged")
    run(entry)
    assert (project / "out/a").read_bytes() == BYTES


def test_a_partial_of_other_bytes_is_fetched_anew(web, project: Path) -> None:
    web.files["/a"] = BYTES
    file = {"path": "a", "url": web.url("/a"), "checksum": sha(BYTES)}
    run(source(file))
    (kept,) = (project / "data/downloads").glob("*-a")
    kept.rename(f"{kept}.partial")
    Path(f"{kept}.partial").write_bytes(b"x" * 50)
    run(source(file))
    assert (project / "out/a").read_bytes() == BYTES


def test_unknown_sum_is_recorded_with_a_warning_and_held_to(web, project: Path, caplog) -> None:
    web.files["/a"] = BYTES
    entry = source({"path": "a", "url": web.url("/a")})
    run(entry)
    assert "no checksum is published for a" in caplog.text
    locked = json.loads((project / "sources.lock").read_text())
    assert locked == {"entry": {"a": sha(BYTES).partition(":")[2]}}
    web.files["/a"] = b"changed by its publisher"
    for kept in (project / "data/downloads").glob("*-a"):
        kept.unlink()
    with pytest.raises(PipelineError, match=r"(?s)wrong checksum.*sources\.lock"):
        run(entry)
    assert json.loads((project / "sources.lock").read_text()) == locked


def test_without_a_sum_the_size_still_counts(web, project: Path) -> None:
    web.files["/a"] = BYTES
    with pytest.raises(PipelineError, match="more than the 5 it may have"):
        run(source({"path": "a", "url": web.url("/a"), "bytes": 5}))
    assert not (project / "sources.lock").exists()


def test_the_publishers_list_of_sums(web, project: Path) -> None:
    web.files["/d/a.bz2"] = BYTES
    web.files["/d/sums.txt"] = f"{'0' * 40}  xa.bz2\n".encode()
    entry = source({"path": "a.bz2", "url": web.url("/d/a.bz2"), "checksum_file": web.url("/d/sums.txt")})
    with pytest.raises(PipelineError, match="does not name the file: a.bz2"):
        run(entry)
    web.files["/d/sums.txt"] = f"{'0' * 40}  xa.bz2\n{sha(BYTES, 'sha1')[5:]}  a.bz2\n".encode()
    run(entry)  # the list kept lacks the file, so it is fetched again
    assert (project / "out/a.bz2").read_bytes() == BYTES
    web.files.clear()
    run(entry)  # and now nothing is asked of the network


def test_members_of_an_archive(web, project: Path) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("CoLA/train.tsv", "rows")
        archive.writestr("CoLA/original/raw.tsv", "not wanted")
    web.files["/c.zip"] = packed.getvalue()
    wanted = {"path": "c.zip", "url": web.url("/c.zip"), "checksum": sha(packed.getvalue())}
    run(source(wanted | {"unpack": {"train.tsv": "CoLA/train.tsv"}}))
    assert sorted(path.name for path in (project / "out").iterdir()) == ["source.json", "train.tsv"]
    with pytest.raises(PipelineError, match=r"(?s)not in the archive.*CoLA/dev.tsv"):
        run(source(wanted | {"unpack": {"dev.tsv": "CoLA/dev.tsv"}}))
    assert (project / "out/train.tsv").read_text() == "rows"


def test_excerpts_take_the_place_of_their_file(web, project: Path) -> None:
    web.files["/all.txt"] = b"front\nBOOK\nOnce.\nEND\n"
    excerpt = Excerpt(begins="^BOOK", ends="^END")
    run(source({"path": "all.txt", "url": web.url("/all.txt"), "excerpts": {"book.txt": excerpt}}))
    assert sorted(path.name for path in (project / "out").iterdir()) == ["book.txt", "source.json"]
    assert (project / "out/book.txt").read_bytes() == b"BOOK\nOnce.\n"


def test_a_file_has_its_own_wheel_or_that_of_its_entry(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tags = {"platforms": ["any"], "python_version": "3.11", "implementation": "py", "abi": "none"}
    shared, own = (Wheel.model_validate({"checksum": sha(name), **tags}) for name in (b"shared", b"own"))

    def extract(url: str, wheel: Wheel, target: Path) -> None:
        target.write_text(wheel.checksum)

    monkeypatch.setattr(pypi, "extract", extract)
    entry = source({"path": "a", "url": "pypi:a==1/a"}, {"path": "b", "url": "pypi:b==1/b", "wheel": own})
    run(entry.model_copy(update={"wheel": shared}))
    assert (project / "out/a").read_text() == shared.checksum
    assert (project / "out/b").read_text() == own.checksum


def test_what_is_not_an_archive(web, project: Path) -> None:
    web.files["/c.zip"] = BYTES
    with pytest.raises(PipelineError, match="not a complete zip or tar archive"):
        run(source({"path": "c.zip", "url": web.url("/c.zip"), "checksum": sha(BYTES), "unpack": {"a": "a"}}))
    assert not (project / "out").exists()


def test_own_files_one_and_many(project: Path) -> None:
    (project / "own").mkdir()
    for name in ("b.txt", "a.txt", "c.md"):
        (project / "own" / name).write_text(name)
    run(source({"path": ".", "url": "file:own/*.txt"}))
    assert sorted(path.name for path in (project / "out").iterdir()) == ["a.txt", "b.txt", "source.json"]
    run(source({"path": "dump.xml", "url": "file:own/c.md", "checksum": sha(b"c.md")}))
    assert (project / "out/dump.xml").read_text() == "c.md"
    (project / "out/dump.xml").write_text("edited")
    assert (project / "own/c.md").read_text() == "c.md"  # a copy: what is yours is never shared
    assert not (project / "sources.lock").exists()


def test_own_files_keep_their_folders(project: Path) -> None:
    for name in ("a.txt", "shelf/a.txt", "shelf/deep/b.md"):
        (project / "own" / name).parent.mkdir(parents=True, exist_ok=True)
        (project / "own" / name).write_text(name)
    run(source({"path": ".", "url": "file:own/**/*"}))
    found = sorted(path.relative_to(project / "out").as_posix() for path in (project / "out").rglob("*.*"))
    assert found == ["a.txt", "shelf/a.txt", "shelf/deep/b.md", "source.json"]


def test_own_file_missing_or_wrong_is_never_deleted(project: Path) -> None:
    with pytest.raises(PipelineError, match="your own file is not there: own/a"):
        run(source({"path": "a", "url": "file:own/a"}))
    (project / "own").mkdir()
    (project / "own/a").write_text("mine")
    with pytest.raises(PipelineError, match="wrong checksum"):
        run(source({"path": "a", "url": "file:own/a", "checksum": sha(b"other")}))
    assert (project / "own/a").read_text() == "mine"
