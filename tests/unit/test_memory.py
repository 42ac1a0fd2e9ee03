"""Memory of long trainings: what torch's CPU library keeps of the shapes it has met, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import ctypes, sys

if sys.argv[1] == "as the stages":
    from pipeline_src.__main__ import main
    main(["preset", "--list"])
import torch

class Heap(ctypes.Structure):  # mallinfo2(3)
    _fields_ = [(name, ctypes.c_size_t) for name in ["arena", *map(str, range(6)), "used", "free", "top"]]

libc = ctypes.CDLL(None)
libc.mallinfo2.restype = Heap
torch.nn.functional.gelu(torch.ones(5, 64))
before = libc.mallinfo2().used
for tokens in range(10, 410):
    torch.nn.functional.gelu(torch.ones(tokens, 64))
print((libc.mallinfo2().used - before) // 1024)
"""


def kept(how: str, root: Path) -> int:
    """Kilobytes that stay in use after 400 batches, each of another size."""
    unset = {name: value for name, value in os.environ.items() if not name.startswith("ONEDNN_")}
    command = [sys.executable, "-c", PROGRAM, how]
    ended = subprocess.run(command, cwd=root, env=unset, capture_output=True, text=True, check=True)
    return int(ended.stdout.split()[-1])


def test_batches_of_many_sizes_keep_little_memory(root: Path) -> None:
    try:
        by_itself = kept("by itself", root)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"this C library does not tell what is in use: {error.stderr[-200:]}")
    if by_itself < 2_000:
        pytest.skip("on this machine torch makes no code of its own for shapes")
    assert kept("as the stages", root) < by_itself / 4
