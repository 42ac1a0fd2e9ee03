"""Sentences for the page interpretation.html, with the attention between their words."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

from pipeline_src.interpret.attention_maps import attention_maps, merge_tokens, unit_of_tokens
from pipeline_src.interpret.model import ProbedModel, Sentence, SkipMeasure, tokenize_words

# Number of sentences on the page, and minimum and maximum number of words, so that a sentence fits on a screen.
NUM_SHOWN = 4
MIN_WORDS, MAX_WORDS = 6, 12


def choose_sentences(model: ProbedModel, sentences: Sequence[Sentence]) -> list[Sentence]:
    # Returns short sentences from different documents that end in punctuation: those with the fewest subwords per word.
    short = []
    for sentence in sentences:
        if MIN_WORDS <= len(sentence.words) <= MAX_WORDS and not sentence.words[-1].isalnum():
            short.append(sentence)
    known = []
    for sentence, ids in zip(short, tokenize_words(model, short).ids if short else [], strict=True):
        if model.unknown not in ids:
            known.append((len(ids) / len(sentence.words), sentence))
    chosen: dict[str, Sentence] = {}
    for _, sentence in sorted(known, key=lambda pair: pair[0]):
        chosen.setdefault(sentence.document, sentence)
    if not chosen:
        raise SkipMeasure("no validation sentence is short and has only known tokens")
    return list(chosen.values())[:NUM_SHOWN]


def shown_sentences(model: ProbedModel, sentences: Sequence[Sentence]) -> list[dict[str, Any]]:
    """Return the words and attention probabilities of each sentence, as JSON values for the page.

    Returns:
        For each sentence, ``words`` (special tokens included), ``marks`` (number of special tokens before and after the
        words) and ``weights`` (base64 of layers x heads x words x words bytes, in which 255 is probability 1).
    """
    subwords = tokenize_words(model, sentences)
    not_empty = [number for number, ids in enumerate(subwords.ids) if ids]
    leading_ids, trailing_ids = model.template.special_ids
    leading = [model.tokenizer.id_to_token(token) for token in leading_ids]
    trailing = [model.tokenizer.id_to_token(token) for token in trailing_ids]
    shown: dict[int, dict[str, Any]] = {}
    for index, maps in attention_maps(model, [subwords.ids[number] for number in not_empty]):
        number = not_empty[index]
        # The index of each token's word. If the sentence was truncated, its last words are missing.
        word_of_token = subwords.words[number]
        sentence = sentences[number]
        words = [sentence.words[word] for word in dict.fromkeys(word_of_token)]
        by_word = merge_tokens(maps, unit_of_tokens(model, word_of_token))
        weights = (by_word * 255).round().byte().numpy().tobytes()
        shown[number] = {
            "words": [*leading, *words, *trailing],
            "marks": [len(leading), len(trailing)],
            "weights": base64.b64encode(weights).decode("ascii"),
        }
    # Restore the original order, since batches are sorted by length.
    return [shown[number] for number in sorted(shown)]
