"""Learning WordPiece vocabularies from counts of words."""

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline_src.base.errors import PipelineError
from pipeline_src.tokenizer.wordpiece import SPECIAL_TOKENS
from pipeline_src.tokenizer.wordpiece_trainer import END, learn_vocabulary, spell

WORDS = {"low": 5, "lower": 2, "newest": 6, "widest": 3}  # Sennrich et al. 2016, algorithm 1


def learn_by_recounting(words: dict[str, int], size: int, min_count: int = 1) -> list[str]:
    """Count every pair again before each merge."""
    forms = sorted({letter for word in words for letter in word})
    forms += sorted({"##" + letter for word in words for letter in word[1:]})
    numbers = {piece: number for number, piece in enumerate(forms)}
    spelled = [([word[0], *("##" + letter for letter in word[1:])], n) for word, n in words.items() if n >= min_count]
    while len(SPECIAL_TOKENS) + len(numbers) < size:
        counts: Counter[tuple[str, str]] = Counter()
        for pieces, count in spelled:
            for pair in pairwise(pieces):
                counts[pair] += count
        frequent = [pair for pair, count in counts.items() if count >= min_count]
        if not frequent:
            break
        left, right = min(frequent, key=lambda pair: (-counts[pair], numbers[pair[0]], numbers[pair[1]]))
        merged = left + right.removeprefix("##")
        numbers.setdefault(merged, len(numbers))
        for pieces, _ in spelled:
            position = 0
            while position < len(pieces) - 1:
                if pieces[position : position + 2] == [left, right]:
                    pieces[position : position + 2] = [merged]
                position += 1
    return [*SPECIAL_TOKENS, *numbers]


@settings(max_examples=300, deadline=None)
@given(
    st.dictionaries(st.text("ab😀", min_size=1, max_size=12), st.integers(1, 5), min_size=1, max_size=20),
    st.integers(1, 4),
)
def test_learn_vocabulary_equals_recounting_every_merge(words, min_count):
    """With overlapping pairs (aaa), adjacent pairs (abab), one piece from two splits."""
    assert learn_vocabulary(words, 60, 26, min_count) == learn_by_recounting(words, 60, min_count)


@pytest.mark.parametrize("unused", [0, 50])
def test_learn_vocabulary_size_below_alphabet_is_rejected(unused):
    size = 5 + unused + len(spell(WORDS.items(), 26, 1).forms)
    pieces = learn_vocabulary(WORDS, size, 26, 1, unused)
    assert all(len(piece.removeprefix("##")) == 1 for piece in pieces[5 + unused :])
    with pytest.raises(PipelineError, match=f"set vocab_size to {size} or more"):
        learn_vocabulary(WORDS, size - 1, 26, 1, unused)


def test_spell_alphabet_keeps_most_frequent_characters():
    spelling = spell({"aab": 3, "cb": 2, "z": 1}.items(), 3, 1)
    assert spelling.forms == ["a", "b", "c", "##a", "##b"]
    assert spell({"ba": 1, "c": 1}.items(), 2, 1).forms == ["a", "b", "##a"]  # of equals, the lower code points


def test_spell_words_outside_the_alphabet_are_dropped():
    spelling = spell({"ab": 3, "az": 1, "ba": 2, "zz": 1}.items(), 2, 1)
    assert spelling.counts.tolist() == [3, 2]
    assert [spelling.forms[n - 1] if n != END else "" for n in spelling.pieces] == ["a", "##b", "", "b", "##a", ""]
    assert spelling.word.tolist() == [0, 0, 0, 1, 1, 1]


def test_learn_vocabulary_any_order_and_block_size_gives_same_result(monkeypatch):
    expected = learn_vocabulary(dict(reversed(WORDS.items())), 40, 26, 1)
    monkeypatch.setattr("pipeline_src.tokenizer.wordpiece_trainer.WORDS_PER_BLOCK", 2)
    assert learn_vocabulary(WORDS, 40, 26, 1) == expected


def test_learn_vocabulary_without_words_gives_reserved_tokens():
    assert learn_vocabulary({}, 100, 26, 1, unused=2) == ["[PAD]", "[unused0]", "[unused1]", *SPECIAL_TOKENS[1:]]
