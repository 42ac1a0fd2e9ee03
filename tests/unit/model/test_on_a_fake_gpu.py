"""What a GPU is given to compute: shapes, types and devices are real under FakeTensorMode, numbers are not."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from pipeline_src.model import attention
from pipeline_src.model.attention import PackedBatch
from pipeline_src.model.bert import BertConfig, BertForPretraining

GPU = torch.device("cuda", 0)
ENTRIES = 90  # no multiple of 64
CONFIG = BertConfig(ENTRIES, 32, 3, 2, 64, 16)
HALF, FULL, INT32 = torch.bfloat16, torch.float32, torch.int32
pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU: the real thing can run")


class Calls(TorchDispatchMode):
    """Operators that run, with the tensors they take and return."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, list[Tensor], Tensor]] = []

    def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = operator(*args, **(kwargs or {}))
        tensors = [arg for arg in args if isinstance(arg, Tensor)]
        self.seen.append((operator.overloadpacket.__name__, tensors, out[0] if isinstance(out, tuple) else out))
        return out


@pytest.fixture
def fake_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeTensorMode]:
    """A CPU build of torch has no guard of the device ``cuda``; Meta's, which does nothing, stands in for it."""
    c10 = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
    registry = (ctypes.c_void_p * 21).in_dll(c10, "_ZN3c104impl26device_guard_impl_registryE")
    cuda, meta = 1, 14  # c10/core/DeviceType.h
    registry[cuda] = registry[cuda] or registry[meta]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda *of, **what: True)
    monkeypatch.setattr(attention, "can_flash", lambda device, head_size: True)
    with FakeTensorMode(allow_non_fake_inputs=False) as mode:
        yield mode


def build(config: BertConfig) -> BertForPretraining:
    with torch.device("meta"):
        model = BertForPretraining(config)
    for part in model.modules():
        for name, parameter in part._parameters.items():
            if parameter is not None:
                part._parameters[name] = nn.Parameter(torch.empty(parameter.shape, device=GPU))
    model.tie()
    return model


def test_packed_batch_on_gpu_full_and_ragged_have_same_mask_shape(fake_gpu):
    """Else torch.compile makes graphs of both."""
    positions = torch.zeros(5, dtype=torch.int64, device=GPU)
    full, ragged = PackedBatch.of(positions, 4 * 16, 16), PackedBatch.of(positions, 30, 16)
    assert full.keep is not None and ragged.keep is not None
    assert (full.keep.shape, full.keep.device) == (ragged.keep.shape, GPU)


@pytest.mark.parametrize("autocast", [True, False], ids=["autocast", "no autocast"])
def test_bert_on_gpu_shapes_and_types_of_kernels(fake_gpu: FakeTensorMode, autocast: bool) -> None:
    """30 tokens of 4 sequences, 5 of them predicted: one product for query, key and value, and an aligned MLM head."""
    ids, segments, labels, predicted = (torch.zeros(n, dtype=torch.int64, device=GPU) for n in (30, 30, 5, 5))
    model, cu_seqlens = build(CONFIG).train(), torch.zeros(5, dtype=torch.int64, device=GPU)
    with Calls() as calls, torch.autocast("cuda", HALF, enabled=autocast):
        logits, _ = model(ids, segments, cu_seqlens, predicted, 16)
        hidden, _ = model.bert(ids, segments, cu_seqlens, 16)
        loss, _ = model.cls["predictions"].loss(hidden.index_select(0, predicted), labels)
    products = [out.shape for name, _, out in calls.seen if name == "addmm"]
    assert [shape[1] for shape in products if shape[0] == 30] == [
        96,
        32,
        64,
        32,
    ] * 3 * 2  # in two passes
    assert {shape[1] for shape in products if shape[0] == 5} == {32, 128}  # the transform's, and 90 entries made 128
    assert logits.shape == (5, ENTRIES) and logits.dtype == (HALF if autocast else FULL)
    assert loss.shape == () and loss.dtype == FULL
    flash = [(tensors, out) for name, tensors, out in calls.seen if name == "_flash_attention_forward"]
    assert len(flash) == 6
    for tensors, out in flash:
        assert [tensor.dtype for tensor in tensors] == [HALF, HALF, HALF, INT32, INT32] and out.shape == (30, 2, 16)
