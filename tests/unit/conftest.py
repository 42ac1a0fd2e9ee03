"""Fixtures that several packages' tests use."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from pipeline_src.base.files import write_json
from pipeline_src.examples.token_store import TokenStore, TokenWriter
from pipeline_src.study.task_spec import load_spec
from pipeline_src.tokenizer.train_tokenizer import count_words
from pipeline_src.tokenizer.wordpiece_trainer import learn_vocabulary


def write_store(
    folder: Path, documents: list[list[list[int]]], split: str = "train", at_once: int = 7, entries: int = 60_000
) -> TokenStore:
    """A token store of the given documents, each a list of sentences, each a list of ids; written in lots."""
    writer = TokenWriter(folder, split, entries)
    for start in range(0, len(documents), at_once):
        lot = documents[start : start + at_once]
        ids = [number for document in lot for sentence in document for number in sentence]
        sentences = [len(sentence) for document in lot for sentence in document]
        writer.add(*(np.asarray(values) for values in (ids, sentences, [len(document) for document in lot])))
    write_json(folder / "manifest.json", {"splits": {split: writer.close()}})
    return TokenStore(folder, split)


@pytest.fixture(scope="session")
def make_store():
    """:func:`write_store`, for tests that want a store of their own."""
    return write_store


@pytest.fixture
def documents() -> list[list[list[int]]]:
    """Forty documents of 1 to 30 sentences; every id names its document, so that pairs can be traced."""
    rng = np.random.default_rng(5)
    return [
        [[100 + number] * int(rng.integers(1, 25)) for _ in range(int(rng.integers(1, 31)))] for number in range(40)
    ]


@pytest.fixture
def store(tmp_path, documents) -> TokenStore:
    return write_store(tmp_path, documents)


@pytest.fixture
def catalogue(tmp_path_factory: pytest.TempPathFactory, monkeypatch, root: Path) -> Iterator[Path]:
    """A copy of the catalogue, read in its place, to which entries may be added."""
    place = tmp_path_factory.mktemp("catalogue")
    shutil.copytree(root / "catalogue", place / "catalogue")
    monkeypatch.setattr("pipeline_src.base.yaml_files.ROOT", place)
    load_spec.cache_clear()
    yield place / "catalogue"
    load_spec.cache_clear()


TEXT = [
    "the river ran through the old town and the new town",
    "an older river, a newer town; the oldest walls were walls of the river",
    "walls, towns, rivers: the newest are not the oldest; Ångström's café, 北京",
]


@pytest.fixture(scope="session")
def pieces() -> list[str]:
    """A small vocabulary with merges, accents (in the cased text) and two Chinese characters."""
    return learn_vocabulary(count_words(TEXT, lowercase=False), 140, alphabet=60, min_count=1)
