"""Encodings of books: detected rightly or rejected."""

from __future__ import annotations

import codecs
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline_src.base.errors import PipelineError
from pipeline_src.text.books.encodings import check_encoding, decode, decode_blocks, find_encoding
from tests.unit.text.cases import read_cases

BOOK = Path("book.txt")
ENGLISH = "The old man’s café stood by the river. “Come in,” he said — but nobody came… "
GERMAN = "Die Straße führte über die Brücke; während er ging, hörte er ein Geräusch. Müde, aber fröhlich. "
FRENCH = "Il était une fois, près de la forêt, une pauvre fille très âgée à qui l’on donnait du pain. Ça, c’était où ? "
CZECH = "Když jsem přišel večer domů, dveře byly zavřené a nikdo mi nechtěl otevřít. Čekal jsem tedy déšť a žízeň. "
POLISH = "Było to późną wiosną, gdy słońce świeciło już bardzo mocno. Żółte kwiaty rosły wszędzie. "
RUSSIAN = "В начале июля, в чрезвычайно жаркое время, под вечер, один молодой человек вышел на улицу. "


@pytest.mark.parametrize(("text", "encoding"), read_cases("books/encodings.yaml", "decode encoding is detected"))
def test_decode_encoding_is_detected(text: str, encoding: str) -> None:
    text = text * 20
    decoded, detected = decode(text.encode(encoding), BOOK, None)
    assert decoded == text
    # Another one may give the same text.
    assert text.encode(detected) == text.encode(encoding)


@pytest.mark.parametrize(("mark", "encoding"), [("utf-8-sig", "utf-8"), ("utf-16", "utf-16"), ("utf-32", "utf-32")])
def test_decode_byte_order_mark_is_used_and_removed(mark: str, encoding: str) -> None:
    assert decode(GERMAN.encode(mark), BOOK, None) == (GERMAN, encoding)
    assert decode(codecs.BOM_UTF16_BE + GERMAN.encode("utf-16-be"), BOOK, None) == (GERMAN, "utf-16")


@pytest.mark.parametrize(
    ("declared", "written"), [("utf-16", "utf-16-le"), ("UTF16", "utf-16-le"), ("utf-32", "utf-32-le")]
)
def test_decode_declared_encoding_without_byte_order_mark_is_little_endian(declared: str, written: str) -> None:
    assert decode(GERMAN.encode(written), BOOK, declared)[0] == GERMAN
    assert decode(GERMAN.encode(declared), BOOK, declared)[0] == GERMAN


@pytest.mark.parametrize("mark", ["utf-8-sig", "utf-16", "utf-32"])
@pytest.mark.parametrize("declared", ["utf-8", "utf-16", "utf-32", "utf-16-be", "cp1252"])
def test_decode_byte_order_mark_overrides_declared_encoding(declared: str, mark: str) -> None:
    assert decode(GERMAN.encode(mark), BOOK, declared)[0] == GERMAN
    # The first bytes of a file of another encoding may be damaged into a mark.
    with pytest.raises(PipelineError, match=r"cannot be decoded[\s\S]*byte order mark|binary"):
        decode("".encode(mark) + b"\xff\0\0", BOOK, declared)


def test_decode_line_ends_become_newlines() -> None:
    assert decode(b"a\r\nb\rc\n", BOOK, None) == ("a\nb\nc\n", "utf-8")


@pytest.mark.parametrize(
    ("data", "declared", "message"),
    [
        (ENGLISH.encode() * 9 + b"\xe9 gone", None, r"damaged UTF-8[\s\S]*byte 792 "),
        (ENGLISH.encode() + b"\xe2\x80", None, r"damaged UTF-8[\s\S]*byte 88 "),
        ("Да.".encode("cp1251"), None, r"cannot be detected[\s\S]*byte 0 "),
        (bytes(range(128, 256)) * 20, None, r"cannot be detected[\s\S]*byte 0 "),
        (b"Some text\0and more", None, r"binary[\s\S]*byte 9 "),
        (b"\0Some text", None, r"binary[\s\S]*byte 0 "),
        ("Some text".encode("utf-16-le"), None, r"binary[\s\S]*byte 1 [\s\S]*UTF-16LE"),
        (b"\x89PNG\r\n\x1a\n\0\0", None, r"binary[\s\S]*byte 8 "),
        (b"caf\xe9 noir", "utf-8", r"decoded as utf-8[\s\S]*byte 3 "),
        (b"a \x81", "cp1252", r"decoded as cp1252[\s\S]*byte 2 "),
    ],
    ids=[
        *("broken UTF-8", "cut UTF-8", "short cp1251", "all bytes"),
        *("NUL", "NUL first", "UTF-16 without mark", "PNG", "not declared UTF-8", "not declared cp1252"),
    ],
)
def test_decode_undecodable_bytes_are_rejected_with_offset(data: bytes, declared: str | None, message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        decode(data, BOOK, declared)


@pytest.mark.parametrize(
    ("text", "encoding"), read_cases("books/encodings.yaml", "decode text that two encodings fit is right or rejected")
)
def test_decode_ambiguous_text_is_correct_or_rejected(text: str, encoding: str) -> None:
    try:
        assert decode((text * 20).encode(encoding), BOOK, None)[0] == text * 20
    except PipelineError as error:
        assert "cannot be detected" in str(error)


def test_decode_header_with_wrong_encoding_is_ignored() -> None:
    for name in ("UTF-8", "base64", "idna", "utf-16", "nonsense"):
        text = f"Character set encoding: {name}\n\n" + GERMAN * 20
        assert decode(text.encode("cp1252"), BOOK, None) == (text, "cp1252")


@pytest.mark.parametrize("encoding", ["koi8-r", "cp1251"])
def test_decode_header_with_encoding_of_another_script_is_ignored(encoding: str) -> None:
    text = "Character set encoding: ISO-8859-1\n\n" + RUSSIAN * 20
    assert decode(text.encode(encoding), BOOK, None) == (text, encoding)


TYPED = str.maketrans("’“”—…", '\'""-.')


@pytest.mark.parametrize("text", [ENGLISH, GERMAN, FRENCH, POLISH, CZECH, RUSSIAN])
@pytest.mark.parametrize(
    "encoding", "cp1252 mac-roman cp850 cp437 cp1250 cp852 cp1251 koi8-r iso8859-5 mac-cyrillic".split()
)
def test_decode_any_encoding_is_correct_or_rejected(text: str, encoding: str) -> None:
    # Old encodings have no typographic marks.
    text = text.translate(TYPED) * 20
    try:
        data = text.encode(encoding)
    except UnicodeEncodeError:
        # The text is never written in this encoding.
        return
    try:
        assert decode(data, BOOK, None)[0] == text
    except PipelineError as error:
        assert "cannot be detected" in str(error)


def test_check_encoding_unknown_name_is_rejected() -> None:
    check_encoding(None)
    check_encoding("latin-1")
    for wrong in ("utf-9", "base64", "idna", "undefined", "punycode", "utf-8\0"):
        with pytest.raises(PipelineError, match=f"unknown text encoding: {wrong[:5]}"):
            check_encoding(wrong)
    assert decode("\ufeffcafé".encode(), BOOK, "UTF8") == ("café", "utf-8")
    assert decode("café".encode("latin-1"), BOOK, "latin-1") == ("café", "iso8859-1")


@settings(max_examples=50, deadline=None)
@given(st.text(st.characters(exclude_characters="\0\r", exclude_categories=["Cs"])), st.integers(1, 9))
def test_decode_blocks_any_block_size_gives_the_whole_text(tmp_path_factory, text: str, block: int) -> None:
    path = tmp_path_factory.mktemp("blocks") / "book.txt"
    for encoding in ("utf-8-sig", "utf-16"):
        path.write_bytes(text.encode(encoding))
        assert "".join(decode_blocks(path, encoding, None, block)) == text


def test_decode_blocks_invalid_byte_is_rejected_with_offset(tmp_path: Path) -> None:
    path = tmp_path / "list.txt"
    path.write_bytes("äöü ".encode() * 7 + b"\xff" + b" and more")
    with pytest.raises(PipelineError, match=r"byte 49 \(0xff\)"):
        list(decode_blocks(path, "utf-8", None, 10))
    path.write_bytes("äöü ".encode() * 7 + b"\0 and more")
    with pytest.raises(PipelineError, match=r"byte 49 is NUL"):
        list(decode_blocks(path, "utf-8", None, 10))
    assert find_encoding("ä".encode()[:1], path, None, complete=False) == "utf-8"
