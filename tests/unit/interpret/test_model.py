"""Vectors of words: means of subwords, in any batch."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pipeline_src.interpret.model import Sentence, pseudo_log_likelihoods, tokenize_words, word_vectors
from tests.unit.interpret.conftest import SENTENCES, learn_tokenizer, make_model


def test_pseudo_log_likelihoods_with_words_mask_later_subwords(model):
    subwords = tokenize_words(model, SENTENCES)
    log_probs = pseudo_log_likelihoods(model, *subwords)
    ids = subwords.ids[0]  # a b ##a ##b c .
    masked = [ids[0], ids[1], model.mask, model.mask, ids[4], ids[5]]
    (scores,) = model.log_probabilities([masked], [[2]])
    assert log_probs[0][2] == pytest.approx(float(scores[0, ids[2]]), abs=1e-5)


def test_pseudo_log_likelihoods_each_token_is_masked_alone_in_any_batch(model):
    texts = [model.ids(text) for text in ("a is b", "c", "a b c d is here .", "", "b is a")]
    log_probs = pseudo_log_likelihoods(model, texts)
    for text, row, small in zip(
        texts, log_probs, pseudo_log_likelihoods(replace(model, batch_tokens=1), texts), strict=True
    ):
        masked = [[*text[:at], model.mask, *text[at + 1 :]] for at in range(len(text))]
        expected = model.log_probabilities(masked, [[at] for at in range(len(text))])
        assert row == pytest.approx([float(p[0, t]) for p, t in zip(expected, text, strict=True)], abs=1e-5)
        assert small == pytest.approx(row, abs=1e-5)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="its kernels run on a GPU alone, and there is none")
def test_pseudo_log_likelihoods_gpu_equals_cpu(model):
    texts = [model.ids(text) for text in ("a is b", "c", "a b c d is here .")]
    on_gpu = pseudo_log_likelihoods(model.to(torch.device("cuda")), texts)
    for expected, row in zip(pseudo_log_likelihoods(model, texts), on_gpu, strict=True):
        assert row == pytest.approx(expected, rel=3e-2)  # attention in bfloat16 there


def test_word_vectors_are_means_of_subwords_in_every_layer(model):
    words = word_vectors(model, SENTENCES)
    assert words.vectors.shape == (3, 9, 16)
    assert words.sentence.tolist() == [0] * 4 + [1] * 2 + [2] * 3
    assert words.position.tolist() == [*range(4), *range(2), *range(3)]
    subwords = tokenize_words(model, SENTENCES)
    assert subwords.words[0] == [0, 1, 1, 1, 2, 3]
    states, _ = model.hidden_states([subwords.ids[0]])
    for layer, state in enumerate(states):
        torch.testing.assert_close(words.vectors[layer, 1], state[2:5].mean(0))


def test_word_vectors_equal_in_any_batch(model):
    one_batch, one_by_one = (
        word_vectors(replace(model, batch_tokens=limit), SENTENCES).vectors for limit in (model.batch_tokens, 1)
    )
    torch.testing.assert_close(one_by_one, one_batch, rtol=1e-5, atol=1e-6)


def test_tokenize_words_long_sentence_is_truncated_between_words(model):
    long = Sentence((*"abcdefghij" * 3, "e", "f", "g", "h", "i", "j", "a", "bab", "c"), "long")
    words = tokenize_words(model, [long, Sentence(("",), "nothing")])
    assert len(words.ids[0]) == 37 and words.words[0][-1] == 36 and words.ids[1] == []


@pytest.mark.parametrize("kind", ["byte_bpe", "unigram"])
def test_tokenize_words_running_text_has_the_tokens_that_training_has(tmp_path, kind):
    model = make_model(tokenizer=learn_tokenizer(tmp_path, kind))
    for text in (" he looked at him, and smiled. ", "the cat's mat", "sat  on (the mat) ... ", "he", "café,said"):
        sentence = Sentence.of_text(text, "")
        (ids,), (words,) = tokenize_words(model, [sentence])
        assert ids == model.ids(text.strip())
        assert words == sorted(words) and {*words} <= {*range(len(sentence.words))}
    (_, (words,)) = tokenize_words(model, [Sentence.of_text("he looked at him and smiled.", "")])
    assert {*words} == {*range(7)} and Sentence.of_text("it isn't.", "").words == ("it", "isn", "'", "t", ".")


@given(st.text(st.characters(exclude_categories=["C"]), max_size=40))  # WordPiece leaves control characters out
def test_tokenize_words_of_wordpiece_are_those_of_words_joined_by_spaces(text):
    model = make_model()
    written = Sentence.of_text(text, "")
    assert tokenize_words(model, [written]) == tokenize_words(model, [Sentence(written.words, "")])
