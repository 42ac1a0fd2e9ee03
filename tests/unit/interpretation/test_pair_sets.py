"""Minimal pairs in BLiMP's layout: which are judged, and how."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline_src.common.catalogue import TASK_SOURCES
from pipeline_src.common.errors import PipelineError
from pipeline_src.interpretation.pair_sets import A_PARADIGM, judge_pair_set, read_pair_set
from pipeline_src.interpretation.scoring import pseudo_log_likelihoods
from pipeline_src.sources.catalogue import load_source

ROW = {"field": "syntax", "one_prefix_method": True, "pairID": "0"}


def line(good: str, bad: str, phenomenon: str, paradigm: str) -> str:
    told = {"sentence_good": good, "sentence_bad": bad, "linguistics_term": phenomenon, "UID": paradigm}
    return json.dumps(told | ROW) + "\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two phenomena, one of them with two paradigms; a pair of the same tokens, and one that does not fit."""
    letters = "abcdefghij"
    agreement = [
        line(f"{a} {b} is c.", f"{a} {b} are c.", "agreement", "agreement_1") for a in letters for b in letters
    ]
    (tmp_path / "agreement_1.jsonl").write_text("".join(agreement), encoding="utf-8")
    few = [line("a is b", "a are b", "agreement", "agreement_2"), line("A is", "a is", "agreement", "agreement_2")]
    (tmp_path / "agreement_2.jsonl").write_text("".join(few), encoding="utf-8")
    order = [line("a b c.", "c b a.", "word_order", "order"), line("a " * 60, "b " * 60, "word_order", "order")]
    (tmp_path / "order.jsonl").write_text("".join(order), encoding="utf-8")
    return tmp_path


def test_some_pairs_of_every_paradigm_are_judged_by_phenomenon(folder, model):
    pairs = read_pair_set(folder, 1)
    assert Counter(pair.paradigm for pair in pairs) == {"agreement_1": A_PARADIGM, "agreement_2": 2, "order": 2}
    assert pairs == read_pair_set(folder, 1) != read_pair_set(folder, 2)
    control = model.with_random_weights(1)
    found = judge_pair_set(model, control, pairs, "own", 1)
    counts = {name: (row["pairs"], row["left_out"]) for name, row in found.items()}
    assert counts == {"own all": (32, 2), "own agreement": (31, 1), "own word_order": (1, 1)}
    kept = [pair for pair in pairs if pair.phenomenon == "agreement" and pair.good.words[0] != "A"]
    likelier = [
        sum(good) > sum(bad)
        for good, bad in zip(
            *(pseudo_log_likelihoods(model, [getattr(pair, side) for pair in kept]) for side in ("good", "bad")),
            strict=True,
        )
    ]
    row = found["own agreement"]
    assert row["title"] == "own: agreement" and row["accuracy"] == pytest.approx(sum(likelier) / 31, abs=1e-4)
    assert row["between"][0] <= row["accuracy"] <= row["between"][1] and row["gain"][0] <= row["gain"][1]
    assert judge_pair_set(model, model, pairs, "own", 1)["own all"]["gain"] == [0.0, 0.0]
    turned = [replace(pair, good=pair.bad, bad=pair.good) for pair in pairs]
    again = judge_pair_set(model, control, turned, "own", 1)["own agreement"]
    assert again["accuracy"] == pytest.approx(1 - row["accuracy"], abs=1e-4)


def test_broken_files_are_one_sentence(tmp_path):
    with pytest.raises(PipelineError, match=r"(?s)no minimal pairs here.*download_tasks"):
        read_pair_set(tmp_path, 1)
    (tmp_path / "one.jsonl").write_text('{"sentence_good": "a"}\n', encoding="utf-8")
    with pytest.raises(PipelineError, match=r"(?s)a pair lacks a value: sentence_bad.*one.jsonl:1"):
        read_pair_set(tmp_path, 1)


def test_blimp_is_in_the_catalogue_whole():
    (file,) = load_source(TASK_SOURCES, "blimp").files
    assert len(file.unpack) == 67 and all(member == f"data/{path}" for path, member in file.unpack.items())
