"""Synthetic tasks of the sample study: texts made by simple rules that a very small model can learn.

They allow a machine without access to the official data to run every task. Files have the names, formats and columns
that catalogue/tasks declares. Scores are near 100 if the pipeline works. They say nothing about language, so reports
always mark them as synthetic. Only the multiple-choice rule compares two texts, because a model of this size learns to
compare texts late.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
from numpy.random import Generator

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import atomic_directory
from pipeline_src.study.task_spec import Layout, TaskSpec, load_spec

ONE_TEXT = "The label is 1 if the sentence praises, 0 if it blames."
TWO_TEXTS = "{} if both sentences praise, {} if one of them blames."
RULES = {
    "cola": ONE_TEXT,
    "sst2": ONE_TEXT,
    "mrpc": TWO_TEXTS.format("1", "0"),
    "qqp": TWO_TEXTS.format("1", "0"),
    "wnli": TWO_TEXTS.format("1", "0"),
    "qnli": TWO_TEXTS.format("Entailment", "no entailment"),
    "rte": TWO_TEXTS.format("Entailment", "no entailment"),
    "mnli": "Entailment if both sentences praise, neutral if one of them blames, contradiction if both do.",
    "stsb": "The score is the mean of the numbers, one to five, in the two sentences.",
    "squad1": "The answer is the one place, time or colour in the text.",
    "squad2": "As SQuAD 1.1, but half of the questions ask for a person, and have no answer.",
    "swag": "The right one of four endings has the same three adjectives as the first sentence.",
    "pos": "A word has its class's part of speech; `play` and `work` are verbs after `to` and `not`, else nouns.",
}

# Number of training examples. Multiple choice has few, because each of its examples becomes four sequences.
NUM_TRAIN = {"classification": 1600, "choice": 600, "span": 1200, "tagging": 800}
NUM_DEV = 300
NUM_TEST = 100

# The words are frequent both in encyclopaedias and in old plays. Words of the same class are interchangeable.
CLASSES = {
    "animal": ("horse", "dog", "bird", "lion"),
    "bad": ("bad", "poor", "sad", "dead"),
    "colour": ("black", "white", "red", "green"),
    "deed": ("play", "work"),
    "good": ("good", "great", "happy", "beautiful"),
    "name": ("john", "henry", "mary", "william", "james", "robert", "thomas", "anne"),
    "person": ("king", "father", "brother", "son", "queen", "mother", "sister", "daughter"),
    "place": ("house", "garden", "city", "church"),
    "thing": ("field", "tree", "sea", "ship", "army", "sword", "book", "letter"),
    "time": ("morning", "evening", "night", "summer"),
    "town": ("london", "rome"),
    "verb": ("came", "went", "ran", "walked"),
}
NUMBERS = ("one", "two", "three", "four", "five")


def pick(rng: Generator, values: tuple[str, ...]) -> str:
    return values[int(rng.integers(len(values)))]


def fill(rng: Generator, frames: tuple[str, ...], **given: str) -> str:
    """Fill the slots of a random frame, such as "{name} had the {mood} {thing} .".

    A slot gets its text from ``given``, or else a random word of the slot's class.
    """
    frame = pick(rng, frames)
    words = {slot: pick(rng, values) for slot, values in CLASSES.items() if f"{{{slot}}}" in frame}
    return frame.format(**words | given)


# Rules of the table tasks: one text, two texts, two numbers, four endings. A rule returns the texts of an example with
# a given label.

FIRST = ("{name} had the {mood} {thing} .", "{name} {verb} to the {mood} {thing} .")
SECOND = ("it was the {mood} {thing} of {name} .", "the {thing} of {name} is {mood} .")
FIRST_NUMBER = ("{name} saw the {person} of house {number} .", "in house {number} was the {animal} of {name} .")
SECOND_NUMBER = ("house {number} had the {thing} .", "the {person} {verb} to house {number} .")
SCENES = ("dark black cold", "light white warm", "old great rich", "young little poor")

# Adjectives of blame, and adjectives of praise.
MOODS = (CLASSES["bad"], CLASSES["good"])
# Label -> how many of the two sentences praise.
PRAISING = {"contradiction": 0, "neutral": 1, "not_entailment": 1, "0": 1, "entailment": 2, "1": 2}


def one_text(rng: Generator, label: str) -> tuple[str, ...]:
    return (fill(rng, FIRST + SECOND, mood=pick(rng, MOODS[label == "1"])),)


def two_texts(rng: Generator, label: str) -> tuple[str, ...]:
    count = PRAISING[label]
    first_praises = count == 2 or (count == 1 and bool(rng.integers(2)))
    second_praises = count > first_praises
    # Both sentences have the same name and thing. In the retrieval task, a query finds its passage by these words.
    about = {slot: pick(rng, CLASSES[slot]) for slot in ("name", "thing")}
    first = fill(rng, FIRST, mood=pick(rng, MOODS[first_praises]), **about)
    return first, fill(rng, SECOND, mood=pick(rng, MOODS[second_praises]), **about)


def two_numbers(rng: Generator, label: str) -> tuple[str, ...]:
    total = round(2 * float(label))
    first = int(rng.integers(max(1, total - 5), min(5, total - 1) + 1))
    second = total - first
    return (
        fill(rng, FIRST_NUMBER, number=NUMBERS[first - 1]),
        fill(rng, SECOND_NUMBER, number=NUMBERS[second - 1]),
    )


def four_endings(rng: Generator, label: str) -> tuple[str, ...]:
    scenes = rng.permutation(SCENES).tolist()
    context = fill(rng, ("{name} saw the {scene} {thing} .",), scene=scenes[int(label)])
    endings = [fill(rng, ("was the {scene} {thing} .",), scene=scene) for scene in scenes]
    return (context, "it", *endings)


def write_tables(spec: TaskSpec, folder: Path, rng: Generator) -> None:
    """Write the tables of a task. Labels take turns, so that all labels have equally many rows."""
    files = []
    for name, eval_set in spec.scores.items():
        files.append((eval_set.file, spec.layout(name), NUM_DEV))
        test = eval_set.test
        if test is not None:
            layout = spec.layout(name, test=True)
            files.append((test.file, layout, NUM_TEST))
    files.append((spec.train, spec.layout(), NUM_TRAIN[spec.kind]))
    # Shared by all files, so that no example is in two files.
    used: set[tuple[str, ...]] = set()
    for file, layout, rows in files:
        write_table(folder / file, spec, layout, rows, rng, used)


def write_table(path: Path, spec: TaskSpec, layout: Layout, rows: int, rng: Generator, used: set) -> None:
    labels = layout.labels
    rule = two_texts if spec.is_pair else one_text
    if spec.range is not None:
        labels = tuple(str(total / 2) for total in range(2, 11))
        rule = two_numbers
    elif spec.kind == "choice":
        labels = ("0", "1", "2", "3")
        rule = four_endings

    columns = layout.columns
    # Without a header, columns are numbers counted from 1. Columns that the task does not require are left empty.
    names = columns.required
    if not layout.header:
        names = tuple(range(1, 1 + max(int(name) for name in names)))

    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter="," if path.suffix == ".csv" else "\t", lineterminator="\n")
        if layout.header:
            writer.writerow(names)
        for index in rng.permutation(rows):
            label = labels[index % len(labels)]
            texts = rule(rng, label)
            while texts in used:
                texts = rule(rng, label)
            used.add(texts)
            fields = dict(zip((*columns.texts, *columns.choices), texts, strict=True))
            if columns.label is not None:
                fields[columns.label] = label
            writer.writerow([fields.get(name, "") for name in names])


# Rules of the span tasks: the context has one fact among asides, and the question asks for the fact.

# Class of the answer -> "fact | question".
FACTS = {
    "place": "the {person} lives in the {answer} . | where does the {person} live ?",
    "time": "{name} came in the {answer} . | when was it that {name} came ?",
    "colour": "the {animal} is {answer} . | what colour is the {animal} ?",
}
UNANSWERABLE = ("who had the {thing} ?", "who was with {name} ?")
ASIDES = ("{name} {verb} there .", "then the {person} had a {deed} .", "{name} {verb} with the {person} and {name} .")


def question(rng: Generator, answerable: bool) -> tuple[str, str, str]:
    """Return (context, question, answer). The answer is empty if ``answerable`` is False."""
    kind = pick(rng, tuple(FACTS))
    answer = pick(rng, CLASSES[kind])
    fact, asked = fill(rng, (FACTS[kind],), answer=answer).split(" | ")
    sentences = [fact]
    for _ in range(rng.integers(1, 5)):
        sentences.append(fill(rng, ASIDES))
    context = " ".join(rng.permutation(sentences))
    if not answerable:
        return context, fill(rng, UNANSWERABLE), ""
    return context, asked, answer


def write_questions(spec: TaskSpec, folder: Path, rng: Generator) -> None:
    (eval_set,) = spec.scores.values()
    for path, count in ((eval_set.file, NUM_DEV), (spec.train, NUM_TRAIN["span"])):
        paragraphs = []
        for index in range(count):
            answerable = not spec.unanswerable or index % 2 == 0
            context, asked, answer = question(rng, answerable)
            answers = []
            if answerable:
                start = context.index(f" {answer} ") + 1
                answers.append({"text": answer, "answer_start": start})
            entry: dict = {"id": f"{path}-{index}", "question": asked, "answers": answers}
            if spec.unanswerable:
                entry["is_impossible"] = not answerable
            paragraphs.append({"context": context, "qas": [entry]})
        article = {"title": "Facts", "paragraphs": paragraphs}
        content = {"version": "synthetic", "data": [article]}
        (folder / path).write_text(json.dumps(content), encoding="utf-8")


# Rules of the tagging task: sentences as words with their parts of speech.

TAGGED = (
    "the/DET {colour}/ADJ {animal}/NOUN of/ADP the/DET {person}/NOUN {verb}/VERB to/ADP the/DET {place}/NOUN ./PUNCT",
    "{name}/PROPN can/AUX not/PART {deed}/VERB with/ADP the/DET {colour}/ADJ {animal}/NOUN ./PUNCT",
    "the/DET {deed}/NOUN of/ADP {name}/PROPN was/AUX {good}/ADJ to/ADP the/DET {colour}/ADJ {animal}/NOUN ./PUNCT",
    "she/PRON had/VERB to/PART {deed}/VERB with/ADP {name}/PROPN in/ADP the/DET {good}/ADJ {place}/NOUN ./PUNCT",
    "then/ADV {name}/PROPN and/CCONJ the/DET {person}/NOUN {verb}/VERB to/ADP {town}/PROPN by/ADP {time}/NOUN ./PUNCT",
    "where/ADV was/AUX the/DET {good}/ADJ {deed}/NOUN of/ADP the/DET {person}/NOUN in/ADP {town}/PROPN ?/PUNCT",
)


def write_tagged(spec: TaskSpec, folder: Path, rng: Generator) -> None:
    """Write documents of two sentences in CoNLL-U format. No sentence is in two files."""
    (eval_set,) = spec.scores.values()
    used: set[str] = set()
    for path, count in ((eval_set.file, NUM_DEV), (spec.train, NUM_TRAIN["tagging"])):
        lines = []
        for index in range(count):
            sentence = fill(rng, TAGGED)
            while sentence in used:
                sentence = fill(rng, TAGGED)
            used.add(sentence)
            if index % 2 == 0:
                lines.append(f"# newdoc id = {path}-{index // 2}")
            for number, token in enumerate(sentence.split(), start=1):
                word, _, tag = token.rpartition("/")
                # CoNLL-U has ten columns. "_" marks an empty one.
                lines.append("\t".join((str(number), word, word, tag, *"______")))
            lines.append("")
        (folder / path).write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")


WRITERS = {
    "classification": write_tables,
    "choice": write_tables,
    "span": write_questions,
    "tagging": write_tagged,
}


def write_task(task: str, folder: str | Path, seed: int) -> None:
    """Write the files of one task into ``folder``, atomically.

    The bytes depend only on the task's name, its catalogue entry and the seed.
    """
    if task not in RULES:
        hint = f"choose one of {', '.join(RULES)}, or set task_source: official"
        raise PipelineError("the task has no synthetic form", task, hint=hint)
    spec = load_spec(task)
    rng = np.random.default_rng([seed, *task.encode()])
    with atomic_directory(folder) as partial:
        WRITERS[spec.kind](spec, partial, rng)
