"""Token shards on disk, and batches assembled from them."""

import pickle

import numpy as np
import pytest

from pipeline_src.common.errors import PipelineError
from pipeline_src.config.pretrain import Masking
from pipeline_src.examples.pairs import PairRules, document_pairs
from pipeline_src.examples.token_store import TokenStore
from pipeline_src.pretraining.data import DataShard, PretrainingExamples
from pipeline_src.pretraining.masking import MLMCollator
from tests.frames import bert_templates

CLS, SEP, MASK = 2, 3, 4


def test_documents_come_back_as_written(store, documents):
    assert len(store) == len(documents)
    for number, document in enumerate(documents):
        offsets = store.sentences[store.documents[number] : store.documents[number + 1] + 1]
        found = [store.ids[a:b].tolist() for a, b in zip(offsets, offsets[1:], strict=False)]
        assert found == document


def test_counts(store, documents):
    counts = store.counts(200)
    assert counts.sum() == len(store.ids)
    assert counts[100] == sum(map(len, documents[0]))


def test_another_process_maps_the_files_itself(store):
    packed = pickle.dumps(store)
    assert len(packed) < 1000 and np.array_equal(pickle.loads(packed).ids, store.ids)


def test_files_are_little_endian(tmp_path, make_store):
    make_store(tmp_path, [[[258, 1], [3]]])
    assert (tmp_path / "train.ids").read_bytes() == b"\x02\x01\x01\x00\x03\x00"
    assert (tmp_path / "train.sentences").read_bytes() == bytes([0] * 8 + [2] + [0] * 7 + [3] + [0] * 7)


def test_a_cut_shard_is_one_clear_error(tmp_path, store):
    ids = tmp_path / "train.ids"
    ids.write_bytes(ids.read_bytes()[:-4])
    with pytest.raises(PipelineError, match="token shard is damaged"):
        TokenStore(tmp_path, "train")


def open_examples(tmp_path, store, pairs: str = "nsp", **masking) -> PretrainingExamples:
    rules = PairRules(32, 0.1, 0.5, pairs, 2 if pairs == "none" else 3)
    np.save(tmp_path / "index.npy", document_pairs(store, 0, len(store), rules, [1]))
    special = np.isin(np.arange(200), (CLS, SEP, 0))
    masked_lm = MLMCollator(0.15, Masking(**masking), MASK, special, np.zeros(200, bool), 1)
    return PretrainingExamples(tmp_path / "index.npy", store, masked_lm, bert_templates(CLS, SEP), pairs)


@pytest.fixture
def examples(tmp_path, store) -> PretrainingExamples:
    return open_examples(tmp_path, store)


def test_a_batch_is_cls_a_sep_b_sep(examples):
    picked = np.asarray([3, 0, 9])
    batch = examples.batch(picked)
    ids = batch.ids.copy()
    ids[batch.predicted] = batch.labels  # take the masks off again
    for row, (start, stop) in enumerate(zip(batch.cu_seqlens, batch.cu_seqlens[1:], strict=False)):
        a, b, a_length, b_length, is_random = examples.sample_index[picked[row]]
        first, second = examples.store.ids[a : a + a_length], examples.store.ids[b : b + b_length]
        assert ids[start:stop].tolist() == [CLS, *first, SEP, *second, SEP]
        assert batch.segments[start:stop].tolist() == [0] * (len(first) + 2) + [1] * (len(second) + 1)
        assert batch.pair_label[row] == is_random
    assert np.array_equal(np.diff(batch.cu_seqlens), examples.lengths()[picked])


def test_draws_are_of_example_epoch_and_place_whatever_the_batch(examples):
    whole, alone = examples.batch(np.asarray([3, 0, 9])), examples.batch(np.asarray([9]))
    noise = whole.sampling_noise
    inside = whole.predicted >= whole.cu_seqlens[2]
    assert np.array_equal(noise[inside], alone.sampling_noise) and len(noise) == len(whole.labels)
    assert noise.dtype == np.float32 and (noise >= 0).all() and (noise < 1).all()
    assert len(np.unique(noise)) == len(noise)
    again = examples.batch(np.asarray([9]), 1)
    assert (
        np.array_equal(again.predicted, alone.predicted)
        and not np.isin(again.sampling_noise, alone.sampling_noise).any()
    )


def test_without_pairs_a_batch_is_cls_a_sep(tmp_path, store):
    examples = open_examples(tmp_path, store, pairs="none")
    batch = examples.batch(np.asarray([2, 5]))
    ids = batch.ids.copy()
    ids[batch.predicted] = batch.labels
    expected = []
    for a, _, a_length, _, _ in examples.sample_index[[2, 5]].tolist():
        expected += [CLS, *store.ids[a : a + a_length].tolist(), SEP]
    assert not examples.has_pairs and ids.tolist() == expected and not batch.segments.any()


def test_static_masks_stay_and_dynamic_ones_change_with_the_epoch(tmp_path, store):
    picked = np.arange(20)
    static, dynamic = open_examples(tmp_path, store), open_examples(tmp_path, store, dynamic=True)
    assert np.array_equal(static.batch(picked, 0).ids, static.batch(picked, 1).ids)
    assert np.array_equal(static.batch(picked, 1).ids, dynamic.batch(picked, 0).ids)
    assert not np.array_equal(dynamic.batch(picked, 0).ids, dynamic.batch(picked, 1).ids)
    both = dynamic.batch(np.asarray([4, 4]), np.asarray([0, 1]))  # as where an epoch ends within a batch
    assert np.array_equal(both.ids[: both.cu_seqlens[1]], dynamic.batch(np.asarray([4]), 0).ids)
    assert np.array_equal(both.ids[both.cu_seqlens[1] :], dynamic.batch(np.asarray([4]), 1).ids)


def test_every_example_once_an_epoch_and_resuming_changes_nothing(examples):
    size, epoch = 7, len(examples)
    steps = 2 * epoch // size
    batches = [batch for (batch,) in examples.batches(size, seed=5, first_step=0, steps=steps, shard=DataShard())]
    again = [batch for (batch,) in examples.batches(size, seed=5, first_step=steps - 3, steps=3, shard=DataShard())]
    for one, two in zip(batches[-3:], again, strict=True):
        assert np.array_equal(one.ids, two.ids)
    places = np.arange(epoch)
    assert np.array_equal(np.sort(examples.order(5, 0, places)), places)
    assert not np.array_equal(examples.order(5, 0, places), examples.order(5, 1, places))


def test_an_id_that_the_vocabulary_does_not_have_is_one_clear_error(tmp_path, store, examples):
    frames = bert_templates(CLS, SEP)
    known = PretrainingExamples(tmp_path / "index.npy", store, examples.collator, frames, "next_sentence", 0, 120)
    with pytest.raises(PipelineError, match="an id that the vocabulary does not have: 1[23][0-9] of 120"):
        known.batch(np.arange(len(known)))


def test_a_missing_index_is_one_clear_error(tmp_path, store, examples):
    with pytest.raises(PipelineError, match="no sample index"):
        PretrainingExamples(tmp_path / "none.npy", store, examples.collator, bert_templates(CLS, SEP), "none")
