"""Print docs/data.md, the tables of the catalogue's data: ``python -m catalogue.page > docs/data.md``."""

from __future__ import annotations

import re
from collections.abc import Iterable

from pipeline_src.base.messages import amount
from pipeline_src.base.names import as_text
from pipeline_src.base.yaml_files import SOURCES, TASK_SOURCES, entry_names
from pipeline_src.sources.catalogue import PYPI, Source, SourceFile, load_source
from pipeline_src.sources.layouts import LAYOUTS
from pipeline_src.sources.sizes import fetched_bytes
from pipeline_src.study.task_spec import load_spec, task_names

INTRODUCTION = """\
# Data

Every entry of `catalogue/sources/` and `catalogue/task_sources/`: where it comes from, under which licence, and what is
done to it. `python -m catalogue.page > docs/data.md` writes this page; a test compares the two. None of these data are
part of this repository: they are fetched from their publishers. The licence is what the publisher states. What the keys
of an entry mean is in [the catalogue's page](../catalogue/README.md).

**Version**: a release, a commit, or a package, none of which changes. Where it says sha256, the publisher names no
version, and a file with another sum than the entry's is an error; "first download": the publisher gives no sum either,
and that of the first download is recorded. **Size** is that of the download; "–": not known before it.
"""
OF_SOURCES = """
## Text

What the cleaners do is in [Your own corpus](own-corpus.md); filters and near copies are chosen in `params.yaml`.
"""
OF_TASKS = """
## Tasks and evaluation texts

Files are used as published unless the last column says otherwise; it names the training file, and each evaluation set
with its metrics and file. `corpus.decontaminate: remove` leaves documents out of the training text that share 13 words
with an evaluation file.
"""
HEADER = "| name | data | source | version | licence | size | what is done to it |"
RULE = "| --- | --- | --- | --- | --- | ---: | --- |"


def table(folder: str) -> str:
    rows = [HEADER, RULE]
    for name in entry_names(folder):
        entry = load_source(folder, name)
        licence = f"{entry.licence}; {entry.terms}" if entry.terms else entry.licence
        sources = joined(publisher(file) for file in entry.files)
        versions = joined(version(file) for file in entry.files)
        size = "yours" if entry.files[0].scheme == "file" else known_size(entry)
        treatment = of_text(name, entry) if folder == SOURCES else of_task(name, entry)
        texts = (entry.description, sources, versions, licence, size, treatment)
        rows.append(f"| {' | '.join((f'`{name}`', *map(as_text, texts)))} |")
    return "\n".join(rows) + "\n"


def joined(texts: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(texts))


def publisher(file: SourceFile) -> str:
    # "https://dumps.wikimedia.org/enwiki/{date}/{path}" -> "dumps.wikimedia.org"
    if match := PYPI.fullmatch(file.url):
        return f"Python package {match['package'].partition('==')[0]}"
    if file.scheme == "hub":
        return f"Hugging Face, {file.url.removeprefix('hub:').partition('@')[0]}"
    return file.url.split("/")[2] if file.scheme == "https" else f"this checkout, {file.url.removeprefix('file:')}"


def version(file: SourceFile) -> str:
    if match := PYPI.fullmatch(file.url):
        return match["package"].partition("==")[2]
    if file.scheme == "hub":
        # The beginning of a commit's name is enough to find it.
        return f"commit {file.url.partition('@')[2][:7]}"
    if "{date}" in file.url:
        return "the dump of `date` in params.yaml"
    # ".../UD_English-EWT/r2.16/file" -> "r2.16"; a commit in an address is shortened, as above
    if match := re.search(r"/(r\d+\.\d+|[0-9a-f]{40})/", file.url):
        return match[1] if len(match[1]) < 40 else f"commit {match[1][:7]}"
    if file.scheme == "file":
        return "yours"
    return file.checksum.partition(":")[0] if file.checksum else "first download"


def known_size(entry: Source) -> str:
    known = all(file.bytes or entry.wheel_of(file) for file in entry.files)
    return amount(fetched_bytes(entry)).replace(" ", " ") + "B" if known else "–"


def of_text(name: str, entry: Source) -> str:
    excerpts = [path for file in entry.files for path in file.excerpts or ()]
    if excerpts:
        return f"{len(excerpts)} books are cut out and divided at their chapters, then cleaned as books"
    if any(".bz2" in file.path for file in entry.files):
        return "sentences of articles are kept, without markup, tables and lists"
    return "texts are taken out of the table, labels left out" if name in LAYOUTS else "cleaned as books or as text"


def of_task(name: str, entry: Source) -> str:
    unpacked = sum(len(file.unpack or ()) for file in entry.files)
    steps = [f"{unpacked} files are unpacked"] if unpacked else []
    if name in LAYOUTS:
        steps.append("the publisher's files are divided into training and development set")
    if name not in task_names():
        return "; ".join([*steps, "sentences are compared, no training"])
    spec = load_spec(name)
    scores = []
    for eval_set in spec.scores.values():
        scores.append(f"{eval_set.title} ({', '.join(eval_set.metrics)}, {eval_set.file})")
    return "; ".join([*steps, f"trained on {spec.train}; scored: {', '.join(scores)}"])


def page() -> str:
    return INTRODUCTION + OF_SOURCES + "\n" + table(SOURCES) + OF_TASKS + "\n" + table(TASK_SOURCES)


if __name__ == "__main__":
    print(page(), end="")
