"""Microbatches of a fixed capacity: constant shapes, and the losses and gradients of the real sequences."""

from __future__ import annotations

import dataclasses
import importlib
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.registry import member_module, member_names, objective_spec
from pipeline_src.examples.masking import CLMCollator, Collator
from pipeline_src.model import attention, bert
from pipeline_src.model.losses import IGNORE_INDEX, full_cross_entropy, full_sampled_cross_entropy
from pipeline_src.pretrain import pretrain
from pipeline_src.pretrain.capacity import ALIGNMENT, Capacity
from pipeline_src.pretrain.data import DataShard, TensorBatch
from pipeline_src.training.distributed import Distributed
from tests.unit.pretrain.small import train_phase
from tests.unit.training.fake_gpu import CAPACITY, ELECTRA, LENGTHS, make_batch, objective_of

PAD = CAPACITY.pad_id


@st.composite
def capacities_and_batches(draw: Any) -> tuple[Capacity, TensorBatch]:
    capacity = Capacity(draw(st.integers(1, 7)), draw(st.integers(2, 80)), draw(st.integers(0, 12)), PAD)
    length = st.one_of(st.just(capacity.length), st.just(1), st.integers(1, capacity.length))
    lengths = draw(st.lists(length, min_size=1, max_size=capacity.real_sequences))
    limits = [min(length, capacity.predictions_per_sequence) for length in lengths]
    counts = [draw(st.one_of(st.just(limit), st.integers(0, limit))) for limit in limits]
    return capacity, make_batch(np.random.default_rng(draw(st.integers(0, 99))), lengths, counts)


@given(capacities_and_batches(), st.booleans())
@settings(max_examples=300, deadline=None)
def test_pad_gives_constant_shapes_and_keeps_content(capacity_and_batch, samples):
    capacity, batch = capacity_and_batch
    batch = batch if samples else dataclasses.replace(batch, sampling_noise=None)
    padded = capacity.pad(batch)
    shapes = {
        **dict.fromkeys(("ids", "segments"), capacity.tokens),
        **dict.fromkeys(("predicted", "labels", "predicted_outputs"), capacity.predictions),
        **{"pair_label": capacity.sequences, "output_positions": capacity.outputs},
        **dict.fromkeys(("cu_seqlens", "output_offsets"), capacity.sequences + 1),
    } | ({"sampling_noise": capacity.predictions} if samples else {})
    for name, size in shapes.items():
        real, filled = getattr(batch, name), getattr(padded, name)
        assert filled.shape == (size,) and filled.dtype == real.dtype
        assert torch.equal(filled[: len(real)], real), name
    assert capacity.tokens % ALIGNMENT == 0 and (padded.sampling_noise is None) != samples
    assert padded.workload == batch.workload and padded.examples is batch.examples

    lengths, outputs = padded.cu_seqlens.diff(), padded.output_offsets.diff()
    assert lengths.min() > 0 and lengths.max() <= padded.max_seqlen == capacity.length
    assert outputs.min() > 0 and outputs.max() <= padded.max_outputs == capacity.max_outputs
    assert (padded.cu_seqlens[-1], padded.output_offsets[-1]) == (capacity.tokens, capacity.outputs)
    sequence = torch.repeat_interleave(outputs)
    assert torch.all(padded.output_positions >= padded.cu_seqlens[sequence])
    assert torch.all(padded.output_positions < padded.cu_seqlens[sequence + 1])
    assert torch.equal(padded.output_positions[padded.output_offsets[:-1]], padded.cu_seqlens[:-1])
    assert torch.all(padded.output_positions.diff() >= 0)
    assert torch.equal(padded.output_positions[padded.predicted_outputs], padded.predicted)
    assert torch.all(padded.predicted_outputs.diff() > 0)

    tokens, predictions, sequences = len(batch.ids), len(batch.labels), len(batch.pair_label)
    assert torch.all(padded.ids[tokens:] == PAD) and torch.all(padded.predicted[predictions:] >= tokens)
    assert torch.all(padded.labels[predictions:] == IGNORE_INDEX) and torch.all(
        padded.pair_label[sequences:] == IGNORE_INDEX
    )
    for fillers in (lengths[sequences:], outputs[sequences:]):
        assert fillers.max() - fillers.min() <= 1


@pytest.mark.parametrize(
    ("lengths", "counts", "exceeded"),
    [
        ([4] * 7, None, "7 sequences, more than 6"),
        ([33], None, "33 tokens in a sequence, more than 32"),
        ([32] * 6, [6] * 6, "outputs in a sequence"),
        ([32] * 6, [6] * 6, "36 predictions, more than 30"),
    ],
)
def test_pad_too_large_batch_is_rejected(lengths, counts, exceeded):
    batch = make_batch(np.random.default_rng(0), lengths, counts)
    with pytest.raises(PipelineError, match=f"exceeds its fixed capacity(.|\n)*{exceeded}"):
        CAPACITY.pad(batch)


@given(st.integers(1, 600), st.integers(2, 600), st.integers(1, 40_000))
@settings(deadline=None)
def test_capacity_splits_batch_evenly_within_max_tokens(batch_size, length, max_tokens):
    capacity = Capacity.of(batch_size, length, max_tokens, CLMCollator(3), PAD)
    assert capacity.predictions_per_sequence == length - 1 and capacity.real_sequences <= batch_size
    assert capacity.real_sequences * length <= max(max_tokens, length)
    pieces = DataShard(max_tokens, sequences=capacity.real_sequences).split(np.full(batch_size, length))
    assert [number for piece in pieces for number in range(piece.start, piece.stop)] == list(range(batch_size))
    sizes = [piece.stop - piece.start for piece in pieces]
    assert max(sizes) == capacity.real_sequences and max(sizes) - min(sizes) <= 1
    assert len(pieces) == -(-batch_size // max(1, max_tokens // length))
    assert Capacity.of(1, length, max_tokens, Collator(), PAD).predictions == 0


def test_phase_batches_with_capacity_keep_content_of_unpadded_batches(study, monkeypatch):
    seen: list[tuple[Any, ...]] = []
    phase_batches = pretrain.phase_batches
    monkeypatch.setattr(pretrain, "phase_batches", lambda *args: seen.append(args) or phase_batches(*args))
    train_phase("phase1", phase1=2, train_batch_size=10, microbatch_tokens=50)
    ((phase, examples, first, last, _, unpadded),) = seen
    assert unpadded is None  # on a CPU
    for rank in range(3):
        process = Distributed(rank, 3, torch.device("cpu"))
        capacity = Capacity.of(4, 16, 50, examples.collator, 0)
        assert (capacity.real_sequences, capacity.predictions_per_sequence, capacity.pad_id) == (2, 2, 0)
        padded = list(phase_batches(phase, examples, 0, 2, process, capacity))
        for batch, unpadded in zip(padded, phase_batches(phase, examples, 0, 2, process, None), strict=True):
            assert {len(part.ids) for part in batch} == {capacity.tokens} and len(batch) == 2
            for name, counted in (("ids", "tokens"), ("labels", "predictions"), ("pair_label", "sequences")):
                real = torch.cat([getattr(part, name)[: getattr(part.workload, counted)] for part in batch])
                assert torch.equal(real, torch.cat([getattr(part, name) for part in unpadded])), name


MODELS = [
    *(("mlm", name) for name in ("bert", "roberta", "modernbert", "albert", "deberta", "deberta_v2")),
    *(("mlm", name) for name in ("distilbert", "electra", "word_vectors")),
    ("clm", "bert"),
    *(("electra", name, variant) for name in ("bert", "deberta_v2") for variant in ELECTRA),
]


@pytest.fixture
def gpu_code(monkeypatch):
    """Use the code paths of a GPU, without flash attention, which has half precision."""
    monkeypatch.setattr(attention, "ALWAYS_MASKED", {"cuda", "cpu"})
    if "deberta" in member_names("models"):
        deberta = importlib.import_module(member_module("models", "deberta"))
        monkeypatch.setattr(deberta, "disentangled_grouped", deberta.disentangled_padded)
    monkeypatch.setattr(bert, "sampled_cross_entropy", full_sampled_cross_entropy)
    monkeypatch.setattr(bert, "linear_cross_entropy", full_cross_entropy)


@pytest.mark.parametrize("case", MODELS, ids=",".join)
def test_padded_batch_losses_and_gradients_equal_unpadded_batch(case, gpu_code):
    no_dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    objective = objective_of(*case, attention="padded", **no_dropout)()
    objective.init_weights(torch.Generator().manual_seed(0))
    objective.double().train()
    rng = np.random.default_rng(1)
    for lengths in LENGTHS:
        batch = make_batch(rng, lengths)
        terms, gradients = losses(objective, batch)
        padded, padded_gradients = losses(objective, CAPACITY.pad(batch))
        assert terms.keys() == padded.keys()
        for term, (loss, correct) in terms.items():
            torch.testing.assert_close(padded[term].loss, loss, rtol=1e-6, atol=0)
            assert padded[term].correct == correct, term
        assert gradients.keys() == padded_gradients.keys() and any(map(torch.any, gradients.values()))
        scale = max(gradient.norm() for gradient in gradients.values())
        for parameter, gradient in gradients.items():
            error = (padded_gradients[parameter] - gradient).norm()
            assert error <= 1e-6 * gradient.norm() + 1e-12 * scale, (parameter, error, gradient.norm())


def losses(objective: Any, batch: TensorBatch) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    objective.zero_grad()
    terms = objective(batch)
    torch.stack([term.loss for term in terms.values()]).sum().backward()
    return terms, {name: part.grad.clone() for name, part in objective.named_parameters() if part.grad is not None}


def test_fixed_capacity_is_supported_by_expected_objectives():
    supported = {name for name in member_names("objectives") if objective_spec(name).fixed_capacity}
    assert supported == {"mlm", "clm", "electra"}
