"""Sentences without an end: complete but for the full stop, or cut off."""

from __future__ import annotations

import pytest

from pipeline_src.text.wikipedia.whole_sentences import begins_with_sentence, lacks_only_its_stop, says_something
from tests.unit.text.cases import read_cases


@pytest.mark.parametrize(
    ("language", "lead_in", "says"),
    read_cases("wikipedia/whole_sentences.yaml", "says something lead in of two clauses does"),
)
def test_says_something_lead_in_with_two_clauses_is_true(language: str, lead_in: str, says: bool) -> None:
    assert says_something(lead_in, language) == says


@pytest.mark.parametrize(
    ("language", "sentence", "whole"), read_cases("wikipedia/whole_sentences.yaml", "lacks only its stop by language")
)
def test_lacks_only_its_stop_each_language_gives_expected_answer(language: str, sentence: str, whole: bool) -> None:
    assert lacks_only_its_stop(sentence, language) == whole


@pytest.mark.parametrize(
    ("language", "text", "begins"),
    read_cases("wikipedia/whole_sentences.yaml", "begins with sentence unlike a label or a source"),
)
def test_begins_with_sentence_label_or_citation_is_false(language: str, text: str, begins: bool) -> None:
    assert begins_with_sentence(text, language) == begins
