"""Left to right: every next token within its sequence, nothing masked."""

import numpy as np
import pytest

from pipeline_src.common.members import member_names
from pipeline_src.examples.pairs import PairRules, document_pairs
from pipeline_src.params.pretrain import Masking
from pipeline_src.pretraining.loading.batches import PretrainingExamples
from pipeline_src.pretraining.loading.corruption import corruption_of
from pipeline_src.pretraining.loading.left_to_right import LeftToRight
from pipeline_src.tokenizer.wordpiece import SPECIAL_TOKENS, build_tokenizer
from tests.frames import bert_frames

CLS, SEP = 2, 3


@pytest.mark.parametrize(("pairs", "marks"), [("none", 2), ("next_sentence", 3)])
def test_every_token_but_the_first_is_predicted_once_from_the_one_before(tmp_path, store, pairs, marks):
    np.save(tmp_path / "index.npy", document_pairs(store, 0, len(store), PairRules(32, 0.1, 0.5, pairs, marks), [1]))
    examples = PretrainingExamples(tmp_path / "index.npy", store, LeftToRight(SEP), bert_frames(CLS, SEP), pairs)
    picked = np.asarray([4, 0, 7])
    batch = examples.batch(picked)
    places, labels = batch.predicted.tolist(), batch.labels.tolist()
    expected = []
    for a, b in zip(batch.cu_seqlens, batch.cu_seqlens[1:], strict=False):
        assert batch.ids[a] == CLS and batch.ids[b - 1] == SEP
        expected += [(place, batch.ids[place + 1]) for place in range(a, b - 1)]
    assert list(zip(places, labels, strict=True)) == expected
    assert examples.corruption.predictions(np.diff(batch.cu_seqlens)).sum() == len(places)
    assert np.array_equal(batch.ids, examples.batch(picked, 3).ids)  # in any epoch
    words = examples.corruption.unseen(batch.ids[batch.predicted], batch.labels)
    assert np.array_equal(words, batch.labels != SEP)
    assert batch.max_seqlen == np.diff(batch.cu_seqlens).max()


def test_every_objective_of_the_parameters_is_there():
    tokenizer = build_tokenizer([*SPECIAL_TOKENS, "a", "##b"], lowercase=True)
    ids = tokenizer.get_vocab()
    made = {name: corruption_of(name)(tokenizer, 0.15, Masking(), 1) for name in member_names("objectives")}
    assert made["left_to_right"] == LeftToRight(ids["[SEP]"])
    assert made["masked"].mask_id == ids["[MASK]"]
    assert made["masked"].special.nonzero()[0].tolist() == sorted(ids[token] for token in ("[PAD]", "[CLS]", "[SEP]"))
    assert made["masked"].inner.nonzero()[0].tolist() == [ids["##b"]]
