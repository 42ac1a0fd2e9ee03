"""Entries of a catalogue become verified folders; a wrong file never does."""

from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile
from pathlib import Path

import pytest

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import atomic_directory
from pipeline_src.sources import fetch, pypi
from pipeline_src.sources.catalogue import Excerpt, Source, SourceFile, Wheel

BYTES = b"some bytes\n" * 1000


def sha(content: bytes, algorithm: str = "sha256") -> str:
    return f"{algorithm}:{hashlib.new(algorithm, content).hexdigest()}"


def source(*files: dict) -> Source:
    """Return an entry whose addresses may be plain http on this machine, which the catalogue itself rejects."""
    defaults = {name: field.get_default() for name, field in SourceFile.model_fields.items()}
    about = {"description": "d", "licence": "l", "citation": "c"}
    constructed = tuple(SourceFile.model_construct(**defaults | file) for file in files)
    return Source.model_construct(**about, files=constructed)


def run(*files: dict, **keys: object) -> None:
    """Fetch an entry into the folder ``out``."""
    entry = source(*files).model_copy(update=keys)
    obtained = fetch.obtain("entry", entry)
    with atomic_directory("out") as partial:
        fetch.fill_folder("entry", entry, obtained, partial)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_fetch_writes_files_and_source_json_and_fetches_once(web, project: Path) -> None:
    web.files["/a"] = BYTES
    entry = {"path": "deep/a.txt", "url": web.url("/a"), "checksum": sha(BYTES, "md5"), "bytes": len(BYTES)}
    run(entry)
    run(entry)
    assert len(web.requests) == 1
    assert (project / "out/deep/a.txt").read_bytes() == BYTES
    assert json.loads((project / "out/source.json").read_text()) == {
        "name": "entry", "description": "d", "licence": "l", "citation": "c",
        "files": [{"path": "deep/a.txt", "bytes": len(BYTES), "sha256": sha(BYTES).partition(":")[2]}],
    }  # fmt: skip


def test_fetch_wrong_checksum_names_both_and_keeps_earlier_folder(web, project: Path) -> None:
    (project / "out").mkdir()
    (project / "out/old").write_text("good")
    web.files["/a"] = BYTES
    with pytest.raises(PipelineError, match="wrong checksum: a") as caught:
        run({"path": "a", "url": web.url("/a"), "checksum": sha(b"other")})
    assert sha(b"other") in str(caught.value) and sha(BYTES) in str(caught.value)
    assert names(project / "out") == ["old"]
    assert all(name.startswith(".") for name in names(project / "data/downloads"))


@pytest.mark.parametrize("suffix", ["", ".partial"])
def test_fetch_damaged_download_is_fetched_again(web, project: Path, suffix: str) -> None:
    web.files["/a"] = BYTES
    entry = {"path": "a", "url": web.url("/a"), "checksum": sha(BYTES)}
    run(entry)
    (download,) = (project / "data/downloads").glob("*-a")
    download.unlink()
    download.with_name(f"{download.name}{suffix}").write_bytes(b"x" * 50)
    run(entry)
    assert (project / "out/a").read_bytes() == BYTES


def test_fetch_without_checksum_records_first_and_rejects_changed_file(web, project: Path, caplog) -> None:
    web.files["/a"] = BYTES
    entry = {"path": "a", "url": web.url("/a")}
    run(entry)
    assert "of the first download of a is saved in sources.lock" in caplog.text
    locked = json.loads((project / "sources.lock").read_text())
    assert locked == {"entry": {"a": sha(BYTES).partition(":")[2]}}
    web.files["/a"] = b"changed by its publisher"
    for download in (project / "data/downloads").glob("*-a"):
        download.unlink()
    with pytest.raises(PipelineError, match=r"(?s)wrong checksum.*sources\.lock"):
        run(entry)
    assert json.loads((project / "sources.lock").read_text()) == locked


@pytest.mark.parametrize(("size", "message"), [(5, "more than the limit of 5"), (99_999, "99,999 bytes")])
def test_fetch_wrong_size_without_checksum_is_rejected(web, project: Path, size: int, message: str) -> None:
    web.files["/a"] = BYTES
    with pytest.raises(PipelineError, match=message):
        run({"path": "a", "url": web.url("/a"), "bytes": size})
    assert not (project / "sources.lock").exists()


def test_fetch_checksum_list_without_file_is_fetched_again(web, project: Path) -> None:
    web.files["/d/a.bz2"] = BYTES
    web.files["/d/sums.txt"] = f"{'0' * 40}  xa.bz2\n".encode()
    entry = {"path": "a.bz2", "url": web.url("/d/a.bz2"), "checksum_file": web.url("/d/sums.txt")}
    with pytest.raises(PipelineError, match="does not name the file: a.bz2"):
        run(entry)
    web.files["/d/sums.txt"] = f"{'0' * 40}  xa.bz2\n{sha(BYTES, 'sha1')[5:]}  a.bz2\n".encode()
    run(entry)
    assert (project / "out/a.bz2").read_bytes() == BYTES
    web.files.clear()
    # Without the network.
    run(entry)


def test_fetch_unpacks_members_of_an_archive(web, project: Path) -> None:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("CoLA/train.tsv", "rows")
        archive.writestr("CoLA/original/raw.tsv", "not in the entry")
    web.files["/c.zip"] = content.getvalue()
    file = {"path": "c.zip", "url": web.url("/c.zip"), "checksum": sha(content.getvalue())}
    run(file | {"unpack": {"train.tsv": "CoLA/train.tsv"}})
    assert names(project / "out") == ["source.json", "train.tsv"]
    with pytest.raises(PipelineError, match=r"(?s)no such file in the archive.*CoLA/dev.tsv"):
        run(file | {"unpack": {"dev.tsv": "CoLA/dev.tsv"}})
    assert (project / "out/train.tsv").read_text() == "rows"


def test_fetch_excerpts_replace_their_file(web, project: Path) -> None:
    web.files["/all.txt"] = b"front\nBOOK\nOnce.\nEND\n"
    excerpt = Excerpt(begins="^BOOK", ends="^END")
    run({"path": "all.txt", "url": web.url("/all.txt"), "excerpts": {"book.txt": excerpt}})
    assert names(project / "out") == ["book.txt", "source.json"]
    assert (project / "out/book.txt").read_bytes() == b"BOOK\nOnce.\n"


def test_fetch_pypi_file_uses_wheel_of_file_or_entry(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tags = {"platforms": ["any"], "python_version": "3.11", "implementation": "py", "abi": "none"}
    of_entry, of_file = (Wheel.model_validate({"checksum": sha(name), **tags}) for name in (b"entry", b"file"))
    monkeypatch.setattr(pypi, "extract", lambda url, wheel, target: target.write_text(wheel.checksum))
    files = [{"path": "a", "url": "pypi:a==1/a"}, {"path": "b", "url": "pypi:b==1/b", "wheel": of_file}]
    run(*files, wheel=of_entry)
    assert (project / "out/a").read_text() == of_entry.checksum
    assert (project / "out/b").read_text() == of_file.checksum


def test_fetch_local_file_is_copied(project: Path) -> None:
    (project / "own").mkdir()
    (project / "own/c.md").write_text("c.md")
    run({"path": "dump.xml", "url": "file:own/c.md", "checksum": sha(b"c.md")})
    assert (project / "out/dump.xml").read_text() == "c.md"
    (project / "out/dump.xml").write_text("edited")
    # The user's own file is never hard-linked.
    assert (project / "own/c.md").read_text() == "c.md"
    assert not (project / "sources.lock").exists()


@pytest.mark.parametrize(
    ("pattern", "expected"), [("*.txt", ["a.txt"]), ("**/*", ["a.txt", "c.md", "shelf/a.txt", "shelf/deep/b.md"])]
)
def test_fetch_local_pattern_keeps_folders(project: Path, pattern: str, expected: list[str]) -> None:
    for name in ("a.txt", "c.md", "shelf/a.txt", "shelf/deep/b.md"):
        (project / "own" / name).parent.mkdir(parents=True, exist_ok=True)
        (project / "own" / name).write_text(name)
    run({"path": ".", "url": f"file:own/{pattern}"})
    paths = sorted(path.relative_to(project / "out").as_posix() for path in (project / "out").rglob("*.*"))
    assert paths == [*expected, "source.json"]


def write_own(*names: str) -> None:
    for name in names:
        Path("own", name).parent.mkdir(parents=True, exist_ok=True)
        Path("own", name).write_bytes(os.fsencode(name))


def test_fetch_two_files_with_one_path_are_rejected_before_any_download(web, project: Path) -> None:
    write_own("one/a.txt", "two/a.txt", "two/b.txt")
    web.files["/a"] = BYTES
    one, two = ({"path": ".", "url": f"file:own/{folder}/*.txt"} for folder in ("one", "two"))
    page = {"path": "a.txt", "url": web.url("/a")}
    for files, addresses in (
        ([one, two], "own/one/a.txt and own/two/a.txt"),
        ([page, one], f"own/one/a.txt and {web.url('/a')}"),
        ([one, {"path": "c", "url": web.url("/a"), "unpack": {"a.txt": "x"}}], "own/one/a.txt and http"),
    ):
        with pytest.raises(PipelineError, match="two files of a catalogue entry have the same path: a.txt") as caught:
            run(*files)
        assert addresses in str(caught.value.where)
    assert not web.requests
    run(one, two | {"path": "more"}, page | {"path": "b.txt"})
    assert names(project / "out") == ["a.txt", "b.txt", "more", "source.json"]
    assert names(project / "out/more") == ["a.txt", "b.txt"]


def test_fetch_local_file_whose_name_is_not_utf8_is_rejected(project: Path) -> None:
    write_own("a.txt", os.fsdecode(b"shelf/caf\xe9.txt"))
    with pytest.raises(PipelineError, match=r"a file's name is not UTF-8: b'own/shelf/caf\\xe9.txt'\n.*\n.*rename"):
        run({"path": ".", "url": "file:own/**/*"})
    assert not (project / "out").exists()


@pytest.mark.parametrize("name", ["book [1].txt", "who?.txt", "a*b.txt"])
def test_fetch_local_file_with_the_characters_of_wildcards_is_copied(project: Path, name: str) -> None:
    write_own(name)
    run({"path": "a.txt", "url": f"file:own/{name}", "checksum": sha(name.encode())})
    assert (project / "out/a.txt").read_text() == name


def test_fetch_local_file_missing_or_wrong_is_not_deleted(project: Path) -> None:
    with pytest.raises(PipelineError, match="your own file is not there: own/a"):
        run({"path": "a", "url": "file:own/a"})
    (project / "own").mkdir()
    (project / "own/a").write_text("mine")
    with pytest.raises(PipelineError, match="wrong checksum"):
        run({"path": "a", "url": "file:own/a", "checksum": sha(b"other")})
    assert (project / "own/a").read_text() == "mine"


def test_describe_removes_password_from_url(tmp_path: Path) -> None:
    fetch.describe("a", {"licence": "see https://me:word@host/a?token=hf_abc"}, tmp_path)
    assert json.loads((tmp_path / "source.json").read_text())["licence"] == "see https://…@host/a?token=…"
