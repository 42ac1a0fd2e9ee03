"""Near-copies of made-up documents: speed, recall and peak memory next to datatrove's and datasketch's MinHash.

Of ten documents, eight are independent words of a frequency like Zipf's law, one is a copy of an earlier document whose
Jaccard similarity is just above 0.8, and one a copy just below. Every side reads the same file of JSON and runs in one
process of its own. Peers get the first documents only: their time per document does not fall with more of them.
rensa takes part if it is installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import shutil
import struct
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp

import numpy as np

from benchmarks.measure import cpu_seconds, report
from pipeline_src.base.parallel import peak_memory
from pipeline_src.text.documents import Document, read_documents, slice_shards, write_manifest, write_shard
from pipeline_src.text.near_duplicates import find_copies, shingle_slice

DOCUMENTS, PEER_DOCUMENTS, SHARD_DOCUMENTS = 1_000_000, 10_000, 100_000
VOCABULARY_SIZE, MIN_WORDS, MAX_WORDS = 100_000, 100, 300
# In each ten documents, the places of the copy above the threshold and of the one below.
PERIOD, NEAR, FAR = 10, 8, 9
# If 5 S / 45 of S shingles change, the similarity is (S - S / 9) / (S + S / 9) = 0.8.
THRESHOLD, SHINGLES_PER_CHANGE = 0.8, 45
MAX_PEAK, MIN_RECALL = 1 << 30, 0.95
# Each function takes a folder of documents and returns the numbers of the documents that it drops.
Side = Callable[[Path], list[int]]


def original_of(number: int) -> int:
    tens = int(np.random.default_rng((1, number)).integers(number // PERIOD + 1))
    return tens * PERIOD + number % NEAR


def words_of(number: int) -> np.ndarray:
    """Return a document as word numbers.

    In a copy, some words far apart are replaced, each of which is in five shingles.
    """
    if number % PERIOD < NEAR:
        rng = np.random.default_rng((0, number))
        return (VOCABULARY_SIZE ** rng.random(rng.integers(MIN_WORDS, MAX_WORDS))).astype(np.int64)
    words = words_of(original_of(number)).copy()
    shingles = len(words) - 4
    changes = shingles // SHINGLES_PER_CHANGE + (number % PERIOD == FAR)
    words[4 + np.arange(changes) * (shingles // changes)] = VOCABULARY_SIZE + number
    return words


def write_documents(folder: Path, count: int) -> None:
    folder.mkdir()
    shards = []
    for start in range(0, count, SHARD_DOCUMENTS):
        numbers = range(start, min(start + SHARD_DOCUMENTS, count))
        texts = (" ".join(map("w{:x}".format, words_of(number).tolist())) for number in numbers)
        documents = (Document(f"d:{number}", "", text) for number, text in zip(numbers, texts, strict=True))
        shards.append(write_shard(folder / f"{start:09d}.jsonl", documents))
    write_manifest(folder, shards, {})


def ours(folder: Path) -> list[int]:
    with TemporaryDirectory(dir=folder.parent) as scratch:
        return np.flatnonzero(
            find_copies(map(shingle_slice, slice_shards(folder)), THRESHOLD, Path(scratch)) >= 0
        ).tolist()


def datatrove(folder: Path, own_words: bool) -> list[int]:
    # Its first three stages with its default bands, by spaCy's words or by those between spaces.
    from datatrove.executor import LocalPipelineExecutor  # type: ignore[import-not-found]
    from datatrove.pipeline.dedup import (  # type: ignore[import-not-found]
        MinhashDedupBuckets,
        MinhashDedupCluster,
        MinhashDedupSignature,
    )
    from datatrove.pipeline.dedup.minhash import MinhashConfig  # type: ignore[import-not-found]
    from datatrove.pipeline.readers import JsonlReader  # type: ignore[import-not-found]

    with TemporaryDirectory(dir=folder.parent) as scratch:
        signatures, buckets, removed = (f"{scratch}/{name}" for name in ("signatures", "buckets", "removed"))
        signature = MinhashDedupSignature(signatures)
        if not own_words:
            signature.word_tokenizer.word_tokenize = str.split
        config = MinhashConfig()
        for step, tasks in (
            ([JsonlReader(str(folder), glob_pattern="*.jsonl"), signature], 1),
            ([MinhashDedupBuckets(signatures, buckets)], config.num_buckets),
            ([MinhashDedupCluster(buckets, removed)], 1),
        ):
            LocalPipelineExecutor(step, tasks=tasks, logging_dir=mkdtemp(dir=scratch)).run()
        return [number for (number,) in struct.iter_unpack("<I", Path(removed, "000000.remove").read_bytes())]


def shingles_of(folder: Path) -> Iterator[tuple[int, list[str]]]:
    for number, document in enumerate(read_documents(folder)):
        words = document.text.lower().split()
        yield number, [" ".join(words[start : start + 5]) for start in range(len(words) - 4)]


def datasketch(folder: Path) -> list[int]:
    from datasketch import MinHash, MinHashLSH

    index, copies = MinHashLSH(THRESHOLD, num_perm=128), []
    for number, shingles in shingles_of(folder):
        minhash = MinHash(128)
        minhash.update_batch([shingle.encode() for shingle in shingles])
        if index.query(minhash):
            copies.append(number)
        else:
            index.insert(number, minhash)
    return copies


def rensa(folder: Path) -> list[int]:
    from rensa import RMinHash, RMinHashLSH  # type: ignore[import-not-found]

    index, copies = RMinHashLSH(threshold=THRESHOLD, num_perm=128, num_bands=16), []
    for number, shingles in shingles_of(folder):
        minhash = RMinHash(num_perm=128, seed=1)
        minhash.update(shingles)
        if index.query(minhash):
            copies.append(number)
        else:
            index.insert(number, minhash)
    return copies


def measure(side: Side, folder: Path) -> tuple[list[int], float, int]:
    start = cpu_seconds()
    return side(folder), cpu_seconds() - start, peak_memory()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--documents", type=int, default=DOCUMENTS)
    parser.add_argument("--alone", action="store_true", help="without peers")
    parser.add_argument("--folder", type=Path, help="for the documents and all temporary files")
    arguments = parser.parse_args()
    sides: dict[str, Side] = {"datasketch": datasketch}
    if importlib.util.find_spec("datatrove"):
        sides["datatrove"] = partial(datatrove, own_words=True)
        sides["datatrove, words between spaces"] = partial(datatrove, own_words=False)
    if importlib.util.find_spec("rensa"):
        sides["rensa"] = rensa
    folder = Path(mkdtemp(dir=arguments.folder))
    figures: dict[str, dict[str, float]] = {}
    try:
        write_documents(folder / "all", arguments.documents)
        work: list[tuple[str, Side, Path, int]] = [("ours", ours, folder / "all", arguments.documents)]
        if not arguments.alone:
            write_documents(folder / "peers", PEER_DOCUMENTS)
            peers: dict[str, Side] = {f"ours, {PEER_DOCUMENTS:,}": ours, **sides}
            work += [(name, side, folder / "peers", PEER_DOCUMENTS) for name, side in peers.items()]
        for name, side, documents, count in work:
            with ProcessPoolExecutor(1, get_context("spawn")) as pool:
                copies, seconds, peak = pool.submit(measure, side, documents).result()
            figures[name] = {
                **shares_of_pairs(copies, count),
                "cpu_seconds": round(seconds, 1),
                "documents_per_cpu_second": round(count / seconds, 1),
                "peak_mib": round(peak / 2**20),
            }
            print(name, json.dumps(figures[name]), flush=True)
    finally:
        shutil.rmtree(folder)
    if arguments.alone:
        return
    rates = {name: figures[name]["documents_per_cpu_second"] for name in figures}
    report(
        "near_copies",
        "documents per CPU-second",
        rates["ours"],
        {name: rates[name] for name in sides},
        dict.fromkeys(sides.keys() & {"datasketch", "datatrove"}, 1.0),
        figures=figures,
        documents=arguments.documents,
        met_more=figures["ours"]["recall"] >= MIN_RECALL and figures["ours"]["peak_mib"] * 2**20 <= MAX_PEAK,
    )


def shares_of_pairs(copies: list[int], count: int) -> dict[str, float]:
    # The share of the copies that were dropped, or their originals instead.
    dropped = np.zeros(count, bool)
    dropped[copies] = True
    shares = {}
    for name, kind in (("recall", NEAR), ("below_threshold", FAR)):
        numbers = np.arange(kind, count, PERIOD)
        originals = [original_of(number) for number in numbers.tolist()]
        shares[name] = round(float((dropped[numbers] | dropped[originals]).mean()), 4)
    return shares


if __name__ == "__main__":
    main()
