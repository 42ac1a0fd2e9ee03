"""Words of a segmenter, laid over the tokens of text without spaces."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from pipeline_src.base.errors import PipelineError
from pipeline_src.examples.segmenter import continues_word, load_segmenter, segmenter_version
from pipeline_src.study.data import TextParams
from tests.studies import in_twos, install_segmenter


def test_continues_word_token_belongs_to_word_of_its_last_character() -> None:
    assert continues_word("abcdef", in_twos, [1, 2, 3, 4, 5, 6]).tolist() == [False, True, False, True, False, True]
    assert continues_word("abcdef", in_twos, [1, 3, 4, 6]).tolist() == [False, False, True, False]
    assert continues_word("abcdef", in_twos, [6]).tolist() == [False]
    assert continues_word("abcd", in_twos, [1, 1, 1, 4]).tolist() == [False, True, True, False]  # bytes of one letter


def test_continues_word_space_token_starts_the_next_word() -> None:
    assert continues_word("ab cd", in_twos, [1, 2, 3, 4, 5]).tolist() == [False, True, False, True, True]


@given(st.lists(st.text(st.sampled_from("ab中ü"), min_size=1, max_size=4), min_size=1, max_size=12), st.booleans())
def test_continues_word_segmenter_may_drop_or_keep_spaces(words: list[str], returned: bool) -> None:
    text = " ".join(words)
    continued = continues_word(text, re.compile(r"\s|\S+").findall if returned else str.split, range(1, len(text) + 1))
    begins = [n for n, continued in enumerate(continued.tolist()) if not continued]
    starts = [len(" ".join(words[:n])) for n in range(len(words))]  # of the space before each word but the first
    assert begins == starts


def test_continues_word_segmenter_that_changes_text_is_rejected() -> None:
    with pytest.raises(PipelineError, match="the words of the segmenter are not the same text"):
        continues_word("ab", lambda text: [text.upper()], [2])


OTHERS = """
import subprocess
import sys
from functools import partial
from os import system
from subprocess import getoutput
from jieba import lcut

ran = []
run, execute, NOTHING = subprocess.getoutput, partial(system), None

def generator(text): return (letter for letter in text)
def text_itself(text): return text
def of_bytes(text): return [text.encode()]
def changes(text): return [text.upper() + "!"]
def fails(text): raise RuntimeError("no \\x1b[2Jmodel")
def leaves(text): sys.exit(3)
class Cutter(list): pass
"""


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(install_segmenter(tmp_path / "one", "segmenter_for_tests", OTHERS))
    monkeypatch.syspath_prepend(install_segmenter(tmp_path / "two"))


# Python's own, this project's, what no pip has installed
NOT_OF_A_PACKAGE = ["os:system", "builtins:eval", "posix:system", "subprocess:getoutput", "importlib:import_module"]
NOT_OF_A_PACKAGE += ["re:findall", "pipeline_src.base.names:shown", "no_such_module:cut", "tests.studies:in_twos"]


@pytest.mark.parametrize("name", NOT_OF_A_PACKAGE)
def test_load_segmenter_package_not_installed_is_rejected(name: str) -> None:
    with pytest.raises(PipelineError, match="the package of the segmenter is not installed"):
        load_segmenter(name)
    with pytest.raises(ValidationError, match="is not installed; install it"):
        TextParams.model_validate({"from": "x", "segmenter": name})


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("no_such_function", "the segmenter cannot be imported"),
        ("system", "the segmenter is not a function of its own package"),
        ("getoutput", "the segmenter is not a function of its own package"),
        ("run", "the segmenter is not a function of its own package"),
        ("execute", "the segmenter is not a function of its own package"),
        ("lcut", "the segmenter is not a function of its own package"),
        ("NOTHING", "the segmenter is not a function of its own package"),
        ("Cutter", "the segmenter is not a function of its own package"),
        ("generator", "the segmenter does not return a list of words"),
        ("text_itself", "the segmenter does not return a list of words"),
        ("of_bytes", "the segmenter does not return a list of words"),
        ("changes", "the words of the segmenter are not the same text"),
        ("fails", "the segmenter failed on a test text"),
        ("leaves", "the segmenter failed on a test text"),
    ],
)
@pytest.mark.usefixtures("packages")
def test_load_segmenter_other_function_is_rejected(function: str, message: str) -> None:
    name = f"segmenter_for_tests:{function}"
    assert TextParams.model_validate({"from": "x", "segmenter": name}).segmenter == name
    with pytest.raises(PipelineError, match=message) as caught:
        load_segmenter(name)
    assert "\x1b" not in str(caught.value)


@pytest.mark.usefixtures("packages")
def test_load_segmenter_function_of_installed_package_is_loaded() -> None:
    assert load_segmenter("in_twos:in_twos")("abc") == ["ab", "c"]
    assert segmenter_version("in_twos:in_twos") == "in_twos:in_twos in_twos 1.0"


def test_params_with_segmenter_are_checked_without_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(install_segmenter(tmp_path, "must_not_be_imported", "raise SystemExit"))
    TextParams.model_validate({"from": "x", "segmenter": "must_not_be_imported:cut"})
    TextParams.model_validate({"from": "x", "segmenter": "must_not_be_imported.inner:cut"})
    with pytest.raises(ValidationError, match="should match pattern"):
        TextParams.model_validate({"from": "x", "segmenter": "jieba"})
    with pytest.raises(PipelineError, match="the segmenter cannot be imported"):
        load_segmenter("must_not_be_imported:cut")


def test_continues_word_jieba_gives_its_words() -> None:
    text = "我们喜欢自然语言处理。"
    continues = continues_word(text, load_segmenter("jieba:lcut"), range(1, len(text) + 1))
    letters = zip(text, continues, strict=True)
    words = "".join(letter if inner else f" {letter}" for letter, inner in letters).split()
    assert words == ["我们", "喜欢", "自然语言", "处理", "。"]
    assert segmenter_version("jieba:lcut").startswith("jieba:lcut jieba 0.")
