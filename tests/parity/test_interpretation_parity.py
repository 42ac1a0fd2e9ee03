"""Scores of sentences equal those of a loop over transformers."""

from pathlib import Path

import numpy as np
import torch
from transformers import BertForMaskedLM

from pipeline_src.interpret.minimal_pairs import SentencePair, judge_sentence_pairs
from pipeline_src.interpret.model import ProbedModel, pseudo_log_likelihoods
from pipeline_src.model.hub import save_tensors
from tests.unit.interpret.conftest import make_model


def masked_lms(folder: Path) -> tuple[ProbedModel, BertForMaskedLM]:
    """Return a small model, and the same model loaded in transformers."""
    model = make_model()
    assert model.head is not None
    tensors = {f"bert.{name}": value for name, value in model.encoder.state_dict().items()}
    tensors |= {f"cls.predictions.{name}": value for name, value in model.head.state_dict().items()}
    save_tensors(folder, tensors, model.config, "BertForMaskedLM")
    return model, BertForMaskedLM.from_pretrained(folder).eval()


def test_pseudo_log_likelihoods_equal_loop_over_transformers(tmp_path):
    model, peer = masked_lms(tmp_path)
    text = model.ids("c d e .")
    (result,) = pseudo_log_likelihoods(model, [text])
    ids = model.pack([text])[0]
    reference = []
    for position in range(1, len(ids) - 1):
        hidden = ids.clone()
        hidden[position] = model.mask
        with torch.no_grad():
            reference.append(float(peer(hidden[None]).logits[0, position].log_softmax(-1)[ids[position]]))
    np.testing.assert_allclose(result, reference, atol=1e-4)


def test_judge_sentence_pairs_equals_loop_over_transformers(tmp_path):
    model, peer = masked_lms(tmp_path)
    random = np.random.default_rng(1)
    sides = [[" ".join(random.choice([*"abcdefghij"], random.integers(1, 9))) for _ in range(500)] for _ in "ab"]
    pairs = [
        SentencePair(good, bad, "drawn", str(number)) for number, (good, bad) in enumerate(zip(*sides, strict=True))
    ]

    @torch.no_grad()
    def likelihood(text: str) -> float:
        ids = model.pack([model.ids(text)])[0]
        positions = range(1, len(ids) - 1)
        masked = torch.stack([ids.index_fill(0, torch.tensor(position), model.mask) for position in positions])
        log_probs = peer(masked).logits.log_softmax(-1)
        return sum(float(log_probs[row, position, ids[position]]) for row, position in enumerate(positions))

    reference = np.mean([likelihood(pair.good) > likelihood(pair.bad) for pair in pairs if pair.good != pair.bad])
    assert judge_sentence_pairs(model, None, pairs, "pairs")["pairs all"]["accuracy"] == round(reference, 4)
