"""Several processes on one batch: the same losses as one, one writer, and a stop that all agree on."""

import json
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pipeline_src.common.files import hash_file
from pipeline_src.examples.build_examples import run as plan_examples
from tests.forks import Forks
from tests.unit.pretraining.small import EXAMPLES, make_study

# with what an optimiser imports at its first step
TRAININGS = Forks(
    {"train": "tests.unit.pretraining.small:train_short"}, ["tests.unit.pretraining.small", "torch._dynamo"],
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


def launch(folder: Path, size: int, variables: dict[str, str], **changes) -> list[subprocess.Popen]:
    """Start ``size`` processes that train together in ``folder``."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    outer = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "MASTER_"))}
    shapes = [
        {name: form.format(rank, size=size, port=port) for name, form in variables.items()} for rank in range(size)
    ]
    return [TRAININGS.start(["train", json.dumps(changes)], folder, outer | shape) for shape in shapes]


def finish(processes: list[subprocess.Popen]) -> list[int]:
    """Wait for all; returns their statuses."""
    errors = [process.communicate(timeout=240)[0] for process in processes]
    statuses = [process.returncode for process in processes]
    print("\n".join(error[-2000:] for error in errors))  # shown where a test fails
    return statuses


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    made = {}
    for size in (1, 2, 4):
        made[size] = tmp_path_factory.mktemp(f"team-{size}")
        make_study(made[size])
        before = Path.cwd()
        os.chdir(made[size])
        plan_examples(seed=1, examples=EXAMPLES)
        os.chdir(before)
    return made


STEADY = {"short": 12, "dropout": 0.0, "max_tokens": 60, "batch": 16, "evaluate_every": 6}


def test_the_same_batch_gives_the_same_losses_on_1_2_and_4_processes(folders):
    """To 1e-5 in float32 after twelve steps; what differs is the order of sums."""
    curves = {}
    for size, variables in ((1, {}), (2, TORCHRUN), (4, SRUN)):
        assert finish(launch(folders[size], size, variables, **STEADY)) == [0] * size
        curves[size] = pd.read_csv(folders[size] / "results/pretrain/short.tsv", sep="\t")
        assert not list((folders[size] / "checkpoints/short").glob("*/step-*"))
    for size in (2, 4):
        assert curves[size]["step"].tolist() == curves[1]["step"].tolist()
        np.testing.assert_allclose(curves[size].drop(columns="step"), curves[1].drop(columns="step"), rtol=1e-5)


def test_two_processes_that_are_stopped_go_on_to_the_same_bytes(folders):
    folder = folders[2]
    shutil.rmtree(folder / "models", ignore_errors=True), shutil.rmtree(folder / "results", ignore_errors=True)
    changes = {"short": 60, "dropout": 0.1}
    assert finish(launch(folder, 2, TORCHRUN, **changes)) == [0, 0]
    expected = hash_file(folder / "models/pretrained/short/model.safetensors")
    shutil.rmtree(folder / "models")
    os.environ["PIPELINE_CHECKPOINT_MINUTES"] = "0"
    try:
        processes = launch(folder, 2, TORCHRUN, **changes)
        deadline = time.monotonic() + 120
        while not list(folder.glob("checkpoints/short/*/step-*")) and time.monotonic() < deadline:
            time.sleep(0.005)
        processes[1].send_signal(signal.SIGTERM)  # one is told, both stop
        assert finish(processes) == [1, 1]  # as the script does not turn Interrupted into a status
        steps = sorted(path.name for path in folder.glob("checkpoints/short/*/step-*"))
        assert steps and steps[-1] < "step-00000060"
    finally:
        del os.environ["PIPELINE_CHECKPOINT_MINUTES"]
    assert finish(launch(folder, 2, TORCHRUN, **changes)) == [0, 0]
    assert hash_file(folder / "models/pretrained/short/model.safetensors") == expected


def test_more_processes_than_sequences_is_one_clear_error(folders):
    statuses = finish(launch(folders[2], 2, TORCHRUN, short=2, batch=1))
    assert statuses == [1, 1]
