"""DeBERTa's mask decoder and disentangled attention equal plain loops over all pairs of tokens."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from pipeline_src.family.deberta import encoder as deberta
from pipeline_src.family.deberta.encoder import RelativeTable, distance_index, log_buckets
from pipeline_src.family.electra.objective import Discriminator, FilledText
from pipeline_src.model.attention import PackedBatch, QueryRows
from pipeline_src.model.bert import BertForPretraining, initialise, load_architecture
from pipeline_src.model.model_card import pretrained_card
from pipeline_src.study.model import ModelParams

LENGTHS = [13, 4, 13]
ROWS = torch.tensor([0, 3, 9, 13, 15, 17, 20, 29])


def build(architecture: str) -> BertForPretraining:
    """Return a small model with random parameters and fewer positions or buckets than tokens."""
    params = ModelParams(
        architecture=architecture,
        num_hidden_layers=3,
        hidden_size=16,
        num_attention_heads=2,
        max_position_embeddings=8 if architecture == "deberta" else 64,
    )
    config = load_architecture(architecture).config.from_params(params, 50)
    if architecture == "deberta_v2":
        config = type(config)(**{**config.__dict__, "position_buckets": 4})
    model = BertForPretraining(config).eval()
    initialise(model, torch.Generator().manual_seed(1))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.2 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(parameter.numel()))
    return model


def bucket(distance: int, buckets: int, reach: int) -> int:
    middle = buckets // 2
    if abs(distance) <= middle:
        return distance
    steps = math.ceil(math.log(abs(distance) / middle) / math.log((reach - 1) / middle) * (middle - 1))
    return (middle + steps) * (1 if distance > 0 else -1)


def batch() -> tuple[Tensor, Tensor, QueryRows]:
    """Return ids, starts of the sequences, and some query rows."""
    starts = torch.tensor([0, *LENGTHS]).cumsum(0)
    ids = torch.arange(sum(LENGTHS)) * 7 % 45 + 5
    return ids, starts, QueryRows.of(ROWS, torch.searchsorted(ROWS, starts))


def slow_block(model: BertForPretraining, asking: Tensor, hidden: Tensor) -> Tensor:
    """Compute the last block for one sequence, one pair of tokens at a time."""
    config, block = model.bert.config, model.bert.encoder.layer[-1]
    attention, half = block.attention["self"], config.relative_table.half
    reach = config.relative_table.reach
    query = attention.project_query(asking).view(len(asking), attention.heads, -1)
    key, value = attention.keys_and_values(hidden)
    table = attention.project_positions(model.bert.encoder.table())
    position_query, position_key = (part.view(2 * half, attention.heads, -1) for part in table)
    logits = torch.empty(len(asking), len(hidden), attention.heads)
    for i in range(len(asking)):
        for j in range(len(hidden)):
            distance = i - j if reach is None else bucket(i - j, half, reach)
            row = min(max(distance + half, 0), 2 * half - 1)
            products = query[i] * key[j] + query[i] * position_key[row] + key[j] * position_query[row]
            logits[i, j] = products.sum(1)
    probs = (logits / math.sqrt(3 * query.shape[-1])).softmax(1)
    context = torch.einsum("ijh,jhd->ihd", probs, value)
    inner = block.attention["output"](context.flatten(1), asking)
    return block.output(F.gelu(block.intermediate["dense"](inner)), inner)


@pytest.mark.parametrize("architecture", ["deberta", "deberta_v2"])
def test_deberta_decode_equals_last_block_twice_with_absolute_positions(architecture):
    model = build(architecture)
    ids, starts, rows = batch()
    layout = PackedBatch.of(starts, len(ids))
    if architecture == "deberta":
        # Its table of absolute positions is as long as the input may be.
        model.bert.embeddings.position_embeddings = torch.nn.Embedding(13, 16)
    positions = model.bert.embeddings.position_embeddings.weight
    with torch.no_grad():
        before = model.bert.hidden_states(ids, ids * 0, layout)[-2]
        expected = []
        for hidden in before.split(LENGTHS):
            asking = hidden + positions[: len(hidden)]
            for _ in range(2):
                asking = slow_block(model, asking, hidden)
            expected.append(asking)
        expected = torch.cat(expected)
        torch.testing.assert_close(model.bert.decode(ids, ids * 0, layout), expected, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(model.bert.decode(ids, ids * 0, layout, rows), expected[ROWS], rtol=1e-4, atol=1e-5)
        # Tasks read the ordinary pass.
        ordinary = model.bert.encode(ids, ids * 0, layout, rows)
    assert not torch.allclose(ordinary, expected[ROWS], atol=1e-3)


def test_deberta_discriminator_adds_first_token_to_every_token():
    model = Discriminator(build("deberta_v2").bert.config).eval()
    initialise(model, torch.Generator().manual_seed(2))
    head = model.discriminator_predictions
    ids, starts, rows = batch()
    layout = PackedBatch.of(starts, len(ids))
    with torch.no_grad():
        for parameter in head.parameters():
            parameter += torch.linspace(-0.3, 0.3, parameter.numel()).view(parameter.shape)
        hidden = model.bert.encode(ids, ids * 0, layout)
        first = hidden[starts[:-1]].repeat_interleave(torch.tensor(LENGTHS), 0)
        normalised = F.layer_norm(hidden + first, hidden.shape[1:], head.LayerNorm.weight, head.LayerNorm.bias, 1e-7)
        expected = head.dense_prediction(F.gelu(head.dense(normalised)))[:, 0]
        everywhere = FilledText(ids, ids * 0, layout, None, None, ids, ids)
        torch.testing.assert_close(model.logits(everywhere), expected, rtol=1e-5, atol=1e-5)
        positions = torch.arange(2, len(ROWS))
        some = FilledText(ids, ids * 0, layout, rows, positions, ids, ids)
        torch.testing.assert_close(model.logits(some), expected[ROWS[positions]], rtol=1e-5, atol=1e-5)


def test_deberta_discriminator_is_saved_under_names_of_released_models():
    model = Discriminator(build("deberta_v2").bert.config)
    adapter = model.config.names
    ours = [name for name in model.state_dict() if "disc" in name]
    theirs = [adapter.to_hf_name(name, "DebertaV2Model") for name in ours]
    assert {name.rpartition(".")[0] for name in theirs} == {
        "mask_predictions.dense",
        "mask_predictions.LayerNorm",
        "mask_predictions.classifier",
    }
    # The released folders have the name misspelt.
    assert [adapter.from_hf_name(name.replace("classifier", "classifer"), None) for name in theirs] == ours


@pytest.mark.parametrize(("buckets", "reach"), [(256, 512), (4, 48), (32, 128)])
def test_log_buckets_equal_definition(buckets, reach):
    distances = torch.arange(1 - reach, reach)
    expected = [bucket(int(distance), buckets, reach) for distance in distances]
    assert log_buckets(distances, buckets, reach).tolist() == expected
    assert max(expected) == buckets - 1


@pytest.mark.parametrize(("half", "reach"), [(8, None), (256, 512), (4, 48), (32, 128)])
def test_relative_table_in_use_covers_all_looked_up_rows(half, reach):
    for length in (1, 2, half // 2 + 1, half, half + 3, 3 * half):
        table, slack = RelativeTable(half, reach), 0 if reach is None else 1
        read, used = distance_index(length, table), table.in_use(length)
        assert read[0] - slack <= used.start <= read[0] and read[-1] < used.stop <= read[-1] + 1 + slack


@pytest.mark.parametrize("architecture", ["deberta", "deberta_v2"])
def test_disentangled_padded_equals_grouped(architecture, monkeypatch):
    model = build(architecture).bert
    ids, starts, rows = batch()
    layout = PackedBatch.of(starts, len(ids))
    with torch.no_grad():
        expected = [model.encode(ids, ids * 0, layout, read) for read in (None, rows)]
        monkeypatch.setattr(deberta, "disentangled_grouped", deberta.disentangled_padded)
        result = [model.encode(ids, ids * 0, layout, read) for read in (None, rows)]
    torch.testing.assert_close(result, expected, rtol=1e-5, atol=1e-5)


def test_pretrained_card_of_deberta_says_that_transformers_lacks_mask_decoder():
    card = pretrained_card(build("deberta").bert.config, 1, "masked words", "DebertaForMaskedLM", None, {}, {}, {})
    assert "worse than what this project does.\n\n## Data" in card
