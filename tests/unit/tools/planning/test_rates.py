"""Expected times, and what measured runs make of them."""

import json
from dataclasses import replace

import pytest

from pipeline_src.tools.planning.hardware import CHIPS, Allocation, Hardware
from pipeline_src.tools.planning.job_estimate import JobEstimate
from pipeline_src.tools.planning.jobs import STAGES
from pipeline_src.tools.planning.rates import STARTS, append, corrections, expected_seconds

CORPUS = JobEstimate("train_tokenizer", "all", 11.6e6 * 60)
TOKENS = 28_000 * 1000  # of 1,000 steps
TRAINING = JobEstimate(
    *("pretrain", "short", 1.5e16, "FLOP"), tokens=TOKENS, flops=1.5e16, steps=1000, width=768, inner=3072, layers=12,
    entries=30_522, length=115, predictions=0.15 * TOKENS,
)  # fmt: skip
COMPILED = replace(TRAINING, flops=1.5e18)  # as if it were so much that compiling is earned back
H100 = Allocation.on(CHIPS["h100"], 8, 1)


def test_chips_by_what_the_command_line_calls_them():
    assert list(CHIPS) == "b200 h200 h100 a100 mi300x l40s a10 l4 rtx4090 rtx3090".split()
    assert CHIPS["a100"].teraflops == 312 and CHIPS["rtx4090"].memory == 1008 and CHIPS["h200"].memory == 4800


def test_every_stage_has_a_start():
    names = {"pretrain" if name.startswith("pretrain") else name for name in STAGES}
    assert names == set(STARTS)


def test_time_goes_with_work_and_against_cores():
    assert expected_seconds(CORPUS, Allocation(1)) == pytest.approx(61)
    assert expected_seconds(CORPUS, Allocation(4)) == pytest.approx(16)


def test_a_gpu_takes_what_the_roofline_model_says():
    one = expected_seconds(COMPILED, H100) - STARTS["pretrain"]
    assert one == pytest.approx(1000 * 0.0392, rel=0.02)  # 28,000 tokens at 714,000 a second
    eight = expected_seconds(COMPILED, replace(H100, gpus=8)) - STARTS["pretrain"]
    assert 3 < one / eight < 5  # 3,500 tokens a GPU: the host launches as long as the GPU computes
    large = replace(COMPILED, tokens=8 * TOKENS, predictions=0.15 * 8 * TOKENS)
    assert expected_seconds(large, replace(H100, gpus=8)) - STARTS["pretrain"] == pytest.approx(one, rel=0.05)


def test_a_gpu_whose_memory_is_not_known_is_as_balanced_as_others():
    other = expected_seconds(TRAINING, Allocation(8, 1, H100.peak))
    assert other == pytest.approx(expected_seconds(TRAINING, H100), rel=0.02)


def test_small_steps_on_a_gpu_take_what_launching_takes():
    small = replace(COMPILED, tokens=1000, predictions=150, width=128, inner=512, layers=2)
    assert 3 < expected_seconds(small, H100) - STARTS["pretrain"] < 5
    as_written = replace(small, stage="finetune")
    assert expected_seconds(as_written, H100) - STARTS["finetune"] > expected_seconds(small, H100) - STARTS["pretrain"]


def test_runs_correct_the_expectation_by_their_median(tmp_path):
    path = tmp_path / "logs" / "rates.jsonl"
    for factor in (1.5, 2.0, 9.0):
        append(CORPUS, Allocation(2), factor * expected_seconds(CORPUS, Allocation(2)), path=path)
    correction = corrections(path)(CORPUS, Allocation(4))
    assert (round(correction.factor, 3), correction.runs) == (2.0, 3)
    assert corrections(path)(replace(CORPUS, stage="tokenize"), Allocation(4)).runs == 0


def test_a_line_says_the_rate_itself(tmp_path):
    append(CORPUS, Allocation(2), 100.0, path=tmp_path / "r")
    append(TRAINING, H100, 100.0, path=tmp_path / "r")
    first, second = map(json.loads, (tmp_path / "r").read_text().splitlines())
    assert (first["rate"], first["unit"]) == (CORPUS.units / 100, "B/s")
    assert (second["rate"], second["unit"]) == (1.5e14, "FLOP/s")


def test_a_cpu_says_nothing_of_a_gpu(tmp_path):
    append(TRAINING, Allocation(2), 1e7, path=tmp_path / "r")
    assert corrections(tmp_path / "r")(TRAINING, H100).runs == 0
    assert corrections(tmp_path / "r")(TRAINING, Allocation(8)).runs == 1


def test_a_run_of_starting_alone_says_nothing_of_a_long_job(tmp_path):
    short = replace(CORPUS, units=1e6)
    append(short, Allocation(2), 30.0, path=tmp_path / "r")
    assert corrections(tmp_path / "r")(short, Allocation(2)).factor > 20
    assert corrections(tmp_path / "r")(CORPUS, Allocation(2)).runs == 0


def test_broken_and_foreign_lines_are_passed_over(tmp_path):
    path = tmp_path / "r"
    append(CORPUS, Allocation(2), 100.0, path=path)
    whole = path.read_text()
    path.write_text(whole[:50] + "\n" + '{"job": {"colour": 3}}\n[]\n\n' + whole)
    assert corrections(path)(CORPUS, Allocation(2)).runs == 1


def test_hardware_that_cannot_be_is_refused():
    from pipeline_src.common.errors import PipelineError

    assert Hardware.of("cpu", 4, None) == Hardware("cpu", 4, 0)
    assert Hardware.of("h100", 4, None).gpus == 1
    for wrong in [("cpu", 4, 2), ("h100", 4, 0), ("cpu", 0, None)]:
        with pytest.raises(PipelineError):
            Hardware.of(*wrong)
