"""Stage ``build_examples``: the plan of sentence pairs for both lengths.

``data/examples/<phase>/<split>.npy`` is a table of examples (``pairs.PLAN``), document by document and pass by pass:
where their segments start in the split's token store, how long they are, and whether B is random. Masks are not
stored: they are drawn when a batch is loaded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pipeline_src.common.counter_rng import derive_seed
from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import atomic_directory, write_json
from pipeline_src.common.parallel import map_in_order
from pipeline_src.common.paths import EXAMPLES, TOKENS
from pipeline_src.common.progress import Progress, log
from pipeline_src.examples.pairs import PLAN, PairRules, document_pairs
from pipeline_src.params.examples import ExamplesParams
from pipeline_src.tokenizer.token_store import SPLITS, TokenStore

BLOCK = 1 << 24  # tokens whose documents are walked at once; some hundred MB of work space
HEADER = 192  # bytes before the rows of a .npy file, written when their number is known


def run(*, seed: int, examples: ExamplesParams) -> None:
    """Read ``data/tokens``, write ``data/examples/{short,long}``.

    Raises:
        PipelineError: the documents of a split give no pair.
    """
    manifest: dict[str, Any] = {"next_sentence": examples.next_sentence}
    with atomic_directory(EXAMPLES) as folder:
        for phase, length in examples.lengths.model_dump().items():
            (folder / phase).mkdir()
            manifest[phase] = {"length": length, "sha256": {}}
            rules = PairRules(length, examples.short_seq_prob, examples.random_next_prob, examples.next_sentence)
            for split in SPLITS:
                passes = examples.duplicates if split == "train" else 1
                blocks = plan_blocks(TOKENS, split, seed, phase, passes, rules)
                count, digest = write_plan(folder / phase / f"{split}.npy", blocks)
                if not count:
                    raise PipelineError("no sentence pairs", f"{phase}, {split}", where=TOKENS, remedy="give more text")
                manifest[phase][split] = count
                manifest[phase]["sha256"][split] = digest
                log.info("%s, %s: %d examples", phase, split, count)
        write_json(folder / "manifest.json", manifest)


def plan_blocks(
    tokens: Path, split: str, seed: int, phase: str, passes: int, rules: PairRules, workers: int | None = None
) -> Iterator[np.ndarray]:
    """Draw the examples of every document in every pass, in order, block by block; dtype ``PLAN``.

    Random numbers are keyed by (seed, phase, pass, document, example): the plan is the same for any number of workers
    and however the documents were sharded.
    """
    store = TokenStore(tokens, split)
    starts = store.sentences[store.documents]  # first token of each document, and the number of tokens
    edges = np.unique(np.searchsorted(starts, [*range(0, len(store.ids), BLOCK), len(store.ids)])).tolist()
    blocks = list(zip(edges, edges[1:], strict=False))
    streams = [derive_seed(seed, "pairs", phase, number) for number in range(passes)]
    if len(blocks) == 1:
        workers = 1  # starting processes would take longer than the work
    draw = partial(_plan_block, store, rules, streams)
    with Progress(f"pairing sentences, {phase}", len(store), "document") as progress:
        for (first, stop), rows in zip(blocks, map_in_order(draw, blocks, workers), strict=True):
            progress.advance(stop - first)
            yield rows


def _plan_block(store: TokenStore, rules: PairRules, streams: list[int], block: tuple[int, int]) -> np.ndarray:
    return document_pairs(store, *block, rules, streams)


def write_plan(path: Path, blocks: Iterator[np.ndarray]) -> tuple[int, str]:
    """Write blocks of rows as one .npy file, without holding them; returns the number of rows and their sha256."""
    count, digest = 0, hashlib.sha256()
    with open(path, "wb") as file:
        file.write(bytes(HEADER))
        for rows in blocks:
            file.write(rows.tobytes())
            digest.update(rows.tobytes())
            count += len(rows)
        file.seek(0)
        header = {"descr": np.lib.format.dtype_to_descr(PLAN), "fortran_order": False, "shape": (count,)}
        np.lib.format.write_array_header_1_0(file, header)
        assert file.tell() == HEADER, "numpy pads headers otherwise than it did"
    return count, digest.hexdigest()
