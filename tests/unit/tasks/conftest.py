"""A tokenizer over a few words, so that token counts in these tests can be read off the text."""

from __future__ import annotations

import string

import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    """Whole words for the numbers w0 to w999 and a few common words, single letters for all else."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *string.punctuation]
    words += [f"w{number}" for number in range(1000)] + ["the", "was", "born", "in", "paris", "who", "where"]
    letters = string.ascii_lowercase + string.digits
    words += [*letters, *(f"##{letter}" for letter in letters)]
    vocabulary = {word: number for number, word in enumerate(dict.fromkeys(words))}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer
