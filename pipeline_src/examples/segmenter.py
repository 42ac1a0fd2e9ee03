"""Split text that has no spaces into words with a library, for masks of whole words (``pretrain.masking.unit``).

A segmenter is a function of an installed package that returns the list of a text's words. It is named
``MODULE:FUNCTION``, such as ``jieba:lcut`` for Chinese or ``pythainlp:word_tokenize`` for Thai.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Sequence
from functools import cache
from importlib.metadata import version

import numpy as np

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.names import shown, shown_text
from pipeline_src.base.packages import distributions_of

WHERE = "segmenter of a source in params.yaml"
Segmenter = Callable[[str], Sequence[str]]
# The first text that a segmenter gets, so that a function that does something else never sees the corpus.
TEST_TEXT = "水车。"


@cache
def load_segmenter(name: str) -> Segmenter:
    """Import the segmenter ``MODULE:FUNCTION``, and try it on a test text."""
    module_name, _, function_name = name.partition(":")
    distributions = distributions_of(module_name)
    if not distributions:
        raise PipelineError(
            "a segmenter is a function of an installed package",
            name,
            where=WHERE,
            hint=f"pip install {module_name.partition('.')[0]}, or name another, such as jieba:lcut",
        )
    try:
        function = getattr(importlib.import_module(module_name), function_name)
    except (Exception, SystemExit) as error:
        hint = f"{shown_text(error)}; the documentation of {', '.join(sorted(distributions))} names its functions"
        raise PipelineError("no such segmenter", name, where=WHERE, hint=hint) from None
    # A package's module also has what it imports: `some_package.util:system` may be os.system.
    origin = getattr(function, "__module__", None) or ""
    if isinstance(function, type) or not callable(function) or not distributions & distributions_of(origin):
        raise PipelineError(
            "a segmenter is a function that its own package defines",
            name,
            where=WHERE,
            hint=f"this one is {shown(function)}; name a function of {', '.join(sorted(distributions))} itself",
        )
    # jieba logs its loading time in each process.
    logging.getLogger(module_name).setLevel(logging.WARNING)
    try:
        _words(TEST_TEXT, function)
    except PipelineError:
        raise
    except (Exception, SystemExit) as error:
        what = f"{type(error).__name__}: {shown_text(error)}"
        hint = f"it failed on {TEST_TEXT!r}: {what}; take a function from a text to the list of its words"
        raise PipelineError("not a segmenter", name, where=WHERE, hint=hint) from None
    return function


def segmenter_version(name: str) -> str:
    # Another version of its package may cut other words.
    packages = sorted(distributions_of(name.partition(":")[0]))
    return " ".join([name, *(f"{package} {version(package)}" for package in packages)])


def _words(text: str, segment: Segmenter) -> list[str]:
    result = segment(text)
    if not isinstance(result, list) or not all(isinstance(word, str) for word in result):
        raise PipelineError(
            "a segmenter must return a list of words",
            shown(result),
            where=WHERE,
            hint="take a function that returns a list of str, such as jieba:lcut where jieba:cut returns a generator",
        )
    # Some segmenters leave spaces out, others return them as words.
    words = ["".join(word.split()) for word in result]
    if "".join(words) != "".join(text.split()):
        raise PipelineError(
            "the segmenter changes the text",
            f"{shown(text)} to {shown(' '.join(words))}",
            where=WHERE,
            hint="take one whose words, end to end, are the text",
        )
    return words


def continues_word(text: str, segment: Segmenter, ends: Sequence[int]) -> np.ndarray:
    """Return whether each token continues the word of the token before it, bool [tokens].

    A token belongs to the word of its last character, even if it begins in the word before.

    Args:
        ends: for each token, the index of the character after its last, ascending.
    """
    is_space = np.asarray([char.isspace() for char in text], np.int64)
    last = np.asarray(ends, np.int64) - 1
    # The number of the letter with which a token ends, counted from 1; a space belongs to the letter after it. In
    # "ab c", the letters are a = 1, b = 2, c = 3, and the space counts as 3.
    letter = np.cumsum(1 - is_space)[last] + is_space[last]
    # The words "ab" and "c" end with letters 2 and 3, so letters 1 and 2 are in word 0, and letter 3 in word 1.
    word_ends = np.cumsum([len(word) for word in _words(text, segment)])
    word = np.searchsorted(word_ends, letter)
    return np.diff(word, prepend=-1) == 0
