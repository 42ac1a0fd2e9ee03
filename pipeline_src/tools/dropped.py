"""Tool ``dropped``: how many documents were dropped, why, and a few of them to be read."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import read_json
from pipeline_src.common.paths import TEXT, TOKENS
from pipeline_src.config.study import load_study
from pipeline_src.corpus.documents import corpus_folders
from pipeline_src.corpus.dropped import SAMPLE_SIZE, Record, read_dropped

SHORT = 300  # characters of a text, unless one reason is asked for
WIDTH = 100
INDENT = "    "


class Drops(NamedTuple):
    """The drops of one output folder.

    Attributes:
        label: name of the source, or ``tokenize``.
        counts: documents by reason.
        rows: a few documents of each.
    """

    label: str
    counts: dict[str, int]
    rows: list[Record]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the tool's own arguments."""
    parser.add_argument("--reason", help="show texts of this reason alone, each with its first 2,000 characters")
    parser.add_argument(
        "--limit",
        type=int,
        help=f"texts of each reason and source (default 1; with --reason {SAMPLE_SIZE}, which is all)",
    )


def main(arguments: argparse.Namespace) -> None:
    """Print the drops of the study in params.yaml."""
    folders = corpus_folders(TEXT, load_study().corpus.sources) | {"tokenize": TOKENS}
    missing = [label for label, folder in folders.items() if not (folder / "manifest.json").exists()]
    found = [read_drops(label, folder) for label, folder in folders.items() if label not in missing]
    if not found:
        raise PipelineError("nothing is cleaned yet", TEXT, hint="run `dvc repro clean` or the whole study first")
    reasons = sorted({reason for drops in found for reason in drops.counts})
    wanted = arguments.reason
    if wanted is not None and wanted not in reasons:
        hint = f"give one of {', '.join(reasons)}" if reasons else "nothing was dropped at all"
        raise PipelineError("nothing was dropped for this reason", wanted, hint=hint)
    print("\n".join(counts_table(found)))
    for label in missing:
        print(f"{label}: not made yet")
    limit = arguments.limit if arguments.limit is not None else 1 if wanted is None else SAMPLE_SIZE
    for drops in found:
        for reason in [wanted] if wanted else sorted(drops.counts):
            rows = [row for row in drops.rows if row["reason"] == reason]
            for row in rows[: max(limit, 0)]:
                print("\n" + described(drops.label, row, None if wanted else SHORT))


def read_drops(label: str, folder: Path) -> Drops:
    """Read the drops of an output folder."""
    counts = read_json(folder / "manifest.json", {"dropped": {str: int}})["dropped"]
    return Drops(label, counts, read_dropped(folder))


def counts_table(found: Sequence[Drops]) -> list[str]:
    """Return lines of source, reason and number of documents."""
    cells = [(drops.label, reason, f"{count:,}") for drops in found for reason, count in sorted(drops.counts.items())]
    if not cells:
        return ["nothing was dropped"]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [f"{a:<{widths[0]}}  {b:<{widths[1]}}  {c:>{widths[2]}}" for a, b, c in cells]


def described(label: str, row: Record, characters: int | None) -> str:
    """Return a document as lines: where it was dropped, why, its name and its text."""
    lines = [f"{label}: {row['reason']}{_why(row)}: {row['id']} ({row['title']})"]
    text = row["text"] if characters is None else row["text"][:characters]
    for paragraph in text.split("\n"):
        lines += textwrap.wrap(paragraph, WIDTH, initial_indent=INDENT, subsequent_indent=INDENT) or [""]
    return "\n".join(lines)


def _why(row: Record) -> str:
    value = row.get("value")
    if value is None:
        return ""
    shown = f"{value:.3g}" if isinstance(value, float) else value
    return f" = {shown}, limit {row['limit']:g}" if "limit" in row else f": {shown}"
