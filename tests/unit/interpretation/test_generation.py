"""Masked places: pseudo-log-likelihoods, minimal pairs, completions."""

from dataclasses import replace

import numpy as np
import pytest

from pipeline_src.config.interpretation import InterpretationParams
from pipeline_src.interpretation.data import Skipped
from pipeline_src.interpretation.generation import WAYS, complete, completions, fill_masks, loss_by_masks
from pipeline_src.interpretation.minimal_pairs import WordPair, judge
from tests.unit.interpretation.conftest import make_model


@pytest.mark.parametrize("how", list(WAYS))
def test_each_way_fills_every_mask_with_a_word_and_is_the_same_again(model, how):
    steps = complete(model, [5, 6], 3, how)
    assert steps == complete(model, [5, 6], 3, how) and len(steps[-1]) == 3
    special = {model.mask, *(mark for run in model.template.special_ids for mark in run)}
    assert not special & set(steps[-1])


def test_models_that_fill_no_masks_are_passed_over_with_the_reason():
    headless, causal = replace(make_model(), head=None), make_model(is_decoder=True)
    for model, reason in ((headless, "no head"), (causal, "left to right")):
        with pytest.raises(Skipped, match=reason):
            completions(model, ["a"], 2)
        with pytest.raises(Skipped, match=reason):
            loss_by_masks(model, [[5] * 30], np.ones(20), 1)
        with pytest.raises(Skipped, match=reason):
            fill_masks(model, [("a [MASK]", "b")])


def test_a_words_rank_at_a_mask_counts_the_likelier_tokens(model):
    one, two = fill_masks(model, [("a [MASK] c", "b"), ("[MASK] a", "b c")])
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
    assert fill_masks(model, [("a [MASK] .", "Москва")])[0]["rank"] is None
    pairs = [WordPair(("a", "X", "b"), 1, "Москва", "Волга", False, str(number)) for number in range(4)]
    assert judge(model, model, pairs, 1) is None
