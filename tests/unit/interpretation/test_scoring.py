"""Masked places: pseudo-log-likelihoods, minimal pairs, completions."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from pipeline_src.interpretation import studied_model
from pipeline_src.interpretation.completion import WAYS, complete, completions, filled, loss_by_masks
from pipeline_src.interpretation.minimal_pairs import Pair, judge, template_pairs, treebank_pairs
from pipeline_src.interpretation.scoring import preferred, pseudo_log_likelihoods
from pipeline_src.interpretation.skipped import Skipped
from pipeline_src.interpretation.trees import Tree
from pipeline_src.interpretation.word_vectors import Sentence, cut_words
from pipeline_src.params.interpretation import InterpretationParams
from tests.unit.interpretation.conftest import SENTENCES, make_model


def test_each_token_is_hidden_with_the_rest_of_its_word(model, monkeypatch):
    found = pseudo_log_likelihoods(model, SENTENCES)
    ids = cut_words(model, SENTENCES).ids[0]  # a b ##a ##b c .
    hidden = [ids[0], ids[1], model.mask, model.mask, ids[4], ids[5]]
    (scores,) = model.log_probabilities([hidden], [[2]])
    assert found[0][2] == pytest.approx(float(scores[0, ids[2]]), abs=1e-5)
    monkeypatch.setattr(studied_model, "BATCH_TOKENS", 1)
    backwards = pseudo_log_likelihoods(model, SENTENCES[::-1])[::-1]
    for ours, theirs in zip(found, backwards, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_ties_are_a_half():
    scores = torch.tensor([1.0, 1.0, 0.0])
    assert [preferred(scores, *pair) for pair in ((0, 1), (0, 2), (2, 0))] == [0.5, 1.0, 0.0]


def test_templates_are_right_in_both_numbers_equally_often():
    for _, pairs in template_pairs().values():
        assert len(pairs) % 2 == 0 and sum(pair.plural for pair in pairs) * 2 == len(pairs)
        assert all(pair.words[pair.place] == pair.good != pair.bad for pair in pairs)
    across = template_pairs()["agreement_across_a_phrase"][1][0]
    assert across.words == ("The", "man", "near", "the", "women", "is", "not", "here", ".")


def test_pairs_of_one_token_are_judged_and_the_others_counted(model):
    pairs = [Pair(("a", "is", "b"), 1, "is", "are", False, "a"), Pair(("c", "are", "b"), 1, "are", "is", True, "c")]
    found = judge(model, model, [*pairs, Pair(("a", "aa", "b"), 1, "aa", "b", False, "a")], 1)
    assert (found["pairs"], found["left_out"], found["commoner"]) == (2, 1, 0.5)
    assert found["balanced"] == found["accuracy"] == found["random"] and found["gain"] == [0, 0]
    assert judge(model, model, [], 1) is None


def test_verbs_of_a_treebank_whose_subject_is_one_noun():
    words = ("The", "men", "are", "old")
    tree = Tree(Sentence(words, "d"), (1, 3, 3, -1), ("det", "nsubj", "cop", "root"), ("DET", "NOUN", "AUX", "ADJ"))
    pronoun = replace(tree, tags=("DET", "PRON", "AUX", "ADJ"))
    assert treebank_pairs([tree, pronoun]) == [Pair(words, 2, "are", "is", True, "d")]


@pytest.mark.parametrize("how", list(WAYS))
def test_each_way_fills_every_mask_with_a_word_and_is_the_same_again(model, how):
    frames = complete(model, [5, 6], 3, how, 1)
    assert frames == complete(model, [5, 6], 3, how, 1) and len(frames[-1]) == 3
    special = {model.mask, *(mark for run in model.frame.marks for mark in run)}
    assert not special & set(frames[-1])


def test_models_that_fill_no_masks_are_passed_over_with_the_reason():
    headless, causal = replace(make_model(), head=None), make_model(is_decoder=True)
    for model, reason in ((headless, "no head"), (causal, "left to right")):
        with pytest.raises(Skipped, match=reason):
            completions(model, ["a"], 2, 1)
        with pytest.raises(Skipped, match=reason):
            loss_by_masks(model, [[5] * 30], np.ones(20), 1)
        with pytest.raises(Skipped, match=reason):
            filled(model, [("a [MASK]", "b")])


def test_a_words_rank_at_a_mask_counts_the_likelier_tokens(model):
    one, two = filled(model, [("a [MASK] c", "b"), ("[MASK] a", "b c")])
    ids = [model.ids("a")[0], model.mask, model.ids("c")[0]]
    (scores,) = model.log_probabilities([ids], [[1]])
    in_order = [model.tokenizer.id_to_token(token) for token in scores[0].argsort(descending=True).tolist()]
    assert in_order[one["rank"] - 1] == "b" and [token for token, _ in one["likeliest"]] == in_order[:3]
    assert one["likeliest"][0][1] == pytest.approx(float(scores[0].max().exp()), abs=1e-3)
    assert two["rank"] is None and two["text"] == "[MASK] a"  # its word is two tokens


def test_a_text_to_fill_has_one_mask():
    for text in ("none", "[MASK] and [MASK]"):
        with pytest.raises(ValueError, match="not once"):
            InterpretationParams(masks=((text, "a"),))


def test_loss_by_masks_judges_the_same_token_each_time(model):
    texts = [[5 + number % 10 for number in range(start, start + 30)] for start in range(4)]
    found = loss_by_masks(model, texts, np.ones(len(model.tokenizer.get_vocab()), np.int64), 1)
    assert found["texts"] == 4 and len(found["kept"]) == len(found["cut"]) == 5
    assert found["unigram"] == pytest.approx(np.log(model.tokenizer.get_vocab_size()), abs=1e-3)
    with pytest.raises(Skipped, match="long enough"):
        loss_by_masks(model, [[5]], np.ones(20), 1)


def test_an_unknown_word_has_no_rank_and_makes_no_pair():
    model = make_model()
    assert filled(model, [("a [MASK] .", "Москва")])[0]["rank"] is None
    pairs = [Pair(("a", "X", "b"), 1, "Москва", "Волга", False, str(number)) for number in range(4)]
    assert judge(model, model, pairs, 1) is None
