"""The roofline model of a training step, against what was worked out beside it and against plain arithmetic."""

from dataclasses import replace

import pytest
import yaml

from pipeline_src.params.study import check_study
from pipeline_src.tools.planning.hardware import CHIPS, Allocation
from pipeline_src.tools.planning.jobs import Jobs
from pipeline_src.tools.planning.model_sizes import ModelSizes
from pipeline_src.tools.planning.rates import compile_seconds, gpu_step
from pipeline_src.tools.planning.roofline import Design, Work, all_reduce_time, product_time, step_time
from pipeline_src.tools.preset import preset_text
from pipeline_src.training.datasheet import DATASHEET, datasheet

BASE, LARGE = ModelSizes(768, 12, 3072, 30_522, 512), ModelSizes(1024, 24, 4096, 30_522, 512)
SINGLE_RESIDUAL = Design(residual=4, fused=False, aligned=False)
H100, H200 = DATASHEET["H100"], DATASHEET["H200"]
OF_BASE, OF_LARGE = Work(BASE, 28_200, 115, 4230, pieces=2), Work(LARGE, 28_200, 460, 4230, pieces=2)


@pytest.mark.parametrize(
    ("work", "chip", "gpus", "design", "tokens", "mfu"),
    [
        (OF_BASE, H100, 1, SINGLE_RESIDUAL, 570e3, 0.31),
        (OF_BASE, H200, 1, SINGLE_RESIDUAL, 660e3, 0.36),
        (Work(BASE, 3525, 115, 529), H100, 8, SINGLE_RESIDUAL, 350e3, 0.19),
        (OF_LARGE, H100, 1, SINGLE_RESIDUAL, 190e3, 0.38),
        (OF_LARGE, H200, 1, SINGLE_RESIDUAL, 213e3, 0.43),
        (OF_BASE, H200, 1, Design(), 830e3, 0.46),
    ],
    ids=["base, H100", "base, H200", "base, 8 H100", "large, H100", "large, H200", "base, H200, as built"],
)
def test_it_gives_the_speeds_of_another_model_worked_out_by_hand(work, chip, gpus, design, tokens, mfu):
    """No measurement: tokens a second a GPU and MFU that a second roofline, kernel by kernel, came to."""
    took = step_time(work, chip, gpus, design)
    assert work.tokens / took.seconds == pytest.approx(tokens, rel=0.05)
    assert took.mfu == pytest.approx(mfu, rel=0.06)


def test_the_estimates_in_the_docs_are_the_models(root):
    """Of presets with the settings of machine.yaml as they come: tokens per second and GPU, and MFU."""
    text = (root / "docs" / "gpu.md").read_text(encoding="utf-8")
    rows = [line.strip("| \n").split(" | ") for line in text.splitlines() if line.startswith("| bert-")]
    assert len(rows) == 4
    for name, *cells in rows:
        preset, length = name.split(", ")
        study = check_study(yaml.safe_load(preset_text(preset)), preset)
        (job,) = Jobs(study, lambda _: None).pretrain("short" if length == "128" else "long")
        each = [(gpus, chip) for gpus in (1, 8) for chip in ("a100", "h100", "h200")]
        for cell, (gpus, chip) in zip(cells, each, strict=True):
            work, took = gpu_step(job, Allocation.on(CHIPS[chip], 1, gpus))
            assert cell == f"{work.tokens / took.seconds / 1e3:.0f}k, {took.mfu:.0%}".replace("%", " %"), (name, chip)


def test_wide_products_are_bound_by_arithmetic_and_narrow_ones_by_memory():
    wide, narrow = (product_time(H100, width, width, 10_000) for width in (4096, 64))
    assert wide == pytest.approx(6 * 4096**2 * 10_000 / (0.8 * 989e12))
    assert narrow == pytest.approx(6 * 128 * 10_000 / (0.88 * 3350e9))


def test_everything_better_is_faster():
    before = step_time(OF_BASE, H100, design=SINGLE_RESIDUAL).seconds
    for change in ({"residual": 2}, {"fused": True}, {"aligned": True}):
        assert step_time(OF_BASE, H100, design=replace(SINGLE_RESIDUAL, **change)).seconds < before
    assert step_time(OF_BASE, H200).seconds < step_time(OF_BASE, H100).seconds


def test_the_last_block_takes_what_its_rows_take():
    """All rows are as none given; no rows leave the keys and values alone."""
    every, none = (step_time(replace(OF_BASE, rows=rows), H100) for rows in (OF_BASE.tokens, 0))
    assert every == step_time(OF_BASE, H100)
    eleven = step_time(replace(OF_BASE, model=replace(BASE, num_hidden_layers=11)), H100)
    assert none.products == pytest.approx(eleven.products + product_time(H100, 768, 1536, OF_BASE.tokens))
    assert none.attention == pytest.approx(eleven.attention) and none.element_wise == pytest.approx(eleven.element_wise)
    assert none.ideal < every.ideal


def test_the_host_bounds_a_small_step():
    small = Work(BASE, 1000, 100, 150)
    assert step_time(small, H100).seconds == step_time(small, H100).host > 2 * step_time(small, H100).gpu
    assert step_time(replace(small, compiled=False), H100).host > step_time(small, H100).host


def test_a_ring_sends_all_but_its_own_share_twice():
    assert all_reduce_time(H100, 8, 440e6) == pytest.approx(2 * 7 / 8 * 440e6 / (0.8 * 450e9))
    assert all_reduce_time(H100, 16, 1e9) > 2 * all_reduce_time(H100, 8, 1e9)  # over the network
    assert all_reduce_time(DATASHEET["L4"], 16, 1e9) == pytest.approx(
        15 / 14 * all_reduce_time(DATASHEET["L4"], 8, 1e9)
    )


def test_the_backward_pass_hides_gradients_but_the_embeddings():
    alone, together = step_time(OF_BASE, H100), step_time(OF_BASE, H100, 8)
    assert alone.exposed == 0 and alone.gpu == together.gpu
    assert together.exposed == pytest.approx(all_reduce_time(H100, 8, 4 * 768 * 30_522))
    slow = step_time(OF_BASE, DATASHEET["L4"]._replace(link=1), 8)
    assert slow.exposed > all_reduce_time(DATASHEET["L4"]._replace(link=1), 8, 4 * 768 * 30_522)


def test_sharding_sends_as_much_as_a_sum_and_weights_once_more_for_each_piece():
    slow, pieces = DATASHEET["L4"]._replace(link=1), replace(OF_BASE, pieces=3)
    took = {how: step_time(pieces, slow, 8, sharding=how) for how in ("none", "optimiser", "full")}
    whole, forward_and_back = all_reduce_time(slow, 8, 4 * BASE.parameters), took["none"].gpu - took["none"].parameters
    assert took["none"].exposed == pytest.approx(whole - 2 / 3 * forward_and_back)
    assert took["optimiser"].exposed == pytest.approx(whole - forward_and_back / 3, rel=0.01)
    assert took["full"].exposed == pytest.approx(3 * 1.5 * whole - forward_and_back, rel=0.01)
    assert took["full"].parameters == took["optimiser"].parameters < took["none"].parameters


def test_other_members_take_what_their_arithmetic_and_parameters_say():
    plain, shared = step_time(OF_BASE, H100), step_time(replace(OF_BASE, parameters=BASE.parameters // 9), H100)
    assert shared.parameters == pytest.approx(plain.parameters / 9, rel=1e-6) and shared.products == plain.products
    gated = step_time(replace(OF_BASE, over_bert=1.5), H100)
    assert gated.products == 1.5 * plain.products and gated.ideal == 1.5 * plain.ideal and gated.head == plain.head


def test_what_compiling_takes_is_added_where_it_is_earned_back():
    on = Allocation.on(H100, 1, 1)
    (long,) = Jobs(check_study(yaml.safe_load(preset_text("bert-base")), ""), lambda _: None).pretrain("short")
    assert compile_seconds(long, on) == 60 and gpu_step(long, on)[0].compiled
    short = replace(long, flops=0.25 * H100.teraflops * 1e12 * 299)
    assert compile_seconds(short, on) == 0 and not gpu_step(short, on)[0].compiled
    assert compile_seconds(long, Allocation(8)) == 0  # a CPU does not compile


def test_memory_and_links_by_the_names_torch_gives():
    assert datasheet("NVIDIA H100 80GB HBM3").memory == 3350 and datasheet("NVIDIA H200").memory == 4800
    assert datasheet("NVIDIA A100-PCIE-40GB")[1:] == (1555, 32) and datasheet("NVIDIA A100 80GB PCIe")[1:] == (1935, 32)
