"""Exported folders in the libraries that they are for: the same vectors, whatever the text."""

import argparse
import random

import numpy as np
import pytest
import torch

from pipeline_src.models.bert import initialise, load_architecture, make_encoder
from pipeline_src.models.hub import save_model
from pipeline_src.tokenizer.wordpiece import SPECIAL_TOKENS, save_tokenizer
from pipeline_src.tools import embed, export
from pipeline_src.tools.onnx_export import PACKAGES, own_hidden
from pipeline_src.tools.open_model import open_model

LETTERS = "abcdefgh éÉß.,!?'-\t\u00a0\u200b\u0301中日ぁ한अ🙂0123"
ENTRIES = [*SPECIAL_TOKENS, *"abcdefgh.,!?", *(f"##{a}" for a in "abcdefgh"), "ab", "##cd", "é", "中", "0", "##1", "🙂"]


@pytest.fixture
def folder(tmp_path, request):
    """A model of the architecture that the test asks for, BERT by default, with weights large enough to differ."""
    made = load_architecture(getattr(request, "param", "bert"))
    config = made.config(len(ENTRIES), 32, 2, 2, 64, 40)
    encoder = make_encoder(config).eval()
    initialise(encoder, torch.Generator().manual_seed(1))
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(2))
    for place in ("v", "model"):
        (tmp_path / place).mkdir()
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
def test_vectors_are_those_of_sentence_transformers(folder, given):
    peer = pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    made, texts = write(folder, *given), odd_texts(1000)
    expected = peer.SentenceTransformer(str(made), device="cpu").encode(texts)
    opened = open_model(made, make_encoder, embed.ENCODER, "")
    pooling = given[1] if given else "mean"
    found = np.stack([vector for _, vector in embed.embed(opened, texts, pooling, "--normalise" in given)])
    assert found.shape == (1000, 32) and np.abs(found - expected).max() < 1e-5


@pytest.mark.parametrize("folder", ["bert", "modernbert"], indirect=True)
def test_hidden_states_of_onnx_are_the_models(folder, capsys):
    for package in PACKAGES:
        pytest.importorskip(package, reason=f"{package} is not installed")
    import onnxruntime

    made = write(folder, "--onnx", "int8")
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("model.onnx: hidden states as the model's to ")
    assert said[1].startswith("model_int8.onnx: ") and "of random tokens: mean " in said[1]
    opened = open_model(made, make_encoder, embed.ENCODER, "")
    session = onnxruntime.InferenceSession(made / "onnx/model.onnx")
    for sequences, length in ((1, 2), (3, 11), (7, 39), (13, 5)):
        ids = np.random.default_rng(length).integers(len(ENTRIES), size=(sequences, length))
        inputs = {one.name: np.ones_like(ids) if one.name == "attention_mask" else ids for one in session.get_inputs()}
        if "token_type_ids" in inputs:
            inputs["token_type_ids"] = np.zeros_like(ids)
        found = session.run(None, inputs)[0].reshape(sequences * length, -1)
        assert np.abs(found - own_hidden(opened, ids.tolist())).max() < 1e-4
