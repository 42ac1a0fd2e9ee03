"""Exported folders give the same sentence vectors in sentence-transformers."""

import argparse
import random

import numpy as np
import pytest
import torch

from pipeline_src.finetune.heads import BertForTask
from pipeline_src.interpret.model import ProbedModel
from pipeline_src.model.bert import BertConfig
from pipeline_src.tokenizer.wordpiece import SPECIAL_TOKENS
from pipeline_src.tools import export
from tests.parity.peers import randomize, save

LETTERS = "abcdefgh éÉß.,!?'-\t\u00a0\u200b\u0301中日ぁ한अ🙂0123"
ENTRIES = [*"abcdefgh.,!?", *(f"##{a}" for a in "abcdefgh"), "ab", "##cd", "é", "中", "0", "##1", "🙂"]


POOLED = {
    "mean": lambda hidden: hidden.mean(0),
    "max": lambda hidden: hidden.max(0).values,
    "cls": lambda hidden: hidden[0],
}


@pytest.fixture
def folder(tmp_path):
    """Save a BERT whose weights are large enough that different texts get different vectors."""
    config = BertConfig(len(SPECIAL_TOKENS) + len(ENTRIES), 32, 2, 2, 64, 40)
    model = randomize(BertForTask(config, "embedding", 0), std=0.1)
    return save(tmp_path / "model", model, config, config.names.classes["encoder"], ENTRIES)


def write(folder, *given):
    parser = argparse.ArgumentParser()
    export.add_arguments(parser)
    made = folder.parent / "made"
    export.main(parser.parse_args([str(made), "--format", "sentence-transformers", "--model", str(folder), *given]))
    return made


def odd_texts(count):
    """Return texts of many scripts, of many lengths, with blanks, and an empty one."""
    chance = random.Random(3)
    return ["", *("".join(chance.choices(LETTERS, k=int(chance.paretovariate(0.7)) % 300)) for _ in range(count - 1))]


@pytest.mark.parametrize("given", [(), ("--pooling", "cls", "--normalise"), ("--pooling", "max")])
def test_export_vectors_in_sentence_transformers_equal_pooled_hidden_states(folder, given):
    peer = pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    made, texts = write(folder, *given), odd_texts(1000)
    expected = peer.SentenceTransformer(str(made), device="cpu").encode(texts)
    model = ProbedModel.open(made)
    pool = POOLED[given[1] if given else "mean"]
    vectors = torch.stack([pool(model.hidden_states([model.ids(text)])[0][-1]) for text in texts])
    vectors = torch.nn.functional.normalize(vectors) if "--normalise" in given else vectors
    assert vectors.shape == (1000, 32) and np.abs(vectors.numpy() - expected).max() < 1e-5
