"""Sentences for the report's page: attention between words, and what each word adds to predicting a masked word."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pipeline_src.interpretation.attention_maps import attention_maps, merge_tokens, unit_of_tokens
from pipeline_src.interpretation.bootstrap import rounded, rounded_list
from pipeline_src.interpretation.model import ProbedModel, Sentence, SkipMeasure, tokenize_words

NUM_SHOWN = 4  # sentences on the page
MIN_WORDS, MAX_WORDS = 6, 12  # of a sentence that fits on a screen
NUM_NODES = 64  # of Gauss-Legendre quadrature; attributions sum to the difference within 1e-6, with 32 nodes 2e-4


def choose_sentences(model: ProbedModel, sentences: Sequence[Sentence]) -> list[Sentence]:
    """Choose short sentences of different documents that end in punctuation and have the fewest subwords per word."""
    short = [
        sentence
        for sentence in sentences
        if MIN_WORDS <= len(sentence.words) <= MAX_WORDS and not sentence.words[-1].isalnum()
    ]
    subwords = zip(short, tokenize_words(model, short).ids if short else [], strict=True)
    chosen: dict[str, Sentence] = {}
    for sentence, ids in sorted(subwords, key=lambda pair: len(pair[1]) / len(pair[0].words)):
        if model.unknown not in ids:
            chosen.setdefault(sentence.document, sentence)
    if not chosen:
        raise SkipMeasure("no sentence of the validation text is short and spelt by the vocabulary")
    return list(chosen.values())[:NUM_SHOWN]


def shown_sentences(model: ProbedModel, sentences: Sequence[Sentence]) -> list[dict[str, Any]]:
    """Return each sentence's words, special tokens and attention probabilities for the page.

    ``weights`` is the base64 of layers x heads x words x words bytes, in which 255 is probability 1. ``hidden`` is
    about a masked word: how much each word adds to its log-probability.
    """
    subwords = tokenize_words(model, sentences)
    numbers = [number for number, ids in enumerate(subwords.ids) if ids]
    result: dict[int, dict[str, Any]] = {}
    leading, trailing = (
        [str(model.tokenizer.id_to_token(token)) for token in run] for run in model.template.special_ids
    )
    for order, maps in attention_maps(model, [subwords.ids[number] for number in numbers]):
        number = numbers[order]
        words = subwords.words[number]
        weights = merge_tokens(maps, unit_of_tokens(model, words))
        result[number] = {
            "words": [*leading, *(sentences[number].words[word] for word in dict.fromkeys(words)), *trailing],
            "marks": [len(leading), len(trailing)],
            "weights": base64.b64encode((weights * 255).round().byte().numpy().tobytes()).decode("ascii"),
        }
        if not model.lacks and (explained := _explain(model, subwords.ids[number], words)):
            result[number]["hidden"] = explained
    return [result[number] for number in sorted(result)]


def _explain(model: ProbedModel, ids: Sequence[int], words: Sequence[int]) -> dict[str, Any] | None:
    """Mask the last word that is a single token of letters, and attribute its log-probability (nats) to all words.

    Special tokens count as words. Returns None if there is no such word.
    """
    tokens = [model.kind.spelt(str(model.tokenizer.id_to_token(number))) for number in ids]
    single = [at for at, word in enumerate(words) if words.count(word) == 1 and tokens[at].isalpha()]
    if not single:
        return None
    position = single[-1]
    masked = [*ids[:position], model.mask, *ids[position + 1 :]]
    attributions, gain = integrated_gradients(model, masked, position, ids[position])
    units = unit_of_tokens(model, words)
    by_word = torch.zeros(max(units) + 1).index_add_(0, torch.tensor(units), attributions)
    (log_probs,) = model.log_probabilities([masked], [[position]])
    return {
        "at": units[model.num_leading + position],
        "probability": rounded(log_probs[0, ids[position]].exp()),
        "gain": rounded(gain),
        "adds": rounded_list(by_word.tolist()),
    }


def integrated_gradients(model: ProbedModel, ids: Sequence[int], position: int, token: int) -> tuple[Tensor, float]:
    """Attribute the log-probability of ``token`` at a masked position to all tokens (Sundararajan et al. 2017).

    Returns an attribution for each token, special tokens included, and their sum: the difference of the log-probability
    between the text and the text with all tokens masked. ``ids`` and ``position`` do not count special tokens.
    """
    head = model.mlm_head
    packed, token_type_ids, layout = model.pack([ids])
    baseline = packed.clone()
    baseline[model.num_leading : model.num_leading + len(ids)] = model.mask
    embedding = model.encoder.embeddings.word_embeddings
    start, end = (embedding(input_ids).detach() for input_ids in (baseline, packed))
    total = torch.zeros_like(end)

    def log_prob_at(fraction: float) -> tuple[Tensor, Tensor]:
        point = (start + fraction * (end - start)).requires_grad_()
        hook = embedding.register_forward_hook(lambda *_: point)  # the encoder looks its embeddings up itself
        try:
            with torch.enable_grad():
                hidden = model.encoder.decode(packed, token_type_ids, layout)
                logits = head(hidden[[model.num_leading + position]])
                return point, logits[0, : model.tokenizer.get_vocab_size()].log_softmax(-1)[token]
        finally:
            hook.remove()

    # Nodes and weights are for the interval from -1 to 1, which is twice as long as the path.
    for node, weight in zip(*np.polynomial.legendre.leggauss(NUM_NODES), strict=True):
        point, log_prob = log_prob_at((node + 1) / 2)
        (grad,) = torch.autograd.grad(log_prob, point)
        total += weight / 2 * grad
    return ((end - start) * total).sum(-1).detach(), float((log_prob_at(1.0)[1] - log_prob_at(0.0)[1]).detach())
