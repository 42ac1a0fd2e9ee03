"""Predictions for masked words during training."""

from collections import Counter

import numpy as np
import pytest
import torch

from pipeline_src.base.files import read_json, write_json
from pipeline_src.examples.masking import CLMCollator, MLMCollator
from pipeline_src.examples.pairs import PairRules, document_pairs
from pipeline_src.examples.token_store import TokenStore, TokenWriter
from pipeline_src.model.bert import BertConfig
from pipeline_src.pretrain.data import PretrainingExamples
from pipeline_src.pretrain.fill_mask_samples import NUM_SAMPLES, TOP_K, FillMaskSamples
from pipeline_src.pretrain.mlm import BertObjective
from pipeline_src.study.pretrain import Masking
from pipeline_src.tokenizer.load import load_tokenizer
from pipeline_src.tokenizer.wordpiece import MASK, SPECIAL_TOKENS, save_tokenizer
from pipeline_src.training.distributed import single_process
from tests.studies import bert_templates
from tests.unit.pretrain.small import train_phase

WORDS = [f"{a}{b}{c}o" for a in "bcdfg" for b in "aeiou" for c in "lr"]
SHORT = ["ve", "ago"]
PIECES = [*SPECIAL_TOKENS, *WORDS, *SHORT, *(f"##{word}" for word in WORDS), *"12345'-"]
CLS, SEP, MASK_ID = (SPECIAL_TOKENS.index(name) for name in ("[CLS]", "[SEP]", MASK))
NO_NUMBERS = np.isin(np.arange(len(PIECES)), range(len(SPECIAL_TOKENS)))


@pytest.fixture(scope="module")
def validation(tmp_path_factory) -> tuple[PretrainingExamples, PretrainingExamples, object]:
    """Return masked and causal examples of random subwords, and their tokenizer."""
    folder, rng = tmp_path_factory.mktemp("validation"), np.random.default_rng(0)
    save_tokenizer(folder, PIECES, lowercase=True)
    writer = TokenWriter(folder, "validation", len(PIECES))
    sentences = rng.integers(5, 20, 400)
    writer.add(rng.integers(len(SPECIAL_TOKENS), len(PIECES), sentences.sum()), sentences, np.full(20, 20))
    write_json(folder / "manifest.json", {"splits": {"validation": writer.close()}})
    store = TokenStore(folder, "validation")
    np.save(folder / "index.npy", document_pairs(store, 0, 20, PairRules(64, 0.1, 0.5, "nsp", 3), [1]))
    masked = MLMCollator(0.15, Masking(), MASK_ID, NO_NUMBERS, np.zeros(len(PIECES), bool), 1)
    examples = [
        PretrainingExamples(folder / "index.npy", store, collator, bert_templates(CLS, SEP), "nsp")
        for collator in (masked, CLMCollator(SEP))
    ]
    return *examples, load_tokenizer(folder)


@pytest.fixture(scope="module")
def objective() -> BertObjective:
    objective = BertObjective(BertConfig(len(PIECES), 64, 1, 1, 128, 64), pairs="nsp")
    objective.init_weights(torch.Generator().manual_seed(0))
    return objective


def test_fill_samples_have_readable_text_and_candidates(validation, objective):
    examples, _, tokenizer = validation
    samples = FillMaskSamples(examples, tokenizer).fill(objective, 7, single_process())
    assert len(samples) == NUM_SAMPLES and len({block["text"] for block in samples}) == NUM_SAMPLES
    for block in samples:
        words = block["text"].split()
        assert words.count(MASK) == 1 and block["answer"] in WORDS and block["step"] == 7
        assert not words[0].startswith("##") and "[SEP]" not in words and "[CLS]" not in words
        (candidates,) = block["candidates"]
        probabilities = [probability for _, probability in candidates]
        assert len(candidates) == TOP_K and probabilities == sorted(probabilities, reverse=True)


def test_is_word_part_of_a_word_is_rejected(validation):
    examples, _, tokenizer = validation
    masks = FillMaskSamples(examples, tokenizer)
    word, piece = (PIECES.index(token) for token in (WORDS[0], f"##{WORDS[0]}"))
    for tokens, label, expected in (
        ([WORDS[1], MASK, WORDS[2]], word, True),
        ([WORDS[1], MASK], word, True),
        ([WORDS[1], MASK, WORDS[2]], piece, False),
        ([WORDS[1], MASK, f"##{WORDS[2]}"], word, False),
        (["'", MASK, WORDS[2]], word, False),
        ([WORDS[1], MASK, "-"], word, False),
    ):
        assert masks._is_word(tokens, 1, label) == expected, (tokens, PIECES[label])


def test_fill_candidates_equal_model_probabilities(validation, objective):
    examples, _, tokenizer = validation
    masks = FillMaskSamples(examples, tokenizer)
    objective.train()
    (block, *_), (batch, position, label, *_) = masks.fill(objective, 1, single_process()), masks._samples[0]
    assert objective.training
    objective.eval()
    ids = torch.from_numpy(batch.ids)
    with torch.no_grad():
        hidden, _ = objective.model.bert(ids, torch.from_numpy(batch.segments), torch.from_numpy(batch.cu_seqlens))
        probabilities = objective.model.cls["predictions"](hidden[position]).softmax(-1)
    token, probability = block["candidates"][0][0]
    assert token == PIECES[int(probabilities.argmax())] and probability == pytest.approx(
        float(probabilities.max()), abs=1e-4
    )
    assert label == batch.labels[batch.predicted.tolist().index(position)] and PIECES[label] == block["answer"]


def test_fill_causal_objective_has_no_samples(validation, objective):
    _, examples, tokenizer = validation
    assert FillMaskSamples(examples, tokenizer).fill(objective, 1, single_process()) == []


def test_phase_fills_masks_at_each_validation_and_its_end(study):
    train_phase("phase1", phase1=20, eval_steps=10)
    train_phase("phase2", phase1=20, eval_steps=8)
    samples = read_json("results/pretrain/phase2.json")["fill_mask"]
    steps = [block["step"] for block in samples]
    assert sorted(set(steps)) == [24, 30] and len(set(map(steps.count, steps))) == 1
    assert samples[0]["text"] == samples[len(samples) // 2]["text"]


def test_samples_are_content_words_by_descending_frequency(validation):
    examples, _, tokenizer = validation
    frequency = Counter()
    for number in range(len(examples)):
        batch = examples.batch(np.array([number]))
        frequency.update([*batch.ids.tolist(), *batch.labels.tolist()])
    words = [PIECES.index(word.answer) for word in FillMaskSamples(examples, tokenizer, num_common=5)._samples]
    assert not {PIECES[token] for token in words} & set(SHORT)  # too short to carry content
    common = {token for token, _ in frequency.most_common(5)}
    assert len(words) == NUM_SAMPLES and not common & set(words)
    counts = [frequency[token] for token in words]
    assert counts == sorted(counts, reverse=True) and counts[0] > counts[-1]
