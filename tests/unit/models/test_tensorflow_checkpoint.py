"""Google's names to ours; tests/parity reads a real checkpoint."""

import sys

import pytest
import torch

from pipeline_src.common.errors import PipelineError
from pipeline_src.models.adapter import BERT, rename
from pipeline_src.models.bert import BertForPretraining
from pipeline_src.models.hub import fill
from pipeline_src.pretraining import import_model as google

# As tf.train.list_variables prints them of a checkpoint of google-research/bert.
OTHERS = {
    "bert/embeddings/word_embeddings": "bert.embeddings.word_embeddings.weight",
    "bert/embeddings/token_type_embeddings": "bert.embeddings.token_type_embeddings.weight",
    "bert/embeddings/position_embeddings": "bert.embeddings.position_embeddings.weight",
    "cls/predictions/output_bias": "cls.predictions.decoder.bias",
    "cls/seq_relationship/output_weights": "cls.seq_relationship.weight",
    "cls/seq_relationship/output_bias": "cls.seq_relationship.bias",
}
DENSE, NORM = {"kernel": "weight", "bias": "bias"}, {"gamma": "weight", "beta": "bias"}
IN_A_LAYER = {
    **{f"attention/self/{part}": DENSE for part in ("query", "key", "value")},
    **{"attention/output/dense": DENSE, "attention/output/LayerNorm": NORM},
    **{"intermediate/dense": DENSE, "output/dense": DENSE, "output/LayerNorm": NORM},
}
MODULES = {
    **{"bert/embeddings/LayerNorm": NORM, "bert/pooler/dense": DENSE},
    **{"cls/predictions/transform/dense": DENSE, "cls/predictions/transform/LayerNorm": NORM},
    **{f"bert/encoder/layer_{layer}/{module}": kind for layer in range(2) for module, kind in IN_A_LAYER.items()},
}
ALL = OTHERS | {
    f"{module}/{name}": f"{module.replace('/', '.').replace('layer_', 'layer.')}.{ours}"
    for module, kind in MODULES.items()
    for name, ours in kind.items()
}


def test_rename_tensorflow_names_cover_all_parameters(model):
    assert {name: rename(name, BERT.tensorflow) for name in ALL} == ALL
    assert set(ALL.values()) == {name for name, _ in model.named_parameters()}
    assert rename("bert/encoder/layer_11/output/x", BERT.tensorflow) == "bert.encoder.layer.11.output.x"


def test_translate_tensorflow_arrays_restore_model(model, config):
    ours = dict(model.named_parameters())
    arrays = {
        reference: (ours[name].T if reference.endswith("/kernel") else ours[name]).detach().numpy()
        for reference, name in ALL.items()
    }
    again = BertForPretraining(config)
    fill(again, google.translate(arrays, "memory"), "memory")
    for name, parameter in again.named_parameters():
        assert torch.equal(parameter, ours[name]), name


def test_model_names_optimizer_and_task_variables_are_ignored():
    extra = ["global_step", "output_weights", "output_bias", "bert/pooler/dense/kernel/adam_m", "beta1_power"]
    extra += ["bert/pooler/dense/bias/adam_v", "cls/predictions/output_bias/lamb_m", "bert/pooler/dense/bias/Adam_1"]
    assert google.model_names([*ALL, *extra]) == sorted(ALL)


def test_google_config_gelu_is_tanh_and_other_model_is_rejected():
    raw = {"vocab_size": 18, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    raw |= {"intermediate_size": 32, "hidden_act": "gelu", "initializer_range": 0.02, "pooler_type": "first_token"}
    config = google.google_config(raw)
    assert config.hidden_act == "gelu_tanh" and config.gelu == "tanh" and config.max_position_embeddings == 512
    with pytest.raises(PipelineError, match="hidden_act is relu"):
        google.google_config(raw | {"hidden_act": "relu"})
    with pytest.raises(PipelineError, match="not a BERT model.*vocab_size"):
        google.google_config({name: value for name, value in raw.items() if name != "vocab_size"})


def test_find_prefix_folder_without_one_checkpoint_is_rejected(tmp_path):
    with pytest.raises(PipelineError, match="not one checkpoint in the folder: none"):
        google.find_prefix(tmp_path)
    for name in ("model.ckpt-10.index", "model.ckpt-20.index"):
        (tmp_path / name).touch()
    with pytest.raises(PipelineError, match="model.ckpt-10, model.ckpt-20"):
        google.find_prefix(tmp_path)
    prefix = tmp_path / "model.ckpt-20"
    assert google.find_prefix(prefix) == prefix and google.is_checkpoint(prefix) and not google.is_checkpoint(tmp_path)
    (tmp_path / "bert_model.ckpt.index").touch()
    (tmp_path / "bert_config.json").touch()
    assert google.find_prefix(tmp_path) == tmp_path / "bert_model.ckpt" and google.is_checkpoint(tmp_path)


def test_read_variables_without_tensorflow_is_rejected(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    with pytest.raises(PipelineError, match="takes tensorflow: not installed"):
        google.read_variables(tmp_path / "bert_model.ckpt")


def test_translate_variables_of_other_model_are_rejected():
    with pytest.raises(PipelineError, match="no variable of google-research/bert"):
        google.translate({}, "x")


def test_read_variables_damaged_checkpoint_is_rejected(tmp_path):
    pytest.importorskip("tensorflow", reason="tensorflow is not installed (extra `tensorflow`)")
    (tmp_path / "bert_model.ckpt.index").write_bytes(b"damaged")
    with pytest.raises(PipelineError, match="not a readable checkpoint"):
        google.read_variables(tmp_path / "bert_model.ckpt")
