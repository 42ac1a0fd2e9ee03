"""One word in two senses, and how alike its vectors are."""

from dataclasses import replace

import pytest
import torch

from pipeline_src.interpretation.data import Skipped, Tagged, two_contexts
from pipeline_src.interpretation.model import Sentence
from pipeline_src.interpretation.senses import homograph_accuracy, homographs, in_two_contexts, plane, self_similarity
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
    (word,) = {len(word["points"]) for word in found["words"].values()}
    assert word == 3
    for word in found["words"].values():
        assert all(at not in row for layer in word["neighbours"] for at, row in enumerate(layer))


def test_a_neighbour_stands_next_to_it_or_it_is_told_by_what_does(model):
    pairs = [Sentence(("a", other), f"{other}{number}") for number in range(8) for other in "be"]
    tagged = Tagged(pairs, [("NOUN" if pair.words[1] == "b" else "VERB", "X") for pair in pairs])
    assert list(homographs(tagged)) == ["a"]
    accuracy = homograph_accuracy(model, tagged)["accuracy"]
    assert accuracy[1] == accuracy[2] == 1.0  # sentences of one sense are the same
    assert homograph_accuracy(model, Tagged(SENTENCES, [("X",) * len(each.words) for each in SENTENCES])) is None


def test_a_word_beyond_the_models_positions_has_no_senses(model):
    short = replace(model, config=replace(model.config, max_position_embeddings=8))

    def tagged(fillers: int, word: str) -> Tagged:
        sentences = [Sentence(("c",) * fillers + (word, "be"[number % 2]), f"{word}{number}") for number in range(16)]
        return Tagged(sentences, [("X",) * fillers + (("NOUN", "VERB")[n % 2], "X") for n in range(16)])

    near, far = tagged(0, "a"), tagged(9, "d")
    with pytest.raises(Skipped, match="beyond the model's longest input"):
        homograph_accuracy(short, far)
    both = Tagged([*near.sentences, *far.sentences], [*near.tags, *far.tags])
    assert homograph_accuracy(short, both)["words"] == ["a"]


def test_the_plane_has_fixed_signs_and_lies_in_the_unit_square():
    vectors = torch.randn(2, 6, 5, generator=torch.Generator().manual_seed(1))
    first, again = plane(vectors), plane(vectors.clone())
    assert first == again and max(abs(value) for layer in first for point in layer for value in point) <= 1.0


def test_a_word_that_is_the_same_everywhere_is_alike_at_layer_0(model):
    same = [Sentence((word, "b"), word) for word in "acdefg"]
    found = self_similarity(model, same, 1)
    assert found["words"] == 1
    assert found["adjusted"][0] == pytest.approx(1 - found["baseline"][0], abs=2e-4)
    with pytest.raises(Skipped, match="no word"):
        self_similarity(model, SENTENCES, 1)
