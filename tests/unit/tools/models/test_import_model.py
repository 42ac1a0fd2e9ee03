"""Foreign folders become this project's: weights, tokenizer, config, card; parts that are missing are said."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import hash_file
from pipeline_src.code import fetch_models
from pipeline_src.finetune.heads import BertForTask
from pipeline_src.interpret.model import ProbedModel
from pipeline_src.model.bert import BertForPretraining
from pipeline_src.model.hub import load_config, load_weights
from pipeline_src.pretrain import import_model
from pipeline_src.tokenizer.load import load_tokenizer
from pipeline_src.tools.fill_mask import fill_mask
from tests.servers import serving_hub


def test_import_folder_of_transformers_keeps_weights(folder, model, call, tmp_path, capsys):
    """As published: vocab.txt alone, old names in a pickle."""
    tensors = load_file(folder / "model.safetensors")
    old_names = {name.replace("LayerNorm.weight", "LayerNorm.gamma"): tensor for name, tensor in tensors.items()}
    torch.save(old_names, folder / "pytorch_model.bin")
    for name in ("model.safetensors", "tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()
    call(import_model, folder, tmp_path / "made")
    output = capsys.readouterr().out
    assert "2 layers, 16 wide, 14 entries (uncased)" in output and "pooler, masked words, next sentence" in output
    again = BertForPretraining(load_config(tmp_path / "made"))
    load_weights(again, tmp_path / "made")
    for (name, one), (_, two) in zip(model.named_parameters(), again.named_parameters(), strict=True):
        assert torch.equal(one, two), name
    assert load_tokenizer(tmp_path / "made").encode("The CATS").tokens == ["[CLS]", "the", "cat", "##s", "[SEP]"]
    assert json.loads((tmp_path / "made/config.json").read_text())["architectures"] == ["BertForPreTraining"]
    assert json.loads((tmp_path / "made/tokenizer_config.json").read_text())["model_max_length"] == 12
    assert "license: other" in (tmp_path / "made/README.md").read_text()
    assert len(fill_mask(ProbedModel.open(tmp_path / "made"), "the [MASK]", 3)[0]) == 3


@pytest.mark.parametrize(
    ("dropped", "architecture"),
    [
        ((), "BertForPreTraining"),
        (("cls.seq_relationship.",), "BertForMaskedLM"),
        (("cls.seq_relationship.", "bert.pooler."), "BertForMaskedLM"),
        (("cls.predictions.",), "BertForNextSentencePrediction"),
        (("cls.",), "BertModel"),
    ],
)
def test_import_partial_model_is_loaded_by_transformers(folder, call, tmp_path, dropped, architecture):
    transformers = pytest.importorskip("transformers")
    tensors = load_file(folder / "model.safetensors")
    kept = {name: tensor for name, tensor in tensors.items() if not dropped or not name.startswith(dropped)}
    if architecture == "BertModel":  # which has no prefix
        kept = {name.removeprefix("bert."): tensor for name, tensor in kept.items()}
    save_file(kept, folder / "model.safetensors")
    call(import_model, folder, tmp_path / "made")
    assert json.loads((tmp_path / "made/config.json").read_text())["architectures"] == [architecture]
    loaded, info = getattr(transformers, architecture).from_pretrained(tmp_path / "made", output_loading_info=True)
    assert not info["missing_keys"] and not info["mismatched_keys"]
    word = loaded.get_input_embeddings().weight
    assert torch.equal(word, tensors["bert.embeddings.word_embeddings.weight"])
    if "bert.pooler." not in dropped:
        task = BertForTask(load_config(tmp_path / "made"), "sequence", 2)
        load_weights(task, tmp_path / "made", only="bert.")  # as fine-tuning does


def test_import_foreign_tensors_are_dropped_with_a_warning(folder, call, tmp_path, caplog):
    tensors = load_file(folder / "model.safetensors")
    save_file({**tensors, "classifier.weight": torch.ones(2, 16)}, folder / "model.safetensors")
    (folder / "README.md").write_text("# Theirs\n")
    caplog.set_level("WARNING", "pipeline_src")
    call(import_model, folder, tmp_path / "made")
    assert "classifier.weight" in caplog.text
    assert "classifier.weight" not in load_file(tmp_path / "made/model.safetensors")
    assert (tmp_path / "made/README.md").read_text() == "# Theirs\n"


def test_import_incomplete_head_is_rejected(folder, call, tmp_path):
    tensors = load_file(folder / "model.safetensors")
    del tensors["cls.predictions.transform.dense.weight"]
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(PipelineError, match="cls.predictions.transform.dense.weight: missing"):
        call(import_model, folder, tmp_path / "made")
    assert not (tmp_path / "made").exists()


def write_config(folder, **values) -> None:
    (folder / "tokenizer_config.json").write_text(json.dumps(values))


@pytest.mark.parametrize(
    ("output", "entry", "options", "lowercase", "guessed"),
    [
        ({"do_lower_case": False}, "x", (), False, False),
        ({"do_lower_case": True, "strip_accents": None, "tokenize_chinese_chars": True}, "X", (), True, False),
        ({}, "x", (), True, True),
        ({}, "X", (), False, True),
        ({}, "X", ("--uncased",), True, False),
        ({"do_lower_case": True}, "x", ("--cased",), False, False),
    ],
)
def test_import_lowercase_follows_option_config_or_vocabulary(
    folder, call, tmp_path, caplog, output, entry, options, lowercase, guessed
):
    vocabulary = (folder / "vocab.txt").read_text().splitlines()
    (folder / "vocab.txt").write_text("".join(f"{line}\r\n" for line in [*vocabulary[:-1], entry]))
    write_config(folder, **output)
    caplog.set_level("WARNING", "pipeline_src")
    call(import_model, folder, tmp_path / "made", *options)
    tokenizer = load_tokenizer(tmp_path / "made")
    assert tokenizer.normalizer.lowercase is lowercase and tokenizer.token_to_id(entry) == 13
    assert ("does not say whether" in caplog.text) is guessed


def test_import_tokenizer_json_vocabulary_is_written(folder, call, tmp_path):
    expected = (folder / "vocab.txt").read_text()
    (folder / "vocab.txt").unlink()
    call(import_model, folder, tmp_path / "made")
    assert (tmp_path / "made/vocab.txt").read_text() == expected


def test_import_tokenizer_json_longest_word_is_kept(folder, call, tmp_path):
    path = folder / "tokenizer.json"
    content = json.loads(path.read_text())
    content["model"]["max_input_chars_per_word"] = 7
    path.write_text(json.dumps(content))
    call(import_model, folder, tmp_path / "made")
    assert load_tokenizer(tmp_path / "made").model.max_input_chars_per_word == 7


def test_import_tokenizer_of_another_kind_is_rejected(folder, call, tmp_path):
    (folder / "vocab.txt").unlink()
    Tokenizer.from_str('{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}').save(
        str(folder / "tokenizer.json")
    )
    (folder / "tokenizer_config.json").unlink()
    with pytest.raises(PipelineError, match="the BPE tokenizer is not byte-level"):
        call(import_model, folder, tmp_path / "made")


@pytest.mark.parametrize(
    ("spoil", "output"),
    [
        (lambda folder: write_config(folder, do_lower_case=True, strip_accents=False), "strip_accents: false"),
        (lambda folder: write_config(folder, do_lower_case=True, tokenize_chinese_chars=False), "chinese_chars: false"),
        (
            lambda folder: (folder / "vocab.txt").write_text("[PAD]\n[PAD]\n"),
            r"duplicate entry .*: '\[PAD\]'",
        ),
        (lambda folder: (folder / "vocab.txt").write_text("a\nb\n"), "lacks a special token"),
        (lambda folder: (folder / "vocab.txt").write_text("\n".join(map(str, range(20)))), "more entries.*20 > 16"),
        (lambda folder: [(folder / "vocab.txt").unlink(), (folder / "tokenizer.json").unlink()], "file not found"),
        (lambda folder: (folder / "config.json").unlink(), "file not found"),
        (lambda folder: (folder / "model.safetensors").unlink(), "no weights to read"),
        (lambda folder: (folder / "bert_model.ckpt.index").touch(), "TensorFlow checkpoints are not supported"),
    ],
)
def test_import_incomplete_folder_is_rejected(folder, call, tmp_path, spoil, output):
    spoil(folder)
    with pytest.raises(PipelineError, match=output):
        call(import_model, folder, tmp_path / "made")
    assert not (tmp_path / "made").exists()


def test_import_existing_destination_or_missing_source_is_rejected(folder, call, tmp_path):
    with pytest.raises(PipelineError, match="exists already"):
        call(import_model, folder, tmp_path)
    for source in (tmp_path / "nowhere", folder / "config.json"):
        with pytest.raises(PipelineError, match="the model folder does not exist"):
            call(import_model, source, tmp_path / "made")


def test_import_invalid_tokenizer_files_are_rejected(tmp_path: Path) -> None:
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": "false"}')
    with pytest.raises(PipelineError, match="do_lower_case is not true or false: 'false'"):
        import_model.find_case(tmp_path, ["a"])
    (tmp_path / "vocab.txt").write_bytes(b"[PAD]\n\xff\n")
    with pytest.raises(PipelineError, match="not UTF-8"):
        import_model.read_vocabulary(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text("null")
    with pytest.raises(PipelineError, match="not a JSON object: None"):
        import_model.find_case(tmp_path, ["a"])
    (tmp_path / "vocab.txt").unlink()
    for written in ("[]", "null", '{"model": 5}', '{"model": {"vocab": {"a": "b"}}}', '{"model": {"vocab": 5}}'):
        (tmp_path / "tokenizer.json").write_text(written)
        with pytest.raises(PipelineError, match="not a WordPiece vocabulary"):
            import_model.read_vocabulary(tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"model": {"vocab": {"a": 0, "b": 0}}}')
    with pytest.raises(PipelineError, match="ids are not 0, 1, 2"):
        import_model.read_vocabulary(tmp_path)


def test_import_hub_model_equals_import_of_its_folder(folder, call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    call(import_model, folder, "expected")
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    with serving_hub({("acme/tiny", "v1"): files, ("acme/tiny", "v2"): files | {"onnx/model.onnx": b"x"}}) as hub:
        hub.use(monkeypatch)
        call(import_model, "hub:acme/tiny@v1", "made")
        for _ in range(2):
            fetch_models(["hub:acme/tiny@v2", "expected", "models/none"])
        assert len(hub.served) == 2 * len(files)
        with pytest.raises(PipelineError, match="invalid name of a model on the hub: hub:acme/tiny"):
            call(import_model, "hub:acme/tiny", "other")
    expected = {path.name: hash_file(path) for path in Path("expected").iterdir()}
    for made in ("made", "hub:acme/tiny@v2"):
        assert {path.name: hash_file(path) for path in Path(made).iterdir()} == expected
