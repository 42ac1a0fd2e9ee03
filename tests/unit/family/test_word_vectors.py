"""Word2Vec vectors, trained on a token store and saved as a model folder."""

import importlib
import os
import subprocess
import sys

import numpy as np
import pytest
import torch

from pipeline_src.base.files import read_json, write_json
from pipeline_src.examples.token_store import TokenStore, TokenWriter
from pipeline_src.finetune.heads import BertForTask, BiEncoder, choose_bi_encoder
from pipeline_src.model.attention import PackedBatch, QueryRows
from pipeline_src.model.hub import load_config, load_weights
from pipeline_src.study.data import WordVectorsParams
from pipeline_src.study.finetune import FinetuneParams
from pipeline_src.study.task_spec import load_spec
from pipeline_src.tokenizer.wordpiece import SPECIAL_TOKENS, save_tokenizer

Word2Vec = pytest.importorskip("gensim.models", reason="gensim has no wheel for this Python").Word2Vec
stage = importlib.import_module("pipeline_src.family.word_vectors.train_word_vectors")
ENTRIES, SMALL = 60, WordVectorsParams(width=8, epochs=2, window=2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Make tokens and a vocabulary, as earlier stages write them."""
    folder = tmp_path_factory.mktemp("vectors")
    for name in ("tokens", "vocabulary"):
        (folder / "data" / name).mkdir(parents=True)
    pieces = [*SPECIAL_TOKENS, *(f"w{n}" for n in range(ENTRIES - 5))]
    save_tokenizer(folder / "data/vocabulary", pieces, lowercase=True)
    draw = np.random.default_rng(0)
    lengths = draw.integers(3, 12, 400)
    ids = draw.zipf(1.5, int(lengths.sum())).clip(max=ENTRIES - 10) + 5
    writer = TokenWriter(folder / "data/tokens", "train", ENTRIES)
    writer.add(ids.astype(np.uint16), lengths, np.full(40, 10))
    write_json(folder / "data/tokens/manifest.json", {"splits": {"train": writer.close()}})
    return folder


@pytest.fixture
def run_in(folder, monkeypatch):
    monkeypatch.chdir(folder)
    stage.run(seed=3, word_vectors=SMALL)
    return folder / "models/word_vectors"


@pytest.mark.parametrize(("method", "sg"), [("cbow", 0), ("skip_gram", 1)])
def test_learn_vectors_equal_gensim(folder, method, sg):
    store = TokenStore(folder / "data/tokens", "train")
    ours = stage.learn_vectors(store, ENTRIES, SMALL.model_copy(update={"method": method}), seed=3)
    sentences = [list(map(str, ids)) for ids in np.split(store.ids, store.sentences[1:-1])]
    seed = stage.derive_seed(3, "word_vectors") >> 33
    peer = Word2Vec(sentences, vector_size=8, sg=sg, epochs=2, window=2, min_count=1, workers=1, negative=5, seed=seed)
    expected = np.zeros((ENTRIES, 8), np.float32)
    expected[[int(word) for word in peer.wv.index_to_key]] = peer.wv.vectors
    assert np.array_equal(ours, expected)
    assert not ours[:5].any()
    assert np.abs(ours).max() > 0.01


def test_train_word_vectors_in_other_process_has_identical_output(run_in, folder, root):
    before = {path.name: path.read_bytes() for path in run_in.iterdir()}
    code = (
        "from pipeline_src.study.data import WordVectorsParams as P\n"
        "from pipeline_src.family.word_vectors import train_word_vectors as s\n"
        "s.run(seed=3, word_vectors=P(width=8, epochs=2, window=2))"
    )
    environment = os.environ | {"PYTHONHASHSEED": "5", "PYTHONPATH": str(root)}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, cwd=folder)
    assert {path.name: path.read_bytes() for path in run_in.iterdir()} == before
    assert set(before) == {"config.json", "model.safetensors", "vocab.txt", "tokenizer.json", "tokenizer_config.json"}


def test_train_word_vectors_writes_maximum_length(run_in):
    assert read_json(run_in / "tokenizer_config.json")["model_max_length"] == load_config(run_in).longest_input == 8192


@pytest.mark.parametrize("bilstm", [False, True])
def test_word_vectors_first_token_becomes_mean_of_sequence(run_in, bilstm):
    task = BertForTask(load_config(run_in), "sequence", 3, bilstm=bilstm)
    load_weights(task, run_in, ("bert.embeddings.", "bert.encoder."))
    task.eval()
    ids, starts = torch.tensor([2, 9, 8, 3, 2, 7, 3]), torch.tensor([0, 4, 7])
    segments = torch.zeros_like(ids)
    table = task.bert.embeddings.word_embeddings.weight
    # The first token of each sequence gets the mean; the others keep their vectors.
    expected = table[ids].detach().clone()
    expected[0] = table[ids[:4]].mean(0)
    expected[4] = table[ids[4:]].mean(0)
    layout = PackedBatch.of(starts, len(ids), 4)
    torch.testing.assert_close(task.bert.encode(ids, segments, layout), expected)
    torch.testing.assert_close(task.bert.encode(ids, segments, layout, QueryRows.first(layout)), expected[[0, 4]])
    outputs = task(ids, segments, starts)
    outputs.square().sum().backward()
    assert outputs.shape == (2, 3)
    assert table.grad[ids].any(1).all()
    reordered = task(ids[[0, 2, 1, 3, 4, 5, 6]], segments, starts)
    # A mean loses the order of the words.
    assert torch.allclose(reordered, outputs, atol=1e-6) == (not bilstm)


@pytest.mark.parametrize(
    ("task", "changes", "expected"),
    [
        ("rte", {}, BiEncoder(product=True)),
        ("stsb", {}, BiEncoder(product=True)),
        ("stsb", {"pair_head": "bi_encoder"}, BiEncoder(range=(0.0, 5.0))),
        ("rte", {"bilstm": True}, None),
        ("sst2", {}, None),
    ],
)
def test_choose_bi_encoder_word_vectors_encode_texts_separately(run_in, task, changes, expected):
    """In GLUE's baseline, the classifier reads u, v, |u - v| and u * v."""
    assert choose_bi_encoder(load_spec(task), FinetuneParams(**changes), load_config(run_in), None) == expected
