"""Inputs of the measures: the study's model, its text, tagged words, dependency trees, and words in two senses."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from tokenizers.pre_tokenizers import BertPreTokenizer

from pipeline_src.common.paths import TASKS, TEXT
from pipeline_src.common.yaml_files import parse_yaml
from pipeline_src.config.interpretation import InterpretationParams
from pipeline_src.corpus.documents import (
    Document,
    corpus_folders,
    in_validation_split,
    language_of,
    read_documents,
)
from pipeline_src.corpus.sentences import split_sentences
from pipeline_src.interpretation.model import Sentence, StudiedModel, tokenize_words
from pipeline_src.tasks.readers import read_sentences
from pipeline_src.tasks.spec import Columns, TaskSpec, load_spec

SENTENCES_PER_DOCUMENT = 20
MIN_WORDS, MAX_WORDS = 4, 60  # of a sentence of text
TRAIN_WORDS, TEST_WORDS = 20_000, 6_000  # read of a tagging task, at most
HEAD, RELATION = 7, 8  # columns of CoNLL-U, counted from 1
TWO_CONTEXTS = Path(__file__).with_name("two_contexts.yaml")
SAME_LANGUAGE = 0.5  # of the words must occur in the other text; for the project's English sentences 0.8 do

MIN_OCCURRENCES = 6  # of a word in each sense
MAX_PER_SOURCE = 12  # occurrences of a word in each source
MIN_DOCUMENTS = 2  # that a word occurs in, per source: neighbours never share a document
NUM_SENTENCES, NUM_WORDS = 4, 5  # shown on the page
MIN_SHOWN_WORDS, MAX_SHOWN_WORDS = 6, 12  # of a sentence that fits on a screen


class Skipped(Exception):
    """Raised if a model or a study lacks what a measure needs; the text completes "MEASURE left out: …"."""


@dataclass(frozen=True)
class Texts:
    """Sentences of running text, and the name of the source of each."""

    sentences: list[Sentence]
    sources: list[str]


@dataclass(frozen=True)
class Tagged:
    """Sentences with a tag for each word."""

    sentences: list[Sentence]
    tags: list[tuple[str, ...]]


@dataclass(frozen=True)
class Tree:
    """A sentence with, for each word, the index of its head (-1 for the root) and its relation."""

    sentence: Sentence
    heads: tuple[int, ...]
    relations: tuple[str, ...]

    def dependents(self) -> Iterator[tuple[int, int, str]]:
        """Yield each word with its head and relation, except the root and punctuation."""
        for word, (head, relation) in enumerate(zip(self.heads, self.relations, strict=True)):
            if head >= 0 and relation != "punct":
                yield word, head, relation


class WordSenses(NamedTuple):
    """Sentences, and for some words their sense in the sentences with the given indices."""

    sentences: list[Sentence]
    senses: dict[str, dict[int, str]]


def words_of(text: str) -> tuple[str, ...]:
    """Split a text into words and punctuation marks."""
    return tuple(word for word, _ in BertPreTokenizer().pre_tokenize_str(text))


def read_texts(names: Collection[str], words: int, seed: int, validation: float) -> tuple[Texts, Texts]:
    """Read up to ``words`` words of training documents and a quarter as many of validation documents.

    Each source gives as much: a few sentences of each document, from the first document on.
    """
    found = Texts([], []), Texts([], [])
    for source, folder in corpus_folders(TEXT, names).items():
        language = language_of(folder)
        left = [words // len(names), words // 4 // len(names)]
        for document in read_documents(folder):
            which = int(in_validation_split(document.id, seed, validation))
            if left[which] > 0:
                for sentence in islice(_sentences(document, language), SENTENCES_PER_DOCUMENT):
                    found[which].sentences.append(sentence)
                    found[which].sources.append(source)
                    left[which] -= len(sentence.words)
            elif max(left) <= 0:
                break
    return found


def _sentences(document: Document, language: str) -> Iterator[Sentence]:
    for paragraph in document.text.split("\n"):
        for words in map(words_of, split_sentences(paragraph, language)):
            if MIN_WORDS <= len(words) <= MAX_WORDS:
                yield Sentence(words, document.id)


def tagging_files(task: str) -> tuple[TaskSpec, Path, Path]:
    """Return a tagging task's specification, its training file and the first file it is scored on."""
    spec = load_spec(task)
    return spec, TASKS / task / spec.train, TASKS / task / next(iter(spec.scores.values())).file


def read_tagged(spec: TaskSpec, path: Path, words: int) -> Tagged:
    """Read the first sentences of a tagging file until they have ``words`` words."""
    found = Tagged([], [])
    for example in read_sentences(spec, path):
        if words <= 0:
            break
        found.sentences.append(Sentence(example.words, str(example.document)))
        found.tags.append(example.tags)
        words -= len(example.words)
    return found


def read_trees(spec: TaskSpec, path: Path) -> list[Tree]:
    """Read the dependency trees of a CoNLL-U file; none from a file of another format.

    Subtypes of relations, as in ``nmod:poss``, are removed. Sentences whose annotation is not a tree are left out.
    """
    if spec.format != "conllu":
        return []
    columns = [_column(spec, path, number) for number in (HEAD, RELATION)]
    trees = []
    for example, heads, relations in zip(read_sentences(spec, path), *columns, strict=True):
        valid = all(head.isdecimal() and int(head) <= len(heads) for head in heads)
        if valid and sum(head == "0" for head in heads) == 1:
            sentence = Sentence(example.words, str(example.document))
            names = tuple(relation.split(":")[0] for relation in relations)
            trees.append(Tree(sentence, tuple(int(head) - 1 for head in heads), names))
    return trees


def _column(spec: TaskSpec, path: Path, number: int) -> list[Sequence[str]]:
    """Read one column of every sentence, as if it held the words."""
    other = spec.model_copy(update={"columns": Columns(texts=(number,), label=spec.columns.label)})  # type: ignore[union-attr]
    return [example.words for example in read_sentences(other, path)]


def two_contexts() -> WordSenses:
    """Read ``two_contexts.yaml``; each sentence is a document."""
    sentences: list[Sentence] = []
    senses: dict[str, dict[int, str]] = defaultdict(dict)
    for word, by_sense in parse_yaml(TWO_CONTEXTS.read_text(encoding="utf-8")).items():
        for sense, texts in by_sense.items():
            for text in texts:
                senses[word][len(sentences)] = sense
                sentences.append(Sentence(words_of(text), str(len(sentences))))
    return WordSenses(sentences, dict(senses))


def words_of_two_sources(texts: Texts) -> WordSenses:
    """Choose the rarest words that are frequent in two sources; the source serves as the sense.

    This needs no annotation. The rarest words are chosen because their topic differs most between sources.

    Raises:
        Skipped: no word is frequent in two sources.
    """
    found: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for number, (sentence, source) in enumerate(zip(texts.sentences, texts.sources, strict=True)):
        for word in dict.fromkeys(word.lower() for word in sentence.words if word.isalpha()):
            found[word][source].append(number)
    frequent = {}
    for word, by_source in found.items():
        enough = {
            source: numbers
            for source, numbers in by_source.items()
            if len(numbers) >= MIN_OCCURRENCES
            and len({texts.sentences[number].document for number in numbers}) >= MIN_DOCUMENTS
        }
        if len(enough) > 1:
            frequent[word] = enough
    if not frequent:
        raise Skipped("no word stands often enough in two sources of the text")
    rarest = sorted(frequent, key=lambda word: (sum(map(len, frequent[word].values())), word))[:NUM_WORDS]
    sentences: list[Sentence] = []
    senses: dict[str, dict[int, str]] = {word: {} for word in rarest}
    for word in rarest:
        for source, numbers in sorted(frequent[word].items()):
            for number in numbers[:: -(-len(numbers) // MAX_PER_SOURCE)]:
                senses[word][len(sentences)] = source
                sentences.append(texts.sentences[number])
    return WordSenses(sentences, senses)


def chosen_sentences(model: StudiedModel, sentences: Sequence[Sentence]) -> list[Sentence]:
    """Choose short sentences that end in punctuation, each from another document, with the fewest subwords per word.

    Raises:
        Skipped: no such sentence is free of unknown tokens.
    """
    short = [
        each
        for each in sentences
        if MIN_SHOWN_WORDS <= len(each.words) <= MAX_SHOWN_WORDS and not each.words[-1].isalnum()
    ]
    subwords = zip(short, tokenize_words(model, short).ids if short else [], strict=True)
    found: dict[str, Sentence] = {}
    for each, ids in sorted(subwords, key=lambda pair: len(pair[1]) / len(pair[0].words)):
        if model.unknown not in ids:
            found.setdefault(each.document, each)
    if not found:
        raise Skipped("no sentence of the validation text is short and spelt by the vocabulary")
    return list(found.values())[:NUM_SENTENCES]


def same_language(sentences: Sequence[Sentence], others: Sequence[Sentence]) -> bool:
    """Return whether most words of ``sentences`` occur in ``others``."""
    known = {word.lower() for sentence in others for word in sentence.words}
    words = [word.lower() in known for sentence in sentences for word in sentence.words]
    return sum(words) >= SAME_LANGUAGE * len(words)


@dataclass
class InterpretationContext:
    """Inputs of the measures of one study; each part is loaded at its first use."""

    seed: int
    params: InterpretationParams
    sources: tuple[str, ...]
    validation: float
    tasks: tuple[str, ...]
    folder: Path
    position_init: str

    @cached_property
    def model(self) -> StudiedModel:
        """The model under study."""
        return StudiedModel.open(self.folder)

    @cached_property
    def control(self) -> StudiedModel:
        """The same architecture with random weights."""
        return self.model.with_random_weights(self.seed, position_init=self.position_init)

    @cached_property
    def texts(self) -> tuple[Texts, Texts]:
        """Sentences of training documents and of validation documents.

        Raises:
            Skipped: none are wanted, or there are none.
        """
        if not self.params.words:
            raise Skipped("interpretation.words is 0")
        train, test = read_texts(self.sources, self.params.words, self.seed, self.validation)
        if not train.sentences or not test.sentences:
            raise Skipped("the text has no training documents, or no validation documents")
        return train, test

    @property
    def contexts(self) -> WordSenses:
        """The project's words in two senses.

        Raises:
            Skipped: the study's text is in another language.
        """
        given = two_contexts()
        if self.params.words and not same_language(given.sentences, self.texts[0].sentences):
            raise Skipped("the text is of another language than the sentences of this project")
        return given

    @cached_property
    def tagged(self) -> dict[str, tuple[tuple[str, ...], Tagged, Tagged]]:
        """The tags, training sentences and test sentences of each tagging task."""
        found = {}
        for task in self._wanted_tasks():
            if load_spec(task).kind == "tagging":
                spec, train, test = tagging_files(task)
                sides = read_tagged(spec, train, TRAIN_WORDS), read_tagged(spec, test, TEST_WORDS)
                found[task] = (spec.labels, *sides)
        return found

    @property
    def untagged(self) -> dict[str, str]:
        """The reason why each wanted task that is no tagging task is skipped."""
        return {
            task: f"{task} is no tagging task" for task in self._wanted_tasks() if load_spec(task).kind != "tagging"
        }

    def _wanted_tasks(self) -> list[str]:
        return [task for task in self.params.tags if task in self.tasks]

    @cached_property
    def trees(self) -> list[Tree]:
        """Trees of the first tagging task that has any, from the file it is scored on.

        Raises:
            Skipped: no task has trees.
        """
        for task in self.tagged:
            spec, _, path = tagging_files(task)
            if trees := read_trees(spec, path):
                return trees
        raise Skipped("no tagging task of the study has dependency trees")
