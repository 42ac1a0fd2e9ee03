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
OUTSIDE_LAYERS = {
    "bert/embeddings/word_embeddings": "bert.embeddings.word_embeddings.weight",
    "bert/embeddings/token_type_embeddings": "bert.embeddings.token_type_embeddings.weight",
    "bert/embeddings/position_embeddings": "bert.embeddings.position_embeddings.weight",
    "bert/embeddings/LayerNorm/gamma": "bert.embeddings.LayerNorm.weight",
    "bert/embeddings/LayerNorm/beta": "bert.embeddings.LayerNorm.bias",
    "bert/pooler/dense/kernel": "bert.pooler.dense.weight",
    "bert/pooler/dense/bias": "bert.pooler.dense.bias",
    "cls/predictions/transform/dense/kernel": "cls.predictions.transform.dense.weight",
    "cls/predictions/transform/dense/bias": "cls.predictions.transform.dense.bias",
    "cls/predictions/transform/LayerNorm/gamma": "cls.predictions.transform.LayerNorm.weight",
    "cls/predictions/transform/LayerNorm/beta": "cls.predictions.transform.LayerNorm.bias",
    "cls/predictions/output_bias": "cls.predictions.decoder.bias",
    "cls/seq_relationship/output_weights": "cls.seq_relationship.weight",
    "cls/seq_relationship/output_bias": "cls.seq_relationship.bias",
}
IN_A_LAYER = {
    "attention/self/query/kernel": "attention.self.query.weight",
    "attention/self/query/bias": "attention.self.query.bias",
    "attention/self/key/kernel": "attention.self.key.weight",
    "attention/self/key/bias": "attention.self.key.bias",
    "attention/self/value/kernel": "attention.self.value.weight",
    "attention/self/value/bias": "attention.self.value.bias",
    "attention/output/dense/kernel": "attention.output.dense.weight",
    "attention/output/dense/bias": "attention.output.dense.bias",
    "attention/output/LayerNorm/gamma": "attention.output.LayerNorm.weight",
    "attention/output/LayerNorm/beta": "attention.output.LayerNorm.bias",
    "intermediate/dense/kernel": "intermediate.dense.weight",
    "intermediate/dense/bias": "intermediate.dense.bias",
    "output/dense/kernel": "output.dense.weight",
    "output/dense/bias": "output.dense.bias",
    "output/LayerNorm/gamma": "output.LayerNorm.weight",
    "output/LayerNorm/beta": "output.LayerNorm.bias",
}
ALL = OUTSIDE_LAYERS | {
    f"bert/encoder/layer_{layer}/{theirs}": f"bert.encoder.layer.{layer}.{ours}"
    for layer in range(2)
    for theirs, ours in IN_A_LAYER.items()
}


def test_rename_tensorflow_names_cover_all_parameters(model):
    assert {name: rename(name, BERT.tensorflow) for name in ALL} == ALL
    assert set(ALL.values()) == {name for name, _ in model.named_parameters()}
    assert rename("bert/encoder/layer_11/output/x", BERT.tensorflow) == "bert.encoder.layer.11.output.x"


def test_translate_tensorflow_arrays_restore_model(model, config):
    ours = dict(model.named_parameters())
    arrays = {
        theirs: (ours[name].T if theirs.endswith("/kernel") else ours[name]).detach().numpy()
        for theirs, name in ALL.items()
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
