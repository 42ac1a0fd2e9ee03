"""Trainings as processes of their own, and what they must leave."""

import json
import os
import socket
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file

from pipeline_src.common.files import read_json
from pipeline_src.examples.build_examples import run as plan_examples
from tests.forks import Forks
from tests.unit.pretraining.small import EXAMPLES, make_study, make_teacher

TRAININGS = Forks(
    {"train": "tests.unit.pretraining.small:train_short"},
    ["tests.unit.pretraining.small", "tests.unit.training.warmed"],
    OMP_WAIT_POLICY="PASSIVE", OMP_NUM_THREADS="1",
)  # fmt: skip
TORCHRUN = {
    "RANK": "{}",
    "LOCAL_RANK": "{}",
    "WORLD_SIZE": "{size}",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "{port}",
}
SRUN = {
    "SLURM_PROCID": "{}",
    "SLURM_LOCALID": "{}",
    "SLURM_STEP_NUM_TASKS": "{size}",
    "SLURM_STEP_NODELIST": "localhost",
    "MASTER_PORT": "{port}",
}


def launch(
    folder: Path | list[Path], size: int, variables: dict[str, str], each: list[dict] | None = None, **changes
) -> list[subprocess.Popen]:
    """Start ``size`` processes that train together in ``folder``, or in one each, with changes of ``each`` besides."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    outer = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "MASTER_"))}
    places = folder if isinstance(folder, list) else [folder] * size
    started = []
    for rank in range(size):
        shape = {name: form.format(rank, size=size, port=port) for name, form in variables.items()}
        own = json.dumps(changes | (each[rank] if each else {}))
        started.append(TRAININGS.start(["train", own], places[rank], outer | shape))
    return started


def said(processes: list[subprocess.Popen]) -> list[str]:
    """Wait for all; returns what they said."""
    texts = [process.communicate(timeout=240)[0] for process in processes]
    print("\n".join(text[-2000:] for text in texts))  # shown where a test fails
    return texts


def finish(processes: list[subprocess.Popen]) -> list[int]:
    """Wait for all; returns their statuses."""
    said(processes)
    return [process.returncode for process in processes]


def new_study(folder: Path, pairs: str = "next_sentence") -> Path:
    """Make what a training reads in ``folder``, with examples of such pairs."""
    make_study(folder)
    make_teacher(folder)
    before = Path.cwd()
    os.chdir(folder)
    plan_examples(seed=1, examples=EXAMPLES.model_copy(update={"pairs": pairs}))
    os.chdir(before)
    return folder


STEADY = {"short": 12, "layers": 2, "dropout": 0.0, "max_tokens": 60, "batch": 16, "evaluate_every": 6}
MADE = ["results", "models/pretrained/short"]


def assert_same(folder: Path, expected: Path) -> None:
    """Losses of training and validation text to 1e-5, the same files with the same tensors in them."""
    curve, other = (pd.read_csv(each / "results/pretrain/short.tsv", sep="\t") for each in (folder, expected))
    assert curve["step"].tolist() == other["step"].tolist()
    np.testing.assert_allclose(curve.drop(columns="step"), other.drop(columns="step"), rtol=1e-5)
    figures, others = (read_json(each / "results/pretrain/short.json")["validation"] for each in (folder, expected))
    assert figures == pytest.approx(others, rel=1e-5)
    names = [sorted(path.name for path in (each / MADE[1]).rglob("*")) for each in (folder, expected)]
    assert names[0] == names[1]
    for file in ("model.safetensors", "training_state/optimiser.safetensors"):
        tensors, others = (load_file(each / MADE[1] / file) for each in (folder, expected))
        assert tensors.keys() == others.keys()
        for name, tensor in tensors.items():
            torch.testing.assert_close(tensor, others[name], rtol=1e-3, atol=1e-4)
    assert not list((folder / "checkpoints/short").glob("*/step-*"))
