"""SQuAD 1.1's whole dev file in a real vocabulary: gold spans to tokens and back to the text."""

from __future__ import annotations

import lzma
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from pipeline_src.study.task_spec import load_spec
from pipeline_src.tasks import squad_windows as squad
from pipeline_src.tasks.kinds import make_task
from pipeline_src.tasks.squad_windows import gold_tokens
from pipeline_src.tokenizer.load import load_tokenizer

DATA = Path(__file__).resolve().parents[3].parent / "shared" / "data" / "squad"
FILE = DATA / "dev-v1.1.rebuilt.json.xz"
SPEC = make_task(load_spec("squad1"))

pytestmark = pytest.mark.skipif(not FILE.exists(), reason="SQuAD's dev file is not on this machine")


@pytest.fixture(scope="module")
def tokenizer(minilm):
    tokenizer = load_tokenizer(minilm)
    tokenizer.no_truncation()  # this one brings a length along
    tokenizer.no_padding()
    return tokenizer


@pytest.fixture(scope="module")
def examples(tmp_path_factory):
    path = tmp_path_factory.mktemp("squad") / "dev.json"
    path.write_bytes(lzma.decompress(FILE.read_bytes()))
    counts: Counter[str] = Counter()
    examples = SPEC.read(path, counts=counts)
    assert len(examples) == 10_570 and not counts
    return examples


@pytest.fixture(scope="module")
def features(examples, tokenizer):
    return SPEC.features(examples, tokenizer, 384)


def test_gold_tokens_official_squad_answers_are_restored_or_counted(examples, features, tokenizer):
    """99.366 % of the first answers come back exactly, 99.782 % of the questions have one that does."""
    offsets = {}
    first: Counter[str] = Counter()
    any_exact = 0
    for example in examples:
        if example.context not in offsets:
            encoding = tokenizer.encode(example.context, add_special_tokens=False)
            offsets[example.context] = np.array(encoding.offsets)
        result = [gold_tokens(example.context, answer, offsets[example.context]) for answer in example.answers]
        for answer, (tokens, reason) in zip(example.answers, result, strict=True):
            assert tokens is not None
            left, right = offsets[example.context][list(tokens), [0, 1]]
            assert left <= answer.start and answer.start + len(answer.text) <= right  # the answer is in there
            assert (example.context[left:right] == answer.text) == (reason == "")
        first[result[0][1]] += 1
        any_exact += any(not reason for _, reason in result)
    assert first == {"": 10_503, squad.INSIDE_A_WORD: 67}
    assert any_exact == 10_547
    assert first[""] / len(examples) >= 0.993 and any_exact / len(examples) >= 0.997
    assert features.counts == {squad.INSIDE_A_WORD: 67, squad.TOO_LONG: 9}


def test_squad_predict_gold_logits_of_official_file_score_100(examples, features):
    outputs = np.random.default_rng(0).normal(size=(len(features.ids), 2)).astype(np.float32)
    items = np.flatnonzero(features.labels[:, 0])
    for side in (0, 1):
        outputs[features.cu_seqlens[items] + features.labels[items, side], side] += 20
    rows = SPEC.predict(examples, features, outputs)
    scores = SPEC.score("squad1", examples, rows)
    # lost: 9 answers of more than 30 tokens, 67 inside a word, and spans whose start has more context elsewhere
    assert scores["em"] > 98.9 and scores["f1"] > 99.3
