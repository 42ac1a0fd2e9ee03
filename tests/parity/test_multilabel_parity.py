"""Texts with any number of labels: logits, loss and gradients equal transformers' to 1e-6."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from pipeline_src.base.files import read_json, write_json
from pipeline_src.finetune.heads import BertForTask, sequence_loss
from pipeline_src.finetune.task_data import TaskBatch
from pipeline_src.finetune.task_model import label_names
from pipeline_src.model.bert import BertConfig
from pipeline_src.study.task_spec import TaskSpec
from tests.parity.peers import KEEP, LENGTHS, STARTS, load_in_transformers, random_ids, randomize, save

LABELS = ["sport", "money", "music", "art"]
SCORES = {"topics": {"title": "Topics", "file": "dev.jsonl", "metrics": ["micro_f1"]}}
SPEC = TaskSpec.model_validate(
    {
        "name": "topics",
        "kind": "multilabel",
        "labels": LABELS,
        "columns": {"texts": ["text"], "labels": ["topics"]},
        "scores": SCORES,
    }
)
CONFIG = BertConfig(15, 64, 2, 2, 128, 40, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)


@pytest.mark.parametrize("labels", ["some", "none", "all"])
def test_multilabel_loss_and_gradients_equal_transformers(tmp_path: Path, labels: str) -> None:
    ours = randomize(BertForTask(CONFIG, "sequence", len(LABELS)))
    folder = save(tmp_path / "model", ours, CONFIG, CONFIG.names.classes["sequence"])
    write_json(folder / "config.json", read_json(folder / "config.json", dict) | label_names(SPEC))
    peer = load_in_transformers(folder, "AutoModelForSequenceClassification", attn_implementation="eager")
    assert type(peer).__name__ == "BertForSequenceClassification"
    assert [peer.config.id2label[index] for index in range(4)] == LABELS

    ids = random_ids(CONFIG.vocab_size)
    has_label = torch.rand(len(LENGTHS), len(LABELS), generator=torch.Generator().manual_seed(2)) < 0.4
    if labels != "some":
        has_label = torch.full_like(has_label, labels == "all")
    expected = peer(ids, attention_mask=KEEP.long(), labels=has_label.float())
    expected.loss.backward()

    flat = ids[KEEP]
    batch = TaskBatch(
        ids=flat,
        segments=torch.zeros_like(flat),
        cu_seqlens=torch.from_numpy(STARTS),
        labels=has_label.float(),
        losses=len(LENGTHS),
        lengths=np.array(LENGTHS),
        examples=np.arange(len(LENGTHS)),
    )
    outputs = ours(batch.ids, batch.segments, batch.cu_seqlens, batch.lengths)
    loss = sequence_loss(outputs, batch)
    loss.backward()
    torch.testing.assert_close(outputs, expected.logits, rtol=0, atol=1e-6)
    torch.testing.assert_close(loss, expected.loss, rtol=0, atol=1e-6)
    gradients = {name: parameter.grad for name, parameter in peer.named_parameters()}
    for name, parameter in ours.named_parameters():
        torch.testing.assert_close(parameter.grad, gradients.pop(name), rtol=0, atol=1e-6, msg=name)
    assert not gradients
