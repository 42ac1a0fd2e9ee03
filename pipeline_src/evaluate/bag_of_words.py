"""Bag-of-words baseline for every kind of task: models that ignore the order of words.

Such models are strong baselines (Wang and Manning 2012, "Baselines and Bigrams"):

- Classes, endings and answers: each candidate is a bag of named features, scored by a logistic regression that is
  fitted to the task's training file.
- Tags: a word gets its most frequent tag. The rule for unseen words is chosen on held-out training examples.
- Similarity of two texts: tf-idf cosine of their character n-grams.
- Retrieval: BM25 (Robertson and Zaragoza 2009, section 3), with Lucene's constants.

Words are lower-cased for classes, endings and retrieval, but not for tags and answers. Keeping the case gains 2 to 3
points for tags and 2 for answers. For classes and endings, it changes scores by less than two points on nine tasks.
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
from pipeline_src.tasks.examples import labelled_part
from pipeline_src.tasks.multilabel import MultiLabel
from pipeline_src.tasks.retrieval import rank_passages
from pipeline_src.tasks.tagging import METRICS as TAG_METRICS
from pipeline_src.tasks.task import Prediction

# Constants of BM25: saturation of a word's frequency (k1), and strength of the length normalisation (b).
K1 = 1.2
B = 0.75
# More examples than this do not help the linear model.
MAX_EXAMPLES = 20_000
_WORD = re.compile(r"\w+")
Bag = dict[str, float]
Examples = Sequence[Any]


def predict(spec: TaskSpec, training: Examples, examples: Examples) -> list[Prediction]:
    """Fit the baseline to ``training``, and predict ``examples`` in the same format as a model."""
    # Of a larger file, a random part is read, since its rows may be sorted by label.
    part = labelled_part(spec.name, "bag of words", training, MAX_EXAMPLES)
    predictions = PREDICT[spec.kind](spec, part, examples)
    return [{"id": example.id, "prediction": value} for example, value in zip(examples, predictions, strict=True)]


def applies(spec: TaskSpec) -> bool:
    # Returns whether the task has a bag-of-words baseline. Tasks with unanswerable questions have none.
    return not spec.unanswerable


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


def _fitted(bags: Sequence[Bag], labels: list[Any]) -> Callable[[Sequence[Bag]], np.ndarray]:
    # Fits a logistic regression, and returns its function from bags to log odds, [bags, classes]. It has two columns if
    # there are two classes.
    from sklearn.feature_extraction import DictVectorizer
    from sklearn.linear_model import LogisticRegression

    if len(set(labels)) < 2 or not any(bags):
        # There is nothing to learn, so the most frequent label is always predicted.
        classes = sorted(set(labels))
        constant = np.array([[float(labels.count(label)) for label in classes]])
        return lambda bags: np.repeat(constant, len(bags), axis=0)
    # Words that are not in the training file are ignored.
    vectorizer = DictVectorizer()
    model = LogisticRegression(C=1.0, max_iter=200).fit(vectorizer.fit_transform(bags), labels)

    def log_odds(bags: Sequence[Bag]) -> np.ndarray:
        values = model.decision_function(vectorizer.transform(bags))
        return np.column_stack([-values, values]) if values.ndim == 1 else values

    return log_odds


def _bag(*texts: str) -> Bag:
    # Returns features for the words of each text and the words that two texts share. Texts "a b" and "b c" have the
    # features "0 a", "0 b", "1 b", "1 c", "both b" and the share of shared words.
    bags = [set(_words(text)) for text in texts]
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
    # Returns tf-idf cosines, scaled to `limits`. The training examples only provide document frequencies.
    from sklearn.feature_extraction.text import TfidfVectorizer

    low, high = limits
    texts = list(chain.from_iterable(example.texts for example in training))
    if not any(map(str.strip, texts)):
        return [low] * len(examples)
    vectorizer = TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 4), sublinear_tf=True)
    vectorizer.fit(texts)
    first, second = zip(*(example.texts for example in examples), strict=True)
    # The vectors have length 1, so the cosine is the dot product.
    products = vectorizer.transform(first).multiply(vectorizer.transform(second))
    cosines = np.asarray(products.sum(1)).ravel()
    return (low + (high - low) * cosines).clip(low, high).tolist()


def _label_sets(spec: TaskSpec, training: Examples, examples: Examples) -> list[list[str]]:
    from sklearn.feature_extraction import DictVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.pipeline import make_pipeline

    # Two examples without words, with no label and with all, make sure that both states of each label occur.
    bags = [*(_bag(*example.texts) for example in training), {"empty": 1.0}, {"empty": 1.0}]
    size = len(spec.labels)
    labels = np.array([*gold_labels(training), [False] * size, [True] * size])
    model = make_pipeline(DictVectorizer(), OneVsRestClassifier(LogisticRegression(C=1.0, max_iter=200)))
    model.fit(bags, labels)
    log_odds = model.decision_function([_bag(*example.texts) for example in examples])

    # The threshold is the best on the examples themselves, so that models, which have theirs from the first evaluation
    # set, get no advantage.
    task = MultiLabel(spec)
    undecided = {"": task.predict(examples, None, log_odds)}
    return [row["prediction"] for row in task.decide(examples, undecided)[""]]


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
    # The most frequent tag of each training word, both as written and in lower case. If tags are equally frequent, the
    # tag that is most frequent among words seen once wins, because most ties occur at rare words.

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
        # `rule`: one of UNSEEN_WORD_RULES. It applies to words that the training examples do not have in this spelling.
        in_lower_case, new = rule
        unseen = self.lower_case if in_lower_case else {}
        return [self.as_written.get(word) or unseen.get(word.lower(), self.new_word_tags[new]) for word in words]


# A rule for words that were not seen as written: (whether to look the word up in lower case, the group of words whose
# most frequent tag is the fallback). Lower case helps for "THE" ("the"), but not for "Bill" ("bill"), so the rule is
# chosen for each task.
UNSEEN_WORD_RULES = tuple(product((True, False), ("words seen once", "all words")))


def _tags(spec: TaskSpec, training: Examples, examples: Examples) -> list[list[str]]:
    rule = _best_rule(spec, training)
    table = TagTable(training)
    return [table.tag(example.words, rule) for example in examples]


def _best_rule(spec: TaskSpec, training: Examples) -> tuple[bool, str]:
    # Returns the rule with the best score on the last tenth of the training examples. The table is made from the first
    # nine tenths.
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
        # Words keep their case. Capitalised words such as names and sentence starts are answers more or less often than
        # other words.
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
    # CountVectorizer raises an error if the corpus has no words, so one word is added.
    vectorizer = CountVectorizer(analyzer=_words).fit([*corpus, "a"])
    # Sparse matrix of word counts in each passage. Below, each count is replaced by the word's BM25 weight.
    weights = vectorizer.transform(corpus).astype(float).tocoo()
    lengths = np.bincount(weights.row, weights.data, len(corpus))
    num_passages = np.bincount(weights.col)

    # The BM25 weight is higher for rare words, grows ever more slowly with the count, and is lower in long passages.
    idf = np.log1p((len(corpus) - num_passages + 0.5) / (num_passages + 0.5))
    norms = K1 * (1 - B + B * lengths / max(lengths.mean(), 1))
    weights.data *= idf[weights.col] * (K1 + 1) / (weights.data + norms[weights.row])

    queries = vectorizer.transform([example.query for example in examples])
    return rank_passages(queries, weights.tocsr())


# Kind of task -> function that fits a model to the training examples and returns a prediction for each example.
PREDICT: dict[str, Callable[[TaskSpec, Examples, Examples], list[Any]]] = {
    "classification": _classes,
    "multilabel": _label_sets,
    "choice": _choices,
    "tagging": _tags,
    "span": _answers,
    "retrieval": _rankings,
}
