from __future__ import annotations

import json
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from pipeline_src.tasks import nbest
from pipeline_src.tasks.files.squad import Answer, Example
from pipeline_src.tasks.nbest import find_spans, nbest_list
from pipeline_src.tasks.windows import SpanFeatures, window_features

WORDS = " ".join(f"w{number}" for number in range(300))


def transcription(features: SpanFeatures, outputs: np.ndarray, question: int, context: str, void: bool) -> list[tuple]:
    """What run_squad.py does for one question, a pair of tokens at a time: texts and scores, best first."""
    found, null = [], 1e6
    for item in np.flatnonzero(features.example == question).tolist():
        begin, end = features.cu_seqlens[item], features.cu_seqlens[item + 1]
        scores = outputs[begin:end].tolist()
        null = min(null, scores[0][0] + scores[0][1])
        ranked = [
            [i for i, _ in sorted(enumerate(scores), key=lambda pair: pair[1][side], reverse=True)][:20]
            for side in (0, 1)
        ]
        for first in ranked[0]:
            for last in ranked[1]:
                inside = features.offsets[begin + first, 1] > 0 and features.offsets[begin + last, 1] > 0
                if not inside or not features.may_start[begin + first]:
                    continue
                if last < first or last - first + 1 > 30:
                    continue
                left, right = features.offsets[begin + first, 0], features.offsets[begin + last, 1]
                found.append((scores[first][0] + scores[last][1], context[left:right]))
    if void:
        found.append((null, ""))
    kept: list[tuple] = []
    for score, text in sorted(found, key=lambda pair: pair[0], reverse=True):
        if len(kept) < 20 and text not in [other for other, _ in kept]:
            kept.append((text, score))
    if void and "" not in [text for text, _ in kept]:
        kept.append(("", null))
    return kept


@given(st.integers(0, 2**32), st.sampled_from([24, 60, 384]), st.booleans(), st.booleans())
@settings(max_examples=25, deadline=None)
def test_spans_are_those_of_run_squad(tokenizer: Tokenizer, seed: int, length: int, void: bool, even: bool):
    rng = np.random.default_rng(seed)
    # words come back, so that different spans have one text
    contexts = [" ".join(f"w{n}" for n in rng.integers(0, 30, size=rng.integers(1, 300))) for _ in range(4)]
    examples = [Example(str(i), "where was", contexts[i % 4], ()) for i in range(6)]
    features = window_features("t", examples, tokenizer, length)
    outputs = rng.normal(size=(len(features.ids), 2)).astype(np.float32) * 3
    if even:
        outputs = outputs.round()  # many equal scores
    for number, found in enumerate(find_spans(features, outputs, len(examples))):
        context = examples[number].context
        expected = transcription(features, outputs, number, context, void)
        spans = nbest_list(found, context, features.offsets, void)
        if not [text for text, _ in expected if text]:
            assert len([span for span in spans if span["text"]]) == 1  # run_squad.py says "empty"
            continue
        assert [span["text"] for span in spans] == [text for text, _ in expected]
        np.testing.assert_allclose([span["score"] for span in spans], [score for _, score in expected], atol=1e-5)
        weights = np.exp([score for _, score in expected])
        np.testing.assert_allclose([span["probability"] for span in spans], weights / weights.sum(), atol=1e-6)
        assert all(context[span["start"] : span["end"]] == span["text"] for span in spans)


def test_where_the_best_starts_and_ends_do_not_meet_the_best_span_of_all_is_taken(tokenizer: Tokenizer):
    example = Example("q", "where", WORDS, (Answer("w1", 3),))
    features = window_features("t", [example], tokenizer, 384)
    outputs = np.zeros((len(features.ids), 2))
    outputs[200:230, 0] = 5.0
    outputs[10:40, 1] = 5.0  # all best ends lie before all best starts
    outputs[100, 0], outputs[105, 1] = 4.0, 4.0
    (found,) = find_spans(features, outputs, 1)
    spans = nbest_list(found, WORDS, features.offsets, False)
    assert spans == [
        {
            "text": "w97 w98 w99 w100 w101 w102",
            "start": WORDS.index("w97"),
            "end": WORDS.index(" w103"),
            "score": 8.0,
            "probability": 1.0,
        }
    ]


def test_no_answer_is_the_least_score_of_all_windows(tokenizer: Tokenizer):
    features = window_features("t", [Example("q", "where", WORDS, ())], tokenizer, 204)
    outputs = np.zeros((len(features.ids), 2))
    outputs[features.cu_seqlens[:-1]] = [[3.0, 1.0], [2.0, 0.5]]
    (found,) = find_spans(features, outputs, 1)
    assert found.null == 2.5
    assert nbest_list(found, WORDS, features.offsets, True)[0]["text"] == ""


@pytest.mark.parametrize("block", [1, 2, 512])
def test_blocks_of_questions_change_nothing(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch, block: int):
    examples = [Example(str(i), "where", WORDS[: 90 * i], ()) for i in range(5)]  # the first context is empty
    features = window_features("t", examples, tokenizer, 100)
    outputs = np.random.default_rng(0).normal(size=(len(features.ids), 2))
    monkeypatch.setattr(nbest, "QUESTIONS", block)
    found = [nbest_list(f, WORDS, features.offsets, True) for f in find_spans(features, outputs, 5)]
    monkeypatch.undo()
    assert found == [nbest_list(f, WORDS, features.offsets, True) for f in find_spans(features, outputs, 5)]
    assert [span["text"] for span in found[0]] == [""]


def test_ten_thousand_questions_take_seconds(tokenizer: Tokenizer):
    examples = [Example(str(i), "where", f"{WORDS[: 600 + i % 7]}", ()) for i in range(10_570)]
    features = window_features("t", examples, tokenizer, 384)
    outputs = np.random.default_rng(0).normal(size=(len(features.ids), 2)).astype(np.float32)
    begin = time.process_time()
    size = 0
    for example, found in zip(examples, find_spans(features, outputs, len(examples)), strict=True):
        spans = nbest_list(found, example.context, features.offsets, True)
        if int(example.id) % 10 == 0:
            size += len(json.dumps(spans))
    assert time.process_time() - begin < 15  # 1 s; minutes one pair at a time
    assert size / (len(examples) / 10) < 5000  # bytes of a question
