"""Stage ``build_examples``: write a table of training examples for each phase.

``data/examples/<phase>/<split>.npy`` has one row per example (dtype ``SAMPLE_INDEX``): where its segments start in the
split's token store, how long they are, and the pair's label. Rows are ordered by document and pass. If the sources have
shares (``shares.py``), they are ordered by source first. Masks are not stored, but sampled when a batch is loaded.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from itertools import accumulate, chain, pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from pipeline_src.base.counter_rng import derive_seed, permuted, phase_key
from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import atomic_directory, read_json, write_json
from pipeline_src.base.names import checked_path
from pipeline_src.base.parallel import map_in_order
from pipeline_src.base.paths import EXAMPLES, TOKENS
from pipeline_src.base.progress import Progress, log
from pipeline_src.examples.pairs import PairRules, document_pairs
from pipeline_src.examples.shares import sample_sources, select_examples, shares_are_set, source_shares
from pipeline_src.examples.token_store import (
    IDS_PER_BLOCK,
    SPLITS,
    TokenStore,
    read_sample_index,
    write_sample_index,
)
from pipeline_src.study.data import ExamplesParams

# Number of tokens that one worker processes at once. It then needs a few hundred MB of memory.
TOKENS_PER_BLOCK = 1 << 24
# Warn if more than this fraction of the training tokens is cut off from sentences longer than an example.
MAX_UNREAD = 0.1


def run(*, seed: int, examples: ExamplesParams) -> None:
    """Read ``data/tokens`` and write ``data/examples/<phase>``."""
    with_shares = shares_are_set(examples)
    shape: dict[str, Any] = {"marks": {"single": int, "pair": int}}
    if with_shares:
        shape["parts"] = {split: {str: {"documents": int, "tokens": int}} for split in SPLITS}
    tokens = read_json(TOKENS / "manifest.json", shape)
    sources = tokens["parts"]["train"] if with_shares else {}
    for source in sources:
        checked_path(source, TOKENS / "manifest.json")
    shares = source_shares(examples, {source: counts["tokens"] for source, counts in sources.items()})
    num_special = tokens["marks"]["single" if examples.pair_objective == "none" else "pair"]

    manifest: dict[str, Any] = {"pairs": examples.pair_objective}
    with atomic_directory(EXAMPLES) as folder, TemporaryDirectory(dir=folder, prefix=".") as scratch:
        for phase, length in examples.max_seq_length.model_dump().items():
            (folder / phase).mkdir()
            about: dict[str, Any] = {"length": length, "sha256": {}}
            manifest[phase] = about
            rules = PairRules(
                length, examples.short_seq_prob, examples.random_next_prob, examples.pair_objective, num_special
            )
            for split in SPLITS:
                store = TokenStore(TOKENS, split)
                # With shares, a random B comes from the source of A.
                stores = _by_source(store, tokens["parts"][split]) if shares else {split: store}
                if rules.pairs != "none":
                    _warn_of_lone_documents(stores, phase)
                if split == "train":
                    _warn_of_long_sentences(store, rules, phase)
                sample = partial(_sample_source, stores, seed, phase, rules)
                if not shares:
                    passes = examples.dupe_factor if split == "train" else 1
                    blocks = draw_samples(store, pass_keys(seed, phase, passes), rules, phase)
                elif split == "train":
                    mixed = sample_sources(shares, examples.dupe_factor, sample, Path(scratch))
                    about["sources"] = {source: asdict(counts) for source, counts in mixed.items()}
                    for source, counts in mixed.items():
                        log.info("%s, %s: %s", phase, source, counts)
                    blocks = select_examples(mixed, seed, phase_key(phase), Path(scratch))
                else:
                    blocks = chain.from_iterable(sample(source, 1) for source in stores)
                path = folder / phase / f"{split}.npy"
                about[split], about["sha256"][split] = write_sample_index(path, blocks)

                full_share = examples.full_length_share.get(phase)
                if split == "train" and full_share:
                    key = derive_seed(seed, "full", phase)
                    index = with_full_length(read_sample_index(path), full_share, rules, key)
                    about[split], about["sha256"][split] = write_sample_index(path, iter([index]))
                if not about[split]:
                    raise PipelineError(
                        "no examples could be made", f"{phase}, {split}", where=TOKENS, hint="add more text"
                    )
                log.info("%s, %s: %d examples", phase, split, about[split])
        write_json(folder / "manifest.json", manifest)


def _warn_of_lone_documents(stores: Mapping[str, TokenStore], phase: str) -> None:
    for name, store in stores.items():
        if len(store) == 1:
            log.warning(
                "%s: %s has one document, so each random segment B is of the same document as A: split its text into "
                "documents, or set examples.pair_objective: none",
                phase,
                name,
            )


def _warn_of_long_sentences(store: TokenStore, rules: PairRules, phase: str) -> None:
    # A sentence longer than an example is cut at both ends.
    unread = 0
    for start in range(0, len(store.sentences), IDS_PER_BLOCK):
        # Include the first offset of the next block, which ends the last sentence of this block.
        lengths = np.diff(store.sentences[start : start + IDS_PER_BLOCK + 1])
        unread += int(np.maximum(lengths - rules.max_text_length, 0).sum())
    share = unread / max(1, len(store.ids))
    if share > MAX_UNREAD:
        log.warning(
            "%s: of a sentence of more than %d tokens, only the middle is read, which leaves out %.0f %% of the "
            "training tokens: break the lines of the text, or raise examples.max_seq_length.%s",
            phase,
            rules.max_text_length,
            100 * share,
            phase,
        )


def pass_keys(seed: int, phase: str, passes: int, *source: str) -> list[int]:
    # One random number key for each pass over the whole text or, if `source` is given, over that source's text.
    return [derive_seed(seed, "pairs", phase_key(phase), number, *source) for number in range(passes)]


def with_full_length(index: np.ndarray, share: float, rules: PairRules, key: int) -> np.ndarray:
    # Drop random shorter examples until at least the fraction `share` of the examples has the full length.
    lengths = index["a_length"].astype(np.int64) + index["b_length"]
    is_full = lengths == rules.max_text_length
    full = np.flatnonzero(is_full)
    if not len(full):
        hint = "lower examples.max_seq_length, or add longer documents"
        where = "examples.full_length_share"
        raise PipelineError(
            "no document is long enough for a full-length example", rules.length, where=where, hint=hint
        )
    short = np.flatnonzero(~is_full)
    # With a share of 0.8, 100 full examples allow 25 shorter ones.
    count = min(len(short), math.floor(len(full) * (1 - share) / share))
    if count:
        short = short[permuted(key, np.arange(count), len(short))]
    return index[np.sort(np.concatenate([full, short[:count]]))]


def _by_source(store: TokenStore, counts: Mapping[str, Mapping[str, int]]) -> dict[str, TokenStore]:
    # Return source -> its part of the store, for sources with documents.
    bounds = pairwise(accumulate((count["documents"] for count in counts.values()), initial=0))
    parts = {source: store.of_documents(*edges) for source, edges in zip(counts, bounds, strict=True)}
    return {source: part for source, part in parts.items() if len(part)}


def _sample_source(
    stores: Mapping[str, TokenStore], seed: int, phase: str, rules: PairRules, source: str, passes: int
) -> Iterator[np.ndarray]:
    return draw_samples(stores[source], pass_keys(seed, phase, passes, source), rules, f"{phase}, {source}")


def draw_samples(
    store: TokenStore, streams: Sequence[int], rules: PairRules, label: str, workers: int | None = None
) -> Iterator[np.ndarray]:
    """Yield the examples of every document and pass, in blocks of dtype ``SAMPLE_INDEX``.

    Args:
        streams: one random number key for each pass. Random numbers depend only on pass, document and example, so the
            examples are the same for any number of workers.
        label: what the progress bar shows.
    """
    # A block begins with the first document that starts at or after a multiple of TOKENS_PER_BLOCK. A document longer
    # than TOKENS_PER_BLOCK spans several multiples, which would give empty blocks. np.unique removes them.
    starts = store.sentences[store.documents]
    multiples = range(starts[0], starts[-1], TOKENS_PER_BLOCK)
    edges = np.unique(np.searchsorted(starts, [*multiples, starts[-1]])).tolist()
    blocks = list(pairwise(edges))
    if len(blocks) == 1:
        # Starting worker processes would take longer than sampling one block here.
        workers = 1
    sample = partial(_sample_block, store, rules, streams)
    with Progress(f"pairing sentences, {label}", len(store), "document") as progress:
        for (first, stop), examples in zip(blocks, map_in_order(sample, blocks, workers), strict=True):
            progress.advance(stop - first)
            yield examples


def _sample_block(store: TokenStore, rules: PairRules, streams: Sequence[int], block: tuple[int, int]) -> np.ndarray:
    return document_pairs(store, *block, rules, streams)
