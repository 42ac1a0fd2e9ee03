"""A task's data and batches: every item once, similar lengths together, microbatches within the token limit."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from pipeline_src.finetune.heads import sequence_loss, token_loss
from pipeline_src.finetune.task_data import (
    TaskData,
    balanced_class_weights,
    epoch_order,
    evaluation_batches,
    make_batch,
    training_batches,
)
from pipeline_src.study.task_spec import load_spec
from pipeline_src.tasks.features import NO_TAG, Features, TokenFeatures
from pipeline_src.tasks.questions import LEFT_OUT, MOVED
from pipeline_src.tokenizer.wordpiece import SPECIAL_TOKENS, save_tokenizer


def features(per_item: int = 1, sequences: int = 12, seed: int | None = None) -> Features:
    lengths = np.arange(1, sequences + 1) if seed is None else np.random.default_rng(seed).integers(3, 60, sequences)
    cu_seqlens = np.concatenate([[0], np.cumsum(lengths)])
    ids = np.repeat(np.arange(sequences), lengths)
    items = sequences // per_item
    return Features(
        ids.astype(np.int32), (ids % 2).astype(np.int8), cu_seqlens, np.arange(items), np.arange(items), per_item
    )


def test_make_batch_holds_sequences_of_its_items():
    batch = make_batch(features(per_item=3), np.asarray([2, 0]))
    assert batch.ids.tolist() == [n for n in (6, 7, 8, 0, 1, 2) for _ in range(n + 1)]
    assert batch.cu_seqlens.tolist() == [0, 7, 15, 24, 25, 27, 30] and batch.labels.tolist() == [2, 0]
    assert batch.lengths.tolist() == [7, 8, 9, 1, 2, 3] and batch.workload == (6, 30, 208, 2, 0, 0)


def test_training_batches_cover_every_item_once_an_epoch():
    batches = list(training_batches(features(), 5, 2, seed=3, microbatch_tokens=1000))
    assert sorted(len(piece.labels) for (piece,) in batches[:3]) == [2, 5, 5]
    seen = [label for (piece,) in batches for label in piece.labels.tolist()]
    assert sorted(seen[:12]) == sorted(seen[12:]) == list(range(12)) and seen[:12] != seen[12:]


def test_epoch_order_batches_similar_lengths_in_random_order():
    many = features(sequences=4000, seed=1)
    batches = epoch_order(many, 16, seed=1, epoch=0)
    means = [many.lengths[batch].mean() for batch in batches]
    assert np.mean([many.lengths[batch].std() for batch in batches]) < 0.15 * many.lengths.std()
    assert abs(np.corrcoef(np.arange(len(means)), means)[0, 1]) < 0.2
    assert sorted(np.concatenate(batches).tolist()) == list(range(4000))


@pytest.mark.parametrize("done", [2, 5])
def test_training_batches_resume_after_done_steps(done):
    options = {"batch": 5, "epochs": 2, "seed": 3, "microbatch_tokens": 20}
    every, resumed = (list(training_batches(features(), **options, done=number)) for number in (0, done))
    expected = [piece.examples.tolist() for batch in every[done:] for piece in batch]
    assert [piece.examples.tolist() for batch in resumed for piece in batch] == expected


def test_training_batches_microbatches_are_balanced():
    """Microbatches have the items of the batch in the same order, and similar sizes."""
    many = features(sequences=64, seed=2)
    whole, cut = (list(training_batches(many, 32, 1, seed=3, microbatch_tokens=tokens)) for tokens in (10_000, 600))
    for (piece,), pieces in zip(whole, cut, strict=True):
        assert np.concatenate([part.examples for part in pieces]).tolist() == piece.examples.tolist()
        tokens = [len(part.ids) for part in pieces]
        assert max(tokens) <= 600 and min(tokens) > 0.8 * max(tokens), tokens


def test_balanced_class_weights_equal_sklearn():
    class_weight = pytest.importorskip("sklearn.utils.class_weight")
    labels = np.random.default_rng(1).choice(4, 500, p=(0.8, 0.12, 0.06, 0.02))
    expected = class_weight.compute_class_weight("balanced", classes=np.arange(4), y=labels)
    assert balanced_class_weights(labels, 4) == pytest.approx(expected)
    assert balanced_class_weights(np.append(labels, NO_TAG), 5).tolist() == pytest.approx([*expected, 0.0])


@pytest.mark.parametrize("tokens", [10_000, 100])
@pytest.mark.parametrize("loss", [sequence_loss, token_loss])
def test_class_weights_loss_equals_torch_for_any_microbatches(loss, tokens):
    rng, many = np.random.default_rng(1), features(sequences=64, seed=2)
    if loss is token_loss:
        labels = np.where(rng.random(len(many.ids)) < 0.5, NO_TAG, rng.choice(3, len(many.ids), p=(0.8, 0.15, 0.05)))
        values = {**vars(many), "labels": labels, "word": labels}
        many = TokenFeatures(**values)
    else:
        many = replace(many, labels=rng.choice(3, 64, p=(0.8, 0.15, 0.05)))
    weights = balanced_class_weights(many.labels, 3)
    torch_loss = torch.nn.CrossEntropyLoss(torch.tensor(weights, dtype=torch.float32))
    for pieces in training_batches(many, 32, 1, seed=3, microbatch_tokens=tokens, class_weights=weights):
        outputs = [torch.randn(len(piece.labels), 3, generator=torch.Generator().manual_seed(1)) for piece in pieces]
        total = sum(loss(*pair) * pair[1].losses for pair in zip(outputs, pieces, strict=True))
        expected = torch_loss(torch.cat(outputs), torch.cat([piece.labels for piece in pieces]))
        torch.testing.assert_close(total / sum(piece.losses for piece in pieces), expected)
        assert len(pieces) > 1 or tokens == 10_000


@pytest.mark.parametrize("tokens", [1, 20, 1000])
@pytest.mark.parametrize("per_item", [1, 4])
def test_evaluation_batches_cover_every_item_longest_first(tokens, per_item):
    batches = list(evaluation_batches(features(per_item), tokens))
    seen = [item for batch in batches for item in batch.examples.tolist()]
    assert seen == list(range(12 // per_item))[::-1]
    assert all(len(batch.ids) <= tokens or len(batch.labels) == 1 for batch in batches)


def test_task_data_squad1_question_with_missing_answer_is_dropped(tmp_path, monkeypatch):
    """Its windows would be labelled as unanswerable, but SQuAD 1.1 has no unanswerable questions."""
    monkeypatch.chdir(tmp_path)
    Path("data/tasks/squad1").mkdir(parents=True)
    Path("vocabulary").mkdir()
    save_tokenizer(Path("vocabulary"), [*SPECIAL_TOKENS, *"abcde"], lowercase=True)
    answers = {"right": ("c", 4), "off by one": ("c", 5), "nowhere": ("d", 0), "in no text": ("e", 4)}
    questions = [
        {"id": name, "question": "a", "answers": [{"text": text, "answer_start": start}]}
        for name, (text, start) in answers.items()
    ]
    content = {"data": [{"paragraphs": [{"context": "a b c a b d", "qas": questions}]}]}
    for name in ("train", "dev"):
        Path(f"data/tasks/squad1/{name}-v1.1.json").write_text(json.dumps(content), encoding="utf-8")
    data = TaskData(load_spec("squad1"), Path("vocabulary"), 64)
    features = data.training()
    assert features.items == 2 and (features.labels[:, 0] > 0).all()
    train = load_spec("squad1").train
    assert data.counts[train][LEFT_OUT] == 2 and data.counts[train][MOVED] == 1
    assert data.eval_set("squad1").features.items == 4 and data.num_training_examples == 2
