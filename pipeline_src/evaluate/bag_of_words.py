"""Bag-of-words baseline: a linear model of the words of each text, without their order.

Such models are strong baselines (Wang and Manning 2012, "Baselines and Bigrams"). Each candidate answer (a class, an
ending, a word of the paragraph) is a bag of named features, and a logistic regression fitted to the task's training
file gives its log odds. A word gets the tag that it had most often, as written; the rule for words that were not seen
is the best on held-out training examples. The similarity of two texts is the tf-idf cosine of the character n-grams of
their words. Passages are ranked by BM25 (Robertson and Zaragoza 2009, section 3), with Lucene's parameters.

Words are in lower case, except where they are tagged or are answers: with case, tags gain 2 to 3 points and answers 2,
but classes and endings move by less than two points either way on nine tasks.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from itertools import chain, product
from typing import Any

import numpy as np

from pipeline_src.study.task_spec import TaskSpec
from pipeline_src.tasks.classification import gold_labels
from pipeline_src.tasks.retrieval import rank_passages
from pipeline_src.tasks.tagging import METRICS as TAG_METRICS
from pipeline_src.tasks.task import Prediction

# Parameters of BM25: saturation of a word's frequency, and how much a passage's length counts.
K1 = 1.2
B = 0.75
# More examples than this do not help the linear model.
MAX_EXAMPLES = 20_000
_WORD = re.compile(r"\w+")
Bag = dict[str, float]
Examples = Sequence[Any]


def predict(spec: TaskSpec, training: Examples, examples: Examples) -> list[Prediction]:
    """Return predictions for ``examples``, in the same format as a model's."""
    predictions = PREDICT[spec.kind](spec, training[:MAX_EXAMPLES], examples)
    return [{"id": example.id, "prediction": value} for example, value in zip(examples, predictions, strict=True)]


def applies(spec: TaskSpec) -> bool:
    # Questions that may have no answer have no such baseline.
    return not spec.unanswerable


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


def _fitted(bags: Sequence[Bag], labels: list[Any]) -> Callable[[Sequence[Bag]], np.ndarray]:
    # Returns a function from bags to log odds, [bags, classes], also for two classes.
    from sklearn.feature_extraction import DictVectorizer
    from sklearn.linear_model import LogisticRegression

    if len(set(labels)) < 2 or not any(bags):
        # There is nothing to learn: the most frequent label is always predicted.
        classes = sorted(set(labels))
        constant = np.array([[float(labels.count(label)) for label in classes]])
        return lambda bags: np.repeat(constant, len(bags), axis=0)
    # Words that are not in the training file have no weight.
    vectorizer = DictVectorizer()
    model = LogisticRegression(C=1.0, max_iter=200).fit(vectorizer.fit_transform(bags), labels)

    def log_odds(bags: Sequence[Bag]) -> np.ndarray:
        values = model.decision_function(vectorizer.transform(bags))
        return np.column_stack([-values, values]) if values.ndim == 1 else values

    return log_odds


def _bag(*texts: str) -> Bag:
    # The words of each text, and the words in both.
    bags = [set(_words(text)) for text in texts]
    # Texts "a b" and "b c": "0 a", "0 b", "1 b", "1 c" and "both b".
    bag: Bag = {}
    for index, words in enumerate(bags):
        bag.update(dict.fromkeys([f"{index} {word}" for word in words], 1.0))
    if len(bags) == 2:
        shared = bags[0] & bags[1]
        bag.update(dict.fromkeys([f"both {word}" for word in shared], 1.0))
        bag["share of words in both"] = len(shared) / (1 + min(map(len, bags)))
    return bag


def _classes(spec: TaskSpec, training: Examples, examples: Examples) -> list[Any]:
    if spec.range is not None:
        return (_similarities if spec.is_pair else _numbers)(spec.range, training, examples)
    log_odds = _fitted([_bag(*example.texts) for example in training], gold_labels(training))
    classes = sorted(set(gold_labels(training)))
    best = log_odds([_bag(*example.texts) for example in examples]).argmax(1)
    return [spec.labels[int(classes[index])] for index in best]


def _numbers(limits: tuple[float, float], training: Examples, examples: Examples) -> list[float]:
    from sklearn.feature_extraction import DictVectorizer
    from sklearn.linear_model import Ridge

    vectorizer = DictVectorizer()
    training_bags = [_bag(*example.texts) | {"constant": 1.0} for example in training]
    model = Ridge(alpha=1.0).fit(vectorizer.fit_transform(training_bags), gold_labels(training))
    bags = [_bag(*example.texts) for example in examples]
    values = model.predict(vectorizer.transform(bags))
    return values.clip(*limits).tolist()


def _similarities(limits: tuple[float, float], training: Examples, examples: Examples) -> list[float]:
    # Tf-idf cosines, scaled to the limits; only the frequencies are from the training examples.
    from sklearn.feature_extraction.text import TfidfVectorizer

    low, high = limits
    texts = list(chain.from_iterable(example.texts for example in training))
    if not any(map(str.strip, texts)):
        return [low] * len(examples)
    vectorizer = TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 4), sublinear_tf=True)
    vectorizer.fit(texts)
    first, second = zip(*(example.texts for example in examples), strict=True)
    # The vectors have length 1: the cosine is the sum of the products.
    products = vectorizer.transform(first).multiply(vectorizer.transform(second))
    cosines = np.asarray(products.sum(1)).ravel()
    return (low + (high - low) * cosines).clip(low, high).tolist()


def _choices(spec: TaskSpec, training: Examples, examples: Examples) -> list[int]:
    def bags(examples: Examples) -> list[Bag]:
        bags = []
        for example in examples:
            bags += [_bag(example.context, ending) for ending in example.endings]
        return bags

    labels = []
    for example in training:
        labels += [index == example.label for index in range(len(example.endings))]
    log_odds = _fitted(bags(training), labels)(bags(examples))[:, -1]
    return log_odds.reshape(len(examples), -1).argmax(1).tolist()


class TagTable:
    # The most frequent tag of each word of the training examples, as written and in lower case. Of equally frequent
    # tags, the one that words seen once have most often is taken: most ties are between rare words.

    def __init__(self, training: Examples) -> None:
        as_written: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for example in training:
            for word, tag in zip(example.words, example.tags, strict=True):
                as_written[word][tag] += 1
        lower_case: defaultdict[str, Counter[str]] = defaultdict(Counter)
        once: Counter[str] = Counter()
        every: Counter[str] = Counter()
        for word, counts in as_written.items():
            lower_case[word.lower()].update(counts)
            every.update(counts)
            if counts.total() == 1:
                once.update(counts)

        def most_frequent(counts: Counter[str]) -> str:
            return max(sorted(counts), key=lambda tag: (counts[tag], once[tag]))

        self.as_written = {word: most_frequent(counts) for word, counts in as_written.items()}
        self.lower_case = {word: most_frequent(counts) for word, counts in lower_case.items()}
        self.new_word_tags = {"words seen once": most_frequent(once or every), "all words": most_frequent(every)}

    def tag(self, words: Sequence[str], rule: tuple[bool, str]) -> list[str]:
        # The rule, of UNSEEN_WORD_RULES, is for words that were not seen as written.
        in_lower_case, new = rule
        unseen = self.lower_case if in_lower_case else {}
        return [self.as_written.get(word) or unseen.get(word.lower(), self.new_word_tags[new]) for word in words]


# (whether a word gets the tag that it has in lower case, the words whose most frequent tag it gets otherwise). "THE" is
# tagged as "the" is, but "Bill" is not tagged as "bill" is: each task's training file decides.
UNSEEN_WORD_RULES = tuple(product((True, False), ("words seen once", "all words")))


def _tags(spec: TaskSpec, training: Examples, examples: Examples) -> list[list[str]]:
    rule = _best_rule(spec, training)
    table = TagTable(training)
    return [table.tag(example.words, rule) for example in examples]


def _best_rule(spec: TaskSpec, training: Examples) -> tuple[bool, str]:
    # The best on the last tenth of the training examples, with a table of the others.
    cut = len(training) - len(training) // 10
    held_out = training[cut:]
    if not held_out:
        return UNSEEN_WORD_RULES[0]
    table = TagTable(training[:cut])
    systems = []
    for rule in UNSEEN_WORD_RULES:
        systems.append([table.tag(example.words, rule) for example in held_out])
    metric = spec.eval_set(None).metrics[0]
    statistics = TAG_METRICS[metric]([example.tags for example in held_out], systems)
    best = max(range(len(systems)), key=statistics.score)
    return UNSEEN_WORD_RULES[best]


def _answers(spec: TaskSpec, training: Examples, examples: Examples) -> list[str]:
    def candidates(example: Any) -> list[str]:
        return list(dict.fromkeys(_WORD.findall(example.context)))

    def bags(example: Any) -> list[Bag]:
        # As written: names and the first words of sentences are answers more, or less, often than others.
        question = Counter(_WORD.findall(example.question))
        context = Counter(_WORD.findall(example.context))
        bags = []
        for word in candidates(example):
            times = f"{min(context[word], 3)} in the text, {min(question[word], 2)} in the question"
            bags.append({times: 1.0, f"word {word}": 1.0, f"letters {min(len(word), 10)}": 1.0})
        return bags

    labels = []
    training_bags = []
    for example in training:
        answers = [answer.text for answer in example.answers]
        labels += [word in answers for word in candidates(example)]
        training_bags += bags(example)
    log_odds = _fitted(training_bags, labels)
    predictions = []
    for example in examples:
        words = candidates(example)
        predictions.append(words[int(log_odds(bags(example))[:, -1].argmax())] if words else "")
    return predictions


def _rankings(spec: TaskSpec, training: Examples, examples: Examples) -> list[list[int]]:
    from sklearn.feature_extraction.text import CountVectorizer

    corpus = examples[0].corpus
    # Without a word, CountVectorizer would raise an error.
    vectorizer = CountVectorizer(analyzer=_words).fit([*corpus, "a"])
    # How often each passage has each word. These numbers are then replaced by the words' weights in the passage.
    weights = vectorizer.transform(corpus).astype(float).tocoo()
    lengths = np.bincount(weights.row, weights.data, len(corpus))
    num_passages = np.bincount(weights.col)

    # A rare word counts more; each further occurrence in a passage, and one in a longer passage, counts less.
    idf = np.log1p((len(corpus) - num_passages + 0.5) / (num_passages + 0.5))
    norms = K1 * (1 - B + B * lengths / max(lengths.mean(), 1))
    weights.data *= idf[weights.col] * (K1 + 1) / (weights.data + norms[weights.row])

    queries = vectorizer.transform([example.query for example in examples])
    return rank_passages(queries, weights.tocsr())


# Kind of task -> function that fits the training examples and returns the prediction for each example.
PREDICT: dict[str, Callable[[TaskSpec, Examples, Examples], list[Any]]] = {
    "classification": _classes,
    "choice": _choices,
    "tagging": _tags,
    "span": _answers,
    "retrieval": _rankings,
}
