"""Every encoder of the family has the same outputs and gradients as its class in transformers."""

from __future__ import annotations

import os
import shutil
from argparse import Namespace
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

os.environ.setdefault("HF_HUB_OFFLINE", "1")
from pipeline_src.finetune.heads import BertForTask
from pipeline_src.interpret.attention_maps import record_attention
from pipeline_src.interpret.model import ProbedModel
from pipeline_src.model.attention import PackedBatch, QueryRows
from pipeline_src.model.bert import (
    INITIAL_STD,
    BertConfig,
    BertForPretraining,
    initialise,
    load_architecture,
)
from pipeline_src.model.hub import TOKENIZER_FILES, load_config, load_weights
from pipeline_src.pretrain.import_model import main
from pipeline_src.tools.fill_mask import fill_mask
from tests.parity.peers import assert_close, load_in_transformers, randomize, save

transformers = pytest.importorskip("transformers")
ENTRIES, POSITIONS = 97, 48
LENGTHS = (40, 7, 23, 23)
PAIR_LABEL = torch.tensor([0, 1, 1, 0])
PREDICTED = (1, 5)  # places in each sequence
# Standard deviation of a normal distribution, truncated at two deviations for ModernBERT alone.
CUT_STD = 0.88


@dataclass(frozen=True)
class Case:
    """A member at a tiny size.

    Attributes:
        architecture: file of ``models/``.
        changes: of the config beyond the sizes.
    """

    architecture: str
    changes: dict[str, Any] = field(default_factory=dict)

    def config(self) -> BertConfig:
        kind = load_architecture(self.architecture).config
        sizes = {"vocab_size": ENTRIES, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4}
        sizes |= {"intermediate_size": 64, "max_position_embeddings": POSITIONS, "hidden_dropout_prob": 0.0}
        return kind(**(sizes | self.changes))


CASES = {
    "bert": Case("bert"),
    "roberta": Case("roberta"),
    "roberta, padded with 1": Case("roberta", {"pad_token_id": 1}),
    "modernbert": Case("modernbert", {"num_hidden_layers": 4, "local_attention": 8}),
    "albert": Case("albert", {"embedding_size": 16, "hidden_act": "gelu_tanh"}),
    "distilbert": Case("distilbert"),
    "deberta": Case("deberta"),
    "deberta, beyond its table": Case("deberta", {"max_position_embeddings": 16}),
    "deberta-v2, wide buckets": Case("deberta_v2", {"position_buckets": 4}),
    "deberta-v2, a bucket each": Case("deberta_v2"),
    "deberta-v2, convolved": Case("deberta_v2", {"position_buckets": 4, "conv_kernel_size": 3}),
    "deberta-v2, as its xlarge": Case("deberta_v2", {"conv_kernel_size": 3, "conv_act": "gelu"}),
    "electra": Case("electra", {"embedding_size": 16}),
    "electra, as wide": Case("electra", {"embedding_size": 32}),
}


@dataclass(frozen=True)
class Pair:
    """A saved model, the same model loaded in transformers, and a batch for each."""

    ours: BertForPretraining
    theirs: Any
    folder: Path
    ids: Tensor
    keep: Tensor
    segments: Tensor
    predicted: Tensor
    labels: Tensor

    @property
    def cu_seqlens(self) -> Tensor:
        return torch.tensor([0, *LENGTHS]).cumsum(0)

    @property
    def flat(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.ids[self.keep], self.segments[self.keep], self.cu_seqlens

    @property
    def padded(self) -> dict[str, Tensor]:
        padded = {"input_ids": self.ids, "attention_mask": self.keep.long()}
        return padded | ({"token_type_ids": self.segments} if self.ours.bert.config.type_vocab_size > 1 else {})

    @property
    def gradients(self) -> dict[str, Tensor | None]:
        """Return the gradients of all parameters under this project's names."""
        names = self.ours.bert.config.names
        folder = {names.to_hf_name(name, type(self.theirs).__name__): name for name, _ in self.ours.named_parameters()}
        return {folder[name]: parameter.grad for name, parameter in self.theirs.named_parameters()}


def theirs(folder: Path, huggingface_class: str) -> Any:
    return load_in_transformers(folder, huggingface_class, attn_implementation="eager")


@pytest.fixture(scope="module", params=CASES.values(), ids=CASES)
def pair(request, tmp_path_factory) -> Pair:
    config = request.param.config()
    ours = randomize(BertForPretraining(config))
    huggingface_class = config.names.classes["pretraining"]
    folder = save(tmp_path_factory.mktemp("model"), ours, config, huggingface_class)
    generator = torch.Generator().manual_seed(1)
    length = max(LENGTHS)
    keep = torch.arange(length) < torch.tensor(LENGTHS)[:, None]
    pad = getattr(config, "pad_token_id", 0)
    ids = torch.randint(5, ENTRIES, keep.shape, generator=generator).masked_fill(~keep, pad)
    segments = (torch.arange(length) >= 5).long().expand(len(LENGTHS), -1)
    predicted = (torch.tensor([0, *LENGTHS[:-1]]).cumsum(0)[:, None] + torch.tensor(PREDICTED)).ravel()
    labels = torch.randint(5, ENTRIES, (len(predicted),), generator=generator)
    return Pair(ours, theirs(folder, huggingface_class), folder, ids, keep, segments, predicted, labels)


def test_encoder_hidden_states_loss_and_gradients_equal_transformers(pair):
    layout = PackedBatch.of(pair.cu_seqlens, sum(LENGTHS))
    ids, segments, _ = pair.flat
    expected = pair.theirs.base_model(**pair.padded, output_hidden_states=True)
    result = pair.ours.bert.hidden_states(ids, segments, layout)
    assert len(result) == len(expected.hidden_states)
    for number, (first, second) in enumerate(zip(result[1:], expected.hidden_states[1:], strict=True)):
        assert_close(first, second[pair.keep], f"layer {number}")

    pair.ours.zero_grad(), pair.theirs.zero_grad()
    rows = QueryRows.of(*rows_of(pair))
    hidden, pooled = pair.ours.bert(*pair.flat, None, rows, decoded=True)
    positions = torch.searchsorted(rows.index, pair.predicted)
    of_words, _ = pair.ours.cls["predictions"].loss(hidden[positions], pair.labels)
    found_loss = of_words / len(pair.labels)
    outputs = pair.theirs(**pair.padded)
    scores = outputs.get("logits", outputs.get("prediction_logits"))
    loss = nn.functional.cross_entropy(scores[pair.keep][pair.predicted], pair.labels)
    if "sop_logits" in outputs:
        order = pair.ours.cls["seq_relationship"](pooled)
        assert_close(order, outputs.sop_logits, "order")
        found_loss = found_loss + nn.functional.cross_entropy(order, PAIR_LABEL)
        loss = loss + nn.functional.cross_entropy(outputs.sop_logits, PAIR_LABEL)
    found_loss.backward()
    loss.backward()
    assert_close(pair.ours(*pair.flat, pair.predicted)[0], scores[pair.keep][pair.predicted], "scores")
    assert_close(found_loss, loss, "loss")
    gradients = pair.gradients
    for name, parameter in pair.ours.named_parameters():
        if parameter.grad is not None:
            assert_close(parameter.grad, gradients.pop(name), name)
    assert not any(left is not None and left.any() for left in gradients.values()), gradients.keys()


def test_record_attention_equals_transformers(pair):
    ids, segments, _ = pair.flat
    expected = pair.theirs.base_model(**pair.padded, output_attentions=True).attentions
    with torch.no_grad(), record_attention(pair.ours.bert) as result:
        pair.ours.bert.hidden_states(ids, segments, PackedBatch.of(pair.cu_seqlens, sum(LENGTHS)))
    assert len(result) == len(expected) == pair.ours.bert.config.num_hidden_layers
    for layer, (ours, reference) in enumerate(zip(result, expected, strict=True)):
        for row, length in enumerate(LENGTHS):
            assert_close(ours[row, :, :length, :length], reference[row, :, :length, :length], f"layer {layer}")
            assert_close(ours[row, :, :length].sum(-1), torch.ones(ours.shape[1], length))


def rows_of(pair: Pair) -> tuple[Tensor, Tensor]:
    """Return the predicted tokens and first tokens of the sequences, and where each sequence's begin."""
    index = torch.cat([pair.predicted, pair.cu_seqlens[:-1]]).unique()
    return index, torch.searchsorted(index, pair.cu_seqlens)


def test_save_model_is_loaded_by_auto_classes_and_round_trip_is_exact(pair):
    expected, _ = pair.ours(*pair.flat, pair.predicted)
    words = transformers.AutoModelForMaskedLM.from_pretrained(pair.folder).eval()
    assert_close(expected, words(**pair.padded).logits[pair.keep][pair.predicted])
    encoder = transformers.AutoModel.from_pretrained(pair.folder).eval()
    hidden, _ = pair.ours.bert(*pair.flat)
    assert_close(hidden, encoder(**pair.padded).last_hidden_state[pair.keep])
    again = BertForPretraining(load_config(pair.folder))
    load_weights(again, pair.folder)
    for (name, first), (_, second) in zip(pair.ours.named_parameters(), again.named_parameters(), strict=True):
        assert torch.equal(first, second), name
    assert load_config(pair.folder).as_dict() == pair.ours.bert.config.as_dict()


def test_folder_saved_by_transformers_fills_masks_here(pair, tmp_path):
    pair.theirs.save_pretrained(tmp_path / "theirs")
    for name in TOKENIZER_FILES:
        shutil.copyfile(pair.folder / name, tmp_path / "theirs" / name)
    main(Namespace(source=tmp_path / "theirs", destination=tmp_path / "made", lowercase=True))
    own, made = (ProbedModel.open(folder) for folder in (pair.folder, tmp_path / "made"))
    assert fill_mask(made, "a [MASK] b", 3) == fill_mask(own, "a [MASK] b", 3)


@pytest.mark.parametrize("head", ["sequence", "span", "token"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_bert_for_task_logits_equal_transformers(case, head, tmp_path):
    config = case.config()
    ours = randomize(BertForTask(config, head, 2))
    reference = theirs(save(tmp_path, ours, config, config.names.classes[head]), config.names.classes[head])
    ids = torch.randint(5, ENTRIES, (2, 9), generator=torch.Generator().manual_seed(2))
    result = ours(ids.ravel(), ids.ravel() * 0, torch.tensor([0, 9, 18]))
    outputs = reference(input_ids=ids)
    spans = [outputs.start_logits, outputs.end_logits] if head == "span" else []
    assert_close(result, torch.stack(spans, -1).flatten(0, 1) if spans else outputs.logits.flatten(0, -2))
    again = BertForTask(config, head, 2)
    load_weights(again, tmp_path)
    assert all(torch.equal(first, second) for first, second in zip(ours.parameters(), again.parameters(), strict=True))


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_first_last_head_rebuilt_from_model_card_equals_project(case, tmp_path):
    config = case.config()
    ours = randomize(BertForTask(config, "sequence", 2, pooling="first_last"))
    folder = save(tmp_path, ours, config, config.names.classes["encoder"])
    encoder = transformers.AutoModel.from_pretrained(folder).eval()
    stored, layer = load_file(folder / "model.safetensors"), ours.output_layer
    ids = torch.randint(5, ENTRIES, (1, 9), generator=torch.Generator().manual_seed(2))
    hidden_states = encoder(input_ids=ids, output_hidden_states=True).hidden_states
    mean = (hidden_states[0] + hidden_states[-1])[0, 1:-1].mean(0)
    expected = nn.functional.linear(mean, stored[f"{layer}.weight"], stored[f"{layer}.bias"])
    assert_close(ours(ids[0], ids[0] * 0, torch.tensor([0, 9]))[0], expected)


def test_initialise_weights_have_distribution_of_original(pair):
    """The standard deviation and the truncation are compared."""
    first, second = (BertForPretraining(pair.ours.bert.config) for _ in range(2))
    for model in (first, second):
        initialise(model, torch.Generator().manual_seed(0))
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        fresh = dict(type(pair.theirs)(pair.theirs.config).named_parameters())
    names, cut = pair.ours.bert.config.names, pair.ours.bert.config.initializer_cutoff_factor
    cut_there = hasattr(pair.theirs.config, "initializer_cutoff_factor")
    for name, parameter in first.named_parameters():
        reference = fresh.get(names.to_hf_name(name, type(pair.theirs).__name__))
        if reference is None or parameter.numel() < 1000:
            continue
        expected = CUT_STD if cut and not cut_there else 1
        assert abs(parameter.std() / reference.std() - expected) < 0.1, name
        assert (parameter.abs().max() <= 2 * INITIAL_STD + 1e-9) == bool(cut), name


def test_modernbert_at_2048_tokens_equals_transformers(tmp_path):
    """Long sequences use the window of 128 tokens and the theta of a long phase.

    Hidden states and logits agree to 1e-4.
    """
    long = {"num_hidden_layers": 4, "max_position_embeddings": 2048, "global_rope_theta": 160_000.0}
    config = Case("modernbert", long).config()
    ours, ids = randomize(BertForPretraining(config)), torch.randint(5, ENTRIES, (1, 2048), generator=torch.Generator())
    reference = theirs(save(tmp_path, ours, config, "ModernBertForMaskedLM"), "ModernBertForMaskedLM")
    thetas = {kind: rope["rope_theta"] for kind, rope in reference.config.rope_parameters.items()}
    assert thetas == {"full_attention": 160_000, "sliding_attention": 10_000}
    assert reference.config.layer_types == ["full_attention", *["sliding_attention"] * 2, "full_attention"]
    with torch.no_grad():
        hidden = ours.bert.hidden_states(ids[0], ids[0] * 0, PackedBatch.of(torch.tensor([0, 2048]), 2048))
        scores, _ = ours(ids[0], ids[0] * 0, torch.tensor([0, 2048]), torch.arange(2048))
        expected = reference(input_ids=ids, output_hidden_states=True)
    for first, second in zip([*hidden[1:], scores], [*expected.hidden_states[1:], expected.logits], strict=True):
        assert (first - second[0]).abs().max() < 1e-4
