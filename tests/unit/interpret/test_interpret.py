"""The stage: every measure is written, or skipped with a reason."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import read_json
from pipeline_src.interpret import interpret
from pipeline_src.interpret.data import InterpretationContext, LabelledSentences, TagSet
from pipeline_src.interpret.interpret import MEASURES, write_measures
from pipeline_src.interpret.model import Sentence
from pipeline_src.study.finetune import FinetuneParams
from pipeline_src.study.interpretation import InterpretationParams
from pipeline_src.study.model import ModelParams
from tests.studies import corpus_of
from tests.unit.interpret.conftest import make_model, write_texts

PARAMS = InterpretationParams(words=400, sentences=5, prompts=("a b",), shown=("a bab c.",))


def context(params: InterpretationParams = PARAMS) -> InterpretationContext:
    return InterpretationContext(1, params, ("books", "wikipedia"), 0.3, ("rte",), Path("model"), "learned")


def test_write_measures_same_bytes_with_any_number_of_threads(project):
    before = torch.get_num_threads()
    for name, threads in (("first", 1), ("second", 2)):
        torch.set_num_threads(threads)
        write_measures(context(), project / name)
    torch.set_num_threads(before)
    files = sorted(path.name for path in (project / "first").iterdir())
    assert files == sorted([*(f"{name}.json" for name in MEASURES), "contents.json"])
    for name in files:
        assert (project / "first" / name).read_bytes() == (project / "second" / name).read_bytes()
    contents = read_json(project / "first/contents.json")
    assert contents["model"] == {"title": "BERT", "layers": 1, "width": 16, "heads": 2}
    trees = "no tagging task of the study has dependency trees"
    assert contents["skipped"]["relations"] == trees
    assert "another language" in contents["skipped"]["two contexts"]
    assert read_json(project / "first/senses.json") == {}
    probes = read_json(project / "first/probes.json")
    assert set(probes) == {"capitals", "self-similarity"} and len(probes["capitals"]["model"]["accuracy"]) == 2
    for side in ("model", "random"):
        figures = probes["capitals"][side]
        for value, (low, high) in zip(figures["balanced"], figures["between"], strict=True):
            assert low <= value <= high


def test_write_measures_empty_params_skip_measures(project):
    empty = InterpretationParams(tags=(), words=0, sentences=0, minimal_pairs=(), prompts=(), shown=())
    write_measures(replace(context(empty), tasks=()), project / "out")
    assert read_json(project / "out/probes.json") == read_json(project / "out/sentences.json") == {}
    assert set(read_json(project / "out/senses.json")) == {"two contexts"}
    skipped = read_json(project / "out/contents.json")["skipped"]
    assert skipped["completions"] == "interpretation.prompts is empty"
    assert (skipped["roles"], skipped["capitals"]) == ("interpretation.sentences is 0", "interpretation.words is 0")


def test_write_measures_corpus_of_one_document_skips_probes(project):
    shutil.rmtree("data/text")
    write_texts(project, documents=1)
    write_measures(context(), project / "out")
    skipped = read_json(project / "out/contents.json")["skipped"]
    assert skipped["capitals"] == "the corpus has no training documents or no validation documents"
    assert skipped["roles"] == skipped["capitals"]
    assert read_json(project / "out/probes.json") == {} and read_json(project / "out/sentences.json") != {}


def test_probes_task_without_tags_is_skipped(project):
    results, reasons = MEASURES["probes"](context(PARAMS.model_copy(update={"tags": ("rte",)})))
    assert reasons["rte"] == "rte is not a tagging task" and "rte" not in results and "capitals" in results


def test_probes_model_with_word_embeddings_gains_over_one_without(project, rng):
    study = context()
    study.model, study.control = make_model(), make_model()
    study.control.encoder.embeddings.word_embeddings.weight.data.zero_()
    labels = rng.integers(0, 2, (200, 4)).tolist()
    sentences = [Sentence(tuple("ab"[label] for label in row), str(number)) for number, row in enumerate(labels)]
    side = LabelledSentences(sentences, labels)
    study.specs, study.tagged = {"pos": None}, {"pos": TagSet(2, side, side)}
    result = MEASURES["probes"](study)[0]["pos"]
    assert result["model"]["accuracy"][0] == 1.0 and max(result["random"]["accuracy"]) < 0.65
    assert result["gain"][0] > 0.3 and result["gain_over_types"] == [0.0, 0.0]


def test_write_measures_model_without_mlm_head_skips_masks(project):
    headless = context()
    headless.model = replace(headless.model, head=None)
    write_measures(headless, project / "out")
    skipped = read_json(project / "out/contents.json")["skipped"]
    assert skipped["agreement"] == skipped["completions"] == "the model has no MLM head"


def test_pairs_set_without_usable_pair_is_left_out_with_its_reason(project):
    row = {"sentence_good": "a b.", "sentence_bad": "a b.", "linguistics_term": "agreement", "UID": "same"}
    folder = project / "data/tasks/blimp"
    folder.mkdir(parents=True)
    (folder / "same.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    results, reasons = MEASURES["pairs"](context(PARAMS.model_copy(update={"minimal_pairs": ("blimp",)})))
    assert results == {} and reasons == {"blimp": "no pair has two different sentences that fit into the model's input"}
    row["sentence_bad"] = "b a."
    (folder / "same.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    results, reasons = MEASURES["pairs"](context(PARAMS.model_copy(update={"minimal_pairs": ("blimp",)})))
    assert set(results) == {"blimp all", "blimp agreement"} and reasons == {}


def test_run_encoder_of_another_architecture_is_rejected(project):
    model = ModelParams(num_hidden_layers=1, hidden_size=16).model_copy(update={"architecture": "other"})
    with pytest.raises(PipelineError, match="another architecture"):
        finetune = FinetuneParams(model="model")
        interpret.run(seed=1, corpus=corpus_of(), model=model, tasks=("rte",), finetune=finetune, interpretation=PARAMS)
