"""What a study has to look into a model with: its own text, and the tagged words of its tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from tokenizers.pre_tokenizers import BertPreTokenizer

from pipeline_src.common.paths import TASKS, TEXT
from pipeline_src.corpus.documents import Document, corpus_folders, read_documents
from pipeline_src.corpus.sentences import split_sentences
from pipeline_src.corpus.validation_split import in_validation_split
from pipeline_src.interpretation.word_vectors import Sentence
from pipeline_src.tasks.files.conll import read_sentences
from pipeline_src.tasks.files.spec import TaskSpec, load_spec

A_DOCUMENT = 20  # sentences taken of one, so that many have a say
SHORTEST, LONGEST = 4, 60  # words of a sentence of text
TAGGED = {"train": 20_000, "test": 6_000}  # words of a tagging task, at most


@dataclass(frozen=True)
class Texts:
    """Sentences of running text, ``books`` or ``wikipedia`` the source of each."""

    sentences: list[Sentence]
    sources: list[str]


@dataclass(frozen=True)
class Tagged:
    """Sentences with a tag for each word."""

    sentences: list[Sentence]
    tags: list[tuple[str, ...]]


def read_texts(parts: Sequence[str], words: int, seed: int, validation: float) -> tuple[Texts, Texts]:
    """Text of training documents, ``words`` of them at most, and a quarter as much of validation documents.

    Each source gives half, from its beginning on, a few sentences of each document.
    """
    found = Texts([], []), Texts([], [])
    folders = corpus_folders(TEXT, parts)
    for folder in folders:
        source = "books" if folder.name == "books" else "wikipedia"
        share = 2 if source == "books" else 2 * (len(folders) - 1)
        left = [words // share, words // 4 // share]
        for document in read_documents(folder):
            which = int(in_validation_split(document.id, seed, validation))
            if left[which] > 0:
                for sentence in islice(_sentences(document), A_DOCUMENT):
                    found[which].sentences.append(sentence)
                    found[which].sources.append(source)
                    left[which] -= len(sentence.words)
            elif max(left) <= 0:
                break
    return found


def _sentences(document: Document) -> Iterator[Sentence]:
    split = BertPreTokenizer().pre_tokenize_str
    for paragraph in document.text.split("\n"):
        for text in split_sentences(paragraph):
            words = tuple(word for word, _ in split(text))
            if SHORTEST <= len(words) <= LONGEST:
                yield Sentence(words, document.id)


def tagging_files(task: str) -> tuple[TaskSpec, Path, Path]:
    """The declaration of a tagging task of the study, its training file and the first that it is scored on."""
    spec = load_spec(task)
    return spec, TASKS / task / spec.train, TASKS / task / next(iter(spec.scores.values())).file


def read_tagged(spec: TaskSpec, path: Path, words: int) -> Tagged:
    """Sentences of a tagging file from its beginning, up to so many words."""
    found = Tagged([], [])
    for example in read_sentences(spec, path):
        if words <= 0:
            break
        found.sentences.append(Sentence(example.words, str(example.document)))
        found.tags.append(example.tags)
        words -= len(example.words)
    return found
