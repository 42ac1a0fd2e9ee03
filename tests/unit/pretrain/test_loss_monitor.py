"""The loss monitor: stages of learning, comparable runs, and the recorded runs themselves."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from pipeline_src.base.files import read_json
from pipeline_src.pretrain.loss_monitor import MAX_RATIOS, RECIPE, REFERENCE_RUNS, check_loss, expected_gaps
from tests.unit.pretrain.small import train_phase

ROOT = Path(__file__).resolve().parents[3]
SAMPLE = {
    **{"architecture": "bert", "objective": "mlm", "optimizer": "muon", "position_init": "neighbor_heads"},
    **{"num_hidden_layers": 2, "hidden_size": 128, "vocab_size": 4096, "mask_prob": 0.15},
}


def reference_runs(*curves: tuple[str, Sequence[tuple[float, float]]], **changes: Any) -> pd.DataFrame:
    """Return curves of (million tokens, gap) with the recipe of the sample study."""
    return pd.DataFrame(
        [
            {"curve": name, "tokens_m": tokens, "gap": gap, "fault": math.nan, **SAMPLE, **changes}
            for name, points in curves
            for tokens, gap in points
        ]
    )


SLOW_AND_FAST = reference_runs(("slow", [(1, 1.0), (4, 2.0)]), ("fast", [(1, 1.5), (4, 2.5)]))


def check(gap: float, continued: bool = False) -> dict[str, Any]:
    """Check a run with the sample study's recipe after 2 M tokens."""
    return check_loss(gap, 2e6, SAMPLE, SLOW_AND_FAST, continued)


@pytest.mark.parametrize(
    ("gap", "stage"),
    [
        (-2.0, "it does not know yet"),
        (-0.1, "on the plateau"),
        (0.05, "on the plateau"),
        (0.3, "leaving the plateau"),
        (0.5, "beyond the plateau"),
    ],
)
def test_check_loss_sentence_names_stage_of_learning(gap, stage):
    assert f"tokens: {stage}" in check(gap)["sentence"]


@pytest.mark.parametrize(("gap", "status"), [(1.1, "behind"), (1.3, "normal"), (2.2, "normal"), (2.4, "ahead")])
def test_check_loss_status_is_relative_to_band_of_comparable_runs(gap, status):
    """After 2 M tokens, halfway between 1 and 4 M on a logarithmic scale, the runs have gaps of 1.5 and 2.0."""
    result = check(gap)
    assert result["status"] == status
    distance = "within 0.3 nats of" if status == "normal" else "more than 0.3 nats from"
    assert f"{status}, {distance} comparable trainings (1.50 to 2.00)" in result["sentence"]


@pytest.mark.parametrize(("gap", "words"), [(0.73, "0.73 nats below"), (-0.73, "0.73 nats above")])
def test_check_loss_sentence_has_no_negative_distance(gap, words):
    assert check(gap)["sentence"].startswith(f"{words} the unigram baseline")


def test_check_loss_continued_run_is_not_compared():
    result = check(0.4, continued=True)
    assert result["status"] is None and "from another model" in result["sentence"]


def test_expected_gaps_are_interpolated_and_not_extrapolated():
    assert expected_gaps(SAMPLE, 1e6, SLOW_AND_FAST) == [1.5, 1.0]
    assert expected_gaps(SAMPLE, 5.9e6, SLOW_AND_FAST) == [2.5, 2.0]
    assert expected_gaps(SAMPLE, 6.1e6, SLOW_AND_FAST) == expected_gaps(SAMPLE, 0.8e6, SLOW_AND_FAST) == []


@pytest.mark.parametrize(
    "changes",
    [{"hidden_size": 256}, {"vocab_size": 30522}, {"mask_prob": 0.5}, {"objective": "clm"}, {"fault": "positions"}],
)
def test_expected_gaps_unlike_or_faulty_runs_are_not_compared(changes):
    assert expected_gaps(SAMPLE, 1e6, reference_runs(("a", [(1, 1.0)]), **changes)) == []


def test_expected_gaps_same_recipe_is_preferred():
    other = reference_runs(("other", [(1, 0.1)]), architecture="albert")
    assert expected_gaps(SAMPLE, 1e6, other) == [0.1]
    assert expected_gaps(SAMPLE, 1e6, pd.concat([other, SLOW_AND_FAST])) == [1.5, 1.0]


def test_reference_runs_name_recorded_sources():
    table = pd.read_csv(REFERENCE_RUNS, sep="\t")
    assert table[["curve", "tokens_m", "gap", "origin"]].notna().all(axis=None) and (table["tokens_m"] > 0).all()
    assert not table.duplicated(["curve", "tokens_m"]).any()
    for origin in table["origin"].unique():
        assert (ROOT / origin.partition(",")[0]).is_file(), origin


def test_reference_runs_of_family_equal_recorded_results():
    table = pd.read_csv(REFERENCE_RUNS, sep="\t").set_index("curve")["gap"]
    with open(ROOT / "docs/lab/family.tsv", encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            if f"family, {row['member']}, seed {row['seed']}" in table:
                assert table[f"family, {row['member']}, seed {row['seed']}"] == float(row["gap"])
    assert sum(name.startswith("family, ") for name in table.index) == 24


def test_reference_runs_only_faulty_ones_are_called_behind():
    """Only the rows that are marked as faulty are called "behind"."""
    runs, wrong = pd.read_csv(REFERENCE_RUNS, sep="\t"), []
    for name, curve in runs.groupby("curve", sort=False):
        references = runs[runs["curve"] != name]
        behind = {True: 0, False: 0}  # faulty or not -> rows
        for row in curve.to_dict("records"):
            recipe = {column: row[column] for column in ("objective", *RECIPE, *MAX_RATIOS)}
            result = check_loss(row["gap"], row["tokens_m"] * 1e6, recipe, references)
            behind[isinstance(row["fault"], str)] += result["status"] == "behind"
        if behind[False] or bool(behind[True]) != bool(curve["fault"].notna().any()):
            wrong.append(name)
    assert not wrong and runs["curve"].nunique() == 51


def test_phase_logs_and_records_loss_status(study, caplog):
    with caplog.at_level("INFO", "pipeline_src"):
        train_phase("phase1", eval_steps=30)
    recorded = read_json(Path("results/pretrain/phase1.json"), dict)["diagnosis"]
    messages = [record.getMessage() for record in caplog.records if "is this normal?" in record.getMessage()]
    assert len(messages) == 2 and recorded["sentence"] in messages[1]
    assert recorded["status"] is None and "no comparable training was measured" in recorded["sentence"]
