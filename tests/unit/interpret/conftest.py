"""A tiny encoder with random weights, and sentences."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from pipeline_src.interpret.heads import Tree
from pipeline_src.interpret.model import ProbedModel, Sentence
from pipeline_src.interpret.probes import LabelledWords
from pipeline_src.model.bert import BertForPretraining, load_architecture
from pipeline_src.model.hub import save_model
from pipeline_src.study.data import VocabularyParams
from pipeline_src.text.documents import Document
from pipeline_src.tokenizer import byte_bpe, unigram
from pipeline_src.tokenizer.load import load_tokenizer
from pipeline_src.tokenizer.wordpiece import SPECIAL_TOKENS, build_tokenizer, save_tokenizer
from tests.studies import write_clean_text

ENTRIES = [*SPECIAL_TOKENS, *"abcdefghij", "##a", "##b", "is", "are", "."]
SENTENCES = [Sentence(("a", "bab", "c", "."), "one"), Sentence(("d", "e"), "two"), Sentence(("jab", "f", "g"), "two")]
HE_SAW = Tree(
    Sentence(("He", "saw", "the", "town", "."), "1"), (1, -1, 3, 1, 1), ("nsubj", "root", "det", "obj", "punct")
)


def make_model(architecture: str = "bert", tokenizer: Tokenizer | None = None, **changes) -> ProbedModel:
    """Return a model of two layers and two heads with random parameters."""
    settings = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32} | changes
    tokenizer = tokenizer or build_tokenizer(ENTRIES, lowercase=True)
    vocab_size = tokenizer.get_vocab_size()
    config = load_architecture(architecture).config(vocab_size, max_position_embeddings=40, **settings)
    model = BertForPretraining(config).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.4, generator=generator)
    return ProbedModel(model.bert, model.cls["predictions"], config, tokenizer)


def learn_tokenizer(folder: Path, kind: str) -> Tokenizer:
    """Return a byte-level BPE or unigram tokenizer, whose tokens include the space before a word."""
    text = "he looked at him and smiled. the cat sat on the mat, he said."
    params = VocabularyParams(kind=kind, vocab_size=320 if kind == "byte_bpe" else 100, lowercase=True, min_frequency=1)
    if kind == "byte_bpe":
        byte_bpe.learn(folder, {}, [text] * 5, params)
    else:
        unigram.learn(folder, Counter({f"▁{word}": 5 for word in text.split()}), [], params)
    return load_tokenizer(folder)


def unigram_model(**probabilities: float) -> ProbedModel:
    """Return a model that predicts these probabilities at every mask, and equal ones of all tokens not named."""
    model = make_model()
    assert model.head is not None
    remaining = (1 - sum(probabilities.values())) / (len(ENTRIES) - len(probabilities))
    with torch.no_grad():
        model.head.transform["LayerNorm"].weight.zero_()  # nothing of the text reaches the decoder
        model.head.transform["LayerNorm"].bias.zero_()
        model.head.decoder.bias.copy_(torch.tensor([probabilities.get(entry, remaining) for entry in ENTRIES]).log())
    return model


def save(folder: Path, model: ProbedModel) -> Path:
    """Write a model folder as pretraining does."""
    assert model.head is not None
    tensors = {f"bert.{name}": value for name, value in model.encoder.state_dict().items()}
    tensors |= {f"cls.predictions.{name}": value for name, value in model.head.state_dict().items()}
    (folder / "vocabulary").mkdir(parents=True)
    save_tokenizer(folder / "vocabulary", ENTRIES, lowercase=True)
    save_model(folder, tensors, model.config, model.config.names.classes["masked_lm"], folder / "vocabulary")
    return folder


def write_texts(root: Path, documents: int = 20) -> None:
    for name, prefix in (("books", "books"), ("wikipedia", "wikipedia/all")):  # both first documents are of one split
        text = "The Bab is c and d. He saw the Jab of b in a. It was e, f and g."
        texts = [Document(f"{prefix}:{number}", "t", text) for number in range(documents)]
        write_clean_text(name, texts, root, language="en")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a model of one layer and a few documents."""
    monkeypatch.chdir(tmp_path)
    save(tmp_path / "model", make_model(num_hidden_layers=1))
    write_texts(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def model() -> ProbedModel:
    return make_model()


@pytest.fixture(scope="session")
def rng() -> np.random.Generator:
    return np.random.default_rng(3)


@pytest.fixture(scope="session")
def material() -> tuple[LabelledWords, LabelledWords]:
    """Training and test words whose label is in the vectors of layer 1, with noise, and not in those of layer 0."""
    rng = np.random.default_rng(3)
    labels = rng.integers(0, 4, 3000)
    noise = rng.normal(size=(2, 3000, 12))
    noise[1, :, :4] += 2.5 * np.eye(4)[labels]
    vectors = torch.from_numpy(noise.astype(np.float32))
    types = [f"type{number}" for number in rng.integers(0, 1500, 3000)]
    documents = [str(number // 100) for number in range(3000)]
    return tuple(
        LabelledWords(vectors[:, part], labels[part], types[part], documents[part])
        for part in (slice(0, 2400), slice(2400, 3000))
    )
