"""A stopped training ends with the same bytes as an uninterrupted one, and wrong checkpoints are rejected."""

import hashlib
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from pipeline_src.base.errors import Interrupted, PipelineError
from pipeline_src.base.files import hash_file, read_json, write_json
from pipeline_src.engine.dependencies import CHECKS
from pipeline_src.examples.build_examples import run as plan_examples
from pipeline_src.training import checkpoint
from pipeline_src.training.checkpoint import Checkpointer, difference, hash_values, saved_files
from pipeline_src.training.distributed import single_process
from pipeline_src.training.stop import StopRequest
from pipeline_src.training.trainer import Trainer
from tests.unit.pretrain.small import EXAMPLES, make_study
from tests.unit.pretrain.small import train_phase as run

ROOT = Path(__file__).parents[3]


def outputs(folder: Path) -> dict[str, str]:
    """Return the hash of every output of the first phase."""
    paths = [*(folder / "models").rglob("*"), *(folder / "results").rglob("*")]
    return {str(path.relative_to(folder)): hash_file(path) for path in paths if path.is_file()}


@cache
def undisturbed() -> dict[str, str]:
    """Return the outputs of nine steps without interruption."""
    run("phase1", phase1=9)
    result = outputs(Path.cwd())
    shutil.rmtree("models"), shutil.rmtree("results")
    return result


def stop_after(step: int):
    """End a training of this process without warning after a step."""

    def after_step(taken: int) -> None:
        if taken == step:
            raise KeyboardInterrupt

    return after_step


def test_resumed_training_has_identical_outputs(study):
    changes = {"phase1": 30, "eval_steps": 7, "log_points": 10, "keep_checkpoint_steps": (3, 14, 20)}
    run("phase1", **changes)
    expected = outputs(study)
    shutil.rmtree("models"), shutil.rmtree("results")
    for step in (13, 15, 29):
        with pytest.raises(KeyboardInterrupt):
            run("phase1", after_step=stop_after(step), **changes)
        assert not os.path.exists("models/pretrained/phase1") and not os.path.exists("results")
    run("phase1", **changes)
    assert outputs(study) == expected
    tracked = Path("logs/dvclive/phase1/plots/metrics/loss.tsv").read_text().split()[2::2]
    assert tracked == [str(row) for row in sorted({*range(4, 31, 4), 7, 14, 21, 28, 30})]


@pytest.mark.parametrize(("check", "last"), [("before_saving", 3), ("before_finishing", 9)])
def test_training_with_edited_inputs_keeps_previous_checkpoint(study, monkeypatch, check, last):
    changes, edits = {"phase1": 9, "eval_steps": 3}, []

    def refuse() -> None:
        if edits:
            raise PipelineError("edited", "a file", hint="put it back")

    with monkeypatch.context() as patch:
        patch.setattr(CHECKS, check, refuse)
        with pytest.raises(PipelineError, match="edited"):
            run("phase1", after_step=lambda step: edits.append(step) if step == 4 else None, **changes)
    assert max(path.name for path in Path("checkpoints/phase1").glob("*/step-*")) == f"step-{last:08}"
    run("phase1", **changes)
    assert not list(Path("checkpoints/phase1").glob("*/step-*"))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGURG, signal.SIGINT])
def test_signal_stops_after_step_and_resume_is_identical(study, monkeypatch, number):
    expected = undisturbed()
    take = Trainer.train_step

    def signalled(self, batch):
        if self.state.step == 4:
            os.kill(os.getpid(), number)
        take(self, batch)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "train_step", signalled)
        with pytest.raises(Interrupted, match=f"stopped by {number.name} after step 5"):
            run("phase1", phase1=9)
        assert signal.getsignal(number) not in (None, signalled)
    assert sorted(path.name for path in Path("checkpoints/phase1").glob("*/step-*")) == ["step-00000005"]
    run("phase1", phase1=9)
    assert outputs(study) == expected
    assert not list(Path("checkpoints/phase1").iterdir())  # nothing was measured, so nothing is best


@pytest.mark.slow
def test_twenty_kills_leave_outputs_identical(tmp_path):
    """A training with a checkpoint after every step gets SIGKILL at twenty random moments."""
    undisturbed, killed = tmp_path / "undisturbed", tmp_path / "killed"
    for folder in (undisturbed, killed):
        folder.mkdir()
        make_study(folder)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_WAIT_POLICY": "PASSIVE"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.unit.pretrain.killer", undisturbed, killed, "20"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=400,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["kills"] == 20 and report["resumed"] >= 10, report
    assert outputs(killed) == outputs(undisturbed)


def interrupted(step: int, monkeypatch, **changes) -> Path:
    """Train with a checkpoint after every step, stop after ``step``, and return the checkpoints' folder."""
    monkeypatch.setenv("PIPELINE_CHECKPOINT_MINUTES", "0")
    with pytest.raises(KeyboardInterrupt):
        run("phase1", after_step=stop_after(step), **{"phase1": 9} | changes)
    (folder,) = [path for path in Path("checkpoints/phase1").iterdir() if path.name != "best"]
    return folder


def damage(path: Path) -> None:
    """Change one byte in the middle of a file."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_resume_with_other_machine_settings_uses_checkpoint(study, monkeypatch, caplog):
    """Settings of machine.yaml are not part of a training's identity."""
    folder = interrupted(5, monkeypatch)
    seen = []
    take = Trainer.train_step
    monkeypatch.setattr(Trainer, "train_step", lambda self, batch: (seen.append(self.state.step), take(self, batch)))
    with caplog.at_level(logging.INFO):
        run("phase1", phase1=9, microbatch_tokens=60, activation_checkpointing=True, threads=2)
    assert seen == [5, 6, 7, 8] and not folder.exists()
    messages = [record.message for record in caplog.records if "other conditions" in record.message]
    assert len(messages) == 1 and "microbatch_tokens 16384 there, 60 here" in messages[0]
    assert "dropout may draw other masks from here on, as with another seed" in messages[0]
    assert read_json("results/pretrain/phase1.json")["ledger"]["machine"]["mixed"]


@pytest.mark.parametrize(
    ("rate", "setting", "effect"),
    [
        (0.0, {"microbatch_tokens": 60}, "last bits may differ by rounding"),
        (0.1, {"microbatch_tokens": 60}, "dropout may draw other masks from here on, as with another seed"),
        (0.1, {"threads": 2}, "last bits may differ by rounding"),
    ],
)
def test_resume_with_other_machine_settings_warns_of_effect(study, monkeypatch, caplog, rate, setting, effect):
    interrupted(5, monkeypatch, hidden_dropout_prob=rate)
    run("phase1", phase1=9, hidden_dropout_prob=rate, **setting)
    assert f"resuming under other conditions, so {effect}: " in caplog.text


def test_checkpointer_keeps_newest_two_and_best(study, monkeypatch):
    folder = interrupted(8, monkeypatch, eval_steps=3)
    assert sorted(path.name for path in folder.glob("step-*")) == [f"step-{step:08d}" for step in (6, 7, 8)]
    run("phase1", phase1=9, eval_steps=3)
    assert [path.name for path in Path("checkpoints/phase1").iterdir()] == ["best"]
    assert read_json("checkpoints/phase1/best/state.json")["state"]["step"] == 6


@pytest.mark.parametrize("name", ["tensors.safetensors", "state.json"])
@pytest.mark.parametrize("how", [damage, Path.unlink, lambda path: path.write_bytes(path.read_bytes()[:100])])
def test_resume_from_damaged_checkpoint_uses_previous_one(study, monkeypatch, caplog, name, how):
    expected = undisturbed()
    folder = interrupted(5, monkeypatch)
    how(folder / "step-00000005" / name)
    with caplog.at_level(logging.INFO):
        run("phase1", phase1=9)
    assert "checkpoint of step 5 is damaged" in caplog.text and "the checkpoint of step 4" in caplog.text
    assert outputs(study) == expected


def test_resume_with_all_checkpoints_damaged_logs_none_left(study, monkeypatch, caplog):
    folder = interrupted(2, monkeypatch)
    for path in folder.glob("step-*"):
        damage(path / "state.json")
    with caplog.at_level(logging.INFO):
        run("phase1", phase1=9)
    assert caplog.text.count("no earlier checkpoint exists") == 1
    assert caplog.text.count("going back") == caplog.text.count("is damaged") - 1


def changed(path: Path, **values) -> None:
    """Change values in a JSON file, as a flipped bit may."""
    write_json(path, read_json(path) | values)


@pytest.mark.parametrize(
    "how",
    [
        lambda path: changed(path / "state.json", state=read_json(path / "state.json")["state"] | {"step": 7}),
        lambda path: changed(path / "state.json", validation=0.1),
        lambda path: write_json(path / "state.json", []),
        lambda path: path.rename(path.with_name("step-00000099")),
        lambda path: shutil.copytree(path, path.with_name("step-00000006 (copy)")),
        lambda path: path.with_name("step-x").mkdir(),
    ],
    ids=["step", "loss", "list", "renamed", "copy", "name"],
)
def test_resume_from_altered_checkpoint_has_identical_outputs(study, monkeypatch, how):
    expected = undisturbed()
    how(interrupted(5, monkeypatch) / "step-00000005")
    run("phase1", phase1=9)
    assert outputs(study) == expected


def test_damaged_checkpoint_of_other_training_is_logged(study, monkeypatch, caplog):
    path = interrupted(5, monkeypatch) / "step-00000005/state.json"
    path.write_text("{")
    with caplog.at_level(logging.INFO):
        run("phase1", phase1=9, mask_prob=0.2)
    assert "damaged, or written by an older version" in caplog.text


def test_second_run_of_locked_training_is_rejected(study, monkeypatch):
    folder = interrupted(5, monkeypatch)
    holder = "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX); print('held'); input()"
    with subprocess.Popen(
        [sys.executable, "-c", holder, folder / ".in-use"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(PipelineError, match="the same training runs already"):
            run("phase1", phase1=9)
        other.communicate(b"\n")
    run("phase1", phase1=9)


def test_phase2_from_damaged_phase1_output_is_rejected(study):
    run("phase1", phase1=4)
    for name in ("model.safetensors", "training_state/optimizer.safetensors"):
        path = Path("models/pretrained/phase1") / name
        full = path.read_bytes()
        damage(path)
        with pytest.raises(PipelineError, match=f"fails its checksums: {Path(name).name}"):
            run("phase2", phase1=4)
        path.write_bytes(full)
    # A model of another training lies beside the phase's own.
    other = Path("models/pretrained/phase1/generator/model.safetensors")
    other.parent.mkdir()
    other.write_bytes(full)
    with pytest.raises(PipelineError, match="fails its checksums: generator/model.safetensors"):
        run("phase2", phase1=4)


def test_saved_files_lists_all_but_card_and_kept_steps(tmp_path):
    for name in ("README.md", "config.json", "generator/model.safetensors", "steps/400/model.safetensors"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"content")
    files = saved_files(tmp_path)
    assert files.keys() == {"config.json", "generator/model.safetensors"}
    assert files["config.json"] == {"bytes": 7, "sha256": hashlib.sha256(b"content").hexdigest()}


def test_checkpoints_with_other_settings_are_logged_and_not_used(study, monkeypatch, caplog):
    run("phase1", phase1=9, train_batch_size=8)
    expected = outputs(study)
    interrupted(5, monkeypatch)
    with caplog.at_level(logging.INFO):
        run("phase1", phase1=9, train_batch_size=8)
    assert (
        "not used: checkpoints/phase1/" in caplog.text and "pretrain.train_batch_size 16 there, 8 here" in caplog.text
    )
    assert outputs(study) == expected


def test_checkpoint_in_folder_of_other_training_is_rejected(study, monkeypatch):
    folder = interrupted(5, monkeypatch)
    identity = read_json(folder / "step-00000005" / "state.json")["identity"]
    shutil.copytree(folder, folder.parent / hash_values({**identity, "mask_prob": 0.2}))
    with pytest.raises(PipelineError, match="(?s)other settings, data or code: mask_prob 0.15 there, 0.2 here"):
        run("phase1", phase1=9, mask_prob=0.2)


def test_checkpoint_with_other_data_is_not_used(study, monkeypatch, caplog):
    interrupted(5, monkeypatch)
    plan_examples(seed=2, examples=EXAMPLES)
    with caplog.at_level(logging.INFO):
        run("phase1", phase1=9)
    assert "data.examples" in caplog.text and "resuming" not in caplog.text


def test_resume_on_other_machine_logs_difference(study, monkeypatch, caplog):
    folder = interrupted(5, monkeypatch)
    path = folder / "step-00000005" / "state.json"
    state = checkpoint._read_state(path.parent)
    state["machine"]["torch"] = "2.0"
    write_json(path, state | {checkpoint.STATE_CHECKSUM: checkpoint._json_checksum(state)})
    with caplog.at_level(logging.INFO):
        run("phase1", phase1=9)
    assert "as with another seed: torch 2.0 there" in caplog.text and "checkpoint of step 5" in caplog.text


def test_difference_lists_keys_with_both_values():
    there, here = {"a": {"b": 1, "c": 2}, "d": 3}, {"a": {"b": 1, "c": 5}, "e": None}
    assert difference(there, here) == "a.c 2 there, 5 here; d 3 there, not set here; e not set there, None here"
    assert difference(there, there) == ""


def test_checkpointer_invalid_minutes_are_rejected(study, monkeypatch):
    for wrong in ("soon", "-1", "nan"):
        monkeypatch.setenv("PIPELINE_CHECKPOINT_MINUTES", wrong)
        with pytest.raises(PipelineError, match="invalid number of minutes"):
            Checkpointer("phase1", {}, {}, single_process(), StopRequest())


@pytest.mark.parametrize(
    ("folder", "root"),
    [("study", "checkpoints"), ("study/.dvc/tmp/exps/tmpab12", "{}/study/checkpoints"), ("tmp/exps/a", "checkpoints")],
)
def test_checkpoint_root_of_dvc_experiment_is_main_checkout(tmp_path, folder, root):
    """DVC deletes the experiment's folder when it is stopped."""
    assert checkpoint.checkpoint_root(tmp_path / folder) == Path(root.format(tmp_path))


@pytest.mark.parametrize(
    ("setting", "root"),
    [("scratch", "{}/study/scratch"), ("/scratch/mine", "/scratch/mine"), ("", "{}/study/checkpoints")],
)
def test_checkpoint_root_that_user_sets_is_outside_the_experiment(tmp_path, setting, root):
    folder = tmp_path / "study/.dvc/tmp/exps/tmpab12"
    assert checkpoint.checkpoint_root(folder, setting) == Path(root.format(tmp_path))


def test_check_settings_unwritable_root_is_rejected(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    for wrong in ("/proc/x", "file", "file/below"):
        monkeypatch.setattr(checkpoint, "ROOT", Path(wrong))
        with pytest.raises(PipelineError, match="checkpoints cannot be written"):
            run("phase1", phase1=9)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
