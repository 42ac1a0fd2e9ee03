"""The encoder and its heads against transformers: same weights, same input, same outputs, losses and gradients."""

import os

import pytest
import torch

os.environ.setdefault("HF_HUB_OFFLINE", "1")
from pipeline_src.models.bert import BertConfig, initialise
from pipeline_src.models.heads import BertForPretraining
from pipeline_src.models.hub import load_config, load_weights, save_model
from pipeline_src.objectives.mlm import masked_words
from pipeline_src.objectives.nsp import next_sentence
from pipeline_src.vocabulary.wordpiece import SPECIAL_TOKENS, save_tokenizer

SIZES = [(1, 64, 1), (2, 128, 2), (4, 256, 4)]
LENGTHS = [[24, 24, 24], [24, 7, 15]]  # all equal, and unequal


def build(layers: int, hidden: int, heads: int) -> tuple[BertForPretraining, BertConfig]:
    config = BertConfig(500, hidden, layers, heads, 4 * hidden, 64, hidden_dropout_prob=0.0)
    model = BertForPretraining(config)
    initialise(model, torch.Generator().manual_seed(3))
    with torch.no_grad():  # biases and LayerNorms too, or a swapped one would not show
        for parameter in model.parameters():
            parameter += 0.02 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(parameter.numel()))
    return model.eval(), config


@pytest.fixture(scope="module", params=SIZES, ids=lambda size: f"L{size[0]}-H{size[1]}")
def both(request, tmp_path_factory):
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("model")
    model, config = build(*request.param)
    (folder / "v").mkdir()
    save_tokenizer(folder / "v", [*SPECIAL_TOKENS, *"abcdefghij"], lowercase=True)
    save_model(folder, model, config, "BertForPreTraining", folder / "v")
    theirs, info = transformers.BertForPreTraining.from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"]
    return model, theirs.eval(), folder


@pytest.mark.parametrize("lengths", LENGTHS, ids=["equal", "unequal"])
def test_outputs_losses_and_gradients(both, lengths):
    ours, theirs, _ = both
    generator = torch.Generator().manual_seed(1)
    longest, count = max(lengths), len(lengths)
    ids = torch.randint(5, 500, (count, longest), generator=generator)
    segments = (torch.arange(longest) >= 5).long().expand(count, -1)
    keep = torch.arange(longest) < torch.tensor(lengths)[:, None]
    starts = torch.tensor([0, *lengths]).cumsum(0)
    flat_predicted = torch.tensor([starts[row] + place for row in range(count) for place in (1, 5)])
    labels = torch.full((count, longest), -100)
    labels[:, 1], labels[:, 5] = 17, 42
    is_random = torch.tensor([0, 1, 0])

    ours.zero_grad(), theirs.zero_grad()
    hidden, pooled = ours.bert(ids[keep], segments[keep], starts)
    words, pairs = ours(ids[keep], segments[keep], starts, flat_predicted)
    loss = masked_words(words, torch.tensor([17, 42] * count))[0] / len(words)
    loss = loss + next_sentence(pairs, is_random)[0] / count
    loss.backward()

    reference = theirs(
        input_ids=ids,
        token_type_ids=segments,
        attention_mask=keep.long(),
        labels=labels,
        next_sentence_label=is_random,
        output_hidden_states=True,
    )
    base = theirs.bert(input_ids=ids, token_type_ids=segments, attention_mask=keep.long())
    reference.loss.backward()

    def close(found: torch.Tensor, expected: torch.Tensor) -> None:
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)

    close(hidden, base.last_hidden_state[keep])
    close(pooled, base.pooler_output)
    close(words, reference.prediction_logits[labels >= 0])
    close(pairs, reference.seq_relationship_logits)
    close(loss, reference.loss)
    gradients = {name: parameter.grad for name, parameter in theirs.named_parameters()}
    for name, parameter in ours.named_parameters():
        name = {"cls.predictions.decoder.bias": "cls.predictions.bias"}.get(name, name)
        close(parameter.grad, gradients[name])


def test_auto_classes_load_a_saved_model(both):
    import transformers

    model, _, folder = both
    loaded = transformers.AutoModel.from_pretrained(folder)
    torch.testing.assert_close(
        loaded.embeddings.word_embeddings.weight, model.bert.embeddings.word_embeddings.weight, rtol=0, atol=0
    )
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    assert tokenizer("a b")["input_ids"] == [2, 5, 6, 3]


def test_a_saved_model_comes_back_bit_for_bit(both):
    model, _, folder = both
    again = BertForPretraining(load_config(folder))
    load_weights(again, folder)
    for (name, one), (_, two) in zip(model.named_parameters(), again.named_parameters(), strict=True):
        assert torch.equal(one, two), name


def test_initial_weights_are_a_truncated_normal():
    config = BertConfig(3000, 128, 2, 2, 512)
    model = BertForPretraining(config)
    initialise(model, torch.Generator().manual_seed(0))
    weights = model.bert.embeddings.word_embeddings.weight
    assert weights.abs().max() <= 0.04 and abs(weights.std().item() - 0.0176) < 5e-4  # 0.88 x 0.02
    assert model.bert.encoder.layer[0].output.dense.bias.abs().max() == 0
