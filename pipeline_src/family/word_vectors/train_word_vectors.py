"""Stage ``train_word_vectors``: train Word2Vec vectors for the study's tokens."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from gensim.models import Word2Vec
from safetensors.numpy import save_file

from pipeline_src.base.counter_rng import derive_seed
from pipeline_src.base.files import atomic_directory, system_errors, write_json
from pipeline_src.base.paths import TOKENS, VOCABULARY, WORD_VECTORS
from pipeline_src.base.progress import log
from pipeline_src.examples.token_store import TokenStore
from pipeline_src.model.tokenizer_config import state_inputs
from pipeline_src.study.data import WordVectorsParams
from pipeline_src.tokenizer.load import load_tokenizer

# Value of the setting `method` -> gensim's argument `sg`.
SKIP_GRAM = {"cbow": 0, "skip_gram": 1}
# Maximum length of a text in tokens. No positions are trained, so it is the largest value that params.yaml allows.
MAX_INPUT_TOKENS = 8192


def run(*, seed: int, word_vectors: WordVectorsParams) -> None:
    """Train word vectors on ``data/tokens``, and write them as the model folder ``models/word_vectors``."""
    vocab_size = load_tokenizer(VOCABULARY).get_vocab_size()
    store = TokenStore(TOKENS, "train")
    # `counts` also checks that all ids are below vocab_size.
    store.counts(vocab_size)
    vectors = learn_vectors(store, vocab_size, word_vectors, seed)
    log.info("%d of %d entries have a vector", np.count_nonzero(vectors.any(axis=1)), vocab_size)
    with atomic_directory(WORD_VECTORS) as folder:
        save_vectors(folder, vectors, VOCABULARY)


class Sentences:
    # Iterates over a store's sentences as lists of ids ("2054"). gensim iterates over them several times.

    def __init__(self, store: TokenStore, vocab_size: int) -> None:
        self._store = store
        self._words = [str(number) for number in range(vocab_size)]

    def __iter__(self) -> Iterator[list[str]]:
        ids = self._store.ids
        bounds = self._store.sentences
        words = self._words
        for first, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            yield [words[number] for number in ids[first:end].tolist()]


def learn_vectors(store: TokenStore, vocab_size: int, params: WordVectorsParams, seed: int) -> np.ndarray:
    # Returns float32 [vocab_size, width]. The vector of a token that does not occur is zero.
    model = Word2Vec(
        Sentences(store, vocab_size),
        vector_size=params.width,
        sg=SKIP_GRAM[params.method],
        window=params.window,
        negative=params.negative,
        sample=params.sample,
        epochs=params.epochs,
        # gensim leaves out words that occur less often. Every token that occurs gets a vector.
        min_count=1,
        # With several workers, the result would depend on which one is faster.
        workers=1,
        # gensim takes a seed of 31 bits.
        seed=derive_seed(seed, "word_vectors") >> 33,
    )
    vectors = np.zeros((vocab_size, params.width), np.float32)
    vectors[[int(word) for word in model.wv.index_to_key]] = model.wv.vectors
    return vectors


def save_vectors(folder: Path, vectors: np.ndarray, vocabulary: Path) -> None:
    vocab_size, width = vectors.shape
    config = {
        "model_type": "word-vectors",
        "vocab_size": vocab_size,
        "hidden_size": width,
        # The only layer is the mean over a sequence.
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
        "intermediate_size": width,
        "max_position_embeddings": MAX_INPUT_TOKENS,
        "hidden_dropout_prob": 0.0,
    }
    write_json(folder / "config.json", config)
    path = folder / "model.safetensors"
    with system_errors(path):
        save_file({"word_vectors.embeddings.word_embeddings.weight": vectors}, path, {"format": "np"})
    for file in sorted(vocabulary.iterdir()):
        if file.name != "manifest.json":
            shutil.copyfile(file, folder / file.name)
    state_inputs(folder, MAX_INPUT_TOKENS)
