"""Sentences: what a learner of next sentences must not be fed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import sentencex
from hypothesis import given
from hypothesis import strategies as st

from benchmarks._hard_sentences import CASES
from pipeline_src.corpus import sentences
from pipeline_src.corpus.sentences import split_sentences
from pipeline_src.wikipedia.placeholders import split_exactly

EWT = Path(__file__).parents[4] / "shared/data/ud_ewt/en_ewt-ud-dev.conllu"
PARTS = [
    "Mr. Dale",
    "me.",
    "He went.",
    '"Why?',
    "she said.",
    "’",
    "'",
    "(Yes.)",
    "…",
    "no. 5",
    "é",
    "I.",
    "!",
    " ",
    "—",
    "“",
]


@pytest.mark.parametrize(
    "sentences",
    [
        ["Mr. Smith paid $5.50 to J. R. Jones in the U.S. on Monday.", '"Why?" she asked.'],
        ['"I went to the door.', 'I knocked," said the boy.', '"Nobody came."'],
        ["“It’s late.", "We ought to go.”", "She rose."],
        ["'You don't know him.", "He's the Joneses' cousin.'", "He laughed."],
        ["He told me.", "Mann asked for modern art.", "It was in St. James's.", "He went."],
        ["The band Wham! was formed in 1981.", "It reached no. 1 and vol. 3 of the list."],
        ["The king fell.", "(His brother had fallen earlier.)", "A republic (the first in Asia) followed."],
        ["He was born c. 1900 (or 1901?) in Leeds.", "He left."],
        ["usually , he would be tearing around the room .", "`` no , '' he said ."],
    ],
)
def test_splits_at_ends_of_sentences_alone(sentences: list[str]) -> None:
    if sentences[0][0].isupper() or not sentences[0][0].isalpha():
        assert split_sentences(" ".join(sentences)) == sentences
    else:  # a line a sentence: nothing is split further
        assert [split_sentences(sentence) for sentence in sentences] == [[sentence] for sentence in sentences]


def test_other_languages_have_their_own_abbreviations() -> None:
    assert split_sentences("Il sig. Rossi è qui. Anche lei.", "it") == ["Il sig. Rossi è qui.", "Anche lei."]


@given(
    st.one_of(st.text(), st.lists(st.sampled_from(PARTS)).map(" ".join), st.lists(st.sampled_from(PARTS)).map("".join))
)
def test_sentences_are_the_paragraph_less_the_blanks_between_them(paragraph: str) -> None:
    sentences = split_sentences(paragraph)
    position = 0
    for sentence in sentences:
        assert sentence and sentence == sentence.strip()
        found = paragraph.index(sentence, position)
        assert not paragraph[position:found].strip()
        position = found + len(sentence)
    assert not paragraph[position:].strip()
    assert "".join(split_exactly(paragraph, "en")) == paragraph


@pytest.mark.parametrize("mark", ["«", "»", "‹", "“", "a. «", "Mr. Dale went. «No», he said. "])
def test_long_text_is_split_stretch_by_stretch_and_alike(monkeypatch: pytest.MonkeyPatch, mark: str) -> None:
    text, seen = mark * (6_000 // len(mark)), []
    at_once = split_sentences(text, "fr")

    def watched(language: str, stretch: str) -> list[str]:
        seen.append(len(stretch))
        return list(sentencex.segment(language, stretch))

    monkeypatch.setattr(sentences, "LONGEST", 500)
    monkeypatch.setattr(sentences, "segment", watched)
    assert split_sentences(text, "fr") == at_once
    assert max(seen) <= 500 and sum(seen) < 3 * len(text)  # the square of a stretch, not of the text


def test_most_hard_cases_are_solved() -> None:
    solved = sum(split_sentences(" ".join(case)) == case for case in CASES)
    assert solved >= 0.9 * len(CASES)


@pytest.mark.skipif(not EWT.exists(), reason="shared/data/ud_ewt is not here")
def test_boundaries_in_text_of_the_web() -> None:
    paragraphs = re.split(r"^# new(?:par|doc).*\n", EWT.read_text(encoding="utf-8"), flags=re.M)
    right = found = there = 0
    for paragraph in paragraphs:
        gold = re.findall(r"^# text = (.*)", paragraph, re.M)
        ours = split_sentences(" ".join(gold))
        ends = [{len("".join(part[: n + 1]).replace(" ", "")) for n in range(len(part) - 1)} for part in (gold, ours)]
        right, there, found = right + len(ends[0] & ends[1]), there + len(ends[0]), found + len(ends[1])
    assert right / found > 0.97 and right / there > 0.75  # many of its sentences end without any stop
