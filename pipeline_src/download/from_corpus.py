"""Tasks made from the study's own corpus, whose labels follow from the text, in the official file layouts.

They resemble SentEval's probing tasks (Conneau and Kiela 2018; Conneau et al. 2018) and the cloze tests from which
BERT's own objective comes (Taylor 1953): they need no annotation and test what pretraining may learn from the text. The
scored examples are of validation documents, which no stage trains on; the training examples are of the others.
Labels are balanced, and a bag of words predicts them poorly.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.random import Generator

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import atomic_directory
from pipeline_src.corpus.documents import (
    corpus_folders,
    in_validation_split,
    language_of,
    read_documents,
)
from pipeline_src.corpus.sentences import split_sentences

SPLITS = ("train", "dev")
MOST = {"train": 800, "dev": 200}  # first documents of each source, so that little is read
WORDS = range(5, 21)  # words of a sentence that is used
_WORD = re.compile(r"\w+(?:['’]\w+)*|[^\w\s]")


@dataclass(frozen=True)
class Text:
    """One document: its id, its source, and its paragraphs as sentences."""

    id: str
    corpus: str
    paragraphs: tuple[tuple[str, ...], ...]

    @property
    def sentences(self) -> Iterator[str]:
        """The sentences of a usual length, in order."""
        return (one for paragraph in self.paragraphs for one in paragraph if usable(one))

    def runs(self, length: int) -> Iterator[tuple[str, ...]]:
        """Yield disjoint runs of ``length`` consecutive sentences of usual length in a paragraph."""
        for paragraph in self.paragraphs:
            for start in range(0, len(paragraph) - length + 1, length):
                run = paragraph[start : start + length]
                if all(map(usable, run)):
                    yield run


def usable(sentence: str) -> bool:
    """Return whether a sentence is of a usual length."""
    return len(sentence.split()) in WORDS


def words_of(sentence: str) -> list[str]:
    """Return the words and punctuation of a sentence."""
    return _WORD.findall(sentence)


def read_texts(root: Path, sources: Iterable[str], seed: int, validation: float) -> dict[str, list[Text]]:
    """Return the first documents of each source: ``train`` of the training split, ``dev`` of the validation split.

    Args:
        root: ``data/text``.
        sources: names of the sources.
        seed, validation: decide the split.
    """
    texts: dict[str, list[Text]] = {split: [] for split in SPLITS}
    for corpus, folder in corpus_folders(root, sources).items():
        left, language = dict(MOST), language_of(folder)
        for document in read_documents(folder):
            split = SPLITS[in_validation_split(document.id, seed, validation)]
            if left[split]:
                left[split] -= 1
                lines = (split_sentences(line, language) for line in document.text.split("\n"))
                paragraphs = tuple(tuple(" ".join(one.split()) for one in line) for line in lines)
                texts[split].append(Text(document.id, corpus, paragraphs))
            elif not any(left.values()):
                break
    return texts


RULES = {
    "word_swap": "A sentence is as it was written (1), or two of its words have changed places (0).",
    "next_sentence_choice": "Which of four sentences comes next; the other three are of other documents.",
    "truecasing": "Which words had a capital after another word, `I` apart; all are shown in lower case.",
    "cloze": "A sentence of the paragraph with one word left out; the answer is that word, where it stands there.",
    "same_document": "Two passages are of one document (1), or of two (0).",
}
EXAMPLES = {  # of each file: enough to train a small model in seconds and to measure a few points
    "word_swap": {"train": 5000, "dev": 2000},
    "next_sentence_choice": {"train": 600, "dev": 1000},
    "truecasing": {"train": 1200, "dev": 1000},
    "cloze": {"train": 800, "dev": 1000},
    "same_document": {"train": 1500, "dev": 1000},
}
PARAGRAPH = 2  # sentences of a cloze test's paragraph
CONLL = {"train": "train", "dev": "valid"}  # the names of CoNLL-2003's files
GAP = "what"  # in the place of the word, as question words are
ABOUT = {
    "description": "Made from this corpus: real sentences, labelled by what was done to them",
    "licence": "those of the corpus",
    "citation": "pipeline_src.download.from_corpus; after Conneau and Kiela 2018, SentEval",
}


def write_task(task: str, folder: Path, texts: dict[str, list[Text]], seed: int) -> None:
    """Write the files of one task into ``folder``, atomically."""
    make, write = WRITERS[task]
    with atomic_directory(folder) as partial:
        for split in SPLITS:
            rng = np.random.default_rng([seed, *f"{task} {split}".encode()])
            rows = make(texts[split], rng)
            if len(rows) < 2:
                raise PipelineError(
                    f"too little text for the task {task}", f"{len(rows)} examples for its {split} file",
                    where="data/text",
                    hint="take more text, a larger corpus.validation, or remove the task from `tasks`",
                )  # fmt: skip
            write(partial, split, rows[: EXAMPLES[task][split]])


def _shuffled(items: Sequence, rng: Generator) -> list:
    return [items[place] for place in rng.permutation(len(items))]


def _sentences(texts: Sequence[Text]) -> list[tuple[Text, str]]:
    return [(text, sentence) for text in texts for sentence in text.sentences]


def _runs(texts: Sequence[Text], length: int) -> list[tuple[Text, tuple[str, ...]]]:
    return [(text, run) for text in texts for run in text.runs(length)]


def word_swap(texts: Sequence[Text], rng: Generator) -> list[tuple[str, str, str]]:
    """Return (document, label, sentence); every sentence occurs once, unchanged or swapped."""
    rows: list[tuple[str, str, str]] = []
    for text, sentence in _shuffled(_sentences(texts), rng):
        words = sentence.split()
        places = [place for place in range(1, len(words) - 1) if words[place].isalpha()]
        label = len(rows) % 2
        if not label:
            first, *others = _shuffled(places, rng) or [0]
            second = next((place for place in others if words[place].lower() != words[first].lower()), None)
            if second is None:
                continue
            words[first], words[second] = words[second], words[first]
        rows.append((text.id, str(label), " ".join(words)))
    return rows


def next_sentence_choice(texts: Sequence[Text], rng: Generator) -> list[tuple[str, str, tuple[str, ...], int]]:
    """Return (document, sentence, four candidates for the next one, index of the right one)."""
    runs = _shuffled(_runs(texts, 2), rng)
    rows: list[tuple[str, str, tuple[str, ...], int]] = []
    for text, run in runs:
        others = _elsewhere(text, runs, rng, 3)
        if others is None:
            continue
        right = len(rows) % 4
        endings = [other[-1] for other in others]
        endings.insert(right, run[-1])
        rows.append((text.id, " ".join(run[:-1]), tuple(endings), right))
    return rows


def _elsewhere(
    text: Text, runs: Sequence[tuple[Text, tuple[str, ...]]], rng: Generator, count: int
) -> list[tuple[str, ...]] | None:
    """Return ``count`` runs of other documents, or None if there are too few."""
    found = []
    for place in rng.integers(0, len(runs), size=20 * count):
        other, run = runs[place]
        if other.id != text.id and run not in found:
            found.append(run)
            if len(found) == count:
                return found
    return None


def same_document(texts: Sequence[Text], rng: Generator) -> list[tuple[str, str, str, str, str]]:
    """Return (label, document, document, passage, passage), with passages of two sentences."""
    runs = _shuffled(_runs(texts, 2), rng)
    of_document: dict[str, list[tuple[str, ...]]] = {}
    for text, run in runs:
        of_document.setdefault(text.id, []).append(run)
    rows: list[tuple[str, str, str, str, str]] = []
    for text, run in runs:
        label = len(rows) % 2
        if label:
            others = [other for other in of_document[text.id] if other != run]
            if not others:
                continue
            identifier, other = text.id, others[int(rng.integers(len(others)))]
        else:
            pairs = [runs[place] for place in rng.integers(0, len(runs), size=40)]
            pairs = [pair for pair in pairs if pair[0].id != text.id]
            if not pairs:
                continue
            identifier, other = pairs[0][0].id, pairs[0][1]
        rows.append((str(label), text.id, identifier, " ".join(run), " ".join(other)))
    return rows


def truecasing(texts: Sequence[Text], rng: Generator) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return (document, lower-cased words with their tags)."""
    rows = []
    for text, sentence in _shuffled(_sentences(texts), rng):
        words = words_of(sentence)
        names = [word[0].isupper() and len(word) > 1 for word in words]
        follows_word = [False, *(before[-1].isalnum() or before == "," for before in words)]
        tags = ["B-CAP" if name and after else "O" for name, after in zip(names, follows_word, strict=False)]
        if "B-CAP" in tags:
            rows.append((text.id, list(zip(map(str.lower, words), tags, strict=True))))
    return rows


def cloze(texts: Sequence[Text], rng: Generator) -> list[tuple[str, str, str, str, int]]:
    """Return (document, paragraph, question, answer, start of the answer)."""
    rows = []
    for text, run in _shuffled(_runs(texts, PARAGRAPH), rng):
        context, which = " ".join(run), int(rng.integers(PARAGRAPH))
        words = run[which].split()
        places = [
            place
            for place in range(1, len(words) - 1)
            if words[place].isalpha() and len(words[place]) > 3 and context.split().count(words[place]) == 1
        ]
        if not places:
            continue
        place = int(rng.choice(places))
        before = sum(len(sentence) + 1 for sentence in run[:which])
        start = before + len(" ".join(words[:place])) + 1
        question = " ".join([*words[:place], GAP, *words[place + 1 :]])
        rows.append((text.id, context, question, words[place], start))
    return rows


def _table(folder: Path, split: str, lines: Sequence[Sequence[str]]) -> None:
    text = "".join("\t".join(field.replace("\t", " ") for field in line) + "\n" for line in lines)
    (folder / f"{split}.tsv").write_text(text, encoding="utf-8", newline="\n")


def _as_cola(folder: Path, split: str, rows: list[tuple[str, str, str]]) -> None:
    _table(folder, split, [(document, label, "", sentence) for document, label, sentence in rows])


def _as_mrpc(folder: Path, split: str, rows: list[tuple[str, str, str, str, str]]) -> None:
    _table(folder, split, [("Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"), *rows])


def _as_swag(folder: Path, split: str, rows: list[tuple[str, str, tuple[str, ...], int]]) -> None:
    name = {"train": "train", "dev": "val"}[split]
    with open(folder / f"{name}.csv", "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["", "video-id", "sent1", "sent2", *(f"ending{place}" for place in range(4)), "label"])
        for number, (document, context, endings, right) in enumerate(rows):
            writer.writerow([number, document, context, "", *endings, right])


def _as_conll(folder: Path, split: str, rows: list[tuple[str, list[tuple[str, str]]]]) -> None:
    by_document: dict[str, list[list[tuple[str, str]]]] = {}
    for document, words in rows:
        by_document.setdefault(document, []).append(words)
    with open(folder / f"{CONLL[split]}.txt", "w", encoding="utf-8") as file:
        for sentences in by_document.values():
            file.write("-DOCSTART- -X- -X- O\n\n")
            for words in sentences:
                file.writelines(f"{word} - - {tag}\n" for word, tag in words)
                file.write("\n")


def _as_squad(folder: Path, split: str, rows: list[tuple[str, str, str, str, int]]) -> None:
    articles: dict[str, list] = {}
    for number, (document, context, question, answer, start) in enumerate(rows):
        asked = {"id": f"{split}-{number}", "question": question, "answers": [{"text": answer, "answer_start": start}]}
        articles.setdefault(document, []).append({"context": context, "qas": [asked]})
    data = [{"title": document, "paragraphs": paragraphs} for document, paragraphs in articles.items()]
    content = json.dumps({"version": "1.1", "data": data}, ensure_ascii=False)
    (folder / f"{split}-v1.1.json").write_text(content, encoding="utf-8")


WRITERS: dict[str, tuple[Callable, Callable]] = {
    "word_swap": (word_swap, _as_cola),
    "next_sentence_choice": (next_sentence_choice, _as_swag),
    "truecasing": (truecasing, _as_conll),
    "cloze": (cloze, _as_squad),
    "same_document": (same_document, _as_mrpc),
}
