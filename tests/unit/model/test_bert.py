"""BERT: sizes, initial weights, causal masks, activation checkpointing, dropout, and modules without memory."""

import math
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from pipeline_src.model.attention import PackedBatch
from pipeline_src.model.bert import (
    SINUSOID_AMPLITUDE,
    Bert,
    BertConfig,
    BertForPretraining,
    fused_linear,
    initialise,
    load_architecture,
    sinusoids,
    uninitialised,
)
from pipeline_src.model.hub import load_config, save_model
from pipeline_src.study.model import ModelParams
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
def test_bert_parameter_count_equals_published_and_transformers(layers, hidden):
    config = BertConfig.from_params(ModelParams(num_hidden_layers=layers, hidden_size=hidden), ENTRIES)
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
        reference = transformers.BertModel(transformers.BertConfig(**config.as_dict()))
    assert count == sum(parameter.numel() for parameter in reference.parameters())
    assert count == load_architecture("bert").parameters(config)


def test_bert_config_from_params_overrides_defaults():
    given = {"num_attention_heads": 3, "intermediate_size": 100, "attention_probs_dropout_prob": 0.0}
    config = BertConfig.from_params(ModelParams(num_hidden_layers=1, hidden_size=96, **given), 50)
    assert (config.num_attention_heads, config.intermediate_size) == (3, 100)
    assert config.attention_dropout == 0 and config.hidden_dropout_prob == 0.1
    plain = ModelParams(num_hidden_layers=1, hidden_size=64, hidden_dropout_prob=0.2)
    assert BertConfig.from_params(plain, 50).attention_dropout == 0.2


def test_packed_batch_without_max_seqlen_computes_it():
    cu_seqlens = BATCH[2]
    first, second = PackedBatch.of(cu_seqlens, 14), PackedBatch.of(cu_seqlens, 14, 8)
    assert first.max_seqlen == second.max_seqlen == 8 and torch.equal(first.padded, second.padded)
    assert first.position.tolist() == [*range(5), 0, *range(8)]
    flat = torch.arange(14.0)
    assert first.pad(flat, -1.0).tolist()[1] == [5, *[-1] * 7]
    assert torch.equal(first.unpad(first.pad(flat)), flat)


def test_bert_decoder_token_ignores_later_tokens():
    model = build(replace(SMALL, is_decoder=True)).eval()
    ids, segments, cu_seqlens = BATCH
    changed = ids.clone()
    changed[10] = 50
    first, second = model.bert(ids, segments, cu_seqlens)[0], model.bert(changed, segments, cu_seqlens)[0]
    same = (first == second).all(dim=1)
    assert same[:10].all() and not same[10:].any()
    both_ways = build(SMALL).eval()
    first, second = both_ways.bert(ids, segments, cu_seqlens)[0], both_ways.bert(changed, segments, cu_seqlens)[0]
    assert not (first == second).all(dim=1)[6:].any()


def test_bert_pooler_reads_first_token_or_last_if_causal():
    ids, segments, cu_seqlens = BATCH
    for causal, positions in ((False, [0, 5, 6]), (True, [4, 5, 13])):
        model = build(replace(SMALL, is_decoder=causal)).bert.eval()
        hidden, pooled = model(ids, segments, cu_seqlens)
        torch.testing.assert_close(pooled, torch.tanh(model.pooler.dense(hidden[positions])))


def gradients(config: BertConfig, dropout_seed: int) -> list[torch.Tensor]:
    model = build(config).train()
    torch.manual_seed(dropout_seed)
    words, pairs = model(*BATCH, torch.tensor([1, 7, 9]))
    (words.square().sum() + pairs.sum()).backward()
    return [parameter.grad for parameter in model.parameters()]


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_activation_checkpointing_keeps_gradients(dropout):
    config = replace(SMALL, hidden_dropout_prob=dropout)
    stored, recomputed = gradients(config, 1), gradients(replace(config, activation_checkpointing=True), 1)
    assert all(torch.equal(first, second) for first, second in zip(stored, recomputed, strict=True))


def test_activation_checkpointing_saves_fewer_activations():
    def count_saved(checkpointing: bool) -> int:
        config, sizes = replace(SMALL, num_hidden_layers=4, activation_checkpointing=checkpointing), []
        model = build(config).train()
        with torch.autograd.graph.saved_tensors_hooks(lambda t: sizes.append(t.numel()) or t, lambda t: t):
            model(*BATCH, torch.tensor([1]))
        return sum(sizes)

    assert count_saved(True) < 0.5 * count_saved(False)


def test_bert_dropout_same_seed_gives_same_output():
    first, two, second = gradients(SMALL, 1), gradients(SMALL, 1), gradients(SMALL, 2)
    assert all(torch.equal(a, b) for a, b in zip(first, two, strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_bert_attention_dropout_rate_differs_from_hidden_dropout_rate():
    config = replace(SMALL, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.5)
    assert not torch.equal(gradients(config, 1)[0], gradients(config, 2)[0])
    config = replace(config, attention_probs_dropout_prob=0.0)
    assert torch.equal(gradients(config, 1)[0], gradients(config, 2)[0])


def test_fused_linear_equals_separate_projections():
    layer = build(SMALL).bert.encoder.layer[0].attention["self"]
    projections = (layer.query, layer.key, layer.value)
    hidden = torch.randn(9, 64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    result, expected = fused_linear(hidden, projections), torch.cat([part(hidden) for part in projections], dim=1)
    torch.testing.assert_close(result, expected, rtol=1e-6, atol=1e-6)
    parameters = [hidden, *(parameter for part in projections for parameter in part.parameters())]
    for first, second in zip(
        *(torch.autograd.grad(out.square().sum(), parameters) for out in (result, expected)), strict=True
    ):
        torch.testing.assert_close(first, second, rtol=1e-5, atol=1e-5)


def test_bert_autocast_hidden_states_are_bfloat16():
    model, flowing = build(SMALL).bert, []
    for part in (model.embeddings, *model.encoder.layer):
        part.register_forward_hook(lambda part, given, out: flowing.append(out.dtype))
    with torch.autocast("cpu", torch.bfloat16):
        narrow, _ = model.eval()(*BATCH)
    assert set(flowing) == {torch.bfloat16}
    wide, _ = model(*BATCH)
    assert wide.dtype == torch.float32
    torch.testing.assert_close(narrow.float(), wide, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("activation_checkpointing", [False, True])
def test_bert_compiles_to_one_graph(activation_checkpointing):
    """The model is traced but not compiled. Reading a number from a tensor would break the graph in two."""
    model = build(replace(SMALL, activation_checkpointing=activation_checkpointing, attention="padded")).train()
    predicted = torch.tensor([1, 7, 9])
    traced = torch.compile(model, backend="eager", fullgraph=True, dynamic=True)
    torch.manual_seed(0)
    words, pairs = traced(*BATCH, predicted, 8)
    torch.manual_seed(0)
    expected = model(*BATCH, predicted, 8)
    assert torch.equal(words, expected[0]) and torch.equal(pairs, expected[1])


def test_save_model_config_omits_runtime_settings(tmp_path):
    config = replace(SMALL, is_decoder=True, attention_probs_dropout_prob=0.0)
    config = replace(config, attention="flash_varlen", activation_checkpointing=True)
    save_tokenizer(tmp_path, [*SPECIAL_TOKENS, "a"], lowercase=True)
    (tmp_path / "model").mkdir()
    save_model(tmp_path / "model", build(config), config, "BertForPreTraining", tmp_path)
    assert load_config(tmp_path / "model") == replace(config, attention="auto", activation_checkpointing=False)
    assert load_config(tmp_path / "model", dropout=0.3).attention_dropout == 0.3


CONFIG = BertConfig(vocab_size=50, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=16)


class Parts(nn.Module):
    def __init__(self):
        super().__init__()
        self.bert, self.lstm, self.conv = Bert(CONFIG), nn.LSTM(3, 4), nn.Conv1d(2, 3, 1)


def test_uninitialised_keeps_shapes_and_random_state():
    torch.manual_seed(0)
    with uninitialised():
        parts = Parts()
    sampled = torch.rand(3)
    torch.manual_seed(0)
    assert torch.equal(sampled, torch.rand(3))
    assert all(parameter.is_meta for parameter in parts.parameters())
    shapes = {name: parameter.shape for name, parameter in parts.named_parameters()}
    assert shapes == {name: parameter.shape for name, parameter in Parts().named_parameters()}


def test_uninitialised_does_not_import_dynamo(root):
    """The import would make each command that reads a model a second slower."""
    code = (
        "import sys; from tests.unit.model.test_bert import Parts, uninitialised\n"
        "with uninitialised(): Parts()\n"
        "assert 'torch._dynamo' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], cwd=root, check=True)


def parameters(config: BertConfig) -> dict[str, Tensor]:
    return dict(build(config).named_parameters())


def test_initialise_sinusoidal_positions_keeps_other_weights():
    config = BertConfig(50, 64, 2, 1, 128, position_init="sinusoidal")
    assert "position_init" not in config.as_dict()
    others = parameters(config)
    start = others["bert.embeddings.position_embeddings.weight"]
    assert torch.equal(start, sinusoids(512, 64))
    assert start.abs().max() <= SINUSOID_AMPLITUDE + 1e-6 and start.requires_grad
    for name, weight in parameters(BertConfig(50, 64, 2, 1, 128)).items():
        if "position" not in name:
            assert torch.equal(weight, others[name]), name  # all else is drawn the same


def attention_by_offset(config: BertConfig, encoder: type[Bert] = Bert) -> dict[int, list[float]]:
    """Return the mean attention of each head of the first block to the token at each offset."""
    made = encoder(config)
    initialise(made, torch.Generator().manual_seed(0))
    layout = PackedBatch.of(torch.tensor([0, 60]), 60, 60)
    ids = torch.randint(0, 50, (60,), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        hidden = made.embeddings(ids, torch.zeros_like(ids), layout)
        hidden = getattr(made.encoder, "embeddings_project", torch.nn.Identity())(hidden)
        weights = made.encoder.layer[0].attention["self"].attention_probs(hidden, layout)[0]
    return {offset: [float(head.diagonal(offset).mean()) for head in weights] for offset in range(-3, 4)}


def test_initialise_neighbor_heads_attend_adjacent_tokens():
    sinusoid, neighbours = (
        BertConfig(50, 192, 2, 3, 768, hidden_dropout_prob=0.0, position_init=start)
        for start in ("sinusoidal", "neighbor_heads")
    )
    result = attention_by_offset(neighbours)
    assert max(result, key=lambda offset: result[offset][0]) == -1 and result[-1][0] > 0.25
    assert max(result, key=lambda offset: result[offset][1]) == 1 and result[1][1] > 0.25
    assert max(result[offset][2] for offset in result) < 0.03  # the third head is as random as others
    blind = attention_by_offset(sinusoid)
    assert max(share for probs in blind.values() for share in probs) < 0.03
    before, after = parameters(sinusoid), parameters(neighbours)
    turned = {name for name in before if not torch.equal(before[name], after[name])}
    assert turned == {f"bert.encoder.layer.0.attention.self.{part}.weight" for part in ("query", "key")}


def test_initialise_neighbor_heads_causal_attends_previous_token():
    result = attention_by_offset(
        BertConfig(50, 128, 1, 2, 512, hidden_dropout_prob=0.0, is_decoder=True, position_init="neighbor_heads")
    )
    assert max(result, key=lambda offset: result[offset][0]) == -1 and result[-1][0] > 0.25
    assert abs(result[-1][1] - result[-2][1]) < 0.02 and result[1] == [0.0, 0.0]


@pytest.mark.parametrize(("architecture", "embedding"), [("albert", 128), ("albert", 192), ("electra", 128)])
def test_initialise_neighbor_heads_with_factorized_embeddings_attend_adjacent_tokens(architecture, embedding):
    member = load_architecture(architecture)
    sizes = {"num_hidden_layers": 2, "hidden_size": 192, "embedding_size": embedding, "hidden_dropout_prob": 0.0}
    params = ModelParams(architecture=architecture, position_init="neighbor_heads", **sizes)
    config = member.config.from_params(params, 50)
    result = attention_by_offset(config, member.encoder)
    assert max(result, key=lambda offset: result[offset][0]) == -1 and 0.2 < result[-1][0] < 0.6
    assert max(result, key=lambda offset: result[offset][1]) == 1 and 0.2 < result[1][1] < 0.6
    made = member.encoder(config)
    initialise(made, torch.Generator().manual_seed(0))
    diagonal = made.encoder.embeddings_project.weight.detach().diagonal()
    assert float(diagonal.mean()) == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize(
    ("architecture", "embedding", "turned"),
    [
        *[("roberta", None, 2), ("distilbert", None, 2), ("electra", None, 2), ("electra", 32, 3)],
        *[("albert", None, 3), ("albert", 33, 3)],
        *[("deberta", None, 0), ("deberta_v2", None, 0), ("modernbert", None, 0), ("bilstm", None, 0)],
    ],
)
def test_initialise_neighbor_heads_changes_expected_parameters(architecture: str, embedding: int | None, turned: int):
    member = load_architecture(architecture)
    weights = []
    for start in ("sinusoidal", "neighbor_heads"):
        sizes = {"num_hidden_layers": 2, "hidden_size": 64, "embedding_size": embedding}
        params = ModelParams(architecture=architecture, position_init=start, **sizes)
        made = member.encoder(member.config.from_params(params, 50))
        initialise(made, torch.Generator().manual_seed(0))
        weights.append(dict(made.named_parameters()))
    changed = [name for name in weights[0] if not torch.equal(weights[0][name], weights[1][name])]
    assert len(changed) == turned, changed


@pytest.mark.parametrize("width", [5, 64])
def test_sinusoids_of_adjacent_positions_are_similar(width: int):
    vectors = sinusoids(40, width)
    assert vectors.shape == (40, width) and vectors[0, 1::2].tolist() == pytest.approx(
        [SINUSOID_AMPLITUDE] * (width // 2)
    )
    assert float(vectors[3, 0]) == pytest.approx(SINUSOID_AMPLITUDE * math.sin(3), rel=1e-5)
    near, far = (torch.cosine_similarity(vectors[10], vectors[other], dim=0) for other in (11, 30))
    assert near > far
