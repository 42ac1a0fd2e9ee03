"""A student's three losses and their gradients against transformers' models of teacher and student, and plain torch."""

from __future__ import annotations

import os

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

os.environ.setdefault("HF_HUB_OFFLINE", "1")
from pipeline_src.family.distilbert.objective import DistilBertObjective
from pipeline_src.model import losses as chunked
from pipeline_src.model.bert import BertConfig, BertForMaskedLM
from pipeline_src.model.hub import save_tensors
from pipeline_src.model.losses import LazyLogits, distillation_loss
from pipeline_src.pretrain.data import PretrainingBatch, TensorBatch
from pipeline_src.study.pretrain import DistilBertParams
from tests.parity.peers import randomize

ENTRIES, LENGTHS = 97, (20, 7, 13)
KEEP = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]
PREDICTED, LABELS = torch.tensor([3, 11, 22, 32]), torch.tensor([17, 42, 6, 90])  # places in the flat batch


def config(layers: int) -> BertConfig:
    return BertConfig(ENTRIES, 32, layers, 4, 64, 24, hidden_dropout_prob=0.0)


def flat_batch() -> tuple[Tensor, TensorBatch]:
    ids = torch.randint(5, ENTRIES, KEEP.shape, generator=torch.Generator().manual_seed(1)) * KEEP
    starts, numbers = np.array([0, *np.cumsum(LENGTHS)]), (PREDICTED.numpy(), LABELS.numpy())
    arrays = (ids[KEEP].numpy(), ids[KEEP].numpy() * 0, starts, *numbers, np.zeros(3, np.int64), np.arange(3))
    return ids, TensorBatch.of(PretrainingBatch(*arrays))


@pytest.mark.parametrize("tokens", ["all", "predicted"])
def test_distilbert_losses_and_gradients_equal_transformers(tmp_path, monkeypatch, tokens):
    transformers = pytest.importorskip("transformers")
    monkeypatch.setattr(chunked, "CHUNK_LOGITS", 9 * ENTRIES)  # several chunks
    teacher = randomize(BertForMaskedLM(config(4)), 1, std=0.1)
    objective = DistilBertObjective(config(2), "none", DistilBertParams(loss_on=tokens))
    objective.set_teacher(teacher.eval().requires_grad_(False))
    randomize(objective.model, 2, std=0.1)
    loaded = {}
    for name, model in (("teacher", teacher), ("student", objective.model)):
        (tmp_path / name).mkdir()
        save_tensors(tmp_path / name, model.state_dict(), model.bert.config, "BertForMaskedLM")
        loaded[name] = transformers.BertForMaskedLM.from_pretrained(tmp_path / name, attn_implementation="eager").eval()
    ids, batch = flat_batch()
    teacher_output, result = (
        loaded[name](ids, attention_mask=KEEP.long(), output_hidden_states=True) for name in ("teacher", "student")
    )
    chosen = PREDICTED if tokens == "predicted" else torch.arange(len(batch.ids))
    scores, target = result.logits[KEEP], teacher_output.logits[KEEP].detach()
    kl = F.kl_div(
        (scores[chosen] / 2).log_softmax(-1), (target[chosen] / 2).softmax(-1), reduction="batchmean"
    )  # of rows, which are tokens
    words = F.cross_entropy(scores[PREDICTED], LABELS)
    states, goal = result.hidden_states[-1][KEEP], teacher_output.hidden_states[-1][KEEP].detach()
    cosine = F.cosine_embedding_loss(states, goal, torch.ones(len(states)))  # of all tokens in either case
    (5 * 4 * kl + 2 * words + cosine).backward()

    terms, counts = objective(batch), objective.loss_counts(batch.workload)
    means = {name: term.loss / counts[name] for name, term in terms.items()}
    sum(objective.weights[name] * mean for name, mean in means.items()).backward()
    for name, expected in (("kl", 4 * kl), ("mlm", words), ("cosine", cosine)):
        torch.testing.assert_close(means[name], expected, rtol=1e-5, atol=1e-5)
    gradients = {name: parameter.grad for name, parameter in loaded["student"].named_parameters()}
    names = objective.config.names
    for name, parameter in objective.model.named_parameters():
        expected = gradients[names.to_hf_name(name, "BertForMaskedLM")]
        torch.testing.assert_close(parameter.grad, expected, rtol=1e-5, atol=1e-5 * max(1, expected.abs().max()))
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
