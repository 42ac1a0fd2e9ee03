"""Helpers: start trainings as separate processes, and compare their outputs."""

import json
import os
import socket
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file

from pipeline_src.base.files import read_json
from pipeline_src.examples.build_examples import run as plan_examples
from tests.children import Child
from tests.unit.pretrain.small import EXAMPLES, build_teacher, make_study

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
) -> list[Child]:
    """Start ``size`` processes that train together. ``each`` has further changes for each process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    outer = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "MASTER_"))}
    folders = folder if isinstance(folder, list) else [folder] * size
    started = []
    for rank in range(size):
        shape = {name: form.format(rank, size=size, port=port) for name, form in variables.items()}
        own = json.dumps(changes | (each[rank] if each else {}))
        started.append(Child("tests.unit.pretrain.small:train_short", [own], folders[rank], outer | shape, False))
    return started


def said(processes: list[Child]) -> list[str]:
    """Wait for all processes, and return their output."""
    texts = [process.communicate(timeout=240)[0] for process in processes]
    print("\n".join(text[-2000:] for text in texts))  # shown where a test fails
    return texts


def finish(processes: list[Child]) -> list[int]:
    """Wait for all processes, and return their exit statuses."""
    said(processes)
    return [process.returncode for process in processes]


def new_study(folder: Path, pairs: str = "nsp") -> Path:
    """Make the inputs of a training in ``folder``."""
    make_study(folder)
    build_teacher(folder)
    before = Path.cwd()
    os.chdir(folder)
    plan_examples(seed=1, examples=EXAMPLES.model_copy(update={"pair_objective": pairs}))
    os.chdir(before)
    return folder


STEADY = {
    "phase1": 12,
    "num_hidden_layers": 2,
    "hidden_dropout_prob": 0.0,
    "microbatch_tokens": 60,
    "train_batch_size": 16,
    "eval_steps": 6,
}
MADE = ["results", "models/pretrained/phase1"]


def assert_same(folder: Path, expected: Path) -> None:
    """Assert that losses agree to 1e-5, and that the same files have the same tensors."""
    curve, other = (pd.read_csv(each / "results/pretrain/phase1.tsv", sep="\t") for each in (folder, expected))
    assert curve["step"].tolist() == other["step"].tolist()
    np.testing.assert_allclose(curve.drop(columns="step"), other.drop(columns="step"), rtol=1e-5)
    figures, others = (read_json(each / "results/pretrain/phase1.json")["validation"] for each in (folder, expected))
    assert figures == pytest.approx(others, rel=1e-5)
    names = [sorted(path.name for path in (each / MADE[1]).rglob("*")) for each in (folder, expected)]
    assert names[0] == names[1]
    for file in ("model.safetensors", "training_state/optimizer.safetensors"):
        tensors, others = (load_file(each / MADE[1] / file) for each in (folder, expected))
        assert tensors.keys() == others.keys()
        for name, tensor in tensors.items():
            torch.testing.assert_close(tensor, others[name], rtol=1e-3, atol=1e-4)
    assert not list((folder / "checkpoints/phase1").glob("*/step-*"))
