"""Files of one word a line with a blank line after each sentence: the formats of CoNLL-2003 and of CoNLL-U."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pipeline_src.common.errors import PipelineError
from pipeline_src.tasks.files.reading import FETCH_AGAIN, read_lines
from pipeline_src.tasks.files.spec import TaskSpec


@dataclass(frozen=True)
class Example:
    """One sentence: its number counted from 0, that of its document, its words and the tag of each."""

    id: str
    document: int
    words: tuple[str, ...]
    tags: tuple[str, ...]


@dataclass(frozen=True)
class Format:
    """How one kind of file is written.

    Attributes:
        separator: between two columns.
        document: what a line begins with that opens a document.
        passed_over: what lines begin with that hold no word, by what they are.
    """

    separator: re.Pattern[str]
    document: re.Pattern[str]
    passed_over: dict[str, re.Pattern[str]] = field(default_factory=dict)


FORMATS = {
    "conll": Format(re.compile("[ \t]+"), re.compile("-DOCSTART-(?![^ \t])")),
    # https://universaldependencies.org/format.html: a range such as 3-4 is a surface form of words that follow, a
    # number such as 8.1 a word that is understood and not written
    "conllu": Format(
        re.compile("\t"),
        re.compile(r"#\s*newdoc(?!\S)"),
        {
            "comment lines passed over": re.compile("#"),
            "multiword ranges passed over": re.compile(r"\d+-\d+\t"),
            "empty nodes passed over": re.compile(r"\d+\.\d+\t"),
        },
    ),
}
NO_WORDS = "sentences without words"
IOB1 = "entities that begin with I-, read as B-"


def read_sentences(
    spec: TaskSpec, path: str | Path, eval_set: str | None = None, counts: Counter[str] | None = None
) -> list[Example]:
    """Read every sentence of a file. Where it marks no documents, each sentence is a document of its own.

    Args:
        spec: its format, columns (numbers counted from 1) and labels.
        path: the file.
        eval_set: a evaluation set whose columns may differ.
        counts: takes what was passed over, by what it is.

    Raises:
        PipelineError: an empty file, a line with too few columns or without a word, an unknown tag; file and line are
            named.
    """
    path = Path(path)
    columns = (eval_set is not None and spec.eval_set(eval_set).columns) or spec.columns
    assert columns is not None and columns.label is not None  # TaskSpec has checked it
    word, label = int(columns.texts[0]) - 1, int(columns.label) - 1
    counts = Counter() if counts is None else counts
    examples: list[Example] = []
    for document, lines in _sentences(path, FORMATS[spec.format], counts):
        words, tags = [], []
        for number, fields in lines:
            where = f"{path}:{number}"
            if len(fields) <= max(word, label):
                missing = f"{len(fields)} columns, at least {max(word, label) + 1} are needed"
                raise PipelineError("a row is too short", missing, where=where, remedy=FETCH_AGAIN)
            if not fields[word]:
                raise PipelineError("a word is empty", repr(fields), where=where, remedy=FETCH_AGAIN)
            words.append(fields[word])
            tags.append(fields[label])
        if any(name.startswith("B-") for name in spec.labels):
            given, tags = tags, as_iob2(tags)
            if given != tags:
                counts[IOB1] += sum(map(str.__ne__, given, tags))
        for (number, _), tag in zip(lines, tags, strict=True):
            if tag not in spec.labels:
                remedy = f"labels are {', '.join(spec.labels)}; {FETCH_AGAIN}"
                raise PipelineError("unknown label", repr(tag), where=f"{path}:{number}", remedy=remedy)
        examples.append(Example(str(len(examples)), document, tuple(words), tuple(tags)))
    if not examples:
        raise PipelineError("no words in the file", path, where=f"task {spec.name}", remedy=FETCH_AGAIN)
    if not any(example.document for example in examples):  # not one mark
        return [replace(example, document=number) for number, example in enumerate(examples)]
    return examples


def as_iob2(tags: Sequence[str]) -> list[str]:
    """Tags of a sentence in which every entity begins with B-.

    CoNLL-2003 was published with IOB1, where B- parts neighbours of one type alone; an I- that continues nothing is
    the beginning of an entity there, and to conlleval in any file.
    """
    before = ["O", *tags][: len(tags)]
    begins = [tag.startswith("I-") and last[1:] != tag[1:] for last, tag in zip(before, tags, strict=True)]
    return [f"B{tag[1:]}" if begin else tag for begin, tag in zip(begins, tags, strict=True)]


def _sentences(path: Path, format: Format, counts: Counter[str]) -> Iterator[tuple[int, list[tuple[int, list[str]]]]]:
    """How many documents were opened before each sentence, and the line number and columns of its words."""
    document = 0
    words: list[tuple[int, list[str]]] = []
    opened = False  # whether a sentence has lines, be they words or not
    number = 0
    for number, line in read_lines(path):
        is_document = format.document.match(line)
        if is_document or not line.strip(" \t"):
            if words:
                yield document, words
            elif opened and not is_document:
                counts[NO_WORDS] += 1
            words, opened = [], False
            document += bool(is_document)
        passed = [what for what, pattern in format.passed_over.items() if pattern.match(line)]
        counts.update(passed)
        if line.strip(" \t") and not is_document:
            opened = True
            if not passed:
                words.append((number, format.separator.split(line)))
    if words:
        yield document, words
    elif opened:
        counts[NO_WORDS] += 1
    if not number:
        raise PipelineError("empty file", path, remedy=FETCH_AGAIN)
