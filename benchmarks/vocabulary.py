"""Learning a vocabulary of 30,522 entries from real text, against `tokenizers`' WordPieceTrainer.

Every run is a process of its own that reads the text from disk: ours as shards of documents, with other numbers of
workers and another string hash each time, the peer as lines. Both learn from every word, however rare.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections import Counter
from functools import partial
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from tempfile import TemporaryDirectory

from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.trainers import WordPieceTrainer

from benchmarks.measure import cpu_seconds, report
from pipeline_src.text.documents import Document, slice_shards, write_manifest, write_shard
from pipeline_src.tokenizer.encode import Encoder
from pipeline_src.tokenizer.train_tokenizer import WordCounts, count_shards, count_words
from pipeline_src.tokenizer.wordpiece import SPECIAL_TOKENS, build_tokenizer
from pipeline_src.tokenizer.wordpiece_trainer import learn_vocabulary

SIZE, ALPHABET = 30_522, 1000
# Seed of string hashes, and number of workers.
OUR_RUNS = ((0, 1), (1, 2), (2, 3), (3, 1), (4, 2))
PEER_RUNS = 3
DEFAULT_MIN_COUNT = 2


def learn_ours(folder: Path, min_count: int = 1) -> list[str]:
    with TemporaryDirectory() as runs:
        words = WordCounts(Path(runs))
        count_shards(slice_shards(folder), words, partial(count_words, lowercase=True), seed=1, validation=0.0)
        return learn_vocabulary(words, SIZE, ALPHABET, min_count)


def learn_peers(folder: Path) -> list[str]:
    tokenizer = Tokenizer(WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = BertNormalizer(lowercase=True), BertPreTokenizer()
    trainer = WordPieceTrainer(
        vocab_size=SIZE, limit_alphabet=ALPHABET, special_tokens=list(SPECIAL_TOKENS), show_progress=False
    )
    tokenizer.train([str(folder / "lines.txt")], trainer)
    entries = tokenizer.get_vocab()
    return sorted(entries, key=entries.__getitem__)


SIDES = {
    "ours": learn_ours,
    "peer": learn_peers,
    "default": lambda folder: learn_ours(folder, DEFAULT_MIN_COUNT),
}


def run_side(side: str, folder: Path, string_hash: int = 0, workers: int = 1) -> tuple[float, float, list[str]]:
    # CPU-seconds, MB of memory at the peak (largest process of the run), and the vocabulary.
    environment = os.environ | {"PYTHONHASHSEED": str(string_hash), "PIPELINE_WORKERS": str(workers)}
    command = [sys.executable, "-m", "benchmarks.vocabulary", side, str(folder)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    result = json.loads(done.stdout)
    return result["seconds"], result["peak_mb"], result["pieces"]


def child(side: str, folder: Path) -> None:
    start = cpu_seconds()
    pieces = SIDES[side](folder)
    seconds = cpu_seconds() - start
    # getrusage would count the process that started this one.
    status = Path("/proc/self/status").read_text()
    own_peak = int(status.partition("VmHWM:")[2].split()[0])
    peak = max(own_peak, getrusage(RUSAGE_CHILDREN).ru_maxrss) / 1024
    print(json.dumps({"seconds": seconds, "peak_mb": peak, "pieces": pieces}))


def pieces_per_word(pieces: list[str], words: Counter[str]) -> float:
    # Of a running word.
    encoder = Encoder(build_tokenizer(pieces, lowercase=True))
    return sum(count * len(encoder.encode(word)) for word, count in words.items()) / sum(words.values())


def main() -> None:
    # Imports torch, whose memory is not the sides'.
    from benchmarks.material import articles_text, books_text

    texts = articles_text() + books_text()
    megabytes = sum(len(text.encode()) for text in texts) / 1e6
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        shard = write_shard(folder / "all.jsonl", (Document(f"d:{n}", "", text) for n, text in enumerate(texts)))
        write_manifest(folder, [shard], {})
        (folder / "lines.txt").write_text("\n".join(texts), encoding="utf-8")
        ours, peer_runs = [], []
        for turn, (string_hash, workers) in enumerate(OUR_RUNS):
            ours.append(run_side("ours", folder, string_hash, workers))
            if turn < PEER_RUNS:
                peer_runs.append(run_side("peer", folder))
        default = run_side("default", folder)[2]
    pieces, peer_pieces = ours[0][2], peer_runs[0][2]
    identical = all(run[2] == pieces for run in ours)
    shared = len(set(pieces) & set(peer_pieces)) / SIZE
    words = count_words(texts, lowercase=True)
    lengths = pieces_per_word(pieces, words) / pieces_per_word(peer_pieces, words)
    peer = "tokenizers WordPieceTrainer"
    report(
        "vocabulary",
        "MB of text per CPU-second",
        megabytes / statistics.median(run[0] for run in ours),
        {peer: megabytes / statistics.median(run[0] for run in peer_runs)},
        {peer: 2.0},
        met_more=identical and shared >= 0.99 and abs(lengths - 1) <= 0.01,
        megabytes=round(megabytes, 1),
        identical_runs=len(ours) if identical else 0,
        entries=len(pieces),
        entries_shared=round(shared, 5),
        entries_shared_with_default_min_count=round(len(set(default) & set(peer_pieces)) / SIZE, 5),
        peer_entries_shared_by_two_runs=round(len(set(peer_pieces) & set(peer_runs[1][2])) / SIZE, 5),
        peer_runs_identical=all(run[2] == peer_pieces for run in peer_runs),
        pieces_per_word_ratio=round(lengths, 5),
        cpu_seconds=[round(run[0], 2) for run in ours],
        peer_cpu_seconds=[round(run[0], 2) for run in peer_runs],
        peak_mb=round(max(run[1] for run in ours)),
        peer_peak_mb=round(max(run[1] for run in peer_runs)),
    )


if __name__ == "__main__":
    if len(sys.argv) == 3:
        child(sys.argv[1], Path(sys.argv[2]))
    else:
        main()
