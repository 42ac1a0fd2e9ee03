"""Apple's GPU (``mps``), rehearsed without one: every operator of a training step has a kernel there.

torch's own table of operators, which its wheel carries for every platform, says for which devices there are kernels.
No number is computed, and no such GPU has been tried.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import torchgen
import yaml

from pipeline_src.base.errors import PipelineError
from pipeline_src.training.distributed import choose_precision, init_distributed, single_process

ROOT = Path(__file__).resolve().parents[3]
# One kernel in torch serves every device, or there is a view or a copy and nothing to compute
ANY_DEVICE = {"CompositeExplicitAutograd", "CompositeImplicitAutograd", "CompositeExplicitAutogradNonFunctional"}
# They read counts on the host in the middle of a step, as on a CPU, which a tensor without numbers cannot answer
NOT_REHEARSED = {"mlm, bilstm", "mlm, deberta", "mlm, deberta_v2", "bilm"}


@cache
def kernels() -> dict[str, set[str]]:
    """Operator -> devices that it has a kernel for."""
    table = Path(torchgen.__file__).parent / "packaged/ATen/native/native_functions.yaml"
    entries = yaml.load(table.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    result: dict[str, set[str]] = {}
    delegates: dict[str, str] = {}
    for entry in entries:
        name = entry["func"].partition("(")[0]
        listed = {key for keys in entry.get("dispatch", {"CompositeImplicitAutograd": ""}) for key in keys.split(", ")}
        result[name] = listed
        if "structured_delegate" in entry:
            delegates[name] = entry["structured_delegate"]
    for name, other in delegates.items():
        result[name] = result[name] | result[other]
    return result


def missing(operators: list[str]) -> set[str]:
    """Those of the operators, such as ``mm.default``, that no kernel runs on ``mps``."""
    lacking = set()
    for operator in operators:
        if operator.startswith("prim."):  # asks a tensor for its device
            continue
        name = operator.removesuffix(".default")
        keys = kernels().get(name)
        if keys is None or not keys & {"MPS", *ANY_DEVICE}:
            lacking.add(name)
    return lacking


def rehearsed(kind: str) -> list[dict[str, Any]]:
    program = "from tests.unit.training.rehearsal import rehearse; rehearse()"
    environment = os.environ | {"PRETENDED_DEVICE": "mps:0", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", program, kind], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


@pytest.mark.slow
@pytest.mark.skipif(torch.version.cuda is not None, reason="a CUDA build asks for its driver")
@pytest.mark.parametrize("kind", ["pretraining", "family", "finetuning"])
def test_training_step_operators_have_mps_kernels_and_no_float64(kind):
    cases = [case for case in rehearsed(kind) if case["case"] not in NOT_REHEARSED]
    assert len(cases) >= 7
    for case in cases:
        assert not case["refused"], case
        assert case["operators"] and "torch.float64" not in case["kinds"], case["case"]
        assert missing(case["operators"]) == set(), case["case"]


def test_missing_names_operators_without_mps_kernel():
    assert missing(["mm.default", "view.default", "add.Tensor"]) == set()
    assert missing(["_flash_attention_forward.default", "no_such_thing.default"]) == {
        "_flash_attention_forward", "no_such_thing"
    }  # fmt: skip


@pytest.mark.skipif(torch.backends.mps.is_available(), reason="this machine has one")
def test_single_process_mps_unavailable_is_rejected():
    with pytest.raises(PipelineError, match="finds no GPU of Apple's"):
        single_process("auto", "mps")


def test_init_distributed_mps_with_two_processes_is_rejected(monkeypatch):
    launched = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}
    for name, value in launched.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(PipelineError, match="several processes cannot share"), init_distributed("auto", "mps"):
        pass


def test_choose_precision_mps_is_float32():
    mps = torch.device("mps")
    assert choose_precision("auto", mps) == torch.float32
    with pytest.raises(PipelineError, match="float32"):
        choose_precision("bfloat16", mps)
