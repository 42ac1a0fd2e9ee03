"""Inputs of the measures: the study's model, sentences of its corpus, and data of its tagging tasks."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from pipeline_src.base.paths import TASKS, TEXT
from pipeline_src.interpret.heads import Tree, read_trees
from pipeline_src.interpret.model import ProbedModel, Sentence, SkipMeasure
from pipeline_src.study.interpretation import InterpretationParams
from pipeline_src.study.task_spec import TaskSpec, load_spec
from pipeline_src.tasks.conll import read_sentences
from pipeline_src.text.documents import Document, corpus_folders, in_validation_split, language_of, read_documents
from pipeline_src.text.sentences import split_sentences

# Maximum number of sentences from a document, and minimum and maximum number of words in a sentence.
MAX_SENTENCES = 20
MIN_WORDS, MAX_WORDS = 4, 60
# Maximum number of words that are read from a tagging task's training file and test file.
MAX_TRAIN_WORDS, MAX_TEST_WORDS = 20_000, 6_000


class LabelledSentences(NamedTuple):
    sentences: list[Sentence]
    labels: list[list[int]]


class TagSet(NamedTuple):
    num_tags: int
    train: LabelledSentences
    test: LabelledSentences


def read_texts(
    names: Collection[str], words: int, seed: int, validation: float
) -> tuple[list[Sentence], list[Sentence]]:
    """Read sentences from the start of the corpus documents.

    Args:
        names: the sources, which have equal shares.
        words: approximate number of words in the sentences of training documents.
        validation: fraction of documents in the validation split.

    Returns:
        Sentences of training documents, and sentences of validation documents with about a quarter of the words.
    """
    sides: tuple[list[Sentence], list[Sentence]] = [], []
    for folder in corpus_folders(TEXT, names).values():
        language = language_of(folder)
        # Number of words that are still needed from this source, for training and for validation.
        missing = [words // len(names), words // 4 // len(names)]
        for document in read_documents(folder):
            side = int(in_validation_split(document.id, seed, validation))
            if missing[side] > 0:
                sentences = list(islice(_sentences(document, language), MAX_SENTENCES))
                sides[side].extend(sentences)
                missing[side] -= sum(len(sentence.words) for sentence in sentences)
            elif max(missing) <= 0:
                break
    return sides


def _sentences(document: Document, language: str) -> Iterator[Sentence]:
    for paragraph in document.text.split("\n"):
        for text in split_sentences(paragraph, language):
            sentence = Sentence.of_text(text, document.id)
            if MIN_WORDS <= len(sentence.words) <= MAX_WORDS:
                yield sentence


def read_tagged(spec: TaskSpec, path: Path, max_words: int) -> LabelledSentences:
    number_of = {tag: number for number, tag in enumerate(spec.labels)}
    result = LabelledSentences([], [])
    for example in read_sentences(spec, path):
        if max_words <= 0:
            break
        result.sentences.append(Sentence(example.words, str(example.document)))
        result.labels.append([number_of[tag] for tag in example.tags])
        max_words -= len(example.words)
    return result


@dataclass
class InterpretationContext:
    """Inputs of one study's measures. Each is loaded on first use, and raises SkipMeasure if it is missing."""

    seed: int
    params: InterpretationParams
    sources: tuple[str, ...]
    validation: float
    tasks: tuple[str, ...]
    folder: Path
    position_init: str

    @cached_property
    def model(self) -> ProbedModel:
        return ProbedModel.open(self.folder)

    @cached_property
    def control(self) -> ProbedModel:
        return self.model.with_random_weights(self.seed, position_init=self.position_init)

    def param(self, name: str) -> Any:
        # Returns a value of the parameter block `interpretation`. If it is empty or 0, the measure is skipped.
        value = getattr(self.params, name)
        if not value:
            raise SkipMeasure(f"interpretation.{name} is {'empty' if value == () else value}")
        return value

    @cached_property
    def texts(self) -> tuple[list[Sentence], list[Sentence]]:
        train, test = read_texts(self.sources, self.param("words"), self.seed, self.validation)
        if not train or not test:
            raise SkipMeasure("the corpus has no training documents or no validation documents")
        return train, test

    @cached_property
    def specs(self) -> dict[str, TaskSpec]:
        # The study's tasks that interpretation.tags names.
        return {task: load_spec(task) for task in self.params.tags if task in self.tasks}

    @cached_property
    def tagged(self) -> dict[str, TagSet]:
        tagged = {}
        for task, spec in self.specs.items():
            if spec.kind == "tagging":
                train = read_tagged(spec, TASKS / task / spec.train, MAX_TRAIN_WORDS)
                test = read_tagged(spec, _scored_file(task, spec), MAX_TEST_WORDS)
                tagged[task] = TagSet(len(spec.labels), train, test)
        return tagged

    @cached_property
    def trees(self) -> list[Tree]:
        # Returns the dependency trees of the first tagging task that has any.
        for task, spec in self.specs.items():
            trees = read_trees(spec, _scored_file(task, spec)) if spec.kind == "tagging" else []
            if trees:
                return trees
        raise SkipMeasure("no tagging task of the study has dependency trees")


def _scored_file(task: str, spec: TaskSpec) -> Path:
    first = next(iter(spec.scores.values()))
    return TASKS / task / first.file
