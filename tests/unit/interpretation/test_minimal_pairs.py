"""Minimal pairs in BLiMP's layout: which are judged, and how."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.yaml_files import TASK_SOURCES
from pipeline_src.download.catalogue import load_source
from pipeline_src.interpretation.minimal_pairs import (
    WordPair,
    judge,
    judge_pair_set,
    masked_likelihoods,
    preference,
    read_pair_set,
    template_pairs,
)


def test_ties_are_a_half():
    assert [preference(*pair) for pair in ((1, 1), (1, 0), (0, 1))] == [0.5, 1.0, 0.0]


def test_templates_are_right_in_both_numbers_equally_often():
    for _, pairs in template_pairs().values():
        assert len(pairs) % 2 == 0 and sum(pair.plural for pair in pairs) * 2 == len(pairs)
        assert all(pair.words[pair.position] == pair.good != pair.bad for pair in pairs)
    across = template_pairs()["agreement_across_a_phrase"][1][0]
    assert across.words == ("The", "man", "near", "the", "women", "is", "not", "here", ".")


def test_pairs_of_one_token_are_judged_and_the_others_counted(model):
    pairs = [
        WordPair(("a", "is", "b"), 1, "is", "are", False, "a"),
        WordPair(("c", "are", "b"), 1, "are", "is", True, "c"),
    ]
    found = judge(model, model, [*pairs, WordPair(("a", "aa", "b"), 1, "aa", "b", False, "a")], 1)
    assert (found["pairs"], found["left_out"], found["commoner"]) == (2, 1, 0.5)
    assert found["balanced"] == found["accuracy"] == found["random"] and found["gain"] == [0, 0]
    assert judge(model, model, [], 1) is None


ROW = {"field": "syntax", "one_prefix_method": True, "pairID": "0"}


def line(good: str, bad: str, phenomenon: str, paradigm: str) -> str:
    row = {"sentence_good": good, "sentence_bad": bad, "linguistics_term": phenomenon, "UID": paradigm}
    return json.dumps(row | ROW) + "\n"


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
    pairs = read_pair_set(folder, 1, 30)
    assert Counter(pair.paradigm for pair in pairs) == {"agreement_1": 30, "agreement_2": 2, "order": 2}
    assert pairs == read_pair_set(folder, 1, 30) != read_pair_set(folder, 2, 30)
    assert len(read_pair_set(folder, 1)) == 104
    control = model.with_random_weights(1)
    found = judge_pair_set(model, control, pairs, "own")
    counts = {name: (row["pairs"], row["left_out"]) for name, row in found.items()}
    assert counts == {"own all": (32, 2), "own agreement": (31, 1), "own word_order": (1, 1)}
    row = found["own agreement"]
    assert row["title"] == "own: agreement"
    assert row["between"][0] <= row["accuracy"] <= row["between"][1] and row["gain"][0] <= row["gain"][1]
    assert judge_pair_set(model, model, pairs, "own")["own all"]["gain"] == [0.0, 0.0]
    turned = [replace(pair, good=pair.bad, bad=pair.good) for pair in pairs]
    again = judge_pair_set(model, control, turned, "own")["own agreement"]
    assert again["accuracy"] == pytest.approx(1 - row["accuracy"], abs=1e-4)


def test_each_token_is_masked_alone_whatever_the_lengths(model):
    texts = [model.ids(text) for text in ("a is b", "c", "a b c d is here .", "b is a")]
    small = replace(model, batch_tokens=1)
    found = masked_likelihoods(model, texts)
    assert found == pytest.approx(masked_likelihoods(small, texts), abs=1e-4)
    for text, score in zip(texts, found, strict=True):
        masked = [[model.mask if at == place else token for at, token in enumerate(text)] for place in range(len(text))]
        found = model.log_probabilities(masked, [[place] for place in range(len(text))])
        assert score == pytest.approx(sum(float(row[0, t]) for row, t in zip(found, text, strict=True)), abs=1e-4)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="its kernels run on a GPU alone, and there is none")
def test_a_gpu_scores_as_the_cpu_does(model):
    texts = [model.ids(text) for text in ("a is b", "c", "a b c d is here .")]
    expected = masked_likelihoods(model, texts)
    on_gpu = model.to(torch.device("cuda"))
    assert on_gpu.device.type == "cuda"
    assert masked_likelihoods(on_gpu, texts) == pytest.approx(expected, rel=3e-2)  # attention in bfloat16 there


def test_broken_files_are_one_sentence(tmp_path):
    with pytest.raises(PipelineError, match=r"(?s)no minimal pairs here.*download_tasks"):
        read_pair_set(tmp_path, 1)
    (tmp_path / "one.jsonl").write_text('{"sentence_good": "a"}\n', encoding="utf-8")
    with pytest.raises(PipelineError, match=r"(?s)a pair lacks a value: sentence_bad.*one.jsonl:1"):
        read_pair_set(tmp_path, 1)


def test_blimp_is_in_the_catalogue_whole():
    (file,) = load_source(TASK_SOURCES, "blimp").files
    assert len(file.unpack) == 67 and all(member == f"data/{path}" for path, member in file.unpack.items())
