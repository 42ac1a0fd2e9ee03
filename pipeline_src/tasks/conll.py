"""Files of tagged sentences, in the formats CoNLL and CoNLL-U: one word per line."""

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
    """A sentence with a tag for each word, or without tags if they are to be predicted.

    ``id`` and ``document`` are the indices of the sentence and of its document.
    """

    id: str
    document: int
    words: tuple[str, ...]
    tags: tuple[str, ...]


@dataclass(frozen=True)
class Format:
    # What separates two columns.
    separator: re.Pattern[str]
    # Start of a line that opens a document.
    document: re.Pattern[str]
    # Kind of a line without a word -> start of such a line.
    skipped: dict[str, re.Pattern[str]] = field(default_factory=dict)


FORMATS = {
    "conll": Format(re.compile("[ \t]+"), re.compile("-DOCSTART-(?![^ \t])")),
    # https://universaldependencies.org/format.html: a range such as 3-4 is a surface form of words that follow, a
    # number such as 8.1 is a word that is implied and not written.
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
    """Read the sentences of a file in CoNLL's or CoNLL-U's format.

    If the file marks no documents, each sentence is its own document. ``eval_set`` is the evaluation set of the file,
    whose columns may differ. ``counts`` is filled with the number of skipped lines and corrected tags, by reason. If
    the file is not ``labelled``, only its words are read.
    """
    path = Path(path)
    columns = (eval_set is not None and spec.eval_set(eval_set).columns) or spec.columns
    # TaskSpec has checked it.
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
                raise PipelineError("a row is too short", missing, where=where, hint=FETCH_AGAIN)
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
        value = f"rows of {min(widths)} and of {max(widths)} columns"
        raise PipelineError("not one word a line", value, where=path, hint="give a file in CoNLL's format")
    if not examples:
        raise PipelineError("no words in the file", path, where=f"task {spec.name}", hint=FETCH_AGAIN)
    if not any(example.document for example in examples):
        return [replace(example, document=index) for index, example in enumerate(examples)]
    return examples


def as_iob2(tags: Sequence[str]) -> list[str]:
    # In IOB1, B- only separates adjacent entities of one type: "O I-PER I-PER" -> "O B-PER I-PER".
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
    # Whether the sentence has lines, with or without words.
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
