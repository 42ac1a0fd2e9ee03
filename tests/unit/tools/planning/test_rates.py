"""Expected times, and what measured runs make of them."""

import json
from dataclasses import replace

import pytest

from pipeline_src.tools.planning.hardware import PEAKS, Allocation, Hardware
from pipeline_src.tools.planning.job_estimate import JobEstimate
from pipeline_src.tools.planning.jobs import STAGES
from pipeline_src.tools.planning.rates import MFU, STARTS, append, corrections, expected_seconds

CORPUS = JobEstimate("train_tokenizer", "all", 11.6e6 * 60)
TRAINING = JobEstimate("pretrain", "short", 1e18, "FLOP", flops=1e18, steps=1000, width=768, layers=12)
H100 = Allocation(8, 1, PEAKS["h100"])


def test_peaks_by_what_the_command_line_calls_them():
    assert list(PEAKS) == "b200 h200 h100 a100 mi300x l40s a10 l4 rtx4090 rtx3090 v100 t4".split()
    assert PEAKS["t4"] == 65e12 and PEAKS["rtx4090"] == 165.2e12 and PEAKS["h200"] == 989e12


def test_every_stage_has_a_start():
    names = {"pretrain" if name.startswith("pretrain") else name for name in STAGES}
    assert names == set(STARTS)


def test_time_goes_with_work_and_against_cores():
    assert expected_seconds(CORPUS, Allocation(1)) == pytest.approx(61)
    assert expected_seconds(CORPUS, Allocation(4)) == pytest.approx(16)


def test_a_gpu_reaches_its_share_and_eight_nearly_eight_times_it():
    one = expected_seconds(TRAINING, H100) - STARTS["pretrain"]
    eight = expected_seconds(TRAINING, replace(H100, gpus=8)) - STARTS["pretrain"]
    assert one == pytest.approx(1e18 / (MFU[768] * 989e12))
    assert one / eight == pytest.approx(7.2)


def test_small_steps_on_a_gpu_take_what_launching_takes():
    small = replace(TRAINING, flops=1e9, steps=1000, width=128, layers=2)
    assert expected_seconds(small, H100) > STARTS["pretrain"] + 4


def test_runs_correct_the_expectation_by_their_median(tmp_path):
    path = tmp_path / "logs" / "rates.jsonl"
    for factor in (1.5, 2.0, 9.0):
        append(CORPUS, Allocation(2), factor * expected_seconds(CORPUS, Allocation(2)), path)
    correction = corrections(path)(CORPUS, Allocation(4))
    assert (round(correction.factor, 3), correction.runs) == (2.0, 3)
    assert corrections(path)(replace(CORPUS, stage="tokenize"), Allocation(4)).runs == 0


def test_a_line_says_the_rate_itself(tmp_path):
    append(CORPUS, Allocation(2), 100.0, tmp_path / "r")
    append(TRAINING, H100, 100.0, tmp_path / "r")
    first, second = map(json.loads, (tmp_path / "r").read_text().splitlines())
    assert (first["rate"], first["unit"]) == (CORPUS.units / 100, "B/s")
    assert (second["rate"], second["unit"]) == (1e16, "FLOP/s")


def test_a_cpu_says_nothing_of_a_gpu(tmp_path):
    append(TRAINING, Allocation(2), 1e7, tmp_path / "r")
    assert corrections(tmp_path / "r")(TRAINING, H100).runs == 0
    assert corrections(tmp_path / "r")(TRAINING, Allocation(8)).runs == 1


def test_a_run_of_starting_alone_says_nothing_of_a_long_job(tmp_path):
    short = replace(CORPUS, units=1e6)
    append(short, Allocation(2), 30.0, tmp_path / "r")
    assert corrections(tmp_path / "r")(short, Allocation(2)).factor > 20
    assert corrections(tmp_path / "r")(CORPUS, Allocation(2)).runs == 0


def test_broken_and_foreign_lines_are_passed_over(tmp_path):
    path = tmp_path / "r"
    append(CORPUS, Allocation(2), 100.0, path)
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
