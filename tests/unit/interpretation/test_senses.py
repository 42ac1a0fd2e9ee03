"""One word in two senses, and how alike its vectors are."""

import pytest

from pipeline_src.interpretation.data import Skipped, two_contexts
from pipeline_src.interpretation.model import Sentence
from pipeline_src.interpretation.senses import in_two_contexts, self_similarity
from tests.unit.interpretation.conftest import SENTENCES


def test_every_sentence_of_the_file_holds_its_word_once_and_senses_are_even():
    sentences, senses = two_contexts()
    for word, by_sentence in senses.items():
        assert len(by_sentence) == 16 and sorted(map(list(by_sentence.values()).count, set(by_sentence.values()))) == [
            8,
            8,
        ]
        for number in by_sentence:
            assert sum(each.lower() == word for each in sentences[number].words) == 1, (word, sentences[number])


def test_two_contexts_have_figures_for_each_layer_and_word(model):
    found = in_two_contexts(model, model, two_contexts(), 1)
    assert (
        len(found["accuracy"]) == len(found["between"]) == 3
        and found["accuracy"] == found["random"]
        and found["gain"] == [0, 0]
    )
    for word in found["words"].values():
        assert all(at not in row for layer in word["neighbours"] for at, row in enumerate(layer))


def test_a_word_that_is_the_same_everywhere_is_alike_at_layer_0(model):
    same = [Sentence((word, "b"), word) for word in "acdefg"]
    found = self_similarity(model, same, 1)
    assert found["words"] == 1
    assert found["adjusted"][0] == pytest.approx(1 - found["baseline"][0], abs=2e-4)
    with pytest.raises(Skipped, match="no word"):
        self_similarity(model, SENTENCES, 1)
