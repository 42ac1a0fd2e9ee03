"""Tool ``parts``: list the parts of a dump of one date in params.yaml."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import yaml
from ruamel.yaml.comments import CommentedSeq
from ruamel.yaml.scalarstring import DoubleQuotedScalarString

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import atomic_file
from pipeline_src.common.yaml_files import SOURCES
from pipeline_src.config.data import CorpusParams
from pipeline_src.config.study import check_study, load_study
from pipeline_src.download.catalogue import Source, load_source, resolve
from pipeline_src.download.fetch import published_list
from pipeline_src.tools.preset import dumped, round_trip

PARAMS = Path("params.yaml")
GROUP = re.compile(r"\(\?P<(\w+)>([^()]*)\)")  # a named group of a part's regular expression


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the tool's own arguments."""
    parser.add_argument("--date", required=True, help="of the dump, such as 20260901")
    parser.add_argument("--dump", default="enwiki", help="an entry of catalogue/sources (default: enwiki)")
    parser.add_argument("--source", help="of corpus.sources in params.yaml (default: the only Wikipedia there)")
    parser.add_argument("--print", action="store_true", help="only print the parts, and change nothing")


def main(arguments: argparse.Namespace) -> None:
    """Find the parts; print them, or write them into params.yaml."""
    parts = find_parts(arguments.dump, arguments.date)
    count = f"{len(parts)} part{'s' if len(parts) > 1 else ''} of {arguments.dump} {arguments.date}"
    if arguments.print:
        print("\n".join([*parts, count]))
        return
    write_parts(arguments.dump, arguments.date, parts, arguments.source)
    print(f"params.yaml now lists {count}, {parts[0]} to {parts[-1]}; `git diff params.yaml` shows what changed")
    print("next: `make study`, or on a cluster `snakemake --profile slurm all`, fetches and cleans them")


def find_parts(name: str, date: str) -> list[str]:
    """Return the parts of one dump in natural order (2 before 10), from the publisher's list of checksums."""
    if not re.fullmatch(r"\d{8}", date):
        raise PipelineError("not a date of a dump", date, where="--date", hint="write year, month, day: 20260901")
    source = load_source(SOURCES, name)
    address = source.files[0].checksum_file
    if source.part is None or address is None or "{date}" not in source.files[0].path:
        raise PipelineError(
            "this entry has no dates with parts to list", name, where="--dump",
            hint="name one whose files have {date} in their path and a checksum_file, such as enwiki",
        )  # fmt: skip
    address = address.format(date=date)
    try:
        listed = published_list(address, again=True)
    except PipelineError as error:
        if "HTTP 404" not in str(error.where):
            raise
        raise PipelineError(
            "no dump of that date", date, where=address,
            hint=f"choose a date that {address.rpartition('/')[0].rpartition('/')[0]}/ lists; old ones are deleted",
        ) from None  # fmt: skip
    names = {line.split()[-1].lstrip("*") for line in listed.splitlines() if line.strip()}
    template = "{part}" if "{part}" in source.files[0].path else GROUP.sub(r"{\1}", source.part)
    matches = filter(None, map(_file_names(source, date).fullmatch, names))
    parts = sorted((template.format(**match.groupdict()) for match in matches), key=_natural)
    files = {file.path for part in parts for file in resolve(name, source, date=date, part=part).files}
    if not parts or not files <= names:
        raise PipelineError(
            "the dump is not complete yet: a file is not listed" if parts else "no part is listed",
            min(files - names, default=source.files[0].path.replace("{date}", date)), where=address,
            hint="wait until the publisher has made it, or choose an earlier date",
        )  # fmt: skip
    return parts


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


def write_parts(name: str, date: str, parts: list[str], source: str | None = None, params: Path = PARAMS) -> None:
    """Write entry, date and parts into a source of a study; everything else, comments too, stays unchanged.

    Args:
        name, date, parts: what is written.
        source: name of the source; None for the study's only Wikipedia.
        params: path of the study.
    """
    corpus = load_study(params).corpus
    if source is None:
        source = _only_wikipedia(corpus)
    corpus.source(source)
    study = round_trip().load(params.read_text(encoding="utf-8"))
    block = study["corpus"]["sources"][source]
    listed, earlier = CommentedSeq(parts), block["parts"]
    if (len(earlier) - 1) in earlier.ca.items:  # comments that follow the list hang on its last line
        listed.ca.items[len(parts) - 1] = earlier.ca.items[len(earlier) - 1]
    block.update({"from": name}, date=DoubleQuotedScalarString(date), parts=listed)
    text = dumped(study)
    check_study(yaml.safe_load(text), params)
    with atomic_file(params) as file:
        file.write(text)


def _only_wikipedia(corpus: CorpusParams) -> str:
    """Return the name of the study's Wikipedia."""
    found = [name for name, source in corpus.sources.items() if source.kind == "wikipedia"]
    if len(found) != 1:
        hint = f"say --source {' or '.join(found)}" if found else "add one of kind: wikipedia, or say --source NAME"
        raise PipelineError(
            "not one Wikipedia", ", ".join(found) or "none", where="corpus.sources in params.yaml", hint=hint
        )
    return found[0]
