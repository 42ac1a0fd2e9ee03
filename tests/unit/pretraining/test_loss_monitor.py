"""Stages of learning, band of comparable runs, and causes on synthetic curves; origins of the reference runs."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline_src.common.files import read_json, write_json
from pipeline_src.examples.token_store import TokenStore, TokenWriter
from pipeline_src.pretraining.loss_monitor import (
    MAX_RATIOS,
    RECIPE,
    REFERENCE_RUNS,
    CorpusFacts,
    Run,
    check_loss,
    expected_gaps,
)
from tests.unit.pretraining.small import train_phase

ROOT = Path(__file__).resolve().parents[3]
SAMPLE = {
    **{"architecture": "bert", "objective": "mlm", "optimizer": "muon", "position_init": "neighbor_heads"},
    **{"num_hidden_layers": 2, "hidden_size": 128, "vocab_size": 4096, "mask_prob": 0.15},
}
UNIGRAM = 6.5
SOUND_TEXT = CorpusFacts(tokens=2_000_000, unknown=0.0, repeated=0.001)


def reference_runs(*curves: tuple[str, Sequence[tuple[float, float]]], **changes: Any) -> pd.DataFrame:
    """Curves of (million tokens, gap) of the sample's recipe."""
    return pd.DataFrame(
        [
            {"curve": name, "tokens_m": tokens, "gap": gap, "fault": math.nan, **SAMPLE, **changes}
            for name, points in curves
            for tokens, gap in points
        ]
    )


SLOW_AND_FAST = reference_runs(("slow", [(1, 1.0), (4, 2.0)]), ("fast", [(1, 1.5), (4, 2.5)]))


def run(gap: float, *, tokens: float = 2e6, **more: Any) -> Run:
    """A run of the sample's recipe, past its warm-up."""
    metrics = {"mlm_loss": UNIGRAM - gap, "unigram_loss": UNIGRAM, "gap": gap}
    return Run(SAMPLE, tokens, metrics, **{"step": 200, "warmup_steps": 150, "corpus": SOUND_TEXT} | more)


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
    assert f"tokens: {stage}" in check_loss(run(gap), SLOW_AND_FAST)["sentence"]


@pytest.mark.parametrize(("gap", "status"), [(1.1, "behind"), (1.3, "normal"), (2.2, "normal"), (2.4, "ahead")])
def test_check_loss_status_is_relative_to_band_of_comparable_runs(gap, status):
    """After 2 M tokens, halfway between 1 and 4 M by logarithm, they have 1.5 and 2.0."""
    result = check_loss(run(gap), SLOW_AND_FAST)
    assert result["status"] == status and result["cause"] is None
    distance = "within 0.3 nats of" if status == "normal" else "more than 0.3 nats from"
    assert f"{status}, {distance} comparable trainings (1.50 to 2.00)" in result["sentence"]
    assert ("None of the known causes" in result["sentence"]) == (status == "behind")


@pytest.mark.parametrize(("gap", "words"), [(0.73, "0.73 nats below"), (-0.73, "0.73 nats above")])
def test_check_loss_sentence_has_no_negative_distance(gap, words):
    assert check_loss(run(gap), SLOW_AND_FAST)["sentence"].startswith(f"{words} the unigram baseline")


def test_check_loss_continued_run_is_not_compared():
    result = check_loss(run(0.4, continued=True), SLOW_AND_FAST)
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


FALLING = [8.3, 7.8, 7.3, 6.9, 6.7, 6.6, 6.6, 6.5, 6.4, 6.3]
VISIBLE = [8.3, 7.0, 5.0, 3.0, 2.0, 1.0, 0.7, 0.6, 0.5, 0.5]
CASES: dict[str, tuple[str | None, Run]] = {
    "sound": (None, run(0.06, losses=FALLING)),
    "slow": (None, run(-0.31, losses=[8.3, 8.2, 8.1, 8.0, 7.8, 7.5, 7.2, 7.1, 7.0, 6.9])),
    "in the warm-up": (None, run(-1.5, losses=[8.33] * 10, warmup_steps=10_000)),
    "only begun": (None, run(-1.5, losses=[8.3] * 6, step=40, warmup_steps=5)),
    "few rows": (None, run(-1.5, losses=[8.3] * 5)),
    "learnt by heart": (None, run(0.3, losses=[8.0] * 5 + [0.5] * 5, tokens=40e6)),
    "unknown corpus": (None, run(0.06, losses=FALLING, corpus=None)),
    "[UNK]": ("[UNK] in the text", run(1.5, corpus=CorpusFacts(2_000_000, 0.4, 0.3))),
    "lines": ("repeated text", run(1.5, corpus=CorpusFacts(2_000_000, 0.0, 0.99))),
    "visible": ("masks that show the words", run(-3.0, losses=VISIBLE)),
    "no rate": ("learning rate near zero", run(-1.8, losses=[8.33] * 10)),
}


@pytest.mark.parametrize("name", CASES)
def test_check_loss_names_planted_cause_alone(name):
    cause, planted = CASES[name]
    result = check_loss(planted, SLOW_AND_FAST)
    assert result["cause"] == cause
    assert (f"Likely cause: {cause}, since " in result["sentence"]) == (cause is not None)


@settings(max_examples=50, deadline=None, derandomize=True)  # of thousands of such curves one may name a cause
@given(st.integers(0, 2**31), st.floats(0.0, 0.3), st.integers(10, 100), st.floats(0.05, 3.0))
def test_check_loss_noisy_falling_loss_names_no_cause(seed, noise, count, gap):
    """The same curves in every run."""
    losses = UNIGRAM - gap * np.linspace(0, 1, count) + 1.8 * np.exp(-np.arange(count) / 3)
    noisy = (losses + noise * np.random.default_rng(seed).standard_normal(count)).tolist()
    assert check_loss(run(gap, losses=noisy, step=20 * count), SLOW_AND_FAST)["cause"] is None


def test_corpus_facts_count_unknown_tokens_and_repeated_sentences(tmp_path):
    writer = TokenWriter(tmp_path, "train", 20)
    lines = [np.arange(5, 13), np.arange(6, 14), np.arange(5, 13), np.arange(5, 13), np.array([1, 1]), np.array([1, 1])]
    writer.add(np.concatenate(lines), np.array([len(line) for line in lines]), np.array([6]))
    write_json(tmp_path / "manifest.json", {"splits": {"train": writer.close()}})
    store = TokenStore(tmp_path, "train")
    # of four long sentences two are equal to an earlier one; short ones do not count
    assert CorpusFacts.of(store, store.counts(20), 1) == (36, 4 / 36, 0.5)
    assert CorpusFacts.of(store, store.counts(20), None).unknown == 0


def test_reference_runs_have_origins():
    table = pd.read_csv(REFERENCE_RUNS, sep="\t")
    assert table[["curve", "tokens_m", "gap", "origin"]].notna().all(axis=None) and (table["tokens_m"] > 0).all()
    assert not table.duplicated(["curve", "tokens_m"]).any()
    for origin in table["origin"].unique():
        assert (ROOT / origin.partition(",")[0]).is_file(), origin


def test_reference_runs_of_family_are_as_recorded():
    table = pd.read_csv(REFERENCE_RUNS, sep="\t").set_index("curve")["gap"]
    with open(ROOT / "docs/lab/family.tsv", encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            if f"family, {row['member']}, seed {row['seed']}" in table:
                assert table[f"family, {row['member']}, seed {row['seed']}"] == float(row["gap"])
    assert sum(name.startswith("family, ") for name in table.index) == 24


def test_reference_runs_judge_each_other_rightly():
    """A run with rows marked as faulty is behind at one of these, and nowhere else."""
    runs, wrong = pd.read_csv(REFERENCE_RUNS, sep="\t"), []
    for name, curve in runs.groupby("curve", sort=False):
        references = runs[runs["curve"] != name]
        behind = {True: 0, False: 0}  # faulty or not -> rows
        for row in curve.to_dict("records"):
            recipe = {column: row[column] for column in ("objective", *RECIPE, *MAX_RATIOS)}
            result = check_loss(Run(recipe, row["tokens_m"] * 1e6, {"gap": row["gap"]}), references)
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
