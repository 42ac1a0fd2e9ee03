"""Where a training lies, and causes by name, on synthetic curves; the atlas's rows against their origins."""

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
from pipeline_src.config.pretrain import Masking
from pipeline_src.examples.token_store import TokenStore, TokenWriter
from pipeline_src.pretraining.diagnosis import (
    CAUSES,
    CorpusFacts,
    Run,
    RunSettings,
    diagnose,
    expected_gap,
    place_of,
    read_atlas,
)
from tests.unit.pretraining.small import train_phase

ROOT = Path(__file__).resolve().parents[3]
SAMPLE = RunSettings("bert", "mlm", "muon", "neighbor_heads", 2, 128, 4096, 0.15)
UNIGRAM = 6.5
SOUND_TEXT = CorpusFacts(tokens=2_000_000, entropy=6.6, unknown=0.0, repeated=0.001)


def atlas(*curves: tuple[str, Sequence[tuple[float, float]]], **changes: Any) -> pd.DataFrame:
    """An atlas of curves of (million tokens, gap) of the sample's recipe."""
    recipe = {
        **{"architecture": "bert", "objective": "mlm", "optimizer": "muon", "position_init": "neighbor_heads"},
        **{"num_hidden_layers": 2, "hidden_size": 128, "vocab_size": 4096, "mask_prob": 0.15},
        **{"unigram_loss": UNIGRAM, "fault": math.nan},
    }
    return pd.DataFrame(
        [
            {"curve": name, "tokens_m": tokens, "gap": gap, **recipe, **changes}
            for name, points in curves
            for tokens, gap in points
        ]
    )


SLOW_AND_FAST = atlas(("slow", [(1, 1.0), (4, 2.0)]), ("fast", [(1, 1.5), (4, 2.5)]))


def run(gap: float, *, visible: float = 1.0, tokens: float = 2e6, **more: Any) -> Run:
    """A run of the sample's recipe, ``visible`` nats below the unigram baseline where tokens are visible."""
    mask_loss = UNIGRAM - gap
    mlm_loss = 0.8 * mask_loss + 0.2 * (UNIGRAM - visible)
    figures = {"mlm_loss": mlm_loss, "mask_loss": mask_loss, "unigram_loss": UNIGRAM, "gap": gap, "predictions": 20_000}
    return Run(SAMPLE, tokens, figures, **{"step": 200, "warmup_steps": 150, "corpus": SOUND_TEXT} | more)


def rows(losses: Sequence[float], norms: Sequence[float] | None = None) -> list[dict[str, float]]:
    """A training curve with a row every 20 steps."""
    norms = [1.0] * len(losses) if norms is None else norms
    return [
        {"step": 20 * number, "mlm_loss": loss, "grad_norm": norm}
        for number, (loss, norm) in enumerate(zip(losses, norms, strict=True), 1)
    ]


def cause_of(run: Run) -> str | None:
    found = diagnose(run, SLOW_AND_FAST)
    assert found is not None and (found.cause is None or f"Likely cause: {found.cause}, since " in found.sentence)
    return found.cause


@pytest.mark.parametrize(
    ("gap", "place"), [(-2.0, "before"), (-0.1, "plateau"), (0.05, "plateau"), (0.3, "leaving"), (0.5, "beyond")]
)
def test_places(gap, place):
    assert place_of(gap) == place


@pytest.mark.parametrize(("gap", "pace"), [(1.1, "behind"), (1.3, "normal"), (2.2, "normal"), (2.4, "ahead")])
def test_pace_is_that_of_comparable_trainings_and_a_band(gap, pace):
    """After 2 M tokens, halfway between 1 and 4 M by logarithm, they have 1.5 and 2.0."""
    found = diagnose(run(gap), SLOW_AND_FAST)
    assert found is not None and found.pace == pace and found.cause is None
    assert f"{pace} (comparable trainings: 1.50 to 2.00)" in found.sentence
    assert ("None of the known causes" in found.sentence) == (pace == "behind")


def test_comparable_trainings():
    def expected(table: pd.DataFrame, tokens: float = 1e6) -> tuple[float, float] | None:
        return expected_gap(SAMPLE, tokens, table)

    assert expected(SLOW_AND_FAST) == (1.0, 1.5)
    assert expected(SLOW_AND_FAST, 5.9e6) == (2.0, 2.5) and expected(SLOW_AND_FAST, 6.1e6) is None
    assert expected(SLOW_AND_FAST, 0.8e6) is None  # what they had before they were measured is not known
    for changes in ({"hidden_size": 256}, {"vocab_size": 30522}, {"mask_prob": 0.5}, {"objective": "clm"}):
        assert expected(atlas(("a", [(1, 1.0)]), **changes)) is None
    other = atlas(("other", [(1, 0.1)]), architecture="albert")
    assert expected(other) == (0.1, 0.1)
    assert expected(pd.concat([other, SLOW_AND_FAST])) == (1.0, 1.5)  # the same architecture counts alone
    assert expected(atlas(("a", [(1, 1.0)]), fault="positions")) is None


def test_a_loss_without_masks_or_from_another_model_is_not_compared():
    assert diagnose(Run(SAMPLE, 1e6, {"mlm_loss": 3.0}), SLOW_AND_FAST) is None
    assert diagnose(Run(SAMPLE, 1e6, {"gap": math.nan}), SLOW_AND_FAST) is None
    found = diagnose(run(0.4, goes_on=True), SLOW_AND_FAST)
    assert found is not None and found.pace is None and "from another model" in found.sentence


FALLING = [8.3, 7.8, 7.3, 6.9, 6.7, 6.6, 6.6, 6.5, 6.4, 6.3]
ALWAYS = Masking(mask_ratio=1.0, random_ratio=0.0, keep_ratio=0.0)
KEPT = Masking(mask_ratio=0.85, random_ratio=0.0, keep_ratio=0.15)  # a token that is seen is always the right one
FLAT = [8.3, 7.8, 7.3, 6.9, 6.7, 6.6, 6.6, 6.6, 6.6, 6.6]
CASES: dict[str, tuple[str | None, Run]] = {
    "sound": (None, run(0.06, visible=0.7, rows=rows(FALLING))),
    "sound, but slow": (None, run(-0.04, visible=0.4, rows=rows(FLAT))),
    "counts only just known": (
        None,
        run(-0.1, visible=-0.1, rows=rows([8.3, 8.2, 8.1, 8.0, 7.8, 7.5, 7.2, 6.8, 6.7, 6.6])),
    ),
    "begins to copy": (None, run(-0.04, visible=0.14, rows=rows(FLAT))),
    "in the warm-up": (None, run(-1.5, visible=-1.5, rows=rows([8.33] * 10), warmup_steps=10_000)),
    "only begun": (None, run(-1.5, visible=-1.5, rows=rows([8.3, 8.0]), step=40, warmup_steps=5)),
    "a large norm that learns": (None, run(1.5, rows=rows(FALLING, [1.0] * 5 + [4.0] * 5))),
    "always [MASK]": (None, run(-0.03, visible=-0.1, rows=rows(FLAT), masking=ALWAYS)),
    "ELECTRA": (None, run(0.0, visible=-0.2, rows=rows(FLAT, [1.0] * 5 + [3.0] * 5), masking=KEPT)),
    "learnt by heart": (None, run(0.3, rows=rows([8.0] * 5 + [0.5] * 5), tokens=40e6)),
    "[UNK]": ("[UNK] in the text", run(1.5, corpus=CorpusFacts(2_000_000, 3.6, 0.4, 0.3))),
    "lines": ("repeated text", run(1.5, corpus=CorpusFacts(2_000_000, 5.9, 0.0, 0.99))),
    "few words": ("repeated text", run(1.5, corpus=CorpusFacts(2_000_000, 4.0, 0.0, 0.0))),
    "visible": ("masks that show the words", run(-3.0, rows=rows([8.3, 7.0, 5.0, 3.0, 2.0, 1.0, 0.7, 0.6, 0.5, 0.5]))),
    "rising": ("learning rate too high", run(-0.5, visible=-0.5, rows=rows([*FALLING[:6], 6.9, 7.1, 7.2, 7.3]))),
    "norm": ("learning rate too high", run(-0.1, visible=-0.1, rows=rows(FLAT, [1.4, 1.0, 1.0, 1.1, *[3.0] * 6]))),
    "no rate": ("learning rate near zero", run(-1.8, visible=-1.8, rows=rows([8.33] * 10))),
    "shuffled": ("labels that do not belong to their positions", run(-0.07, visible=-0.06, rows=rows(FLAT))),
}


@pytest.mark.parametrize("name", CASES)
def test_causes(name):
    cause, seeded = CASES[name]
    assert cause_of(seeded) == cause


def test_every_cause_is_tried():
    assert set(CAUSES) == {cause for cause, _ in CASES.values() if cause}


@settings(max_examples=50, deadline=None, derandomize=True)  # of thousands of such curves one may name a cause
@given(
    st.integers(0, 2**31), st.floats(0.0, 0.3), st.integers(10, 100), st.floats(0.05, 3.0),
)  # fmt: skip
def test_noise_is_no_alarm(seed, noise, count, gap):
    """A falling loss with noise and a norm that varies by a fifth names no cause; the same curves in every run."""
    random = np.random.default_rng(seed)
    losses = UNIGRAM - gap * np.linspace(0, 1, count) + 1.8 * np.exp(-np.arange(count) / 3)
    noisy = (losses + noise * random.standard_normal(count)).tolist()
    curve = rows(noisy, (1 + 0.2 * random.uniform(-1, 1, count)).tolist())
    assert cause_of(run(gap, visible=gap + 0.3, rows=curve, step=20 * count)) is None


def test_facts_of_a_corpus(tmp_path):
    writer = TokenWriter(tmp_path, "train", 20)
    lines = [np.arange(5, 13), np.arange(6, 14), np.arange(5, 13), np.arange(5, 13), np.array([1, 1]), np.array([1, 1])]
    writer.add(np.concatenate(lines), np.array([len(line) for line in lines]), np.array([6]))
    write_json(tmp_path / "manifest.json", {"splits": {"train": writer.close()}})
    store = TokenStore(tmp_path, "train")
    facts = CorpusFacts.of(store, store.counts(20), 1)
    assert facts.repeated == 0.5  # of four long sentences two are equal to an earlier one; short ones do not count
    assert facts.unknown == 4 / 36 and facts.tokens == 36
    shares = np.array([4, 3, 4, 4, 4, 4, 4, 4, 4, 1]) / 36
    assert facts.entropy == pytest.approx(-(shares * np.log(shares)).sum())
    assert CorpusFacts.of(store, store.counts(20), None).unknown == 0


def test_every_row_of_the_atlas_has_its_origin():
    table = read_atlas()
    assert table[["curve", "tokens_m", "gap", "origin"]].notna().all(axis=None) and (table["tokens_m"] > 0).all()
    assert not table.duplicated(["curve", "tokens_m"]).any()
    for origin in table["origin"].unique():
        assert (ROOT / origin.partition(",")[0]).is_file(), origin


def test_the_family_in_the_atlas_is_as_recorded():
    table = read_atlas().set_index("curve")["gap"]
    with open(ROOT / "docs/lab/family.tsv", encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            if f"family, {row['member']}, seed {row['seed']}" in table:
                assert table[f"family, {row['member']}, seed {row['seed']}"] == float(row["gap"])
    assert sum(name.startswith("family, ") for name in table.index) == 24


def test_a_phase_logs_and_records_its_diagnosis(study, caplog):
    with caplog.at_level("INFO", "pipeline_src"):
        train_phase("phase1", eval_steps=30)
    found = read_json(Path("results/pretrain/phase1.json"), dict)["diagnosis"]
    said = [record.getMessage() for record in caplog.records if "is this normal?" in record.getMessage()]
    assert len(said) == 2 and found["sentence"] in said[1]
    assert found["pace"] is None and "no comparable training was measured" in found["sentence"]
