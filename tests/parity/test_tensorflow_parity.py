"""A checkpoint that google-research/bert itself writes: read back, it gives what Google's own graph gives.

Needs tensorflow and the package bert-tensorflow; skipped without them.
"""

from __future__ import annotations

import json
import sys
import types

import numpy as np
import pytest
import torch

from pipeline_src.models.bert import BertForPretraining
from pipeline_src.models.hub import fill
from pipeline_src.pretraining.import_model import load_google

SIZES = {
    "vocab_size": 90,
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 96,
    "max_position_embeddings": 40,
    "type_vocab_size": 2,
    "hidden_act": "gelu",
    "initializer_range": 0.3,  # large, so that a swapped or transposed matrix shows, and the form of gelu too
}
LENGTHS = (12, 5, 9)


@pytest.fixture(scope="module")
def google(tmp_path_factory):
    """Folder of a checkpoint, the batch, and the outputs of Google's graph on it."""
    tf = pytest.importorskip("tensorflow.compat.v1", reason="tensorflow is not installed (extra `tensorflow`)")

    def layer_norm(inputs, begin_norm_axis, begin_params_axis, scope):  # tf.contrib is gone: its definition
        with tf.variable_scope(scope, "LayerNorm"):
            beta = tf.get_variable("beta", inputs.shape[-1:], initializer=tf.zeros_initializer())
            gamma = tf.get_variable("gamma", inputs.shape[-1:], initializer=tf.ones_initializer())
            mean, variance = tf.nn.moments(inputs, [-1], keepdims=True)
            return tf.nn.batch_normalization(inputs, mean, variance, beta, gamma, 1e-12)

    def dense(inputs, units, activation=None, kernel_initializer=None):  # so is tf.layers
        with tf.variable_scope("dense"):
            kernel = tf.get_variable("kernel", [inputs.shape[-1], units], initializer=kernel_initializer)
            return activation(inputs @ kernel + tf.get_variable("bias", [units], initializer=tf.zeros_initializer()))

    contrib = types.ModuleType("tensorflow.contrib")
    contrib.layers = types.SimpleNamespace(layer_norm=layer_norm)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "tensorflow.contrib", contrib)
        modeling = pytest.importorskip("bert.modeling", reason="bert-tensorflow is not installed (extra `bench`)")
        heads = pytest.importorskip("bert.run_pretraining")
        for module in (modeling, heads):
            patch.setattr(module.tf, "layers", types.SimpleNamespace(dense=dense))
        folder = tmp_path_factory.mktemp("google")
        rng = np.random.default_rng(1)
        keep = np.arange(max(LENGTHS)) < np.asarray(LENGTHS)[:, None]
        batch = {"ids": rng.integers(0, 90, keep.shape) * keep, "segments": rng.integers(0, 2, keep.shape) * keep}
        with tf.Graph().as_default(), tf.Session() as session:
            tf.set_random_seed(2)
            inputs = {name: tf.constant(values, tf.int32) for name, values in batch.items()}
            config = modeling.BertConfig.from_dict(SIZES)
            model = modeling.BertModel(
                config, False, inputs["ids"], tf.constant(keep.astype(np.int32)), inputs["segments"]
            )
            none = tf.zeros([len(LENGTHS)], tf.int32)
            words = heads.get_masked_lm_output(
                config, model.get_sequence_output(), model.embedding_table, none[:, None] + 2, none, tf.zeros([3])
            )
            pairs = heads.get_next_sentence_output(config, model.get_pooled_output(), none)
            session.run(tf.global_variables_initializer())
            for variable in tf.global_variables():  # biases and LayerNorms too
                session.run(variable.assign_add(tf.random_normal(variable.shape, stddev=0.1)))
            outputs = session.run([model.get_sequence_output(), model.get_pooled_output(), words[2], pairs[2]])
            tf.get_variable("bert/pooler/dense/kernel/adam_m", [64, 64])
            tf.train.get_or_create_global_step()
            session.run(tf.variables_initializer(tf.global_variables()[-2:]))
            tf.train.Saver().save(session, str(folder / "bert_model.ckpt"), write_meta_graph=False)
    (folder / "bert_config.json").write_text(json.dumps(config.to_dict()))
    return folder, batch, keep, outputs


def test_load_google_outputs_equal_google_graph(google):
    folder, batch, keep, outputs = google
    config, tensors = load_google(folder)
    assert config.hidden_act == "gelu_tanh"
    model = BertForPretraining(config).eval()
    fill(model, tensors, folder)
    assert set(tensors) == {name for name, _ in model.named_parameters()}
    cu_seqlens = torch.tensor([0, *LENGTHS]).cumsum(0)
    ids, segments = (torch.from_numpy(batch[name][keep]) for name in ("ids", "segments"))
    with torch.inference_mode():
        hidden, pooled = model.bert(ids, segments, cu_seqlens)
        words, pairs = model(ids, segments, cu_seqlens, cu_seqlens[:-1] + 2)
    result = (hidden, pooled, words.log_softmax(-1), pairs.log_softmax(-1))
    expected = (outputs[0][keep], *outputs[1:])
    for ours, reference in zip(result, expected, strict=True):
        torch.testing.assert_close(ours, torch.from_numpy(reference), rtol=1e-5, atol=1e-5)
