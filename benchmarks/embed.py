"""Vectors of 20,000 sentences from MiniLM on two threads, against sentence-transformers; the vectors are the same."""

from __future__ import annotations

import os
import random
import shutil

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as the tools do; read when torch is imported
os.environ.setdefault("HF_HUB_OFFLINE", "1")
import numpy as np
import torch

from benchmarks.material import CACHE, articles_text, books_text, minilm_folder
from benchmarks.measure import race, report
from pipeline_src.corpus.sentences import split_sentences
from pipeline_src.models.adapter import ENCODER
from pipeline_src.models.bert import make_encoder
from pipeline_src.tools.embed import embed
from pipeline_src.tools.export_model import export_model
from pipeline_src.tools.open_model import open_model

SENTENCES = 20_000
BOOKS = 8 << 20  # characters of books
ROUNDS = 3


def sentences() -> list[str]:
    """Return sentences of the sample's articles and of books, in random order."""
    paragraphs = [paragraph for text in articles_text() + books_text(BOOKS) for paragraph in text.split("\n")]
    random.Random(1).shuffle(paragraphs)
    found = [sentence for paragraph in paragraphs[: 2 * SENTENCES] for sentence in split_sentences(paragraph, "en")]
    return random.Random(2).sample(found, SENTENCES)


def main() -> None:
    """Race both on the same sentences; each chooses its batches."""
    from sentence_transformers import SentenceTransformer

    folder = CACHE / "minilm-for-sentence-transformers"
    shutil.rmtree(folder, ignore_errors=True)
    export_model(folder, "sentence-transformers", minilm_folder(), "mean", False, None, None)
    texts = sentences()
    opened, peer = open_model(folder, make_encoder, ENCODER, ""), SentenceTransformer(str(folder), device="cpu")
    torch.set_num_threads(2)
    vectors: dict[str, np.ndarray] = {}

    def ours() -> None:
        vectors["ours"] = np.stack([vector for _, vector in embed(opened, texts)])

    def theirs() -> None:
        vectors["peer"] = peer.encode(texts)

    seconds = race({"ours": ours, "peer": theirs}, ROUNDS)
    rates = {name: len(texts) / time for name, time in seconds.items()}
    difference = float(np.abs(vectors["ours"] - vectors["peer"]).max())
    name = "sentence-transformers encode"
    report(
        "embed",
        "sentences per CPU-second",
        rates["ours"],
        {name: rates["peer"]},
        {name: 1.5},
        met_more=difference < 1e-5,
        sentences=len(texts),
        largest_difference=difference,
    )


if __name__ == "__main__":
    main()
