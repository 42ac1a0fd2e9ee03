"""Books in EPUB as plain text: their pages in order, and archives that are refused."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline_src.base.errors import PipelineError
from pipeline_src.text.books.epub import read_epub
from pipeline_src.text.books.plain_text import plain_paragraphs
from tests.unit.text.books.published import HEAD, epub_files, write_zip

PARAGRAPHS = [f"This is paragraph {number} of the mill, and it is long enough." for number in range(90)]
CHAPTERS = [("The Mill", PARAGRAPHS[:30]), ("The River?", PARAGRAPHS[30:60]), ("The Road.", PARAGRAPHS[60:])]
PACKAGE = "OEBPS/content.opf"


def read(path: Path) -> list[str]:
    """Return the paragraphs of a book."""
    return plain_paragraphs(read_epub(path, Counter())[0], Counter())


def test_read_epub_front_and_back_matter_is_dropped(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "book.epub", epub_files(CHAPTERS))
    dropped: Counter[str] = Counter()
    headings: list[int] = []
    text, encoding = read_epub(path, dropped)
    assert plain_paragraphs(text, dropped, headings) == PARAGRAPHS
    assert (headings, encoding) == ([0, 30, 60], "utf-8")
    assert dropped == {
        "front matter": 2,
        "imprint": 2,
        "footnote": 4,
        "table of contents": 1,
        "not text": 9,
        "heading": 3,
    }


def test_read_epub_matter_named_in_guide_or_landmarks_is_dropped(tmp_path: Path) -> None:
    files = epub_files(CHAPTERS)
    for name in ("titlepage", "colophon"):
        files[f"OEBPS/text/{name}.xhtml"] = f"{HEAD}<body><p>Xmatter stands here.</p></body></html>"
    files["OEBPS/text/chapter-3.xhtml"] += '<div id="a b">Xmatter stands here.</div>'
    guide = '<guide><reference type="title-page" href="text/titlepage.xhtml"/></guide></package>'
    nav = '<item properties="scripted nav" id="nav2" href="text/nav.xhtml"/></manifest>'
    files[PACKAGE] = files[PACKAGE].replace("</package>", guide).replace("</manifest>", nav)
    links = {"backmatter colophon": "colophon.xhtml", "index": "chapter-3.xhtml#a%20b", "bodymatter": "chapter-1.xhtml"}
    marked = "".join(f'<a epub:type="{kind}" href="{address}">x</a>' for kind, address in links.items())
    landmarks = f'<nav epub:type="landmarks">{marked}</nav>'
    files["OEBPS/text/nav.xhtml"] = files["OEBPS/text/nav.xhtml"].replace("</body>", f"{landmarks}</body>")
    assert read(write_zip(tmp_path / "book.epub", files)) == PARAGRAPHS


def test_read_epub_pages_are_in_spine_order(tmp_path: Path) -> None:
    files = epub_files(CHAPTERS)
    spine = "<spine><itemref idref='chapter-2'/><itemref idref='chapter-1'/><itemref idref='chapter-2'/>"
    other = "<itemref idref='chapter-3' linear='no'/></spine>"
    start, _, _ = files[PACKAGE].partition("<spine>")
    files[PACKAGE] = f"{start}{spine}{other}</package>"
    assert read(write_zip(tmp_path / "book.epub", files)) == [*PARAGRAPHS[30:60], *PARAGRAPHS[:30]]


def test_read_epub_encoding_of_a_page_is_used(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = dict(epub_files([("Moulin", ["Le café de la rivière était près du cœur."] * 3)]))
    page = files["OEBPS/text/chapter-1.xhtml"]
    assert isinstance(page, str)
    files["OEBPS/text/chapter-1.xhtml"] = page.replace("utf-8", "iso-8859-15").encode("iso-8859-15")
    text, _ = read_epub(write_zip(tmp_path / "book.epub", files), Counter())
    assert text.count("près du cœur.") == 3


def test_read_epub_obfuscated_fonts_are_accepted(tmp_path: Path) -> None:
    method = '<EncryptionMethod Algorithm="http://www.idpf.org/2008/embedding"/>'
    encryption = f'<encryption xmlns:enc="x"><enc:EncryptedData>{method}</enc:EncryptedData></encryption>'
    files = epub_files(CHAPTERS) | {"META-INF/encryption.xml": encryption}
    assert read(write_zip(tmp_path / "book.epub", files)) == PARAGRAPHS


def _replaced(name: str, old: str, new: str) -> dict[str, str]:
    files = epub_files(CHAPTERS)
    assert old in files[name]
    return files | {name: files[name].replace(old, new)}


def _without(name: str) -> dict[str, str]:
    files = epub_files(CHAPTERS)
    del files[name]
    return files


AES = '<encryption><EncryptionMethod Algorithm="http://www.w3.org/2001/04/xmlenc#aes256-cbc"/></encryption>'
BOMB = '<!DOCTYPE x [<!ENTITY a0 "lol">' + "".join(f'<!ENTITY a{n + 1} "{f"&a{n};" * 10}">' for n in range(12))


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (epub_files(CHAPTERS) | {"META-INF/encryption.xml": AES}, "the EPUB is encrypted"),
        (_replaced(PACKAGE, "<itemref ", "<other "), "the EPUB has no reading order"),
        (_replaced(PACKAGE, 'id="chapter-2"', 'id="other"'), "manifest lacks a page of its spine: chapter-2"),
        (_replaced("META-INF/container.xml", "<rootfile ", "<other "), "names no package document"),
        (_without("META-INF/container.xml"), "the EPUB lacks a file: META-INF/container.xml"),
        (_without(PACKAGE), "the EPUB lacks a file: OEBPS/content.opf"),
        (_without("OEBPS/text/chapter-2.xhtml"), "the EPUB lacks a file: OEBPS/text/chapter-2.xhtml"),
        (_replaced("META-INF/container.xml", "OEBPS/content.opf", "../../etc/passwd"), "the EPUB lacks a file"),
        (epub_files(CHAPTERS) | {"META-INF/container.xml": ""}, "the EPUB is damaged"),
        (
            epub_files(CHAPTERS) | {"META-INF/container.xml": "no XML"},
            "a file in the EPUB is not XML: META-INF/container.xml",
        ),
        (epub_files(CHAPTERS) | {"../evil.xhtml": "x"}, "path leads outside its folder"),
        (epub_files(CHAPTERS) | {"OEBPS/../../evil.xhtml": "x"}, "path leads outside its folder"),
        (epub_files(CHAPTERS) | {"/etc/evil": "x"}, "path leads outside its folder"),
        (epub_files(CHAPTERS) | {"..\\evil.xhtml": "x"}, "path leads outside its folder"),
        (epub_files(CHAPTERS) | {"OEBPS/text/chapter-2.xhtml": "<p>" + " " * 3_000_000}, "too large when unpacked"),
        (_replaced(PACKAGE, "<package", f"{BOMB}]><package id='&a12;'"), "EPUB"),
        (epub_files(CHAPTERS) | {"OEBPS/text/chapter-2.xhtml": f"{HEAD}<body>{'<div>' * 9_000}"}, "invalid HTML"),
    ],
)
def test_read_epub_unreadable_book_is_rejected(tmp_path: Path, files: dict[str, str], message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        read_epub(write_zip(tmp_path / "book.epub", files), Counter())


def test_read_epub_entities_are_not_resolved(tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("Xsecret")
    document_type = f'<!DOCTYPE package [<!ENTITY c "chapter-1"><!ENTITY x SYSTEM "{secret.as_uri()}">]>'
    files = _replaced(PACKAGE, "<manifest>", "<manifest>&x;")
    files[PACKAGE] = document_type + files[PACKAGE]
    page = "OEBPS/text/chapter-1.xhtml"
    files[page] = (
        files[page].replace("<html", f"{document_type}<html").replace("</section>", "<p>&x; &c;</p></section>")
    )
    text, _ = read_epub(write_zip(tmp_path / "book.epub", files), Counter())
    assert "&x; &c;" in text
    assert "Xsecret" not in text


DAMAGES = {
    "cut": lambda data: data[: len(data) // 2],
    "no zip": lambda data: b"<html>",
    "empty": lambda data: b"",
    "wrong checksum": lambda data: changed(data, 14),
    "password": lambda data: changed(data, 6),
}


def changed(data: bytes, offset: int) -> bytes:
    """Flip a bit of every file's header in an archive, and of its entry in the archive's directory."""
    out = bytearray(data)
    for mark, start in ((b"PK\3\4", offset), (b"PK\1\2", offset + 2)):
        for match in re.finditer(mark, data):
            out[match.start() + start] ^= 1
    return bytes(out)


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_read_epub_damaged_archive_is_rejected(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    path = write_zip(tmp_path / "book.epub", epub_files(CHAPTERS))
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(PipelineError, match="the EPUB is damaged|the EPUB is encrypted"):
        read_epub(path, Counter())


def test_read_epub_pages_beyond_size_limit_are_rejected(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "book.epub", epub_files(CHAPTERS))
    with pytest.raises(PipelineError, match="too large when unpacked"):
        read_epub(path, Counter(), max_bytes=8_000)
