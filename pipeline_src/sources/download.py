"""Stage ``download``: fetch the files of one source in params.yaml."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import atomic_directory
from pipeline_src.base.paths import raw_files
from pipeline_src.base.progress import log
from pipeline_src.base.yaml_files import SOURCES
from pipeline_src.sources.catalogue import Source, load_source, resolve
from pipeline_src.sources.fetch import fill_folder, obtain, published_list
from pipeline_src.study.data import ALL_PARTS, CorpusParams, SourceParams

# Matches a named group within a regular expression, such as "(?P<number>\d+)".
GROUP = re.compile(r"\(\?P<(\w+)>([^()]*)\)")


def run(corpus: CorpusParams, source: str) -> None:
    """Fetch and verify the files of a source, and write them to ``data/raw/<source>/fetched-files/``.

    ``source.json`` there lists the files. If the source has parts, each part is a subfolder with its own list.
    """
    params = corpus.source(source)
    obtained = []
    for part, entry in resolved(source, params):
        obtained.append((part, entry, obtain(params.entry, entry)))
    output = raw_files(source)
    with atomic_directory(output) as folder:
        for part, entry, files in obtained:
            fill_folder(params.entry, entry, files, folder / part)
    count = sum(len(files) for _, _, files in obtained)
    log.info("%s: %d files are in %s", params.entry, count, output)


def resolved(source: str, params: SourceParams) -> Iterator[tuple[Path, Source]]:
    entry, where = load_source(SOURCES, params.entry), f"corpus.sources.{source}"
    parts = params.parts
    if wants_all_parts(entry, parts):
        parts = tuple(find_parts(params.entry, entry, params.date, where))
    for part in parts or (None,):
        yield Path(part or "."), resolve(params.entry, entry, date=params.date, part=part, where=where)


def wants_all_parts(source: Source, parts: Sequence[str]) -> bool:
    # Some dumps have a single part that is itself called "all". For them, "all" is an ordinary name.
    return tuple(parts) == ALL_PARTS and source.part is not None and not re.fullmatch(source.part, *ALL_PARTS)


def find_parts(name: str, source: Source, date: str | None, where: str = "corpus.sources") -> list[str]:
    """List all parts of a dump in natural order (2 before 10), from the publisher's list of checksums.

    Args:
        name: name of the catalogue entry.
        source: the catalogue entry.
        date: date of the dump, such as ``20260901``.
        where: key of the source in params.yaml, for error messages.
    """
    file = source.files[0]
    if source.part is None or file.checksum_file is None or "{date}" not in file.path:
        where = f"{where}.parts in params.yaml"
        hint = "list the parts by name instead of `all`"
        raise PipelineError("catalogue entry has no list of its parts", name, where=where, hint=hint)
    if date is None:
        hint = f"set {where}.date to the date of a dump, such as 20260901"
        raise PipelineError(f"{name} needs a date", where=f"{where}.date in params.yaml", hint=hint)
    address = file.checksum_file.format(date=date)
    missing: set[str] = set()
    # First try the list that an earlier run downloaded. If it is incomplete, download it again.
    for refresh in (False, True):
        try:
            lines = published_list(address, refresh=refresh).splitlines()
        except PipelineError as error:
            if "HTTP 404" not in str(error.where):
                raise
            folder = address.rpartition("/")[0].rpartition("/")[0]
            hint = f"choose a date that is listed at {folder}/; the publisher deletes old dumps"
            raise PipelineError("no dump of that date", date, where=address, hint=hint) from None
        names = {line.split()[-1].lstrip("*") for line in lines if line.strip()}
        template = "{part}" if "{part}" in file.path else GROUP.sub(r"{\1}", source.part)
        matches = filter(None, map(_file_name_pattern(source, date).fullmatch, names))
        parts = sorted((template.format(**match.groupdict()) for match in matches), key=_natural_key)
        missing = {file.path for part in parts for file in resolve(name, source, date=date, part=part).files} - names
        if parts and not missing:
            return parts
    raise PipelineError(
        "the dump is not complete yet: a file is not listed" if parts else "the dump lists no part",
        min(missing, default=file.path.replace("{date}", date)),
        where=address,
        hint="wait until the publisher has finished the dump, or choose an earlier date",
    )


def _file_name_pattern(source: Source, date: str) -> re.Pattern[str]:
    # Turns the path of the source's first file into a pattern that matches this file of every part:
    # "a-{date}-{part}.bz2" -> "a\-20260901\-(?P<part>...)\.bz2"
    assert source.part is not None
    fields = {"part": source.part, **dict(GROUP.findall(source.part))}
    # re.split returns text, field, text, field, ..., text.
    first, *pieces = re.split(r"\{(\w+)\}", source.files[0].path)
    pattern = re.escape(first)
    for field, text in zip(pieces[0::2], pieces[1::2], strict=True):
        if field == "date":
            pattern += re.escape(date)
        else:
            inner = GROUP.sub(r"(?:\2)", fields.get(field, ""))
            pattern += f"(?P<{field}>{inner})"
        pattern += re.escape(text)
    return re.compile(pattern)


def _natural_key(part: str) -> list[int | str]:
    # "27-p1p9" -> ["", 27, "-p", 1, "p", 9, ""]
    return [int(piece) if piece.isdecimal() else piece for piece in re.split(r"(\d+)", part)]
