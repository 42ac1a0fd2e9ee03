"""Memory of a long training, in a process of its own: the heap keeps what other tests left in it."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path

import torch

from pipeline_src.training import memory

PROGRAM = """
import random, sys
import torch
from pipeline_src.training.memory import give_large_blocks_back

if sys.argv[1] == "given back":
    give_large_blocks_back()
draw, kept = random.Random(1), []
for step in range(50):  # blocks of activations beside small ones that stay, as rows of a curve do
    blocks = []
    for _ in range(8):
        blocks.append(torch.ones(draw.randrange(7 << 18, 7 << 19)))
        kept.append(torch.ones(1 << 12))
    del blocks
with open("/proc/self/status") as status:
    print(next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) // 1024)
"""


def test_what_is_freed_goes_back(root: Path) -> None:
    taken = {}
    for how in ("kept", "given back"):
        command = [sys.executable, "-c", PROGRAM, how]
        said = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
        taken[how] = int(said.stdout)
    print(taken)
    assert taken["given back"] < taken["kept"] - 50


def test_gaps_in_the_heap_go_back_when_a_training_has_grown_by_them(monkeypatch) -> None:
    monkeypatch.setattr(memory, "GROWN", 50 << 20)
    ctypes.CDLL(None).malloc_trim(0)  # gaps that earlier tests have left would be filled without growing
    heap, before, kept = memory.Heap(), memory._resident(), []
    for _ in range(memory.OFTEN):  # what is usual
        heap.after_step()
    blocks = []
    for _ in range(2000):  # a gap of 100 kB before each block that stays
        blocks.append(torch.ones(25_000))
        kept.append(torch.ones(2_000))
    del blocks
    for _ in range(memory.OFTEN - 1):
        heap.after_step()
    grown = memory._resident() - before
    heap.after_step()
    left = memory._resident() - before
    assert grown > 100 << 20 and left < grown - (80 << 20), (grown, left)
