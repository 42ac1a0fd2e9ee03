"""Sizes, what a causal token sees, recomputation, and that dropout follows the seed."""

from dataclasses import replace

import pytest
import torch

from pipeline_src.models.bert import Bert, BertConfig, initialise, one_product
from pipeline_src.models.heads import BertForPretraining
from pipeline_src.models.hub import load_config, save_model
from pipeline_src.models.packed_layout import PackedLayout
from pipeline_src.params.model import ModelParams
from pipeline_src.tokenizer.wordpiece import SPECIAL_TOKENS, save_tokenizer

ENTRIES = 30_522  # of google-research/bert's uncased vocabulary
SMALL = BertConfig(60, 64, 2, 2, 128, 32)
BATCH = (torch.arange(14) + 5, torch.zeros(14, dtype=torch.int64), torch.tensor([0, 5, 6, 14]))

# The 24 small models, base and large (google-research/bert); where figures are published, the millions they give
# (Turc et al. 2019, which count the masked words' head; paper, section 3).
PUBLISHED = {(2, 128): 4.4, (4, 256): 11.3, (4, 512): 29.1, (8, 512): 41.7, (12, 768): 110.1}
SIZES = [(layers, hidden) for layers in (2, 4, 6, 8, 10, 12) for hidden in (128, 256, 512, 768)] + [(24, 1024)]


def build(config: BertConfig, seed: int = 0) -> BertForPretraining:
    model = BertForPretraining(config)
    initialise(model, torch.Generator().manual_seed(seed))
    return model


@pytest.mark.parametrize(("layers", "hidden"), SIZES)
def test_published_sizes(layers, hidden):
    config = BertConfig.from_params(ModelParams(layers=layers, hidden=hidden), ENTRIES)
    assert config.num_attention_heads == hidden // 64 and config.intermediate_size == 4 * hidden
    with torch.device("meta"):
        model = BertForPretraining(config)
    count = sum(parameter.numel() for parameter in model.bert.parameters())
    embeddings = (ENTRIES + 512 + 2 + 2) * hidden
    block = 4 * hidden * (hidden + 1) + 8 * hidden * hidden + 5 * hidden + 4 * hidden
    assert count == embeddings + layers * block + hidden * (hidden + 1)
    head = sum(parameter.numel() for parameter in model.cls["predictions"].parameters()) - ENTRIES * hidden
    if (layers, hidden) in PUBLISHED:
        assert round((count + head) / 1e6, 1) == PUBLISHED[layers, hidden]
    transformers = pytest.importorskip("transformers")
    with torch.device("meta"):
        theirs = transformers.BertModel(transformers.BertConfig(**config.as_dict()))
    assert count == sum(parameter.numel() for parameter in theirs.parameters())


@pytest.mark.parametrize(
    ("layers", "hidden", "count"), [(2, 128, 4_385_920), (12, 768, 109_482_240), (24, 1024, 335_141_888)]
)
def test_encoders_of_known_size(layers, hidden, count):
    with torch.device("meta"):
        model = Bert(BertConfig.from_params(ModelParams(layers=layers, hidden=hidden), ENTRIES))
    assert sum(parameter.numel() for parameter in model.parameters()) == count


def test_sizes_can_be_overridden():
    config = BertConfig.from_params(
        ModelParams(layers=1, hidden=96, heads=3, feed_forward=100, attention_dropout=0.0), 50
    )
    assert (config.num_attention_heads, config.intermediate_size) == (3, 100)
    assert config.attention_dropout == 0 and config.hidden_dropout_prob == 0.1
    assert BertConfig.from_params(ModelParams(layers=1, hidden=64, dropout=0.2), 50).attention_dropout == 0.2


def test_a_layout_with_and_without_its_longest_length():
    cu_seqlens = BATCH[2]
    one, two = PackedLayout.of(cu_seqlens, 14), PackedLayout.of(cu_seqlens, 14, 8)
    assert one.max_seqlen == two.max_seqlen == 8 and torch.equal(one.padded, two.padded)
    assert one.position.tolist() == [*range(5), 0, *range(8)]
    flat = torch.arange(14.0)
    assert one.pad(flat, -1.0).tolist()[1] == [5, *[-1] * 7]
    assert torch.equal(one.unpad(one.pad(flat)), flat)


def test_a_causal_token_sees_nothing_that_follows():
    model = build(replace(SMALL, is_decoder=True)).eval()
    ids, segments, cu_seqlens = BATCH
    changed = ids.clone()
    changed[10] = 50
    one, two = model.bert(ids, segments, cu_seqlens)[0], model.bert(changed, segments, cu_seqlens)[0]
    same = (one == two).all(dim=1)
    assert same[:10].all() and not same[10:].any()
    both_ways = build(SMALL).eval()
    one, two = both_ways.bert(ids, segments, cu_seqlens)[0], both_ways.bert(changed, segments, cu_seqlens)[0]
    assert not (one == two).all(dim=1)[6:].any()


def test_the_pooler_reads_what_sees_the_whole_sequence():
    ids, segments, cu_seqlens = BATCH
    for causal, places in ((False, [0, 5, 6]), (True, [4, 5, 13])):
        model = build(replace(SMALL, is_decoder=causal)).bert.eval()
        hidden, pooled = model(ids, segments, cu_seqlens)
        torch.testing.assert_close(pooled, torch.tanh(model.pooler.dense(hidden[places])))


def gradients(config: BertConfig, dropout_seed: int) -> list[torch.Tensor]:
    model = build(config).train()
    torch.manual_seed(dropout_seed)
    words, pairs = model(*BATCH, torch.tensor([1, 7, 9]))
    (words.square().sum() + pairs.sum()).backward()
    return [parameter.grad for parameter in model.parameters()]


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_recomputed_activations_give_the_same_gradients(dropout):
    config = replace(SMALL, hidden_dropout_prob=dropout)
    kept, again = gradients(config, 1), gradients(replace(config, recompute=True), 1)
    assert all(torch.equal(one, two) for one, two in zip(kept, again, strict=True))


def test_recomputing_keeps_less():
    def kept(recompute: bool) -> int:
        model, sizes = build(replace(SMALL, num_hidden_layers=4, recompute=recompute)).train(), []
        with torch.autograd.graph.saved_tensors_hooks(lambda t: sizes.append(t.numel()) or t, lambda t: t):
            model(*BATCH, torch.tensor([1]))
        return sum(sizes)

    assert kept(True) < 0.5 * kept(False)


def test_dropout_follows_the_seed():
    one, two, other = gradients(SMALL, 1), gradients(SMALL, 1), gradients(SMALL, 2)
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_attention_has_a_dropout_of_its_own():
    config = replace(SMALL, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.5)
    assert not torch.equal(gradients(config, 1)[0], gradients(config, 2)[0])
    config = replace(config, attention_probs_dropout_prob=0.0)
    assert torch.equal(gradients(config, 1)[0], gradients(config, 2)[0])


def test_query_key_and_value_in_one_product_are_what_they_are_in_three():
    layer = build(SMALL).bert.encoder.layer[0].attention["self"]
    projections = (layer.query, layer.key, layer.value)
    hidden = torch.randn(9, 64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    found, expected = one_product(hidden, projections), torch.cat([each(hidden) for each in projections], dim=1)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)
    parameters = [hidden, *(parameter for each in projections for parameter in each.parameters())]
    for one, two in zip(
        *(torch.autograd.grad(out.square().sum(), parameters) for out in (found, expected)), strict=True
    ):
        torch.testing.assert_close(one, two, rtol=1e-5, atol=1e-5)


def test_autocasts_type_flows_between_the_blocks():
    model, flowing = build(SMALL).bert, []
    for part in (model.embeddings, *model.encoder.layer):
        part.register_forward_hook(lambda part, given, out: flowing.append(out.dtype))
    with torch.autocast("cpu", torch.bfloat16):
        narrow, _ = model.eval()(*BATCH)
    assert set(flowing) == {torch.bfloat16}
    wide, _ = model(*BATCH)
    assert wide.dtype == torch.float32
    torch.testing.assert_close(narrow.float(), wide, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("recompute", [False, True])
def test_the_whole_model_is_one_graph_to_the_compiler(recompute):
    """Traced, not compiled: a number read from a tensor on the way would break the graph in two.

    ``auto`` takes a back end on a CPU that reads the lengths; on a GPU it takes one that does not.
    """
    model = build(replace(SMALL, recompute=recompute, attention="padded")).train()
    predicted = torch.tensor([1, 7, 9])
    traced = torch.compile(model, backend="eager", fullgraph=True, dynamic=True)
    torch.manual_seed(0)
    words, pairs = traced(*BATCH, predicted, 8)
    torch.manual_seed(0)
    expected = model(*BATCH, predicted, 8)
    assert torch.equal(words, expected[0]) and torch.equal(pairs, expected[1])


def test_a_config_comes_back_without_how_it_was_run(tmp_path):
    config = replace(SMALL, is_decoder=True, attention_probs_dropout_prob=0.0, attention="flash", recompute=True)
    save_tokenizer(tmp_path, [*SPECIAL_TOKENS, "a"], lowercase=True)
    (tmp_path / "model").mkdir()
    save_model(tmp_path / "model", build(config), config, "BertForPreTraining", tmp_path)
    assert load_config(tmp_path / "model") == replace(config, attention="auto", recompute=False)
    assert load_config(tmp_path / "model", dropout=0.3).attention_dropout == 0.3
