"""Exported folders in the libraries that they are for: the same vectors, whatever the text."""

import argparse
import random

import numpy as np
import pytest
import torch

from pipeline_src.interpret.model import ProbedModel
from pipeline_src.model.bert import BertConfig, initialise, make_encoder
from pipeline_src.model.hub import save_model
from pipeline_src.tokenizer.wordpiece import SPECIAL_TOKENS, save_tokenizer
from pipeline_src.tools import export

LETTERS = "abcdefgh éÉß.,!?'-\t\u00a0\u200b\u0301中日ぁ한अ🙂0123"
ENTRIES = [*SPECIAL_TOKENS, *"abcdefgh.,!?", *(f"##{a}" for a in "abcdefgh"), "ab", "##cd", "é", "中", "0", "##1", "🙂"]


POOLED = {
    "mean": lambda hidden: hidden.mean(0),
    "max": lambda hidden: hidden.max(0).values,
    "cls": lambda hidden: hidden[0],
}


@pytest.fixture
def folder(tmp_path):
    """A BERT with weights large enough to differ."""
    config = BertConfig(len(ENTRIES), 32, 2, 2, 64, 40)
    encoder = make_encoder(config).eval()
    initialise(encoder, torch.Generator().manual_seed(1))
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(2))
    for name in ("v", "model"):
        (tmp_path / name).mkdir()
    save_tokenizer(tmp_path / "v", ENTRIES, lowercase=True)
    weights = {f"bert.{name}": tensor for name, tensor in encoder.state_dict().items()}
    save_model(tmp_path / "model", weights, config, config.names.classes["encoder"], tmp_path / "v")
    return tmp_path / "model"


def write(folder, *given):
    parser = argparse.ArgumentParser()
    export.add_arguments(parser)
    made = folder.parent / "made"
    export.main(parser.parse_args([str(made), "--format", "sentence-transformers", "--model", str(folder), *given]))
    return made


def odd_texts(count):
    """Texts of many scripts, blanks and lengths up to many times what the model takes; the empty one first."""
    chance = random.Random(3)
    return ["", *("".join(chance.choices(LETTERS, k=int(chance.paretovariate(0.7)) % 300)) for _ in range(count - 1))]


@pytest.mark.parametrize("given", [(), ("--pooling", "cls", "--normalise"), ("--pooling", "max")])
def test_export_vectors_of_sentence_transformers_are_pooled_hidden_states(folder, given):
    peer = pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    made, texts = write(folder, *given), odd_texts(1000)
    expected = peer.SentenceTransformer(str(made), device="cpu").encode(texts)
    model = ProbedModel.open(made)
    pool = POOLED[given[1] if given else "mean"]
    vectors = torch.stack([pool(model.hidden_states([model.ids(text)])[0][-1]) for text in texts])
    vectors = torch.nn.functional.normalize(vectors) if "--normalise" in given else vectors
    assert vectors.shape == (1000, 32) and np.abs(vectors.numpy() - expected).max() < 1e-5
