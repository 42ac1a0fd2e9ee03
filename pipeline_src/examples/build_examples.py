"""Stage ``build_examples``: the sample index of both phases.

``data/examples/<phase>/<split>.npy`` is a table of examples (``SAMPLE_INDEX``), by document and pass: the start of
their segments in the split's token store, the lengths, and the label of the pair. Masks are not stored: they are
sampled when a batch is loaded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np

from pipeline_src.common.counter_rng import PHASE_KEYS, derive_seed
from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import atomic_directory, read_json, write_json
from pipeline_src.common.parallel import map_in_order
from pipeline_src.common.paths import EXAMPLES, TOKENS
from pipeline_src.common.progress import Progress, log
from pipeline_src.config.data import ExamplesParams
from pipeline_src.examples.pairs import PairRules, document_pairs
from pipeline_src.examples.token_store import SAMPLE_INDEX, SPLITS, TokenStore

TOKENS_AT_ONCE = 1 << 24  # tokens of the documents processed together; some hundred MB of memory


def run(*, seed: int, examples: ExamplesParams) -> None:
    """Read ``data/tokens``, write ``data/examples/{phase1,phase2}``.

    Raises:
        PipelineError: a split gives no pairs.
    """
    written = read_json(TOKENS / "manifest.json", {"marks": {"single": int, "pair": int}})
    num_special = written["marks"]["single" if examples.pair_objective == "none" else "pair"]
    manifest: dict[str, Any] = {"pairs": examples.pair_objective}
    with atomic_directory(EXAMPLES) as folder:
        for phase, length in examples.max_seq_length.model_dump().items():
            (folder / phase).mkdir()
            manifest[phase] = {"length": length, "sha256": {}}
            rules = PairRules(
                length, examples.short_seq_prob, examples.random_next_prob, examples.pair_objective, num_special
            )
            for split in SPLITS:
                passes = examples.dupe_factor if split == "train" else 1
                blocks = draw_samples(TOKENS, split, seed, phase, passes, rules)
                count, digest = write_sample_index(folder / phase / f"{split}.npy", blocks)
                if not count:
                    raise PipelineError("no sentence pairs", f"{phase}, {split}", where=TOKENS, hint="give more text")
                manifest[phase][split] = count
                manifest[phase]["sha256"][split] = digest
                log.info("%s, %s: %d examples", phase, split, count)
        write_json(folder / "manifest.json", manifest)


def draw_samples(
    tokens: Path, split: str, seed: int, phase: str, passes: int, rules: PairRules, workers: int | None = None
) -> Iterator[np.ndarray]:
    """Yield the examples of every document in every pass, in order, in blocks of dtype ``SAMPLE_INDEX``.

    Random numbers are keyed by (seed, phase, pass, document, example): they are the same for any number of workers
    and shards.
    """
    store = TokenStore(tokens, split)
    starts = store.sentences[store.documents]  # first token of each document, and the number of tokens
    edges = np.unique(np.searchsorted(starts, [*range(0, len(store.ids), TOKENS_AT_ONCE), len(store.ids)])).tolist()
    blocks = list(zip(edges, edges[1:], strict=False))
    streams = [derive_seed(seed, "pairs", PHASE_KEYS[phase], number) for number in range(passes)]
    if len(blocks) == 1:
        workers = 1  # starting processes would take longer than the work
    draw = partial(_draw_block, store, rules, streams)
    with Progress(f"pairing sentences, {phase}", len(store), "document") as progress:
        for (first, stop), rows in zip(blocks, map_in_order(draw, blocks, workers), strict=True):
            progress.advance(stop - first)
            yield rows


def _draw_block(store: TokenStore, rules: PairRules, streams: list[int], block: tuple[int, int]) -> np.ndarray:
    return document_pairs(store, *block, rules, streams)


def write_sample_index(path: Path, blocks: Iterator[np.ndarray]) -> tuple[int, str]:
    """Write blocks of rows as one .npy file without holding them; return the number of rows and their sha256.

    numpy reserves space in the header for any number of rows, so it is rewritten when their number is known.
    """
    count, digest = 0, hashlib.sha256()
    with open(path, "wb") as file:
        _write_header(file, count)
        for rows in blocks:
            file.write(rows.tobytes())
            digest.update(rows.tobytes())
            count += len(rows)
        file.seek(0)
        _write_header(file, count)
    return count, digest.hexdigest()


def _write_header(file: IO[bytes], rows: int) -> None:
    header = {"descr": np.lib.format.dtype_to_descr(SAMPLE_INDEX), "fortran_order": False, "shape": (rows,)}
    np.lib.format.write_array_header_1_0(file, header)
