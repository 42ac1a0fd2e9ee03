"""Reader of tagged sentences in CoNLL and CoNLL-U format, with one word per line."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pipeline_src.base.errors import PipelineError
from pipeline_src.study.task_spec import TaskSpec
from pipeline_src.tasks.tables import FETCH_AGAIN, read_lines


@dataclass(frozen=True)
class TaggedSentence:
    """A sentence with a tag for each word.

    Attributes:
        id: index of the sentence in the file.
        document: index of the sentence's document in the file.
        tags: one tag per word; empty if the tags are to be predicted.
    """

    id: str
    document: int
    words: tuple[str, ...]
    tags: tuple[str, ...]


@dataclass(frozen=True)
class Format:
    # Separator of columns.
    separator: re.Pattern[str]
    # Matches the start of a line that begins a new document.
    document: re.Pattern[str]
    # Reason for skipping a line -> pattern that matches the start of such a line.
    skipped: dict[str, re.Pattern[str]] = field(default_factory=dict)


FORMATS = {
    "conll": Format(re.compile("[ \t]+"), re.compile("-DOCSTART-(?![^ \t])")),
    # https://universaldependencies.org/format.html. An id such as 3-4 is a multiword token, whose words follow on their
    # own lines. An id such as 8.1 is an empty node: a word that is implied but not written.
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
    spec: TaskSpec,
    path: str | Path,
    eval_set: str | None = None,
    counts: Counter[str] | None = None,
    labelled: bool = True,
) -> list[TaggedSentence]:
    """Read the sentences of a file in CoNLL or CoNLL-U format.

    If the file has no document boundaries, each sentence is its own document.

    Args:
        eval_set: the evaluation set that the file belongs to, which may have its own columns; None for the training
            file.
        counts: filled with the number of skipped lines and of corrected tags, by reason.
        labelled: whether to read tags; if False, only words are read.
    """
    path = Path(path)
    columns = (eval_set is not None and spec.eval_set(eval_set).columns) or spec.columns
    # TaskSpec's validation guarantees this.
    assert columns is not None and columns.label is not None
    word = int(columns.texts[0]) - 1
    label = int(columns.label) - 1 if labelled else word
    counts = Counter() if counts is None else counts
    widths: set[int] = set()
    examples: list[TaggedSentence] = []
    for document, lines in _sentences(path, FORMATS[spec.format], counts):
        words = []
        tags = []
        for number, fields in lines:
            where = f"{path}:{number}"
            if len(fields) <= max(word, label):
                missing = f"{len(fields)} columns, at least {max(word, label) + 1} are needed"
                raise PipelineError("too few columns", missing, where=where, hint=FETCH_AGAIN)
            if not fields[word]:
                raise PipelineError("a word is empty", repr(fields), where=where, hint=FETCH_AGAIN)
            widths.add(len(fields))
            words.append(fields[word])
            tags.append(fields[label])
        if not labelled:
            examples.append(TaggedSentence(str(len(examples)), document, tuple(words), ()))
            continue
        if any(name.startswith("B-") for name in spec.labels):
            original = tags
            tags = as_iob2(original)
            changed = sum(map(str.__ne__, original, tags))
            if changed:
                counts[IOB1] += changed
        for (number, _), tag in zip(lines, tags, strict=True):
            if tag not in spec.labels:
                hint = f"labels are {', '.join(spec.labels)}; {FETCH_AGAIN}"
                raise PipelineError("unknown label", repr(tag), where=f"{path}:{number}", hint=hint)
        examples.append(TaggedSentence(str(len(examples)), document, tuple(words), tuple(tags)))
    if len(widths) > 1 and not labelled:
        value = f"rows have {min(widths)} to {max(widths)} columns"
        raise PipelineError("not in CoNLL format", value, where=path, hint="give a file with one word per line")
    if not examples:
        raise PipelineError("no words in the file", path, where=f"task {spec.name}", hint=FETCH_AGAIN)
    if not any(example.document for example in examples):
        return [replace(example, document=index) for index, example in enumerate(examples)]
    return examples


def as_iob2(tags: Sequence[str]) -> list[str]:
    # IOB1 uses B- only between adjacent entities of the same type. IOB2 begins every entity with B-:
    # "O I-PER I-PER" -> "O B-PER I-PER".
    converted = []
    previous = "O"
    for tag in tags:
        opens = tag.startswith("I-") and previous[1:] != tag[1:]
        converted.append(f"B{tag[1:]}" if opens else tag)
        previous = tag
    return converted


def _sentences(path: Path, format: Format, counts: Counter[str]) -> Iterator[tuple[int, list[tuple[int, list[str]]]]]:
    # Yields (number of documents opened so far, [(line number, columns) of each word]) for each sentence.
    document = 0
    words: list[tuple[int, list[str]]] = []
    # Whether the current sentence has any line, even one that is skipped.
    opened = False
    number = 0
    for number, line in read_lines(path):
        is_document = format.document.match(line)
        if is_document or not line.strip(" \t"):
            if words:
                yield document, words
            elif opened and not is_document:
                counts[NO_WORDS] += 1
            words = []
            opened = False
            document += bool(is_document)
        skipped = [kind for kind, pattern in format.skipped.items() if pattern.match(line)]
        counts.update(skipped)
        if line.strip(" \t") and not is_document:
            opened = True
            if not skipped:
                words.append((number, format.separator.split(line)))
    if words:
        yield document, words
    elif opened:
        counts[NO_WORDS] += 1
    if not number:
        raise PipelineError("empty file", path, hint=FETCH_AGAIN)
