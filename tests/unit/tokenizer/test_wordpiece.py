"""The files of a WordPiece tokenizer: written, loaded, and damaged."""

import json

import pytest

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import read_json, write_json
from pipeline_src.tokenizer.load import check_vocab_size, load_tokenizer
from pipeline_src.tokenizer.wordpiece import SPECIAL_TOKENS, build_tokenizer, reserved_tokens, save_tokenizer


@pytest.mark.parametrize("unused", [0, 1, 99, 100, 994])
def test_reserved_tokens_positions_equal_bert_base(unused):
    names = [f"[unused{number}]" for number in range(unused)]
    assert reserved_tokens(unused) == ["[PAD]", *names[:99], "[UNK]", "[CLS]", "[SEP]", "[MASK]", *names[99:]]


@pytest.mark.parametrize("lowercase", [True, False])
def test_save_tokenizer_loaded_tokenizer_gives_same_ids(tmp_path, pieces, lowercase):
    vocabulary = reserved_tokens(3) + pieces[5:]
    save_tokenizer(tmp_path, vocabulary, lowercase, max_word_length=7)
    loaded, built = load_tokenizer(tmp_path), build_tokenizer(vocabulary, lowercase, 7)
    for text in ("The OLDEST river", "[SEP] [unused1] café", "riverriver"):
        assert loaded.encode(text).ids == built.encode(text).ids
    assert loaded.encode("the river").tokens[0] == "[CLS]"
    assert (tmp_path / "vocab.txt").read_text(encoding="utf-8").split("\n") == [*vocabulary, ""]
    assert loaded.encode("[SEP]", add_special_tokens=False).ids != [loaded.token_to_id("[SEP]")]


BPE = {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}
PANICS = [  # of tokenizers, which are no Exception
    {"model": BPE, "normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}},
    {"model": BPE | {"merges": [["a", "b"]], "continuing_subword_prefix": "####"}},
]


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "{}", *map(json.dumps, PANICS)],
    ids=["empty", "cut", "list", "object", "normalizer panics", "merges panic"],
)
def test_load_tokenizer_missing_or_damaged_file_is_rejected(tmp_path, content):
    with pytest.raises(PipelineError, match="tokenizer not found"):
        load_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(PipelineError, match="the tokenizer cannot be loaded"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize("content", [b"", b"river\n", b"\xff\n"])
def test_load_tokenizer_different_vocab_txt_is_rejected(tmp_path, pieces, content):
    save_tokenizer(tmp_path, pieces, lowercase=True)
    (tmp_path / "vocab.txt").write_bytes(content)
    with pytest.raises(PipelineError, match="vocab.txt differs from tokenizer.json"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize("token", SPECIAL_TOKENS)
def test_build_tokenizer_missing_special_token_is_rejected(tmp_path, pieces, token):
    with pytest.raises(PipelineError, match="lacks a special token"):
        build_tokenizer([piece for piece in pieces if piece != token], lowercase=True)
    save_tokenizer(tmp_path, pieces, lowercase=True)
    saved = read_json(tmp_path / "tokenizer.json")
    saved["model"]["vocab"]["other"] = saved["model"]["vocab"].pop(token)
    write_json(tmp_path / "tokenizer.json", saved)
    with pytest.raises(PipelineError, match="lacks a special token"):
        load_tokenizer(tmp_path)


def test_check_vocab_size_model_with_fewer_entries_is_rejected(tmp_path, pieces):
    save_tokenizer(tmp_path, pieces, lowercase=True)
    tokenizer = load_tokenizer(tmp_path)
    check_vocab_size(tokenizer, len(pieces), tmp_path)
    with pytest.raises(PipelineError, match=rf"more entries than the model[\s\S]*has id {len(pieces) - 1}"):
        check_vocab_size(tokenizer, len(pieces) - 1, tmp_path)


def test_load_tokenizer_repeated_id_is_rejected(tmp_path, pieces):
    save_tokenizer(tmp_path, pieces, lowercase=True)
    (tmp_path / "vocab.txt").unlink()
    written = read_json(tmp_path / "tokenizer.json")
    written["model"]["vocab"]["twice"] = len(pieces) - 1
    write_json(tmp_path / "tokenizer.json", written)
    with pytest.raises(PipelineError, match="two vocabulary entries have the same id"):
        load_tokenizer(tmp_path)
