"""A real checkpoint, MiniLM, gives the same outputs as transformers on real sentences."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import pytest
import torch

os.environ.setdefault("HF_HUB_OFFLINE", "1")
from pipeline_src.model.bert import Bert
from pipeline_src.model.hub import load_config, load_weights
from pipeline_src.pretrain import import_model
from pipeline_src.tokenizer.load import load_tokenizer

SENTENCES = [
    "A cat sits on the mat.",
    "Brevity.",
    "The history of natural language processing generally started in the 1950s, although work can be found from "
    "earlier periods; in 1950, Alan Turing published an article titled “Computing Machinery and Intelligence”.",
    "Zoë's naïve façade cost €3.50 (北京, Ωmega)!",
    "Does the committee meet on Tuesday, or has it been put off again until the minister comes back from Brussels?",
    "",
]


@pytest.fixture(scope="module")
def folder(minilm) -> Path:
    """Return the folder of the published checkpoint."""
    return minilm


@pytest.fixture(scope="module")
def imported(folder, tmp_path_factory) -> Path:
    """Import the published checkpoint."""
    target = tmp_path_factory.mktemp("imported") / "minilm"
    parser = argparse.ArgumentParser()
    import_model.add_arguments(parser)
    import_model.main(parser.parse_args([str(folder), str(target)]))
    return target


@pytest.fixture(scope="module")
def theirs(folder):
    """Return transformers' attention mask, hidden states and pooler output for the padded sentences."""
    transformers = pytest.importorskip("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    batch = tokenizer(SENTENCES, padding=True, return_tensors="pt")
    with torch.inference_mode():
        outputs = transformers.AutoModel.from_pretrained(folder).eval()(**batch)
    return batch, outputs


def test_bert_minilm_outputs_equal_transformers(folder, theirs):
    batch, outputs = theirs
    keep = batch["attention_mask"].bool()
    model = Bert(load_config(folder)).eval()
    load_weights(model, folder)
    cu_seqlens = torch.nn.functional.pad(keep.sum(1).cumsum(0), (1, 0))
    with torch.inference_mode():
        hidden, pooled = model(batch["input_ids"][keep], batch["token_type_ids"][keep], cu_seqlens)
    torch.testing.assert_close(hidden, outputs.last_hidden_state[keep], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(pooled, outputs.pooler_output, rtol=1e-5, atol=1e-5)


def test_import_model_minilm_tokenizer_ids_equal_transformers(imported, theirs):
    tokenizer = load_tokenizer(imported)
    batch, _ = theirs
    for sentence, ids, keep in zip(SENTENCES, batch["input_ids"], batch["attention_mask"].bool(), strict=True):
        assert tokenizer.encode(sentence).ids == ids[keep].tolist()


def test_import_model_minilm_folder_is_loaded_by_transformers(imported, theirs):
    transformers = pytest.importorskip("transformers")
    batch, outputs = theirs
    model, info = transformers.AutoModel.from_pretrained(imported, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"]
    with torch.inference_mode():
        again = model.eval()(**batch)
    torch.testing.assert_close(again.pooler_output, outputs.pooler_output, rtol=1e-6, atol=1e-6)
    rows = zip(batch["input_ids"], batch["attention_mask"].bool(), strict=True)
    tokenizer = transformers.AutoTokenizer.from_pretrained(imported)
    assert tokenizer(SENTENCES)["input_ids"] == [ids[keep].tolist() for ids, keep in rows]
