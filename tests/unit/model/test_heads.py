"""Task heads: the vectors that they read, and the LSTM between encoder and head."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from pipeline_src.base.registry import member_names
from pipeline_src.finetune.feature_based import BiLSTM
from pipeline_src.finetune.heads import BertForTask, BiEncoder
from pipeline_src.model.attention import PackedBatch
from pipeline_src.model.bert import BertConfig, initialise, load_architecture

CONFIG = BertConfig(60, 64, 1, 1, 128, 32, hidden_dropout_prob=0.0)
BATCH = (torch.arange(14) + 5, torch.zeros(14, dtype=torch.int64), torch.tensor([0, 5, 6, 14]))


def build(head: str, outputs: int, bilstm: bool = False, seed: int = 0) -> BertForTask:
    model = BertForTask(CONFIG, head, outputs, bilstm)
    initialise(model, torch.Generator().manual_seed(seed))
    return model.eval()


@pytest.mark.parametrize("bilstm", [False, True], ids=["alone", "with LSTM"])
@pytest.mark.parametrize(
    ("head", "outputs", "rows"), [("sequence", 3, 3), ("choice", 1, 3), ("span", 2, 14), ("token", 9, 14)]
)
def test_bert_for_task_output_has_task_shape_with_or_without_given_lengths(head, outputs, rows, bilstm):
    result = build(head, outputs, bilstm)(*BATCH)
    assert result.shape == (rows, outputs)
    assert torch.equal(result, build(head, outputs, bilstm)(*BATCH, np.array([5, 1, 8])))
    assert not torch.equal(result, build(head, outputs, bilstm, seed=1)(*BATCH))


@pytest.mark.parametrize("head", ["token", "sequence"])
def test_bert_for_task_bilstm_batch_equals_single_sequences(head):
    """The LSTM must read neither padding nor other sequences."""
    model = build(head, 4, bilstm=True)
    ids, segments, cu_seqlens = BATCH
    alone = [model(ids[a:b], segments[a:b], torch.tensor([0, b - a])) for a, b in pairwise(cu_seqlens)]
    torch.testing.assert_close(model(*BATCH), torch.cat(alone), rtol=1e-5, atol=1e-6)


def test_bilstm_reads_both_directions_within_sequence():
    lstm = BiLSTM(64, 64)
    hidden = torch.randn(14, 64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    result = lstm(hidden, PackedBatch.of(BATCH[2], 14), np.array([5, 1, 8]))
    assert result.shape == hidden.shape
    for half, reached in ((slice(32), range(6, 9)), (slice(32, 64), range(8, 14))):  # forward, backward
        gradient = torch.autograd.grad(result[8, half].sum(), hidden, retain_graph=True)[0]
        assert torch.nonzero(gradient.abs().sum(dim=1)).squeeze(1).tolist() == list(reached)


def test_bilstm_equals_torch_lstm_on_padded_sequences():
    lstm, lengths = BiLSTM(64, 32, layers=2), np.array([3, 9, 1, 9, 4, 3])
    layout = PackedBatch.of(torch.tensor([0, *np.cumsum(lengths)]), 29)
    hidden = torch.randn(29, 64, generator=torch.Generator().manual_seed(0))
    packed = pack_padded_sequence(layout.pad(hidden), torch.tensor(lengths), batch_first=True, enforce_sorted=False)
    expected, _ = pad_packed_sequence(torch.nn.LSTM.forward(lstm, packed)[0], batch_first=True)
    assert torch.equal(lstm(hidden, layout, lengths), layout.unpad(expected))


def test_bilstm_autocast_stays_in_float32():
    """On a GPU, autocast would use float16, in which small gradients become 0."""
    lstm, layout = BiLSTM(64, 64), PackedBatch.of(BATCH[2], 14)
    hidden = torch.randn(14, 64, generator=torch.Generator().manual_seed(0)).bfloat16()
    expected = lstm(hidden.float(), layout, np.array([5, 1, 8]))
    with torch.autocast("cpu", torch.bfloat16):
        result = lstm(hidden, layout, np.array([5, 1, 8]))
    assert result.dtype == torch.float32 and torch.equal(result, expected)


# BERT, and an encoder without blocks
KINDS = [load_architecture(name).config for name in ("bert", "word_vectors") if name in member_names("models")]
PAIRS = (torch.arange(14) + 5, torch.zeros(14, dtype=torch.int64), torch.tensor([0, 5, 8, 11, 14]))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("bi_encoder", "outputs"), [(BiEncoder(range=(1.0, 5.0)), 1), (BiEncoder(), 3), (BiEncoder(product=True), 3)]
)
def test_two_towers_equal_formula_on_mean_vectors(kind, bi_encoder, outputs):
    config = kind(60, 64, 1, 1, 128, 32, hidden_dropout_prob=0.0)
    model = BertForTask(config, "sequence", outputs, bi_encoder=bi_encoder)
    initialise(model, torch.Generator().manual_seed(0))
    ids, segments, starts = PAIRS
    with torch.no_grad():
        result = model.eval()(*PAIRS)
        parts = [(ids[a:b], segments[a:b], torch.tensor([0, b - a])) for a, b in pairwise(starts)]
        if kind is BertConfig:
            states = [model.bert.hidden_states(*part[:2], PackedBatch.of(part[2], len(part[0]))) for part in parts]
            alone = [(embedded + hidden)[1:-1] for embedded, hidden in states]
        else:
            alone = [model.bert.embeddings.word_embeddings(part[0]) for part in parts]
        means = torch.stack([hidden.mean(0) for hidden in alone])
        u, v = means[0::2], means[1::2]
        if bi_encoder.range:
            expected = 5 * torch.cosine_similarity(u, v)[:, None]
            assert not hasattr(model, "classifier")
        else:
            joined = torch.cat([u, v, (u - v).abs(), *([u * v] if bi_encoder.product else [])], 1)
            expected = model.classifier(model.mlp(joined))
    torch.testing.assert_close(result, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_embedding_head_is_mean_of_all_tokens_of_last_layer(kind):
    model = BertForTask(kind(60, 64, 1, 1, 128, 32), "embedding", 0)
    initialise(model, torch.Generator().manual_seed(0))
    ids, segments, starts = PAIRS
    with torch.no_grad():
        result = model.eval()(*PAIRS)
        layout = PackedBatch.of(starts, len(ids), 5)
        words = kind is not BertConfig
        last = model.bert.embeddings(ids, segments, layout) if words else model.bert.encode(ids, segments, layout)
    torch.testing.assert_close(result, torch.stack([part.mean(0) for part in last.tensor_split(starts[1:-1])]))
    assert all(name.startswith("bert.") for name, _ in model.named_parameters())


@pytest.mark.parametrize("head", ["sequence", "choice"])
def test_bert_for_task_first_last_pooling_equals_mean_of_first_and_last_layer(head):
    model = BertForTask(BertConfig(60, 64, 2, 1, 128, 32, hidden_dropout_prob=0.0), head, 3, pooling="first_last")
    initialise(model, torch.Generator().manual_seed(0))
    ids, segments, starts = PAIRS
    with torch.no_grad():
        result = model.eval()(*PAIRS)
        for one, (a, b) in enumerate(pairwise(starts)):
            layout = PackedBatch.of(torch.tensor([0, b - a]), int(b - a))
            embedded, *_, last = model.bert.hidden_states(ids[a:b], segments[a:b], layout)
            torch.testing.assert_close(result[one], model.classifier((embedded + last)[1:-1].mean(0)))
