"""The tool as people call it, and the rate that every stage leaves."""

import json
import sys
import types

import pytest

from pipeline_src import __main__ as command
from pipeline_src import stages
from pipeline_src.tools.planning.record import record_run
from pipeline_src.tools.planning.table import amount, duration, scientific

MINUTE = 60


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
def test_the_sample_takes_what_it_takes(clone, root, capsys, lock):
    """Seven to ten minutes on two quiet cores, as the README says: a factor of two either way."""
    if lock:
        (clone / "dvc.lock").symlink_to(root / "dvc.lock")
    found = plan(capsys, "--cores", "2")
    assert 10 / 2 * MINUTE < found["totals"]["elapsed"] < 7 * 2 * MINUTE
    assert found["totals"]["jobs"] == 34
    assert found["totals"]["cost"] is None


def test_totals_are_those_of_the_stages(clone, capsys):
    found = plan(capsys, "--preset", "bert-base", "--hardware", "h100", "--gpus", "8", "--cores", "64", "--price", "2")
    stages, totals = found["stages"], found["totals"]
    for name in ("jobs", "written", "flops", "disk", "gpu_hours"):
        assert totals[name] == pytest.approx(sum(stage[name] for stage in stages))
    assert totals["cost"] == pytest.approx(2 * totals["gpu_hours"])  # stages on cores are not priced
    assert totals["critical"] < totals["elapsed"] < totals["work"]
    pretraining = [stage for stage in stages if stage["stage"].startswith("pretrain")]
    assert sum(stage["gpu_hours"] for stage in pretraining) == pytest.approx(
        8 * sum(stage["elapsed"] for stage in pretraining) / 3600
    )
    assert 0.5 < sum(stage["elapsed"] for stage in pretraining) / 3600 < 12  # hours on eight H100, not days


def test_more_machines_never_take_longer_and_cost_the_same(clone, capsys):
    few = plan(capsys, "--preset", "bert-large", "--hardware", "a100", "--gpus", "1", "--cores", "8", "--price", "1")
    many = plan(capsys, "--preset", "bert-large", "--hardware", "a100", "--gpus", "16", "--cores", "64", "--price", "1")
    assert many["totals"]["elapsed"] < few["totals"]["elapsed"] / 8
    assert 1 < many["totals"]["cost"] / few["totals"]["cost"] < 1.5  # gradients are summed, and the host launches
    assert many["totals"]["flops"] == few["totals"]["flops"]


def test_prices_of_machines(clone, capsys):
    found = plan(capsys, "--price", "6")
    assert found["totals"]["cost"] == pytest.approx(6 * sum(s["elapsed"] for s in found["stages"]) / 3600)
    found = plan(capsys, "--hardware", "h100", "--price", "0", "--cpu-price", "6")
    on_cores = sum(stage["elapsed"] for stage in found["stages"] if not stage["gpu_hours"])
    assert found["totals"]["cost"] == pytest.approx(6 * on_cores / 3600)


def test_a_gpu_that_was_never_measured_goes_by_the_roofline_model(clone, capsys):
    assert any("roofline model" in note for note in plan(capsys, "--hardware", "h100")["notes"])
    assert not any("roofline" in note for note in plan(capsys)["notes"])
    assert command.main(["plan", "--hardware", "h100"]) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith(("pretrain", "tokenize"))]
    assert [row.split()[-1] for row in rows] == ["default", "roofline", "roofline"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("--price", "0.5"),
        ("--preset", "bert-large", "--whole-dump", "--hardware", "h100", "--gpus", "64", "--price", "99"),
        ("--preset", "bert-base", "--hardware", "cpu", "--cores", "1", "--price", "12345"),
    ],
)
def test_the_table_fits_100_columns(clone, capsys, arguments):
    assert command.main(["plan", *arguments]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 100
    heads = lines[2].split()
    rows = lines[3 : lines.index(next(line for line in lines if line.startswith("---")))]
    assert len(rows) == 16 and heads[-1] == "rates"
    assert len({len(row) for row in rows}) == 1  # no cell pushed its neighbours aside


def test_a_mistake_is_said(clone, capsys):
    assert command.main(["plan", "--preset", "bert-huge"]) == 2
    assert "no such preset: bert-huge" in capsys.readouterr().err
    assert command.main(["plan", "--gpus", "2"]) == 2


def test_every_run_adds_its_rate_and_the_next_plan_rests_on_it(clone, monkeypatch, capsys):
    module = types.ModuleType("a_stage_of_the_test")
    module.run = lambda **_: None
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(command.STAGES, "clean_books", stages.Stage(module.__name__, "", ("books",)))
    before = plan(capsys)
    assert command.main(["clean_books"]) == 0 and command.main(["clean_books"]) == 0
    lines = [json.loads(line) for line in (clone / "logs/rates.jsonl").read_text().splitlines()]
    assert [line["stage"] for line in lines] == ["clean_books", "clean_books"]
    after = plan(capsys)
    rows = {row["stage"]: row for row in after["stages"]}
    assert (rows["clean_books"]["runs"], rows["train_tokenizer"]["runs"]) == (2, 0)
    assert rows["clean_books"]["elapsed"] < next(r for r in before["stages"] if r["stage"] == "clean_books")["elapsed"]
    assert plan(capsys, "--defaults") == before


def test_pretraining_is_recorded_over_all_its_sessions_by_its_device_and_without_compiling(clone):
    from pipeline_src.params.study import load_study

    cost = {
        "processes": 4,
        "peak_source": "datasheet, dense bfloat16, NVIDIA H100",
        "peak_flops": 3.956e15,
        "seconds": 1000,
        "compile_seconds": 100,
    }
    folder = clone / "logs" / "pretrain"
    folder.mkdir(parents=True)
    (folder / "short.cost.json").write_text(json.dumps(cost))
    record_run("pretrain", "short", load_study(), 50.0)
    cost |= {"peak_source": "float32 matrix product measured on this machine", "compile_seconds": 0.0}
    (folder / "short.cost.json").write_text(json.dumps(cost))
    record_run("pretrain", "short", load_study(), 950.0)
    gpu, cpu = (json.loads(line) for line in (clone / "logs/rates.jsonl").read_text().splitlines())
    gpu_has = {"cores": 2, "gpus": 4, "peak": 989e12, "memory": 3350e9, "link": 450e9, "sharding": "none"}
    assert gpu["allocation"] == gpu_has and (gpu["seconds"], gpu["compile_seconds"]) == (900, 100)
    assert cpu["allocation"] == dict.fromkeys(gpu_has, 0) | {"cores": 8, "sharding": "none"} and cpu["seconds"] == 1000


def test_a_rate_that_cannot_be_kept_costs_no_stage_its_success(clone):
    from pipeline_src.params.study import load_study

    record_run("pretrain", "short", load_study(), 50.0)  # there is no cost file
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


@pytest.mark.parametrize("option", ["--price", "--cpu-price"])
@pytest.mark.parametrize("price", ["nan", "-5", "inf"])
def test_what_is_no_price_is_refused(clone, capsys, option, price):
    assert command.main(["plan", f"{option}={price}"]) == 2
    assert f"not a price: {float(price)}" in capsys.readouterr().err
