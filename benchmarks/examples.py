"""Making pretraining examples, beside google-research/bert's own program: examples per CPU-second, masks included.

Both start from tokenised documents and end with masked examples in memory: Google's ``create_instances_from_document``
(from PyPI's ``bert-tensorflow``; its TensorFlow is only needed for files and flags, and is stood in for) gives lists of
strings, ours the arrays that training reads: the plan, drawn and written, and its batches, assembled and masked. The
documents are real prose, of real lengths, in a vocabulary of 30,522 entries.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

import numpy as np

from benchmarks.material import articles_text, books_text
from benchmarks.measure import race, report
from pipeline_src.base.files import write_json
from pipeline_src.examples.build_examples import draw_samples, pass_keys
from pipeline_src.examples.masking import MLMCollator
from pipeline_src.examples.pairs import PairRules
from pipeline_src.examples.token_store import TokenStore, TokenWriter, write_sample_index
from pipeline_src.pretrain.data import DataShard, PretrainingExamples
from pipeline_src.study.pretrain import Masking
from pipeline_src.text.sentences import split_sentences
from pipeline_src.tokenizer.special_tokens import read_templates
from pipeline_src.tokenizer.wordpiece import SPECIAL_TOKENS, build_tokenizer

ENTRIES, BATCH = 30_522, 256
CLS, SEP, MASK = 2, 3, 4
TARGETS = {128: 6, 512: 10}


def google_program() -> ModuleType:
    """Import ``bert.create_pretraining_data`` without TensorFlow."""
    stand_ins = {name: MagicMock() for name in ("tensorflow", "tensorflow.compat", "tensorflow.compat.v1", "absl")}
    present = {name: sys.modules.get(name) for name in stand_ins}
    sys.modules.update(stand_ins)
    try:
        from bert import create_pretraining_data
    finally:
        for name, module in present.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module
    return create_pretraining_data


def documents() -> list[list[list[int]]]:
    # A word's id is its hash, so that sentence lengths and word frequencies are real.
    texts = articles_text() + [
        "\n".join(paragraphs[start : start + 60])
        for book in books_text(20_000_000)
        for paragraphs in [book.split("\n")]
        for start in range(0, len(paragraphs), 60)
    ]
    known: dict[str, int] = {}

    def number(word: str) -> int:
        return known.setdefault(word, len(SPECIAL_TOKENS) + len(known) % (ENTRIES - len(SPECIAL_TOKENS)))

    return [
        [
            [number(word) for word in sentence.split()]
            for paragraph in text.split("\n")
            for sentence in split_sentences(paragraph, "en")
        ]
        for text in texts
    ]


def write_store(folder: Path, texts: list[list[list[int]]]) -> None:
    writer = TokenWriter(folder, "train", ENTRIES)
    for text in texts:
        ids = np.asarray([number for sentence in text for number in sentence])
        writer.add(ids, np.asarray([len(sentence) for sentence in text]), np.asarray([len(text)]))
    write_json(folder / "manifest.json", {"splits": {"train": writer.close()}})


def main() -> None:
    google = google_program()
    texts = documents()
    pieces = [*SPECIAL_TOKENS, *(f"w{number}" for number in range(ENTRIES - len(SPECIAL_TOKENS)))]
    spelled = [[[pieces[number] for number in sentence] for sentence in text] for text in texts]
    special = np.arange(ENTRIES) < len(SPECIAL_TOKENS)
    masked_lm = MLMCollator(0.15, Masking(), MASK, special, np.zeros(ENTRIES, bool), seed=1)
    frames = read_templates(build_tokenizer(pieces, lowercase=True))
    rates: dict[str, Any] = {}
    with TemporaryDirectory() as name:
        folder = Path(name)
        write_store(folder, texts)
        for length in TARGETS:
            made = {"ours": 0, "google": 0}

            def ours(length: int = length, made: dict[str, int] = made) -> None:
                rules = PairRules(length, 0.1, 0.5, "nsp", 3)
                store = TokenStore(folder, "train")
                blocks = draw_samples(store, pass_keys(1, "phase1", 5), rules, "phase1", 1)
                write_sample_index(folder / "index.npy", blocks)
                examples = PretrainingExamples(
                    folder / "index.npy", TokenStore(folder, "train"), masked_lm, frames, "nsp"
                )
                for (batch,) in examples.batches(BATCH, 1, 0, len(examples) // BATCH, DataShard()):
                    made["ours"] += len(batch.pair_label)

            def run_google(length: int = length, made: dict[str, int] = made) -> None:
                rng = random.Random(1)
                most = int(length * 0.15) + 1
                for index in range(len(spelled)):
                    made["google"] += len(
                        google.create_instances_from_document(spelled, index, length, 0.1, 0.15, most, pieces, rng)
                    )

            seconds = race({"ours": ours, "google": run_google}, rounds=5)
            rates[str(length)] = {side: made[side] / 5 / seconds[side] for side in made}
    long = rates["512"]["ours"] / rates["512"]["google"]
    report(
        "examples",
        "examples of 128 tokens per CPU-second",
        rates["128"]["ours"],
        {"google-research/bert": rates["128"]["google"]},
        {"google-research/bert": TARGETS[128]},
        ratio_512=round(long, 2),
        target_512=TARGETS[512],
        rates={length: {side: round(rate) for side, rate in sides.items()} for length, sides in rates.items()},
        met_more=long >= TARGETS[512],
    )


if __name__ == "__main__":
    main()
