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
def test_load_segmenter_only_of_an_installed_package(name: str) -> None:
    with pytest.raises(PipelineError, match="a segmenter is a function of an installed package"):
        load_segmenter(name)
    with pytest.raises(ValidationError, match="is not installed; install it"):
        TextParams.model_validate({"from": "x", "segmenter": name})


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("no_such_function", "no such segmenter"),
        ("system", "a segmenter is a function that its own package defines"),
        ("getoutput", "a segmenter is a function that its own package defines"),
        ("run", "a segmenter is a function that its own package defines"),
        ("execute", "a segmenter is a function that its own package defines"),
        ("lcut", "a segmenter is a function that its own package defines"),
        ("NOTHING", "a segmenter is a function that its own package defines"),
        ("Cutter", "a segmenter is a function that its own package defines"),
        ("generator", "a segmenter must return a list of words"),
        ("text_itself", "a segmenter must return a list of words"),
        ("of_bytes", "a segmenter must return a list of words"),
        ("changes", "the segmenter changes the text"),
        ("fails", "not a segmenter"),
        ("leaves", "not a segmenter"),
    ],
)
@pytest.mark.usefixtures("packages")
def test_load_segmenter_what_does_not_cut_text_is_rejected_before_it_sees_the_corpus(
    function: str, message: str
) -> None:
    name = f"segmenter_for_tests:{function}"
    assert TextParams.model_validate({"from": "x", "segmenter": name}).segmenter == name
    with pytest.raises(PipelineError, match=message) as caught:
        load_segmenter(name)
    assert "\x1b" not in str(caught.value)


@pytest.mark.usefixtures("packages")
def test_load_segmenter_of_an_installed_package() -> None:
    assert load_segmenter("in_twos:in_twos")("abc") == ["ab", "c"]
    assert segmenter_version("in_twos:in_twos") == "in_twos:in_twos in_twos 1.0"


def test_params_checking_a_segmenter_imports_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(install_segmenter(tmp_path, "must_not_be_imported", "raise SystemExit"))
    TextParams.model_validate({"from": "x", "segmenter": "must_not_be_imported:cut"})
    TextParams.model_validate({"from": "x", "segmenter": "must_not_be_imported.inner:cut"})
    with pytest.raises(ValidationError, match="should match pattern"):
        TextParams.model_validate({"from": "x", "segmenter": "jieba"})
    with pytest.raises(PipelineError, match="no such segmenter"):
        load_segmenter("must_not_be_imported:cut")


def test_continues_word_jieba_words() -> None:
    text = "我们喜欢自然语言处理。"
    continues = continues_word(text, load_segmenter("jieba:lcut"), range(1, len(text) + 1))
    letters = zip(text, continues, strict=True)
    words = "".join(letter if inner else f" {letter}" for letter, inner in letters).split()
    assert words == ["我们", "喜欢", "自然语言", "处理", "。"]
    assert segmenter_version("jieba:lcut").startswith("jieba:lcut jieba 0.")
