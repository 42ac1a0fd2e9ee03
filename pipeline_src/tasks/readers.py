"""Readers of task files: tables (tabs without quoting, quoted CSV, lines of JSON), CoNLL and CoNLL-U, SQuAD's JSON."""

from __future__ import annotations

import csv
import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import read_json, schema_error
from pipeline_src.base.names import shown, shown_text
from pipeline_src.base.progress import log
from pipeline_src.study.task_spec import Column, Columns, Layout, TaskSpec

FETCH_AGAIN = "fix the file, or fetch it again"
SHORT = "rows dropped (a column is missing)"
LONG = "rows with more fields than the header (kept)"

# Line number, counted from 1, and fields.
Row = tuple[int, list[str]]

# Line number, and the required fields as far as the line has them.
Record = tuple[int, dict[Column, str]]


def read_columns(task: str, path: Path, layout: Layout, counts: Counter[str] | None = None) -> Iterator[Record]:
    """Yield (line number, column -> field) for each row of a table, with the columns that ``layout`` requires.

    Args:
        path: file of the table; its suffix, a key of ``READERS``, tells the format.
        counts: filled with the number of dropped or doubtful rows, by reason, which is logged too.
    """
    if path.suffix not in READERS:
        hint = f"tables end in {', '.join(READERS)}"
        raise PipelineError("no reader for this kind of file", path.suffix or "no suffix", where=path, hint=hint)
    required = layout.columns.required
    reasons: Counter[str] = Counter()
    count = 0
    missing: list[Column] = []
    # Columns that rows with a missing column do have.
    available: set[str] = set()
    for number, fields in READERS[path.suffix](path, required, layout.header, reasons):
        if len(fields) == len(required):
            count += 1
            yield number, fields
            continue
        missing += [column for column in required if column not in fields]
        if not layout.drop_short:
            where = f"{path}:{number}"
            raise PipelineError("a row has no value for a column", missing[0], where=where, hint=FETCH_AGAIN)
        available.update(map(str, fields))
        reasons[SHORT] += 1
    for reason, times in reasons.items():
        log.warning("%s: %d %s, %d rows read", path, times, reason, count)
    if counts is not None:
        counts.update(reasons)
    if count:
        return
    if missing and path.suffix == ".jsonl":
        # Every row lacks a column.
        names = ", ".join(map(shown_text, sorted(available))) or "none"
        where = f"{path}, of whose rows none has it; of the required columns they have {names}"
        hint = f"name one that it has, or {FETCH_AGAIN}"
        raise PipelineError("a column is missing", missing[0], where=where, hint=hint)
    problem = "no rows in the file" if path.stat().st_size else "empty file"
    raise PipelineError(problem, path, where=f"task {task}", hint=FETCH_AGAIN)


def tab_separated(path: Path) -> Iterator[Row]:
    """Yield the rows of a file that is split only at tabs and line ends: quotes are part of the text."""
    for number, line in _filled_lines(path):
        yield number, line.split("\t")


def comma_separated(path: Path) -> Iterator[Row]:
    """Yield the rows of a quoted CSV file, each with the number of the line on which it starts."""
    with _readable(path), open(path, encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, strict=True)
        start = 1
        try:
            for fields in reader:
                if fields:
                    yield start, fields
                start = reader.line_num + 1
        except csv.Error as error:
            where = f"{path}:{start}"
            too_long = "field limit" in str(error)
            problem = "a field is too long" if too_long else "a quote is not closed, or misplaced"
            raise PipelineError(problem, error, where=where, hint=FETCH_AGAIN) from None


def json_lines(path: Path, required: Sequence[Column], header: bool, counts: Counter[str]) -> Iterator[Record]:
    """Yield the ``required`` fields of a file with a JSON object per line; numbers keep their spelling."""
    for number, line in _filled_lines(path):
        where = f"{path}:{number}"
        try:
            record = json.loads(line, parse_int=str, parse_float=str, parse_constant=str)
        except RecursionError:
            raise PipelineError("a line is nested too deeply", where=where, hint=FETCH_AGAIN) from None
        except ValueError as error:
            raise PipelineError("a line is not JSON", error, where=where, hint=FETCH_AGAIN) from None
        if not isinstance(record, dict):
            raise PipelineError("a line is not a JSON object", line[:80], where=where, hint=FETCH_AGAIN)
        fields: dict[Column, str] = {column: record[column] for column in required if column in record}
        for column, value in fields.items():
            if not isinstance(value, str):
                field = f"{column} = {json.dumps(value)}"
                raise PipelineError("a value is no text", field, where=where, hint="write a text or a number")
            reject_surrogates(value, where)
        yield number, fields


def reject_surrogates(text: str, where: str) -> None:
    """Reject unpaired surrogates (``\\ud800``: valid in JSON escapes, not encodable as UTF-8)."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        value = f"{ascii(text[error.start])} in {ascii(text[:40])}"
        raise PipelineError("half a character", value, where=where, hint=FETCH_AGAIN) from None


def _table(
    rows: Callable[[Path], Iterator[Row]], path: Path, required: Sequence[Column], header: bool, counts: Counter[str]
) -> Iterator[Record]:
    table = rows(path)
    if header:
        _, names = next(table, (0, []))
        for column in required if names else ():
            if column not in names:
                where = f"{path}:1, which has {', '.join(names)}"
                raise PipelineError("a column is missing", column, where=where, hint=FETCH_AGAIN)
        indices = {column: names.index(str(column)) for column in required if names}
    else:
        indices = {column: int(column) - 1 for column in required}
    for number, fields in table:
        if header and len(fields) > len(names):
            counts[LONG] += 1
        yield number, {column: fields[index] for column, index in indices.items() if index < len(fields)}


READERS: dict[str, Callable[[Path, Sequence[Column], bool, Counter[str]], Iterator[Record]]] = {
    ".tsv": partial(_table, tab_separated),
    ".csv": partial(_table, comma_separated),
    ".jsonl": json_lines,
}


def first_row(path: Path, columns: Sequence[Column], header: bool) -> dict[Column, str]:
    """Return the ``columns`` of a table's first row as far as it has them; empty if the header lacks one."""
    try:
        _, fields = next(READERS[path.suffix](path, columns, header, Counter()), (0, {}))
    except PipelineError:
        return {}
    return fields


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (number from 1, text without the line end) for each line. A byte order mark is skipped."""
    # Some texts have a lone carriage return, which must not end a row.
    with _readable(path), open(path, encoding="utf-8-sig", newline="\n") as file:
        for number, line in enumerate(file, start=1):
            yield number, line.rstrip("\r\n")


def _filled_lines(path: Path) -> Iterator[tuple[int, str]]:
    return ((number, line) for number, line in read_lines(path) if line)


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Context that turns the errors of a missing file and of a wrong encoding into errors with a hint."""
    try:
        yield
    except FileNotFoundError:
        hint = "run the stage download_tasks, or `dvc pull`"
        raise PipelineError("task file not found", path, hint=hint) from None
    except UnicodeDecodeError:
        # This error names a position in the decoder's buffer: the line is searched in the file.
        with open(path, "rb") as file:
            for number, line in enumerate(file, start=1):
                try:
                    line.decode()
                except UnicodeDecodeError as error:
                    value = line[max(0, error.start - 10) : error.end + 10]
                    hint = "save it as UTF-8, or fetch it again"
                    raise PipelineError("not UTF-8", value, where=f"{path}:{number}", hint=hint) from None
        raise


@dataclass(frozen=True)
class TaggedSentence:
    """A sentence with a tag for each word; ``id`` and ``document`` are the sentence's and its document's index.

    A sentence whose tags are to be predicted has none.
    """

    id: str
    document: int
    words: tuple[str, ...]
    tags: tuple[str, ...]


@dataclass(frozen=True)
class Format:
    """Format of a file with one word per line and a blank line after each sentence.

    Attributes:
        separator: what separates two columns.
        document: start of a line that opens a document.
        skipped: kind of a line without a word -> start of such a line.
    """

    separator: re.Pattern[str]
    document: re.Pattern[str]
    skipped: dict[str, re.Pattern[str]] = field(default_factory=dict)


FORMATS = {
    "conll": Format(re.compile("[ \t]+"), re.compile("-DOCSTART-(?![^ \t])")),
    # https://universaldependencies.org/format.html: a range such as 3-4 is a surface form of words that follow, a
    # number such as 8.1 a word that is implied and not written
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
            if original != tags:
                counts[IOB1] += sum(map(str.__ne__, original, tags))
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
    """Convert a sentence's tags to IOB2 from IOB1, in which B- only separates adjacent entities of one type."""
    return [
        f"B{tag[1:]}" if tag.startswith("I-") and previous[1:] != tag[1:] else tag
        for previous, tag in zip(["O", *tags], tags, strict=False)
    ]


def _sentences(path: Path, format: Format, counts: Counter[str]) -> Iterator[tuple[int, list[tuple[int, list[str]]]]]:
    """Yield (number of documents opened so far, [(line number, columns) of each word]) for each sentence."""
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


@dataclass(frozen=True)
class Answer:
    """An accepted answer: its text, and the index of its first character in the context."""

    text: str
    start: int


@dataclass(frozen=True)
class Question:
    """A question about a context; an unanswerable question has no answers."""

    id: str
    question: str
    context: str
    answers: tuple[Answer, ...]


# The most characters by which an ``answer_start`` that counts from 1, or before a space was lost, is off.
NEAR = 3
LEFT_OUT = "questions left out of training (no answer is in the context near where the file says)"
MOVED = "answers moved to where their text is, near where the file says"


def is_at_start(answer: Answer, context: str) -> bool:
    """Return whether the context has the answer's text at ``answer.start``."""
    return bool(answer.text) and answer.start >= 0 and context.startswith(answer.text, answer.start)


def find_answer(answer: Answer, context: str) -> Answer | None:
    """Return the answer at its place in the context; None if that is more than ``NEAR`` characters from its start."""
    start = max(0, answer.start)
    # Java, JavaScript and C# count a character beyond U+FFFF, such as an emoji, as two units of UTF-16.
    units = context.encode("utf-16-le")[: 2 * start]
    in_characters = len(units.decode("utf-16-le", errors="ignore"))
    near = sorted(range(start - NEAR, start + NEAR + 1), key=lambda index: abs(index - start))
    for index in (start, in_characters, *near):
        moved = Answer(answer.text, index)
        if answer.text.strip() and is_at_start(moved, context):
            return moved
    return None


def learnable(spec: TaskSpec, questions: Iterable[Question], counts: Counter[str]) -> list[Question]:
    """Return the questions to train on, with the answers that are in the context, and count what differs from the file.

    A question none of whose answers is found is left out, as in run_squad.py: it would teach that there is no answer.
    """
    examples = []
    reasons: Counter[str] = Counter()
    for question in questions:
        located = [find_answer(answer, question.context) for answer in question.answers]
        answers = tuple(answer for answer in located if answer is not None)
        if question.answers and not answers:
            reasons[LEFT_OUT] += 1
            continue
        reasons[MOVED] += len(set(answers) - set(question.answers))
        examples.append(replace(question, answers=answers))
    counts += reasons
    for reason, count in (+reasons).items():
        log.warning("%s: %d %s", spec.name, count, reason)
    return examples


def read_questions(
    spec: TaskSpec,
    path: str | Path,
    test: bool = False,
    counts: Counter[str] | None = None,
    training: bool = False,
) -> list[Question]:
    """Read a file in SQuAD's layout: data > paragraphs > qas, with ``is_impossible`` if questions may have no answer.

    Of a file for evaluation no question is dropped: one that cannot be learnt from is scored like the others, and
    counted.

    Args:
        test: whether it is a test file, which has no answers.
        training: whether to keep only what can be learnt from; see ``learnable``.
        counts: filled with the number of questions without words or with an empty context, and the number of answers
            whose text is not in the context where the file says.
    """
    shape: dict[str, Any] = {"id": object, "question": str}
    if not test:
        shape["answers"] = [{"text": str, "answer_start": object}]
        if spec.unanswerable:
            shape["is_impossible"] = bool
    content = read_json(path, hint=FETCH_AGAIN)
    problem = schema_error(content, {"data": [{"paragraphs": [{"context": str, "qas": [shape]}]}]})
    if problem:
        raise PipelineError("not in SQuAD's layout", problem, where=path, hint=FETCH_AGAIN)
    questions: dict[str, Question] = {}
    for i, article in enumerate(content["data"]):
        for j, paragraph in enumerate(article["paragraphs"]):
            for k, entry in enumerate(paragraph["qas"]):
                where = f"{path}, data[{i}].paragraphs[{j}].qas[{k}]"
                question = _question(entry, paragraph["context"], test)
                answers = [answer.text for answer in question.answers]
                for text in (question.id, question.context, question.question, *answers):
                    reject_surrogates(text, where)
                problem = _problem(entry, question, spec.unanswerable, test)
                if question.id in questions:
                    problem = f"a second question has the id {question.id!r}"
                if problem:
                    raise PipelineError("not in SQuAD's layout", problem, where=where, hint=FETCH_AGAIN)
                questions[question.id] = question
    counts = Counter() if counts is None else counts
    counts += _doubtful(questions.values())
    examples = learnable(spec, questions.values(), counts) if training else list(questions.values())
    if not examples:
        problem = "no answer is where the file says" if questions else "no questions in the file"
        raise PipelineError(problem, path, where=f"task {spec.name}", hint=FETCH_AGAIN)
    return examples


def _question(entry: dict[str, Any], context: str, test: bool) -> Question:
    answers = () if test else tuple(Answer(answer["text"], answer["answer_start"]) for answer in entry["answers"])
    return Question(str(entry["id"]), entry["question"], context, answers)


def _problem(entry: dict[str, Any], question: Question, unanswerable: bool, test: bool) -> str | None:
    if type(entry["id"]) not in (str, int):
        return f"the id {shown(entry['id'])} is not a text or number"
    if any(type(answer.start) is not int for answer in question.answers):
        return f"question {question.id} has an answer_start that is not a whole number"
    if test:
        return None
    is_impossible = unanswerable and entry["is_impossible"]
    if is_impossible == bool(question.answers):
        problem = "answers, but is_impossible" if is_impossible else "no answer"
        return f"question {question.id} has {problem}"
    return None


def _doubtful(questions: Iterable[Question]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for question in questions:
        counts["questions without words"] += not question.question.strip()
        counts["questions about an empty context"] += not question.context.strip()
        counts["answers that are not in the context where the file says"] += sum(
            not is_at_start(answer, question.context) for answer in question.answers
        )
    return counts


@dataclass(frozen=True)
class Query:
    """A query and the passages that are searched.

    Attributes:
        id: the query's index.
        corpus: the distinct passages of the file, or all of the set's ``corpus``; one tuple for all queries.
        pairs: for each row of the query, the indices in ``corpus`` of its passage and of its hard negatives.
    """

    id: str
    query: str
    corpus: tuple[str, ...] = field(repr=False)
    pairs: tuple[tuple[int, ...], ...]
    group: str | None = None

    @property
    def relevant(self) -> set[int]:
        """Indices in ``corpus`` of the passages that answer the query."""
        return {pair[0] for pair in self.pairs}


def read_queries(
    spec: TaskSpec,
    path: str | Path,
    eval_set: str | None = None,
    counts: Counter[str] | None = None,
    labelled: bool = True,
) -> list[Query]:
    """Read the queries of a table of pairs, or of SQuAD's JSON, whose passages are paragraphs.

    Rows with the same query are one query with several passages. Arguments as in ``read_examples``. If the file is not
    ``labelled``, every row is read as a pair.
    """
    path = Path(path)
    declared = None if eval_set is None else spec.eval_set(eval_set)
    # The file has the texts themselves as its keys, unless they are ids of the set's own corpus and queries.
    texts: dict[str, str] | None = None
    corpus: dict[str, str] = {}
    if declared is not None and declared.corpus and declared.queries:
        folder = path.parents[len(Path(declared.file).parts) - 1]
        corpus = _texts_by_id(spec.name, folder / declared.corpus)
        texts = _texts_by_id(spec.name, folder / declared.queries)

    by_query: defaultdict[str, list[tuple[str, ...]]] = defaultdict(list)
    groups: dict[str, str | None] = {}
    for where, query, passages, group in _pairs(spec, path, eval_set, counts, labelled):
        for number, key in enumerate((query, *passages)):
            known = {key: key}
            if texts is not None:
                known = corpus if number else texts
            if known.get(key, "").strip():
                continue
            problem = "a query without a passage" if number == 1 else "a pair with an empty text"
            if key not in known:
                problem = "no such passage" if number else "no such query"
            hint = f"ids are those of corpus and queries; {FETCH_AGAIN}" if texts else FETCH_AGAIN
            raise PipelineError(problem, shown(key), where=where, hint=hint)
        for passage in passages:
            corpus.setdefault(passage, passage)
        by_query[query].append(passages)
        groups.setdefault(query, group)
    if len(corpus) < 2 or not by_query:
        value = f"{len(corpus)} passages of {len(by_query)} queries"
        hint = "retrieval needs a query and two passages; labels are those of the rows that are pairs"
        raise PipelineError("nothing to rank", value, where=path, hint=hint)

    index = {key: number for number, key in enumerate(corpus)}
    all_passages = tuple(corpus.values())
    queries: list[Query] = []
    for query, rows in by_query.items():
        text = texts[query] if texts else query
        pairs = tuple(tuple(map(index.__getitem__, passages)) for passages in rows)
        queries.append(Query(str(len(queries)), text, all_passages, pairs, groups[query]))
    return queries


def _texts_by_id(task: str, path: Path) -> dict[str, str]:
    layout = Layout(Columns(texts=("_id", "text")), header=True, labels=(), drop_short=False)
    texts: dict[str, str] = {}
    for number, fields in read_columns(task, path, layout):
        key = fields["_id"]
        if key in texts:
            where = f"{path}:{number}"
            hint = f"each text has its own _id; {FETCH_AGAIN}"
            raise PipelineError("an _id that an earlier row has", shown(key), where=where, hint=hint)
        texts[key] = fields["text"]
    return texts


def _pairs(
    spec: TaskSpec, path: Path, eval_set: str | None, counts: Counter[str] | None, labelled: bool
) -> Iterator[tuple[str, str, tuple[str, ...], str | None]]:
    """Yield (place in the file, query, its passage and hard negatives, group) of each pair."""
    if path.suffix == ".json":
        for question in read_questions(spec, path, not labelled, counts):
            if question.answers or not labelled:
                yield f"{path}, question {question.id}", question.question, (question.context,), question.context
        return
    layout = spec.layout(eval_set)
    if not labelled:
        layout = layout.without_labels()
    columns = layout.columns
    for line, fields in read_columns(spec.name, path, layout, counts):
        if columns.label is not None and fields[columns.label] not in layout.labels:
            continue
        query, *passages = (fields[column] for column in (*columns.texts, *columns.negatives))
        group = None
        if columns.group:
            group = fields[columns.group] or None
        yield f"{path}:{line}", query, tuple(passages), group
