"""Minimal pairs in BLiMP's layout: which are judged, and how."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.yaml_files import TASK_SOURCES
from pipeline_src.interpret.minimal_pairs import (
    SentencePair,
    WordPair,
    judge_sentence_pairs,
    judge_word_pairs,
    read_pair_set,
    template_pairs,
)
from pipeline_src.interpret.model import SkipMeasure
from pipeline_src.sources.catalogue import load_source
from tests.unit.interpret.conftest import unigram_model


def test_template_pairs_each_form_is_correct_equally_often():
    for _, pairs in template_pairs().values():
        assert len(pairs) % 2 == 0 and sum(pair.plural for pair in pairs) * 2 == len(pairs)
        assert all(pair.with_form(pair.good).words[pair.position] == pair.good != pair.bad for pair in pairs)
    across = template_pairs()["agreement_across_a_phrase"][1][0]
    assert across.with_form("is").words == ("The", "man", "near", "the", "women", "is", "not", "here", ".")


def word_pairs(*forms: tuple[str, str, bool]) -> list[WordPair]:
    return [WordPair("a {choice} b", *form, cluster=str(number)) for number, form in enumerate(forms)]


def test_judge_word_pairs_scores_equal_hand_computed_values():
    prefers_is = unigram_model(**{"is": 0.5, "are": 0.25})
    forms = [("is", "are", False)] * 3 + [("are", "is", True), ("aa", "b", False), ("Москва", "Волга", False)]
    figures = judge_word_pairs(prefers_is, unigram_model(**{"is": 0.25, "are": 0.5}), word_pairs(*forms), "title", 1)
    assert (figures["pairs"], figures["left_out"]) == (4, 2)  # two tokens, unknown
    assert (figures["singular"], figures["plural"], figures["accuracy"]) == (1.0, 0.0, 0.75)
    assert (figures["balanced"], figures["random"], figures["commoner"]) == (0.5, 0.5, 0.75)
    only_singular = word_pairs(*[("is", "are", False)] * 3)
    figures = judge_word_pairs(prefers_is, unigram_model(**{"is": 0.25, "are": 0.5}), only_singular, "title", 1)
    assert (figures["balanced"], figures["random"], figures["gain"], figures["plural"]) == (1.0, 0.0, [1.0, 1.0], None)


def test_judge_word_pairs_without_single_token_forms_is_skipped(model):
    with pytest.raises(SkipMeasure):
        judge_word_pairs(model, model, word_pairs(("Москва", "Волга", False)), "title", 1)


def test_judge_sentence_pairs_accuracy_equals_hand_computed_value():
    prefers_a, prefers_b = unigram_model(a=0.5, b=0.25), unigram_model(a=0.25, b=0.5)
    texts = [("a c", "b c", "x"), ("a b", "b b", "x"), ("b", "a", "y"), ("a c", "c a", "y")]  # the last a tie: a half
    pairs = [SentencePair(good, bad, phenomenon, "") for good, bad, phenomenon in texts]
    figures = judge_sentence_pairs(prefers_a, prefers_b, pairs, "own")
    assert {name: (row["accuracy"], row["random"]) for name, row in figures.items()} == {
        "own all": (0.625, 0.375),
        "own x": (1.0, 0.0),
        "own y": (0.25, 0.75),
    }
    half = 1.96 * np.std([0.0, 0.5]) / 2**0.5
    assert figures["own y"]["between"] == pytest.approx([0.25 - half, 0.25 + half], abs=1e-4)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two phenomena, one of them with two paradigms; a pair of the same tokens, and one that does not fit."""
    nouns = [f"{first} {second}" for first in "abcdefghij" for second in "abcdefghij"]
    paradigms = {
        ("agreement", "agreement_1"): [(f"{noun} is c.", f"{noun} are c.") for noun in nouns],
        ("agreement", "agreement_2"): [("a is b", "a are b"), ("A is", "a is")],
        ("word_order", "order"): [("a b c.", "c b a."), ("a " * 60, "b " * 60)],
    }
    for (phenomenon, paradigm), pairs in paradigms.items():
        columns = {"linguistics_term": phenomenon, "UID": paradigm, "field": "syntax", "pairID": "0"}
        lines = (json.dumps({"sentence_good": good, "sentence_bad": bad} | columns) for good, bad in pairs)
        (tmp_path / f"{paradigm}.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return tmp_path


def test_judge_sentence_pairs_results_are_grouped_by_phenomenon(folder, model):
    pairs = read_pair_set(folder, 1, 30)
    assert Counter(pair.paradigm for pair in pairs) == {"agreement_1": 30, "agreement_2": 2, "order": 2}
    assert pairs == read_pair_set(folder, 1, 30) != read_pair_set(folder, 2, 30)
    assert len(read_pair_set(folder, 1)) == 104
    control = model.with_random_weights(1)
    figures = judge_sentence_pairs(model, control, pairs, "own")
    counts = {name: (row["pairs"], row["left_out"]) for name, row in figures.items()}
    assert counts == {"own all": (32, 2), "own agreement": (31, 1), "own word_order": (1, 1)}
    row = figures["own agreement"]
    assert row["title"] == "own: agreement"
    assert row["between"][0] <= row["accuracy"] <= row["between"][1] and row["gain"][0] <= row["gain"][1]
    assert judge_sentence_pairs(model, model, pairs, "own")["own all"]["gain"] == [0.0, 0.0]
    swapped = [replace(pair, good=pair.bad, bad=pair.good) for pair in pairs]
    accuracy = judge_sentence_pairs(model, control, swapped, "own")["own agreement"]["accuracy"]
    assert accuracy == pytest.approx(1 - row["accuracy"], abs=1e-4)


def test_read_pair_set_parquet_equals_json_lines(folder, tmp_path_factory):
    converted = tmp_path_factory.mktemp("parquet")
    for path in folder.glob("*.jsonl"):
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        parquet.write_table(pyarrow.Table.from_pylist(rows), converted / f"{path.stem}.parquet")
    assert read_pair_set(converted, 1, 30) == read_pair_set(folder, 1, 30)


def test_read_pair_set_missing_file_or_key_is_rejected(tmp_path):
    with pytest.raises(PipelineError, match="minimal pairs not found"):
        read_pair_set(tmp_path, 1)
    (tmp_path / "one.jsonl").write_text('{"sentence_good": "a"}\n', encoding="utf-8")
    with pytest.raises(PipelineError, match=r"(?s)a minimal pair lacks a key: sentence_bad.*one.jsonl:1"):
        read_pair_set(tmp_path, 1)


def test_blimp_catalogue_entry_has_67_files():
    (file,) = load_source(TASK_SOURCES, "blimp").files
    assert len(file.unpack) == 67 and all(member == f"data/{path}" for path, member in file.unpack.items())
