"""DeBERTa's mask decoder, which transformers lacks, against plain loops over every pair of tokens."""

import math

import pytest
import torch
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
    """Small, with every weight moved; distances beyond its positions or its buckets."""
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


def slow_block(model: BertForPretraining, asking: Tensor, hidden: Tensor) -> Tensor:
    """The last block for one sequence, a pair and a head at a time."""
    config, block = model.bert.config, model.bert.encoder.layer[-1]
    attention, half = block.attention["self"], config.relative_table.half
    query = attention.project_query(asking).view(len(asking), attention.heads, -1)
    key, value = attention.keys_and_values(hidden)
    table = attention.project_positions(model.bert.encoder.table())
    position_query, position_key = (part.view(2 * half, attention.heads, -1) for part in table)
    context = torch.zeros_like(query)
    for head in range(attention.heads):
        for i in range(len(asking)):
            scores = []
            for j in range(len(hidden)):
                reach = config.relative_table.reach
                distance = i - j if reach is None else bucket(i - j, half, reach)
                row = min(max(distance + half, 0), 2 * half - 1)
                scores.append(
                    query[i, head] @ key[j, head]
                    + query[i, head] @ position_key[row, head]
                    + key[j, head] @ position_query[row, head]
                )
            probs = (torch.stack(scores) / math.sqrt(3 * query.shape[-1])).softmax(0)
            context[i, head] = probs @ value[:, head]
    inner = block.attention["output"](context.flatten(1), asking)
    return block.output(torch.nn.functional.gelu(block.intermediate["dense"](inner)), inner)


@pytest.mark.parametrize("architecture", ["deberta", "deberta_v2"])
def test_deberta_decode_equals_last_block_twice_with_absolute_positions(architecture):
    model = build(architecture)
    starts = torch.tensor([0, *LENGTHS]).cumsum(0)
    ids = torch.arange(sum(LENGTHS)) * 7 % 45 + 5
    layout = PackedBatch.of(starts, len(ids))
    if architecture == "deberta":  # its table of absolute positions is as long as the input may be
        model.bert.embeddings.position_embeddings = torch.nn.Embedding(13, 16)
    with torch.no_grad():
        before = model.bert.hidden_states(ids, ids * 0, layout)[-2]
        expected = []
        for start, end in zip(starts, starts[1:], strict=False):
            hidden = before[start:end]
            asking = hidden + model.bert.embeddings.position_embeddings.weight[: len(hidden)]
            for _ in range(2):
                asking = slow_block(model, asking, hidden)
            expected.append(asking)
        expected = torch.cat(expected)
        rows = QueryRows.of(ROWS, torch.searchsorted(ROWS, starts))
        torch.testing.assert_close(model.bert.decode(ids, ids * 0, layout), expected, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(model.bert.decode(ids, ids * 0, layout, rows), expected[ROWS], rtol=1e-4, atol=1e-5)
        ordinary = model.bert.encode(ids, ids * 0, layout, rows)
    assert not torch.allclose(ordinary, expected[ROWS], atol=1e-3), "tasks read the ordinary pass"


def test_deberta_discriminator_adds_first_token_to_every_token():
    """Version 3's head, a token at a time; in a folder it bears the names of the released ones."""
    model = Discriminator(build("deberta_v2").bert.config).eval()
    initialise(model, torch.Generator().manual_seed(2))
    head, starts = model.discriminator_predictions, torch.tensor([0, *LENGTHS]).cumsum(0)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter += torch.linspace(-0.3, 0.3, parameter.numel()).view(parameter.shape)
    ids = torch.arange(sum(LENGTHS)) * 7 % 45 + 5
    layout, rows = PackedBatch.of(starts, len(ids)), QueryRows.of(ROWS, torch.searchsorted(ROWS, starts))
    with torch.no_grad():
        hidden, expected = model.bert.encode(ids, ids * 0, layout), []
        for start, end in zip(starts, starts[1:], strict=False):
            for token in hidden[start:end]:
                total = token + hidden[start]
                spread = (total - total.mean()) / (total.var(correction=0) + 1e-7).sqrt()
                inner = head.dense.weight @ (head.LayerNorm.weight * spread + head.LayerNorm.bias) + head.dense.bias
                inner = inner * (1 + torch.erf(inner / math.sqrt(2))) / 2
                expected.append(head.dense_prediction.weight[0] @ inner + head.dense_prediction.bias[0])
        positions = torch.arange(2, len(ROWS))
        for read, queried in ((None, None), (rows, positions)):
            text = FilledText(ids, ids * 0, layout, read, queried, ids, ids)
            target = torch.stack(expected)[slice(None) if read is None else ROWS[positions]]
            torch.testing.assert_close(model.logits(text), target, rtol=1e-5, atol=1e-5)
    names = {model.config.names.to_hf_name(name, "DebertaV2Model") for name in model.state_dict() if "disc" in name}
    assert {name.rpartition(".")[0] for name in names} == {
        f"mask_predictions.{part}" for part in ("dense", "LayerNorm", "classifier")
    }
    back = {model.config.names.from_hf_name(name.replace("classifier", "classifer"), None) for name in names}
    assert back == {name for name in model.state_dict() if "disc" in name}


@pytest.mark.parametrize(("buckets", "reach"), [(256, 512), (4, 48), (32, 128)])
def test_log_buckets_equal_definition(buckets, reach):
    distances = torch.arange(1 - reach, reach)
    expected = [bucket(int(distance), buckets, reach) for distance in distances]
    assert log_buckets(distances, buckets, reach).tolist() == expected
    assert max(expected) == buckets - 1


@pytest.mark.parametrize(("half", "reach"), [(8, None), (256, 512), (4, 48), (32, 128)])
def test_relative_table_in_use_covers_rows_read(half, reach):
    for length in (1, 2, half // 2 + 1, half, half + 3, 3 * half):
        table, slack = RelativeTable(half, reach), 0 if reach is None else 1
        read, used = distance_index(length, table), table.in_use(length)
        assert read[0] - slack <= used.start <= read[0] and read[-1] < used.stop <= read[-1] + 1 + slack


@pytest.mark.parametrize("architecture", ["deberta", "deberta_v2"])
def test_disentangled_padded_equals_grouped(architecture, monkeypatch):
    model, starts = build(architecture).bert, torch.tensor([0, *LENGTHS]).cumsum(0)
    ids, rows = torch.arange(sum(LENGTHS)) * 7 % 45 + 5, QueryRows.of(ROWS, torch.searchsorted(ROWS, starts))
    layout = PackedBatch.of(starts, len(ids))
    with torch.no_grad():
        expected = [model.encode(ids, ids * 0, layout, read) for read in (None, rows)]
        monkeypatch.setattr(deberta, "disentangled_grouped", deberta.disentangled_padded)
        result = [model.encode(ids, ids * 0, layout, read) for read in (None, rows)]
    for first, second in zip(expected, result, strict=True):
        torch.testing.assert_close(first, second, rtol=1e-5, atol=1e-5)


def test_pretrained_card_deberta_names_what_transformers_lacks():
    card = pretrained_card(build("deberta").bert.config, 1, "masked words", "DebertaForMaskedLM", None, {}, {}, {})
    assert "worse than what this project does.\n\n## Data" in card
