"""The tokenizer's files: the released layout, and what is wrong with them said once and clearly."""

import json

import pytest

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import read_json, write_json
from pipeline_src.tokenizer.load import check_vocab_size, load_tokenizer
from pipeline_src.tokenizer.wordpiece import (
    SPECIAL_TOKENS,
    build_tokenizer,
    reserved_tokens,
    save_tokenizer,
)


def test_reserved_entries_stand_as_in_the_released_vocabulary():
    tokens = reserved_tokens(994)
    assert [tokens.index(token) for token in SPECIAL_TOKENS] == [0, 100, 101, 102, 103]
    assert tokens[1:100] == [f"[unused{number}]" for number in range(99)]
    assert tokens[104:] == [f"[unused{number}]" for number in range(99, 994)]


@pytest.mark.parametrize("unused", [0, 1, 99, 100])
def test_few_reserved_entries_follow_pad(unused):
    tokens = reserved_tokens(unused)
    first = min(unused, 99)
    assert tokens[0] == "[PAD]" and tokens[first + 1 : first + 5] == list(SPECIAL_TOKENS[1:])
    assert len(tokens) == 5 + unused == len(set(tokens))


@pytest.mark.parametrize("lowercase", [True, False])
def test_saved_files_load(tmp_path, pieces, lowercase):
    vocabulary = reserved_tokens(3) + pieces[5:]
    save_tokenizer(tmp_path, vocabulary, lowercase, max_word_length=7)
    loaded, built = load_tokenizer(tmp_path), build_tokenizer(vocabulary, lowercase, 7)
    for text in ("The OLDEST river", "[SEP] [unused1] café", "riverriver"):
        assert loaded.encode(text).ids == built.encode(text).ids
    assert loaded.encode("the river").tokens[0] == "[CLS]"
    assert (tmp_path / "vocab.txt").read_text(encoding="utf-8").split("\n") == [*vocabulary, ""]
    assert loaded.encode("[SEP]", add_special_tokens=False).ids != [loaded.token_to_id("[SEP]")]


def test_a_folder_without_tokenizer_is_one_clear_error(tmp_path):
    with pytest.raises(PipelineError, match="no tokenizer here"):
        load_tokenizer(tmp_path)


BPE = {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}
PANICS = [  # of tokenizers, which are no Exception
    {"model": BPE, "normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}},
    {"model": BPE | {"merges": [["a", "b"]], "continuing_subword_prefix": "####"}},
]


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", *map(json.dumps, PANICS)])
def test_a_damaged_tokenizer_is_one_clear_error(tmp_path, content):
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(PipelineError, match="not a tokenizer"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize("content", ["", "[PAD]\n[UNK]\n", "river\n"])
def test_another_vocab_txt_beside_it_is_one_clear_error(tmp_path, pieces, content):
    save_tokenizer(tmp_path, pieces, lowercase=True)
    (tmp_path / "vocab.txt").write_text(content)
    with pytest.raises(PipelineError, match="not the vocabulary of tokenizer.json"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize("token", SPECIAL_TOKENS)
def test_a_vocabulary_without_a_special_token_is_one_clear_error(tmp_path, pieces, token):
    with pytest.raises(PipelineError, match="lacks a special token"):
        build_tokenizer([piece for piece in pieces if piece != token], lowercase=True)
    save_tokenizer(tmp_path, pieces, lowercase=True)
    saved = read_json(tmp_path / "tokenizer.json")
    saved["model"]["vocab"]["other"] = saved["model"]["vocab"].pop(token)
    write_json(tmp_path / "tokenizer.json", saved)
    with pytest.raises(PipelineError, match="lacks a special token"):
        load_tokenizer(tmp_path)


def test_an_empty_vocabulary_is_one_clear_error():
    with pytest.raises(PipelineError, match="lacks a special token"):
        build_tokenizer([], lowercase=True)


def test_ids_that_two_entries_share_or_the_model_lacks_are_one_clear_error(tmp_path, pieces):
    save_tokenizer(tmp_path, pieces, lowercase=True)
    check_vocab_size(load_tokenizer(tmp_path), len(pieces), tmp_path)
    with pytest.raises(PipelineError, match="more entries than the model"):
        check_vocab_size(load_tokenizer(tmp_path), len(pieces) - 1, tmp_path)
    written = json.loads((tmp_path / "tokenizer.json").read_text())
    (tmp_path / "vocab.txt").write_bytes(b"\xff\n")
    with pytest.raises(PipelineError, match="not the vocabulary of tokenizer.json"):
        load_tokenizer(tmp_path)
    (tmp_path / "vocab.txt").unlink()
    written["model"]["vocab"]["twice"] = len(pieces) - 1
    (tmp_path / "tokenizer.json").write_text(json.dumps(written))
    with pytest.raises(PipelineError, match="two entries of the vocabulary have one id: .*twice"):
        load_tokenizer(tmp_path)
    written["model"]["vocab"]["twice"] = 10**6
    (tmp_path / "tokenizer.json").write_text(json.dumps(written))
    with pytest.raises(PipelineError, match="'twice' has id 1,000,000"):
        check_vocab_size(load_tokenizer(tmp_path), len(pieces) + 1, tmp_path)
