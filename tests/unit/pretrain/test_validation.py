"""Validation metrics of batches equal those of single examples."""

import json

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from pipeline_src.base.files import write_json
from pipeline_src.examples.masking import CLMCollator, MLMCollator
from pipeline_src.examples.pairs import PairRules, document_pairs
from pipeline_src.examples.token_store import TokenStore, TokenWriter
from pipeline_src.model.bert import BertConfig
from pipeline_src.pretrain.data import PretrainingExamples
from pipeline_src.pretrain.objective import load_objective
from pipeline_src.pretrain.validation import (
    measure_examples,
    position_ranges,
    shared_batches,
    source_documents,
    unigram_cross_entropy,
)
from pipeline_src.study.pretrain import Masking
from pipeline_src.training.distributed import Distributed, single_process
from tests.studies import bert_templates

CLS, SEP, MASK, ENTRIES = 2, 3, 4, 60
SPECIAL = np.isin(np.arange(ENTRIES), (0, CLS, SEP))
OBJECTIVES = {
    "mlm": MLMCollator(0.15, Masking(), MASK, SPECIAL, np.zeros(ENTRIES, bool), 1),
    "clm": CLMCollator(SEP),
}


@pytest.fixture
def store(tmp_path) -> TokenStore:
    rng = np.random.default_rng(0)
    writer = TokenWriter(tmp_path, "validation", ENTRIES)
    sentences = rng.integers(2, 9, 60)
    writer.add(rng.integers(5, ENTRIES, sentences.sum()), sentences, np.full(6, 10))
    write_json(tmp_path / "manifest.json", {"splits": {"validation": writer.close()}})
    return TokenStore(tmp_path, "validation")


@pytest.fixture
def open_examples(tmp_path, store):
    np.save(tmp_path / "index.npy", document_pairs(store, 0, 6, PairRules(32, 0.1, 0.5, "none", 2), [1]))
    return lambda collator: PretrainingExamples(
        tmp_path / "index.npy", store, collator, bert_templates(CLS, SEP), "none"
    )


@pytest.mark.parametrize(
    ("length", "ranges"),
    [
        (512, []),
        (513, [(0, 512), (512, 513)]),
        (2048, [(0, 512), (512, 1024), (1024, 2048)]),
        (3000, [(0, 512), (512, 1024), (1024, 2048), (2048, 3000)]),
    ],
)
def test_position_ranges_double_up_to_length(length, ranges):
    assert position_ranges(length) == ranges


def test_measure_examples_losses_by_position_average_to_mlm_loss(open_examples):
    examples = open_examples(OBJECTIVES["mlm"])
    trained = load_objective("mlm")(BertConfig(ENTRIES, 64, 1, 1, 128, 32), "none")
    trained.init_weights(torch.Generator().manual_seed(0))
    ranges = [(0, 3), (3, 32), (32, 64)]
    metrics = measure_examples(trained, examples, None, single_process(), 64, ranges)
    batch = examples.batch(np.arange(len(examples)))
    positions = np.concatenate([np.arange(length) for length in np.diff(batch.cu_seqlens)])[batch.predicted]
    early = (positions < 3).mean()
    assert 0 < early < 0.5 and "32-63" not in metrics and not {"gap", "unigram_loss"} & metrics.keys()
    expected = early * metrics["0-2"] + (1 - early) * metrics["3-31"]
    np.testing.assert_allclose(expected, metrics["mlm_loss"], rtol=1e-6)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_measure_examples_batched_metrics_equal_metrics_of_single_examples(open_examples, store, objective):
    examples = open_examples(OBJECTIVES[objective])
    causal = objective == "clm"
    trained = load_objective(objective)(BertConfig(ENTRIES, 64, 1, 1, 128, 32, is_decoder=causal), "none")
    trained.init_weights(torch.Generator().manual_seed(0))
    model, counts = trained.eval().model, store.counts(ENTRIES)
    unigram = unigram_cross_entropy(counts)
    figures = measure_examples(trained, examples, unigram, single_process(), max_predictions=64)  # several batches

    losses, unseen, correct = [], [], 0
    for number in range(len(examples)):
        batch = examples.batch(np.asarray([number]))
        ids = torch.from_numpy(batch.ids)
        with torch.no_grad():
            hidden, _ = model.bert(ids, torch.zeros_like(ids), torch.tensor([0, len(ids)]))
        for position, label in zip(batch.predicted, batch.labels, strict=True):
            logits = model.cls["predictions"](hidden[position]).detach()
            losses.append(F.cross_entropy(logits, torch.tensor(label)).item())
            correct += int(logits.argmax() == label)
            if label != SEP if causal else batch.ids[position] == MASK:
                unseen.append((losses[-1], -np.log((counts[label] + 1) / (counts.sum() + ENTRIES))))
        if causal:
            assert batch.labels.tolist() == batch.ids[1:].tolist()
    assert figures["predictions"] == len(losses) > len(unseen) > 0
    assert figures["mlm_loss"] == pytest.approx(np.mean(losses), rel=1e-5)
    assert figures["mlm_accuracy"] == pytest.approx(correct / len(losses))
    mask_loss, unigram_loss = np.mean(unseen, axis=0)
    assert figures["mask_loss"] == pytest.approx(mask_loss, rel=1e-5)
    assert figures["unigram_loss"] == pytest.approx(unigram_loss, rel=1e-5)
    assert figures["gap"] == pytest.approx(unigram_loss - mask_loss, abs=1e-5)
    assert "nsp_loss" not in figures


@pytest.mark.parametrize("processes", [2, 3, 40])
def test_shared_batches_give_processes_equal_numbers_and_cover_all_examples(open_examples, processes):
    examples = open_examples(OBJECTIVES["mlm"])
    world = [Distributed(rank, processes, torch.device("cpu")) for rank in range(processes)]
    shares = [list(shared_batches(examples, process, max_predictions=16)) for process in world]
    assert len({len(share) for share in shares}) == 1
    measured = np.concatenate([batch.examples for share in shares for batch, counts in share if counts])
    assert sorted(measured) == list(range(len(examples)))
    single = [batch.examples.tolist() for batch, _ in shared_batches(examples, single_process(), max_predictions=16)]
    assert sorted(batch.examples.tolist() for share in shares for batch, counts in share if counts) == sorted(single)


def test_measure_examples_of_diverged_model_are_valid_json(open_examples, store):
    masking = Masking(mask_ratio=0.0, random_ratio=0.0, keep_ratio=1.0)
    examples = open_examples(MLMCollator(0.15, masking, MASK, SPECIAL, np.zeros(ENTRIES, bool), 1))
    objective = load_objective("mlm")(BertConfig(ENTRIES, 64, 1, 1, 128, 32), "none")
    objective.init_weights(torch.Generator().manual_seed(0))
    with torch.no_grad():
        objective.model.cls["predictions"].decoder.bias.copy_(1000.0 * torch.arange(ENTRIES))
    figures = measure_examples(objective, examples, unigram_cross_entropy(store.counts(ENTRIES)), single_process())
    assert figures["mlm_loss"] > 1000 and "gap" not in figures and json.dumps(figures, allow_nan=False)


def test_source_documents_source_name_with_hyphen_is_kept(tmp_path, monkeypatch):
    parts = {name: {"documents": number} for number, name in enumerate(("news-de", "news-fr"), start=1)}
    (tmp_path / "data/tokens").mkdir(parents=True)
    write_json(tmp_path / "data/tokens/manifest.json", {"parts": {"validation": parts}})
    monkeypatch.chdir(tmp_path)
    assert source_documents("validation") == {"news-de": 1, "news-fr": 2}
