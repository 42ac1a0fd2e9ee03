"""The sample study's tasks: files in each task's official layout, made up by rules that a very small model can learn.

The real task sets cannot be had from a package index, so a machine that reaches nothing else can still run the whole
study. What these files measure is whether the pipeline works: a working one scores clearly above chance, a broken one
does not. They say nothing about language, and whatever shows a score on them calls it synthetic.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import atomic_directory
from pipeline_src.task_sources import synthetic_tables as tables
from pipeline_src.task_sources import synthetic_tagging as tagging
from pipeline_src.task_sources.synthetic_reading import paragraph, story

RULES = {
    "cola": "A sentence is acceptable (1) unless two neighbouring words have changed places (0).",
    "sst2": "A sentence is positive (1) if it holds a word of praise and negative (0) if it holds a word of blame.",
    "mrpc": "Two sentences are paraphrases (1) if they name the same animal and colour; otherwise neither is the same.",
    "stsb": "The score is 5 for the same city and time, 2.5 if only one is the same and 0 if neither is.",
    "qqp": "Two questions are duplicates (1) if they are about the same place and time; otherwise neither is the same.",
    "mnli": "The same colour or age is entailed, the opposite one contradicts, a colour and an age are neutral.",
    "qnli": "The sentence answers the question if it tells the kind of thing asked for, a place or a time.",
    "rte": "The hypothesis is entailed if it names the premise's animal and place; otherwise it names neither.",
    "wnli": "The hypothesis is right (1) if it puts the king in the place of `he` or the queen in the place of `she`.",
    "squad1": "Two facts among asides; the answer is the one place, time or colour that the question asks for.",
    "squad2": "As SQuAD 1.1, but half of the questions ask for a kind that no fact tells.",
    "swag": "Four endings on field or sea, by day or night: the right one keeps to both that the first sentence tells.",
    "ner": "A name is a person and a town a place, but in `house of john` or `army of rome` all is an organisation.",
    "pos": "A word has its class's part of speech; `play` and `work` are verbs after `to` and `not`, else nouns.",
}

PARAGRAPHS_PER_ARTICLE = 50
TAGGED_SENTENCES = 800  # to train on
ENDINGS = ("ending0", "ending1", "ending2", "ending3")
SWAG = ("video-id", "fold-ind", "startphrase", "sent1", "sent2", "gold-source", *ENDINGS)


def write_task(task: str, folder: str | Path, seed: int) -> None:
    """Write the files of one task into ``folder``, which exists whole afterwards or not at all.

    The bytes depend on ``task`` and ``seed`` alone. Test files hold no labels, as the official ones; the two SQuADs
    have no public test file, and that of CoNLL-2003 has them.

    Raises:
        PipelineError: there is no rule for this task.
    """
    if task not in RULES:
        remedy = f"choose one of {', '.join(RULES)}, or a task_source that has its files"
        raise PipelineError("no synthetic form of this task", task, remedy=remedy)
    rng = np.random.default_rng([seed, *task.encode()])
    with atomic_directory(folder) as partial:
        WRITERS[task](task, partial, rng)


def _write_glue(task: str, folder: Path, rng: Generator) -> None:
    taken: set[tuple[str, ...]] = set()
    for table in tables.TABLES[task]:
        rows = list(tables.rows(table, rng, taken))
        taken.update(texts for texts, _ in rows)
        lines = ["\t".join(fields) for _, fields in rows]
        _write(folder / table.file, table.mark + "\n".join(lines) + "\n")


def _write_squad(task: str, folder: Path, rng: Generator) -> None:
    version, unanswerable = {"squad1": ("1.1", False), "squad2": ("v2.0", True)}[task]
    for split, questions, answers in (("train", tables.TRAIN, 1), ("dev", tables.DEV, 3)):
        articles: list[dict[str, Any]] = []
        for first in range(0, questions // 2, PARAGRAPHS_PER_ARTICLE):
            numbers = range(first, min(first + PARAGRAPHS_PER_ARTICLE, questions // 2))
            paragraphs = [paragraph(rng, f"{task}-{split}-{number}", unanswerable, answers) for number in numbers]
            articles.append({"title": f"Facts_{len(articles)}", "paragraphs": paragraphs})
        content = json.dumps({"version": version, "data": articles})
        _write(folder / f"{split}-v{version.removeprefix('v')}.json", content)


def _write_swag(task: str, folder: Path, rng: Generator) -> None:
    for name, count, labelled in (
        ("train", tables.TRAIN // 2, True),
        ("val", tables.DEV, True),
        ("test", tables.TEST, False),
    ):
        with open(folder / f"{name}.csv", "w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["", *SWAG, *(["label"] if labelled else [])])
            for number, place in enumerate(rng.permutation(count).tolist()):
                label = place % 4
                row = {"video-id": f"{name}-{number}", "fold-ind": number, "gold-source": "gold", **story(rng, label)}
                writer.writerow([number, *(row[column] for column in SWAG), *([label] if labelled else [])])


def _write_tagged(task: str, folder: Path, rng: Generator) -> None:
    rule, lines, files = TAGGED[task]
    taken: set[str] = set()
    for file, sentences in files.items():
        found = enumerate(tagging.documents(rng, rule, sentences, taken))
        text = [line for number, document in found for line in lines(file.partition(".")[0], number, document)]
        _write(folder / file, "\n".join(text) + "\n")


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", newline="\n")


TAGGED = {
    "ner": (
        tagging.entities,
        tagging.conll,
        {"valid.txt": tables.DEV, "test.txt": tables.DEV, "train.txt": TAGGED_SENTENCES},
    ),
    "pos": (
        tagging.parts_of_speech,
        tagging.conllu,
        {"en_ewt-ud-dev.conllu": tables.DEV, "en_ewt-ud-train.conllu": TAGGED_SENTENCES},
    ),
}

WRITERS: dict[str, Callable[[str, Path, Generator], None]] = {
    **dict.fromkeys(tables.TABLES, _write_glue),
    "squad1": _write_squad,
    "squad2": _write_squad,
    "swag": _write_swag,
    **dict.fromkeys(TAGGED, _write_tagged),
}
