"""Masks filled one by one or together."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from pipeline_src.interpret import generation
from pipeline_src.interpret.generation import WAYS, complete, completions, fill_masks
from pipeline_src.interpret.model import SkipMeasure
from pipeline_src.study.interpretation import InterpretationParams
from pipeline_src.tools.fill_mask import fill_mask
from tests.unit.interpret.conftest import learn_tokenizer, make_model, unigram_model


@pytest.mark.parametrize("how", list(WAYS))
def test_complete_fills_every_mask_with_a_word(model, how):
    steps = complete(model, [5, 6], 3, how)
    assert len(steps) == (1 if how == "at once" else 3) and len(steps[-1]) == 3
    assert [step.count(model.mask) for step in steps] == list(range(len(steps)))[::-1]
    assert not {model.mask, *(token for run in model.template.special_ids for token in run)} & set(steps[-1])


def test_ways_choose_expected_masks_for_next_step():
    masked, best = [0, 2, 3], torch.tensor([-2.0, -0.1, -0.5, -1.0])  # position 1 is filled
    assert {name: way(masked, best) for name, way in WAYS.items()} == {
        "at once": [0, 2, 3],
        "left to right": [0],
        "surest first": [2],
    }


def test_completions_repeated_equals_share_of_repeated_tokens():
    ways = completions(unigram_model(b=0.5), ["a"], 4)[0]["ways"]
    assert ways["at once"] == {"texts": ["b b b b"], "repeated": 0.75}
    assert ways["left to right"]["texts"] == ["b", "b b", "b b b", "b b b b"]


def test_completions_long_prompt_keeps_its_end(model, monkeypatch):
    prompts = []
    monkeypatch.setattr(generation, "complete", lambda model, prompt, *_: prompts.append(prompt) or [[5, 6]])
    completions(model, ["b " * model.max_tokens + "g h"], 2)
    assert prompts[0][-3:] == model.ids("b g h")


@pytest.mark.parametrize(
    "model", [replace(make_model(), head=None), make_model(is_decoder=True)], ids=["no head", "clm"]
)
def test_generation_model_without_mlm_head_is_skipped(model):
    for measure in (
        lambda: completions(model, ["a"], 2),
        lambda: fill_masks(model, [("a [MASK]", "b")]),
    ):
        with pytest.raises(SkipMeasure):
            measure()


def test_fill_masks_rank_and_probabilities_equal_hand_computed_values():
    model = unigram_model(a=0.5, b=0.25, c=0.125)
    first, *unranked = fill_masks(model, [("a [MASK] .", "b"), ("[MASK] a", "b c"), ("a [MASK] .", "Москва")])
    likeliest = [["a", 0.5], ["b", 0.25], ["c", 0.125]]
    assert first == {"text": "a [MASK] .", "answer": "b", "rank": 2, "likeliest": likeliest}
    assert [prediction["rank"] for prediction in unranked] == [None, None]  # two tokens; unknown


@pytest.mark.parametrize(("before", "after"), [("a", "c"), ("d " * 60 + "a", "c")], ids=["short", "beyond the input"])
def test_fill_masks_predicts_at_mask_of_truncated_text(model, before, after):
    (prediction,) = fill_masks(model, [(f"{before} [MASK] {after}", "b")])
    context = model.tokenizer.encode(before, add_special_tokens=False).ids[1 - model.max_tokens :]
    ids = [*context, model.mask, *model.ids(after)][: model.max_tokens]
    (log_probs,) = model.log_probabilities([ids], [[len(context)]])
    in_order = [model.tokenizer.id_to_token(token) for token in log_probs[0].argsort(descending=True).tolist()]
    assert in_order[prediction["rank"] - 1] == "b" and [token for token, _ in prediction["likeliest"]] == in_order[:3]


@pytest.mark.parametrize(
    ("before", "after"),
    [("", "a b ."), ("Bab, ", "."), ("a b ", ""), ("(a", "b) is."), ("Москва ", "  c\n"), ("a.", ", [CLS] b")],
)
def test_fill_masks_wordpiece_parts_beside_mask_are_tokenised_as_if_apart(model, before, after):
    (prediction,) = fill_masks(model, [(f"{before}[MASK]{after}", "b")])
    parts = [model.tokenizer.encode(part, add_special_tokens=False).ids for part in (before, after)]
    (log_probs,) = model.log_probabilities([[*parts[0], model.mask, *parts[1]]], [[len(parts[0])]])
    best = log_probs[0].exp().topk(3).values.tolist()
    assert [probability for _, probability in prediction["likeliest"]] == [round(value, 4) for value in best]


@pytest.mark.parametrize("kind", ["byte_bpe", "unigram"])
def test_fill_masks_vocabulary_with_spaces_in_tokens_equals_tool_fill_mask(tmp_path, kind):
    model = make_model(tokenizer=learn_tokenizer(tmp_path, kind))
    for masked in ("he looked at [MASK] and smiled.", "the cat sat on the [MASK].", "[MASK] cat sat, he said."):
        (prediction,) = fill_masks(model, [(masked, "him")])
        (candidates,) = fill_mask(model, masked, 3)
        assert prediction["likeliest"] == [[token, round(probability, 4)] for token, probability in candidates]


@pytest.mark.parametrize("text", ["none", "[MASK] and [MASK]"])
def test_params_text_without_exactly_one_mask_is_rejected(text):
    with pytest.raises(ValueError, match="exactly once"):
        InterpretationParams(masks=((text, "a"),))
