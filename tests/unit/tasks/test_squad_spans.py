"""The best spans of SQuAD, compared with the loops of run_squad.py."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from pipeline_src.study.task_spec import load_spec
from pipeline_src.tasks import squad_spans as module
from pipeline_src.tasks.features import SpanFeatures
from pipeline_src.tasks.kinds import make_task
from pipeline_src.tasks.questions import Answer, Question
from pipeline_src.tasks.squad_spans import find_spans, nbest_list

ONE = make_task(load_spec("squad1"))
WORDS = " ".join(f"w{number}" for number in range(300))


def run_squad_nbest(
    features: SpanFeatures, outputs: np.ndarray, question: int, context: str, void: bool
) -> list[tuple]:
    """What run_squad.py does for one question, a pair of tokens at a time: texts and scores, best first."""
    outcome, null = [], 1e6
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
                outcome.append((scores[first][0] + scores[last][1], context[left:right]))
    if void:
        outcome.append((null, ""))
    best: dict[str, float] = {}
    for score, text in sorted(outcome, key=lambda pair: pair[0], reverse=True):
        if len(best) < 20:
            best.setdefault(text, score)
    if void:
        best.setdefault("", null)
    return list(best.items())


@given(st.integers(0, 2**32), st.sampled_from([24, 60, 384]), st.booleans(), st.booleans())
@settings(max_examples=25, deadline=None)
def test_find_spans_and_nbest_equal_run_squad(tokenizer: Tokenizer, seed: int, length: int, void: bool, even: bool):
    rng = np.random.default_rng(seed)
    # Words are repeated, so that different spans have the same text.
    contexts = [" ".join(f"w{n}" for n in rng.integers(0, 30, size=rng.integers(1, 300))) for _ in range(4)]
    examples = [Question(str(i), "where was", contexts[i % 4], ()) for i in range(6)]
    features = ONE.features(examples, tokenizer, length)
    outputs = rng.normal(size=(len(features.ids), 2)).astype(np.float32) * 3
    if even:
        outputs = outputs.round()  # many equal scores
    for number, outcome in enumerate(find_spans(features, outputs, len(examples))):
        context = examples[number].context
        expected = run_squad_nbest(features, outputs, number, context, void)
        spans = nbest_list(outcome, context, features.offsets, void)
        if not [text for text, _ in expected if text]:
            assert len([span for span in spans if span["text"]]) == 1  # run_squad.py says "empty"
            continue
        assert [span["text"] for span in spans] == [text for text, _ in expected]
        np.testing.assert_allclose([span["score"] for span in spans], [score for _, score in expected], atol=1e-5)
        weights = np.exp([score for _, score in expected])
        np.testing.assert_allclose([span["probability"] for span in spans], weights / weights.sum(), atol=1e-6)
        assert all(context[span["start"] : span["end"]] == span["text"] for span in spans)


def test_find_spans_without_valid_top_span_returns_best_span(tokenizer: Tokenizer):
    example = Question("q", "where", WORDS, (Answer("w1", 3),))
    features = ONE.features([example], tokenizer, 384)
    outputs = np.zeros((len(features.ids), 2))
    outputs[200:230, 0] = 5.0
    outputs[10:40, 1] = 5.0  # all best end tokens are before all best start tokens
    outputs[100, 0], outputs[105, 1] = 4.0, 4.0
    (outcome,) = find_spans(features, outputs, 1)
    spans = nbest_list(outcome, WORDS, features.offsets, False)
    bounds = {"start": WORDS.index("w97"), "end": WORDS.index(" w103")}
    assert spans == [{"text": "w97 w98 w99 w100 w101 w102", **bounds, "score": 8.0, "probability": 1.0}]


@pytest.mark.parametrize("block", [1, 2, 512])
def test_find_spans_question_batches_change_nothing(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch, block: int):
    examples = [Question(str(i), "where", WORDS[: 90 * i], ()) for i in range(5)]  # the first context is empty
    features = ONE.features(examples, tokenizer, 100)
    outputs = np.random.default_rng(0).normal(size=(len(features.ids), 2))
    monkeypatch.setattr(module, "QUESTION_BATCH", block)
    outcome = [nbest_list(f, WORDS, features.offsets, True) for f in find_spans(features, outputs, 5)]
    monkeypatch.undo()
    assert outcome == [nbest_list(f, WORDS, features.offsets, True) for f in find_spans(features, outputs, 5)]
    assert [span["text"] for span in outcome[0]] == [""]
