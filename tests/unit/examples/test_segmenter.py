"""Words of a segmenter over tokens: text without spaces, spaces kept or left out, tokens that cross words."""

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


def shouted(text: str) -> list[str]:
    return [text.upper()]


def test_a_token_belongs_to_the_word_of_its_last_letter() -> None:
    assert continues_word("abcdef", in_twos, [1, 2, 3, 4, 5, 6]).tolist() == [False, True, False, True, False, True]
    assert continues_word("abcdef", in_twos, [1, 3, 4, 6]).tolist() == [False, False, True, False]
    assert continues_word("abcdef", in_twos, [6]).tolist() == [False]
    assert continues_word("abcd", in_twos, [1, 1, 1, 4]).tolist() == [False, True, True, False]  # bytes of one letter


def test_a_token_of_a_space_begins_the_word_behind_it() -> None:
    assert continues_word("ab cd", in_twos, [1, 2, 3, 4, 5]).tolist() == [False, True, False, True, True]


@given(st.lists(st.text(st.sampled_from("ab中ü"), min_size=1, max_size=4), min_size=1, max_size=12), st.booleans())
def test_spaces_may_be_words_or_be_left_out(words: list[str], returned: bool) -> None:
    text = " ".join(words)
    found = continues_word(text, re.compile(r"\s|\S+").findall if returned else str.split, range(1, len(text) + 1))
    begins = [n for n, continued in enumerate(found.tolist()) if not continued]
    places = [len(" ".join(words[:n])) for n in range(len(words))]  # of the space before each word but the first
    assert begins == places


def test_a_segmenter_that_changes_the_text_is_refused() -> None:
    with pytest.raises(PipelineError, match="the segmenter changes the text"):
        continues_word("ab", shouted, [2])


def test_a_segmenter_that_is_not_there_is_one_error() -> None:
    for name in ("no_such_module:cut", "re:no_such_function"):
        with pytest.raises(PipelineError, match="no such segmenter"):
            load_segmenter(name)
    with pytest.raises(ValidationError, match="no_such_module is not installed; pip install no_such_module"):
        TextParams.model_validate({"from": "x", "segmenter": "no_such_module:cut"})
    with pytest.raises(ValidationError, match="should match pattern"):
        TextParams.model_validate({"from": "x", "segmenter": "jieba"})
    assert TextParams.model_validate({"from": "x", "segmenter": "re:findall"}).segmenter == "re:findall"


def test_words_of_jieba() -> None:
    text = "我们喜欢自然语言处理。"
    tokenizer = Tokenizer(
        models.WordPiece({"[UNK]": 0} | {char: n + 1 for n, char in enumerate(text)}, unk_token="[UNK]")
    )
    tokenizer.normalizer, tokenizer.pre_tokenizer = BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    encoded = tokenizer.encode(text)
    found = continues_word(text, load_segmenter("jieba:lcut"), [end for _, end in encoded.offsets])
    words = "".join(("" if inner else " ") + token for token, inner in zip(encoded.tokens, found, strict=True)).split()
    assert words == ["我们", "喜欢", "自然语言", "处理", "。"]
    assert segmenter_version("jieba:lcut").startswith("jieba:lcut jieba 0.")
