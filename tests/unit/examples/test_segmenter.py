"""Words of a segmenter, laid over the tokens of text without spaces."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from tokenizers import Tokenizer, models, pre_tokenizers
from tokenizers.normalizers import BertNormalizer

from pipeline_src.common.errors import PipelineError
from pipeline_src.config.data import TextParams
from pipeline_src.examples.segmenter import continues_word, load_segmenter, segmenter_version
from tests.segmenters import in_twos


def test_continues_word_token_belongs_to_word_of_its_last_character() -> None:
    assert continues_word("abcdef", in_twos, [1, 2, 3, 4, 5, 6]).tolist() == [False, True, False, True, False, True]
    assert continues_word("abcdef", in_twos, [1, 3, 4, 6]).tolist() == [False, False, True, False]
    assert continues_word("abcdef", in_twos, [6]).tolist() == [False]
    assert continues_word("abcd", in_twos, [1, 1, 1, 4]).tolist() == [False, True, True, False]  # bytes of one letter


def test_continues_word_space_token_begins_the_next_word() -> None:
    assert continues_word("ab cd", in_twos, [1, 2, 3, 4, 5]).tolist() == [False, True, False, True, True]


@given(st.lists(st.text(st.sampled_from("ab中ü"), min_size=1, max_size=4), min_size=1, max_size=12), st.booleans())
def test_continues_word_same_with_or_without_space_words(words: list[str], returned: bool) -> None:
    text = " ".join(words)
    continued = continues_word(text, re.compile(r"\s|\S+").findall if returned else str.split, range(1, len(text) + 1))
    begins = [n for n, continued in enumerate(continued.tolist()) if not continued]
    starts = [len(" ".join(words[:n])) for n in range(len(words))]  # of the space before each word but the first
    assert begins == starts


def test_continues_word_segmenter_that_changes_text_is_rejected() -> None:
    with pytest.raises(PipelineError, match="the segmenter changes the text"):
        continues_word("ab", lambda text: [text.upper()], [2])


def test_load_segmenter_missing_function_is_rejected() -> None:
    for name in ("no_such_module:cut", "re:no_such_function"):
        with pytest.raises(PipelineError, match="no such segmenter"):
            load_segmenter(name)
    with pytest.raises(ValidationError, match="no_such_module is not installed"):
        TextParams.model_validate({"from": "x", "segmenter": "no_such_module:cut"})
    with pytest.raises(ValidationError, match="should match pattern"):
        TextParams.model_validate({"from": "x", "segmenter": "jieba"})
    assert TextParams.model_validate({"from": "x", "segmenter": "re:findall"}).segmenter == "re:findall"


def test_continues_word_jieba_words() -> None:
    text = "我们喜欢自然语言处理。"
    vocabulary = {"[UNK]": 0} | {char: n + 1 for n, char in enumerate(text)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    encoded = tokenizer.encode(text)
    continued = continues_word(text, load_segmenter("jieba:lcut"), [end for _, end in encoded.offsets])
    tokens = zip(encoded.tokens, continued, strict=True)
    words = "".join(token if inner else f" {token}" for token, inner in tokens).split()
    assert words == ["我们", "喜欢", "自然语言", "处理", "。"]
    assert segmenter_version("jieba:lcut").startswith("jieba:lcut jieba 0.")
