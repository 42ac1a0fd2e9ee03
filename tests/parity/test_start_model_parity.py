"""The validation loss before the first step equals that of transformers' model, for each architecture."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

os.environ.setdefault("HF_HUB_OFFLINE", "1")
from pipeline_src.base.files import read_json, write_json
from pipeline_src.examples.build_examples import run as build_examples
from pipeline_src.model.bert import BertForPretraining, initialise
from pipeline_src.model.hub import save_model
from pipeline_src.pretrain import start_model
from pipeline_src.pretrain.data import PretrainingExamples, open_examples
from pipeline_src.study.data import ExamplesParams, Lengths
from pipeline_src.study.model import ModelParams
from pipeline_src.study.pretrain import Masking, PretrainParams, Steps
from pipeline_src.tokenizer.load import load_tokenizer
from tests.parity.test_family_parity import CASES
from tests.servers import serving_hub
from tests.unit.pretrain.small import make_study, train_phase

transformers = pytest.importorskip("transformers")
EXAMPLES = ExamplesParams(max_seq_length=Lengths(phase1=16, phase2=32), pair_objective="none")
STARTS = ("bert", "roberta", "modernbert", "albert", "distilbert", "deberta", "deberta-v2, convolved", "electra")


@torch.no_grad()
def loss_of(model: torch.nn.Module, examples: PretrainingExamples) -> float:
    """Return the mean loss of a transformers model over all predictions of the same batches."""
    total, count = 0.0, 0
    for number in range(len(examples)):
        batch = examples.batch(np.array([number]))
        ids = torch.from_numpy(batch.ids)[None]
        outputs = model(input_ids=ids, attention_mask=torch.ones_like(ids))
        logits = outputs.get("logits", outputs.get("prediction_logits"))[0, batch.predicted]
        total += float(torch.nn.functional.cross_entropy(logits, torch.from_numpy(batch.labels), reduction="sum"))
        count += len(batch.labels)
    return total / count


@pytest.mark.parametrize("name", STARTS)
def test_start_model_loss_before_first_step_equals_transformers(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    case = CASES[name]
    make_study(tmp_path)
    build_examples(seed=1, examples=EXAMPLES)
    manifest = read_json("data/tokens/manifest.json")
    write_json("data/tokens/manifest.json", {**manifest, "parts": {"validation": {"books": {"documents": 6}}}})
    config = case.config()
    ours = BertForPretraining(config)
    initialise(ours, torch.Generator().manual_seed(3))
    for folder in ("ours", "theirs"):
        Path(folder).mkdir()
    huggingface_class = config.names.classes["pretraining"]
    save_model(Path("ours"), ours, config, huggingface_class, Path("data/vocabulary"))
    reference = getattr(transformers, huggingface_class).from_pretrained("ours", attn_implementation="eager").eval()
    with torch.no_grad():  # random weights predict every word about as well
        for parameter in reference.parameters():
            parameter += 0.05 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(len(parameter)))
    reference.save_pretrained("theirs")
    transformers.AutoTokenizer.from_pretrained("ours").save_pretrained("theirs")
    address = "hub:acme/theirs@v1.0"
    params = {"init_from": address, "steps": Steps(phase1=0, phase2=1), "learning_rate": 1e-3, "warmup_steps": 1}
    sizes = {"architecture": case.architecture, "num_hidden_layers": 1, "hidden_size": 64}
    files = {path.name: path.read_bytes() for path in Path("theirs").iterdir()}
    with serving_hub({("acme/theirs", "v1.0"): files}) as hub:
        hub.use(monkeypatch)
        pretrain = PretrainParams(train_batch_size=4, **params)
        start_model.run(pretrain=pretrain, model=ModelParams(**sizes), examples=EXAMPLES)
    assert {"config.json", "model.safetensors"} <= read_json("sources.lock")[address].keys() <= files.keys()
    train_phase("phase1", architecture=case.architecture, **params)
    result = read_json("results/pretrain/phase1.json")["validation"]["mlm_loss"]
    tokenizer = load_tokenizer("data/vocabulary")
    masks = (0.15, Masking(), 0, "mlm", case.architecture)
    expected = loss_of(reference, open_examples("phase1", "validation", tokenizer, *masks))
    assert result == pytest.approx(expected, rel=0, abs=1e-5)
    row = pd.read_csv("results/pretrain/phase1.tsv", sep="\t").iloc[0]
    assert row["step"] == 0 and row["validation_mlm_loss"] == pytest.approx(expected, abs=1e-4)  # six digits
