"""Whether a kernel of each kind that training launches runs here, and computes what plain arithmetic does."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor

from pipeline_src.models.attention import attention
from pipeline_src.models.bert import Block
from pipeline_src.models.packed_layout import PackedLayout
from pipeline_src.tools.doctor.accelerator import Accelerator
from pipeline_src.tools.doctor.finding import OK, PROBLEM, WARNING, Finding
from pipeline_src.training.optimiser import make_optimiser

CLOSE = 0.02  # largest error over the largest value: bfloat16 has 8 bits
LENGTHS = (17, 64, 3, 41)  # of the sequences that kernels are tried with, no two alike
WRONG = "its figures are wrong: train nothing here, and paste this into an issue"


def product(accelerator: Accelerator) -> Finding:
    """A matrix product, of bfloat16 on a GPU."""

    def error() -> float:
        left, right = _random(accelerator, 2, 128, 128)
        half = left.to(accelerator.dtype) @ right.to(accelerator.dtype)
        return _error(half, left @ right)

    return _tried(accelerator, "product", f"of {_short(accelerator.dtype)}", error)


def attention_kernel(accelerator: Accelerator) -> Finding:
    """Attention over sequences without padding, beside the one that pads; then with dropout and its gradients."""

    def error() -> float:
        config, dtype = accelerator.config, accelerator.dtype
        heads, size = config.num_attention_heads, config.hidden_size // config.num_attention_heads
        places = torch.tensor([0, *LENGTHS], device=accelerator.device).cumsum(0)
        layout = PackedLayout.of(places, sum(LENGTHS), max(LENGTHS))
        wide = _random(accelerator, 3, sum(LENGTHS), heads, size)
        narrow = wide.to(dtype, copy=True).requires_grad_()
        wanted = attention(wide[0], wide[1], wide[2], layout, back_end="padded")
        q, k, v = narrow.unbind()
        found = attention(q, k, v, layout, back_end=accelerator.machine.attention)
        dropped = attention(q, k, v, layout, dropout=0.1, back_end=accelerator.machine.attention)
        dropped.float().square().sum().backward()
        return _error(found, wanted) if narrow.grad is not None and narrow.grad.isfinite().all() else float("inf")

    return _tried(accelerator, "attention", f"{accelerator.machine.attention}, forward and back", error)


def optimiser(accelerator: Accelerator) -> Finding:
    """A fused step of AdamW, beside one that is not fused."""

    def error() -> float:
        layers = [torch.nn.Linear(64, 64, device=accelerator.device) for _ in range(2)]
        layers[1].load_state_dict(layers[0].state_dict())
        rows = _random(accelerator, 8, 64)
        for layer in layers:
            layer(rows).square().sum().backward()
        make_optimiser(layers[0], 0.01, 0.0).step()
        torch.optim.AdamW(layers[1].parameters(), 0.01, eps=1e-6, weight_decay=0.0, foreach=False).step()
        return _error(layers[0].weight, layers[1].weight)

    return _tried(accelerator, "optimiser", "fused AdamW", error)


def compiler(accelerator: Accelerator) -> Finding:
    """A block of the encoder through torch.compile, forward and back, beside the same block as it is written."""
    if not accelerator.on_gpu:
        return Finding("compile", OK, "not tried: training compiles on a GPU alone")
    began = time.perf_counter()

    def error() -> float:
        block = Block(accelerator.config).to(accelerator.device).eval()
        layout = PackedLayout.of(torch.tensor([0, 64, 128], device=accelerator.device), 128, 64)
        hidden = _random(accelerator, 128, accelerator.config.hidden_size)
        with torch.autocast("cuda", torch.bfloat16):
            wanted = block(hidden, layout)
            block.compile(dynamic=True)
            found = block(hidden, layout)
        found.float().sum().backward()
        return _error(found, wanted)

    remedy = "install gcc or clang, which it needs; or set compile: false in machine.yaml"
    found = _tried(accelerator, "compile", "a block, forward and back", error, remedy, WARNING)
    if found.state != OK:
        return found
    return Finding("compile", OK, f"{found.found}; {time.perf_counter() - began:.0f} s, the compiler's own start in it")


def _tried(
    accelerator: Accelerator,
    check: str,
    what: str,
    error: Callable[[], float],
    remedy: str = "paste this into an issue; an older driver than torch asks for is the usual reason",
    state: str = PROBLEM,
) -> Finding:
    """What came of a kernel: how far it is from what it should give, or why it does not run."""
    try:
        apart = error()
        accelerator.wait()
    except Exception as reason:  # whatever a driver, a compiler or torch may raise
        first = str(reason).strip().partition("\n")[0]
        return Finding(check, state, f"{what}: does not run: {type(reason).__name__}: {first[:200]}", remedy)
    if not apart <= CLOSE:
        return Finding(check, PROBLEM, f"{what}: {apart:.1%} from what it should give", WRONG)
    return Finding(check, OK, f"{what}: runs, {apart:.2%} from plain arithmetic")


def _random(accelerator: Accelerator, *shape: int) -> Tensor:
    generator = torch.Generator(accelerator.device).manual_seed(0)
    return torch.randn(*shape, device=accelerator.device, generator=generator)


def _error(found: Tensor, wanted: Tensor) -> float:
    found, wanted = found.detach().float(), wanted.detach().float()
    return float((found - wanted).abs().max() / wanted.abs().max())


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
