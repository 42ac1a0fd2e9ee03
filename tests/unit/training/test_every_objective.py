"""Every objective resumes to the same bytes after a kill, and has the same losses on several processes."""

import os
import signal
import time

import pytest

from pipeline_src.base.files import hash_file
from pipeline_src.base.registry import member_names
from tests.unit.pretrain.small import PAIRS, WAYS
from tests.unit.training.processes import STEADY, TORCHRUN, assert_same, finish, launch

BRIEF = {**STEADY, "phase1": 6, "train_batch_size": 8, "eval_steps": 3, "optimizer": "adamw"}
KILLED_AFTER = 4
IN_CI = [way if way == "electra" else pytest.param(way, marks=pytest.mark.slow) for way in WAYS]


def test_tested_variants_cover_all_objectives():
    assert {way.get("objective", "mlm") for way in WAYS.values()} == set(member_names("objectives"))


@pytest.mark.parametrize("way", IN_CI)
def test_killed_objective_resumes_to_identical_outputs(new_folder, alone, way, monkeypatch):
    """The training gets SIGKILL between two steps. The hashes of all outputs are compared."""
    pairs, changes = PAIRS.get(way, "nsp"), BRIEF | WAYS[way]
    folder = new_folder(pairs)
    with monkeypatch.context() as patch:
        patch.setenv("PIPELINE_CHECKPOINT_MINUTES", "0")
        (process,) = launch(folder, 1, {}, sleep_after=KILLED_AFTER, **changes)
        newest, deadline = f"checkpoints/phase1/*/step-{KILLED_AFTER:08d}/state.json", time.monotonic() + 240
        while not list(folder.glob(newest)):
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.02)
        os.kill(process.pid, signal.SIGKILL)
        assert finish([process]) == [-signal.SIGKILL]
    assert not (folder / "models/pretrained/phase1").exists()
    assert finish(launch(folder, 1, {}, **changes)) == [0]
    result, expected = (
        {
            path.relative_to(position): hash_file(path)
            for part in ("models", "results")
            for path in sorted((position / part).rglob("*"))
            if path.is_file()
        }
        for position in (folder, alone(pairs, **changes))
    )
    assert result == expected and len(result) > 5


@pytest.mark.parametrize("way", IN_CI)
@pytest.mark.parametrize("size", [2, 4])
def test_objective_losses_on_several_processes_equal_single_process(new_folder, alone, size, way):
    """Losses agree to 1e-5 in float32. They differ only in the order of sums."""
    pairs, changes = PAIRS.get(way, "nsp"), BRIEF | WAYS[way]
    folder = new_folder(pairs)
    assert finish(launch(folder, size, TORCHRUN, **changes)) == [0] * size
    assert_same(folder, alone(pairs, **changes))
