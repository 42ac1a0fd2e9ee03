"""Sentences: what a learner of next sentences must not be fed."""

from __future__ import annotations

from pipeline_src.corpus.sentences import split_sentences


def test_splits_at_ends_of_sentences_alone() -> None:
    paragraph = 'Mr. Smith paid $5.50 to J. R. Jones in the U.S. on Monday. "Why?" she asked.'
    assert split_sentences(paragraph) == [
        "Mr. Smith paid $5.50 to J. R. Jones in the U.S. on Monday.",
        '"Why?" she asked.',
    ]


def test_nothing_is_lost_and_nothing_is_empty() -> None:
    paragraph = "One.  Two!   Three?  And the rest"
    sentences = split_sentences(paragraph)
    assert "".join("".join(sentences).split()) == "".join(paragraph.split())
    assert all(sentence and sentence == sentence.strip() for sentence in sentences)
    assert split_sentences("") == [] and split_sentences("   ") == []
