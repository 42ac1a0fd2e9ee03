"""Every encoder of the family: FLOPs, repeatable training, and combinations that are rejected."""

from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import hash_file, read_json
from pipeline_src.base.registry import architecture_spec, member_names
from pipeline_src.examples.build_examples import run as build_examples
from pipeline_src.family.deberta.encoder import Deberta
from pipeline_src.model.attention import QueryRows
from pipeline_src.model.bert import BertForPretraining, load_architecture
from pipeline_src.model.flops import Workload
from pipeline_src.study.model import ModelParams
from pipeline_src.study.preset import preset_text
from pipeline_src.study.study import check_study
from tests.unit.pretrain.small import EXAMPLES, make_study, train_phase

FAMILY = [name for name in member_names("models") if name != "bert"]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory) -> Path:
    """Make a folder with the inputs of a small pretraining."""
    folder = tmp_path_factory.mktemp("family")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        make_study(folder)
        build_examples(seed=1, examples=EXAMPLES)
    return folder


@pytest.mark.parametrize(("name", "changes"), [*((name, {}) for name in FAMILY), ("bilstm", {"objective": "bilm"})])
def test_pretrain_architecture_repeated_run_has_identical_outputs(inputs, name, changes, monkeypatch):
    monkeypatch.chdir(inputs)
    hashes = set()
    for _ in range(2):
        sizes = {"num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 2}
        train_phase("phase1", phase1=3, architecture=name, **sizes, **changes)
        hashes.add(hash_file("models/pretrained/phase1/model.safetensors"))
    assert len(hashes) == 1
    assert np.isfinite(read_json("results/pretrain/phase1.json")["validation"]["mlm_loss"])


@pytest.mark.parametrize("name", ["bert", *FAMILY])
def test_training_flops_equal_torch_flop_counter(name):
    """All sequences have one length, and the last block computes only some rows."""
    sequences, length, queried = 6, 16, 5
    sizes = {"num_hidden_layers": 3, "hidden_size": 48, "num_attention_heads": 4, "max_position_embeddings": 24}
    params = ModelParams(architecture=name, hidden_dropout_prob=0, **sizes)
    config = load_architecture(name).config.from_params(params, 97)
    model = BertForPretraining(config)
    ids, starts = torch.arange(sequences * length) % 97, torch.arange(sequences + 1)
    positions = (starts[:-1, None] * length + torch.arange(queried) * 2).flatten()
    rows = QueryRows.of(positions, starts * queried)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        hidden, _ = model.bert(ids, torch.zeros_like(ids), starts * length, query_rows=rows, decoded=True)
        model.cls["predictions"](hidden).sum().backward()
    read = len(positions)
    work = Workload(sequences, sequences * length, sequences * length**2, read, read, read * length)
    # The output of the pooler has no loss here.
    pooler = [part.weight.numel() for part in model.bert.pooler.modules() if isinstance(part, nn.Linear)]
    uncounted = 2 * sum(pooler) * sequences + extra_flops_of_positions(model, work, length)
    assert counter.get_total_flops() - uncounted == config.training_flops(work)


def extra_flops_of_positions(model: BertForPretraining, work: Workload, length: int) -> int:
    """Return FLOPs that only disentangled attention has: projections of distances and unused products."""
    if not isinstance(model.bert, Deberta):
        return 0
    layers, width = model.bert.config.num_hidden_layers, model.bert.config.hidden_size
    distances = 2 * length - 1
    # The last block runs twice.
    projected = 12 * width**2 * distances * (layers + 1)
    first = 2 * (distances * work.tokens - work.sum_len_squared) * (layers - 1)
    last = distances * (work.num_outputs + work.tokens) - 2 * work.attended_pairs
    return projected + 6 * width * (first + 2 * last)


@pytest.mark.parametrize("name", FAMILY)
def test_check_study_objective_refused_by_architecture_is_rejected(root, name):
    spec = architecture_spec(name)
    raw = yaml.safe_load(preset_text("test", root / "workflow/presets"))
    raw["model"]["architecture"] = name
    raw["examples"]["pair_objective"] = "none"
    check_study(raw)
    for objective, reason in spec.refused_objectives.items():
        refused = {**raw, "pretrain": {**raw["pretrain"], "objective": objective}}
        with pytest.raises(PipelineError, match=f"{name} does not support {objective}, since {reason}"):
            check_study(refused)
    raw["examples"]["pair_objective"] = "nsp"
    if spec.refused_pairs:
        with pytest.raises(PipelineError, match=f"{name} does not support sentence pairs, since {spec.refused_pairs}"):
            check_study(raw)


@pytest.mark.parametrize("name", FAMILY)
def test_architecture_spec_without_causal_class_refuses_clm(name):
    """A causal model without a class in transformers could not be exported."""
    refused = "clm" in architecture_spec(name).refused_objectives
    assert refused != ("causal_lm" in load_architecture(name).names.classes)


@pytest.mark.parametrize("lengths", [[9, 5], [64, 65, 300], [70, 90]])
def test_modernbert_local_pairs_equal_pairs_within_window(lengths):
    config = load_architecture("modernbert").config.from_params(ModelParams(num_hidden_layers=2, hidden_size=64), 97)
    positions = [np.arange(length) for length in lengths]
    pairs = sum(int((abs(at[:, None] - at) <= 64).sum()) for at in positions)
    work = Workload(len(lengths), sum(lengths), sum(length**2 for length in lengths))
    assert config.local_pairs(work) == pairs
