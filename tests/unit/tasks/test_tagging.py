from __future__ import annotations

import json
import random
from itertools import pairwise

import numpy as np
import pytest
from seqeval.metrics import f1_score
from seqeval.metrics.sequence_labeling import get_entities
from tokenizers import Tokenizer

from pipeline_src.base.errors import PipelineError
from pipeline_src.study.task_spec import load_spec
from pipeline_src.tasks import tagging
from pipeline_src.tasks.conll import TaggedSentence
from pipeline_src.tasks.features import NO_TAG, TokenFeatures
from pipeline_src.tasks.kinds import make_task

NER, POS = make_task(load_spec("ner")), make_task(load_spec("pos"))
EXAMPLES = [
    TaggedSentence("0", 1, ("Zoe", "was", "born", "in", "Paris"), ("B-PER", "O", "O", "O", "B-LOC")),
    TaggedSentence("1", 1, ("Where", "?"), ("O", "O")),
    TaggedSentence("2", 2, ("Paris-was", "\u200b"), ("B-MISC", "I-MISC")),
]


def sentence(number: int, words: str, document: int = 1) -> TaggedSentence:
    return TaggedSentence(str(number), document, tuple(words.split()), ("O",) * len(words.split()))


def shown(tokenizer: Tokenizer, features: TokenFeatures) -> list[str]:
    """Each window's tokens; those that carry a tag stand in capitals."""
    tokens = [tokenizer.id_to_token(int(token)) for token in features.ids]
    marked = [token.upper() if word >= 0 else token for token, word in zip(tokens, features.word, strict=True)]
    return [" ".join(marked[a:b]) for a, b in pairwise(features.cu_seqlens)]


def oracle(features: TokenFeatures, tags: int) -> np.ndarray:
    """Outputs that know the labels."""
    outputs = np.zeros((len(features.ids), tags), np.float32)
    tagged = np.flatnonzero(features.word >= 0)
    outputs[tagged, features.labels[tagged]] = 5.0
    return outputs


def test_tagging_features_only_first_subword_has_label(tokenizer: Tokenizer):
    features = NER.features(EXAMPLES, tokenizer, 64)
    assert shown(tokenizer, features) == [
        "[CLS] Z ##o ##e WAS BORN IN PARIS WHERE ? [SEP]",
        "[CLS] PARIS - was [UNK] [SEP]",
    ]
    assert features.labels.tolist()[:10] == [NO_TAG, 1, NO_TAG, NO_TAG, 0, 0, 0, 5, 0, 0]
    assert features.labels.tolist()[-5:] == [7, NO_TAG, NO_TAG, 8, NO_TAG]
    assert features.word.max() == 8
    assert features.example.tolist() == [0, 2]
    assert features.counts == {"words without a token, read as [UNK]": 1}
    assert (features.ids.dtype, features.segments.dtype, features.labels.dtype) == (np.int32, np.int8, np.int64)
    assert not features.segments.any()
    assert NER.num_outputs == 9


def test_tagging_features_later_window_begins_with_context(tokenizer: Tokenizer):
    examples = [sentence(0, "w0 w1 w2 w3 w4 w5 w6"), sentence(1, "w7 w8"), sentence(2, "w9"), sentence(3, "w10 w11")]
    examples += [sentence(4, "w12 w13 w14 w15 w16 w17"), sentence(5, "w22", document=2)]
    features = NER.features(examples, tokenizer, 14)  # 12 tokens, 3 of them context at most
    assert shown(tokenizer, features) == [
        "[CLS] W0 W1 W2 W3 W4 W5 W6 W7 W8 W9 W10 W11 [SEP]",
        "[CLS] w9 w10 w11 W12 W13 W14 W15 W16 W17 [SEP]",
        "[CLS] W22 [SEP]",
    ]
    assert features.counts == {}
    assert features.example.tolist() == [0, 4, 5]


def test_tagging_features_context_is_dropped_for_long_sentence(tokenizer: Tokenizer):
    examples = [sentence(0, "w0 w1"), sentence(1, "w2 w3 w4 w5 w6 w7 w8 w9 w10 w11 w12 w13")]
    features = NER.features(examples, tokenizer, 14)
    assert [window.split()[1] for window in shown(tokenizer, features)] == ["W0", "W2"]


def test_tagging_features_long_sentence_is_split_between_words(tokenizer: Tokenizer):
    example = sentence(0, " ".join(f"w{number}" for number in range(30)) + " ok by " + "x" * 40 + " w30")
    features = NER.features([example], tokenizer, 16)
    windows = shown(tokenizer, features)
    assert windows[2] == "[CLS] W28 W29 O ##k B ##y [SEP]"
    assert windows[3] == "[CLS] X" + " ##x" * 13 + " [SEP]"
    assert windows[4] == "[CLS] W30 [SEP]"
    assert features.counts == {
        "sentences longer than a window, cut between words": 1,
        "words longer than a window, cut": 1,
    }
    assert sorted(features.word[features.word >= 0]) == list(range(34))


@pytest.mark.parametrize("length", [16, 23, 64, 512])
def test_tagging_features_every_word_is_labelled_once(tokenizer: Tokenizer, length: int):
    rng = random.Random(length)
    examples = []
    for number in range(200):
        words = [rng.choice(["w1", "born", "xyz", "a-b", "\u200b", "."]) for _ in range(rng.randint(1, 40))]
        tags = tuple(rng.choice(NER.spec.labels) for _ in words)
        examples.append(TaggedSentence(str(number), number // 7, tuple(words), tags))
    features = NER.features(examples, tokenizer, length)
    assert np.diff(features.cu_seqlens).max() <= length
    assert sorted(features.word[features.word >= 0]) == list(range(sum(len(e.words) for e in examples)))
    assert np.array_equal(features.labels >= 0, features.word >= 0)
    rows = NER.predict(examples, features, oracle(features, 9))
    assert [tuple(row["prediction"]) for row in rows] == [example.tags for example in examples]


def test_tagging_predictions_have_expected_scores(tokenizer: Tokenizer):
    features = NER.features(EXAMPLES, tokenizer, 64)
    outputs = oracle(features, 9)
    outputs[np.flatnonzero(features.word == 8), [0]] = 9.0  # the second word of Paris-was is called O
    rows = json.loads(json.dumps(NER.predict(EXAMPLES, features, outputs)))
    assert [row["prediction"] for row in rows] == [list(e.tags) for e in EXAMPLES[:2]] + [["B-MISC", "O"]]
    assert 0.9 < rows[0]["confidence"] < rows[2]["confidence"] < 1
    assert NER.score("ner", EXAMPLES, rows[::-1]) == {"entity_f1": pytest.approx(200 / 3)}
    assert NER.majority_baseline("ner", EXAMPLES) == {"entity_f1": 0.0}
    third = NER.example_results("ner", EXAMPLES, rows)[2]
    assert (third.text, third.words, third.right) == ("Paris-was \u200b", 2, 0.5)
    assert (third.gold, third.predicted, third.confidence) == ("B-MISC I-MISC", "B-MISC O", rows[2]["confidence"])


def test_tagging_score_pos_accuracy_counts_words():
    examples = [TaggedSentence("0", 0, ("a", "b", "c"), ("X", "VERB", "X")), TaggedSentence("1", 1, ("d",), ("NOUN",))]
    rows = [{"id": "0", "prediction": ["X", "X", "X"]}, {"id": "1", "prediction": ["NOUN"]}]
    assert POS.score("pos", examples, rows) == {"accuracy": 75.0}
    assert POS.majority_baseline("pos", examples) == {"accuracy": 50.0}
    assert POS.example_results("pos", examples, rows)[0].confidence is None


@pytest.mark.parametrize("value", [["O"], ["O", "B-GEO"], ["O", 1]])
def test_tagging_score_invalid_prediction_is_rejected(value: object):
    with pytest.raises(PipelineError, match="invalid prediction[\\s\\S]*each of the 2 words"):
        NER.score("ner", EXAMPLES[1:2], [{"id": "1", "prediction": value}])


def entity_f1(gold: list[list[str]], guess: list[list[str]]) -> float:
    return tagging.METRICS["entity_f1"](gold, [guess]).score()


@pytest.mark.parametrize("seed", range(20))
def test_entities_random_iobes_tags_equal_seqeval(seed: int):
    rng = random.Random(seed)
    labels = ["O", *(f"{prefix}-{kind}" for prefix in "BIES" for kind in ("PER", "LOC-X"))]
    tags = [rng.choice(labels) for _ in range(60)]
    assert tagging.entities(tags) == set(get_entities(tags))


@pytest.mark.parametrize("seed", range(20))
def test_entity_f1_equals_seqeval(seed: int):
    rng = random.Random(seed)
    sentences = []
    for _ in range(rng.choice([1, 10, 300])):
        gold = [rng.choice(NER.spec.labels if rng.random() < 0.5 else ("O",)) for _ in range(rng.randint(1, 25))]
        guess = [tag if rng.random() < 0.8 else rng.choice(NER.spec.labels) for tag in gold]
        sentences.append((gold, guess))
    gold, guess = ([list(side) for side in sides] for sides in zip(*sentences, strict=True))
    assert entity_f1(gold, guess) == pytest.approx(100 * f1_score(gold, guess, zero_division=0), abs=1e-9)


@pytest.mark.filterwarnings("error")
def test_entity_f1_without_entities_is_0():
    assert entity_f1([["O", "O"]], [["O", "O"]]) == 0.0
    assert entity_f1([["B-PER"]], [["O"]]) == 0.0
    assert entity_f1([["B-PER", "I-PER"]], [["I-PER", "I-PER"]]) == 100.0  # as conlleval: an I- may begin one
