"""Tasks made from the study's own corpus: self-supervised labels, in the file layouts of official tasks.

They need no annotation and test what pretraining may learn from the text. They resemble SentEval's probing tasks
(Conneau and Kiela 2018; Conneau et al. 2018) and cloze tests (Taylor 1953), which inspired BERT's own objective.
Evaluation examples come from validation documents, which no stage trains on. Training examples come from the other
documents. Labels are balanced, and a bag of words predicts them poorly.
"""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.random import Generator

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import atomic_directory
from pipeline_src.tasks.made import synthetic
from pipeline_src.text.documents import corpus_folders, in_validation_split, language_of, read_documents
from pipeline_src.text.sentences import split_sentences
from pipeline_src.text.words import count_words

SPLITS = ("train", "dev")
# Number of documents that are read from the start of each source.
MAX_DOCUMENTS = {"train": 800, "dev": 200}
SENTENCE_WORDS = range(5, 21)
WORD = re.compile(r"\w+(?:['’]\w+)*|[^\w\s]")
CLOZE_SENTENCES = 2
# Replaces the word that the question asks for: "she saw the white whale ." -> "she saw the what whale ."
CLOZE_PLACEHOLDER = "what"
RULES = {
    "word_swap": "A sentence is as it was written (1), or two of its words have changed places (0).",
    "next_sentence_choice": "Which of four sentences comes next; the other three are of other documents.",
    "truecasing": "Which words had a capital after another word, `I` apart; all are shown in lower case.",
    "cloze": "A sentence of the paragraph with one word left out; the answer is that word, where it stands there.",
    "same_document": "Two passages are of one document (1), or of two (0).",
}
# Maximum number of examples in each file. It is enough to train a small model in seconds, and to measure differences of
# a few points.
MAX_EXAMPLES = {
    "word_swap": {"train": 5000, "dev": 2000},
    "next_sentence_choice": {"train": 600, "dev": 1000},
    "truecasing": {"train": 1200, "dev": 1000},
    "cloze": {"train": 800, "dev": 1000},
    "same_document": {"train": 1500, "dev": 1000},
}
ABOUT = {
    "description": "Made from this corpus: real sentences, labelled by what was done to them",
    "licence": "those of the corpus",
    "citation": "pipeline_src.tasks.made.from_corpus; after Conneau and Kiela 2018, SentEval",
}
Origin = Literal["from the corpus", "synthetic", "fetched"]


def task_origin(task: str, task_source: str) -> Origin:
    if task in RULES:
        return "from the corpus"
    return "synthetic" if task_source == "synthetic" and task in synthetic.RULES else "fetched"


@dataclass(frozen=True)
class Text:
    """A document as paragraphs of sentences, with single spaces between words."""

    id: str
    paragraphs: tuple[tuple[str, ...], ...]

    def runs(self, length: int) -> Iterator[tuple[str, ...]]:
        """Yield non-overlapping groups of ``length`` consecutive sentences from the same paragraph.

        A group is left out if one of its sentences has fewer than 5 or more than 20 words.
        """
        for paragraph in self.paragraphs:
            for start in range(0, len(paragraph) - length + 1, length):
                run = paragraph[start : start + length]
                if all(count_words(sentence) in SENTENCE_WORDS for sentence in run):
                    yield run


def read_texts(root: Path, sources: Iterable[str], seed: int, validation: float) -> dict[str, list[Text]]:
    """Read the first documents of each source, and return them by split (``train`` or ``dev``).

    ``dev`` has the documents of the validation split.

    Args:
        root: the folder ``data/text``.
        seed, validation: the study's seed and its fraction of validation documents, which determine the split.
    """
    texts: dict[str, list[Text]] = {split: [] for split in SPLITS}
    for folder in corpus_folders(root, sources).values():
        language = language_of(folder)
        remaining = dict(MAX_DOCUMENTS)
        for document in read_documents(folder):
            split = SPLITS[in_validation_split(document.id, seed, validation)]
            if remaining[split]:
                remaining[split] -= 1
                texts[split].append(Text(document.id, _paragraphs(document.text, language)))
            elif not any(remaining.values()):
                break
    return texts


def _paragraphs(text: str, language: str) -> tuple[tuple[str, ...], ...]:
    paragraphs = []
    for line in text.split("\n"):
        sentences = split_sentences(line, language)
        paragraphs.append(tuple(" ".join(sentence.split()) for sentence in sentences))
    return tuple(paragraphs)


def write_task(task: str, folder: Path, texts: dict[str, list[Text]], seed: int) -> None:
    """Write the files of one task into ``folder``, atomically."""
    make, write = WRITERS[task]
    with atomic_directory(folder) as partial:
        for split in SPLITS:
            rng = np.random.default_rng([seed, *f"{task} {split}".encode()])
            examples = make(texts[split], rng)
            if len(examples) < 2:
                raise PipelineError(
                    f"not enough text for the task {task}",
                    f"{len(examples)} examples for its {split} file",
                    where="data/text",
                    hint="add text, increase corpus.validation, or remove the task from `tasks`",
                )
            write(partial, split, examples[: MAX_EXAMPLES[task][split]])


# (document id, [(lower-cased word, tag)])
TaggedExample = tuple[str, list[tuple[str, str]]]
# (document id, paragraph, question, answer, start of the answer in characters)
ClozeExample = tuple[str, str, str, str, int]


def _shuffled(items: Sequence, rng: Generator) -> list:
    return [items[index] for index in rng.permutation(len(items))]


def _shuffled_runs(texts: Sequence[Text], length: int, rng: Generator) -> list[tuple[Text, tuple[str, ...]]]:
    return _shuffled([(text, run) for text in texts for run in text.runs(length)], rng)


def word_swap(texts: Sequence[Text], rng: Generator) -> list[tuple[str, str, str]]:
    # Returns (document id, label, sentence). Each sentence is used once, either unchanged or with two words swapped.
    examples: list[tuple[str, str, str]] = []
    for text, (sentence,) in _shuffled_runs(texts, 1, rng):
        words = sentence.split()
        label = len(examples) % 2
        if not label:
            # The first and last word are never swapped.
            inner = [position for position in range(1, len(words) - 1) if words[position].isalpha()]
            if not inner:
                continue
            first, *candidates = _shuffled(inner, rng)
            word = words[first]
            others = [position for position in candidates if words[position].lower() != word.lower()]
            if not others:
                continue
            second = others[0]
            words[first] = words[second]
            words[second] = word
        examples.append((text.id, str(label), " ".join(words)))
    return examples


def next_sentence_choice(texts: Sequence[Text], rng: Generator) -> list[tuple[str, str, tuple[str, ...], int]]:
    # Returns (document id, sentence, four candidates for the next sentence, index of the correct candidate).
    runs = _shuffled_runs(texts, 2, rng)
    examples: list[tuple[str, str, tuple[str, ...], int]] = []
    for text, run in runs:
        distractors: list[tuple[str, ...]] = []
        for index in rng.integers(0, len(runs), size=60):
            document, candidate = runs[index]
            if document.id != text.id and candidate not in distractors:
                distractors.append(candidate)
                if len(distractors) == 3:
                    break
        else:
            continue
        label = len(examples) % 4
        endings = [distractor[-1] for distractor in distractors]
        endings.insert(label, run[-1])
        examples.append((text.id, run[0], tuple(endings), label))
    return examples


def same_document(texts: Sequence[Text], rng: Generator) -> list[tuple[str, str, str, str, str]]:
    # Returns (label, document id 1, document id 2, passage 1, passage 2). A passage is two sentences.
    runs = _shuffled_runs(texts, 2, rng)
    by_document: dict[str, list[tuple[str, ...]]] = {}
    for text, run in runs:
        by_document.setdefault(text.id, []).append(run)
    examples: list[tuple[str, str, str, str, str]] = []
    for text, run in runs:
        label = len(examples) % 2
        if label:
            passages = [passage for passage in by_document[text.id] if passage != run]
            if not passages:
                continue
            other = text.id
            passage = passages[int(rng.integers(len(passages)))]
        else:
            drawn = [runs[index] for index in rng.integers(0, len(runs), size=40)]
            elsewhere = [(candidate.id, found_run) for candidate, found_run in drawn if candidate.id != text.id]
            if not elsewhere:
                continue
            other, passage = elsewhere[0]
        examples.append((str(label), text.id, other, " ".join(run), " ".join(passage)))
    return examples


def truecasing(texts: Sequence[Text], rng: Generator) -> list[TaggedExample]:
    examples = []
    for text, (sentence,) in _shuffled_runs(texts, 1, rng):
        tagged = []
        before = ""
        for word in WORD.findall(sentence):
            is_capital = word[0].isupper() and len(word) > 1
            # Any word has a capital at the start of a sentence or quotation, so only words after a word or comma count.
            follows_word = before != "" and (before[-1].isalnum() or before == ",")
            tagged.append((word.lower(), "B-CAP" if is_capital and follows_word else "O"))
            before = word
        if any(tag == "B-CAP" for _, tag in tagged):
            examples.append((text.id, tagged))
    return examples


def cloze(texts: Sequence[Text], rng: Generator) -> list[ClozeExample]:
    examples = []
    for text, run in _shuffled_runs(texts, CLOZE_SENTENCES, rng):
        context = " ".join(run)
        sentence = int(rng.integers(CLOZE_SENTENCES))
        words = run[sentence].split()
        counts = Counter(context.split())
        positions = []
        # The answer must not be the first or last word, and must occur only once in the paragraph.
        for position, word in enumerate(words[1:-1], start=1):
            if word.isalpha() and len(word) > 3 and counts[word] == 1:
                positions.append(position)
        if not positions:
            continue
        position = int(rng.choice(positions))
        answer = words[position]
        start = len(" ".join([*run[:sentence], *words[:position]])) + 1
        words[position] = CLOZE_PLACEHOLDER
        examples.append((text.id, context, " ".join(words), answer, start))
    return examples


def _write_table(folder: Path, split: str, lines: Sequence[Sequence[str]]) -> None:
    text = "".join("\t".join(field.replace("\t", " ") for field in line) + "\n" for line in lines)
    (folder / f"{split}.tsv").write_text(text, encoding="utf-8", newline="\n")


def _write_cola(folder: Path, split: str, examples: list[tuple[str, str, str]]) -> None:
    _write_table(folder, split, [(document, label, "", sentence) for document, label, sentence in examples])


def _write_mrpc(folder: Path, split: str, examples: list[tuple[str, str, str, str, str]]) -> None:
    _write_table(folder, split, [("Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"), *examples])


def _write_swag(folder: Path, split: str, examples: list[tuple[str, str, tuple[str, ...], int]]) -> None:
    name = {"train": "train", "dev": "val"}[split]
    with open(folder / f"{name}.csv", "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["", "video-id", "sent1", "sent2", *(f"ending{number}" for number in range(4)), "label"])
        for number, (document, context, endings, label) in enumerate(examples):
            writer.writerow([number, document, context, "", *endings, label])


def _write_conll(folder: Path, split: str, examples: list[TaggedExample]) -> None:
    by_document: dict[str, list[str]] = {}
    for document, words in examples:
        lines = by_document.setdefault(document, ["-DOCSTART- -X- -X- O", ""])
        for word, tag in words:
            lines.append(f"{word} - - {tag}")
        lines.append("")
    name = {"train": "train", "dev": "valid"}[split]
    text = "\n".join(chain.from_iterable(by_document.values())) + "\n"
    (folder / f"{name}.txt").write_text(text, encoding="utf-8", newline="\n")


def _write_squad(folder: Path, split: str, examples: list[ClozeExample]) -> None:
    articles: dict[str, dict] = {}
    for number, (document, context, question, text, start) in enumerate(examples):
        identifier = f"{split}-{number}"
        answer = {"text": text, "answer_start": start}
        entry = {"id": identifier, "question": question, "answers": [answer]}
        article = articles.setdefault(document, {"title": document, "paragraphs": []})
        paragraph = {"context": context, "qas": [entry]}
        article["paragraphs"].append(paragraph)
    data = list(articles.values())
    content = json.dumps({"version": "1.1", "data": data}, ensure_ascii=False)
    path = folder / f"{split}-v1.1.json"
    path.write_text(content, encoding="utf-8")


WRITERS: dict[str, tuple[Callable, Callable]] = {
    "word_swap": (word_swap, _write_cola),
    "next_sentence_choice": (next_sentence_choice, _write_swag),
    "truecasing": (truecasing, _write_conll),
    "cloze": (cloze, _write_squad),
    "same_document": (same_document, _write_mrpc),
}
