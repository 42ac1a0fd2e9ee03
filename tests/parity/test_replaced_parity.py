"""ELECTRA's losses equal those of transformers' two classes, combined as in the paper."""

from __future__ import annotations

import copy
import os
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

os.environ.setdefault("HF_HUB_OFFLINE", "1")
from pipeline_src.family.electra.encoder import ARCHITECTURE
from pipeline_src.family.electra.objective import MODELS, ElectraObjective
from pipeline_src.model.hub import load_config, load_weights, save_tensors
from pipeline_src.model.losses import sample_tokens
from pipeline_src.study.pretrain import ElectraParams
from tests.parity.peers import KEEP, LENGTHS, STARTS, assert_gradients_close, flat_batch, mean_losses

transformers = pytest.importorskip("transformers")
ENTRIES = 97
PREDICTED = [(0, 3), (0, 11), (1, 2), (2, 5), (2, 6)]  # sequence and place


def random_objective(own: ElectraParams, embedding: int) -> ElectraObjective:
    sizes = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 64}
    config = ARCHITECTURE.config(vocab_size=ENTRIES, **sizes, hidden_dropout_prob=0.0, embedding_size=embedding)
    objective = ElectraObjective(config, "none", own)
    generator = torch.Generator().manual_seed(3)
    objective.init_weights(generator)
    with torch.no_grad():
        for parameter in objective.parameters():
            parameter += 0.05 * torch.randn(parameter.shape, generator=generator)
    return objective


def theirs(objective: ElectraObjective, tmp_path) -> list[Any]:
    """Load the saved discriminator and generator in transformers, with shared embeddings if the test shares them."""
    models = []
    for subfolder, (module, config, kind) in objective.saved_models().items():
        folder = tmp_path / subfolder
        folder.mkdir(exist_ok=True)
        save_tensors(folder, module.state_dict(), config, kind)
        model, info = getattr(transformers, kind).from_pretrained(
            folder, output_loading_info=True, attn_implementation="eager"
        )
        assert not info["missing_keys"] and not info["mismatched_keys"], info
        assert all(key.startswith("copy_gate.") for key in info["unexpected_keys"]), info
        assert load_config(folder).as_dict() == config.as_dict()
        models.append(model.train())
    if objective.objective_params.embeddings == "shared":
        models[1].electra.embeddings = models[0].electra.embeddings
        models[1].tie_weights()
    return models


def copied_or_predicted(
    objective: ElectraObjective, judge: Any, seen: Tensor, own: Tensor
) -> tuple[Tensor, list[Tensor]]:
    """Return the mean cross-entropy of the paper's mixture over all real tokens, and the gate's parameters."""
    gate = copy.deepcopy(objective.model.copy_gate)
    gate.zero_grad()
    outputs = judge(seen, attention_mask=KEEP.long(), output_hidden_states=True)
    copied = gate(outputs.hidden_states[-1][KEEP]).sigmoid().squeeze(1)
    predicted = outputs.logits[KEEP].softmax(1).gather(1, own[KEEP][:, None]).squeeze(1)
    share = copied * (seen[KEEP] == own[KEEP]) + (1 - copied) * predicted
    return -share.log().mean(), list(gate.parameters())


@pytest.mark.parametrize(("learns", "loss_on"), MODELS)
@pytest.mark.parametrize(("embeddings", "embedding"), [("shared", 16), ("shared", 32), ("separate", 16)])
def test_electra_loss_and_gradients_equal_transformers(tmp_path, embeddings, embedding, learns, loss_on):
    own = ElectraParams(
        generator_width=0.5, generator_depth=0.7, embeddings=embeddings, disc_loss_on=loss_on, disc_target=learns
    )
    objective, gate = random_objective(own, embedding), []
    judge, generator = theirs(objective, tmp_path)
    assert generator.config.num_hidden_layers == 2 and generator.config.hidden_size == 16

    seed = torch.Generator().manual_seed(1)
    ids = torch.randint(5, ENTRIES, KEEP.shape, generator=seed) * KEEP
    sequence, position = torch.tensor(PREDICTED).T
    labels, draws = torch.randint(5, ENTRIES, (5,), generator=seed), torch.rand(5, generator=seed)
    flat = torch.from_numpy(STARTS)[sequence] + position

    padded = {"attention_mask": KEEP.long()}
    scores = generator(ids, **padded).logits[sequence, position]
    sampled = sample_tokens(scores.detach().softmax(1), draws)
    labels[2] = sampled[2]  # one that it guesses
    seen, other = ids.clone(), torch.zeros_like(ids)
    seen[sequence, position], other[sequence, position] = sampled, (sampled != labels).long()
    if (learns, loss_on) == ("mlm", "all"):
        text = ids.clone()
        text[sequence, position] = labels
        judged, gate = copied_or_predicted(objective, judge, seen, text)
    elif loss_on == "all":
        judged = judge(seen, labels=other, **padded).loss
    else:
        logits = judge(seen, **padded).logits[sequence, position]
        judged = (
            F.cross_entropy(logits, labels)
            if learns == "mlm"
            else F.binary_cross_entropy_with_logits(logits, (sampled != labels).float())
        )
    words = F.cross_entropy(scores, labels)
    (words + 50 * judged).backward()

    means, counts = mean_losses(objective, flat_batch(ids, flat, labels, draws))
    torch.testing.assert_close(means["mlm"], words, rtol=1e-5, atol=1e-5)
    term = "rtd" if learns == "rtd" else "words"
    torch.testing.assert_close(means[term], judged, rtol=1e-5, atol=1e-5)
    assert counts[term] == (sum(LENGTHS) if loss_on == "all" else 5)
    for model, (module, config, kind) in zip((judge, generator), objective.saved_models().values(), strict=True):
        expected = {name: parameter.grad for name, parameter in model.named_parameters(remove_duplicate=False)}
        expected |= zip(("copy_gate.weight", "copy_gate.bias"), (part.grad for part in gate), strict=False)
        # transformers holds the vector of [PAD] still, which nothing here reads.
        parameters = dict(module.named_parameters())
        parameters.pop("cls.predictions.decoder.weight", None)
        ours = {config.names.to_hf_name(name, kind): parameter for name, parameter in parameters.items()}
        assert_gradients_close(ours, expected)


def test_load_weights_electra_folder_of_transformers_is_exact(tmp_path):
    """Discriminator and generator are loaded from separate folders."""
    objective = random_objective(ElectraParams(generator_width=0.5), 16)
    for model, subfolder in zip(theirs(objective, tmp_path / "."), ("", "generator"), strict=True):
        model.save_pretrained(tmp_path / "theirs" / subfolder)
    again = random_objective(ElectraParams(generator_width=0.5), 16)
    with torch.no_grad():
        for parameter in again.parameters():
            parameter.zero_()
    for subfolder, saved in again.saved_models().items():
        load_weights(saved.module, tmp_path / "theirs" / subfolder)
    for (name, first), (_, second) in zip(
        objective.checkpoint_parameters().items(), again.checkpoint_parameters().items(), strict=True
    ):
        assert torch.equal(first, second), name
