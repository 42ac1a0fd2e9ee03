"""DistilBERT's losses and gradients equal those from transformers' models of teacher and student."""

from __future__ import annotations

import os

import pytest
import torch
import torch.nn.functional as F

os.environ.setdefault("HF_HUB_OFFLINE", "1")
from pipeline_src.family.distilbert.objective import DistilBertObjective
from pipeline_src.model import losses as chunked
from pipeline_src.model.bert import BertConfig, BertForMaskedLM
from pipeline_src.model.losses import LazyLogits, distillation_loss
from pipeline_src.study.pretrain import DistilBertParams
from tests.parity.peers import (
    KEEP,
    assert_gradients_close,
    flat_batch,
    loaded_again,
    mean_losses,
    random_ids,
    randomize,
)

ENTRIES = 97
PREDICTED, LABELS = torch.tensor([3, 11, 22, 32]), torch.tensor([17, 42, 6, 90])  # places in the flat batch


def config(layers: int) -> BertConfig:
    return BertConfig(ENTRIES, 32, layers, 4, 64, 24, hidden_dropout_prob=0.0)


@pytest.mark.parametrize("tokens", ["all", "predicted"])
def test_distilbert_losses_and_gradients_equal_transformers(tmp_path, monkeypatch, tokens):
    monkeypatch.setattr(chunked, "CHUNK_LOGITS", 9 * ENTRIES)  # several chunks
    teacher = randomize(BertForMaskedLM(config(4)), 1, std=0.1)
    objective = DistilBertObjective(config(2), "none", DistilBertParams(loss_on=tokens))
    objective.set_teacher(teacher.eval().requires_grad_(False))
    randomize(objective.model, 2, std=0.1)
    ids = random_ids(ENTRIES)
    batch = flat_batch(ids, PREDICTED, LABELS)
    loaded, outputs = [], []
    for name, model in (("teacher", teacher), ("student", objective.model)):
        loaded.append(loaded_again(tmp_path / name, model, model.bert.config, "BertForMaskedLM"))
        outputs.append(loaded[-1](ids, attention_mask=KEEP.long(), output_hidden_states=True))
    teacher_output, result = outputs
    chosen = PREDICTED if tokens == "predicted" else torch.arange(len(batch.ids))
    scores, target = result.logits[KEEP], teacher_output.logits[KEEP].detach()
    kl = F.kl_div(
        (scores[chosen] / 2).log_softmax(-1), (target[chosen] / 2).softmax(-1), reduction="batchmean"
    )  # of rows, which are tokens
    words = F.cross_entropy(scores[PREDICTED], LABELS)
    states, goal = result.hidden_states[-1][KEEP], teacher_output.hidden_states[-1][KEEP].detach()
    cosine = F.cosine_embedding_loss(states, goal, torch.ones(len(states)))  # of all tokens in either case
    (5 * 4 * kl + 2 * words + cosine).backward()

    means, _ = mean_losses(objective, batch)
    for name, expected in (("kl", 4 * kl), ("mlm", words), ("cosine", cosine)):
        torch.testing.assert_close(means[name], expected, rtol=1e-5, atol=1e-5)
    names = objective.config.names
    ours = {names.to_hf_name(name, "BertForMaskedLM"): part for name, part in objective.model.named_parameters()}
    assert_gradients_close(ours, {name: parameter.grad for name, parameter in loaded[1].named_parameters()})
    assert all(parameter.grad is None for parameter in teacher.parameters())


def test_distillation_loss_other_temperature_and_wider_teacher_equals_torch():
    generator = torch.Generator().manual_seed(0)
    shapes = ((7, 4), (30, 4), (30,), (7, 6), (30, 6), (30,))
    parts = [torch.randn(*shape, generator=generator) for shape in shapes]
    student, teacher = LazyLogits(*(part.requires_grad_() for part in parts[:3])), LazyLogits(*parts[3:])
    logs, probs = ((F.linear(*of) / 3).log_softmax(1) for of in (student, teacher))
    expected = 9 * F.kl_div(logs, probs, reduction="sum", log_target=True)
    result = distillation_loss(student, teacher, 3.0)
    torch.testing.assert_close(result, expected, rtol=1e-5, atol=1e-5)
    for first, second in zip(*(torch.autograd.grad(loss, student) for loss in (result, expected)), strict=True):
        torch.testing.assert_close(first, second, rtol=1e-5, atol=1e-5)
