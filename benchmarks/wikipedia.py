"""A dump of 300 MB of XML to shards of prose through Beam, beside the published topology and a plain loop.

The sample's pages are repeated under new ids and titles and packed as Wikimedia packs a dump, 100 pages a bz2 stream.
Every run is a process of its own, so that CPU time and peak memory hold all it needs, Beam's import included.
"""

from __future__ import annotations

import bz2
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any

from benchmarks._wikipedia_sides import TEXT
from benchmarks.material import CACHE, sample_pages
from benchmarks.measure import report
from pipeline_src.base.files import atomic_file
from pipeline_src.base.parallel import map_in_order
from pipeline_src.text.documents import read_manifest

# Copies of the sample's 6.1 MB: for the published topology, for us, for memory.
FEW, MANY, TWICE = 4, 50, 100
ROUNDS = 3
# Times the rate of the published topology.
FASTER = 10.0
# Most CPU time over the plain loop, as a share.
OVERHEAD = 0.08
# Most memory in MB.
PEAK = 300.0
# Most growth of the peak memory at twice the input.
GROWTH = 1.05
PAGES_A_STREAM = 100


# Keys: cpu_s and peak_mb.
Run = dict[str, float]
# A peer's run, and ours.
Pair = tuple[Run, Run]


def main() -> None:
    subset, many, twice = (make_dump(copies) for copies in (FEW, MANY, TWICE))
    beside: dict[str, list[Pair]] = {"loop": [], "published": []}
    for _ in range(ROUNDS):
        beside["loop"].append(run_pair("loop", many, many))
        beside["published"].append(run_pair("published", subset, many))
    if shards("beam") != shards("loop"):
        sys.exit("error: Beam and the plain loop wrote different shards")
    large = run_apart("beam", twice)
    ours = statistics.median(ours["cpu_s"] for pairs in beside.values() for _, ours in pairs)
    # each peer's time is told from how it compares with ours in the same minute
    relative = {
        side: statistics.median(peer["cpu_s"] / ours["cpu_s"] for peer, ours in pairs) for side, pairs in beside.items()
    }
    peak = {side: max(peer["peak_mb"] for peer, _ in pairs) for side, pairs in beside.items()}
    peak["beam"] = max(ours["peak_mb"] for pairs in beside.values() for _, ours in pairs)
    overhead = 1 / relative["loop"] - 1
    print(f"CPU over the plain loop {overhead:.1%} (at most {OVERHEAD:.0%})")
    print(f"peak memory {peak['beam']:.0f} MB, at twice the input {large['peak_mb']:.0f} MB (at most {PEAK:.0f})")
    report(
        "wikipedia",
        "MB of XML per CPU-second",
        megabytes(MANY) / ours,
        {
            "TFDS / Hugging Face wikipedia": megabytes(FEW) / (ours * relative["published"]),
            "plain loop": megabytes(MANY) / (ours * relative["loop"]),
        },
        {"TFDS / Hugging Face wikipedia": FASTER},
        met_more=overhead <= OVERHEAD and large["peak_mb"] <= min(PEAK, GROWTH * peak["beam"]),
        xml_mb=round(megabytes(MANY), 1),
        overhead=round(overhead, 4),
        overhead_at_most=OVERHEAD,
        peak_mb=round(peak["beam"], 1),
        peak_mb_twice=round(large["peak_mb"], 1),
        peak_mb_at_most=PEAK,
        peak_mb_loop=round(peak["loop"], 1),
        peak_mb_published=round(peak["published"], 1),
        published_xml_mb=round(megabytes(FEW), 1),
    )


def run_pair(side: str, dump: Path, our_dump: Path) -> Pair:
    """A peer and, at the same time, ours: what other work on the machine adds to CPU time meets both."""
    with ThreadPoolExecutor(2) as pool:
        peer, ours = pool.submit(run_apart, side, dump), pool.submit(run_apart, "beam", our_dump)
        return peer.result(), ours.result()


def run_apart(side: str, dump: Path) -> Run:
    shutil.rmtree(_folder(side), ignore_errors=True)
    _folder(side).mkdir(parents=True)
    command = [sys.executable, "-m", "benchmarks._wikipedia_sides", side, str(dump), str(_folder(side))]
    done = subprocess.run(command, env=os.environ | {"PIPELINE_WORKERS": "1"}, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{done.stderr}\nerror: the run of {side} on {dump} failed, see above")
    measured: Run = json.loads(done.stdout.splitlines()[-1])
    print(f"  {side:<10} {dump.name:<32} {measured['cpu_s']:7.2f} CPU-s {measured['peak_mb']:7.1f} MB", flush=True)
    return measured


def _folder(side: str) -> Path:
    return CACHE / "wikipedia" / side


def shards(side: str) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = read_manifest(_folder(side) / TEXT)["shards"]
    return results


def _streams(copies: int) -> Iterator[bytes]:
    opening, pages = sample_pages()
    yield opening
    held = []
    for number in range(1, copies + 1):
        for page in pages:
            page = re.sub(rb"<title>(.*?)</title>", rb"<title>\1, copy %d</title>" % number, page, count=1)
            held.append(re.sub(rb"<id>(\d+)</id>", rb"<id>%d0\1</id>" % number, page, count=1))
            if len(held) == PAGES_A_STREAM:
                yield b"\n  ".join(held)
                held.clear()
    yield b"\n  ".join(held) + b"\n"
    yield b"</mediawiki>\n"


@lru_cache
def megabytes(copies: int) -> float:
    return sum(map(len, _streams(copies))) / 1e6


def make_dump(copies: int) -> Path:
    path = CACHE / f"enwiki-repeated-{copies}.xml.bz2"
    if not path.exists():
        with atomic_file(path, "wb") as file:
            file.writelines(map_in_order(bz2.compress, _streams(copies)))
    return path


if __name__ == "__main__":
    main()
