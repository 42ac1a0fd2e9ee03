"""Archives that are damaged, hostile or of unknown kinds: one error each."""

from __future__ import annotations

import gzip
import io
import tarfile
import zipfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline_src.base.errors import PipelineError
from pipeline_src.sources import archive
from pipeline_src.sources.archive import extract, unpack
from pipeline_src.sources.catalogue import Excerpt

TEXT = b"".join(b"line %d of a file\n" % n for n in range(300))
METHODS = {"stored": 0, "deflate": 8, "bz2": 12, "lzma": 14}


def zipped(method: int = 8, name: str = "a") -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as made:
        made.writestr(name, TEXT)
    return file.getvalue()


def tarred(kind: str = "", **attributes: object) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=f"w:{kind}") as tar:
        entry = tarfile.TarInfo("a")
        entry.size = len(TEXT)
        for key, value in attributes.items():
            setattr(entry, key, value)
        tar.addfile(entry, io.BytesIO(TEXT) if entry.isreg() else None)
    return file.getvalue()


INTACT = [zipped(method) for method in METHODS.values()] + [tarred(kind) for kind in ("", "gz", "bz2", "xz")]


@pytest.fixture
def unpacked(tmp_path: Path):
    def run(data: bytes, member: str = "a") -> bytes:
        (tmp_path / "archive").write_bytes(data)
        (tmp_path / "to").mkdir(exist_ok=True)
        unpack(tmp_path / "archive", {"b": member}, tmp_path / "to", "the archive")
        return (tmp_path / "to/b").read_bytes()

    return run


@pytest.mark.parametrize("data", INTACT)
def test_unpack_every_kind_of_archive_gives_the_member(unpacked, data: bytes) -> None:
    assert unpacked(data) == TEXT


@given(data=st.sampled_from(INTACT), index=st.integers(0, 10**6), bit=st.integers(0, 7), size=st.integers(0, 10**5))
@settings(max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_unpack_damaged_archive_is_unpacked_or_rejected(unpacked, data: bytes, index: int, bit: int, size: int) -> None:
    flipped = bytearray(data)
    flipped[index % len(data)] ^= 1 << bit
    for damaged in (bytes(flipped), data[: size % len(data)]):
        try:
            assert unpacked(damaged) == TEXT or data == INTACT[4]  # a plain tar has sums of its headers alone
        except PipelineError as error:
            assert str(error).replace("\n", "").isprintable()


def test_unpack_gzip_with_wrong_checksum_is_rejected(unpacked) -> None:
    data = bytearray(gzip.compress(tarred(), mtime=0))
    data[-6] ^= 1
    with pytest.raises(PipelineError, match="CRC"):
        unpacked(bytes(data))


def encrypted() -> bytes:
    data = bytearray(zipped())
    for index in (data.index(b"PK\x03\x04") + 6, data.index(b"PK\x01\x02") + 8):
        data[index] |= 1
    return bytes(data)


@pytest.mark.parametrize(
    ("data", "member", "message"),
    [
        (encrypted(), "a", "encrypted"),
        (tarred(type=tarfile.SYMTYPE, linkname="a"), "a", "."),
        (zipped(name="a/"), "a/", "a folder, not a file"),
    ],
    ids=["encrypted", "link to itself", "folder"],
)
def test_unpack_unreadable_member_is_rejected(unpacked, data: bytes, member: str, message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        unpacked(data, member)


def test_unpack_zip_bomb_is_rejected(unpacked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "FREE_BYTES", 0)
    monkeypatch.setattr(archive, "MAX_RATIO", 5)
    with pytest.raises(PipelineError, match="archive member is too large"):
        unpacked(zipped())


TWO_BOOKS = (
    b"Contents\nCHAPTER I\n\n*** START ONE\nBy nobody\nCHAPTER I\n\nCaf\xe9.\n\nCHAPTER II\n\nEnd of CHAPTER II.\n"
    b"*** END ONE\nsmall print\n*** START TWO\nOnce.\n*** END TWO\nmore small print\n"
)


def run_extract(tmp_path: Path, excerpts: dict[str, tuple[str, ...]]) -> dict[str, bytes]:
    (tmp_path / "all.txt").write_bytes(TWO_BOOKS)
    (tmp_path / "out").mkdir(exist_ok=True)
    fields = ("begins", "ends", "chapters")
    parsed = {path: Excerpt(**dict(zip(fields, texts, strict=False))) for path, texts in excerpts.items()}
    extract(tmp_path / "all.txt", parsed, tmp_path / "out", "all.txt")
    return {path.name: path.read_bytes() for path in sorted((tmp_path / "out").iterdir())}


def test_extract_chapters_become_files(tmp_path: Path) -> None:
    first = (r"^\*\*\* START ONE$", r"^\*\*\* END", "^CHAPTER [IVX]+$")
    excerpts = {"one.txt": first, "two.txt": ("^Once", r"^\*\*\* END"), "end.txt": ("^more", r"\Z")}
    assert run_extract(tmp_path, excerpts) == {
        "end.txt": b"more small print\n",
        "one-001.txt": b"CHAPTER I\n\nCaf\xe9.\n\n",
        "one-002.txt": b"CHAPTER II\n\nEnd of CHAPTER II.\n",
        "two.txt": b"Once.\n",
    }


@pytest.mark.parametrize(
    ("expressions", "missing"),
    [
        (("^START THREE", "END"), "^START THREE"),
        (("^Once", "^Contents"), "^Contents"),
        (("^Once", "^more", "^CHAPTER"), "^CHAPTER"),
    ],
)
def test_extract_expression_without_match_is_rejected(
    tmp_path: Path, expressions: tuple[str, ...], missing: str
) -> None:
    with pytest.raises(PipelineError, match="regular expression matches nothing") as caught:
        run_extract(tmp_path, {"book.txt": expressions})
    assert (caught.value.value, caught.value.where) == (missing, "all.txt")
