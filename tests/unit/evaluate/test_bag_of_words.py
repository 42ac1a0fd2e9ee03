"""The bag-of-words baseline, for every kind of task."""

import math
from types import SimpleNamespace
from typing import Any

import pytest

from pipeline_src.evaluate.bag_of_words import MAX_EXAMPLES, applies, predict
from pipeline_src.study.task_spec import TaskSpec, load_spec
from pipeline_src.tasks.queries import Query


def example(number: int, label: Any, *texts: str) -> SimpleNamespace:
    return SimpleNamespace(id=str(number), texts=texts, label=label)


def test_bag_of_words_regression_stays_within_range():
    training = [example(n, 5.0 * (n % 2), "good" if n % 2 else "bad", "film") for n in range(40)]
    spec = load_spec("stsb").model_copy(update={"columns": load_spec("cola").columns})  # of one text
    rows = predict(spec, training, [example(0, 0, "good", "film"), example(1, 0, "bad", "film")])
    good, bad = (row["prediction"] for row in rows)
    assert 0 <= bad < 1 < 4 < good <= 5


@pytest.mark.parametrize("trained", ["a film about cats", " "])
def test_bag_of_words_similarity_weights_rare_words(trained):
    training = [example(n, 0.0, trained, trained) for n in range(3)]  # labels are not read
    pairs = [("a film", "a film"), ("a wombat", "the wombats"), ("a film", "the wombats"), ("?", "")]
    rows = predict(load_spec("stsb"), training, [example(n, 0, *texts) for n, texts in enumerate(pairs)])
    same, close, far, none = (row["prediction"] for row in rows)
    assert (0 <= far < close < same <= 5 and same == pytest.approx(5)) if trained.strip() else same == none == 0


@pytest.mark.parametrize(
    ("texts", "labels"),
    [(["a b", "c"], [1, 1]), (["?", "!"], [1, 1]), (["?", "!", "."], [1, 1, 0])],
    ids=["one label", "no words", "no words, two labels"],
)
def test_bag_of_words_without_features_predicts_most_frequent_label(texts, labels):
    training = [example(n, label, text) for n, (text, label) in enumerate(zip(texts, labels, strict=True))]
    (row,) = predict(load_spec("cola"), training, [example(9, 0, "a")])
    assert row == {"id": "9", "prediction": load_spec("cola").labels[1]}


TOPICS = TaskSpec.model_validate(
    {
        "name": "topics",
        "kind": "multilabel",
        "labels": ["sport", "money", "art"],
        "columns": {"texts": ["text"], "labels": ["topics"]},
        "scores": {"topics": {"title": "Topics", "file": "dev.jsonl", "metrics": ["subset_accuracy"]}},
    }
)
GOAL, BANK, BOTH, NEITHER = ("goal", (1, 0, 0)), ("bank", (0, 1, 0)), ("goal bank", (1, 1, 0)), ("town", (0, 0, 0))


def test_bag_of_words_predicts_every_label_whose_words_are_there():
    """One training text in ten has a label, and none has the third."""
    training = [example(n, labels, text) for n, (text, labels) in enumerate([GOAL, BANK, BOTH, *27 * [NEITHER]] * 4)]
    scored = [example(n, labels, text) for n, (text, labels) in enumerate([NEITHER, BOTH, BANK])]
    rows = predict(TOPICS, training, scored)
    assert [row["prediction"] for row in rows] == [[], ["sport", "money"], ["money"]]


@pytest.mark.parametrize("texts", [("?", "!"), ("a", "b")])
def test_bag_of_words_label_of_all_or_no_training_texts_is_constant(texts):
    training = [example(n, (True, False, False), text) for n, text in enumerate(texts * 5)]
    (row,) = predict(TOPICS, training, [example(9, (True, False, False), "new")])
    assert row == {"id": "9", "prediction": ["sport"]}


def test_bag_of_words_of_large_sorted_file_learns_every_label():
    texts = ["bad film"] * (MAX_EXAMPLES + 1) + ["fine film"] * MAX_EXAMPLES
    training = [example(n, int("fine" in text), text) for n, text in enumerate(texts)]
    scored = [example(0, 0, "bad"), example(1, 0, "fine")]
    rows = predict(load_spec("cola"), training, scored)
    assert [row["prediction"] for row in rows] == ["0", "1"]
    assert rows == predict(load_spec("cola"), training, scored)


def test_bag_of_words_of_largest_file_reads_all_rows_in_order():
    """The last tenth of the rows decides the rule for unseen words."""
    seen = [tagged("mill/O", "Rome/B-LOC", f"City{number}/B-LOC") for number in range(MAX_EXAMPLES - 2000)]
    for tag in ("O", "B-LOC"):
        held_out = [tagged(f"MILL/{tag}", "Rome/B-LOC")] * 2000
        (row,) = predict(load_spec("ner"), [*seen, *held_out], [tagged("Mill/O")])
        assert row["prediction"] == [tag]


def test_bag_of_words_does_not_apply_to_unanswerable_questions():
    assert applies(load_spec("squad1")) and not applies(load_spec("squad2"))


def test_bag_of_words_tagging_uses_most_frequent_tag_of_word():
    training = [
        SimpleNamespace(words=("The", "king", "of", "Rome"), tags=("O", "O", "O", "B-LOC")),
        SimpleNamespace(words=("the", "Paris", "of", "of", "Rome"), tags=("O", "B-LOC", "O", "O", "B-PER")),
        SimpleNamespace(words=("rome", "Nice"), tags=("B-LOC", "B-LOC")),
    ]
    (row,) = predict(load_spec("ner"), training, [SimpleNamespace(id="7", words=("THE", "rome", "king", "Turin"))])
    assert row == {"id": "7", "prediction": ["O", "B-LOC", "O", "B-LOC"]}


def tagged(*pairs: str) -> SimpleNamespace:
    words, tags = zip(*(pair.split("/") for pair in pairs), strict=True)
    return SimpleNamespace(id="7", words=words, tags=tags)


def test_bag_of_words_tagging_is_case_sensitive():
    training = [tagged("Bill/B-PER", "paid/O", "the/O", "bill/O")] * 3
    (row,) = predict(load_spec("ner"), training, [tagged("bill/O", "Bill/O", "The/O")])
    assert row["prediction"] == ["O", "B-PER", "O"]


@pytest.mark.parametrize("tag", ["O", "B-LOC"])
def test_bag_of_words_rule_for_unseen_words_is_best_on_held_out_examples(tag):
    """The last tenth of the examples decides whether a word in another case counts as seen or as new."""
    seen = [tagged("mill/O", "Rome/B-LOC", "Rome/B-LOC", f"City{number}/B-LOC") for number in range(18)]
    held_out = [tagged(f"MILL/{tag}", "Rome/B-LOC")] * 2
    (row,) = predict(load_spec("ner"), [*seen, *held_out], [tagged("Mill/O")])
    assert row["prediction"] == [tag]


def test_bag_of_words_tagging_tie_uses_most_frequent_tag_of_rare_words():
    training = [tagged("Bank/B-LOC", "Bank/B-ORG", f"firm{number}/B-ORG") for number in range(5)]
    (row,) = predict(load_spec("ner"), training, [tagged("Bank/O")])
    assert row["prediction"] == ["B-ORG"]


def test_bag_of_words_answers_are_case_sensitive():
    answer = SimpleNamespace(text="Rome")
    training = [
        SimpleNamespace(id=str(n), question="where?", context="the rome of Rome", answers=[answer]) for n in range(9)
    ]
    (row,) = predict(load_spec("squad1"), training, training[:1])
    assert row["prediction"] == "Rome"


def test_bag_of_words_retrieval_ranks_by_bm25():
    corpus = ("the cat", "The cat sat on the mat", "cat cat dog", "?", "a wombat")
    queries = [Query(str(number), text, corpus, ((0,),)) for number, text in enumerate(("cat dog", "Cat?", "of", "a"))]
    rows = predict(load_spec("qnli_retrieval"), [], queries)
    # By hand: passages of 2, 6, 3, 0 and 2 words, 2.6 on average. 3 of 5 passages have "cat", 1 of 5 has "dog".
    cat, dog = (math.log(1 + (5 - n + 0.5) / (n + 0.5)) for n in (3, 1))
    norms = [1.2 * (0.25 + 0.75 * words / 2.6) for words in (2, 6, 3)]
    by_hand = [cat * 2.2 * n / (n + norm) for n, norm in zip((1, 1, 2), norms, strict=True)]
    by_hand[2] += dog * 2.2 / (1 + norms[2])
    assert by_hand[2] > by_hand[0] > by_hand[1]
    expected = [[2, 0, 1, 3, 4], [2, 0, 1, 3, 4], [0, 1, 2, 3, 4], [4, 0, 1, 2, 3]]
    assert [row["prediction"] for row in rows] == expected


def test_bag_of_words_retrieval_without_words_keeps_corpus_order():
    (row,) = predict(load_spec("qnli_retrieval"), [], [Query("0", "?", ("!", "."), ((1,),))])
    assert row["prediction"] == [0, 1]
