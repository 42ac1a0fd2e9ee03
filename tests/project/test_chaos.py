"""The studies that ``tests.stress.chaos`` draws, and the page on what it found."""

from __future__ import annotations

import random
from copy import deepcopy

import yaml

from pipeline_src.study.preset import preset_text
from pipeline_src.study.study import check_study
from tests.stress.chaos import LEDGER, draw_study, summary


def test_draw_study_is_valid_and_repeatable(root, monkeypatch):
    monkeypatch.chdir(root)
    preset, drawn = yaml.safe_load(preset_text("test")), []
    for seed in [*range(40), 0]:
        params = deepcopy(preset)
        words = draw_study(random.Random(seed), params)
        check_study(params, "params.yaml")
        drawn.append((words, params))
    assert drawn[0] == drawn[-1] and len({words for words, _ in drawn}) > 30


def test_kills_page_equals_sums_of_ledger():
    assert summary(LEDGER) in LEDGER.with_suffix(".md").read_text(encoding="utf-8")
