"""The parts of a dump that ``parts: [all]`` names, from the publisher's list of checksums."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pipeline_src.common.errors import PipelineError
from pipeline_src.config.data import ALL_PARTS
from pipeline_src.download.catalogue import Source, resolve
from pipeline_src.download.fetch import published_list

GROUP = re.compile(r"\(\?P<(\w+)>([^()]*)\)")  # a named group of a part's regular expression


def wants_all_parts(source: Source, parts: Sequence[str]) -> bool:
    """Return whether ``parts`` asks for every part of a dump, and ``all`` is not the name of one of them."""
    return tuple(parts) == ALL_PARTS and source.part is not None and not re.fullmatch(source.part, *ALL_PARTS)


def find_parts(name: str, source: Source, date: str | None, where: str = "corpus.sources") -> list[str]:
    """Return all parts of a dump in natural order (2 before 10).

    ``name`` and ``source`` are an entry of the catalogue, ``where`` is the source in params.yaml.
    """
    file = source.files[0]
    if source.part is None or file.checksum_file is None or "{date}" not in file.path:
        raise PipelineError(
            "this entry has no list of its parts", name, where=f"{where}.parts in params.yaml",
            hint="name the parts",
        )  # fmt: skip
    if date is None:
        raise PipelineError(f"{name} needs a date", where=f"{where}.date in params.yaml", hint="set it, as 20260901")
    address = file.checksum_file.format(date=date)
    missing: set[str] = set()
    for again in (False, True):  # the list kept of an earlier run serves if it is complete
        try:
            listed = published_list(address, again=again)
        except PipelineError as error:
            if "HTTP 404" not in str(error.where):
                raise
            raise PipelineError(
                "no dump of that date", date, where=address,
                hint=f"choose a date that {address.rpartition('/')[0].rpartition('/')[0]}/ lists; old ones are deleted",
            ) from None  # fmt: skip
        names = {line.split()[-1].lstrip("*") for line in listed.splitlines() if line.strip()}
        template = "{part}" if "{part}" in file.path else GROUP.sub(r"{\1}", source.part)
        matches = filter(None, map(_file_names(source, date).fullmatch, names))
        parts = sorted((template.format(**match.groupdict()) for match in matches), key=_natural)
        missing = {file.path for part in parts for file in resolve(name, source, date=date, part=part).files} - names
        if parts and not missing:
            return parts
    raise PipelineError(
        "the dump is not complete yet: a file is not listed" if parts else "no part is listed",
        min(missing, default=file.path.replace("{date}", date)), where=address,
        hint="wait until the publisher has made it, or choose an earlier date",
    )  # fmt: skip


def _file_names(source: Source, date: str) -> re.Pattern[str]:
    """Return a pattern of the names of the entry's first file, with the part's groups."""
    assert source.part is not None
    fields = {"part": source.part, **dict(GROUP.findall(source.part))}
    pieces = re.split(r"\{(\w+)\}", source.files[0].path)  # text, field, text, field, …
    pattern = re.escape(pieces[0])
    for field, text in zip(pieces[1::2], pieces[2::2], strict=True):
        inner = GROUP.sub(r"(?:\2)", fields.get(field, ""))
        pattern += (re.escape(date) if field == "date" else f"(?P<{field}>{inner})") + re.escape(text)
    return re.compile(pattern)


def _natural(part: str) -> list[int | str]:
    """Return a key that sorts the numbers in a name as numbers."""
    return [int(piece) if piece.isdecimal() else piece for piece in re.split(r"(\d+)", part)]
