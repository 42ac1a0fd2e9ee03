"""Tool ``dropped``: how many documents were dropped and why, with the texts of a few."""

from __future__ import annotations

import argparse
import textwrap

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import read_json
from pipeline_src.common.paths import TEXT, TOKENS
from pipeline_src.config.study import load_study
from pipeline_src.corpus.documents import corpus_folders
from pipeline_src.corpus.dropped import Record, read_dropped

EXCERPT_CHARACTERS = 300  # of a text, unless --reason is given
WIDTH = 100
INDENT = "    "
COPIES = ("duplicate", "near_duplicate")  # reasons whose value is the id of the original
CONTROLS = dict.fromkeys((*range(32), *range(127, 160)), " ")  # which a terminal would obey


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command-line arguments."""
    parser.add_argument("--reason", help="show texts of this reason alone, each with its first 2,000 characters")
    parser.add_argument("--limit", type=int, help="texts of each reason and source (default 1; with --reason all)")


def main(arguments: argparse.Namespace) -> None:
    """Print how many documents the study in params.yaml dropped, by source and reason, then texts of some."""
    folders = corpus_folders(TEXT, load_study().corpus.sources) | {"tokenize": TOKENS}
    missing = [label for label, folder in folders.items() if not (folder / "manifest.json").exists()]
    drops = {
        label: (read_json(folder / "manifest.json", {"dropped": {str: int}})["dropped"], read_dropped(folder))
        for label, folder in folders.items()
        if label not in missing
    }
    if not drops:
        raise PipelineError("nothing is cleaned yet", TEXT, hint="run `dvc repro clean` or the whole study first")
    counts = [(label, reason, f"{by_reason[reason]:,}") for label, (by_reason, _) in drops.items()
              for reason in sorted(by_reason)]  # fmt: skip
    reasons = sorted({reason for _, reason, _ in counts})
    if arguments.reason is not None and arguments.reason not in reasons:
        hint = f"give one of {', '.join(reasons)}" if reasons else "nothing was dropped at all"
        raise PipelineError("nothing was dropped for this reason", arguments.reason, hint=hint)
    widths = [max(map(len, column)) for column in zip(*counts, strict=True)]
    for label, reason, count in counts:
        print(f"{label:<{widths[0]}}  {reason:<{widths[1]}}  {count:>{widths[2]}}")
    if not counts:
        print("nothing was dropped")
    for label in missing:
        print(f"{label}: not made yet")
    limit = None if arguments.reason else 1
    if arguments.limit is not None:
        limit = max(arguments.limit, 0)
    for label, (by_reason, documents) in drops.items():
        for reason in [arguments.reason] if arguments.reason else sorted(by_reason):
            for document in [document for document in documents if document["reason"] == reason][:limit]:
                print(f"\n{_heading(label, document).translate(CONTROLS)}")
                print_text(document["text"][: None if arguments.reason else EXCERPT_CHARACTERS])


def print_text(text: str) -> None:
    """Print the paragraphs of a text, wrapped and indented."""
    for paragraph in text.split("\n"):
        print(textwrap.fill(paragraph.translate(CONTROLS), WIDTH, initial_indent=INDENT, subsequent_indent=INDENT))


def _heading(label: str, document: Record) -> str:
    reason = document["reason"]
    heading = f"{label}: {reason}{_measured(document)}: {document['id']} ({document['title']})"
    if reason in COPIES:
        heading += f" was dropped; {document['value']}, which comes before it, stayed"
    return heading


def _measured(document: Record) -> str:
    value = document.get("value")
    if value is None or document["reason"] in COPIES:
        return ""
    text = f"{value:.3g}" if isinstance(value, float) else value
    return f" = {text}, limit {document['limit']:g}" if "limit" in document else f": {text}"
