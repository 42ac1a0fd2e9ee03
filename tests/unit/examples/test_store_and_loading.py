"""Token shards on disk, and batches assembled from them."""

import numpy as np
import pytest

from pipeline_src.errors import PipelineError
from pipeline_src.examples.loading import PretrainingExamples
from pipeline_src.examples.masking import MaskedLM
from pipeline_src.examples.plan import plan_pairs
from pipeline_src.examples.store import TokenStore
from pipeline_src.params.examples import ExamplesParams, Lengths
from pipeline_src.params.pretrain import Masking

CLS, SEP, MASK = 2, 3, 4


def test_documents_come_back_as_written(store, documents):
    assert store.documents == len(documents)
    for number, document in enumerate(documents):
        offsets = store.document(number)
        found = [store.span(a, b).tolist() for a, b in zip(offsets, offsets[1:], strict=False)]
        assert found == document


def test_counts(store, documents):
    counts = store.counts(200)
    assert counts.sum() == store.tokens
    assert counts[100] == sum(map(len, documents[0]))


def test_a_cut_shard_is_one_clear_error(tmp_path, store):
    ids = tmp_path / "train" / "b.ids"
    ids.write_bytes(ids.read_bytes()[:-4])
    with pytest.raises(PipelineError, match="token shard is damaged"):
        TokenStore(tmp_path, "train")


@pytest.fixture
def examples(tmp_path, store) -> PretrainingExamples:
    params = ExamplesParams(lengths=Lengths(short=32, long=64), duplicates=1)
    np.save(tmp_path / "plan.npy", plan_pairs(store, 1, "short", 32, 1, params))
    masked_lm = MaskedLM(0.15, Masking(), MASK, (CLS, SEP, 0), 200, 1)
    return PretrainingExamples(tmp_path / "plan.npy", store, masked_lm, CLS, SEP)


def test_a_batch_is_cls_a_sep_b_sep(examples):
    picked = np.asarray([3, 0, 9])
    batch = examples.batch(picked)
    ids = batch.ids.copy()
    ids[batch.predicted] = batch.labels  # take the masks off again
    for row, (start, stop) in enumerate(zip(batch.starts, batch.starts[1:], strict=False)):
        a_start, a_stop, b_start, b_stop, is_random = examples.plan[picked[row]]
        a, b = examples.store.span(a_start, a_stop), examples.store.span(b_start, b_stop)
        assert ids[start:stop].tolist() == [CLS, *a, SEP, *b, SEP]
        assert batch.segments[start:stop].tolist() == [0] * (len(a) + 2) + [1] * (len(b) + 1)
        assert batch.is_random[row] == is_random


def test_every_example_once_an_epoch_and_resuming_changes_nothing(examples):
    size, epoch = 7, len(examples)
    steps = 2 * epoch // size
    batches = list(examples.batches(size, seed=5, first_step=0, steps=steps))
    again = list(examples.batches(size, seed=5, first_step=steps - 3, steps=3))
    for one, two in zip(batches[-3:], again, strict=True):
        assert np.array_equal(one.ids, two.ids)
    assert sorted(examples.order(5, 0)) == list(range(epoch))
    assert not np.array_equal(examples.order(5, 0), examples.order(5, 1))


def test_a_missing_plan_is_one_clear_error(tmp_path, store, examples):
    with pytest.raises(PipelineError, match="no plan of examples"):
        PretrainingExamples(tmp_path / "none.npy", store, examples.masked_lm, CLS, SEP)
