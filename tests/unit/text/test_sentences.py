"""Sentence splitting, in English and in other languages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import sentencex
from hypothesis import given
from hypothesis import strategies as st

from pipeline_src.text import sentences
from pipeline_src.text.sentences import split_sentences
from pipeline_src.text.wikipedia.whole_sentences import split_exactly
from tests.growth import TIMES, assert_linear
from tests.hard_sentences import CASES, SENTENCE_ENDS
from tests.unit.text.cases import read_cases

TREEBANKS = sorted((Path(__file__).parents[2] / "sentences").glob("*.txt"))
PARTS = "Mr. Dale|me.|He went.|\"Why?|she said.|’|'|(Yes.)|…|no. 5|é|I.|!| |—|“".split("|")


def join(sentences: list[str], language: str) -> str:
    return ("" if language in ("zh", "ja") else " ").join(sentences)


@pytest.mark.parametrize(("language", "sentences"), read_cases("sentences.yaml"))
def test_split_sentences_examples_of_each_language_are_split(language: str, sentences: list[str]) -> None:
    assert split_sentences(join(sentences, language), language) == sentences


def precision_and_recall(paragraphs: list[list[str]], language: str) -> tuple[float, float]:
    correct = expected = predicted = 0
    for gold in paragraphs:
        ours = split_sentences(" ".join(gold), language)
        ends = [{len("".join(part[: n + 1]).replace(" ", "")) for n in range(len(part) - 1)} for part in (gold, ours)]
        correct += len(ends[0] & ends[1])
        expected += len(ends[0])
        predicted += len(ends[1])
    return correct / predicted, correct / expected


@pytest.mark.parametrize("path", TREEBANKS, ids=lambda path: path.stem)
def test_split_sentences_treebanks_reach_precision_and_recall(path: Path) -> None:
    blocks = path.read_text(encoding="utf-8").strip().split("\n\n")
    precision, recall = precision_and_recall([block.split("\n") for block in blocks], path.stem)
    assert precision > 0.985 and recall > 0.9


@pytest.mark.parametrize(
    ("language", "piece"),
    [
        *(("hi", piece) for piece in ('。"', "।' ", ". . ", "何?", '"')),
        *(("de", piece) for piece in (".", ". ", "(a. ", ".«", "! - ", "z. B. ", "。「", "... ")),
    ],
)
def test_split_sentences_hostile_text_takes_linear_time(language: str, piece: str) -> None:
    assert_linear(lambda text: split_sentences(text, language), piece * 1_000, piece * 1_000 * TIMES)


@given(
    st.one_of(st.text(), st.lists(st.sampled_from(PARTS)).map(" ".join), st.lists(st.sampled_from(PARTS)).map("".join)),
    st.sampled_from(["en", "de", "ru", "he", "hy", "el", "hi", "ja", ""]),
)
def test_split_sentences_any_text_keeps_every_character(paragraph: str, language: str) -> None:
    sentences = split_sentences(paragraph, language)
    position = 0
    for sentence in sentences:
        assert sentence and sentence == sentence.strip()
        start = paragraph.index(sentence, position)
        assert not paragraph[position:start].strip()
        position = start + len(sentence)
    assert not paragraph[position:].strip()
    assert "".join(split_exactly(paragraph, language)) == paragraph


@pytest.mark.parametrize("mark", ["«", "»", "‹", "“", "Mr. Dale went. «No», he said. "])
def test_split_sentences_long_text_in_stretches_equals_whole_text(monkeypatch: pytest.MonkeyPatch, mark: str) -> None:
    text, seen = mark * (6_000 // len(mark)), []
    at_once = split_sentences(text, "en")

    def watched(language: str, stretch: str) -> list[str]:
        seen.append(len(stretch))
        return list(sentencex.segment(language, stretch))

    monkeypatch.setattr(sentences, "MAX_SEGMENT_LENGTH", 500)
    monkeypatch.setattr(sentences, "segment", watched)
    assert split_sentences(text, "en") == at_once
    # The square of a stretch, not of the text.
    assert max(seen) <= 500 and sum(seen) < 3 * len(text)


def test_split_sentences_nine_of_ten_hard_cases_are_solved() -> None:
    solved = sum(split_sentences(" ".join(case), "en") == case for case in CASES)
    assert solved >= 0.9 * len(CASES)


def test_split_sentences_hard_ends_in_eight_languages_95_of_100_are_right() -> None:
    cases = [(language, case) for language, cases in SENTENCE_ENDS.items() for case in cases]
    wrong = [(language, case) for language, case in cases if split_sentences(join(case, language), language) != case]
    assert len(cases) == 100 and len(SENTENCE_ENDS) == 8
    assert len(wrong) <= 5, wrong


def test_split_sentences_english_web_treebank_reaches_precision_and_recall(root: Path) -> None:
    path = root / "../shared/data/ud_ewt/en_ewt-ud-dev.conllu"
    if not path.exists():
        pytest.skip("shared/data/ud_ewt is not here")
    paragraphs = re.split(r"^# new(?:par|doc).*\n", path.read_text(encoding="utf-8"), flags=re.M)
    gold = [sentences for paragraph in paragraphs if (sentences := re.findall(r"^# text = (.*)", paragraph, re.M))]
    precision, recall = precision_and_recall(gold, "en")
    # Many of its sentences end without any stop.
    assert precision > 0.97 and recall > 0.75
