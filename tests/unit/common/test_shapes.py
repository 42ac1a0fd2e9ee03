"""Shapes of JSON: what a stage wrote is taken, anything else is named by its place."""

from __future__ import annotations

import random

import pytest

from benchmarks._fuzz_cases import mutated
from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import read_json, write_json
from pipeline_src.common.shapes import misfit

SHAPE = {"splits": {str: {"tokens": int, "loss": float}}, "shards": [{"name": str}], "more": object}
WRITTEN = {"splits": {"train": {"tokens": 3, "loss": 0.5, "extra": None}}, "shards": [{"name": "a"}], "more": [1]}


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (WRITTEN, None),
        ([], "the file is [], not an object"),
        ({}, "the file lacks splits"),
        (WRITTEN | {"splits": {"train": {"tokens": -1, "loss": 1}}}, "splits.train.tokens is -1, not a whole number"),
        (WRITTEN | {"splits": {"train": {"tokens": True, "loss": 1}}}, "splits.train.tokens is True"),
        (WRITTEN | {"splits": {"train": {"tokens": 1, "loss": float("nan")}}}, "splits.train.loss is nan"),
        (WRITTEN | {"splits": {"train": {"tokens": 1}}}, "splits.train lacks loss"),
        (WRITTEN | {"shards": {}}, "shards is {}, not a list"),
        (WRITTEN | {"shards": [{"name": "a"}, 5]}, "shards[1] is 5, not an object"),
    ],
)
def test_the_first_misfit_is_named(value, said):
    found = misfit(value, SHAPE)
    assert (found is None) if said is None else found.startswith(said)


def test_any_change_of_a_file_is_taken_whole_or_refused(tmp_path):
    refused, path = 0, tmp_path / "manifest.json"
    for seed in range(300):
        try:
            write_json(path, mutated(random.Random(seed), WRITTEN))
        except ValueError:  # infinity, or half a character
            continue
        try:
            value = read_json(path, SHAPE)
        except PipelineError as error:
            assert error.where == path
            refused += 1
        else:
            assert all(row["tokens"] >= 0 for row in value["splits"].values())
            assert all(shard["name"].isascii() or shard["name"] for shard in value["shards"])
    assert refused > 100
