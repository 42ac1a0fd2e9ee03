"""Tagging: a label for every word (CoNLL-2003 as in the BERT paper, section 5.3; Universal Dependencies)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby

import numpy as np
from tokenizers import Tokenizer

from pipeline_src.base.progress import log
from pipeline_src.tasks.conll import TaggedSentence
from pipeline_src.tasks.features import NO_TAG, Features, TokenFeatures, encode
from pipeline_src.tasks.metrics import (
    BootstrapStatistics,
    majority_score,
    overlap_f1_statistics,
    ratio_statistics,
)
from pipeline_src.tasks.task import ExampleResult, Prediction, Rows, Task
from pipeline_src.tokenizer.load import kind_of
from pipeline_src.tokenizer.special_tokens import read_templates

# Maximum fraction of a window that earlier sentences of the same document may fill as context.
MAX_CONTEXT = 1 / 4

# For each sentence, the tag of each word.
Tags = Sequence[Sequence[str]]


def entities(tags: Sequence[str]) -> set[tuple[str, int, int]]:
    """Return the set of (type, first word, last word) of the entities in IOB or IOBES tags.

    As in conlleval, an I- or E- tag that does not continue an entity of the same type begins a new entity.
    """
    spans: list[tuple[str, int, int]] = []
    previous = "O"
    for position, tag in enumerate(tags):
        continues = tag[0] in "IE" and previous[0] in "BI" and tag[2:] == previous[2:]
        if continues:
            entity, first, _ = spans[-1]
            spans[-1] = (entity, first, position)
        elif tag != "O":
            spans.append((tag[2:], position, position))
        previous = tag
    return set(spans)


def _word_accuracy_statistics(gold: Tags, systems: Sequence[Tags]) -> BootstrapStatistics:
    correct = []
    for tags in systems:
        equal = [sum(map(str.__eq__, *pair)) for pair in zip(gold, tags, strict=True)]
        correct.append(np.array(equal))
    return ratio_statistics(correct, np.array([float(len(tags)) for tags in gold]))


def _entity_statistics(gold: Tags, systems: Sequence[Tags]) -> BootstrapStatistics:
    true = [entities(tags) for tags in gold]
    rows = []
    for sentences in systems:
        # True positives, predictions and gold entities of each sentence.
        predicted = [entities(tags) for tags in sentences]
        counts = [(len(a & b), len(b), len(a)) for a, b in zip(true, predicted, strict=True)]
        rows.append(np.array(counts, float))
    return overlap_f1_statistics(rows)


METRICS: dict[str, Callable[[Tags, Sequence[Tags]], BootstrapStatistics]] = {
    "entity_f1": _entity_statistics,
    "accuracy": _word_accuracy_statistics,
}


class Tagging(Task):
    """A label for every word. No evaluation set of this kind has a test file."""

    head = "token"

    @property
    def num_outputs(self) -> int:
        return len(self.spec.labels)

    def features(self, examples: Sequence[TaggedSentence], tokenizer: Tokenizer, max_length: int) -> TokenFeatures:
        """Make windows of at most ``max_length`` tokens: [CLS] context sentences, tagged sentences [SEP].

        Each window is filled with complete sentences of one document ("the maximal document context"; BERT paper,
        section 5.3). Context sentences precede the tagged sentences in the document; their tags are not predicted in
        this window. Every word's tag is predicted once, at the word's first token.

        A word without tokens becomes [UNK]. A word longer than a window is truncated. A sentence longer than a window
        is split between words.
        """
        template = read_templates(tokenizer).single
        kind = kind_of(tokenizer)
        unknown = kind.id_of(tokenizer, kind.unk)
        room = max_length - template.size
        counts: Counter[str] = Counter()
        parts = _sentence_parts(examples, _word_tokens(examples, tokenizer, unknown, room, counts), room, counts)
        ids: list[int] = []
        # For each token, the index of the word whose tag is predicted there, or -1.
        word: list[int] = []
        cu_seqlens = [0]
        first_examples = []
        for _, document in groupby(parts, lambda part: examples[part.example].document):
            for context, tagged in _windows(list(document), room):
                inner: list[int] = []
                for part in (*context, *tagged):
                    inner += chain.from_iterable(part.words)
                ids += template.apply(inner)[0]
                context_length = sum(part.tokens for part in context)
                word += [-1] * (len(template.special_ids[0]) + context_length)
                for part in tagged:
                    for number, tokens in enumerate(part.words, start=part.first):
                        # The tag is predicted at the word's first token.
                        word += [number] + [-1] * (len(tokens) - 1)
                word += [-1] * len(template.special_ids[1])
                cu_seqlens.append(len(ids))
                first_examples.append(tagged[0].example)
        # Unary plus drops reasons with a count of 0.
        reasons = dict(sorted((+counts).items()))
        for reason, count in reasons.items():
            log.info("%s: %d %s", self.spec.name, count, reason)
        word_index = np.array(word, np.int64)
        tags: list[int] = []
        for example in examples:
            tags += self._tag_indices(example)
        return TokenFeatures(
            ids=np.array(ids, np.int32),
            segments=np.zeros(len(ids), np.int8),
            cu_seqlens=np.array(cu_seqlens, np.int64),
            labels=np.where(word_index >= 0, np.array(tags, np.int64)[word_index], NO_TAG),
            example=np.array(first_examples, np.int64),
            counts=reasons,
            word=word_index,
        )

    def _tag_indices(self, example: TaggedSentence) -> list[int]:
        if not example.tags:
            return [NO_TAG] * len(example.words)
        return [self.spec.labels.index(tag) for tag in example.tags]

    def predict(self, examples: Sequence[TaggedSentence], features: Features, outputs: np.ndarray) -> list[Prediction]:
        """Make predictions from a model's outputs: logits, float [tokens, tags].

        ``prediction`` has a tag for every word. ``confidence`` is the mean probability of these tags.
        """
        return [
            {"id": example.id, "prediction": tags, "confidence": float(probabilities.mean())}
            for example, tags, probabilities in self._best_tags(examples, features, outputs)
        ]

    def answers(
        self,
        examples: Sequence[TaggedSentence],
        features: Features,
        outputs: np.ndarray,
        threshold: float | None = None,
    ) -> list[Prediction]:
        # As in `predict`, but with the probability of each word's tag ("probabilities") instead of their mean.
        return [
            {"id": example.id, "prediction": tags, "probabilities": probabilities.tolist()}
            for example, tags, probabilities in self._best_tags(examples, features, outputs)
        ]

    def _best_tags(
        self, examples: Sequence[TaggedSentence], features: Features, outputs: np.ndarray
    ) -> Iterator[tuple[TaggedSentence, list[str], np.ndarray]]:
        # Yields (sentence, the most probable tag of each word, their probabilities).
        assert isinstance(features, TokenFeatures)
        self.check_outputs(outputs, (len(features.ids), self.num_outputs))
        tagged = features.word >= 0
        # Logits in the order of the words, [words, tags].
        in_order = np.argsort(features.word[tagged])
        logits = outputs[tagged][in_order].astype(float)
        best = logits.argmax(axis=1)
        highest = logits.max(axis=1, keepdims=True)
        probability = 1 / np.exp(logits - highest).sum(axis=1)
        first = 0
        for example in examples:
            words = slice(first, first + len(example.words))
            tags = [self.spec.labels[tag] for tag in best[words]]
            yield example, tags, probability[words]
            first = words.stop

    def _tags(self, examples: Sequence[TaggedSentence], predictions: Rows) -> list[list[str]]:
        values = [row["prediction"] for row in self.align(examples, predictions)]
        for example, value in zip(examples, values, strict=True):
            if len(value) != len(example.words) or not set(value) <= set(self.spec.labels):
                raise self.not_a_prediction(value, f"a tag for each of the {len(example.words)} words")
        return values

    def statistics(
        self, eval_set: str, examples: Sequence[TaggedSentence], systems: Sequence[Rows]
    ) -> dict[str, BootstrapStatistics]:
        gold = [example.tags for example in examples]
        predicted = [self._tags(examples, rows) for rows in systems]
        return {metric: METRICS[metric](gold, predicted) for metric in self.spec.eval_set(eval_set).metrics}

    def group(self, example: TaggedSentence) -> int:
        return example.document

    def majority_baseline(self, eval_set: str, examples: Sequence[TaggedSentence]) -> dict[str, float]:
        # Every word gets the most frequent tag. If this tag is O, no entity is predicted.
        tags = list(chain.from_iterable(example.tags for example in examples))
        return {metric: majority_score(metric, tags) for metric in self.spec.eval_set(eval_set).metrics}

    def example_results(
        self, eval_set: str, examples: Sequence[TaggedSentence], predictions: Rows
    ) -> list[ExampleResult]:
        rows = self.align(examples, predictions)
        return [
            ExampleResult(
                id=example.id,
                text=" ".join(example.words),
                words=len(example.words),
                gold=" ".join(example.tags),
                predicted=" ".join(tags),
                right=sum(map(str.__eq__, example.tags, tags)) / len(tags),
                confidence=row.get("confidence"),
            )
            for example, tags, row in zip(examples, self._tags(examples, predictions), rows, strict=True)
        ]


@dataclass(frozen=True)
class SentencePart:
    """A whole sentence, or one part of a sentence that is longer than a window.

    Attributes:
        example: index of the sentence.
        first: index of the part's first word among the words of all sentences.
        words: for each word, its token ids, of which there is at least one.
    """

    example: int
    first: int
    words: list[list[int]]

    @property
    def tokens(self) -> int:
        return sum(map(len, self.words))


def _word_tokens(
    examples: Sequence[TaggedSentence], tokenizer: Tokenizer, unknown: int, room: int, counts: Counter[str]
) -> dict[str, list[int]]:
    # Returns word -> its 1 to `room` token ids, for each distinct word. `unknown` is the id of [UNK].
    frequencies = Counter(chain.from_iterable(example.words for example in examples))
    ids = {}
    for word, tokens in zip(frequencies, encode(tokenizer, list(frequencies)), strict=True):
        if not tokens:
            counts["words without a token, read as [UNK]"] += frequencies[word]
            tokens = [unknown]
        if len(tokens) > room:
            counts["words longer than a window, cut"] += frequencies[word]
        ids[word] = tokens[:room]
    return ids


def _sentence_parts(
    examples: Sequence[TaggedSentence], tokens: dict[str, list[int]], room: int, counts: Counter[str]
) -> Iterator[SentencePart]:
    # Splits sentences of more than `room` tokens. `tokens`: word -> token ids.
    first = 0
    for number, example in enumerate(examples):
        words: list[list[int]] = []
        size = 0
        is_split = False
        for word in example.words:
            if size + len(tokens[word]) > room:
                yield SentencePart(number, first, words)
                first += len(words)
                words = []
                size = 0
                is_split = True
            words.append(tokens[word])
            size += len(tokens[word])
        yield SentencePart(number, first, words)
        first += len(words)
        counts["sentences longer than a window, cut between words"] += is_split


def _windows(
    parts: Sequence[SentencePart], room: int
) -> Iterator[tuple[Sequence[SentencePart], Sequence[SentencePart]]]:
    # Yields (context parts, tagged parts) for each window of a document.
    first = 0
    while first < len(parts):
        begin = first
        size = 0
        # The first tagged part must fit, so the context gets only the room that this part leaves.
        max_context = min(int(room * MAX_CONTEXT), room - parts[first].tokens)
        while begin and size + parts[begin - 1].tokens <= max_context:
            begin -= 1
            size += parts[begin].tokens
        last = first
        while last < len(parts) and size + parts[last].tokens <= room:
            size += parts[last].tokens
            last += 1
        yield parts[begin:first], parts[first:last]
        first = last
