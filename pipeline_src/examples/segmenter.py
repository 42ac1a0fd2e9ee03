"""Split text without spaces into words with a library, for whole-word masking (``pretrain.masking.unit``).

A segmenter is a function of an installed package that returns the list of words in a text. It is named
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
# A test text, so that a function that is not a segmenter is rejected before it sees the corpus.
TEST_TEXT = "水车。"


@cache
def load_segmenter(name: str) -> Segmenter:
    """Import the segmenter ``MODULE:FUNCTION`` and call it with a test text."""
    module_name, _, function_name = name.partition(":")
    distributions = distributions_of(module_name)
    if not distributions:
        raise PipelineError(
            "the package of the segmenter is not installed",
            name,
            where=WHERE,
            hint=f"pip install {module_name.partition('.')[0]}, or name another segmenter, such as jieba:lcut",
        )
    try:
        function = getattr(importlib.import_module(module_name), function_name)
    except (Exception, SystemExit) as error:
        hint = f"{shown_text(error)}; look up the function in the documentation of {', '.join(sorted(distributions))}"
        raise PipelineError("the segmenter cannot be imported", name, where=WHERE, hint=hint) from None
    # A module also contains what it imports: `some_package.util:system` may be os.system. Only functions that the
    # package itself defines are accepted.
    origin = getattr(function, "__module__", None) or ""
    if isinstance(function, type) or not callable(function) or not distributions & distributions_of(origin):
        raise PipelineError(
            "the segmenter is not a function of its own package",
            name,
            where=WHERE,
            hint=f"it is {shown(function)}; name a function that {', '.join(sorted(distributions))} defines",
        )
    # Otherwise jieba would log its loading time in each process.
    logging.getLogger(module_name).setLevel(logging.WARNING)
    try:
        _words(TEST_TEXT, function)
    except PipelineError:
        raise
    except (Exception, SystemExit) as error:
        what = f"{type(error).__name__}: {shown_text(error)}"
        hint = f"it failed on {TEST_TEXT!r}: {what}; name a function that returns the list of words in a text"
        raise PipelineError("the segmenter failed on a test text", name, where=WHERE, hint=hint) from None
    return function


def segmenter_version(name: str) -> str:
    # The version is recorded, since another version of the package may split words differently.
    packages = sorted(distributions_of(name.partition(":")[0]))
    return " ".join([name, *(f"{package} {version(package)}" for package in packages)])


def _words(text: str, segment: Segmenter) -> list[str]:
    result = segment(text)
    if not isinstance(result, list) or not all(isinstance(word, str) for word in result):
        raise PipelineError(
            "the segmenter does not return a list of words",
            shown(result),
            where=WHERE,
            hint="name a function that returns a list of str, such as jieba:lcut instead of jieba:cut",
        )
    # Remove spaces before the comparison: some segmenters drop spaces, others return them as words.
    words = ["".join(word.split()) for word in result]
    if "".join(words) != "".join(text.split()):
        raise PipelineError(
            "the words of the segmenter are not the same text",
            f"{shown(text)} to {shown(' '.join(words))}",
            where=WHERE,
            hint="name a segmenter whose words, joined, are the text",
        )
    return words


def continues_word(text: str, segment: Segmenter, ends: Sequence[int]) -> np.ndarray:
    """Return, for each token, whether it continues the word of the previous token, bool [tokens].

    A token that spans two words belongs to the word of its last character.

    Args:
        ends: for each token, the end of its character span in ``text`` (exclusive), ascending.
    """
    is_space = np.asarray([char.isspace() for char in text], np.int64)
    last = np.asarray(ends, np.int64) - 1
    # The number of the last letter of each token, not counting spaces. A space has the number of the next letter. In
    # "ab c", the numbers are a = 1, b = 2, space = 3, c = 3.
    letter = np.cumsum(1 - is_space)[last] + is_space[last]
    # The words "ab" and "c" end with letters 2 and 3. So letters 1 and 2 are in word 0, and letter 3 is in word 1.
    word_ends = np.cumsum([len(word) for word in _words(text, segment)])
    word = np.searchsorted(word_ends, letter)
    return np.diff(word, prepend=-1) == 0
