"""Batches assembled from token stores and sample indices."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from pipeline_src.base.errors import PipelineError
from pipeline_src.examples.masking import MLMCollator
from pipeline_src.examples.pairs import PairRules, document_pairs
from pipeline_src.pretrain.data import DataShard, PretrainingExamples, readable_pieces
from pipeline_src.study.pretrain import Masking
from pipeline_src.tokenizer import wordpiece
from tests.studies import bert_templates

CLS, SEP, MASK = 2, 3, 4


def open_examples(tmp_path, store, pairs: str = "nsp", **masking) -> PretrainingExamples:
    rules = PairRules(32, 0.1, 0.5, pairs, 2 if pairs == "none" else 3)
    np.save(tmp_path / "index.npy", document_pairs(store, 0, len(store), rules, [1]))
    special = np.isin(np.arange(200), (CLS, SEP, 0))
    collator = MLMCollator(0.15, Masking(**masking), MASK, special, np.zeros(200, bool), 1)
    return PretrainingExamples(tmp_path / "index.npy", store, collator, bert_templates(CLS, SEP), pairs)


@pytest.fixture
def examples(tmp_path, store) -> PretrainingExamples:
    return open_examples(tmp_path, store)


@pytest.mark.parametrize("pairs", ["nsp", "none"])
def test_batch_has_special_tokens_and_token_types(tmp_path, store, pairs):
    examples = open_examples(tmp_path, store, pairs)
    numbers = np.asarray([3, 0, 9])
    batch = examples.batch(numbers)
    ids = batch.ids.copy()
    ids[batch.predicted] = batch.labels
    for number, label, (start, stop) in zip(numbers, batch.pair_label, pairwise(batch.cu_seqlens), strict=True):
        a, b, a_length, b_length, is_random = examples.sample_index[number]
        expected = [CLS, *store.ids[a : a + a_length], SEP]
        second = [*store.ids[b : b + b_length], SEP] if pairs == "nsp" else []
        assert ids[start:stop].tolist() == [*expected, *second]
        assert batch.segments[start:stop].tolist() == [0] * len(expected) + [1] * len(second)
        assert label == is_random
    assert np.array_equal(np.diff(batch.cu_seqlens), examples.lengths()[numbers])
    assert examples.has_pairs == (pairs == "nsp")


def test_batch_sampling_noise_depends_on_example_epoch_and_position(examples):
    batch, single = examples.batch(np.asarray([3, 0, 9])), examples.batch(np.asarray([9]))
    noise = batch.sampling_noise
    assert np.array_equal(noise[batch.predicted >= batch.cu_seqlens[2]], single.sampling_noise)
    assert len(np.unique(noise)) == len(noise) == len(batch.labels)
    assert noise.dtype == np.float32 and (noise >= 0).all() and (noise < 1).all()
    again = examples.batch(np.asarray([9]), 1)
    assert np.array_equal(again.predicted, single.predicted)
    assert not np.isin(again.sampling_noise, single.sampling_noise).any()


def test_batch_dynamic_masks_change_with_the_epoch(tmp_path, store):
    numbers = np.arange(20)
    static, dynamic = open_examples(tmp_path, store), open_examples(tmp_path, store, dynamic=True)
    assert np.array_equal(static.batch(numbers, 0).ids, static.batch(numbers, 1).ids)
    assert np.array_equal(static.batch(numbers, 1).ids, dynamic.batch(numbers, 0).ids)
    assert not np.array_equal(dynamic.batch(numbers, 0).ids, dynamic.batch(numbers, 1).ids)
    batch = dynamic.batch(np.asarray([4, 4]), np.asarray([0, 1]))  # an epoch ends within it
    for epoch, part in enumerate(np.split(batch.ids, batch.cu_seqlens[1:-1])):
        assert np.array_equal(part, dynamic.batch(np.asarray([4]), epoch).ids)


def test_batches_resumed_are_identical_and_epoch_has_each_example_once(examples):
    size, epoch = 7, len(examples)
    steps = 2 * epoch // size
    batches = list(examples.batches(size, seed=5, first_step=0, steps=steps, shard=DataShard()))
    resumed = examples.batches(size, seed=5, first_step=steps - 3, steps=3, shard=DataShard())
    for (first,), (second,) in zip(batches[-3:], resumed, strict=True):
        assert np.array_equal(first.ids, second.ids)
    read = np.concatenate([batch.examples for (batch,) in batches])
    assert np.array_equal(np.sort(read[:epoch]), np.arange(epoch))
    assert not np.array_equal(read[:epoch], examples.order(5, 1, np.arange(epoch)))
    parts = [examples.batches(size, 5, 0, 2, DataShard(rank=rank, processes=2)) for rank in range(2)]
    for (batch,), (even,), (odd,) in zip(batches[:2], *parts, strict=True):
        assert np.array_equal(batch.examples[::2], even.examples) and np.array_equal(batch.examples[1::2], odd.examples)


def test_batch_id_beyond_vocabulary_is_rejected(tmp_path, store, examples):
    templates = bert_templates(CLS, SEP)
    known = PretrainingExamples(tmp_path / "index.npy", store, examples.collator, templates, "nsp", 0, 120)
    with pytest.raises(PipelineError, match="token id outside the vocabulary: 1[23][0-9], with vocab_size 120"):
        known.batch(np.arange(len(known)))


@pytest.mark.parametrize("pairs", ["nsp", "none"])
def test_sources_at_names_the_source_of_each_token(tmp_path, store, pairs):
    """A random segment B is often of another source than A."""
    examples = open_examples(tmp_path, store, pairs, dynamic=True)
    first = len(store) // 3
    examples.assign_sources({"books": first, "empty": 0, "wiki": len(store) - first})
    border = store.sentences[store.documents[first]]
    of_b = Counter()
    for number in range(len(examples)):
        a, b, a_length, b_length, _ = examples.sample_index[number].tolist()
        starts = [*range(a, a + a_length), -1, *range(b, b + b_length)] if pairs == "nsp" else range(a, a + a_length)
        positions = np.asarray([place for place, offset in enumerate(starts, 1) if offset >= 0])
        offsets = np.asarray([offset for offset in starts if offset >= 0])
        sources = examples.sources_at(np.full(len(positions), number), positions)
        assert [examples.sources[source] for source in sources] == ["wiki" if o >= border else "books" for o in offsets]
        of_b.update((sources[0], source) for source in sources.tolist())
    assert (of_b[0, 1] > 0) == (pairs == "nsp")
    assert set(examples.sources) == {"books", "wiki"}


@pytest.mark.parametrize("kind", ["wordpiece", "byte_bpe"])
def test_readable_pieces_of_a_pair_are_two_segments(tmp_path, store, kind):
    """RoBERTa's template gives both segments the type 0."""
    examples = open_examples(tmp_path, store)
    vocabulary = [*wordpiece.SPECIAL_TOKENS, *(f"w{number}" for number in range(200))]
    batch = examples.batch(np.asarray([3]))
    _, _, a_length, b_length, _ = examples.sample_index[3].tolist()
    if kind == "byte_bpe":
        batch = replace(batch, segments=np.zeros_like(batch.segments))
    segments = readable_pieces(batch, wordpiece.build_tokenizer(vocabulary, lowercase=True), 0)
    assert [len(segment) for segment in segments] == [a_length, b_length]


def test_examples_missing_index_is_rejected(tmp_path, store, examples):
    with pytest.raises(PipelineError, match="sample index not found"):
        PretrainingExamples(tmp_path / "none.npy", store, examples.collator, bert_templates(CLS, SEP), "none")
