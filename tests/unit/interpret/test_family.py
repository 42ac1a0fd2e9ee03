"""Measures of every member of the family; what a member lacks is skipped with a reason."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import pytest
import torch

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import read_json
from pipeline_src.base.registry import member_names
from pipeline_src.interpret.attention_maps import attention_maps
from pipeline_src.interpret.data import InterpretationContext
from pipeline_src.interpret.interpret import write_measures
from pipeline_src.interpret.model import ProbedModel, pseudo_log_likelihoods
from pipeline_src.study.interpretation import InterpretationParams
from pipeline_src.tools.fill_mask import fill_mask
from pipeline_src.tools.inspect import attention
from tests.unit.interpret.conftest import make_model, save, write_texts

WITHOUT_ATTENTION = ("bilstm", "word_vectors")
PARAMS = InterpretationParams(words=400, sentences=4, prompts=(), shown=("a bab c.",))


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("family")
    write_texts(root)
    return root


@pytest.mark.parametrize("name", member_names("models"))
def test_write_measures_every_architecture_skips_unsupported_measures(name, folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    saved = make_model(name)
    model = ProbedModel.open(save(folder / name, saved))
    log_probs, expected = (pseudo_log_likelihoods(side, [[5, 6, 7]])[0] for side in (model, saved))
    assert log_probs == pytest.approx(expected, abs=1e-5)
    context = InterpretationContext(1, PARAMS, ("books", "wikipedia"), 0.3, ("rte",), Path(name), "learned")
    write_measures(context, folder / "measures" / name)
    contents, heads, probes = (
        read_json(folder / "measures" / name / f"{part}.json") for part in ("contents", "heads", "probes")
    )
    skipped, about = contents["skipped"], contents["model"]
    assert about["title"] == model.config.names.title
    assert len(probes["capitals"]["model"]["accuracy"]) == about["layers"] + 1
    assert not {"agreement", "self-similarity", "capitals"} & skipped.keys()
    assert [len(candidates) for candidates in fill_mask(model, "a [MASK] c [MASK]", 3)] == [3, 3]
    arguments = Namespace(model=Path(name), texts=["a bab c"], output=folder / f"{name}.html")
    if name in WITHOUT_ATTENTION:
        assert skipped["roles"] == skipped["attention"] == "the model has no attention" and about["heads"] == 0
        with pytest.raises(PipelineError, match="no attention"):
            attention(arguments)
        return
    assert about["heads"] == 2 and len(heads["roles"]["roles"]) == about["layers"] == 2
    attention(arguments)
    assert "layer" in arguments.output.read_text(encoding="utf-8")
    for _, maps in attention_maps(model, [[5, 6, 7], [8, 9]]):
        torch.testing.assert_close(maps.sum(-1), torch.ones(maps.shape[:-1]))


def test_attention_maps_local_attention_is_zero_outside_window():
    model = make_model("modernbert", local_attention=4, global_attn_every_n_layers=2)
    ((_, maps),) = attention_maps(model, [[5, 6, 7, 8, 9, 10]])
    apart = (torch.arange(8)[:, None] - torch.arange(8)).abs()
    assert not maps[1][:, apart > 2].any() and (maps[1][:, apart <= 2] > 0).all() and (maps[0] > 0).all()


def test_log_probabilities_deberta_use_enhanced_mask_decoder():
    model = make_model("deberta", mask_decoder=True)
    ids, segments, layout = model.pack([[5, model.mask, 7]])
    (log_probs,) = model.log_probabilities([[5, model.mask, 7]], [[1]])
    decoded, encoded = (
        model.head(forward(ids, segments, layout)[[2]]).log_softmax(-1)
        for forward in (model.encoder.decode, model.encoder.encode)
    )
    torch.testing.assert_close(log_probs, decoded)
    assert (log_probs - encoded).abs().max() > 0.01


def test_open_next_word_head_is_not_used_as_mlm_head(tmp_path):
    saved = make_model("bilstm")
    if hasattr(saved.head, "transform"):
        del saved.head.transform
    model = ProbedModel.open(save(tmp_path / "model", saved))
    assert model.head is None and model.lacks == "the model has no MLM head"
