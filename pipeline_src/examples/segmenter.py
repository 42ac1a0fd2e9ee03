"""Split text that has no spaces into words with a library, for masks of whole words (``pretrain.masking.unit``).

A segmenter is a function that returns the list of a text's words. It is named ``MODULE:FUNCTION``, such as
``jieba:lcut`` for Chinese or ``pythainlp:word_tokenize`` for Thai.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Sequence
from importlib.metadata import packages_distributions, version

import numpy as np

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.names import shown

WHERE = "segmenter of a source in params.yaml"
Segmenter = Callable[[str], Sequence[str]]


def load_segmenter(name: str) -> Segmenter:
    """Import the segmenter ``MODULE:FUNCTION``."""
    module_name, _, function_name = name.partition(":")
    try:
        function = getattr(importlib.import_module(module_name), function_name)
    except (ImportError, AttributeError) as error:
        raise PipelineError(
            "no such segmenter", name, where=WHERE,
            hint=f"{error}; pip install {module_name.partition('.')[0]}, which `make study` does not install",
        ) from None  # fmt: skip
    logging.getLogger(module_name).setLevel(logging.WARNING)  # jieba logs its loading time in each process
    return function


def segmenter_version(name: str) -> str:
    """Return ``MODULE:FUNCTION`` and its package's version, if known: another version may cut other words."""
    module = name.partition(":")[0].partition(".")[0]
    return " ".join([name, *(f"{package} {version(package)}" for package in packages_distributions().get(module, []))])


def continues_word(text: str, segment: Segmenter, ends: Sequence[int]) -> np.ndarray:
    """Return whether each token continues the word of the token before it, bool [tokens].

    A token belongs to the word of its last character, even if it begins in the word before.

    Args:
        ends: for each token, the index of the character after its last, ascending.
    """
    # some segmenters leave spaces out, others return them as words
    words = ["".join(word.split()) for word in segment(text)]
    if "".join(words) != "".join(text.split()):
        raise PipelineError(
            "the segmenter changes the text", f"{shown(text)} to {shown(' '.join(words))}", where=WHERE,
            hint="take one whose words, end to end, are the text",
        )  # fmt: skip
    is_space = np.asarray([char.isspace() for char in text], np.int64)
    last = np.asarray(ends, np.int64) - 1
    # number of the letter with which a token ends; a space belongs to the next word
    letter = np.cumsum(1 - is_space)[last] + is_space[last]
    word = np.searchsorted(np.cumsum([len(word) for word in words]), letter)
    return np.diff(word, prepend=-1) == 0
