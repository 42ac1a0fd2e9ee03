"""Text to ids; where the kind of vocabulary allows it, each distinct chunk of text is looked up once."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from itertools import chain

import numpy as np
from tokenizers import Tokenizer

from pipeline_src.tokenizer.load import kind_of
from pipeline_src.tokenizer.token_store import id_type
from pipeline_src.tokenizer.words import WordSplitter

CACHED_CHUNKS = 1 << 19  # about 100 MB when full; then it starts anew
LONGEST_CACHED = 100  # characters; longer chunks are as good as never met again


class Encoder:
    """`tokenizers`' ids; WordPieces at several times its speed.

    BERT's tokenizer never looks beyond a space, so chunks are cached. The other kinds go through `tokenizers`.

    Args:
        tokenizer: as ``load_tokenizer`` gives it.

    Attributes:
        id_type: of the ids in bytes: as the token store has them, in this machine's byte order.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.id_type = id_type(tokenizer.get_vocab_size()).newbyteorder("=")
        by_chunk = kind_of(tokenizer).by_chunk
        self._chunks = _Chunks(tokenizer, self.id_type.char) if by_chunk else None
        self._tokenizer = tokenizer

    def encode(self, text: str) -> list[int]:
        """Ids of ``text``, without marks."""
        return array(self.id_type.char, self.encode_bytes(text)).tolist()

    def encode_bytes(self, text: str) -> bytes:
        """The same ids as bytes of ``id_type``, the fastest form."""
        if self._chunks is None:
            return array(self.id_type.char, self._tokenizer.encode(text, add_special_tokens=False).ids).tobytes()
        return b"".join(map(self._chunks.__getitem__, text.split(" ")))

    def encode_batch(self, texts: Iterable[str]) -> tuple[np.ndarray, np.ndarray]:
        """Ids of all ``texts`` end to end, ``id_type`` [tokens], and how many each has, int64 [texts]."""
        encoded = [self.encode_bytes(text) for text in texts]
        lengths = np.array([len(ids) for ids in encoded], np.int64) // self.id_type.itemsize
        return np.frombuffer(b"".join(encoded), self.id_type), lengths


class _Chunks(dict[str, bytes]):
    """Ids by chunk; a chunk that is not there is encoded, and kept unless it is long."""

    def __init__(self, tokenizer: Tokenizer, typecode: str) -> None:
        super().__init__()
        self._typecode = typecode
        self._split = WordSplitter(tokenizer.normalizer.lowercase).split
        self._tokenize = tokenizer.model.tokenize
        longest = tokenizer.model.max_input_chars_per_word
        self._entries = {piece: [number] for piece, number in tokenizer.get_vocab().items() if len(piece) <= longest}

    def __missing__(self, chunk: str) -> bytes:
        ids = array(self._typecode, chain.from_iterable(map(self._encode_word, self._split(chunk)))).tobytes()
        if len(chunk) <= LONGEST_CACHED:
            if len(self) >= CACHED_CHUNKS:
                self.clear()
            self[chunk] = ids
        return ids

    def _encode_word(self, word: str) -> list[int]:
        return self._entries.get(word) or [token.id for token in self._tokenize(word)]
