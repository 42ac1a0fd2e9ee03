"""What a model knows of positions before it has learnt anything."""

import math

import pytest
import torch
from torch import Tensor

from pipeline_src.models.architecture import load_architecture
from pipeline_src.models.bert import SINUSOID_AMPLITUDE, Bert, BertConfig, initialise, sinusoids
from pipeline_src.models.heads import BertForPretraining
from pipeline_src.models.packed_layout import PackedLayout
from pipeline_src.params.model import ModelParams


def drawn(config: BertConfig) -> dict[str, Tensor]:
    """Initial weights, by name."""
    made = BertForPretraining(config)
    initialise(made, torch.Generator().manual_seed(0))
    return dict(made.named_parameters())


def test_positions_start_as_sinusoids_where_wanted_and_are_not_written_into_the_config():
    config = BertConfig(50, 64, 2, 1, 128, positions_start="sinusoid")
    assert "positions_start" not in config.as_dict()
    others = drawn(config)
    start = others["bert.embeddings.position_embeddings.weight"]
    assert torch.equal(start, sinusoids(512, 64))
    assert start.abs().max() <= SINUSOID_AMPLITUDE + 1e-6 and start.requires_grad
    for name, weight in drawn(BertConfig(50, 64, 2, 1, 128)).items():
        if "position" not in name:
            assert torch.equal(weight, others[name]), name  # all else is drawn the same


def attention_by_offset(config: BertConfig, encoder: type[Bert] = Bert) -> dict[int, list[float]]:
    """What each head of the first block gives, on average over a text of random tokens, to tokens at each offset."""
    made = encoder(config)
    initialise(made, torch.Generator().manual_seed(0))
    layout = PackedLayout.of(torch.tensor([0, 60]), 60, 60)
    ids = torch.randint(0, 50, (60,), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        hidden = made.embeddings(ids, torch.zeros_like(ids), layout)
        hidden = getattr(made.encoder, "embeddings_project", torch.nn.Identity())(hidden)
        weights = made.encoder.layer[0].attention["self"].weights(hidden, layout)[0]
    return {offset: [float(head.diagonal(offset).mean()) for head in weights] for offset in range(-3, 4)}


def test_heads_begin_at_neighbours_where_positions_start_so_and_all_else_is_drawn_the_same():
    sinusoid, neighbours = (
        BertConfig(50, 192, 2, 3, 768, hidden_dropout_prob=0.0, positions_start=start)
        for start in ("sinusoid", "neighbours")
    )
    found = attention_by_offset(neighbours)
    assert max(found, key=lambda offset: found[offset][0]) == -1 and found[-1][0] > 0.25
    assert max(found, key=lambda offset: found[offset][1]) == 1 and found[1][1] > 0.25
    assert max(found[offset][2] for offset in found) < 0.03  # the third head is as random as others
    blind = attention_by_offset(sinusoid)
    assert max(share for shares in blind.values() for share in shares) < 0.03
    before, after = drawn(sinusoid), drawn(neighbours)
    turned = {name for name in before if not torch.equal(before[name], after[name])}
    assert turned == {f"bert.encoder.layer.0.attention.self.{part}.weight" for part in ("query", "key")}


def test_a_head_that_reads_left_to_right_begins_at_the_token_before():
    found = attention_by_offset(
        BertConfig(50, 128, 1, 2, 512, hidden_dropout_prob=0.0, is_decoder=True, positions_start="neighbours")
    )
    assert max(found, key=lambda offset: found[offset][0]) == -1 and found[-1][0] > 0.25
    assert abs(found[-1][1] - found[-2][1]) < 0.02 and found[1] == [0.0, 0.0]


@pytest.mark.parametrize("embedding", [128, 192])
def test_heads_find_positions_behind_a_projection(embedding: int):
    member = load_architecture("albert")
    params = ModelParams(
        architecture="albert", layers=2, hidden=192, embedding=embedding, dropout=0.0, positions_start="neighbours"
    )
    found = attention_by_offset(member.config.from_params(params, 50), member.encoder)
    assert max(found, key=lambda offset: found[offset][0]) == -1 and found[-1][0] > 0.25
    assert max(found, key=lambda offset: found[offset][1]) == 1 and found[1][1] > 0.25


@pytest.mark.parametrize(
    ("architecture", "embedding", "turned"),
    [
        ("roberta", None, 2),
        ("distilbert", None, 2),
        ("electra", None, 2),
        ("electra", 32, 3),
        ("albert", None, 3),
        ("albert", 33, 3),
    ]
    + [("deberta", None, 0), ("deberta_v2", None, 0), ("modernbert", None, 0), ("bilstm", None, 0)],
)
def test_members_of_the_family_begin_at_neighbours_where_heads_see_positions(
    architecture: str, embedding: int | None, turned: int
):
    member = load_architecture(architecture)
    weights = []
    for start in ("sinusoid", "neighbours"):
        params = ModelParams(architecture=architecture, layers=2, hidden=64, embedding=embedding, positions_start=start)
        made = member.encoder(member.config.from_params(params, 50))
        initialise(made, torch.Generator().manual_seed(0))
        weights.append(dict(made.named_parameters()))
    changed = [name for name in weights[0] if not torch.equal(weights[0][name], weights[1][name])]
    assert len(changed) == turned, changed


@pytest.mark.parametrize("width", [5, 64])
def test_sinusoids_of_neighbours_are_alike(width: int):
    vectors = sinusoids(40, width)
    assert vectors.shape == (40, width) and vectors[0, 1::2].tolist() == pytest.approx(
        [SINUSOID_AMPLITUDE] * (width // 2)
    )
    assert float(vectors[3, 0]) == pytest.approx(SINUSOID_AMPLITUDE * math.sin(3), rel=1e-5)
    near, far = (torch.cosine_similarity(vectors[10], vectors[other], dim=0) for other in (11, 30))
    assert near > far
