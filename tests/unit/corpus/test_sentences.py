"""Sentences: what a learner of next sentences must not be fed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import sentencex
from hypothesis import given
from hypothesis import strategies as st

from pipeline_src.corpus import sentences
from pipeline_src.corpus.sentences import split_sentences
from pipeline_src.corpus.wikipedia.markers import split_exactly
from tests.growth import TIMES, assert_linear
from tests.hard_sentences import CASES

OTHERS = sorted((Path(__file__).parents[2] / "sentences").glob("*.txt"))
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
        assert split_sentences(" ".join(sentences), "en") == sentences
    else:  # a line a sentence: nothing is split further
        assert [split_sentences(sentence, "en") for sentence in sentences] == [[sentence] for sentence in sentences]


def judge(paragraphs: list[list[str]], language: str) -> tuple[float, float]:
    """Precision and recall of the ends of sentences within paragraphs."""
    right = there = found = 0
    for gold in paragraphs:
        ours = split_sentences(" ".join(gold), language)
        ends = [{len("".join(part[: n + 1]).replace(" ", "")) for n in range(len(part) - 1)} for part in (gold, ours)]
        right, there, found = right + len(ends[0] & ends[1]), there + len(ends[0]), found + len(ends[1])
    return right / found, right / there


@pytest.mark.parametrize("path", OTHERS, ids=lambda path: path.stem)
def test_ends_in_other_languages(path: Path) -> None:
    blocks = path.read_text(encoding="utf-8").strip().split("\n\n")
    precision, recall = judge([block.split("\n") for block in blocks], path.stem)
    assert precision > 0.985 and recall > 0.9


@pytest.mark.parametrize(
    ("language", "sentences"),
    [
        ("lv", ["J. S. Bahs dzimis 3. maijā.", "Vai viņš (dz. 1685. gadā) spēlēja?", "Jā!", "Tā saka."]),  # no rules
        ("", ["He paid no.", "5 to Mr.", "Dale in the U.S.A. Anna left."]),  # not English
        ("hi", ["वह घर गया।", "क्या वह आएगा?", "हाँ।"]),
        ("hy", ["Նա եկաւ։", "Յետոյ գնաց։"]),
        ("ur", ["وہ گیا۔", "کیا وہ آئے گا؟", "ہاں۔"]),
        ("am", ["አበበ በሶ በላ።", "ጫላ ጩቤ ጨበጠ።"]),
        ("ka", ["1990 წელს წავიდა.", "მერე დაბრუნდა."]),
        ("pt-br", ["O Sr. Silva nasceu no séc. XII.", "Ele morreu."]),
        ("fr", ["M. Roux vit Mme. Le Goff (née à St. Malo. Sans date) et le roi.", "« Oui. »", "La cour partit."]),
        ("de", ["Er kam am 3. 5. 1990 z. B. nach Bad Ems usw.", "Das war’s ...", "„Ja!“ rief er."]),
    ],
)
def test_ends_in_every_script_by_no_english_rules(language: str, sentences: list[str]) -> None:
    assert split_sentences(" ".join(sentences), language) == sentences


@pytest.mark.parametrize(
    "sentences", [["他说：“走吧。”然后走了。", "好吗？", "好！"], ["彼は「行く！」と言った。", "そして去った。"]]
)
def test_ends_without_blanks(sentences: list[str]) -> None:
    assert split_sentences("".join(sentences), "zh") == sentences


@pytest.mark.parametrize("piece", [".", ". ", "(a. ", ".«", "! - ", "z. B. ", "。「", "... "])
def test_split_sentences_hostile_text_takes_linear_time(piece: str) -> None:
    assert_linear(lambda text: split_sentences(text, "de"), piece * 1_000, piece * 1_000 * TIMES)


@given(
    st.one_of(st.text(), st.lists(st.sampled_from(PARTS)).map(" ".join), st.lists(st.sampled_from(PARTS)).map("".join)),
    st.sampled_from(["en", "de", "ru", "he", ""]),
)
def test_sentences_are_the_paragraph_less_the_blanks_between_them(paragraph: str, language: str) -> None:
    sentences = split_sentences(paragraph, language)
    position = 0
    for sentence in sentences:
        assert sentence and sentence == sentence.strip()
        found = paragraph.index(sentence, position)
        assert not paragraph[position:found].strip()
        position = found + len(sentence)
    assert not paragraph[position:].strip()
    assert "".join(split_exactly(paragraph, language)) == paragraph


@pytest.mark.parametrize("mark", ["«", "»", "‹", "“", "Mr. Dale went. «No», he said. "])
def test_long_text_is_split_stretch_by_stretch_and_alike(monkeypatch: pytest.MonkeyPatch, mark: str) -> None:
    text, seen = mark * (6_000 // len(mark)), []
    at_once = split_sentences(text, "en")

    def watched(language: str, stretch: str) -> list[str]:
        seen.append(len(stretch))
        return list(sentencex.segment(language, stretch))

    monkeypatch.setattr(sentences, "LONGEST", 500)
    monkeypatch.setattr(sentences, "segment", watched)
    assert split_sentences(text, "en") == at_once
    assert max(seen) <= 500 and sum(seen) < 3 * len(text)  # the square of a stretch, not of the text


def test_most_hard_cases_are_solved() -> None:
    solved = sum(split_sentences(" ".join(case), "en") == case for case in CASES)
    assert solved >= 0.9 * len(CASES)


@pytest.mark.skipif(not EWT.exists(), reason="shared/data/ud_ewt is not here")
def test_boundaries_in_text_of_the_web() -> None:
    paragraphs = re.split(r"^# new(?:par|doc).*\n", EWT.read_text(encoding="utf-8"), flags=re.M)
    gold = [sentences for paragraph in paragraphs if (sentences := re.findall(r"^# text = (.*)", paragraph, re.M))]
    precision, recall = judge(gold, "en")
    assert precision > 0.97 and recall > 0.75  # many of its sentences end without any stop
