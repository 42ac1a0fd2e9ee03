"""Read a book in EPUB as plain text: the pages of its spine in order, without front and back matter.

``META-INF/container.xml`` names the package document, which lists the files (its manifest), the reading order (its
spine) and, as a guide or as landmarks of the navigation page, which of them are cover, contents, notes and the like
(https://www.w3.org/TR/epub-33/). Nothing is written to disk, no entity is resolved, and no address is opened.
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
# Fonts encrypted so may stay so: their key is in the book, and its text is not concerned.
FONT_OBFUSCATION = frozenset({"http://www.idpf.org/2008/embedding", "http://ns.adobe.com/pdf/enc#RC"})
# The text of the longest novels has a tenth of it.
MAX_BYTES = 64 << 20
# Text in HTML packs to a third or a tenth.
MAX_RATIO = 200
FREE_BYTES = 1 << 20
EPUB_TYPE = "{http://www.idpf.org/2007/ops}type"
NOT_TEXT = ("image/", "audio/", "video/", "font/")
HINT = "bring another copy or another format of the book, or take it away"


def read_epub(path: Path, dropped: Counter[str], max_bytes: int = MAX_BYTES) -> tuple[str, str]:
    """Return a book's text, with ``HEADING`` before each heading, and its encoding."""
    try:
        with zipfile.ZipFile(path) as archive:
            return _read(_Archive(archive, path, max_bytes), path, dropped)
    except PipelineError:
        raise
    # The standard library raises a dozen kinds for damaged archives.
    except Exception as error:
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise
        raise PipelineError(
            "a damaged EPUB", path, where=shown_text(error) or type(error).__name__, hint=HINT
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
            raise self.error("a file is missing in an EPUB", name)
        info = self._archive.getinfo(name)
        if info.flag_bits & 1:
            raise self.error("an encrypted EPUB", "a password")
        self._bytes_left -= info.file_size
        if self._bytes_left < 0 or info.file_size > MAX_RATIO * info.compress_size + FREE_BYTES:
            raise self.error(
                "an EPUB unpacks to too much", f"{name}, {info.compress_size:,} to {info.file_size:,} bytes"
            )
        return self._archive.read(name)

    def xml(self, name: str) -> etree._Element:
        parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False, recover=True)
        root = etree.fromstring(self.read(name), parser)
        if root is None:
            raise self.error("no XML in an EPUB", name)
        return root

    def error(self, what: str, value: object) -> PipelineError:
        return PipelineError(what, shown_text(value), where=self._path, hint=HINT)


def _read(archive: _Archive, path: Path, dropped: Counter[str]) -> tuple[str, str]:
    methods = archive.xml(ENCRYPTION).iterfind(".//{*}EncryptionMethod") if ENCRYPTION in archive.names else ()
    for method in methods:
        if method.get("Algorithm") not in FONT_OBFUSCATION:
            raise archive.error("an encrypted EPUB", method.get("Algorithm"))
    root_file = archive.xml(CONTAINER).find(".//{*}rootfile")
    if root_file is None:
        raise archive.error("an EPUB names no package document", CONTAINER)
    texts = []
    encoding = "utf-8"
    for name, matter in _pages(archive, root_file.get("full-path", "")):
        if "" in matter:
            dropped[matter[""]] += 1
            continue
        page, encoding = decode(archive.read(name), path / name, None)
        texts.append(html_text(page, path / name, dropped, matter))
    return "\n\n".join(texts), encoding


# Each page of the spine in order: its file, and what of it is front or back matter, by id.
def _pages(archive: _Archive, package_name: str) -> Iterator[tuple[str, dict[str, str]]]:
    package = archive.xml(package_name)
    items = {item.get("id"): item for item in package.iterfind("{*}manifest/{*}item")}
    spine = [item.get("idref") for item in package.iterfind("{*}spine/{*}itemref") if item.get("linear") != "no"]
    if not spine:
        raise archive.error("an EPUB without a spine", package_name)
    matter = _named_matter(archive, package, package_name)
    # A page that is listed twice is read once.
    for item_id in dict.fromkeys(spine):
        if item_id not in items:
            raise archive.error("a page of the spine is not in the manifest", item_id)
        item = items[item_id]
        if not item.get("media-type", "").startswith(NOT_TEXT):
            name, _ = _target(package_name, item.get("href", ""))
            yield name, matter[name]


# file -> id -> reason to drop that element, or with the id '' all of the file, by guide and landmarks
def _named_matter(archive: _Archive, package: etree._Element, package_name: str) -> dict[str, dict[str, str]]:
    matter: dict[str, dict[str, str]] = defaultdict(dict)
    for reference in package.iterfind("{*}guide/{*}reference"):
        _add_matter(matter, package_name, reference, reference.get("type", ""))
    # The navigation page of EPUB 3
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


# (file in the archive, id in it) of an address in the file base
def _target(base: str, address: str) -> tuple[str, str]:
    name, _, fragment = unquote(address).partition("#")
    return posixpath.normpath(posixpath.join(posixpath.dirname(base), name)), fragment
