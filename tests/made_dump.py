"""A multistream dump of made-up articles, for text stages on several hosts, and a study's folders around it."""

from __future__ import annotations

import bz2
import random
from pathlib import Path

from pipeline_src.text.wikipedia import clean_wikipedia, dump

STREAMS, PAGES = 24, 30
HEAD = '<mediawiki xml:lang="en"><siteinfo><dbname>madewiki</dbname></siteinfo>\n'


def write_dump(folder: Path, part: str = "a", words: int = 800) -> None:
    """Write the dump where ``clean`` looks for a part of the source ``wikipedia``; words of a page are random."""
    rng = random.Random(1)
    pieces = [HEAD]
    for stream in range(STREAMS):
        pages = []
        for number in range(stream * PAGES, (stream + 1) * PAGES):
            letters = rng.randbytes(4 * words).hex()
            drawn = [letters[start : start + 8] for start in range(0, len(letters), 8)]
            sentences = [" ".join(drawn[start : start + 12]) for start in range(0, words, 12)]
            text = ". ".join(f"'''{first.capitalize()}''' [[{first}|link]]" for first in sentences)
            markup = f"{{{{Infobox|name={number}|{'x' * 8_000}}}}}\n" * 8  # takes time
            pages.append(
                f"<page><title>P{number}</title><ns>0</ns><id>{number}</id><revision><id>9</id>"
                f"<text>{markup}{text}.</text></revision></page>\n"
            )
        pieces.append("".join(pages))
    path = folder / "data/raw/wikipedia/fetched-files" / part / "dump.xml.bz2"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"".join(bz2.compress(piece.encode()) for piece in [*pieces, "</mediawiki>\n"]))


def split_streams() -> None:
    """Make each stream a range from now on, in this process: a made-up dump is smaller than a range."""
    split = dump.split_ranges
    clean_wikipedia.split_ranges = lambda path: split(path, 1)  # type: ignore[attr-defined]


def shards(folder: Path) -> dict[str, bytes]:
    """Name -> content of the files of a folder."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}
