"""A tokenizer over a few words, so that token counts in these tests can be read off the text."""

from __future__ import annotations

import string
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from pipeline_src.tasks.questions import Answer, Question
from pipeline_src.tokenizer.wordpiece import build_tokenizer
from tests.unit.sources.conftest import no_waiting, web

__all__ = ["no_waiting", "web"]


CONTEXT = "Ada  was born, in Paris."
LONG = " ".join(f"w{number}" for number in range(400))


def question(answer: str, start: int | None = None, context: str = CONTEXT, text: str = "where") -> Question:
    # A space before it, so that w1 is not found in w10.
    start = f" {context}".index(f" {answer}") if start is None and f" {answer}" in f" {context}" else start
    return Question("q", text, context, (Answer(answer, context.index(answer) if start is None else start),))


def write(path: Path, text: str) -> Path:
    path.write_bytes(text.encode())
    return path


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    """Whole words for the numbers w0 to w999 and a few common words, single letters for all else."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *string.punctuation]
    words += [f"w{number}" for number in range(1000)] + ["the", "was", "born", "in", "paris", "who", "where"]
    letters = string.ascii_lowercase + string.digits
    words += [*letters, *(f"##{letter}" for letter in letters)]
    return build_tokenizer(list(dict.fromkeys(words)), lowercase=True)
