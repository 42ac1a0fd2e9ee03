"""Read an EPUB book as plain text: its pages in reading order, without front and back matter.

``META-INF/container.xml`` names the package document. Its manifest lists the files, and its spine the reading order.
Its guide, or the landmarks of the navigation page, tell which pages are cover, contents, notes and the like
(https://www.w3.org/TR/epub-33/). Nothing is written to disk, no XML entity is resolved, and no URL is opened.
"""

from __future__ import annotations

import errno
import posixpath
import zipfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

from lxml import etree

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.names import checked_path, shown_text
from pipeline_src.text.books.encodings import decode
from pipeline_src.text.books.html import TYPES, html_text

CONTAINER = "META-INF/container.xml"
ENCRYPTION = "META-INF/encryption.xml"
# Obfuscated fonts are ignored, since the text of the book is not encrypted.
FONT_OBFUSCATION = frozenset({"http://www.idpf.org/2008/embedding", "http://ns.adobe.com/pdf/enc#RC"})
# Maximum size of the unpacked pages, about ten times the text of the longest novels.
MAX_BYTES = 64 << 20
# HTML is compressed by a factor of 3 to 10. A file that unpacks to more than MAX_RATIO times its compressed size, plus
# FREE_BYTES, is rejected as a zip bomb.
MAX_RATIO = 200
FREE_BYTES = 1 << 20
EPUB_TYPE = "{http://www.idpf.org/2007/ops}type"
NOT_TEXT = ("image/", "audio/", "video/", "font/")
HINT = "replace it by another copy or format of the book, or move it out of the folder"


def read_epub(path: Path, dropped: Counter[str], max_bytes: int = MAX_BYTES) -> tuple[str, str]:
    """Return the text of a book, with ``HEADING`` before each heading, and its encoding."""
    try:
        with zipfile.ZipFile(path) as archive:
            return _read(_Archive(archive, path, max_bytes), path, dropped)
    except PipelineError:
        raise
    # The standard library raises a dozen kinds of exceptions for damaged archives.
    except Exception as error:
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise
        raise PipelineError(
            "the EPUB is damaged", path, where=shown_text(error) or type(error).__name__, hint=HINT
        ) from None


class _Archive:
    def __init__(self, archive: zipfile.ZipFile, path: Path, max_bytes: int) -> None:
        self._archive = archive
        self._path = path
        self._bytes_left = max_bytes
        self.names = frozenset(archive.namelist())
        for name in self.names:
            checked_path(name.removesuffix("/").replace("\\", "/../"), where=path, hint=HINT)

    def read(self, name: str) -> bytes:
        if name not in self.names:
            raise self.error("the EPUB lacks a file", name)
        info = self._archive.getinfo(name)
        if info.flag_bits & 1:
            raise self.error("the EPUB is encrypted", "password needed")
        self._bytes_left -= info.file_size
        if self._bytes_left < 0 or info.file_size > MAX_RATIO * info.compress_size + FREE_BYTES:
            raise self.error(
                "the EPUB is too large when unpacked", f"{name}, {info.compress_size:,} to {info.file_size:,} bytes"
            )
        return self._archive.read(name)

    def xml(self, name: str) -> etree._Element:
        parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False, recover=True)
        root = etree.fromstring(self.read(name), parser)
        if root is None:
            raise self.error("a file in the EPUB is not XML", name)
        return root

    def error(self, what: str, value: object) -> PipelineError:
        return PipelineError(what, shown_text(value), where=self._path, hint=HINT)


def _read(archive: _Archive, path: Path, dropped: Counter[str]) -> tuple[str, str]:
    methods = archive.xml(ENCRYPTION).iterfind(".//{*}EncryptionMethod") if ENCRYPTION in archive.names else ()
    for method in methods:
        if method.get("Algorithm") not in FONT_OBFUSCATION:
            raise archive.error("the EPUB is encrypted", method.get("Algorithm"))
    root_file = archive.xml(CONTAINER).find(".//{*}rootfile")
    if root_file is None:
        raise archive.error("the EPUB names no package document", CONTAINER)
    texts = []
    encoding = "utf-8"
    for name, matter in _pages(archive, root_file.get("full-path", "")):
        if "" in matter:
            dropped[matter[""]] += 1
            continue
        page, encoding = decode(archive.read(name), path / name, None)
        texts.append(html_text(page, path / name, dropped, matter))
    return "\n\n".join(texts), encoding


def _pages(archive: _Archive, package_name: str) -> Iterator[tuple[str, dict[str, str]]]:
    # Yield the file of each page in reading order, and a dictionary of its front and back matter: element id -> reason
    # to drop.
    package = archive.xml(package_name)
    items = {item.get("id"): item for item in package.iterfind("{*}manifest/{*}item")}
    spine = [item.get("idref") for item in package.iterfind("{*}spine/{*}itemref") if item.get("linear") != "no"]
    if not spine:
        raise archive.error("the EPUB has no reading order (spine)", package_name)
    matter = _named_matter(archive, package, package_name)
    # A page that is listed twice is read once.
    for item_id in dict.fromkeys(spine):
        if item_id not in items:
            raise archive.error("the EPUB's manifest lacks a page of its spine", item_id)
        item = items[item_id]
        if not item.get("media-type", "").startswith(NOT_TEXT):
            name, _ = _target(package_name, item.get("href", ""))
            yield name, matter[name]


def _named_matter(archive: _Archive, package: etree._Element, package_name: str) -> dict[str, dict[str, str]]:
    # Read the guide and the landmarks. Return file -> element id -> reason to drop this element. The id '' stands for
    # the whole file.
    matter: dict[str, dict[str, str]] = defaultdict(dict)
    for reference in package.iterfind("{*}guide/{*}reference"):
        _add_matter(matter, package_name, reference, reference.get("type", ""))
    # The navigation page is new in EPUB 3.
    for address in package.xpath("//*[contains(concat(' ', @properties, ' '), ' nav ')]/@href"):
        page, _ = _target(package_name, address)
        links = archive.xml(page).iterfind(".//{*}nav//{*}a")
        for link in links:
            _add_matter(matter, page, link, link.get(EPUB_TYPE, ""))
    return matter


def _add_matter(matter: dict[str, dict[str, str]], page: str, link: etree._Element, types: str) -> None:
    name, fragment = _target(page, link.get("href", ""))
    for reason in filter(None, map(TYPES.get, types.split())):
        matter[name][fragment] = reason


def _target(base: str, address: str) -> tuple[str, str]:
    # Resolve a link in the file `base`. Return the linked file, and the id of the element in it (or '').
    name, _, fragment = unquote(address).partition("#")
    return posixpath.normpath(posixpath.join(posixpath.dirname(base), name)), fragment
