"""FLOPs equal published and measured numbers, and the compute tracker counts correctly."""

import json
from functools import partial

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from pipeline_src.model.bert import BertConfig, BertForPretraining
from pipeline_src.model.flops import Workload, training_flops
from pipeline_src.training.throughput import (
    ComputeTracker,
    Peak,
    datasheet_tflops,
    normalised_computation,
    peak_flops,
)
from tests.growth import count_python_lines

TINY = BertConfig(97, 32, 3, 4, 80, hidden_dropout_prob=0.0)
BASE = BertConfig(30_522, 768, 12, 12, 3072)
CPU = torch.device("cpu")


def every_row(sequences: int, tokens: int, squares: int, predictions: int) -> Workload:
    """Return the workload of a model whose last block computes every token."""
    return Workload(sequences, tokens, squares, predictions, tokens, squares)


def test_training_flops_equal_torch_flop_counter_on_bert():
    """torch counts the forward and backward pass of the real model on sequences without padding."""
    sequences, length, predictions = 6, 16, 9
    model = BertForPretraining(TINY)
    ids = torch.arange(sequences * length) % 97
    starts = torch.arange(sequences + 1) * length
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        words, pairs = model(ids, torch.zeros_like(ids), starts, torch.arange(predictions) * 7)
        (words.sum() + pairs.sum()).backward()
    pooler = 6 * (TINY.hidden_size**2 + 2 * TINY.hidden_size) * sequences  # left out by the formula, and said so
    counted = training_flops(TINY, every_row(sequences, sequences * length, sequences * length**2, predictions))
    assert counter.get_total_flops() == counted + pooler
    assert pooler / counted < 0.01


def test_training_flops_of_published_bert_run_equal_known_numbers():
    """1 M steps of 256 sequences, 90 % at length 128 and 10 % at 512, with 15 % predicted."""
    short, long = 900_000 * 256, 100_000 * 256
    tokens = short * 128 + long * 512
    flops = training_flops(BASE, every_row(short + long, tokens, short * 128**2 + long * 512**2, int(0.15 * tokens)))
    assert tokens == pytest.approx(42.6e9, rel=1e-3)
    assert flops == pytest.approx(2.3e19, rel=0.05)


def counted(lengths: list[int], predictions: int) -> Workload:
    """Return the workload of a step on sequences of these lengths."""
    return every_row(len(lengths), sum(lengths), sum(length**2 for length in lengths), predictions)


def test_normalised_computation_of_bert_equals_published_numbers():
    assert normalised_computation(110e6, 1_000_000, 128_000) == pytest.approx(1.408e19, rel=1e-12)
    assert normalised_computation(340e6, 1_000_000, 128_000) == pytest.approx(4.352e19, rel=1e-12)


@pytest.mark.parametrize(
    ("name", "tflops"),
    [
        ("NVIDIA H200", 989),
        ("NVIDIA H100 80GB HBM3", 989),
        ("NVIDIA H100 PCIe", 756),
        ("NVIDIA L4", 121),
        ("NVIDIA RTX A6000", 154.8),
        ("NVIDIA GeForce RTX 3090 Ti", 80),
    ],
)
def test_datasheet_tflops_listed_gpu_is_found_by_name(name, tflops):
    assert datasheet_tflops(name) == tflops


@pytest.mark.parametrize(
    "name",
    ["NVIDIA RTX A1000", "NVIDIA H100 80GB HBM3 MIG 3g.40gb", "NVIDIA GeForce RTX 4090 Laptop GPU", "GRID T4-16Q", ""],
)
def test_datasheet_tflops_unlisted_gpu_is_none(name):
    assert datasheet_tflops(name) is None


def test_peak_flops_on_cpu_is_measured_and_keeps_random_state():
    before = torch.random.get_rng_state()
    result = peak_flops(CPU, torch.float32)
    assert 1e8 < result.flops < 1e14 and "float32 matrix product measured" in result.source
    assert torch.equal(before, torch.random.get_rng_state())


def test_peak_flops_measures_given_precision():
    assert "bfloat16 matrix product measured" in peak_flops(CPU, torch.bfloat16).source


class Clock:
    """Fake clock, and the peak of a GPU of 1 GFLOP/s."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def tracker(self, earlier=None, **more) -> ComputeTracker:
        more = {"device": torch.device("meta"), "peak": Peak(1e9, "a test"), "clock": self} | more
        return make_tracker(earlier, **more)


@pytest.fixture
def clock() -> Clock:
    return Clock()


def make_tracker(earlier=None, device=CPU, **more):
    tracker = ComputeTracker(TINY, device, precision=torch.float32, parameters=1000, tokens_per_batch=64, **more)
    if earlier is not None:
        tracker.load_state(earlier)
    return tracker


def test_throughput_counts_training_time_since_last_call(clock):
    counts = clock.tracker(processes=2)
    counts.add(counted([10, 20], 4))
    clock.now += 2
    first = counts.throughput()
    flops = training_flops(TINY, counted([10, 20], 4))
    assert first == pytest.approx({"tokens_per_second": 15.0, "mfu": flops / (2 * 2e9)})
    counts.add(counted([60], 1))
    clock.now += 1
    with counts.aside():
        clock.now += 50
    clock.now += 1
    assert counts.throughput()["tokens_per_second"] == pytest.approx(30.0)
    measured = counts.measured()
    assert (measured["seconds"], measured["training_seconds"]) == pytest.approx((54, 4))
    assert measured["tokens_per_second"] == pytest.approx(90 / 4)
    assert measured["mfu"] == pytest.approx(measured["flops"] / (4 * 2e9))
    assert measured["peak_memory"] > 1e6


@pytest.mark.parametrize("read", ["throughput", "measured", "state"])
def test_aside_counts_read_meanwhile_have_no_training_time(clock, read):
    """The curve, checkpoints and the results read the counts while they validate or save."""
    counts = clock.tracker()
    counts.add(counted([10, 20], 4))
    clock.now += 2
    with counts.aside():
        clock.now += 50
        getattr(counts, read)()
        clock.now += 5
    measured = counts.measured()
    assert (measured["seconds"], measured["training_seconds"]) == pytest.approx((57, 2))
    assert measured["tokens_per_second"] == pytest.approx(15.0)
    assert measured["mfu"] == pytest.approx(measured["flops"] / (2 * 1e9))


def test_throughput_on_cpu_has_no_mfu(clock):
    counts = clock.tracker(device=CPU)
    counts.add(counted([10, 20], 4))
    clock.now += 2
    assert counts.throughput() == {"tokens_per_second": 15.0}


def test_throughput_excludes_steps_in_which_torch_compiles(clock):
    """A real compiled module has two graphs, one of them for batches of one sequence."""

    class Layer(torch.nn.Linear):
        def forward(self, rows):
            return torch.nn.functional.gelu(super().forward(rows))

    layer = Layer(8, 8)
    layer.compile(backend="eager", dynamic=True)
    layer(torch.zeros(7, 8))  # before the tracker was made, such as by the phase before
    torch._dynamo.reset()
    counts = clock.tracker()
    step = counted([10, 20], 4)
    rows = []
    for size, seconds in ((4, 50), (4, 2), (5, 2), (1, 30), (6, 2)):
        layer(torch.zeros(size, 8))
        clock.now += seconds
        counts.add(step)
        rows.append(counts.throughput())
    assert [row.get("tokens_per_second") for row in rows] == [None, 15, 15, None, 15]
    assert rows[0] == {} and rows[1]["mfu"] == pytest.approx(training_flops(TINY, counted([10, 20], 4)) / 2e9)
    measured = counts.measured()
    assert (measured["compile_steps"], measured["compile_seconds"]) == (2, 80)
    assert (measured["seconds"], measured["training_seconds"]) == (86, 6)
    assert measured["tokens_per_second"] == pytest.approx(15) and measured["mfu"] == pytest.approx(rows[1]["mfu"])
    assert counts.deterministic()["steps"] == 5 and counts.deterministic()["tokens"] == 150
    resumed = clock.tracker(json.loads(json.dumps(counts.state()))).measured()
    assert resumed["compile_seconds"] == 80 and resumed["tokens_per_second"] == pytest.approx(15)


def test_aside_compilation_during_validation_keeps_step_in_rates(clock):
    counts = clock.tracker()
    with counts.aside():
        clock.now += 40
        torch.compile(lambda rows: rows + 1, backend="eager")(torch.zeros(3))
    clock.now += 2
    counts.add(counted([30], 4))
    assert counts.throughput()["tokens_per_second"] == pytest.approx(15)
    assert counts.measured()["compile_steps"] == 0


def test_load_state_resumed_run_has_counts_of_uninterrupted_run(clock):
    full, first = clock.tracker(), clock.tracker()
    steps = [counted([10, 20], 4), counted([31], 5), counted([7, 7, 7], 1)]
    for step in steps[:2]:
        full.add(step)
        first.add(step)
    clock.now += 3
    state = json.loads(json.dumps(first.state()))
    first.add(steps[2])  # past the checkpoint, then killed
    clock.now += 1000
    second = clock.tracker(state)
    for one in (full, second):
        one.add(steps[2])
    clock.now += 2
    assert second.deterministic() == full.deterministic()
    assert second.deterministic() == {
        "steps": 3,
        "sequences": 6,
        "tokens": 82,
        "predictions": 10,
        "flops": training_flops(TINY, every_row(6, 82, 10**2 + 20**2 + 31**2 + 3 * 49, 10)),
        "tokens_per_batch": 64,
        "normalised_computation": 1000 * 3 * 64,
    }
    assert second.measured()["seconds"] == pytest.approx(5)


def test_add_executes_same_few_lines_for_any_batch_size(clock):
    """The method runs in every step, so it must take only microseconds."""
    counts = clock.tracker()
    sizes = [counted([128] * sequences, 20 * sequences) for sequences in (1, 256)]
    small, large = (count_python_lines(partial(counts.add, step)) for step in sizes)
    assert small == large < 200


def test_measured_before_first_step_is_valid_json():
    measured = make_tracker().measured()
    assert json.loads(json.dumps(measured, allow_nan=False))["tokens_per_second"] == 0
