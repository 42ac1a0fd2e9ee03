"""Muon and AdamW as one optimiser: each moves what it should, as torch's own would."""

import pytest
import torch
from safetensors.torch import save_file

from pipeline_src.models.bert import BertConfig, initialise
from pipeline_src.models.heads import BertForPretraining
from pipeline_src.training.muon import MATRICES
from pipeline_src.training.optimiser import MOMENTS, make_optimiser
from pipeline_src.training.state import WEIGHT, restore_tensors, tensors_of

RATE, MUON_RATE, DECAY, BETAS = 1e-3, 4e-3, 0.01, (0.9, 0.98)


def model() -> BertForPretraining:
    made = BertForPretraining(BertConfig(50, 64, 2, 1, 128))
    initialise(made, torch.Generator().manual_seed(0))
    return made


def give_gradients(parameters, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for parameter in parameters:
        parameter.grad = torch.randn(parameter.shape, generator=generator)


def test_the_blocks_matrices_take_torchs_muon_and_all_else_torchs_adamw():
    mine, theirs = model(), model()
    optimiser = make_optimiser(mine, RATE, DECAY, "muon", BETAS, 1e-6, MUON_RATE)
    named = dict(theirs.named_parameters())
    matrices = {name for name, weight in named.items() if ".encoder.layer." in name and weight.ndim == 2}
    assert len(matrices) == 2 * 6
    plain = {name for name in named if "LayerNorm" in name or name.endswith("bias")}
    decayed = set(named) - plain - matrices
    muon = torch.optim.Muon(
        [named[name] for name in sorted(matrices)], lr=MUON_RATE, weight_decay=DECAY, adjust_lr_fn="match_rms_adamw"
    )
    adamw = torch.optim.AdamW(
        [
            {"params": [named[name] for name in sorted(decayed)], "weight_decay": DECAY},
            {"params": [named[name] for name in sorted(plain)], "weight_decay": 0.0},
        ],
        lr=RATE, betas=BETAS, eps=1e-6,
    )  # fmt: skip
    for step in range(3):
        give_gradients(mine.parameters(), step)
        give_gradients(theirs.parameters(), step)
        for group in optimiser.param_groups:  # as the loop does
            group["lr"] = RATE * group.get("rate", 1.0)
        optimiser.step()
        muon.step()
        adamw.step()
    for name, weight in mine.named_parameters():
        torch.testing.assert_close(weight, named[name], rtol=1e-6, atol=1e-7, msg=name)


def test_a_training_that_stopped_goes_on_to_the_bit(tmp_path):
    first, second = model(), model()
    stopped, restored = (make_optimiser(each, RATE, DECAY, "muon", BETAS, 1e-6, MUON_RATE) for each in (first, second))
    give_gradients(first.parameters(), 0)
    stopped.step()
    kinds, parameters = (WEIGHT, *MOMENTS), [dict(each.named_parameters()) for each in (first, second)]
    save_file(tensors_of(parameters[0], stopped, kinds), tmp_path / "kept")
    restore_tensors(tmp_path / "kept", parameters[1], restored, kinds, 1, "")
    for each, optimiser in ((first, stopped), (second, restored)):
        give_gradients(each.parameters(), 1)
        optimiser.step()
    assert all(torch.equal(weight, parameters[1][name]) for name, weight in parameters[0].items())


def test_without_a_rate_of_their_own_matrices_take_the_learning_rate():
    groups = make_optimiser(model(), RATE, DECAY, "muon").param_groups
    assert [group["rate"] for group in groups if group.get(MATRICES)] == [1.0]


def test_a_step_of_a_matrix_is_as_long_as_adamws_whatever_its_gradients_length():
    lengths = []
    for size in (1e-6, 1.0, 1e4):
        made = model()
        weight = made.bert.encoder.layer[0].intermediate["dense"].weight
        before = weight.detach().clone()
        optimiser = make_optimiser(made, RATE, 0.0, "muon")
        give_gradients(made.parameters(), 0)
        weight.grad.mul_(size)
        optimiser.step()
        lengths.append(float((weight.detach() - before).square().mean().sqrt()) / RATE)
    assert lengths == pytest.approx([lengths[0]] * 3, rel=0.02) and 0.1 < lengths[0] < 0.3  # 0.2 in Liu et al.
