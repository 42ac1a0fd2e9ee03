import numpy as np
import pytest

from pipeline_src.examples.store import TokenStore, TokenWriter
from pipeline_src.files import write_json


def write_store(folder, parts: dict[str, list[list[list[int]]]], split: str = "train") -> TokenStore:
    """A token store of the given documents, each a list of sentences, each a list of ids."""
    rows = []
    for name, documents in parts.items():
        writer = TokenWriter(folder, split, name)
        for document in documents:
            writer.add(document)
        rows.append(writer.close())
    write_json(folder / "manifest.json", {"splits": {split: rows}})
    return TokenStore(folder, split)


@pytest.fixture
def documents() -> list[list[list[int]]]:
    """Forty documents of 1 to 30 sentences; every id names its document, so that pairs can be traced."""
    rng = np.random.default_rng(5)
    return [
        [[100 + number] * int(rng.integers(1, 25)) for _ in range(int(rng.integers(1, 31)))] for number in range(40)
    ]


@pytest.fixture
def store(tmp_path, documents) -> TokenStore:
    return write_store(tmp_path, {"a": documents[:13], "b": documents[13:]})
