"""Passages for the report: real ones, keyed, and few bytes read."""

from pathlib import Path

import numpy as np
import pytest

from pipeline_src.corpus.documents import Document, write_manifest, write_shard
from pipeline_src.statistics import passages as module
from pipeline_src.statistics.passages import MOST, sample_passages

WORDS = "river town road bridge tower field forest valley harbour market garden island castle".split()
TEXTS: dict[str, str] = {}


@pytest.fixture
def folders(tmp_path) -> list[Path]:
    """A corpus of two parts."""
    draw = np.random.default_rng(0)
    folders = [tmp_path / part for part in ("books", "wikipedia/a/clean-text")]
    for folder in folders:
        folder.mkdir(parents=True)
        documents = []
        for number in range(20):
            lines = [" ".join(draw.choice(WORDS, 30)).capitalize() + "." for _ in range(8)]
            documents.append(Document(f"{folder.name}:{number}", f"Title {number}", "\n".join(lines)))
            TEXTS[documents[-1].id] = documents[-1].text.replace("\n", " ")
        write_manifest(folder, [write_shard(folder / "x.jsonl", documents)], {})
    return folders


def test_passages_are_whole_lines_of_the_corpus_from_every_part(folders, tmp_path):
    passages = sample_passages(folders, tmp_path, 1)
    assert len(passages) == 5 and {passage["part"] for passage in passages} == {"books", "wikipedia-a"}
    for passage in passages:
        assert passage["text"].removesuffix(" …") in TEXTS[passage["id"]]
        assert len(passage["text"].removesuffix(" …").split()) == passage["words"] <= MOST
    assert sample_passages(folders, tmp_path, 1) == passages
    assert sample_passages(folders, tmp_path, 2) != passages


def test_a_long_line_is_cut_and_a_short_document_is_shown_whole():
    long = module._passage(Document("a", "", "\n".join(["word " * 300] * 3)))
    assert long["words"] == MOST and long["text"].endswith(" …")
    assert module._passage(Document("b", "", "Two lines.\nOf text.")) == {"text": "Two lines. Of text.", "words": 4}
