"""Books as they are published: chapters rendered as an EPUB with its front and back matter, and as one page of HTML."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

HEAD = (
    '<?xml version="1.0" encoding="utf-8"?>\n<html xmlns="http://www.w3.org/1999/xhtml" '
    'xmlns:epub="http://www.idpf.org/2007/ops"><head><title>Mill</title><link href="a.css"/></head>'
)
CONTAINER = (
    '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
    '<rootfile full-path="OEBPS/content.opf" media-type="application/oebps-package+xml"/></rootfiles></container>'
)
# Words of front and back matter, none of which is in a book of the tests.
MATTER = {
    "titlepage": '<section epub:type="titlepage"><h1>Xtitle</h1><p>By Xauthor.</p></section>',
    "imprint": '<section epub:type="imprint"><h2>Imprint</h2><p>Ximprint made this for Xeditions.</p></section>',
    "dedication": '<section epub:type="dedication"><p>To Xdear.</p></section>',
    "endnotes": '<section epub:type="endnotes"><h2>Endnotes</h2><ol><li epub:type="endnote" id="n1"><p>Xnote is long. '
    '<a epub:type="backlink" href="chapter-1.xhtml#r1">↩</a></p></li></ol></section>',
    "colophon": '<section epub:type="colophon"><h2>Colophon</h2><p>Xmill was published.<br/>Again.</p></section>',
}
NAVIGATION = '<nav epub:type="toc"><ol><li><a href="chapter-1.xhtml">Xchapter one</a></li></ol></nav>'

Chapter = tuple[str, Sequence[str]]


def chapter_page(title: str, paragraphs: Sequence[str]) -> str:
    """Render a chapter; its first paragraph has a note's mark."""
    marked = [f"<p>{escape(paragraph, quote=False)}</p>" for paragraph in paragraphs]
    mark = '<a href="endnotes.xhtml#n1" id="r1" epub:type="noteref">1</a>'
    marked[0] = marked[0].replace("</p>", f"{mark}</p>")
    body = "\n".join(marked)
    return f'<section epub:type="chapter"><hgroup><h2>I</h2><p epub:type="title">{title}</p></hgroup>\n{body}</section>'


def epub_files(chapters: Sequence[Chapter]) -> dict[str, str]:
    """Return the files of a book: name -> content."""
    pages = {name: MATTER[name] for name in ("titlepage", "imprint", "dedication")}
    for number, (title, paragraphs) in enumerate(chapters, start=1):
        pages[f"chapter-{number}"] = chapter_page(title, paragraphs)
    pages |= {name: MATTER[name] for name in ("endnotes", "colophon")}
    pages["nav"] = NAVIGATION
    items = "".join(
        f'<item id="{name}" href="text/{name}.xhtml" media-type="application/xhtml+xml"/>' for name in pages
    )
    spine = "".join(f'<itemref idref="{name}"/>' for name in pages)
    package = (
        f'<package xmlns="http://www.idpf.org/2007/opf"><manifest>{items}</manifest><spine>{spine}</spine></package>'
    )
    files = {"mimetype": "application/epub+zip", "META-INF/container.xml": CONTAINER, "OEBPS/content.opf": package}
    for name, body in pages.items():
        files[f"OEBPS/text/{name}.xhtml"] = f"{HEAD}<body>{body}</body></html>"
    return files


def write_zip(path: Path, files: Mapping[str, str | bytes]) -> Path:
    """Write an archive of files, compressed."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def html_page(chapters: Sequence[Chapter]) -> str:
    """Return a book as one page, as Project Gutenberg has them."""
    parts = ['<p class="toc"><a href="#c1">Xchapter one</a></p>', '<div class="titlepage"><h1>Xtitle</h1></div>']
    for title, paragraphs in chapters:
        body = "\n".join(f"<p>\n{escape(paragraph, quote=False)}\n</p>" for paragraph in paragraphs)
        parts.append(f'<h2><a id="c1"></a>CHAPTER I.<br/>{title}</h2>\n<span class="pagenum">[Pg 7]</span>{body}')
    body = "\n".join(parts)
    return f'<!DOCTYPE html>\n<html lang="en"><head><style>p {{ margin: 0 }}</style></head><body>{body}</body></html>'
