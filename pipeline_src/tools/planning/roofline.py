"""A roofline model of a training step on a GPU: what its arithmetic and its traffic take at a share of the datasheet's.

Roofline (Williams, Waterman and Patterson 2009): no kernel is faster than its arithmetic at the chip's best rate, nor
than its bytes at the memory's. Here a matrix product takes the longer of both, attention their sum, and what
torch.compile fuses between them its bytes. The host launches meanwhile, and gradients are summed behind the backward
pass. Nothing of it was measured by this project: where no source stands beside a constant, it is an estimate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from pipeline_src.tools.planning.model_sizes import ModelSizes
from pipeline_src.training.datasheet import Chip

# Share of the peak that products of bfloat16 reach, by the root of their inputs times their outputs; 8192 wide, H200s
# reach 0.80 of it.
PRODUCTS = {128: 0.12, 256: 0.24, 512: 0.46, 768: 0.62, 1024: 0.68, 1536: 0.77, 4096: 0.80}
UNALIGNED = 0.2  # of that, where a width is no multiple of 8, which Hopper's and Ampere's fast kernels ask for
# Share of the peak that flash attention with dropout reaches, both ways, by length; without dropout, FlashAttention-2
# reaches 0.17 at 512 and 0.3 at 2048 on H100 with heads of 64 (Dao 2023, figure 5).
ATTENTION = {64: 0.06, 128: 0.09, 512: 0.20, 2048: 0.28}
MEMORY = 0.88  # share of the memory's bandwidth that element-wise kernels reach
LINK = 0.8  # share of the way to other GPUs that NCCL's sums of 100 MB and more reach
MACHINE_GPUS, ADAPTER = 8, 25.0  # GPUs of a machine, and GB/s of each one's network adapter (200 Gbit/s); assumed
# Host seconds: of a step, and of a block in each piece of a batch, compiled or as written.
HOST_STEP, HOST_COMPILED, HOST_EAGER = 0.0025, 0.0006, 0.0015
HALF, SINGLE = 2, 4  # bytes of bfloat16 and float32
OPTIMISER = 40  # bytes a parameter and step: AdamW reads 16 and writes 12; the norm of the gradients, clipping
WEIGHTS = 20  # bytes a parameter and piece: bfloat16 copies made and read twice, gradients added up
EMBEDDINGS = 60  # bytes a token and unit of width: three rows, their sum, LayerNorm, dropout; gradients scattered
QKV = 12 * HALF  # bytes a token and unit of width: attention reads three and writes one, then reads five, writes three
SCORES = 9 * HALF  # bytes a score of the head: written, read by the loss and its gradient, the gradient read thrice


@dataclass(frozen=True)
class Design:
    """What of the model's code decides its traffic.

    Attributes:
        residual: bytes of a number of the residual stream.
        fused: whether queries, keys and values are one product; else three.
        aligned: whether the head's rows are padded to a multiple of 64.
    """

    residual: int = HALF
    fused: bool = True
    aligned: bool = True


BUILT = Design()


@dataclass(frozen=True)
class Work:
    """What one GPU does in one step.

    Attributes:
        model: its sizes.
        tokens: real ones.
        length: of a sequence: the sum of squared lengths over the sum of lengths.
        predictions: predicted tokens.
        rows: tokens of which what the last block makes is read; None reads all.
        pieces: that its part of the batch is cut into.
        compiled: by torch.compile.
        parameters: of all that is trained; 0 for those of BERT of the model's sizes.
        over_bert: FLOPs over those of BERT of these sizes. What its blocks take grows with them.
    """

    model: ModelSizes
    tokens: float
    length: float
    predictions: float
    rows: float | None = None
    pieces: int = 1
    compiled: bool = True
    parameters: int = 0
    over_bert: float = 1.0


@dataclass(frozen=True)
class StepTime:
    """Seconds of a step by what takes them.

    Attributes:
        products: of the blocks.
        attention: between their queries, keys and values.
        element_wise: LayerNorm, dropout, GELU and biases of the blocks; the embeddings.
        head: transform, scores and loss.
        parameters: gradients added up, clipped and used.
        host: to launch all of it, beside the GPU's work.
        ideal: what the step's FLOPs alone take at the peak.
        exposed: of what GPUs send each other, what their work does not hide.
    """

    products: float
    attention: float
    element_wise: float
    head: float
    parameters: float
    host: float
    ideal: float
    exposed: float = 0.0

    @property
    def gpu(self) -> float:
        """What one GPU computes."""
        return self.products + self.attention + self.element_wise + self.head + self.parameters

    @property
    def seconds(self) -> float:
        """Of the whole step."""
        return max(self.gpu, self.host) + self.exposed

    @property
    def mfu(self) -> float:
        """Model FLOPs utilisation."""
        return self.ideal / self.seconds


def step_time(work: Work, chip: Chip, gpus: int = 1, design: Design = BUILT, sharding: str = "none") -> StepTime:
    """What a step takes that ``gpus`` take together, each with its own ``work``.

    Args:
        work, chip, gpus, design: of it.
        sharding: what is spread over the GPUs, as machine.yaml has it.
    """
    model, tokens, bandwidth = work.model, work.tokens, MEMORY * chip.memory * 1e9
    width, inner, layers = model.hidden_size, model.intermediate_size, model.num_hidden_layers
    projections = [(width, 3 * width)] if design.fused else [(width, width)] * 3
    products = [*projections, (width, width), (width, inner), (inner, width)]
    used = 1.0 if work.rows is None else work.rows / tokens  # of the last block, which makes keys and values of all
    blocks = layers - 1 + used
    keys_and_values = (1 - used) * product_time(chip, width, 2 * width, tokens)
    attended = 12 * blocks * width * work.length * tokens  # FLOPs, as models/flops.py counts them
    transform = product_time(chip, width, width, work.predictions)
    scores = product_time(chip, width, model.vocab_size, work.predictions) / (1 if design.aligned else UNALIGNED)
    held, like_bert = work.parameters or model.parameters, work.over_bert
    updated = held if sharding == "none" else held / gpus
    in_blocks = blocks * sum(product_time(chip, *product, tokens) for product in products) + keys_and_values
    attention = attended / attention_rate(chip, work.length) + QKV * width * blocks * tokens / bandwidth
    element_wise = (blocks * _block_bytes(width, inner, design) + EMBEDDINGS * width) * tokens / bandwidth
    one = StepTime(
        products=like_bert * in_blocks,
        attention=like_bert * attention,
        element_wise=like_bert * element_wise,
        head=transform + scores + SCORES * model.vocab_size * work.predictions / bandwidth,
        parameters=(OPTIMISER * updated + WEIGHTS * work.pieces * held) / bandwidth,
        host=HOST_STEP + (HOST_COMPILED if work.compiled else HOST_EAGER) * layers * work.pieces,
        ideal=like_bert * model.flops(tokens, work.length, work.predictions, work.rows) / (chip.teraflops * 1e12),
    )
    return one if gpus == 1 else replace(one, exposed=EXPOSED[sharding](one, work, chip, gpus))


def product_time(chip: Chip, inputs: int, outputs: int, rows: float) -> float:
    """Seconds of a linear layer on ``rows`` rows, forward and both gradients: arithmetic or traffic, the longer."""
    arithmetic = 6 * inputs * outputs * rows / product_rate(chip, inputs, outputs)
    traffic = 3 * HALF * (inputs + outputs) * rows / (MEMORY * chip.memory * 1e9)
    return max(arithmetic, traffic)


def product_rate(chip: Chip, inputs: int, outputs: int) -> float:
    """FLOP/s of products of many rows, bfloat16."""
    return by_size(PRODUCTS, math.sqrt(inputs * outputs)) * chip.teraflops * 1e12


def attention_rate(chip: Chip, length: float) -> float:
    """FLOP/s of flash attention with dropout, both ways, on sequences of that length."""
    return by_size(ATTENTION, length) * chip.teraflops * 1e12


def all_reduce_time(chip: Chip, gpus: int, size: float) -> float:
    """Seconds of a ring's sum of ``size`` bytes over that many GPUs; over several machines at their adapters' rate."""
    link = chip.link if gpus <= MACHINE_GPUS else min(chip.link, MACHINE_GPUS * ADAPTER)
    return 2 * (gpus - 1) / gpus * size / (LINK * link * 1e9)


def by_size(table: dict[int, float], size: float) -> float:
    """Between two sizes of the table on the line of the logarithms; beyond its ends the end's."""
    known = sorted(table)
    size = min(max(size, known[0]), known[-1])
    below = max(n for n in known if n <= size)
    above = min(n for n in known if n >= size)
    if below == above:
        return table[below]
    share = math.log(size / below) / math.log(above / below)
    return table[below] * (table[above] / table[below]) ** share


def _block_bytes(width: int, inner: int, design: Design) -> float:
    """Bytes that the element-wise kernels of a block move for one token, both ways."""
    stream, copy = design.residual, HALF * (design.residual != HALF)  # what products read is bfloat16 anyway
    # forward: projection, residual, mask; sum kept, result, its copy. Backward: gradients of both, what was kept,
    # mask; gradients to both; gain and bias of LayerNorm read theirs again.
    add_and_norm = (HALF + stream + 1 + 2 * stream + copy) + (stream + HALF + stream + 1 + stream + HALF + 2 * stream)
    gelu = 5 * HALF * inner
    biases = HALF * (5 * width + inner)
    projections = 0 if design.fused else 4 * HALF * width  # inputs' gradients added up
    return 2 * add_and_norm * width + gelu + biases + projections


def _summed(one: StepTime, work: Work, chip: Chip, gpus: int) -> float:
    """What the backward pass does not hide of summing float32 gradients; the embeddings' come at its end."""
    whole, last = (all_reduce_time(chip, gpus, size) for size in _sent(work))
    return max(last, whole - 2 / 3 * _computing(one))


def _gathered_once(one: StepTime, work: Work, chip: Chip, gpus: int) -> float:
    """Weights are gathered behind the forward pass, the embeddings' before it, and gradients sent once behind the last.

    Either sends half of what a sum does.
    """
    whole, last = (all_reduce_time(chip, gpus, size) / 2 for size in _sent(work))
    forward, backward = _computing(one) / 3 / work.pieces, 2 / 3 * _computing(one) / work.pieces
    return max(last, whole - forward) + max(last, whole - backward)


def _gathered_often(one: StepTime, work: Work, chip: Chip, gpus: int) -> float:
    """As :func:`_gathered_once`, for each piece of the batch, and weights once more behind the backward pass."""
    whole, last = (all_reduce_time(chip, gpus, size) / 2 for size in _sent(work))
    forward, backward = _computing(one) / 3 / work.pieces, 2 / 3 * _computing(one) / work.pieces
    return work.pieces * (max(last, whole - forward) + max(last, 2 * whole - backward))


EXPOSED = {"none": _summed, "optimiser": _gathered_once, "full": _gathered_often}  # by machine.yaml's sharding


def _sent(work: Work) -> tuple[float, float]:
    """Bytes of float32 numbers: of all parameters, and of the embeddings, which nothing hides."""
    model = work.model
    return SINGLE * (work.parameters or model.parameters), SINGLE * model.hidden_size * model.vocab_size


def _computing(one: StepTime) -> float:
    """Seconds of forward and backward passes."""
    return max(one.gpu - one.parameters, one.host)
