"""Stage ``examples``: the plan of sentence pairs for both lengths.

``data/examples/<phase>/<split>.npy`` is an int64 table [examples, 5]: where segments A and B start and stop in the
split's token shards, and 1 where B is random. Masks are not stored: they are drawn when a batch is loaded.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from pipeline_src.errors import PipelineError
from pipeline_src.examples.keyed import Draws, key
from pipeline_src.examples.pairs import Pair, document_pairs
from pipeline_src.examples.store import SPLITS, TokenStore
from pipeline_src.files import atomic_directory, write_json
from pipeline_src.params.examples import ExamplesParams
from pipeline_src.progress import Progress, log

TOKENS, OUTPUT = Path("data/tokens"), Path("data/examples")
STATISTICS = Path("results/examples.json")


def run(*, seed: int, examples: ExamplesParams) -> None:
    """Read ``data/tokens``, write ``data/examples/{short,long}`` and ``results/examples.json``.

    Raises:
        PipelineError: the documents of a split give no pair.
    """
    statistics: dict[str, Any] = {}
    with atomic_directory(OUTPUT) as folder:
        for phase, length in examples.lengths.model_dump().items():
            (folder / phase).mkdir()
            statistics[phase] = {"length": length}
            for split in SPLITS:
                store = TokenStore(TOKENS, split)
                passes = examples.duplicates if split == "train" else 1
                plan = plan_pairs(store, seed, phase, length, passes, examples)
                if not len(plan):
                    raise PipelineError("no sentence pairs", f"{phase}, {split}", where=TOKENS, remedy="give more text")
                np.save(folder / phase / f"{split}.npy", plan)
                statistics[phase][split] = describe(plan, length)
                log.info("%s, %s: %d examples", phase, split, len(plan))
        write_json(folder / "manifest.json", statistics)
    write_json(STATISTICS, statistics)


def plan_pairs(
    store: TokenStore, seed: int, phase: str, length: int, passes: int, params: ExamplesParams
) -> np.ndarray:
    """Draw the pairs of every document in every pass; int64 [examples, 5], in order of pass and document.

    Random numbers are keyed by (seed, phase, pass, document): the plan is the same however the documents are sharded.
    """
    rows: list[Pair] = []
    with Progress(f"pairing sentences, {phase}", passes * store.documents, "document") as progress:
        for duplicate in range(passes):
            stream = key(seed, "pairs", phase, duplicate)
            for number in range(store.documents):
                rows += document_pairs(
                    store, number, length, params.short_seq_prob, params.random_next_prob, Draws(stream, number)
                )
                progress.advance()
    return np.asarray(rows, np.int64).reshape(-1, 5)


def describe(plan: np.ndarray, length: int) -> dict[str, Any]:
    """What the report says of a plan: examples, tokens, share of random pairs, how full the examples are."""
    tokens = plan[:, 1] - plan[:, 0] + plan[:, 3] - plan[:, 2] + 3
    return {
        "examples": len(plan),
        "tokens": int(tokens.sum()),
        "random_next": round(float(plan[:, 4].mean()), 4),
        "fill": round(float(tokens.mean() / length), 4),
    }
