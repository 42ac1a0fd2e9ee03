"""Find words in the cleaner's output for parsoid's parser tests that the expected HTML does not have.

``python -m benchmarks.parsoid --tests FOLDER`` needs a checkout of wikimedia/mediawiki-services-parsoid, whose
``tests/parser/*.txt`` hold wikitext and its HTML; it is never committed here. Each case is put between two
sentences, so that it is prose, and every word of the output must be among the words of its HTML. ``parsoid_known.tsv``
lists the cases that may fail, with the reason.
"""

from __future__ import annotations

import argparse
import csv
import html
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.material import sample_articles
from pipeline_src.text.wikipedia.wikitext import clean

# The columns are file, case and reason.
KNOWN = Path(__file__).with_name("parsoid_known.tsv")
BEFORE, AFTER = "The old mill by the river was built of stone. ", " The miller grinds corn there every day."
# Markup whose meaning changes after a sentence.
AT_LINE_START = tuple("*#:;|{!= \n\t_")
CASE = re.compile(r"^!! ?test\n(.*?)^!! ?end$", re.DOTALL | re.MULTILINE)
SECTION = re.compile(r"^!! ?(\S+)\s*\n", re.MULTILINE)
HIDDEN = re.compile(r"<(script|style)\b.*?</\1>|<[^>]*>", re.DOTALL)
WORD = re.compile(r"\w+")
# Options of tests that do not test wikitext to HTML.
NO_PAGE = re.compile(r"language=(?!en\b)|\b(?:section|replace|preload|pst|wgRawHtml)\b")


@dataclass(frozen=True)
class Case:
    file: str
    name: str
    wikitext: str
    shown: str


def read_cases(folder: Path) -> Iterator[Case]:
    for path in sorted((folder / "tests/parser").glob("*.txt")):
        for block in CASE.findall(path.read_text(encoding="utf-8", errors="replace")):
            name, *rest = SECTION.split(block)
            sections = dict(zip(map(str.lower, rest[::2]), rest[1::2], strict=True))
            pages = [text for key, text in sections.items() if key.startswith(("html", "result"))]
            wikitext = sections.get("wikitext", sections.get("input"))
            if wikitext and pages and not NO_PAGE.search(sections.get("options", "")):
                shown = html.unescape(HIDDEN.sub(" ", "\n".join(pages)))
                yield Case(path.name, name.strip().split("\n")[0], wikitext.rstrip("\n"), shown)


def false_words(case: Case, cleaned: str) -> list[str]:
    """Return the words of a cleaned case that its HTML does not show."""
    shown = re.sub(r"\W+", "", f"{case.shown} {BEFORE} {AFTER}".lower())
    return [word for word in WORD.findall(cleaned.lower()) if word not in shown]


def framed(wikitext: str) -> str:
    # Between two sentences, wherever they do not change what the markup means.
    before = "" if wikitext.startswith(AT_LINE_START) else BEFORE
    after = "" if wikitext.rsplit("\n", 1)[-1].startswith(AT_LINE_START) else AFTER
    return before + wikitext + after


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.parsoid", description=__doc__)
    parser.add_argument("--tests", type=Path, required=True, help="checkout of wikimedia/mediawiki-services-parsoid")
    site, _ = sample_articles()
    with KNOWN.open(encoding="utf-8", newline="") as file:
        known = {(file_name, name) for file_name, name, _ in csv.reader(file, delimiter="\t")}
    cases, failed = list(read_cases(parser.parse_args().tests)), {}
    for case in cases:
        if words := false_words(case, clean(framed(case.wikitext), site)):
            failed[case.file, case.name] = words
    for (file_name, name), words in failed.items():
        if (file_name, name) not in known:
            print(f"{file_name}: {name}: {' '.join(words[:8])}")
    for file_name, name in sorted(known - failed.keys()):
        print(f"no longer fails, remove it from {KNOWN.name}: {file_name}: {name}")
    unknown = len(failed.keys() - known)
    print(f"{len(cases)} cases, {len(failed)} with false words, of which {len(failed) - unknown} are known")
    return int(bool(unknown))


if __name__ == "__main__":
    sys.exit(main())
