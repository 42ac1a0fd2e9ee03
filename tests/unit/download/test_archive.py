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

from pipeline_src.common.errors import PipelineError
from pipeline_src.download import archive
from pipeline_src.download.archive import extract, unpack
from pipeline_src.download.catalogue import Excerpt

TEXT = b"".join(b"line %d of a file\n" % n for n in range(300))
METHODS = {"stored": 0, "deflate": 8, "bz2": 12, "lzma": 14}


def zipped(method: int = 8, name: str = "a") -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as made:
        made.writestr(name, TEXT)
    return file.getvalue()


def tarred(kind: str = "", **about: object) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=f"w:{kind}") as made:
        entry = tarfile.TarInfo("a")
        entry.size = len(TEXT)
        for key, value in about.items():
            setattr(entry, key, value)
        made.addfile(entry, io.BytesIO(TEXT) if entry.isreg() else None)
    return file.getvalue()


WHOLE = [zipped(method) for method in METHODS.values()] + [tarred(kind) for kind in ("", "gz", "bz2", "xz")]


@pytest.fixture
def unpacked(tmp_path: Path):
    def run(data: bytes, member: str = "a") -> bytes:
        (tmp_path / "archive").write_bytes(data)
        (tmp_path / "to").mkdir(exist_ok=True)
        unpack(tmp_path / "archive", {"b": member}, tmp_path / "to", "the archive")
        return (tmp_path / "to/b").read_bytes()

    return run


@pytest.mark.parametrize("data", WHOLE)
def test_unpack_every_kind_of_archive_gives_the_member(unpacked, data: bytes) -> None:
    assert unpacked(data) == TEXT


@given(data=st.sampled_from(WHOLE), place=st.integers(0, 10**6), bit=st.integers(0, 7), cut=st.integers(0, 10**5))
@settings(max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_unpack_flipped_bit_or_cut_is_one_error_or_none(unpacked, data: bytes, place: int, bit: int, cut: int) -> None:
    broken = bytearray(data)
    broken[place % len(data)] ^= 1 << bit
    for each in (bytes(broken), data[: cut % len(data)]):
        try:
            assert unpacked(each) == TEXT or data == WHOLE[4]  # a plain tar has sums of its headers alone
        except PipelineError as error:
            assert str(error).replace("\n", "").isprintable()


def test_unpack_gzip_with_wrong_checksum_is_rejected(unpacked) -> None:
    data = bytearray(gzip.compress(tarred(), mtime=0))
    data[-6] ^= 1
    with pytest.raises(PipelineError, match="CRC"):
        unpacked(bytes(data))


def test_unpack_encrypted_member_is_rejected(unpacked) -> None:
    data = bytearray(zipped())
    for place in (data.index(b"PK\x03\x04") + 6, data.index(b"PK\x01\x02") + 8):
        data[place] |= 1
    with pytest.raises(PipelineError, match="encrypted"):
        unpacked(bytes(data))


def test_unpack_link_to_itself_is_rejected(unpacked) -> None:
    with pytest.raises(PipelineError):
        unpacked(tarred(type=tarfile.SYMTYPE, linkname="a"))


def test_unpack_folder_as_member_is_rejected(unpacked) -> None:
    with pytest.raises(PipelineError, match="a folder, not a file"):
        unpacked(zipped(name="a/"), "a/")


def test_unpack_bomb_is_rejected(unpacked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "FREE_BYTES", 0)
    monkeypatch.setattr(archive, "MAX_RATIO", 5)
    with pytest.raises(PipelineError, match="far larger than its archive"):
        unpacked(zipped())


TWO_BOOKS = (
    b"Contents\nCHAPTER I\n\n*** START ONE\nBy nobody\nCHAPTER I\n\nCaf\xe9.\n\nCHAPTER II\n\nEnd of CHAPTER II.\n"
    b"*** END ONE\nsmall print\n*** START TWO\nOnce.\n*** END TWO\nmore small print\n"
)


def cut(tmp_path: Path, **excerpts: dict[str, str]) -> dict[str, bytes]:
    (tmp_path / "all.txt").write_bytes(TWO_BOOKS)
    (tmp_path / "out").mkdir(exist_ok=True)
    wanted = {path.replace("_", "."): Excerpt.model_validate(said) for path, said in excerpts.items()}
    extract(tmp_path / "all.txt", wanted, tmp_path / "out", "all.txt")
    return {path.name: path.read_bytes() for path in sorted((tmp_path / "out").iterdir())}


def test_cut_out_chapters_become_files_without_the_text_around_them(tmp_path: Path) -> None:
    one = {"begins": r"^\*\*\* START ONE$", "ends": r"^\*\*\* END", "chapters": "^CHAPTER [IVX]+$"}
    two = {"begins": "^Once", "ends": r"^\*\*\* END"}
    assert cut(tmp_path, one_txt=one, two_txt=two) == {
        "one-001.txt": b"CHAPTER I\n\nCaf\xe9.\n\n",
        "one-002.txt": b"CHAPTER II\n\nEnd of CHAPTER II.\n",
        "two.txt": b"Once.\n",
    }


def test_cut_out_excerpt_may_reach_the_end_of_the_file(tmp_path: Path) -> None:
    assert cut(tmp_path, rest_txt={"begins": "^more", "ends": r"\Z"}) == {"rest.txt": b"more small print\n"}


@pytest.mark.parametrize(
    ("said", "missing"),
    [
        ({"begins": "^START THREE", "ends": "END"}, "^START THREE"),
        ({"begins": "^Once", "ends": "^Contents"}, "^Contents"),
        ({"begins": "^Once", "ends": "^more", "chapters": "^CHAPTER"}, "^CHAPTER"),
    ],
)
def test_cut_out_expression_without_a_match_is_named(tmp_path: Path, said: dict[str, str], missing: str) -> None:
    with pytest.raises(PipelineError, match="not in the file") as caught:
        cut(tmp_path, book_txt=said)
    assert missing in str(caught.value) and "all.txt" in str(caught.value)
