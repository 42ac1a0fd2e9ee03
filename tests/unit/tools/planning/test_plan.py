"""The tool as people call it, and the rate that every stage leaves."""

import json
import sys
import types
from dataclasses import replace

import pytest

from pipeline_src import __main__ as command
from pipeline_src import stages
from pipeline_src.common.errors import PipelineError
from pipeline_src.tools.planning.jobs import STAGES, Job
from pipeline_src.tools.planning.plan import (
    RATES,
    Devices,
    amount,
    corrections,
    duration,
    expected_seconds,
    record_run,
    scientific,
    stages_of,
)
from tests.versions import versions

MINUTE = 60
CORPUS = Job("train_tokenizer", "all", 11.6e6 * 60)
TRAINING = Job("pretrain", "phase1", 1.5e16, "FLOP", tokens=28e6, flops=1.5e16, width=768)
GPU = Devices(8, 1)


@pytest.fixture
def clone(root, tmp_path, monkeypatch):
    """A clone in which nothing ran, without dvc.lock."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "workflow").mkdir()
    (tmp_path / "workflow" / "presets").symlink_to(root / "workflow" / "presets")
    (tmp_path / "dvc.yaml").symlink_to(root / "dvc.yaml")
    (tmp_path / "params.yaml").write_bytes((root / "workflow/presets/sample.yaml").read_bytes())
    return tmp_path


def plan(capsys, *arguments):
    assert command.main(["plan", "--json", *arguments]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("lock", [False, True])
def test_the_sample_takes_what_it_takes(clone, capsys, lock):
    """About nine minutes on two quiet cores, as the README says: a factor of two either way."""
    if lock:
        (clone / "dvc.lock").write_text(versions("dvc.lock")[0])
    found = plan(capsys, "--cores", "2")
    assert 10 / 2 * MINUTE < found["totals"]["seconds"] < 7 * 2 * MINUTE
    assert found["totals"]["jobs"] == 40
    assert found["totals"]["cost"] is None


def test_totals_are_those_of_the_stages(clone, capsys):
    found = plan(capsys, "--preset", "bert-base", "--gpus", "8", "--teraflops", "300", "--cores", "64", "--price", "2")
    stages, totals = found["stages"], found["totals"]
    for name in ("jobs", "written", "flops", "disk", "seconds"):
        assert totals[name] == pytest.approx(sum(stage[name] for stage in stages))
    hours = sum(stage["gpu_hours"] for stage in stages)
    assert totals["cost"] == pytest.approx(2 * hours)  # stages on cores are not priced
    pretraining = [stage for stage in stages if stage["stage"].startswith("pretrain")]
    taken = sum(stage["seconds"] for stage in pretraining)
    assert sum(stage["gpu_hours"] for stage in pretraining) == pytest.approx(8 * taken / 3600)
    assert taken == pytest.approx(12 + sum(stage["flops"] for stage in pretraining) / (8 * 300e12))


def test_more_gpus_never_take_longer_and_cost_the_same(clone, capsys):
    few = plan(capsys, "--preset", "bert-large", "--gpus", "1", "--cores", "8", "--price", "1")
    many = plan(capsys, "--preset", "bert-large", "--gpus", "16", "--cores", "64", "--price", "1")
    assert many["totals"]["seconds"] < few["totals"]["seconds"] / 8
    assert many["totals"]["cost"] == pytest.approx(few["totals"]["cost"], rel=0.01)
    assert many["totals"]["flops"] == few["totals"]["flops"]


def test_the_price_of_a_machine_without_gpus_is_by_its_hours(clone, capsys):
    found = plan(capsys, "--price", "6")
    assert found["totals"]["cost"] == pytest.approx(6 * found["totals"]["seconds"] / 3600)


def test_the_rate_of_a_gpu_is_as_given_else_as_measured_here_else_assumed(clone, capsys):
    from pipeline_src.config.study import load_study

    def seconds(*arguments):
        rows = plan(capsys, "--gpus", "1", *arguments)["stages"]
        return next(row["seconds"] for row in rows if row["stage"] == "pretrain_phase2")

    assert any("--teraflops" in note for note in plan(capsys, "--gpus", "1")["notes"])
    assert not any("--teraflops" in note for note in plan(capsys)["notes"])
    assumed, given = seconds(), seconds("--teraflops", "0.05")
    assert given > 10 * assumed
    folder = clone / "logs" / "pretrain"
    folder.mkdir(parents=True)
    (folder / "phase2.cost.json").write_text(json.dumps({"processes": 1, "peak_source": "bfloat16", "seconds": 600}))
    record_run("pretrain", "phase2", load_study(), 600.0)
    assert seconds() == pytest.approx(600, rel=0.1) and seconds("--teraflops", "0.05") == given


@pytest.mark.parametrize(
    "arguments",
    [
        ("--price", "0.5"),
        ("--preset", "bert-large", "--whole-dump", "--gpus", "64", "--price", "99"),
        ("--preset", "bert-base", "--cores", "1", "--price", "12345"),
    ],
)
def test_the_table_fits_100_columns(clone, capsys, arguments):
    assert command.main(["plan", *arguments]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 100
    heads = lines[2].split()
    rows = lines[3 : lines.index(next(line for line in lines if line.startswith("---")))]
    assert len(rows) == 15 and heads[-1] == "rates"
    assert len({len(row) for row in rows}) == 1  # no cell pushed its neighbours aside


def test_a_mistake_is_said(clone, capsys):
    assert command.main(["plan", "--preset", "bert-huge"]) == 2
    assert "no such preset: bert-huge" in capsys.readouterr().err
    for wrong in (("--gpus", "-1"), ("--cores", "0"), ("--teraflops", "nan"), ("--teraflops=-1",)):
        assert command.main(["plan", *wrong]) == 2


def test_every_run_adds_its_rate_and_the_next_plan_rests_on_it(clone, monkeypatch, capsys):
    module = types.ModuleType("a_stage_of_the_test")
    module.run = lambda **_: None
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(command.STAGES, "tokenize", stages.Stage(module.__name__, ""))
    before = plan(capsys)
    assert command.main(["tokenize"]) == 0 and command.main(["tokenize"]) == 0
    lines = [json.loads(line) for line in (clone / "logs/rates.jsonl").read_text().splitlines()]
    assert [line["stage"] for line in lines] == ["tokenize", "tokenize"]
    after = plan(capsys)
    rows = {row["stage"]: row for row in after["stages"]}
    assert (rows["tokenize"]["runs"], rows["train_tokenizer"]["runs"]) == (2, 0)
    assert rows["tokenize"]["seconds"] < next(r for r in before["stages"] if r["stage"] == "tokenize")["seconds"]


def test_pretraining_is_recorded_over_all_its_sessions_by_its_device_and_without_compiling(clone):
    from pipeline_src.config.study import load_study

    cost = {
        "processes": 4,
        "peak_source": "datasheet, dense bfloat16, NVIDIA H100",
        "seconds": 1000,
        "compile_seconds": 100,
    }
    folder = clone / "logs" / "pretrain"
    folder.mkdir(parents=True)
    (folder / "phase1.cost.json").write_text(json.dumps(cost))
    record_run("pretrain", "phase1", load_study(), 50.0)
    cost |= {"peak_source": "float32 matrix product measured on this machine", "compile_seconds": 0.0}
    (folder / "phase1.cost.json").write_text(json.dumps(cost))
    record_run("pretrain", "phase1", load_study(), 950.0)
    gpu, cpu = (json.loads(line) for line in (clone / "logs/rates.jsonl").read_text().splitlines())
    assert (gpu["cores"], gpu["gpus"], gpu["seconds"], gpu["compile_seconds"]) == (2, 4, 900, 100)
    assert (cpu["cores"], cpu["gpus"], cpu["seconds"]) == (8, 0, 1000)


def test_a_rate_that_cannot_be_kept_costs_no_stage_its_success(clone):
    from pipeline_src.config.study import load_study

    record_run("pretrain", "phase1", load_study(), 50.0)  # there is no cost file
    assert not (clone / "logs/rates.jsonl").exists()


def test_figures_as_people_read_them():
    assert [duration(s) for s in (59, 119, 200, 8000, 3e5, 4e7)] == [
        "59 s",
        "119 s",
        "3 min",
        "2.2 h",
        "3.5 d",
        "463 d",
    ]
    assert [amount(b, "B") for b in (0, 999, 1_696_448, 25e9)] == ["-", "999 B", "1.7 MB", "25.0 GB"]
    assert amount(32.7e9) == "32.7 G"
    assert scientific(1.77e19) == "1.8e19" and scientific(0) == "-"


def test_a_stage_without_an_estimate_is_named(clone, root, capsys):
    (clone / "dvc.yaml").unlink()
    more = "\n  of_ones_own:\n    cmd: python mine.py\n    deps:\n      - results/scores.json\n\nmetrics:\n"
    text = (root / "dvc.yaml").read_text(encoding="utf-8").replace("\nmetrics:\n", more, 1)
    (clone / "dvc.yaml").write_text(text, encoding="utf-8")
    assert "stages without an estimate, counted as nothing: of_ones_own" in plan(capsys)["notes"]


@pytest.mark.parametrize("price", ["nan", "-5", "inf"])
def test_what_is_no_price_is_refused(clone, capsys, price):
    assert command.main(["plan", f"--price={price}"]) == 2
    assert f"not a price: {float(price)}" in capsys.readouterr().err


def test_stages_are_those_of_dvc_yaml_in_order(root, tmp_path):
    assert stages_of(root / "dvc.yaml") == [name for name in stages_of(root / "dvc.yaml") if name in STAGES]
    assert set(stages_of(root / "dvc.yaml")) == set(STAGES)
    with pytest.raises(PipelineError, match="project's root"):
        stages_of(tmp_path / "dvc.yaml")


def test_every_stage_has_a_rate():
    assert {"pretrain" if name.startswith("pretrain") else name for name in STAGES} == set(RATES)


def test_time_goes_with_work_and_against_cores_and_gpus():
    assert expected_seconds(CORPUS, Devices(1)) == pytest.approx(61)
    assert expected_seconds(CORPUS, Devices(4)) == pytest.approx(16)
    assert expected_seconds(TRAINING, GPU) == pytest.approx(6 + 150)
    assert expected_seconds(TRAINING, Devices(8, 8, 400.0)) == pytest.approx(6 + 150 / 32)
    assert expected_seconds(TRAINING, Devices(1)) == pytest.approx(6 + 1.5e16 / 110e9)
    assert expected_seconds(replace(TRAINING, width=128), Devices(2)) == pytest.approx(6 + 1.5e16 / 45e9 / 2**0.7)


def lines_of(*runs):
    """Runs as they stand in logs/rates.jsonl: job, devices and seconds."""
    return "".join(
        json.dumps({"job": job.__dict__, "cores": on.cores, "gpus": on.gpus, "seconds": seconds}) + "\n"
        for job, on, seconds in runs
    )


def test_runs_correct_the_expectation_by_their_median(tmp_path):
    path, on = tmp_path / "rates.jsonl", Devices(2)
    path.write_text(lines_of(*((CORPUS, on, factor * expected_seconds(CORPUS, on)) for factor in (1.5, 2.0, 9.0))))
    factor, runs = corrections(path)(CORPUS, Devices(4))
    assert (round(factor, 3), runs) == (2.0, 3)
    assert corrections(path)(replace(CORPUS, stage="tokenize"), Devices(4)) == (1.0, 0)


def test_a_cpu_says_nothing_of_a_gpu_and_a_given_rate_is_not_corrected(tmp_path):
    path = tmp_path / "r"
    path.write_text(lines_of((TRAINING, Devices(2), 1e7)))
    assert corrections(path)(TRAINING, GPU)[1] == 0 and corrections(path)(TRAINING, Devices(8))[1] == 1
    path.write_text(lines_of((TRAINING, GPU, 1e7)))
    assert corrections(path)(TRAINING, GPU)[1] == 1 and corrections(path, on_gpu=False)(TRAINING, GPU)[1] == 0


def test_a_run_of_starting_alone_says_nothing_of_a_long_job(tmp_path):
    short, path = replace(CORPUS, units=1e6), tmp_path / "r"
    path.write_text(lines_of((short, Devices(2), 30.0)))
    assert corrections(path)(short, Devices(2))[0] > 20
    assert corrections(path)(CORPUS, Devices(2))[1] == 0


def test_broken_and_foreign_lines_are_passed_over(tmp_path):
    path, whole = tmp_path / "r", lines_of((CORPUS, Devices(2), 100.0))
    path.write_text(whole[:50] + "\n" + '{"job": {"colour": 3}}\n[]\n\n' + whole)
    assert corrections(path)(CORPUS, Devices(2))[1] == 1
