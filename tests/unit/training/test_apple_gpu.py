"""Apple's GPU (``mps``): every operator of a step has a kernel there, those of torch's own backward pass aside.

torch's own table of operators, which its wheel carries for every platform, says for which devices there are kernels.
No number is computed, and no such GPU has been tried.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
import torch
import torchgen
import yaml

from pipeline_src.base.errors import PipelineError
from pipeline_src.training.distributed import choose_precision, init_distributed, single_process
from tests.unit.training.fake_gpu import objective_of, step_on_fake_gpu
from tests.unit.training.test_gpu_smoke import CASES, batches

ROOT = Path(__file__).resolve().parents[3]
# One kernel in torch serves every device, or there is a view or a copy and nothing to compute
ANY_DEVICE = {"CompositeExplicitAutograd", "CompositeImplicitAutograd", "CompositeExplicitAutogradNonFunctional"}
# They read counts on the host in the middle of a step, as on a CPU, which a tensor without numbers cannot answer
READS_COUNTS = {"bilstm", "deberta", "deberta_v2", "bilm"}


@cache
def kernels() -> dict[str, set[str]]:
    """Return operator -> devices for which torch has a kernel."""
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
    """Return the operators, such as ``mm.default``, that have no kernel on ``mps``."""
    lacking = set()
    for operator in operators:
        if operator.startswith("prim."):  # asks a tensor for its device
            continue
        name = operator.removesuffix(".default")
        keys = kernels().get(name)
        if keys is None or not keys & {"MPS", *ANY_DEVICE}:
            lacking.add(name)
    return lacking


@pytest.mark.slow
@pytest.mark.skipif(torch.version.cuda is not None, reason="a CUDA build asks for its driver")
@pytest.mark.parametrize("case", [case for case in CASES if case[1] not in READS_COUNTS], ids=",".join)
def test_training_step_operators_have_mps_kernels_and_no_float64(case):
    watch, steps = step_on_fake_gpu(objective_of(*case, attention="padded"), batches()[:2], device="mps:0")
    operators = [name for step in steps for name, _ in step]
    assert operators and torch.float64 not in watch.dtypes
    assert missing(operators) == set()


def test_missing_operator_without_mps_kernel_is_returned():
    assert missing(["mm.default", "view.default", "add.Tensor"]) == set()
    unknown = ["_flash_attention_forward", "no_such_thing"]
    assert missing([f"{name}.default" for name in unknown]) == set(unknown)


@pytest.mark.skipif(torch.backends.mps.is_available(), reason="this machine has one")
def test_single_process_mps_unavailable_is_rejected():
    with pytest.raises(PipelineError, match="finds no Apple GPU"):
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
