"""Encode text to token ids. With WordPiece, the ids of chunks between spaces are cached."""

from __future__ import annotations

import re
from array import array
from itertools import chain
from typing import Any

import numpy as np
from tokenizers import Tokenizer
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from pipeline_src.tokenizer.load import kind_of

# BERT treats every printable ASCII character as punctuation, except letters, digits and the space.
_ASCII_WORD = re.compile(r"[0-9A-Za-z]+|[!-/:-@\[-`{-~]")


class WordSplitter:
    """Splits text as BertNormalizer and BertPreTokenizer do, three times as fast on printable ASCII.

    Text may be split at spaces first, since the result for a chunk does not depend on the chunks around it: characters
    are cleaned, decomposed and lower-cased one by one, and a space ends every run of combining marks.
    """

    def __init__(self, lowercase: bool) -> None:
        self._lowercase = lowercase
        self._normalize = BertNormalizer(lowercase=lowercase).normalize_str
        self._split = BertPreTokenizer().pre_tokenize_str

    def split(self, text: str) -> list[str]:
        if text.isascii() and text.isprintable():
            return _ASCII_WORD.findall(text.lower() if self._lowercase else text)
        return [word for word, _ in self._split(self._normalize(text))]


UINT32 = np.dtype(np.uint32)
# Maximum number of chunks in the cache, which then takes about 100 MB. A full cache is cleared.
CACHED_CHUNKS = 1 << 19
# Chunks with more characters are not cached, since they rarely recur.
MAX_CACHED_LENGTH = 100


class Encoder:
    """Encodes text to the same ids as `tokenizers`. With WordPiece, it is several times as fast.

    In WordPiece, the ids of a chunk between spaces do not depend on other chunks, so they are cached.

    Args:
        id_type: unsigned dtype of the encoded ids, in native byte order.

    Attributes:
        lacks_prefix_space: whether no space is added before a text (RoBERTa's ``add_prefix_space: false``). Its first
            word then has other ids than the same word after a space.
    """

    def __init__(self, tokenizer: Tokenizer, id_type: np.dtype[Any] = UINT32) -> None:
        self.id_type = id_type
        self._chunks = _Chunks(tokenizer, self.id_type.char) if kind_of(tokenizer).by_chunk else None
        self._tokenizer = tokenizer
        alone = self.encode("a")
        self.lacks_prefix_space = self.encode("b a")[-len(alone) :] != alone

    def token_ends(self, text: str) -> list[int]:
        # Return, for each token, the end of its character span (exclusive).
        return [end for _, end in self._tokenizer.encode(text, add_special_tokens=False).offsets]

    def encode(self, text: str) -> list[int]:
        return array(self.id_type.char, self.encode_bytes(text)).tolist()

    def encode_bytes(self, text: str) -> bytes:
        """Encode a text to ids of dtype ``id_type``, as raw bytes, which is faster than a list."""
        if self._chunks is None:
            return array(self.id_type.char, self._tokenizer.encode(text, add_special_tokens=False).ids).tobytes()
        return b"".join(map(self._chunks.__getitem__, text.split(" ")))


class _Chunks(dict[str, bytes]):
    # A cache: chunk of text -> its ids as bytes.

    def __init__(self, tokenizer: Tokenizer, typecode: str) -> None:
        super().__init__()
        self._typecode = typecode
        self._split = WordSplitter(tokenizer.normalizer.lowercase).split
        self._tokenize = tokenizer.model.tokenize
        limit = tokenizer.model.max_input_chars_per_word
        self._entries = {piece: [number] for piece, number in tokenizer.get_vocab().items() if len(piece) <= limit}

    def __missing__(self, chunk: str) -> bytes:
        ids = array(self._typecode, chain.from_iterable(map(self._encode_word, self._split(chunk)))).tobytes()
        if len(chunk) <= MAX_CACHED_LENGTH:
            if len(self) >= CACHED_CHUNKS:
                self.clear()
            self[chunk] = ids
        return ids

    def _encode_word(self, word: str) -> list[int]:
        return self._entries.get(word) or [token.id for token in self._tokenize(word)]
