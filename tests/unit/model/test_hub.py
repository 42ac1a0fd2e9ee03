"""Model folders of any BERT class and version are read, and other folders are rejected."""

import io
import json
import resource
import warnings
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file

from pipeline_src.base.errors import PipelineError
from pipeline_src.finetune.heads import BertForTask
from pipeline_src.model.adapter import BERT, rename
from pipeline_src.model.bert import Bert, BertForPretraining
from pipeline_src.model.hub import filled, load_config, load_weights, read_tensors, save_model, write_tensors
from pipeline_src.tokenizer.wordpiece import save_tokenizer
from tests.unit.model.conftest import ENTRIES


@pytest.fixture
def folder(tmp_path, model, config):
    (tmp_path / "model").mkdir()
    save_tokenizer(tmp_path, ENTRIES, lowercase=True)
    save_model(tmp_path / "model", model, config, "BertForPreTraining", tmp_path, card="# A card\n")
    return tmp_path / "model"


def loaded(folder, config) -> BertForPretraining:
    model = BertForPretraining(config)
    load_weights(model, folder)
    return model


def same(one, two) -> bool:
    return all(torch.equal(a, b) for (_, a), (_, b) in zip(one.named_parameters(), two.named_parameters(), strict=True))


def rewrite(folder, change, name="model.safetensors") -> None:
    """Write the tensors under other names or to another file."""
    tensors = change(load_file(folder / "model.safetensors"))
    (folder / "model.safetensors").unlink()
    if name.endswith(".safetensors"):
        save_file(tensors, folder / name)
    else:
        torch.save(tensors, folder / name)


def older(tensors):
    """Rename and add tensors as in the first releases: gamma and beta, a stored decoder, position ids."""
    names = {name: name.replace("LayerNorm.weight", "LayerNorm.gamma") for name in tensors}
    names = {name: new.replace("LayerNorm.bias", "LayerNorm.beta") for name, new in names.items()}
    words = tensors["bert.embeddings.word_embeddings.weight"]
    return {new: tensors[name] for name, new in names.items()} | {
        "cls.predictions.decoder.weight": words.clone(),
        "bert.embeddings.position_ids": torch.arange(24)[None],
    }


def half(tensors):
    return {name: tensor.half() for name, tensor in tensors.items()}


def test_save_model_load_weights_round_trip_is_exact(folder, model, config):
    assert load_config(folder) == config
    assert (folder / "README.md").read_text() == "# A card\n"
    assert json.loads((folder / "tokenizer_config.json").read_text())["model_max_length"] == 24
    assert same(loaded(folder, config), model)


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
def test_load_weights_gamma_beta_and_stored_decoder_are_read(folder, model, config, name):
    rewrite(folder, older, name)
    assert same(loaded(folder, config), model)


def test_load_weights_torch_format_before_1_6_is_read(folder, model, config):
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save(tensors, folder / "pytorch_model.bin", _use_new_zipfile_serialization=False)
    assert same(loaded(folder, config), model)


@pytest.mark.parametrize("form", ["model.safetensors", "pytorch_model.bin"])
def test_load_weights_shards_are_read_and_broken_index_is_rejected(folder, model, config, form):
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    stem, suffix = form.split(".")
    where = {name: f"{stem}-{1 + number % 2:05d}-of-00002.{suffix}" for number, name in enumerate(sorted(tensors))}
    for shard in set(where.values()):
        part = {name: tensor for name, tensor in tensors.items() if where[name] == shard}
        (save_file if suffix == "safetensors" else torch.save)(part, folder / shard)
    (folder / f"{form}.index.json").write_text(json.dumps({"metadata": {}, "weight_map": where}))
    assert same(loaded(folder, config), model)
    (folder / f"{stem}-00002-of-00002.{suffix}").unlink()
    with pytest.raises(PipelineError, match="no weights to read"):
        loaded(folder, config)
    where["bert.pooler.dense.bias"] = "../elsewhere.bin"
    (folder / f"{form}.index.json").write_text(json.dumps({"weight_map": where}))
    with pytest.raises(PipelineError, match="invalid index of weight shards"):
        loaded(folder, config)


def test_load_weights_between_encoder_and_model_with_head_is_exact(folder, model, config):
    bare = Bert(config)
    load_weights(bare, folder)  # from a folder with heads
    assert same(bare, model.bert)
    selected = ("embeddings.", "encoder.", "pooler.")
    rewrite(folder, lambda tensors: {n[5:]: t for n, t in tensors.items() if n[5:].startswith(selected)})
    task = BertForTask(config, "sequence", 2)
    before = task.classifier.weight.clone()
    load_weights(task, folder, only="bert.")
    assert same(task.bert, model.bert) and torch.equal(task.classifier.weight, before)
    with pytest.raises(PipelineError, match="classifier.weight: missing"):
        load_weights(task, folder)
    with pytest.raises(PipelineError, match="cls.predictions.*missing"):
        loaded(folder, config)


def test_load_weights_half_precision_becomes_float32(folder, model, config):
    rewrite(folder, half)
    again = loaded(folder, config)
    assert all(parameter.dtype == torch.float32 for parameter in again.parameters())
    assert torch.equal(again.bert.pooler.dense.weight, model.bert.pooler.dense.weight.half().float())


def test_load_weights_untied_decoder_is_rejected(folder, config):
    rewrite(folder, lambda tensors: {**tensors, "cls.predictions.decoder.weight": torch.zeros(18, 16)})
    with pytest.raises(PipelineError, match="the decoder weight differs from the embedding matrix"):
        loaded(folder, config)


def test_rename_to_and_from_hf_keeps_parameter_names(model):
    for name, _ in model.named_parameters():
        assert rename(name, BERT.from_hf) == name == rename(rename(name, BERT.to_hf), BERT.from_hf)


@pytest.mark.parametrize(
    ("change", "value"),
    [
        ({"model_type": "gpt2"}, "model_type is gpt2, not"),
        ({"model_type": "x-mod"}, "model_type is x-mod"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type is relative_key"),
        ({"layer_norm_eps": "x"}, "layer_norm_eps is 'x'"),
        ({"hidden_act": "relu"}, "hidden_act is relu"),
        ({"hidden_size": "16"}, "hidden_size is '16'"),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0"),
        ({"num_attention_heads": 3}, "hidden_size 16 is not divisible by 3"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers is 1000000000, not a whole number from 1 to 1,000"),
        ({"hidden_size": 10**30}, "hidden_size is 1000"),
        ({"is_decoder": "x"}, "is_decoder is 'x'"),
        ({"hidden_dropout_prob": float("nan")}, "hidden_dropout_prob is nan"),
        ({"hidden_dropout_prob": "x"}, "hidden_dropout_prob is 'x'"),
        ({"attention_probs_dropout_prob": 7}, "attention_probs_dropout_prob is 7"),
    ],
)
def test_load_config_unsupported_value_is_rejected(folder, change, value):
    raw = json.loads((folder / "config.json").read_text()) | change
    (folder / "config.json").write_text(json.dumps(raw))
    with pytest.raises(PipelineError, match="not a supported BERT model") as caught:
        load_config(folder)
    assert value in str(caught.value) and "hint" in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_attention_heads": 16}, "the head size is 1"),
        ({"num_attention_heads": 2, "head_dim": 5}, "head_dim is 5, not hidden_size"),
        ({"num_attention_heads": 2, "head_dim": 8}, None),
    ],
)
def test_load_config_modernbert_unsupported_value_is_rejected(tmp_path, change, message):
    sizes = {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 2, "intermediate_size": 24}
    act = {"hidden_activation": "gelu", "classifier_activation": "gelu"}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "modernbert", **sizes, **act, **change}))
    if message is None:
        assert load_config(tmp_path).head_size == 8
        return
    with pytest.raises(PipelineError, match=message):
        load_config(tmp_path)


def test_load_config_modernbert_pooling_is_checked_for_classifiers_only(tmp_path):
    config = {"model_type": "modernbert", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 2}
    config |= {"vocab_size": 50, "intermediate_size": 96, "classifier_pooling": "mean"}  # as published
    for name in ("ModernBertForMaskedLM", "ModernBertModel"):
        (tmp_path / "config.json").write_text(json.dumps(config | {"architectures": [name]}))
        assert load_config(tmp_path).hidden_size == 64
    (tmp_path / "config.json").write_text(json.dumps(config | {"architectures": ["ModernBertForTokenClassification"]}))
    with pytest.raises(PipelineError, match="classifier_pooling is mean, not cls"):
        load_config(tmp_path)


@pytest.mark.parametrize("content", ["[]", '{"model_type": "bert"}'])
def test_load_config_without_sizes_is_rejected(folder, content):
    (folder / "config.json").write_text(content)
    with pytest.raises(PipelineError, match="not a supported BERT model"):
        load_config(folder)


class PrintOnLoad:
    def __reduce__(self):
        return print, ("run",)


def pickled(value) -> bytes:
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


def quantised() -> bytes:
    with warnings.catch_warnings(action="ignore"):  # torch means to give them up
        return pickled({"a": torch.quantize_per_tensor(torch.eye(2), 0.1, 0, torch.qint8)})


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("model.safetensors", b"damaged"),
        ("model.safetensors", b""),
        ("pytorch_model.bin", b"damaged"),
        ("pytorch_model.bin", b""),
        ("pytorch_model.bin", pickled({"bert.pooler.dense.bias": PrintOnLoad()})),
        ("pytorch_model.bin", pickled([torch.zeros(2)])),
        ("pytorch_model.bin", pickled({"epoch": 3})),
        ("pytorch_model.bin", pickled({5: torch.zeros(2)})),
        ("pytorch_model.bin", pickled({"a": torch.eye(2).to_sparse()})),
        ("pytorch_model.bin", pickled({"a": torch.eye(2, device="meta")})),
        ("pytorch_model.bin", quantised()),
    ],
    ids=[
        *("damaged safetensors", "empty safetensors", "damaged pickle", "empty pickle", "pickle with code"),
        *("list", "no tensors", "integer keys", "sparse", "meta", "quantised"),
    ],
)
def test_read_tensors_damaged_file_is_rejected_and_runs_no_code(folder, capsys, name, content):
    (folder / "model.safetensors").unlink()
    (folder / name).write_bytes(content)
    with pytest.raises(PipelineError, match="no weights to read"):
        read_tensors(folder, BERT)
    assert "run" not in capsys.readouterr().out


def test_read_tensors_truncated_or_missing_file_is_rejected(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(PipelineError, match="no weights to read"):
        read_tensors(folder, BERT)
    path.unlink()
    with pytest.raises(PipelineError, match="no weights to read: model.safetensors or pytorch_model.bin"):
        read_tensors(folder, BERT)


def test_load_weights_shape_mismatch_names_tensor(folder, config):
    wider = BertForPretraining(type(config)(**{**config.as_dict(), "intermediate_size": 48}))
    with pytest.raises(PipelineError, match=r"intermediate.dense.weight: shape \(32, 16\), \(48, 16\) expected"):
        load_weights(wider, folder)


def test_filled_oversized_config_is_rejected_without_allocation(folder, config):
    tensors, huge = read_tensors(folder, BERT), 1 << 24  # petabytes, were they made
    for name in ("vocab_size", "max_position_embeddings", "type_vocab_size", "intermediate_size", "hidden_size"):
        absurd = replace(config, **{name: huge})
        with pytest.raises(PipelineError, match=r"weights do not fit the config.*16,? ?777,?216"):
            filled(Bert, absurd, tensors, folder)


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_load_weights_nan_or_infinite_is_rejected(folder, config, wrong):
    rewrite(folder, lambda tensors: tensors | {"bert.pooler.dense.bias": torch.full((16,), wrong)})
    with pytest.raises(PipelineError, match="weights are NaN or infinite: bert.pooler.dense.bias"):
        load_weights(Bert(config), folder)


@pytest.mark.parametrize("kind", [torch.bool, torch.int64, torch.complex64])
def test_filled_weights_of_non_float_type_are_rejected(folder, config, kind):
    tensors = read_tensors(folder, BERT)
    tensors["bert.pooler.dense.bias"] = tensors["bert.pooler.dense.bias"].to(kind)
    with pytest.raises(PipelineError, match="bert.pooler.dense.bias: non-floating dtype"):
        filled(Bert, config, tensors, folder)


@pytest.mark.parametrize("value", [5, [[]], "BertModel"])
def test_read_tensors_malformed_architectures_entry_is_ignored(folder, config, value):
    raw = json.loads((folder / "config.json").read_text()) | {"architectures": value}
    (folder / "config.json").write_text(json.dumps(raw))
    assert "bert.pooler.dense.bias" in read_tensors(folder, BERT)


def test_write_tensors_full_disk_raises_oserror(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            write_tensors(tmp_path / "model.safetensors", {"x": torch.zeros(300_000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
