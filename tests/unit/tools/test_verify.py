"""Tool ``verify``: models that are not as the study saved them are found, for every objective."""

import shutil
from pathlib import Path

import pytest

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import read_json, write_json
from pipeline_src.engine.dvc_lock import HEADER
from pipeline_src.examples.build_examples import run as plan_examples
from pipeline_src.tools import verify as tool
from tests.stress import swaps
from tests.unit.pretrain.conftest import study as small_study
from tests.unit.pretrain.small import EXAMPLES, PAIRS, WAYS, build_teacher
from tests.unit.pretrain.small import train_phase as run

PHASE1 = Path("models/pretrained/phase1")
IN_CI = [way if way in ("mlm", "disentangled") else pytest.param(way, marks=pytest.mark.slow) for way in WAYS]


__all__ = ["small_study"]


@pytest.fixture
def study(small_study):
    Path("machine.yaml").write_text("pretrain: {threads: 1}\n")
    return small_study


@pytest.mark.parametrize("way", IN_CI)
def test_verify_intact_models_of_each_objective_are_ok(study, way, capsys):
    if "teacher" in WAYS[way]:
        build_teacher(study)
    if way in PAIRS:
        plan_examples(seed=1, examples=EXAMPLES.model_copy(update={"pair_objective": PAIRS[way]}))
    for phase in ("phase1", "phase2"):
        run(phase, **{"phase1": 6, "keep_checkpoint_steps": (2, 4, 9), **WAYS[way]})
    ledgers = tool.read_ledgers()
    for folder in (PHASE1 / "steps/2", PHASE1 / "steps/4", PHASE1, Path("models/pretrained/phase2")):
        assert tool.verify(folder, ledgers).is_ok
    copy = shutil.copytree(PHASE1 / "steps/4", study / "copy", ignore=shutil.ignore_patterns("training_state"))
    assert tool.verify(copy, ledgers, 4).is_ok
    assert not tool.verify(copy, ledgers, 2).is_ok


def test_verify_random_damage_is_found(capsys):
    assert swaps.main(["--cases", "12", "--seed", "3"]) == 0, capsys.readouterr().out


@pytest.fixture
def trained(study):
    run("phase1", phase1=4, keep_checkpoint_steps=(2,))
    return study


def test_verify_starts_replay_from_intact_model_and_exits_with_2_for_damaged(trained, call, capsys):
    (PHASE1 / "steps/2/model.safetensors").write_bytes(b"")
    assert call(tool, PHASE1, PHASE1 / "steps/2") == 2
    one, two = capsys.readouterr().out.splitlines()
    assert one.endswith("phase1: ok: 4 steps replayed from step 0 give the same files")
    assert "steps/2: differs: model.safetensors has 0 bytes, not" in two
    assert call(tool, PHASE1) == 0


@pytest.mark.parametrize(
    ("spoil", "given", "message"),
    [
        (lambda: None, ["models/nowhere"], "no such model folder: models/nowhere"),
        (lambda: None, ["data"], "the path does not end in a step number: data"),
        (lambda: None, [PHASE1, "--step", "3"], "no model of that step: 3\n.*\n  hint: give --step one of 2, 4"),
        (lambda: shutil.rmtree("results"), [PHASE1], "no training ledger found"),
        (lambda: edit("results/pretrain/phase1.json", ledger=3), [PHASE1], "ledger is 3, not an object"),
        (lambda: edit("data/tokens/manifest.json", more=1), [PHASE1], "its conditions differ: data.tokens \\w+ there"),
        (lambda: Path("machine.yaml").unlink(), [PHASE1], "its conditions differ: threads 1 there, 2 here"),
        (lambda: mix(), [PHASE1], "its conditions differ: mixed True there, False here"),
        (lambda: record_code(), [PHASE1], "its conditions differ: code of pretrain\n"),
        (lambda: flip("data/tokens/train.ids"), [PHASE1], "training data was changed after it was written"),
    ],
)
def test_verify_other_conditions_are_rejected(trained, call, spoil, given, message):
    spoil()
    with pytest.raises(PipelineError, match=message):
        call(tool, *given)


def mix() -> None:
    ledger = read_json("results/pretrain/phase1.json")["ledger"]
    ledger["machine"]["mixed"] = True
    edit("results/pretrain/phase1.json", ledger=ledger)


def record_code() -> None:
    outputs = "    outs:\n    - path: models/pretrained/phase1\n      md5: '0'\n"
    entry = f"  pretrain_phase1:\n    deps:\n    - path: code/pretrain\n      md5: '1'\n{outputs}"
    Path("dvc.lock").write_text(f"{HEADER}{entry}")


def edit(path: str, **values) -> None:
    write_json(path, read_json(path) | values)


def flip(path: str) -> None:
    content = bytearray(Path(path).read_bytes())
    content[100] ^= 1
    Path(path).write_bytes(content)
